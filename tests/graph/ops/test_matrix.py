# SPDX-License-Identifier: Apache-2.0
"""Bands of matrices and places of what is not zero, against NumPy, and what is refused."""

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops

CPU = DeviceRef.CPU()


def band(x, lower, upper, exclude=False):
    i, j = np.indices(x.shape[-2:])
    inside = np.ones(x.shape[-2:], bool)
    if lower not in (None, -1):
        inside &= i - j <= lower
    if upper not in (None, -1):
        inside &= j - i <= upper
    return np.where(inside != exclude, x, np.zeros((), x.dtype))


LIMITS = [(None, None), (0, 0), (1, 2), (-1, 0), (2, None), (None, 1)]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("shape", [(3, 4), (2, 5, 3), (4, 4)])
def test_bands_against_numpy(run, limits, shape):
    x = np.arange(1.0, np.prod(shape) + 1).reshape(shape)
    kept, rest = run(
        lambda x: [ops.band_part(x, *limits), ops.band_part(x, *limits, exclude=True)], x
    )
    np.testing.assert_array_equal(kept, band(x, *limits))
    np.testing.assert_array_equal(rest, band(x, *limits, exclude=True))
    np.testing.assert_array_equal(kept + rest, x)


@pytest.mark.parametrize(("n", "m"), [(0, 2), (1, 1), (3, 5)])
def test_bands_of_symbolic_sizes(run, run_symbolic, n, m):
    x = np.arange(1.0, n * m + 1).reshape(n, m)
    for runner in (run, run_symbolic) if n else (run,):
        (got,) = runner(lambda x: ops.band_part(x, 7, 1), x, dims=[["n", "m"]])
        np.testing.assert_array_equal(got, band(x, 7, 1))


def test_nan_outside_the_band_becomes_0(run):
    x = np.full((2, 2), np.nan, np.float32)
    (got,) = run(lambda x: ops.band_part(x, 0, 0), x)
    np.testing.assert_array_equal(got, [[np.nan, 0], [0, np.nan]])


def test_bands_of_other_dtypes(run):
    for dtype in ("bool", "int8", "float16"):
        (got,) = run(lambda x: ops.band_part(x, 0), np.ones((2, 2), dtype))
        assert got.dtype == dtype
        assert got.tolist() == [[1, 1], [0, 1]]


def test_what_band_part_refuses():
    types = [TensorType(DType.float32, s, CPU) for s in ([4, 6], [5], [], ["n", 6])]
    with Graph("g", input_types=types) as g:
        m, v, scalar, sym = (v.tensor for v in g.inputs)
        for wrong in (v, scalar):
            with pytest.raises(ValueError, match="band_part: a matrix has at least rank 2"):
                ops.band_part(wrong)
        with pytest.raises(ValueError, match=r"num_lower is -2; give a number from 0, or -1"):
            ops.band_part(m, -2, 0)
        with pytest.raises(ValueError, match="num_lower is 4, but that dimension has size 4"):
            ops.band_part(m, 4, 0)
        with pytest.raises(ValueError, match="num_upper is 6, but that dimension has size 6"):
            ops.band_part(sym, 4, 6)
        with pytest.raises(TypeError, match=r"num_lower must be an int, got 1\.0"):
            ops.band_part(m, 1.0)
        with pytest.raises(TypeError, match="band_part: expected a tensor value"):
            ops.band_part(np.ones((2, 2)))


# ---------------------------------------------------------------- nonzero


def found(x, count):
    rows = np.argwhere(x)[:count]
    missing = np.tile(np.array(x.shape, np.int64), (count - len(rows), 1))
    return np.concatenate([rows, missing])


@pytest.mark.parametrize("count", [0, 2, 3, 8])
@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
def test_nonzero_with_a_number_of_rows(run, count, dtype):
    x = np.array([[0, 1.5, 0], [-2, 0, 3]]).astype(dtype)
    (got,) = run(lambda x: ops.nonzero(x, count), x)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, found(x, count))


def test_nan_is_not_0_and_negative_zero_is(run):
    (got,) = run(lambda x: ops.nonzero(x, 2), np.array([-0.0, np.nan, 0.0]))
    assert got.tolist() == [[1], [3]]


@pytest.mark.parametrize("n", [0, 1, 4])
def test_nonzero_bounded_by_an_input(run, run_symbolic, n):
    x = np.arange(n * 6).reshape(n, 2, 3) % 2
    for runner in (run, run_symbolic) if n else (run,):
        (got,) = runner(lambda x: ops.nonzero(x, Dim("n") * 6), x, dims=[["n", 2, 3]])
        np.testing.assert_array_equal(got, found(x, n * 6))


def test_rows_that_are_missing_are_dropped_by_scatters(run):
    x = np.array([[0, 1.5, 0], [-2, 0, 3]])
    (got,) = run(lambda x: ops.scatter_nd(x, ops.constant(-np.ones(6)), ops.nonzero(x, 6)), x)
    assert got.tolist() == [[0, -1, 0], [-1, 0, -1]]


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float32])
@pytest.mark.parametrize("count", [0, 1, 6])
def test_a_number_of_rows_that_depends_on_values(run, count, dtype):
    x = np.zeros((2, 3), dtype)
    x.flat[:count] = 1
    shapes = []

    def build(x):
        rows = ops.nonzero(x, "found")
        shapes.append(rows.shape)
        return rows

    (got,) = run(build, x)
    np.testing.assert_array_equal(got, np.argwhere(x))
    assert got.dtype == np.int64
    assert shapes == [["found", 2]]


def test_one_program_needs_a_number_of_rows(run, run_symbolic):
    x = np.ones((2, 3), np.float32)
    text = r"(?s)nonzero: the size found depends on values, .*bounds=.*\(given f32.*test_matrix.py"
    with pytest.raises(ValueError, match=text):
        run_symbolic(lambda x: ops.nonzero(x, "found"), x, dims=[["n", 3]])
    with pytest.raises(ValueError, match=r"out_dim .* has no size"):
        run(lambda x: ops.nonzero(x, Dim("found") * 2), x)


def test_what_nonzero_refuses():
    with Graph("g", input_types=[TensorType(DType.float32, s, CPU) for s in ([4, 6], [])]) as g:
        x, scalar = (v.tensor for v in g.inputs)
        with pytest.raises(ValueError, match="nonzero: a scalar has no coordinates"):
            ops.nonzero(scalar, "nz")
        with pytest.raises(TypeError, match="nonzero: out_dim is the negative size -1"):
            ops.nonzero(x, -1)
        for wrong in (1.5, None):
            with pytest.raises(TypeError, match="nonzero: out_dim: "):
                ops.nonzero(x, wrong)
        with pytest.raises(ValueError, match="nonzero: out_dim: "):
            ops.nonzero(x, "1a")
        with pytest.raises(TypeError, match="nonzero: expected a tensor value"):
            ops.nonzero(np.ones((2, 2)), "nz")
