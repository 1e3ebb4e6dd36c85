# SPDX-License-Identifier: Apache-2.0
"""Scatters by coordinates against NumPy, at the edges, and what is refused."""

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops

CPU, GPU = DeviceRef.CPU(), DeviceRef.GPU()
COMBINE = {
    "scatter_nd": lambda old, new: new,
    "scatter_nd_add": lambda old, new: old + new,
    "scatter_nd_max": np.maximum,
    "scatter_nd_min": np.minimum,
    "scatter_nd_mul": lambda old, new: old * new,
}


def expected(name, x, updates, indices):
    """Update after update, in row-major order; what is out of range is left out."""
    out = x.copy()
    for place in np.ndindex(indices.shape[:-1]):
        at = tuple(int(i) for i in indices[place])
        if all(-n <= i < n for i, n in zip(at, x.shape, strict=False)):
            out[at] = COMBINE[name](out[at], updates[place])
    return out


def operands(shape, batch, depth, seed=0):
    rng = np.random.default_rng(seed)
    columns = [rng.integers(-n - 1, n + 1, batch) for n in shape[:depth]]
    indices = np.stack(columns, -1) if columns else np.zeros((*batch, 0), np.int64)
    return (
        rng.integers(-9, 9, shape),
        rng.integers(-9, 9, (*batch, *shape[depth:])),
        indices,
    )


@pytest.mark.parametrize("name", COMBINE)
@pytest.mark.parametrize(
    ("shape", "batch", "depth"),
    [
        ((4,), (9,), 1), ((3, 4), (30,), 2), ((3, 4), (7,), 1), ((3, 4), (), 1), ((3, 4), (), 2),
        ((2, 3, 4), (3, 5), 2), ((3, 4), (3,), 0), ((3, 2), (), 0), ((), (4,), 0), ((3,), (0,), 1),
    ],
)  # fmt: skip
def test_against_numpy(run, name, shape, batch, depth):
    x, u, i = operands(shape, batch, depth)
    f = getattr(ops, name)
    (got,) = run(lambda x, u, i: f(x, u, i), x, u, i)
    np.testing.assert_array_equal(got, expected(name, x, u, i))


@pytest.mark.parametrize("name", COMBINE)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 0), (0, 3), (5, 9)])
def test_symbolic_sizes(run, name, n, k):
    x, u, i = operands((n, 2), (k,), 1)
    f = getattr(ops, name)
    dims = [["n", "m"], ["k", "m"], ["k", 1]]
    (got,) = run(lambda x, u, i: f(x, u, i), x, u, i, dims=dims)
    np.testing.assert_array_equal(got, expected(name, x, u, i))


@pytest.mark.parametrize("name", COMBINE)
def test_traced_with_symbolic_dims(run_symbolic, name):
    x, u, i = operands((3, 4, 2), (5, 6), 2)
    f = getattr(ops, name)
    dims = [["n", "m", 2], ["a", "b", 2], ["a", "b", 2]]
    (got,) = run_symbolic(lambda x, u, i: f(x, u, i), x, u, i, dims=dims)
    np.testing.assert_array_equal(got, expected(name, x, u, i))


def test_the_last_update_of_a_row_stays(run):
    x = np.zeros((2, 3), np.float32)
    u = np.arange(300, dtype=np.float32).reshape(100, 3)
    i = (np.arange(100) % 2)[:, None]
    (got,) = run(lambda x, u, i: ops.scatter_nd(x, u, i), x, u, i)
    assert got.tolist() == [[294, 295, 296], [297, 298, 299]]


def test_one_coordinate_out_of_range_drops_the_update(run):
    x = np.zeros((2, 2))
    i = np.array([[0, 2], [-3, 0], [2, -1], [-1, -2]])
    (got,) = run(lambda x, u, i: ops.scatter_nd(x, u, i), x, np.array([9.0, 8, 7, 6]), i)
    assert got.tolist() == [[0, 0], [6, 0]]


def test_what_is_refused():
    f, int64 = DType.float32, DType.int64
    types = [
        TensorType(d, s, p)
        for d, s, p in [
            (f, [4, 6], CPU), (f, [2, 6], CPU), (int64, [2, 1], CPU), (f, [2, 6], GPU),
            (DType.uint8, [2, 1], CPU), (DType.bfloat16, [2, 6], CPU), (int64, [2, 3], CPU),
            (int64, [2, "d"], CPU), (int64, [], CPU), (int64, ["k", 1], CPU),
        ]
    ]  # fmt: skip
    with Graph("g", input_types=types) as g:
        x, u, i, gpu, u8, bf, deep, sym, scalar, rows = (v.tensor for v in g.inputs)
        for name in COMBINE:
            op = getattr(ops, name)
            with pytest.raises(ValueError, match=f"{name}: the updates are bfloat16, not float32"):
                op(x, bf, i)
            for wrong in (u8, u):
                with pytest.raises(ValueError, match="indices must be int32 or int64, not"):
                    op(x, u, wrong)
            with pytest.raises(ValueError, match="3 coordinates are too many for rank 2"):
                op(x, u, deep)
            with pytest.raises(ValueError, match=r"the number of coordinates, .* is d; rebind"):
                op(x, u, sym)
            with pytest.raises(ValueError, match="the indices are a scalar"):
                op(x, u, scalar)
            with pytest.raises(ValueError, match=r"updates have shape \[4, 6\], expected \[2, 6\]"):
                op(x, x, i)
            with pytest.raises(ValueError, match=r"updates have shape \[2, 6\], expected \[k, 6\]"):
                op(x, u, rows)
            with pytest.raises(ValueError, match="different devices, cpu:0 and gpu:0"):
                op(x, gpu, i)
            with pytest.raises(TypeError, match=f"{name}: expected a tensor value"):
                op(x, np.ones((2, 6), np.float32), i)
