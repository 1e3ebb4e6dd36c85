# SPDX-License-Identifier: Apache-2.0
"""Joining and dividing tensors, against NumPy."""

import math

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops

SIZES = [0, 1, 3]


def values(*shape, start=0):
    return np.arange(start, start + math.prod(shape), dtype=np.float32).reshape(shape)


@pytest.fixture
def g():
    cpu, f32 = DeviceRef.CPU(), DType.float32
    types = [TensorType(f32, s, cpu) for s in (["b", "s", 8], [4, 6], [], ["a"], ["b", 1, 8])]
    types += [TensorType(DType.bfloat16, [4, 6], cpu), TensorType(f32, [4, 6], DeviceRef.GPU())]
    with Graph("g", input_types=types) as graph:
        graph.x, graph.m, graph.scalar, graph.a, graph.y, graph.h, graph.gpu = (
            v.tensor for v in graph.inputs
        )
        yield graph


# ---------------------------------------------------------------- concat, stack


@pytest.mark.parametrize("a", SIZES)
@pytest.mark.parametrize("b", SIZES)
def test_concat_against_numpy(run, a, b):
    x, y = values(a, 2), values(b, 2, start=50)
    rows, wide, one = run(
        lambda x, y: [ops.concat([x, y, x]), ops.concat((x, x), axis=-1), ops.concat([y])],
        x,
        y,
        dims=[["a", 2], ["b", 2]],
    )
    np.testing.assert_array_equal(rows, np.concatenate([x, y, x]))
    np.testing.assert_array_equal(wide, np.concatenate([x, x], -1))
    np.testing.assert_array_equal(one, y)


def test_concat_and_stack_traced_with_symbolic_dims(run_symbolic):
    x, y = values(3, 2), values(1, 2)
    rows, pairs = run_symbolic(
        lambda x, y: [ops.concat([x, y]), ops.stack([x, x], axis=1)],
        x,
        y,
        dims=[["a", 2], ["b", 2]],
    )
    np.testing.assert_array_equal(rows, np.concatenate([x, y]))
    np.testing.assert_array_equal(pairs, np.stack([x, x], 1))


def test_concat_adds_dims(g):
    assert ops.concat([g.x, g.y], axis=1).shape == ["b", Dim("s") + 1, 8]
    assert ops.concat(v for v in [g.a, g.a]).shape == [Dim("a") * 2]


@pytest.mark.parametrize("n", SIZES)
def test_stack_against_numpy(run, n):
    x, y = values(n, 2), values(n, 2, start=50)
    front, back, inner = run(
        lambda x, y: [ops.stack([x, y]), ops.stack([x, y], -1), ops.stack([x, y, x], -2)],
        x,
        y,
        dims=[["n", 2], ["n", 2]],
    )
    np.testing.assert_array_equal(front, np.stack([x, y]))
    np.testing.assert_array_equal(back, np.stack([x, y], -1))
    np.testing.assert_array_equal(inner, np.stack([x, y, x], -2))


@pytest.mark.parametrize("dtype", [np.int8, np.bool_, np.float16, np.uint64])
def test_dtypes_are_kept(run, dtype):
    x = np.ones(2, dtype)
    both, pair, part = run(
        lambda x: [ops.concat([x, x]), ops.stack([x, x]), ops.split(x, [2])[0]], x
    )
    assert (both.dtype, pair.dtype, part.dtype) == (dtype, dtype, dtype)


@pytest.mark.parametrize("join", [ops.concat, ops.stack])
def test_joining_refuses(g, join):
    name = join.__name__
    with pytest.raises(ValueError, match=f"{name}: at least one tensor is needed"):
        join([])
    with pytest.raises(TypeError, match=f"{name}: expected a list of tensors, got one tensor"):
        join(g.m)
    with pytest.raises(TypeError, match=f"{name}: expected a list of tensors, got 3"):
        join(3)
    with pytest.raises(TypeError, match=f"{name}: expected a tensor value, got float"):
        join([g.m, 1.0])
    with pytest.raises(ValueError, match=f"{name}: operands differ in dtype, float32 and bfloat16"):
        join([g.m, g.h])
    with pytest.raises(ValueError, match=f"{name}: operands are on different devices"):
        join([g.m, g.gpu])
    with pytest.raises(IndexError, match=f"{name}: axis 5 is out of range for rank 2"):
        join([g.m, g.m], axis=5)


def test_concat_needs_equal_other_dims(g):
    with pytest.raises(ValueError, match=r"concat: dimension 1 is s and 1; only dimension 0.*bind"):
        ops.concat([g.x, g.y])
    with pytest.raises(ValueError, match="concat: operands differ in rank"):
        ops.concat([g.x, g.m])
    with pytest.raises(IndexError, match=r"concat: .*a scalar has no axis"):
        ops.concat([g.scalar, g.scalar])


def test_stack_needs_equal_shapes(g):
    with pytest.raises(ValueError, match=r"stack: .*differ in shape, \[b, s, 8\] and \[b, 1, 8\]"):
        ops.stack([g.x, g.y])
    assert ops.stack([g.scalar, g.scalar]).shape == [2]


# ---------------------------------------------------------------- split, chunk


@pytest.mark.parametrize("n", SIZES)
def test_split_and_chunk_against_numpy(run, n):
    x = values(n, 6)
    a, b, c, left, right = run(
        lambda x: [*ops.split(x, [1, 0, Dim(5)], axis=-1), *ops.chunk(x, 2, axis=1)],
        x,
        dims=[["n", 6]],
    )
    np.testing.assert_array_equal(a, x[:, :1])
    assert b.shape == (n, 0)
    np.testing.assert_array_equal(c, x[:, 1:])
    np.testing.assert_array_equal(left, x[:, :3])
    np.testing.assert_array_equal(right, x[:, 3:])


def test_split_traced_with_symbolic_dims(run_symbolic):
    x = values(2, 6)
    left, right = run_symbolic(lambda x: ops.split(x, (2, 4), axis=1), x, dims=[["n", 6]])
    np.testing.assert_array_equal(left, x[:, :2])
    np.testing.assert_array_equal(right, x[:, 2:])


def test_parts_join_to_the_whole(run):
    x = values(4, 6)
    (out,) = run(lambda x: ops.concat(ops.split(x, [3, 1]) + ops.chunk(x, 4), axis=0), x)
    np.testing.assert_array_equal(out, np.concatenate([x, x]))


def test_split_into_nothing_is_nothing(g):
    assert ops.split(g.m, []) == []


@pytest.mark.parametrize(
    ("sizes", "axis", "error", "why"),
    [
        ([1, 2], 0, ValueError, r"the sizes \[1, 2\] add up to 3, but dimension 0 is 4"),
        ([5, -1], 0, ValueError, r"a part has a negative size in \[5, -1\]"),
        ([4], 2, IndexError, "axis 2 is out of range for rank 2"),
        (["b"], 0, TypeError, "a size must be an int, got 'b'"),
        ([2.0, 2], 0, TypeError, "a size must be an int, got 2.0"),
    ],
)
def test_split_refuses(g, sizes, axis, error, why):
    with pytest.raises(error, match=f"split: {why}"):
        ops.split(g.m, sizes, axis=axis)


def test_a_symbolic_dimension_is_not_divided(g):
    with pytest.raises(ValueError, match=r"split: .*dimension 0 is b; rebind it to a number first"):
        ops.split(g.x, [1, 2])
    with pytest.raises(TypeError, match="chunk: dimension 1 is s; rebind it to a number first"):
        ops.chunk(g.x, 2, axis=1)


@pytest.mark.parametrize("chunks", [3, 0, -2])
def test_chunk_refuses_what_does_not_divide(g, chunks):
    with pytest.raises(
        ValueError, match=f"dimension 0 of size 4 does not divide into {chunks} equal"
    ):
        ops.chunk(g.m, chunks)


def test_chunk_refuses_scalars_and_axes_there_are_not(g):
    with pytest.raises(ValueError, match="chunk: a scalar cannot be divided"):
        ops.chunk(g.scalar, 2)
    with pytest.raises(IndexError, match="chunk: axis 2 is out of range"):
        ops.chunk(g.m, 2, axis=2)
