# SPDX-License-Identifier: Apache-2.0
"""Activation functions, against their definitions in double precision."""

import math

import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops

X = np.linspace(-8, 8, 65)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x])


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FUNCTIONS = {
    "relu": (ops.relu, lambda x: np.maximum(x, 0)),
    "sigmoid": (ops.sigmoid, sigmoid),
    "silu": (ops.silu, lambda x: x * sigmoid(x)),
    "gelu": (ops.gelu, gelu),
    "gelu tanh": (lambda x: ops.gelu(x, "tanh"), gelu_tanh),
    "gelu quick": (lambda x: ops.gelu(x, approximate="quick"), lambda x: x * sigmoid(1.702 * x)),
}


def build(x):
    return [op(x) for op, _ in FUNCTIONS.values()]


@pytest.mark.parametrize(("kind", "tolerance"), [("float64", 1e-15), ("float32", 2e-6)])
def test_values(run, kind, tolerance):
    x = X.astype(kind)
    for (name, (_, exact)), out in zip(FUNCTIONS.items(), run(build, x), strict=True):
        assert out.dtype == kind
        expected = exact(x.astype(np.float64))
        # In the tails the condition of erfc and the cancellation in 1 + tanh show.
        np.testing.assert_allclose(
            out, expected, rtol=tolerance * 10, atol=tolerance * 4, err_msg=name
        )
        middle = abs(x) <= 1
        np.testing.assert_allclose(out[middle], expected[middle], rtol=tolerance, err_msg=name)


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn])
def test_narrow_floats_are_rounded_once(run, kind):
    x = X.astype(kind)
    for (name, (_, exact)), out in zip(FUNCTIONS.items(), run(build, x), strict=True):
        assert out.dtype == kind
        expected = exact(x.astype(np.float64))
        error = abs(out.astype(np.float64) - expected)
        # Half a step of the dtype, and what float32 itself is off.
        info = ml_dtypes.finfo(kind)
        step = np.maximum(abs(expected) * float(info.eps), float(info.smallest_subnormal))
        assert (error <= 0.51 * step + 1e-6).all(), name


def test_limits_and_nan(run):
    x = np.float32([np.nan, np.inf, -np.inf, -0.0])
    relu, sigm, *_ = run(build, x)
    np.testing.assert_array_equal(relu, np.float32([np.nan, np.inf, 0, 0]))
    np.testing.assert_array_equal(sigm, np.float32([np.nan, 1, 0, 0.5]))


def test_integers_and_bools_keep_their_dtype(run):
    relu, sigm = run(lambda x: [ops.relu(x), ops.sigmoid(x)], np.array([-5, 0, 50], np.int64))
    np.testing.assert_array_equal(relu, [0, 0, 50])
    np.testing.assert_array_equal(sigm, [0, 0, 1])
    assert sigm.dtype == np.int64
    (out,) = run(ops.relu, np.array([True, False]))
    np.testing.assert_array_equal(out, [True, False])


# ---------------------------------------------------------------- softmax


def softmax(x, axis):
    e = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
def test_softmax_along_each_axis(run, run_symbolic, axis):
    for rows in (1, 3):
        x = np.random.default_rng(rows).normal(size=(rows, 4, 2)).astype(np.float32) * 5
        for runs in (run, run_symbolic):
            soft, log = runs(
                lambda x: [ops.softmax(x, axis), ops.logsoftmax(x, axis=axis)],
                x,
                dims=[["n", 4, 2]],
            )
            np.testing.assert_allclose(soft, softmax(x, axis), rtol=1e-6)
            np.testing.assert_allclose(log, np.log(softmax(x, axis)), rtol=1e-5, atol=1e-6)


def test_softmax_of_nothing(run):
    for shape in ((0, 3), (3, 0)):
        soft, log = run(lambda x: [ops.softmax(x), ops.logsoftmax(x)], np.zeros(shape, np.float32))
        assert soft.shape == log.shape == shape


def test_softmax_neither_overflows_nor_underflows(run):
    x = np.float32([[1000, 999, -1000], [-1000, -1001, -3000]])
    soft, log = run(lambda x: [ops.softmax(x), ops.logsoftmax(x)], x)
    np.testing.assert_allclose(soft, softmax(x, 1), rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(log, x - x.max(1, keepdims=True) - np.log1p(np.exp(-1)), rtol=1e-6)


def test_softmax_with_nan_and_infinities(run):
    inf, nan = np.inf, np.nan
    x = np.float32([[1, nan], [-inf, -inf], [inf, 0], [-inf, 0]])
    soft, log = run(lambda x: [ops.softmax(x), ops.logsoftmax(x)], x)
    assert np.isnan(soft[:3]).all() and np.isnan(log[:3]).all()
    np.testing.assert_array_equal(soft[3], [0, 1])
    np.testing.assert_array_equal(log[3], [-inf, 0])


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_softmax_of_narrow_floats_sums_in_float32(run, kind):
    x = np.zeros((1, 5000), kind)
    (soft,) = run(ops.softmax, x)
    assert soft.dtype == kind
    np.testing.assert_array_equal(soft, np.full((1, 5000), 1 / 5000, kind))


def test_what_is_refused():
    with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
        x = g.inputs[0].tensor
        for wrong in ("cubic", None, "TANH"):
            with pytest.raises(ValueError, match=r'^gelu: approximate must be "none", "tanh" or'):
                ops.gelu(x, wrong)
        for name in ("softmax", "logsoftmax"):
            op = getattr(ops, name)
            for axis in (2, -3):
                with pytest.raises(ValueError, match=rf"^{name}: axis {axis} is out of range"):
                    op(x, axis)
            with pytest.raises(TypeError, match=rf"^{name}: axis must be an int, got None"):
                op(x, None)
        for name in ("relu", "sigmoid", "silu", "gelu", "softmax", "logsoftmax"):
            with pytest.raises(TypeError, match=rf"^{name}: expected a tensor value, got float"):
                getattr(ops, name)(1.0)
