# SPDX-License-Identifier: Apache-2.0
"""Exponentials, logarithms, roots and trigonometric functions, against the standard library."""

import math

import ml_dtypes
import numpy as np
import pytest

from maxjax.graph import ops

UNIT = np.linspace(-0.875, 0.875, 43)
REAL = np.linspace(-6, 6, 49)
POSITIVE = np.linspace(0.0625, 20, 40)
# The function, where to look at it, and its values next to and at its poles.
FUNCTIONS = {
    "acos": (math.acos, UNIT, {1: 0, -1: math.pi, 2: math.nan}),
    "atanh": (math.atanh, UNIT, {1: math.inf, -1: -math.inf, 0: 0, -2: math.nan}),
    "cos": (math.cos, REAL, {0: 1, math.inf: math.nan}),
    "erf": (math.erf, REAL, {math.inf: 1, -math.inf: -1, 0: 0}),
    "exp": (math.exp, REAL, {-math.inf: 0, math.inf: math.inf, 0: 1}),
    "log": (math.log, POSITIVE, {0: -math.inf, -1: math.nan, math.inf: math.inf}),
    "log1p": (math.log1p, np.linspace(-0.875, 4, 80), {-1: -math.inf, -2: math.nan, 1e-17: 1e-17}),
    "rsqrt": (lambda x: 1 / math.sqrt(x), POSITIVE, {0: math.inf, -1: math.nan, math.inf: 0}),
    "sin": (math.sin, REAL, {0: 0, math.inf: math.nan}),
    "sqrt": (math.sqrt, POSITIVE, {0: 0, -1: math.nan, math.inf: math.inf}),
    "tanh": (math.tanh, REAL, {math.inf: 1, -math.inf: -1, 0: 0}),
}


def arrays(kind):
    return [FUNCTIONS[n][1].astype(kind) for n in FUNCTIONS]


def build(*xs):
    return [getattr(ops, n)(x) for n, x in zip(FUNCTIONS, xs, strict=True)]


def exact(name, x):
    return np.array([FUNCTIONS[name][0](float(v)) for v in x])


@pytest.mark.parametrize(("kind", "tolerance"), [("float64", 1e-15), ("float32", 1e-6)])
def test_values(run, kind, tolerance):
    xs = arrays(kind)
    for name, x, out in zip(FUNCTIONS, xs, run(build, *xs), strict=True):
        assert out.dtype == kind
        # Next to a zero of the function the argument's own rounding shows.
        np.testing.assert_allclose(
            out, exact(name, x), rtol=tolerance, atol=tolerance / 10, err_msg=name
        )


@pytest.mark.parametrize(
    "kind", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
)
def test_narrow_floats_are_the_nearest_to_the_float32_result(run, kind):
    xs = arrays(kind)
    for name, x, out in zip(FUNCTIONS, xs, run(build, *xs), strict=True):
        assert out.dtype == kind
        near = exact(name, x).astype(np.float32)
        steps = [near * (1 - 1e-6), near * (1 + 1e-6)]
        low, high = sorted_bounds(*[s.astype(kind).astype(np.float32) for s in steps])
        found = out.astype(np.float32)
        ok = ((low <= found) & (found <= high)) | (np.isnan(low) & np.isnan(found))
        assert ok.all(), (name, x[~ok], found[~ok], near[~ok])


def sorted_bounds(a, b):
    return np.minimum(a, b), np.maximum(a, b)


def test_poles_and_limits(run):
    xs = [np.array(list(edges), np.float64) for _, _, edges in FUNCTIONS.values()]
    for (name, (_, _, edges)), out in zip(FUNCTIONS.items(), run(build, *xs), strict=True):
        np.testing.assert_allclose(out, list(edges.values()), rtol=1e-15, err_msg=name)


def test_integers_keep_their_dtype_and_are_computed_exactly_enough(run):
    squares = np.array([46340**2, 46340**2 - 1, 0], np.int32)
    (out,) = run(ops.sqrt, squares)
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, [46340, 46339, 0])
    (out,) = run(ops.exp, np.array([0, 1, 10], np.uint8))
    np.testing.assert_array_equal(out, np.uint8([1, 2, 255]))
    (out,) = run(ops.cos, np.array([True, False]))
    np.testing.assert_array_equal(out, [True, True])


def test_traced_once_for_all_sizes(run, run_symbolic):
    for size in (1, 5):
        xs = [x[:size] for x in arrays("float32")]
        dims = [["n"]] * len(xs)
        for name, x, out in zip(FUNCTIONS, xs, run_symbolic(build, *xs, dims=dims), strict=True):
            np.testing.assert_allclose(out, exact(name, x), rtol=1e-6, atol=1e-7, err_msg=name)
    for out in run(build, *[x[:0] for x in arrays("float32")], dims=dims):
        assert out.shape == (0,)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_are_refused(name):
    with pytest.raises(TypeError, match=rf"^{name}: expected a tensor value, got float 1.0"):
        getattr(ops, name)(1.0)
