# SPDX-License-Identifier: Apache-2.0
"""Scatters along an axis and by mask against NumPy, at the edges, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops

CPU, GPU = DeviceRef.CPU(), DeviceRef.GPU()
COMBINE = {
    "scatter": lambda old, new: new,
    "scatter_add": lambda old, new: old + new,
    "scatter_max": np.maximum,
    "scatter_min": np.minimum,
    "scatter_mul": lambda old, new: old * new,
}


def expected(name, x, updates, indices, axis):
    """Update after update, in row-major order; what is out of range is left out."""
    out = x.copy()
    for place in np.ndindex(indices.shape):
        i = int(indices[place])
        if -x.shape[axis] <= i < x.shape[axis]:
            at = list(place)
            at[axis] = i
            out[tuple(at)] = COMBINE[name](out[tuple(at)], updates[place])
    return out


def operands(shape, few, axis, dtype=np.int64, seed=0):
    rng = np.random.default_rng(seed)
    size = shape[axis]
    indices = rng.integers(-size - 1, size + 2, few)
    return (
        rng.integers(-9, 9, shape).astype(dtype),
        rng.integers(-9, 9, few).astype(dtype),
        indices,
    )


@pytest.mark.parametrize("name", COMBINE)
@pytest.mark.parametrize(
    ("shape", "few", "axis"),
    [((4,), (7,), 0), ((3, 5), (6, 4), 0), ((3, 5), (2, 9), -1), ((2, 3, 4), (2, 8, 3), 1)],
)
def test_against_numpy(run, name, shape, few, axis):
    x, u, i = operands(shape, few, axis)
    f = getattr(ops, name)
    (got,) = run(lambda x, u, i: f(x, u, i, axis), x, u, i)
    np.testing.assert_array_equal(got, expected(name, x, u, i, axis))


@pytest.mark.parametrize("name", COMBINE)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 0), (0, 3), (5, 9)])
def test_symbolic_sizes(run, name, n, k):
    x, u, i = operands((n, 2), (k, 2), 0)
    f = getattr(ops, name)
    dims = [["n", 2], ["k", 2], ["k", 2]]
    (got,) = run(lambda x, u, i: f(x, u, i, 0), x, u, i, dims=dims)
    np.testing.assert_array_equal(got, expected(name, x, u, i, 0))


@pytest.mark.parametrize("name", COMBINE)
def test_traced_with_symbolic_dims(run_symbolic, name):
    x, u, i = operands((5, 3), (9, 3), 0)
    f = getattr(ops, name)
    dims = [["n", "m"], ["k", "m"], ["k", "m"]]
    (got,) = run_symbolic(lambda x, u, i: f(x, u, i, 0), x, u, i, dims=dims)
    np.testing.assert_array_equal(got, expected(name, x, u, i, 0))


def test_the_last_update_of_an_element_stays(run):
    x, u = np.zeros(3, np.float32), np.arange(1, 1001, dtype=np.float32)
    i = np.arange(1000) % 3
    (got,) = run(lambda x, u, i: ops.scatter(x, u, i), x, u, i)
    assert got.tolist() == [1000, 998, 999]
    (got,) = run(lambda x, u, i: ops.scatter(x, u, i), x, u, np.where(i == 0, -3, i))
    assert got.tolist() == [1000, 998, 999]


@pytest.mark.parametrize("index", [4, 100, -5, 2**62, -(2**63)])
@pytest.mark.parametrize("name", COMBINE)
def test_an_update_out_of_range_is_dropped(run, name, index):
    x = np.arange(4.0)
    i = np.array([index, 1])
    f = getattr(ops, name)
    (got,) = run(lambda x, u, i: f(x, u, i), x, np.array([9.0, 9.0]), i)
    assert got.tolist() == [0, COMBINE[name](1.0, 9.0), 2, 3]


def test_int32_indices(run):
    x, i = np.arange(4.0), np.array([-1, 0], np.int32)
    (got,) = run(lambda x, u, i: ops.scatter(x, u, i), x, np.array([9.0, 8.0]), i)
    assert got.tolist() == [8, 1, 2, 9]


def test_nan_wins(run):
    x, nan = np.array([1, np.nan, 3], np.float32), np.array([np.nan, 9, 9], np.float32)
    i = np.arange(3)
    high, low = run(lambda x, u, i: [ops.scatter_max(x, u, i), ops.scatter_min(x, u, i)], x, nan, i)
    np.testing.assert_array_equal(high, [np.nan, np.nan, 9])
    np.testing.assert_array_equal(low, [np.nan, np.nan, 3])


def test_bools(run):
    x = np.array([False, False, True, True])
    u, i = np.array([True, False, True, False]), np.array([1, 1, 2, 3])
    names = ["scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul"]
    got = run(lambda x, u, i: [getattr(ops, n)(x, u, i) for n in names], x, u, i)
    last, either, both = [0, 0, 1, 0], [0, 1, 1, 1], [0, 0, 1, 0]
    assert [g.tolist() for g in got] == [last, either, either, both, both]
    assert all(g.dtype == bool for g in got)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_narrow_floats_are_rounded_once(run, dtype):
    x = np.array([256.0], np.float32).astype(dtype)
    u, i = np.full(64, 0.25, np.float32).astype(dtype), np.zeros(64, np.int64)
    (got,) = run(lambda x, u, i: ops.scatter_add(x, u, i).cast(DType.float32), x, u, i)
    assert got == np.float32(272).astype(dtype).astype(np.float32)


def test_integers_wrap_around(run):
    x, u, i = np.array([100], np.int8), np.array([100, 100], np.int8), np.array([0, 0])
    (got,) = run(lambda x, u, i: ops.scatter_add(x, u, i), x, u, i)
    assert got.tolist() == [44]


def test_updates_for_more_than_there_is_are_refused_when_the_sizes_are_known(run, run_symbolic):
    x, u, i = operands((4, 2), (3, 3), 0)
    dims = [["n", "m"], ["k", "j"], ["k", "j"]]
    with pytest.raises(ValueError, match=r"scatter: there are updates for 3 elements of dim.* 1"):
        run(lambda x, u, i: ops.scatter(x, u, i, 0), x, u, i, dims=dims)
    with pytest.raises(ValueError, match=r"for some sizes .*export with a constraint"):
        run_symbolic(lambda x, u, i: ops.scatter(x, u, i, 0), x, u, i, dims=dims)


def test_what_is_refused():
    f = DType.float32
    types = [
        TensorType(d, s, p)
        for d, s, p in [
            (f, [4, 6], CPU), (f, [2, 5], CPU), (DType.int64, [2, 5], CPU), (f, [2, 5], GPU),
            (DType.int16, [2, 5], CPU), (DType.bool, [2, 5], CPU), (DType.bfloat16, [2, 5], CPU),
            (f, [5], CPU), (DType.int64, [5], CPU), (f, [2, 7], CPU), (DType.int64, [2, 7], CPU),
            (f, [], CPU), (f, ["k", 5], CPU),
        ]
    ]  # fmt: skip
    with Graph("g", input_types=types) as g:
        x, u, i, gpu, i16, b, bf, v, iv, wide, iwide, scalar, sym = (v.tensor for v in g.inputs)
        for name in COMBINE:
            op = getattr(ops, name)
            with pytest.raises(ValueError, match=f"{name}: axis 2 is out of range for rank 2"):
                op(x, u, i, axis=2)
            with pytest.raises(ValueError, match=f"{name}: the updates are bfloat16, not float32"):
                op(x, bf, i, 0)
            for wrong in (i16, b, u):
                with pytest.raises(ValueError, match="indices must be int32 or int64, not"):
                    op(x, u, wrong, 0)
            with pytest.raises(ValueError, match=r"shapes are equal; they are \[5\] and \[2, 5\]"):
                op(x, v, i, 0)
            with pytest.raises(ValueError, match=r"they are \[k, 5\] and \[2, 5\]"):
                op(x, sym, i, 0)
            with pytest.raises(ValueError, match="the indices have rank 1, the input has 2"):
                op(x, v, iv, 0)
            with pytest.raises(ValueError, match="for 7 elements of dimension 1, which has size 6"):
                op(x, wide, iwide, 0)
            op(x, wide, iwide, 1)
            with pytest.raises(ValueError, match="a scalar has no axis"):
                op(scalar, u, i)
            with pytest.raises(ValueError, match="different devices, cpu:0 and gpu:0"):
                op(x, gpu, i, 0)
            for wrong in (1.0, np.ones((2, 5), np.float32)):
                with pytest.raises(TypeError, match=f"{name}: expected a tensor value"):
                    op(x, wrong, i, 0)


# ---------------------------------------------------------------- by mask


def masked(x, mask, updates):
    out = x.copy()
    hits = np.argwhere(np.broadcast_to(mask, x.shape).astype(bool))
    for place, new in zip(hits, updates.ravel(), strict=False):
        out[tuple(place)] = new
    return out


@pytest.mark.parametrize("count", [0, 1, 5, 6, 9])
@pytest.mark.parametrize("dims", [None, [["n", 4], ["n", 4], ["k"]]], ids=["static", "symbolic"])
def test_masked_scatter_against_numpy(run, count, dims):
    x = np.arange(12.0).reshape(3, 4)
    mask = np.isin(x, [0, 3, 4, 7, 10, 11])
    u = -np.arange(1.0, count + 1)
    (got,) = run(lambda x, m, u: ops.masked_scatter(x, m, u, "hits"), x, mask, u, dims=dims)
    np.testing.assert_array_equal(got, masked(x, mask, u))


def test_masked_scatter_traced_with_symbolic_dims(run_symbolic):
    x, u = np.arange(12.0).reshape(3, 4), -np.ones((2, 2))
    mask = np.array([[True], [False], [True]])
    (got,) = run_symbolic(
        lambda x, m, u: ops.masked_scatter(x, m, u, "hits"),
        x, mask, u, dims=[["n", "m"], ["n", 1], ["a", "b"]],
    )  # fmt: skip
    np.testing.assert_array_equal(got, masked(x, mask, u))


def test_masks_of_numbers_and_arrays(run):
    x, u = np.arange(4), np.array([-1, -2])
    mask = np.array([5.0, 0.0, np.nan, -0.0])
    number, array = run(
        lambda x, m, u: [
            ops.masked_scatter(x, m, u, out_dim=2),
            ops.masked_scatter(x, np.array([False, True, True, True]), u, out_dim=3),
        ],
        x, mask, u,
    )  # fmt: skip
    assert number.tolist() == [-1, 1, -2, 3]
    assert array.tolist() == [0, -1, -2, 3]


def test_an_empty_tensor_has_nothing_to_replace(run):
    x = np.zeros((0, 3), np.float32)
    (got,) = run(
        lambda x, m, u: ops.masked_scatter(x, m, u, 0), x, np.zeros((0, 3), bool), np.float32([1])
    )
    assert got.shape == (0, 3)


def test_what_masked_scatter_refuses():
    types = [
        TensorType(d, s, p)
        for d, s, p in [
            (DType.float32, [3, 4], CPU), (DType.bool, [3, 4], CPU), (DType.float32, [5], CPU),
            (DType.int64, [5], CPU), (DType.bool, [5], CPU), (DType.bool, [2, 3, 4], CPU),
            (DType.float32, [], CPU), (DType.bool, [3, 4], GPU),
        ]
    ]  # fmt: skip
    with Graph("g", input_types=types) as g:
        x, mask, u, ints, short, deep, scalar, gpu = (v.tensor for v in g.inputs)
        op = ops.masked_scatter
        with pytest.raises(ValueError, match="masked_scatter: the updates are int64, not float32"):
            op(x, mask, ints, 5)
        with pytest.raises(ValueError, match="dimensions 4 and 5 do not broadcast"):
            op(x, short, u, 5)
        with pytest.raises(
            ValueError, match=r"the mask \[2, 3, 4\] does not broadcast to \[3, 4\]"
        ):
            op(x, deep, u, 5)
        with pytest.raises(ValueError, match="the input is a scalar; use where"):
            op(scalar, mask, u, 5)
        with pytest.raises(ValueError, match="different devices"):
            op(x, gpu, u, 5)
        with pytest.raises(TypeError, match="out_dim is the negative size -1"):
            op(x, mask, u, -1)
        with pytest.raises(ValueError, match="masked_scatter: out_dim: "):
            op(x, mask, u, "1a")
        with pytest.raises(TypeError, match="masked_scatter: expected a tensor value"):
            op(x, mask, 1.0, 5)
