# SPDX-License-Identifier: Apache-2.0
"""Padding, tiling and repeating, against NumPy."""

import math

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops
from maxjax.graph.op import OPS

SIZES = [0, 1, 3]


def values(*shape):
    return np.arange(1, 1 + math.prod(shape), dtype=np.float32).reshape(shape)


@pytest.fixture
def g():
    cpu = DeviceRef.CPU()
    types = [TensorType(DType.float32, s, cpu) for s in (["b", "s", 8], [4, 6], [], [0, 3], ["n"])]
    types += [TensorType(DType.int64, [4], cpu)]
    with Graph("g", input_types=types) as graph:
        graph.x, graph.m, graph.scalar, graph.empty, graph.n, graph.i = (
            v.tensor for v in graph.inputs
        )
        yield graph


# ---------------------------------------------------------------- pad


@pytest.mark.parametrize("n", SIZES)
def test_pad_with_a_constant_against_numpy(run, n):
    x = values(n, 2)
    zeros, nines, same = run(
        lambda x: [
            ops.pad(x, [1, 2, 0, 3]),
            ops.pad(x, (0, 1, 2, 0), value=9),
            ops.pad(x, [0, 0, 0, 0]),
        ],
        x,
        dims=[["n", 2]],
    )
    np.testing.assert_array_equal(zeros, np.pad(x, [(1, 2), (0, 3)]))
    np.testing.assert_array_equal(nines, np.pad(x, [(0, 1), (2, 0)], constant_values=9))
    np.testing.assert_array_equal(same, x)


@pytest.mark.parametrize("mode", ["reflect", "edge"])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_pad_with_its_own_elements_against_numpy(run, run_symbolic, mode, n):
    x = values(n, 4)
    want = np.pad(x, [(7, 9), (0, 3)], mode=mode)

    def build(x):
        return ops.pad(x, [7, 9, 0, 3], mode=mode)

    np.testing.assert_array_equal(run(build, x, dims=[["n", 4]])[0], want)
    np.testing.assert_array_equal(run_symbolic(build, x, dims=[["n", 4]])[0], want)


@pytest.mark.parametrize("dtype", [np.int8, np.bool_, np.float16, np.uint64])
def test_pad_keeps_the_dtype(run, dtype):
    x = np.ones(2, dtype)
    zero, one, edge = run(
        lambda x: [ops.pad(x, [1, 0]), ops.pad(x, [1, 0], value=True), ops.pad(x, [1, 0], "edge")],
        x,
    )
    for out, first in ((zero, 0), (one, 1), (edge, 1)):
        assert out.dtype == dtype
        np.testing.assert_array_equal(out, np.array([first, 1, 1], dtype))


def test_pad_traced_with_symbolic_dims(run_symbolic):
    x = values(3, 2)
    (out,) = run_symbolic(lambda x: ops.pad(x, [1, 2, 0, 1], value=-1), x, dims=[["n", "m"]])
    np.testing.assert_array_equal(out, np.pad(x, [(1, 2), (0, 1)], constant_values=-1))


def test_pad_value_may_be_a_tensor_and_a_scalar_may_be_padded_by_nothing(run):
    x = values(2)
    padded, scalar = run(
        lambda x, v: [ops.pad(x, [0, 1], value=v), ops.pad(v, [])], x, np.float32(np.nan)
    )
    np.testing.assert_array_equal(padded, [1, 2, np.nan])
    assert np.isnan(scalar)


@pytest.mark.parametrize("paddings", [[1, 1], [1, 1, 1], [0] * 6])
def test_pad_needs_two_paddings_a_dimension(g, paddings):
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match=f"pad: rank 2 needs 4 paddings, .*got {len(paddings)}"):
            ops.pad(g.m, paddings)


@pytest.mark.parametrize(
    ("arguments", "error", "why"),
    [
        ({"paddings": [-1, 0, 0, 0]}, ValueError, r"paddings cannot be negative, got \[-1, 0"),
        ({"mode": "wrap"}, ValueError, "mode must be one of constant, reflect, edge, got 'wrap'"),
        ({"paddings": ["n", 0, 0, 0]}, TypeError, "a padding must be an int, got 'n'"),
        ({"paddings": [0.5, 0, 0, 0]}, TypeError, "a padding must be an int, got 0.5"),
    ],
)
def test_pad_refuses(g, arguments, error, why):
    with pytest.raises(error, match=f"pad: {why}"):
        ops.pad(g.m, **{"paddings": [1, 1, 1, 1]} | arguments)


def test_pad_refuses_values_that_do_not_fit(g):
    with pytest.raises(ValueError, match=r"pad: .*float"):
        ops.pad(g.i, [1, 1], value=0.5)
    with pytest.raises(ValueError, match=r"pad: .*300"):
        ops.pad(ops.cast(g.i, DType.uint8), [1, 1], value=300)
    with pytest.raises(ValueError, match="pad: the value must be a scalar"):
        ops.pad(g.n, [1, 1], value=g.n)
    with pytest.raises(ValueError, match="value of float32 does not fit a tensor of uint8"):
        ops.pad(ops.cast(g.i, DType.uint8), [1, 1], value=g.scalar)


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_nothing_has_no_element_to_repeat(g, run, mode):
    with pytest.raises(ValueError, match=r"pad: dimension 0 is 0: .*no element to repeat"):
        ops.pad(g.empty, [1, 0, 0, 0], mode=mode)
    with pytest.raises(ValueError, match=r"pad: dimension 0 is 0: .*no element to repeat"):
        run(lambda x: ops.pad(x, [1, 0], mode=mode), values(0), dims=[["n"]])
    assert ops.pad(g.empty, [0, 0, 1, 1], mode=mode).shape == [0, 5]


def test_pad_op_takes_a_value_in_its_constant_mode_only(g):
    pad = OPS["pad"]
    with pytest.raises(ValueError, match="pad: a value goes with mode 'constant'"):
        pad((0, 1), "edge")(g.n, g.scalar)
    with pytest.raises(ValueError, match="pad: a value goes with mode 'constant'"):
        pad((0, 1), "constant")(g.n)


# ---------------------------------------------------------------- tile


@pytest.mark.parametrize("n", SIZES)
def test_tile_against_numpy(run, n):
    x = values(n, 2)
    both, named, scalar = run(
        lambda x, s: [ops.tile(x, [3, 2]), ops.tile(x, [1, "n"]), ops.tile(s, [])],
        x,
        np.float32(5),
        dims=[["n", 2], []],
    )
    np.testing.assert_array_equal(both, np.tile(x, (3, 2)))
    np.testing.assert_array_equal(named, np.tile(x, (1, n)))
    assert scalar == 5


def test_tile_traced_with_symbolic_dims(run_symbolic):
    x = values(3, 2)
    both, named = run_symbolic(
        lambda x: [ops.tile(x, [3, 2]), ops.tile(x, ["m", Dim("n") + 1])], x, dims=[["n", "m"]]
    )
    np.testing.assert_array_equal(both, np.tile(x, (3, 2)))
    np.testing.assert_array_equal(named, np.tile(x, (2, 4)))


@pytest.mark.parametrize(
    ("repeats", "why"),
    [
        ([2], "rank 2 needs 2 repeats, one per dimension, got 1"),
        ([2, 0], r"repeats must be at least 1, got \[2, 0\]"),
        ([-1, 1], r"repeats must be at least 1, got \[-1, 1\]"),
    ],
)
def test_tile_refuses(g, repeats, why):
    with pytest.raises(ValueError, match=f"tile: {why}"):
        ops.tile(g.m, repeats)


def test_tile_refuses_arrays(g):
    with pytest.raises(TypeError, match="tile: expected a tensor value, got ndarray"):
        ops.tile(np.ones(2, np.float32), [2])


# ---------------------------------------------------------------- repeat_interleave


@pytest.mark.parametrize("n", SIZES)
def test_repeat_interleave_against_numpy(run, n):
    x = values(n, 2)
    flat, rows, columns, named = run(
        lambda x: [
            ops.repeat_interleave(x, 2),
            ops.repeat_interleave(x, 3, axis=0),
            ops.repeat_interleave(x, 2, axis=-1, out_dim=4),
            ops.repeat_interleave(x, Dim("n"), axis=1),
        ],
        x,
        dims=[["n", 2]],
    )
    np.testing.assert_array_equal(flat, np.repeat(x, 2))
    np.testing.assert_array_equal(rows, np.repeat(x, 3, 0))
    np.testing.assert_array_equal(columns, np.repeat(x, 2, 1))
    np.testing.assert_array_equal(named, np.repeat(x, n, 1))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("counts", [[2, 0, 3], [0, 0, 5], [0, 5, 0], [5, 0, 0], [2], 2])
def test_each_its_own_number_of_times_against_numpy(run, dtype, counts):
    x, counts = values(3, 2), np.array(counts, dtype)
    want = np.repeat(x, counts, 0)
    (out,) = run(
        lambda x, c: ops.repeat_interleave(x, c, axis=0, out_dim=len(want)),
        x,
        counts,
        dims=[["n", 2], list(counts.shape)],
    )
    np.testing.assert_array_equal(out, want)


def test_each_its_own_number_of_times_traced_with_symbolic_dims(run_symbolic):
    x, counts = values(3, 2), np.int64([2, 0, 1])
    for out_dim in (3, "n"):
        (out,) = run_symbolic(
            lambda x, c, to=out_dim: ops.repeat_interleave(x, c, axis=0, out_dim=to),
            x,
            counts,
            dims=[["n", 2], ["n"]],
        )
        np.testing.assert_array_equal(out, np.repeat(x, counts, 0))


@pytest.mark.parametrize(
    ("counts", "size", "picked"),
    [
        ([2, 2, 2], 4, [0, 0, 1, 1]),  # more than out_dim: cut off
        ([1, 1, 0], 4, [0, 1, 2, 2]),  # less: the last element again
        ([1, -5, 1], 2, [0, 2]),  # a negative number is 0
        ([1, 1, 1], 0, []),
    ],
)
def test_counts_that_are_not_the_size(run, counts, size, picked):
    x = values(3, 2)
    (out,) = run(
        lambda x, c: ops.repeat_interleave(x, c, axis=0, out_dim=size), x, np.int64(counts)
    )
    np.testing.assert_array_equal(out, x[picked])


def test_nothing_is_repeated_to_nothing_only(run):
    def build(size):
        return lambda x, c: ops.repeat_interleave(x, c, axis=0, out_dim=size)

    arrays, dims = (values(0, 2), np.int64([])), [["n", 2], ["n"]]
    assert run(build(0), *arrays, dims=dims)[0].shape == (0, 2)
    with pytest.raises(ValueError, match=r"there is no element to repeat, .*cannot have 3"):
        run(build(3), *arrays, dims=dims)


@pytest.mark.parametrize(
    "counts", [[1, 2, 3], [0, 0, 0], [0, -4, 1], [5, 0, 0], [2], np.int64(3), np.int32([0])]
)
def test_the_size_is_what_the_numbers_add_up_to(run, counts):
    x, counts = values(3, 2), np.asarray(counts)
    (got,) = run(lambda x, c: ops.repeat_interleave(x, c, axis=0, out_dim="total"), x, counts)
    np.testing.assert_array_equal(got, np.repeat(x, np.maximum(counts, 0), axis=0))


@pytest.mark.parametrize("n", [0, 1, 4])
def test_the_size_of_a_symbolic_axis_repeated_by_numbers(run, n):
    x, counts = values(2, n), np.arange(n)
    (got,) = run(
        lambda x, c: ops.repeat_interleave(x, c, axis=1, out_dim="total"),
        x, counts, dims=[[2, "n"], ["n"]],
    )  # fmt: skip
    np.testing.assert_array_equal(got, np.repeat(x, counts, axis=1))


def test_one_program_needs_a_size(run_symbolic):
    def build(x, c):
        out = ops.repeat_interleave(x, c, axis=0, out_dim="total")
        assert out.shape == ["total", 2]
        return out

    with pytest.raises(
        ValueError,
        match=r"repeat_interleave: the size total depends on values, .*a number or a dimension of "
        r"an input as out_dim, or bounds=\{...\} \(given f32\[n, 2\], si64\[n\]\)\n  at .*"
        r"test_extend.py:\d+ in build",
    ):
        run_symbolic(build, values(3, 2), np.int64([1, 2, 3]), dims=[["n", 2], ["n"]])


def test_as_many_numbers_as_elements(run, g):
    with pytest.raises(ValueError, match="there are 4 repeats for dimension 1 of size 6"):
        ops.repeat_interleave(g.m, g.i, axis=1, out_dim=3)
    with pytest.raises(ValueError, match="repeat_interleave: there are 2 repeats for 3 elements"):
        run(
            lambda x, c: ops.repeat_interleave(x, c, axis=0, out_dim=3),
            values(3, 2),
            np.int64([1, 2]),
            dims=[["n", 2], ["k"]],
        )


def test_repeat_interleave_refuses(g):
    with pytest.raises(ValueError, match="repeat_interleave: repeats must be at least 1, got 0"):
        ops.repeat_interleave(g.m, 0)
    with pytest.raises(ValueError, match="repeat_interleave: axis 2 is out of range for rank 2"):
        ops.repeat_interleave(g.m, 2, axis=2)
    with pytest.raises(ValueError, match="repeat_interleave: repeats that are a tensor need out_"):
        ops.repeat_interleave(g.m, g.i, axis=0)
    with pytest.raises(ValueError, match=r"repeats must be integers, got f32\[n\]"):
        ops.repeat_interleave(g.m, g.n, axis=0, out_dim=3)
    with pytest.raises(ValueError, match=r"repeats must be a scalar or a vector, got si64\[1, 4\]"):
        ops.repeat_interleave(g.m, ops.unsqueeze(g.i, 0), axis=0, out_dim=3)
    with pytest.raises(ValueError, match="out_dim is 5, but the result has 8"):
        ops.repeat_interleave(g.m, 2, axis=0, out_dim=5)
    with pytest.raises(ValueError, match="out_dim cannot be negative, got -1"):
        ops.repeat_interleave(g.m, g.i, axis=0, out_dim=-1)
