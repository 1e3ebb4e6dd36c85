# SPDX-License-Identifier: Apache-2.0
"""Buffers: program order is effect order, for sizes known, symbolic and given by values."""

import math

import jax
import numpy as np
import pytest

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Dim, Graph, TensorType, ops, text
from maxjax.lower import to_jax

CPU, GPU = DeviceRef.CPU(), DeviceRef.GPU()


def values(*shape):
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def f32(*dims):
    return TensorType(DType.float32, dims, CPU)


def graph_of(build, *types):
    """``build`` is given values of ``types``; what it returns is put out."""
    with Graph("g", input_types=types) as g:
        out = build(*[v.buffer if isinstance(v.type, BufferType) else v.tensor for v in g.inputs])
        g.output(*(out if isinstance(out, (list, tuple)) else [] if out is None else [out]))
    return g


def stateful(build, state, *arrays, dims=None):
    """Runs ``build(buffer, *values)``; its outputs, and the caller's buffer afterwards."""
    types = [f32(*(dims or state.shape)).as_buffer()]
    types += [TensorType(DType.of(a.dtype), a.shape, CPU) for a in arrays]
    model = InferenceSession().load(graph_of(build, *types))
    held = Buffer.from_numpy(state.copy())
    outputs = [np.array(o.to_numpy()) for o in model(held, *arrays)]
    return outputs, np.array(held.to_numpy())


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("symbolic", [False, True])
def test_reads_and_writes_happen_in_program_order(n, symbolic):
    def build(b, x):
        before = b[...]
        b[0] = x
        row = b[0]
        b[...] = b[...] * 2
        middle = ops.buffer_load(b)
        b[1:, 1] = b[1:, 0]
        b[[-1]] = row  # a list is as good as a tuple
        return before, row, middle, b[...]

    state, x = values(n, 3), np.float32([7, 8, 9])
    (before, row, middle, after), held = stateful(
        build, state, x, dims=["n", 3] if symbolic else None
    )
    want = state.copy()
    np.testing.assert_array_equal(before, want)
    want[0] = x
    np.testing.assert_array_equal(row, x)
    want *= 2
    np.testing.assert_array_equal(middle, want)
    want[1:, 1] = want[1:, 0]
    want[-1] = x
    np.testing.assert_array_equal(after, want)
    np.testing.assert_array_equal(held, want)


def test_the_callers_buffer_is_changed_each_time_and_never_the_callers_array():
    def append(b, x, at):
        b[at] = x

    model = InferenceSession().load(
        graph_of(append, f32("n", 2).as_buffer(), f32(2), TensorType(DType.int64, [], CPU))
    )
    array = np.zeros((3, 2), np.float32)
    held = Buffer.from_numpy(array.copy())
    same = held
    for i in range(3):
        assert model(held, np.float32([i, i + 1]), np.int64(i)) == []
    assert held is same
    np.testing.assert_array_equal(held.to_numpy(), [[0, 1], [1, 2], [2, 3]])
    assert not array.any()


INDICES = [
    np.s_[0], np.s_[-1], np.s_[1:3], np.s_[:, 0], np.s_[..., 1:], np.s_[0, 2], np.s_[1:, ::2],
    np.s_[::2], np.s_[1::2, 1:], np.s_[::2, ::2], np.s_[...], np.s_[2:2], np.s_[:, :],
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("dims", [None, ["n", 3]], ids=["static", "symbolic"])
def test_slices_are_written_where_they_are_read(index, dims):
    def build(b, x):
        b[index] = x
        return b[index]

    state = values(4, 3)
    x = -1 - values(*state[index].shape)
    if dims and index in (np.s_[::2], np.s_[1::2, 1:], np.s_[::2, ::2], np.s_[1:, ::2], np.s_[...],
                          np.s_[:, 0], np.s_[..., 1:], np.s_[:, :]):  # fmt: skip
        # The source has to have the dims of the slice, which are expressions.
        def build(b, x, build=build):
            return build(b, x.rebind(b[index].shape))

    (read,), held = stateful(build, state, x, dims=dims)
    state[index] = x
    np.testing.assert_array_equal(read, x)
    np.testing.assert_array_equal(held, state)


@pytest.mark.parametrize("k", [0, 1, 2, -1, -3])
def test_slices_by_value_are_written_where_they_are_read(k):
    pairs = [
        (lambda k: np.s_[k], np.s_[k], (3,)),
        (lambda k: np.s_[:, k], np.s_[:, k], (5,)),
        (lambda k: ((slice(k, None), 2),), None, (2, 3)),
        (lambda k: ((slice(k, None, 2), 2), 1), None, (2,)),
        (lambda k: ((slice(None, None, -1), 5), (slice(k, None), 1)), None, (5, 1)),
    ]
    for by_value, index, shape in pairs:
        state, x = values(5, 3), -1 - values(*shape)

        def build(b, x, k, by_value=by_value):
            b[by_value(k)] = x
            return b[by_value(k)]

        (read,), held = stateful(build, state, x, np.int64(k))
        np.testing.assert_array_equal(read, x)
        if index is not None:
            state[index] = x
            np.testing.assert_array_equal(held, state)
        assert (held < 0).sum() == x.size  # nothing else was written


def test_negative_steps_write_backwards():
    def build(b, x):
        ops.buffer_store_slice(b, x, [(slice(None, None, -1), 4)])
        ops.buffer_store_slice(b, x[0:2], [(slice(3, None, -2), 2), ...])

    state, x = values(4, 2), 10 + values(4, 2)
    _, held = stateful(build, state, x)
    state[::-1] = x
    state[3::-2] = x[:2]
    np.testing.assert_array_equal(held, state)


def test_out_of_range_when_it_runs():
    def build(b, x, k):
        b[k] = x

    for k, row in [(9, 3), (-9, 0)]:
        _, held = stateful(build, values(4, 3), np.float32([-1, -2, -3]), np.int64(k))
        assert held[row].tolist() == [-1, -2, -3] and (held < 0).sum() == 3

    def far(b, x):
        b[5] = x

    with pytest.raises(ValueError, match=r"buffer_store_slice: index 5 is out of range .* size 4"):
        stateful(far, values(4, 3), np.zeros(3, np.float32), dims=["n", 3])


def test_traced_with_symbolic_dims():
    def build(b, x, k):
        b[0] = x
        b[k] = b[0] + 1
        b[1:] = b[1:] * 2
        b[::2] = b[::2] * 10
        return b[...]

    graph = graph_of(build, f32("n", 2).as_buffer(), f32(2), TensorType(DType.int64, [], CPU))
    n = jax.export.symbolic_shape("n")[0]
    specs = [
        jax.ShapeDtypeStruct((n, 2), np.float32),
        jax.ShapeDtypeStruct((2,), np.float32),
        jax.ShapeDtypeStruct((), np.int64),
    ]
    with jax.enable_x64(True):
        fn = to_jax(graph)
        exported = jax.export.export(jax.jit(lambda b, x, k: fn({}, [x, k], [b])))(*specs)
        state = values(4, 2)
        (out,), (held,) = exported.call(state, np.float32([5, 6]), np.int64(-1))
    state[0] = [5, 6]
    state[-1] = [6, 7]
    state[1:] *= 2
    state[::2] *= 10
    np.testing.assert_array_equal(out, state)
    np.testing.assert_array_equal(held, state)


def test_created_buffers(run):
    def build(x):
        zeros = ops.buffer_create(BufferType(DType.float32, x.shape, CPU))
        ones = ops.buffer_create(BufferType(DType.int8, [2, "n"], CPU), init_value=1)
        flags = ops.buffer_create(BufferType(DType.bool, [2], CPU), init_value=True)
        other = ops.buffer_create(
            BufferType(DType.float32, x.shape, CPU), init_value=np.float64(1.5)
        )
        before = zeros[...]
        zeros[...] = x
        zeros[0, 0:1] = other[0, 0:1]
        return before, zeros[...], ones[...], flags[...], other

    for n in (1, 3):
        x = 5 + values(2, n)
        before, after, ones, flags, other = run(build, x, dims=[[2, "n"]])
        assert not before.any()
        want = x.copy()
        want[0, 0] = 1.5
        np.testing.assert_array_equal(after, want)
        np.testing.assert_array_equal(ones, np.ones((2, n), np.int8))
        assert flags.tolist() == [True, True] and (other == 1.5).all() and other.shape == (2, n)


def test_a_subgraph_changes_the_buffer_it_is_given():
    def build(b):
        s = Graph.current.add_subgraph(
            "bump", lambda c: c.__setitem__(0, c[0] + 1), [f32("n").as_buffer()]
        )
        ops.call(s, b)
        first = b[0]
        ops.call(s, b)
        return first

    (first,), held = stateful(build, values(3), dims=["n"])
    assert first == 1 and held.tolist() == [2, 1, 2]


@pytest.fixture
def g():
    types = [
        BufferType(DType.float32, [4, 6], CPU), f32(4, 6), f32(), f32(5),
        TensorType(DType.int32, [4, 6], CPU), TensorType(DType.float32, [4, 6], GPU),
        BufferType(DType.float32, ["n", 6], CPU), TensorType(DType.int64, [], CPU),
    ]  # fmt: skip
    with Graph("g", input_types=types) as graph:
        yield [v.buffer if isinstance(v.type, BufferType) else v.tensor for v in graph.inputs]


def test_reading_out_of_range_is_a_value_error_and_writing_an_index_error(g):
    b, m, _, _, _, _, n, _ = g
    with pytest.raises(ValueError, match="slice_tensor: index 9 is out of range for dimension 0"):
        b[9]
    problem = (
        r"buffer_store_slice: index 9 is out of range .* size 4 \(given f32\[4, 6\], f32\[6\]\)"
    )
    with pytest.raises(IndexError, match=problem):
        b[9] = m[0]
    with pytest.raises(IndexError, match="index -5 is out of range"):
        b[-5] = m[0]
    with pytest.raises(IndexError, match="slice from 0 to 9 is not inside dimension 0 of size 4"):
        b[0:9] = m
    with pytest.raises(IndexError, match="index 6 is out of range for dimension 1"):
        n[:, 6] = n[:, 0]


def test_what_is_stored_must_fit(g):
    b, m, scalar, v, i, gpu, n, k = g
    with pytest.raises(ValueError, match=r"source has shape \[4, 6\], the slice \[6\]"):
        b[0] = m
    with pytest.raises(ValueError, match=r"source has shape \[5\], the slice \[6\]"):
        b[0] = v
    with pytest.raises(ValueError, match=r"source has shape \[\], the slice \[6\]"):
        b[0] = scalar
    with pytest.raises(ValueError, match=r"source has shape \[6\], the slice \[1, 6\]"):
        b[0:1] = m[0]
    with pytest.raises(ValueError, match="source is int32, the buffer float32; cast it"):
        b[...] = i
    with pytest.raises(ValueError, match=r"source has shape \[5\], the buffer \[4, 6\]"):
        b[...] = v
    with pytest.raises(ValueError, match="source is on gpu:0, the buffer on cpu:0; transfer it"):
        b[...] = gpu
    with pytest.raises(ValueError, match="source is on gpu:0, the buffer on cpu:0; transfer it"):
        b[0] = gpu[0]
    with pytest.raises(ValueError, match=r"source has shape \[n, 6\], the buffer \[4, 6\]"):
        b[...] = n[...]
    for index in (..., 0):
        with pytest.raises(TypeError, match="expected a tensor value, got float 1"):
            b[index] = 1.0
    with pytest.raises(TypeError, match="expected a tensor value, got a buffer"):
        b[...] = b
    with pytest.raises(TypeError, match="expected a buffer value"):
        ops.buffer_store(m, m)
    with pytest.raises(TypeError, match="expected a buffer value"):
        ops.buffer_load(m)
    with pytest.raises(ValueError, match=r"known only when the graph runs; give it with \(slice"):
        b[:k] = m[0:2]
    with pytest.raises(ValueError, match=r"a new axis \(None\) can be read, not written"):
        b[None] = m[None]
    with pytest.raises(TypeError, match=r"1\.5 is not an index"):
        b[1.5] = m[0]
    with pytest.raises(ValueError, match="3 indices are too many for rank 2"):
        b[0, 0, 0] = scalar
    with pytest.raises(TypeError, match=r"indices are a list, got 0"):
        ops.buffer_store_slice(b, m[0], 0)


@pytest.mark.parametrize(
    ("dtype", "fill", "error", "problem"),
    [
        ("int32", 1.5, ValueError, "init_value 1.5 is none of the integers from -2147483648 to"),
        ("int8", 300, ValueError, "init_value 300 is none of the integers from -128 to 127"),
        ("bool", 2, ValueError, "init_value 2 is none of the integers from 0 to 1"),
        ("int8", float("nan"), ValueError, "init_value nan is none of"),
        ("float32", "a", TypeError, "init_value is a number, not 'a'"),
    ],
)
def test_what_a_buffer_cannot_be_filled_with(dtype, fill, error, problem):
    with Graph("g"), pytest.raises(error, match=f"buffer_create: {problem}"):
        ops.buffer_create(BufferType(DType[dtype], [2], CPU), init_value=fill)


def test_a_buffer_is_made_of_a_buffer_type(g):
    with pytest.raises(TypeError, match="type is a BufferType, not TensorType"):
        ops.buffer_create(f32(2))
    shape = ops.buffer_create(f32("n", 2).as_buffer()).type.shape
    shape[0] = Dim(5)  # a type is the caller's to change


def test_a_created_buffer_needs_sizes_that_are_known(run):
    with pytest.raises(ValueError, match=r"(?s)buffer_create: dim 'q' has no size"):
        run(lambda x: [ops.buffer_create(f32("q").as_buffer()), x][1:], np.float32(0))


def test_buffer_ops_read_back_from_text(g):
    b, m, _, _, _, _, n, k = g
    b[k] = m[0]
    n[(slice(k, None), 2), ..., ::2] = m[0:2, 0:3]
    made = ops.buffer_create(BufferType(DType.int8, [2], CPU), init_value=3)
    graph = Graph.current
    graph.output(made[...], b[0])
    written = text.dump(graph)
    assert text.dump(text.parse(written)) == written
