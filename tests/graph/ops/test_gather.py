# SPDX-License-Identifier: Apache-2.0
"""Gathers against NumPy, at the edges, and what is refused."""

import math

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops

CPU, GPU = DeviceRef.CPU(), DeviceRef.GPU()


def values(*shape):
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
@pytest.mark.parametrize("dims", [None, [["a", 4, "b"], ["i", 2]]], ids=["static", "symbolic"])
def test_against_numpy(run, axis, dims):
    x, i = values(3, 4, 3), np.array([[0, 2], [1, 1], [2, 0]])
    (got,) = run(lambda x, i: ops.gather(x, i, axis), x, i, dims=dims)
    np.testing.assert_array_equal(got, np.take(x, i, axis))


def test_ranks_of_indices(run):
    x = values(3, 4)
    row, none = run(
        lambda x, k, e: [ops.gather(x, k, 0), ops.gather(x, e, 1)],
        x,
        np.int64(1),
        np.zeros((0, 2), np.int64),
    )
    np.testing.assert_array_equal(row, x[1])
    assert none.shape == (3, 0, 2)


@pytest.mark.parametrize("n", [1, 5])
def test_traced_with_symbolic_dims(run_symbolic, n):
    x, i = values(n, 2), np.array([0, n - 1, -1, -n, n, 100])
    (got,) = run_symbolic(lambda x, i: ops.gather(x, i, 0), x, i, dims=[["n", 2], ["i"]])
    np.testing.assert_array_equal(got, x[[0, n - 1, -1, 0, n - 1, n - 1]])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_negative_indices_count_from_the_end_and_others_are_brought_into_range(run, dtype):
    x = values(4)
    (got,) = run(
        lambda x, i: ops.gather(x, i, 0), x, np.array([-1, -4, -5, -100, 3, 4, 100], dtype)
    )
    np.testing.assert_array_equal(got, [3, 0, 0, 0, 3, 3, 3])


@pytest.mark.parametrize(("dtype", "most"), [("uint8", 255), ("uint32", 2**32 - 1), ("uint64", -1)])
def test_unsigned_indices_are_never_negative(run, dtype, most):
    most = most % 2 ** (8 * np.dtype(dtype).itemsize)
    (got,) = run(lambda x, i: ops.gather(x, i, 0), values(4), np.array([1, most], dtype))
    np.testing.assert_array_equal(got, [1, 3])


def test_an_int8_index_reaches_a_long_axis_only_as_far_as_int8_goes(run):
    (got,) = run(lambda x, i: ops.gather(x, i, 0), values(300), np.array([127, -128], np.int8))
    np.testing.assert_array_equal(got, [127, 172])


def test_an_empty_axis(run):
    x = values(0, 3)
    (got,) = run(lambda x, i: ops.gather(x, i, 0), x, np.zeros(0, np.int64), dims=[["n", 3], ["i"]])
    assert got.shape == (0, 3)
    with pytest.raises(ValueError, match="gather: axis 0 has size 0, so no index is in range"):
        run(lambda x, i: ops.gather(x, i, 0), x, np.zeros(2, np.int64), dims=[["n", 3], ["i"]])


def test_every_dtype_passes_through(run):
    for dtype in ("bool", "int8", "uint64", "float16", "float64"):
        x = np.array([0, 1, 1, 0]).astype(dtype)
        (got,) = run(lambda x, i: ops.gather(x, i, 0), x, np.array([1, 3]))
        assert got.dtype == x.dtype and got.tolist() == [x[1], x[3]]


def test_dims_and_shapes_are_tensors(run):
    (got,) = run(lambda x: ops.gather(x.shape, Dim(1), 0), values(3, 4), dims=[["n", 4]])
    assert got.dtype == np.int64 and got.tolist() == 4


def test_what_is_refused():
    types = [
        TensorType(d, s, p)
        for d, s, p in [
            (DType.float32, ["n", 3], CPU), (DType.int64, [2], CPU), (DType.int64, [2], GPU),
            (DType.bool, [2], CPU), (DType.float32, [], CPU),
        ]
    ]  # fmt: skip
    with Graph("g", input_types=types) as g:
        x, i, gpu, b, scalar = (v.tensor for v in g.inputs)
        with pytest.raises(IndexError, match="gather: axis 2 is out of range for rank 2"):
            ops.gather(x, i, axis=2)
        with pytest.raises(IndexError, match="a scalar has no axis"):
            ops.gather(scalar, i, axis=0)
        with pytest.raises(TypeError, match=r"axis must be an int, got 1\.0"):
            ops.gather(x, i, axis=1.0)
        for wrong, name in ((x, "float32"), (b, "bool")):
            with pytest.raises(ValueError, match=f"indices must be integers, not {name}"):
                ops.gather(x, wrong, axis=0)
        for wrong in ([0, 1], 0, np.array([0])):
            with pytest.raises(TypeError, match="gather: expected a tensor value"):
                ops.gather(x, wrong, axis=0)
        with pytest.raises(ValueError, match="different devices, cpu:0 and gpu:0"):
            ops.gather(x, gpu, axis=0)
        with pytest.raises(TypeError, match="axis"):
            ops.gather(x, i)


# ---------------------------------------------------------------- by coordinates


def pointed_at(x, indices, batch=0):
    """The slices that coordinates point at; out of range, the nearest."""
    *many, depth = indices.shape
    sizes = x.shape[batch : batch + depth]
    out = np.zeros((*many, *x.shape[batch + depth :]), x.dtype)
    for place in np.ndindex(*many):
        wrapped = [i + n if i < 0 else i for i, n in zip(indices[place], sizes, strict=True)]
        at = [min(max(i, 0), n - 1) for i, n in zip(wrapped, sizes, strict=True)]
        out[place] = x[(*place[:batch], *at)]
    return out


@pytest.mark.parametrize(
    ("shape", "many", "depth", "batch"),
    [
        ((3, 4), (5,), 2, 0), ((3, 4), (5, 2), 1, 0), ((3, 4), (), 1, 0), ((3, 4), (5,), 0, 0),
        ((2, 3, 4), (2, 5), 1, 1), ((2, 3, 4), (2, 3, 6), 1, 2), ((2, 3, 4), (2, 5), 0, 1),
        ((2, 3, 4, 2), (2, 5), 2, 1), ((), (3,), 0, 0),
    ],
)  # fmt: skip
def test_gather_nd_against_numpy(run, shape, many, depth, batch):
    x = values(*shape)
    i = np.random.default_rng(0).integers(-6, 6, (*many, depth))
    (got,) = run(lambda x, i: ops.gather_nd(x, i, batch), x, i)
    np.testing.assert_array_equal(got, pointed_at(x, i, batch))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 0), (2, 5)])
def test_gather_nd_of_symbolic_sizes(run, n, k):
    x = values(n, 3, 2)
    i = np.random.default_rng(0).integers(-4, 4, (n, k, 1))
    (got,) = run(
        lambda x, i: ops.gather_nd(x, i, batch_dims=1), x, i, dims=[["n", "m", 2], ["n", "k", 1]]
    )
    np.testing.assert_array_equal(got, pointed_at(x, i, 1))


def test_gather_nd_traced_with_symbolic_dims(run_symbolic):
    x, i = values(2, 3, 4), np.random.default_rng(0).integers(-6, 6, (2, 7, 2))
    batched, plain = run_symbolic(
        lambda x, i: [ops.gather_nd(x, i, batch_dims=1), ops.gather_nd(x, i)],
        x, i, dims=[["n", "m", "j"], ["n", "k", 2]],
    )  # fmt: skip
    np.testing.assert_array_equal(batched, pointed_at(x, i, 1))
    np.testing.assert_array_equal(plain, pointed_at(x, i))


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "uint64"])
def test_gather_nd_with_other_integers(run, dtype):
    x, i = values(3, 4), np.array([[1, 2], [-1, -2]]).astype(dtype)
    (got,) = run(lambda x, i: ops.gather_nd(x, i), x, i)
    np.testing.assert_array_equal(got, [6, 10 if dtype.startswith("int") else 11])


def test_gather_nd_of_nothing(run):
    dims = [["n", 3], ["k", 1]]
    (got,) = run(ops.gather_nd, values(0, 3), np.zeros((0, 1), np.int64), dims=dims)
    assert got.shape == (0, 3)
    with pytest.raises(ValueError, match=r"gather_nd: \[0\] holds no element, so no index is in r"):
        run(ops.gather_nd, values(0, 3), np.zeros((2, 1), np.int64), dims=dims)


def test_what_gather_nd_refuses():
    f, int64 = DType.float32, DType.int64
    types = [
        TensorType(d, s, p)
        for d, s, p in [
            (f, ["b", 3, 4], CPU), (int64, [5, 2], CPU), (int64, [5, 4], CPU),
            (int64, [5, "d"], CPU), (int64, [], CPU), (int64, ["c", 2], CPU), (int64, [5, 2], GPU),
            (DType.bool, [5, 2], CPU),
        ]
    ]  # fmt: skip
    with Graph("g", input_types=types) as g:
        x, i, deep, sym, scalar, other, gpu, b = (v.tensor for v in g.inputs)
        with pytest.raises(ValueError, match="gather_nd: 4 coordinates are too many for rank 3"):
            ops.gather_nd(x, deep)
        with pytest.raises(ValueError, match="2 coordinates after 2 batch dimensions are too many"):
            ops.gather_nd(x, ops.unsqueeze(i, 0), batch_dims=2)
        with pytest.raises(ValueError, match=r"the last dimension of the indices, is d; rebind it"):
            ops.gather_nd(x, sym)
        with pytest.raises(ValueError, match="indices of rank 0 are too few for 0 batch dim"):
            ops.gather_nd(x, scalar)
        with pytest.raises(ValueError, match="indices of rank 2 are too few for 2 batch dim"):
            ops.gather_nd(x, i, batch_dims=2)
        with pytest.raises(ValueError, match="batch dimension 0 is b and c; they must be equal"):
            ops.gather_nd(x, other, batch_dims=1)
        with pytest.raises(ValueError, match="batch_dims is negative: -1"):
            ops.gather_nd(x, i, batch_dims=-1)
        with pytest.raises(TypeError, match=r"batch_dims must be an int, got 1\.5"):
            ops.gather_nd(x, i, batch_dims=1.5)
        for wrong, name in ((x, "float32"), (b, "bool")):
            with pytest.raises(ValueError, match=f"indices must be integers, not {name}"):
                ops.gather_nd(x, wrong)
        with pytest.raises(ValueError, match="different devices, cpu:0 and gpu:0"):
            ops.gather_nd(x, gpu)
        with pytest.raises(TypeError, match="gather_nd: expected a tensor value"):
            ops.gather_nd(x, np.zeros((1, 1), np.int64))
