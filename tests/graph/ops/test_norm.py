# SPDX-License-Identifier: Apache-2.0
"""Normalizations, against their definitions in double precision."""

import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops

CPU = DeviceRef.CPU()
RNG = np.random.default_rng(0)
X = RNG.normal(1, 2, (5, 8)).astype(np.float32)
W = RNG.uniform(0.5, 1.5, 8).astype(np.float32)
B = RNG.normal(size=8).astype(np.float32)


def standardized(x, axis, epsilon):
    x = x.astype(np.float64)
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + epsilon)


def layer_norm(x, gamma, beta, epsilon):
    return standardized(x, -1, epsilon) * gamma + beta


def rms_norm(x, weight, epsilon, offset=0.0):
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * (weight + offset)


def group_norm(x, gamma, beta, groups, epsilon):
    n, c, *rest = x.shape
    y = standardized(x.reshape(n, groups, -1), -1, epsilon).reshape(x.shape)
    shape = (c, *[1] * len(rest))
    return y * np.reshape(gamma, shape) + np.reshape(beta, shape)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_rows_of_any_number(run, run_symbolic, rows):
    x = X[:rows]
    for runs in (run, run_symbolic) if rows else (run,):
        layer, rms, offset = runs(
            lambda x, w, b: [
                ops.layer_norm(x, w, b, 1e-5),
                ops.rms_norm(x, w, 1e-6),
                ops.rms_norm(x, w, 1e-6, weight_offset=1.0, multiply_before_cast=True),
            ],
            x,
            W,
            B,
            dims=[["n", 8], [8], [8]],
        )
        np.testing.assert_allclose(layer, layer_norm(x, W, B, 1e-5), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rms, rms_norm(x, W, 1e-6), rtol=1e-6)
        np.testing.assert_allclose(offset, rms_norm(x, W, 1e-6, 1), rtol=1e-6)


def test_a_symbolic_last_axis(run_symbolic):
    layer, rms = run_symbolic(
        lambda x, w, b: [ops.layer_norm(x, w, b, 1e-5), ops.rms_norm(x, w, 1e-6)],
        X[None],
        W,
        B,
        dims=[["a", "b", "n"], ["n"], ["n"]],
    )
    np.testing.assert_allclose(layer[0], layer_norm(X, W, B, 1e-5), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rms[0], rms_norm(X, W, 1e-6), rtol=1e-6)


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
@pytest.mark.parametrize("trailing", [(), (3,), (3, 2)])
def test_groups_of_channels(run, run_symbolic, groups, trailing):
    x = RNG.normal(1, 2, (3, 8, *trailing)).astype(np.float32)
    dims = [["n", 8, *"hw"[: len(trailing)]], [8], [8]]
    for runs in (run, run_symbolic):
        (out,) = runs(lambda x, w, b: ops.group_norm(x, w, b, groups, 0.1), x, W, B, dims=dims)
        np.testing.assert_allclose(out, group_norm(x, W, B, groups, 0.1), rtol=1e-5, atol=2e-6)


def test_float64(run):
    x = X.astype(np.float64)
    layer, rms, group = run(
        lambda x, w, b: [
            ops.layer_norm(x, w, b, 1e-12),
            ops.rms_norm(x, w, 1e-12),
            ops.group_norm(x, w, b, 2, 1e-12),
        ],
        x,
        W.astype(np.float64),
        B.astype(np.float64),
    )
    np.testing.assert_allclose(layer, layer_norm(x, W, B, 1e-12), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(rms, rms_norm(x, W, 1e-12), rtol=1e-14)
    np.testing.assert_allclose(group, group_norm(x, W, B, 2, 1e-12), rtol=1e-13, atol=1e-15)


def test_numbers_and_arrays_as_scale_and_shift(run):
    layer, rms, group = run(
        lambda x: [
            ops.layer_norm(x, W, 0.25, 1e-5),
            ops.rms_norm(x, 2, 0),
            ops.group_norm(x, 1.5, B, 2, 1e-5),
        ],
        X,
    )
    np.testing.assert_allclose(layer, layer_norm(X, W, 0.25, 1e-5), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rms, rms_norm(X, 2, 0), rtol=1e-6)
    expected = standardized(X.reshape(5, 2, 4), -1, 1e-5).reshape(5, 8) * 1.5 + B
    np.testing.assert_allclose(group, expected, rtol=1e-5, atol=2e-6)


# ---------------------------------------------------------------- narrow floats


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_computed_in_float32_and_rounded_once(run, kind):
    x, w, b = X.astype(kind), W.astype(kind), B.astype(kind)
    wide = [v.astype(np.float32) for v in (x, w, b)]
    outs = run(
        lambda x, w, b: [
            ops.layer_norm(x, w, b, 1e-5),
            ops.rms_norm(x, w, 1e-6, 1.0, multiply_before_cast=True),
            ops.group_norm(x, w, b, 4, 1e-5),
        ],
        x,
        w,
        b,
    )
    exact = [
        layer_norm(*wide, 1e-5),
        rms_norm(*wide[:2], 1e-6, 1.0),
        group_norm(*wide, 4, 1e-5),
    ]
    eps = float(ml_dtypes.finfo(kind).eps)
    for out, want in zip(outs, exact, strict=True):
        assert out.dtype == kind
        np.testing.assert_allclose(out.astype(float), want, rtol=0.51 * eps, atol=1e-5)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_by_default_an_rms_norm_rounds_before_it_scales(run, kind, offset):
    x, w = X.astype(kind), W.astype(kind)
    (out,) = run(lambda x, w: ops.rms_norm(x, w, 1e-6, offset), x, w)

    def rounded(v):
        return v.astype(np.float32).astype(kind).astype(np.float32)

    scale = rounded(w.astype(np.float32) + np.float32(offset))
    expected = rounded(rounded(rms_norm(x, 1, 1e-6)) * scale)
    np.testing.assert_array_equal(out.astype(np.float32), expected)
    once = rounded(rms_norm(x, w.astype(np.float32), 1e-6, offset))
    assert (once != expected).any()


def test_parameters_of_another_dtype(run):
    x = X.astype(ml_dtypes.bfloat16)
    (out,) = run(lambda x, w, b: ops.layer_norm(x, w, b, 1e-5), x, W, B)
    assert out.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(
        out.astype(float), layer_norm(x.astype(float), W, B, 1e-5), rtol=2**-8, atol=1e-3
    )


# ---------------------------------------------------------------- the edges


def test_a_constant_row_becomes_the_shift(run):
    x = np.full((2, 8), 1e6 + 1, np.float32)
    layer, rms = run(
        lambda x, w, b: [ops.layer_norm(x, w, b, 1e-5), ops.rms_norm(x * 0, w, 1e-6)], x, W, B
    )
    np.testing.assert_array_equal(layer, np.broadcast_to(B, (2, 8)))
    np.testing.assert_array_equal(rms, np.zeros((2, 8)))


def test_a_large_mean_does_not_swallow_the_variance(run):
    x = np.float32([[10000.0, 10001, 10002, 10003]])
    (out,) = run(lambda x: ops.layer_norm(x, 1.0, 0.0, 1e-5), x)
    np.testing.assert_allclose(out, standardized(x, -1, 1e-5), rtol=1e-5)


def test_a_row_with_nan_is_nan(run):
    x = X.copy()
    x[1, 3] = np.nan
    layer, rms = run(lambda x: [ops.layer_norm(x, 1.0, 0.0, 1e-5), ops.rms_norm(x, 1.0, 0)], x)
    for out in (layer, rms):
        assert np.isnan(out[1]).all() and not np.isnan(np.delete(out, 1, 0)).any()


def test_rows_without_elements(run):
    x, w = np.zeros((3, 0), np.float32), np.zeros(0, np.float32)
    outs = run(lambda x, w: [ops.layer_norm(x, w, w, 1e-5), ops.rms_norm(x, w, 1e-6)], x, w)
    assert [o.shape for o in outs] == [(3, 0), (3, 0)]


# ---------------------------------------------------------------- types and refusals


@pytest.fixture
def g():
    types = {
        "x": TensorType(DType.float32, ["n", 8], CPU),
        "v": TensorType(DType.float32, [8], CPU),
        "five": TensorType(DType.float32, [5], CPU),
        "i": TensorType(DType.int32, ["n", 8], CPU),
        "iv": TensorType(DType.int32, [8], CPU),
        "far": TensorType(DType.float32, [8], DeviceRef.GPU()),
    }
    with Graph("g", input_types=types.values()) as graph:
        graph.named = dict(zip(types, (v.tensor for v in graph.inputs), strict=True))
        yield graph


@pytest.mark.parametrize(
    ("expression", "error", "message"),
    [
        ("layer_norm(x, five, v, 1e-5)", ValueError, r"gamma must have shape \[8\], got \[5\] \(g"),
        ("layer_norm(x, v, x, 1e-5)", ValueError, r"beta must have shape \[8\], got \[n, 8\]"),
        ("layer_norm(x, v, v, 0)", ValueError, r"epsilon must be more than 0"),
        ("layer_norm(x, v, v, -1)", ValueError, r"epsilon must be 0 or more, got -1"),
        ("layer_norm(x, v, v, float('nan'))", ValueError, r"epsilon must be 0 or more, got nan"),
        ("layer_norm(x, v, v, '1')", TypeError, r"epsilon must be a number, got '1'"),
        ("layer_norm(v[0], v, v, 1e-5)", ValueError, r"a scalar has no last axis to normalize"),
        ("layer_norm(i, v, v, 1e-5)", ValueError, r"the input must be a float, not int32; cast"),
        ("layer_norm(x, iv, v, 1e-5)", ValueError, r"gamma must be a float, not int32; cast it"),
        ("layer_norm(x, far, v, 1e-5)", ValueError, r"operands are on different devices, cpu:0"),
        ("layer_norm(1.0, v, v, 1e-5)", TypeError, r"expected a tensor value, got float 1.0"),
        ("layer_norm(x, 'a', v, 1e-5)", TypeError, r"expected a graph value, .* got str"),
        ("rms_norm(x, five, 1e-6)", ValueError, r"weight must have shape \[8\], got \[5\]"),
        ("rms_norm(x, x, 1e-6)", ValueError, r"weight must have shape \[8\], got \[n, 8\]"),
        ("rms_norm(x, v, -1e-6)", ValueError, r"epsilon must be 0 or more, got -1e-06"),
        ("rms_norm(x, v, 1e-6, None)", TypeError, r"weight_offset must be a number, got None"),
        ("group_norm(x, v, v, 3, 1e-5)", ValueError, r"8 channels cannot be divided into 3 groups"),
        ("group_norm(x, v, five, 2, 1e-5)", ValueError, r"beta must have shape \[8\], got \[5\]"),
        ("group_norm(x, v, v, 0, 1e-5)", ValueError, r"num_groups must be 1 or more, got 0"),
        ("group_norm(x, v, v, 2.0, 1e-5)", TypeError, r"num_groups must be an int, got 2.0"),
        ("group_norm(v, v, v, 1, 1e-5)", ValueError, r"the input must have shape \(N, C, ...\)"),
    ],
)
def test_what_is_refused(g, expression, error, message):
    with pytest.raises(error, match=message) as refusal:
        eval(f"ops.{expression}", {"ops": ops, **g.named})
    assert str(refusal.value).startswith(expression.partition("(")[0] + ": ")
    assert "\n  at <string>:1" in str(refusal.value)


def test_symbolic_channels_are_divided_when_their_number_is_known(run, run_symbolic):
    def build(groups):
        return lambda x, w: ops.group_norm(x, w, w, groups, 1e-5)

    dims = [["n", "c", 3], ["c"]]
    x, ones = RNG.normal(size=(2, 4, 3)).astype(np.float32), np.ones(4, np.float32)
    for runs, groups in ((run, 2), (run_symbolic, 1)):
        (out,) = runs(build(groups), x, ones, dims=dims)
        expected = group_norm(x, ones, ones, groups, 1e-5)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=2e-6)
    with pytest.raises(ValueError, match="group_norm: 4 channels cannot be divided into 3 groups"):
        run(build(3), x, ones, dims=dims)
    with pytest.raises(ValueError, match="group_norm: c channels cannot be divided into 2 groups"):
        run_symbolic(build(2), x, ones, dims=dims)
