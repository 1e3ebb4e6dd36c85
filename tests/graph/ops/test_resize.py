# SPDX-License-Identifier: Apache-2.0
"""Resizing against exact fractions: every mode, dtype and size, and what is refused."""

import itertools
import math
from fractions import Fraction

import jax
import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops
from maxjax.lower import to_jax

CPU = DeviceRef.CPU()
HALF = Fraction(1, 2)
INF, NAN = np.inf, np.nan


def values(*shape, dtype=np.float32):
    rng = np.random.default_rng([3, *shape])
    if np.dtype(dtype).kind in "iu":
        low = -100 if np.dtype(dtype).kind == "i" else 0
        return rng.integers(low, 100, shape).astype(dtype)
    return rng.uniform(-2, 2, shape).astype(dtype)


def position(i, old, new, mode):
    """Where element ``i`` of ``new`` lies among ``old``, exactly."""
    if mode == 1:
        return Fraction(i * (old - 1), new - 1) if new > 1 else Fraction(0)
    if mode == 2:
        return Fraction(i * old, new)
    if mode == 3 and new == 1:
        return Fraction(0)
    return Fraction((2 * i + 1) * old, 2 * new) - HALF


ROUND = [
    lambda p: math.ceil(p - HALF),
    lambda p: math.floor(p + HALF),
    math.floor,
    math.ceil,
]


def nearest(x, size, mode, rounding):
    for axis, new in enumerate(size):
        old = x.shape[axis]
        at = [ROUND[rounding](position(i, old, new, mode)) for i in range(new)]
        x = x.take(np.clip(at, 0, max(old - 1, 0)).astype(int), axis)
    return x


def mixed(x, axis, weights):
    return np.moveaxis(np.tensordot(weights, x, (1, axis)), 0, axis)


def linear(x, size, mode, antialias=False):
    exact = x.dtype.kind in "iu" and not antialias
    y = x.astype(np.float64)
    for axis, new in enumerate(size):
        old = x.shape[axis]
        if new == old:
            continue
        weights = np.zeros((new, old))
        for i in range(new):
            at = position(i, old, new, mode)
            if antialias:
                width = max(1.0, old / new)
                row = np.maximum(0, 1 - np.abs(np.arange(old) - float(at)) / width)
                weights[i] = row / row.sum()
            else:
                at = min(max(at, Fraction(0)), Fraction(old - 1))
                low = math.floor(at)
                weights[i, low] += float(1 - (at - low))
                weights[i, min(low + 1, old - 1)] += float(at - low)
        y = mixed(y, axis, weights)
        if exact:
            y = np.trunc(np.round(y, 9))
    return y


def cubic(x, size):
    y = x.astype(np.float64)
    for axis, new in enumerate(size):
        old = x.shape[axis]
        if new == old:
            continue
        weights = np.zeros((new, old))
        for i in range(new):
            at = float(position(i, old, new, 0))
            for j in range(math.floor(at) - 1, math.floor(at) + 3):
                d, a = abs(at - j), -0.75
                near = (a + 2) * d**3 - (a + 3) * d**2 + 1
                far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
                weights[i, min(max(j, 0), old - 1)] += near if d <= 1 else far
        y = mixed(y, axis, weights)
    return y


SIZES = [(8, 10), (3, 3), (1, 1), (7, 2), (4, 5), (5, 1)]


@pytest.mark.parametrize("mode", range(4))
def test_nearest_is_exact(run, mode):
    x = values(4, 5)
    cases = list(itertools.product(SIZES, range(4)))
    outs = run(lambda x: [ops.resize_nearest(x, s, mode, r) for s, r in cases], x)
    for got, (size, rounding) in zip(outs, cases, strict=True):
        np.testing.assert_array_equal(got, nearest(x, size, mode, rounding))


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "int64"])
def test_linear(run, mode, dtype):
    x = values(4, 5, dtype=dtype)
    outs = run(lambda x: [ops.resize_linear(x, s, mode) for s in SIZES], x)
    for got, size in zip(outs, SIZES, strict=True):
        assert got.dtype == dtype
        want = linear(x, size, mode)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_linear_antialiased(run, mode, dtype):
    x = values(6, 5, dtype=dtype)
    outs = run(lambda x: [ops.resize_linear(x, s, mode, True) for s in SIZES], x)
    for got, size in zip(outs, SIZES, strict=True):
        assert got.dtype == dtype
        want = linear(x, size, mode, antialias=True)
        if np.dtype(dtype).kind in "iu":
            want = np.trunc(np.round(want, 9))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
def test_bicubic(run, dtype):
    x = values(2, 1, 4, 5, dtype=dtype)
    if dtype == "int8":
        x = x // 2  # within the range after overshooting
    outs = run(lambda x: [ops.resize_bicubic(x, [2, 1, *s]) for s in SIZES], x)
    for got, size in zip(outs, SIZES, strict=True):
        assert got.dtype == dtype
        want = cubic(x, (2, 1, *size))
        if np.dtype(dtype).kind in "iu":
            want = np.trunc(np.round(want, 6))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32"])
def test_constant_images_of_integers_stay_constant(run, dtype):
    x = np.full((1, 1, 7, 9), 7, dtype)
    outs = run(
        lambda x: [
            ops.resize_bicubic(x, [1, 1, 31, 5]),
            ops.resize_linear(x, [1, 1, 31, 5]),
            ops.resize_linear(x, [1, 1, 3, 5], antialias=True),
        ],
        x,
    )
    for got in outs:
        assert (got == 7).all()


def test_every_axis_can_change(run):
    x = values(2, 3, 4)
    (got,) = run(lambda x: ops.resize_linear(x, [3, 1, 7]), x)
    np.testing.assert_allclose(got, linear(x, (3, 1, 7), 0), rtol=1e-5, atol=1e-5)


def test_resize_takes_its_defaults(run):
    x = values(1, 2, 3, 4)
    shape = [1, 2, 6, 7]
    outs = run(
        lambda x: [
            ops.resize(x, shape),
            ops.resize_linear(x, shape),
            ops.resize(x, shape, ops.InterpolationMode.NEAREST),
            ops.resize_nearest(x, shape),
            ops.resize(x, shape, interpolation=ops.InterpolationMode.BICUBIC),
            ops.resize_bicubic(x, shape),
        ],
        x,
    )
    for a, b in zip(outs[::2], outs[1::2], strict=True):
        np.testing.assert_array_equal(a, b)


def test_nearest_takes_bools(run):
    x = np.array([[True, False]])
    (got,) = run(lambda x: ops.resize_nearest(x, [2, 4]), x)
    np.testing.assert_array_equal(got, [[True, True, False, False]] * 2)


def test_what_is_met_exactly_is_not_touched_by_its_neighbours(run):
    x = np.float32([1, INF, 3, NAN])
    (got,) = run(lambda x: ops.resize_linear(x, [7], 1), x)
    np.testing.assert_array_equal(got, [1, INF, INF, INF, 3, NAN, NAN])


@pytest.mark.parametrize("sizes", [(1, 1), (4, 5), (9, 2), (3, 0)])
def test_symbolic_sizes(run, sizes):
    x = values(*sizes)
    if not sizes[1]:
        (got,) = run(lambda x: ops.resize_linear(x, [6, "w"]), x, dims=[["h", "w"]])
        assert got.shape == (6, 0)
        return
    outs = run(
        lambda x: [
            ops.resize_linear(x, ["w", 6]),
            ops.resize_linear(x, [3, "h"], 0, True),
            ops.resize_nearest(x, ["w", "h"], 1, 1),
        ],
        x,
        dims=[["h", "w"]],
    )
    h, w = sizes
    np.testing.assert_allclose(outs[0], linear(x, (w, 6), 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outs[1], linear(x, (3, h), 0, True), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(outs[2], nearest(x, (w, h), 1, 1))


def test_symbolic_export(run_symbolic):
    x = values(2, 3, 4, 6)
    outs = run_symbolic(
        lambda x: [
            ops.resize_linear(x, ["n", 3, 7, "h"], 3),
            ops.resize_linear(x, ["n", 3, 7, "h"], antialias=True),
            ops.resize_nearest(x, ["n", 3, 1, 9]),
            ops.resize_bicubic(x, ["n", 3, 7, "h"]),
        ],
        x,
        dims=[["n", 3, "h", "w"]],
    )
    size = (2, 3, 7, 4)
    wants = (
        linear(x, size, 3),
        linear(x, size, 0, True),
        nearest(x, (2, 3, 1, 9), 0, 0),
        cubic(x, size),
    )
    for got, want in zip(outs, wants, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_narrow_floats_are_rounded_once(run):
    x = values(1, 1, 5, 6).astype(ml_dtypes.bfloat16)
    (got,) = run(lambda x: ops.resize_linear(x, [1, 1, 9, 11]), x)
    assert got.dtype == ml_dtypes.bfloat16
    want = linear(x.astype(np.float32), (1, 1, 9, 11), 0).astype(np.float32)
    np.testing.assert_array_equal(got, want.astype(ml_dtypes.bfloat16))


def test_it_has_gradients():
    with Graph("g", input_types=[TensorType(DType.float32, [1, 1, 4, 5], CPU)]) as g:
        x = g.inputs[0].tensor
        g.output(
            ops.resize_linear(x, [1, 1, 7, 3]),
            ops.resize_linear(x, [1, 1, 2, 3], antialias=True),
            ops.resize_bicubic(x, [1, 1, 7, 3]),
        )
    function = to_jax(g)
    with jax.enable_x64(True):
        grad = jax.grad(lambda x: sum(o.sum() for o in function({}, [x])[0]))(values(1, 1, 4, 5))
    assert np.isfinite(grad).all()
    # Every result is a weighted mean: the weights of all pixels add up to the number of results.
    np.testing.assert_allclose(np.asarray(grad).sum(), 21 + 6 + 21, rtol=1e-5)


# ---------------------------------------------------------------- refused


@pytest.fixture
def inputs():
    shapes = {"x": [2, 3, 4, 5], "m": [4, 6], "e": [2, 0]}
    types = [TensorType(DType.float32, s, CPU) for s in shapes.values()]
    types.append(TensorType(DType.bool, [4, 6], CPU))
    with Graph("g", input_types=types) as g:
        yield dict(zip([*shapes, "q"], [v.tensor for v in g.inputs], strict=True))


REFUSED = [
    (lambda v: ops.resize_linear(v["x"], [5, 6]), ValueError, "rank 4 needs 4 sizes, got 2"),
    (lambda v: ops.resize_linear(v["m"], [2, -1]), ValueError, "negative size -1"),
    (lambda v: ops.resize_linear(v["m"], 5), TypeError, "resize_linear"),
    (lambda v: ops.resize_linear(v["m"], [2, 2], 4), ValueError, "from 0 to 3, got 4"),
    (lambda v: ops.resize_linear(v["m"], [2, 2], -1), ValueError, "from 0 to 3, got -1"),
    (lambda v: ops.resize_linear(v["m"], [2, 2], 1.0), TypeError, "must be an int, got 1.0"),
    (lambda v: ops.resize_linear(v["m"], [2, 2], antialias=1), TypeError, "must be a bool, got 1"),
    (lambda v: ops.resize_nearest(v["m"], [2, 2], 0, 7), ValueError, "round_mode must be from 0"),
    (lambda v: ops.resize_linear(v["e"], [2, 3]), ValueError, "nothing to make 3 elements of"),
    (lambda v: ops.resize_linear(v["q"], [2, 3]), ValueError, "bools cannot be interpolated"),
    (lambda v: ops.resize_bicubic(v["m"], [2, 3]), ValueError, "must have rank 4, not 2"),
    (lambda v: ops.resize_bicubic(v["x"], [6, 7]), ValueError, "needs 4 sizes, got 2"),
    (lambda v: ops.resize_bicubic(v["x"], [2, 4, 6, 7]), ValueError, "only height and width"),
    (lambda v: ops.resize(v["m"], [2, 2]), ValueError, "must have rank 4, not 2"),
    (lambda v: ops.resize(v["x"], [2, 2]), ValueError, "needs 4 sizes, got 2"),
    (lambda v: ops.resize(v["x"], [2, 3, 8, 8], "area"), ValueError, "nearest, bilinear, bicubic"),
]


@pytest.mark.parametrize(("build", "error", "match"), REFUSED)
def test_refused(inputs, build, error, match):
    with pytest.raises(error, match=match) as caught:
        build(inputs)
    assert "test_resize.py" in str(caught.value)


def test_nothing_to_resize_is_refused_when_it_runs(run):
    with pytest.raises(ValueError, match="dimension 1 is 0: there is nothing to make 3"):
        run(
            lambda x: ops.resize_linear(x, ["h", 3]), np.ones((2, 0), np.float32), dims=[["h", "w"]]
        )


def test_a_size_that_no_input_has_is_refused_when_it_runs(run):
    with pytest.raises(
        ValueError, match=r"resize_nearest.*use a number or a dimension of an input"
    ):
        run(lambda x: ops.resize_nearest(x, ["h", "new"]), values(2, 3), dims=[["h", 3]])
