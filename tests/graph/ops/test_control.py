# SPDX-License-Identifier: Apache-2.0
"""Branches and loops: values, state inside them, nesting, and what is refused."""

import numpy as np
import pytest

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Graph, GraphBlock, TensorType, Weight, ops

CPU = DeviceRef.CPU()
FLAG = TensorType(DType.bool, [], CPU)
COUNT = TensorType(DType.int64, [], CPU)


def f32(*dims):
    return TensorType(DType.float32, dims, CPU)


def model(build, *types, **weights):
    with Graph("g", input_types=types) as g:
        out = build(*[v.buffer if isinstance(v.type, BufferType) else v.tensor for v in g.inputs])
        g.output(*(out if isinstance(out, (list, tuple)) else [out]))
    return InferenceSession().load(g, weights_registry=weights)


def answer(m, *args):
    return [o.to_numpy().tolist() for o in m(*args)]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_cond_takes_one_branch(n):
    def build(p, x):
        rows = x.shape[0]
        return ops.cond(p, [x.type, COUNT], lambda: (x * 2, rows), lambda: (-x, rows + 1))

    m = model(build, FLAG, f32("n"))
    x = np.arange(n, dtype=np.float32)
    assert answer(m, np.bool_(True), x) == [(x * 2).tolist(), n]
    assert answer(m, np.bool_(False), x) == [(-x).tolist(), n + 1]


def test_cond_writes_buffers_in_the_taken_branch_only():
    state = BufferType(DType.float32, [2], CPU)

    def build(p, b, x):
        other = ops.buffer_create(state, init_value=5.0)

        def then():
            b[...] = b[...] + x
            other[0] = x[1]

        ops.cond(p, None, then, lambda: b.__setitem__(0, x[0]))
        return b[...] * 1.0, other[...]

    m = model(build, FLAG, state, f32(2))
    held = Buffer.from_numpy(np.float32([10, 20]))
    x = np.float32([1, 2])
    assert answer(m, np.bool_(True), held, x) == [[11, 22], [2, 5]]
    assert answer(m, np.bool_(False), held, x) == [[1, 22], [5, 5]]
    assert held.to_numpy().tolist() == [1, 22]


def test_nested_branches_see_everything_around_them():
    w = Weight("w", DType.float32, [1], CPU)

    def build(p, q, x):
        def inner():
            return ops.cond(q, [x.type], lambda: x * w, lambda: x - 1)

        return ops.cond(p, [x.type], inner, lambda: x)

    m = model(build, FLAG, FLAG, f32("n"), w=np.float32([10]))
    x, yes, no = np.float32([1, 2]), np.bool_(True), np.bool_(False)
    assert answer(m, yes, yes, x) == [[10, 20]]
    assert answer(m, yes, no, x) == [[0, 1]]
    assert answer(m, no, yes, x) == [[1, 2]]


def test_a_loop_that_rebuilds_a_matrix_from_its_rows():
    def build(x):
        def body(i, m):
            low = ops.min(m[:-1], m[1:])
            return i + 1, ops.concat([low, m[-1:]])

        start = ops.constant(0, DType.int32, CPU)
        return ops.while_loop([start, x], lambda i, m: i < 10, body)[1]

    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    expected = x.copy()
    for _ in range(10):
        expected = np.concatenate([np.minimum(expected[:-1], expected[1:]), expected[-1:]])
    for rows in (6, "n"):
        np.testing.assert_array_equal(model(build, f32(rows, 4))(x)[0].to_numpy(), expected)


def test_a_symbolic_carry():
    def build(n, x):
        return ops.while_loop([n, x], lambda i, v: i > 0, lambda i, v: (i - 1, v * 2))

    m = model(build, COUNT, f32("rows", 2))
    for rows in (0, 1, 4):
        x = np.ones((rows, 2), np.float32)
        assert answer(m, np.int64(3), x) == [0, (x * 8).tolist()]


def test_loops_in_loops_write_buffers():
    total = BufferType(DType.int64, [], CPU)

    def build(b, n, m):
        zero = ops.constant(0, DType.int64, CPU)

        def outer(i):
            def inner(j):
                b[...] = b[...] + i * j
                return j + 1

            ops.while_loop(zero, lambda j: j < m, inner)
            return i + 1

        ops.while_loop(zero, lambda i: i < n, outer)
        return b[...] + 0

    m = model(build, total, COUNT, COUNT)
    held = Buffer.from_numpy(np.array(0, np.int64))
    assert answer(m, held, np.int64(3), np.int64(4)) == [18]
    assert held.item() == 18


def test_a_branch_in_a_loop_and_a_call_in_a_branch():
    def build(n):
        g = Graph.current
        halve = g.add_subgraph("halve", lambda x: x // 2, [COUNT])

        def body(i, steps):
            (following,) = ops.cond(
                i % 2 == 0, [COUNT], lambda: ops.call(halve, i), lambda: i * 3 + 1
            )
            return following, steps + 1

        zero = ops.constant(0, DType.int64, CPU)
        return ops.while_loop([n, zero], lambda i, s: i > 1, body)[1]

    m = model(build, COUNT)
    assert [answer(m, np.int64(n))[0] for n in (1, 6, 27)] == [0, 8, 111]


def test_what_cond_refuses():
    with Graph("g", input_types=[FLAG, f32(2), COUNT]) as g:
        p, x, k = (v.tensor for v in g.inputs)
        with pytest.raises(TypeError, match=r"else_fn gives \(f32\[\]\), not \(f32\[2\]\)"):
            ops.cond(p, [x.type], lambda: x, lambda: x[0])
        with pytest.raises(
            ValueError, match=r"predicate must be a bool scalar on the CPU, not si64"
        ):
            ops.cond(k, [x.type], lambda: x, lambda: x)
        with pytest.raises(TypeError, match="pred: expected a tensor value, got bool True"):
            ops.cond(True, [x.type], lambda: x, lambda: x)
        with pytest.raises(ZeroDivisionError):
            ops.cond(p, [x.type], lambda: 1 / 0, lambda: x)
        inside = []
        ops.cond(p, [x.type], lambda: inside.append(x + 1) or x, lambda: x)
        with pytest.raises(ValueError, match="operand 0 is defined inside a branch or loop body"):
            inside[0] * 2
        assert g.block is g.body


def test_what_while_loop_refuses():
    buffer = BufferType(DType.int64, [], CPU)
    with Graph("g", input_types=[COUNT, buffer]) as g:
        k, b = g.inputs[0].tensor, g.inputs[1].buffer

        def counts(i):
            b[...] = i
            return i < 3

        with pytest.raises(ValueError, match="at least one value must be carried"):
            ops.while_loop([], lambda: k < 1, list)
        with pytest.raises(NotImplementedError, match="carried value 0 is a buffer; leave it out"):
            ops.while_loop([b], lambda b: k < 1, lambda b: b)
        with pytest.raises(ValueError, match="what predicate gives must be a bool scalar"):
            ops.while_loop(k, lambda i: i, lambda i: i)
        with pytest.raises(ValueError, match="predicate must not write buffers"):
            ops.while_loop(k, counts, lambda i: i + 1)
        with pytest.raises(TypeError, match="body gives 0 values, but 1 are carried"):
            ops.while_loop(k, lambda i: i < 3, lambda i: None)
        with pytest.raises(TypeError, match=r"starts as si64\[\], but body makes it si32\[\]"):
            ops.while_loop(k, lambda i: i < 3, lambda i: i.cast(DType.int32))


def test_a_block_says_what_is_wrong():
    with pytest.raises(LookupError, match="GraphBlock: no graph is being built"):
        GraphBlock([f32(2)])
    with Graph("g"):
        block = GraphBlock([f32(2), COUNT])
        with pytest.raises(RuntimeError, match="the block has no outputs yet"):
            block.output_types  # noqa: B018
        with block:
            x, n = block.arguments
            block.output(x * 2, n)
            with pytest.raises(ValueError, match="the block has its outputs already"):
                block.output(x)
        assert block.output_types == [f32(2), COUNT]
