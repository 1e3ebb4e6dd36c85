# SPDX-License-Identifier: Apache-2.0
"""Signs, rounding, tests for NaN and infinity, logical not: against NumPy."""

import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops

FLOAT = np.float32([-2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 2.4, -2.6, np.inf, -np.inf, np.nan])
NUMPY = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "is_inf": np.isinf,
    "is_nan": np.isnan,
    "negate": np.negative,
    "round": np.round,
    "trunc": np.trunc,
}


def test_floats(run):
    for x in (FLOAT, FLOAT.reshape(13, 1)[:0], FLOAT[:1]):
        outs = run(lambda x: [getattr(ops, n)(x) for n in NUMPY], x)
        for name, out in zip(NUMPY, outs, strict=True):
            np.testing.assert_array_equal(out, NUMPY[name](x), err_msg=name)
            assert out.dtype == NUMPY[name](x).dtype


def test_zeros_keep_their_sign(run):
    (out,) = run(ops.round, FLOAT)
    np.testing.assert_array_equal(np.signbit(out), np.signbit(np.round(FLOAT)))


def test_traced_once_for_all_sizes(run_symbolic):
    for size in (1, 4):
        x = FLOAT[:size]
        outs = run_symbolic(lambda x: [getattr(ops, n)(x) for n in NUMPY], x, dims=[["n"]])
        for name, out in zip(NUMPY, outs, strict=True):
            np.testing.assert_array_equal(out, NUMPY[name](x), err_msg=name)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_narrow_floats(run, kind):
    x = np.array([-2.5, 0.5, 1.5, -0.75, 3, np.inf, np.nan], kind)
    outs = run(lambda x: [getattr(ops, n)(x) for n in NUMPY], x)
    for name, out in zip(NUMPY, outs, strict=True):
        expected = NUMPY[name](x.astype(np.float32))
        assert out.dtype == (bool if name.startswith("is_") else kind)
        np.testing.assert_array_equal(out.astype(np.float32), expected, err_msg=name)


def test_integers_wrap_and_stay(run):
    low, up, down, wraps, nan, inf = run(
        lambda x: (
            [abs_(x) for abs_ in (ops.abs, ops.ceil, ops.floor, ops.negate)]
            + [ops.is_nan(x), ops.is_inf(x)]
        ),
        np.array([-128, -3, 0, 127], np.int8),
    )
    np.testing.assert_array_equal(low, np.int8([-128, 3, 0, 127]))
    np.testing.assert_array_equal(up, np.int8([-128, -3, 0, 127]))
    np.testing.assert_array_equal(down, up)
    np.testing.assert_array_equal(wraps, np.int8([-128, 3, 0, -127]))
    assert not nan.any() and not inf.any()
    assert up.dtype == np.int8 and nan.dtype == bool


def test_unsigned_integers_wrap(run):
    (out,) = run(ops.negate, np.array([0, 1, 255], np.uint8))
    np.testing.assert_array_equal(out, np.uint8([0, 255, 1]))


def test_bools(run):
    x = np.array([True, False])
    kept, flipped, rounded, nan, negated = run(
        lambda x: [ops.abs(x), ~x, ops.round(x), ops.is_nan(x), ops.negate(x)], x
    )
    np.testing.assert_array_equal(kept, x)
    np.testing.assert_array_equal(rounded, x)
    np.testing.assert_array_equal(flipped, ~x)
    np.testing.assert_array_equal(negated, ~x)
    assert not nan.any()


def test_what_is_refused():
    with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
        x = g.inputs[0].tensor
        with pytest.raises(ValueError, match=r"^logical_not: the operand must be bool; .*f32\[n\]"):
            ops.logical_not(x)
        for name in NUMPY:
            for other in (1.0, np.ones(2, np.float32), "a", None):
                with pytest.raises(TypeError, match=rf"^{name}: expected a tensor value, got"):
                    getattr(ops, name)(other)
