# SPDX-License-Identifier: Apache-2.0
"""Casts: one documented result for each pair of dtypes, compiled, folded or traced."""

import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, Shape, TensorType, ops

CPU = DeviceRef.CPU()
INTEGERS = [d for d in DType if d.is_integral()]
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, ml_dtypes.float8_e5m2]
EDGES = [np.nan, np.inf, -np.inf, 3e9, -3e9, -1, 300, -0.9, 0.9, 1e20, -1e20, 255.5, -200.7, -0.0]


def saturated(x, dtype):
    """What the docs say: toward zero, the nearest end beyond it, NaN as 0."""
    info = np.iinfo(dtype.np)
    clipped = [
        0 if v != v else info.max if v == np.inf else info.min if v == -np.inf
        else min(max(int(v), info.min), info.max)
        for v in x.astype(np.float64).tolist()
    ]  # fmt: skip
    return np.array(clipped, dtype.np)


def edges(kind):
    with np.errstate(over="ignore"):
        return np.array(EDGES).astype(kind)


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_become_integers_toward_zero_saturating_and_nan_as_0(run, kind):
    x = edges(kind)
    outs = run(lambda x: [ops.cast(x, d) for d in INTEGERS], x)
    # XLA computes casts of constants itself, while it compiles.
    folded = run(lambda: [ops.cast(ops.constant(x), d) for d in INTEGERS])
    for dtype, *both in zip(INTEGERS, outs, folded, strict=True):
        for out in both:
            assert out.dtype == dtype.np
            np.testing.assert_array_equal(out, saturated(x, dtype), err_msg=dtype.name)


def test_the_same_when_traced_for_all_sizes(run_symbolic):
    x = edges(np.float32)
    outs = run_symbolic(lambda x: [ops.cast(x, d) for d in INTEGERS], x, dims=[["n"]])
    for dtype, out in zip(INTEGERS, outs, strict=True):
        np.testing.assert_array_equal(out, saturated(x, dtype), err_msg=dtype.name)


def test_integers_wrap_around(run):
    x = np.array([0, -1, 127, 128, 300, -129, 2**40 + 3, -(2**63)], np.int64)
    for dtype, out in zip(
        INTEGERS, run(lambda x: [ops.cast(x, d) for d in INTEGERS], x), strict=True
    ):
        np.testing.assert_array_equal(out, x.astype(dtype.np), err_msg=dtype.name)


def test_integers_become_the_nearest_float(run):
    x = np.array([2**24 + 1, 2**24 + 3, -(2**62) - 1, 257], np.int64)
    for kind in (np.float32, np.float64):
        (out,) = run(lambda x, k=kind: ops.cast(x, DType.of(k)), x)
        np.testing.assert_array_equal(out, x.astype(kind))
    (out,) = run(lambda x: ops.cast(x, DType.bfloat16), x[3:])
    assert float(out[0]) == 256


def test_all_but_zero_is_true(run):
    x = np.float32([0, -0.0, 1e-37, np.nan, -np.inf, 0.25])
    (out,) = run(lambda x: ops.cast(x, DType.bool), x)
    np.testing.assert_array_equal(out, [False, False, True, True, True, True])
    (out,) = run(lambda x: ops.cast(x, DType.bool), np.array([0, 2, 256], np.uint16))
    np.testing.assert_array_equal(out, [False, True, True])


def test_bools_are_0_and_1(run):
    x = np.array([True, False])
    outs = run(lambda x: [ops.cast(x, d) for d in (DType.uint8, DType.float16)], x)
    for out in outs:
        np.testing.assert_array_equal(out, [1, 0])


def test_narrower_floats_are_the_nearest(run):
    x = np.float32([1.00390625, 1.01171875, 1 / 3, 65519, 65520, 1e-30, 3.4e38, -0.0])
    with np.errstate(over="ignore"):
        for dtype in (DType.bfloat16, DType.float16, DType.float8_e5m2, DType.float8_e4m3fn):
            (out,) = run(lambda x, d=dtype: ops.cast(x, d), x)
            expected = x.astype(dtype.np)
            np.testing.assert_array_equal(
                out.astype(np.float32), expected.astype(np.float32), err_msg=dtype.name
            )


def test_a_rounding_there_and_back_is_kept(run):
    x = np.float32([1 / 3, 1.00390625])
    (out,) = run(lambda x: x.cast(DType.bfloat16).cast(DType.float32), x)
    np.testing.assert_array_equal(out, x.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.fixture
def x():
    with Graph("g", input_types=[TensorType(DType.float32, ["n"], CPU)]) as g:
        yield g.inputs[0].tensor


def test_the_same_dtype_or_device_is_the_value_itself(x):
    assert ops.cast(x, DType.float32) is x
    assert ops.transfer_to(x, CPU) is x


def test_dims_and_shapes_are_int64_tensors(x):
    assert ops.cast(Dim("n"), DType.float32).type == TensorType(DType.float32, [], CPU)
    assert ops.cast(Shape([2, "n"]), DType.int8).type == TensorType(DType.int8, [2], CPU)


def test_what_is_refused(x):
    with pytest.raises(TypeError, match=r"^cast: dtype must be a DType, got 'float32'"):
        ops.cast(x, "float32")
    with pytest.raises(TypeError, match=r"^cast: dtype must be a DType, got <class '"):
        ops.cast(x, np.float32)
    for value in (1.0, np.ones(2)):
        with pytest.raises(TypeError, match=r"^cast: expected a tensor value, got"):
            ops.cast(value, DType.float32)
        with pytest.raises(TypeError, match=r"^transfer_to: expected a tensor value, got"):
            ops.transfer_to(value, CPU)
    with pytest.raises(TypeError, match=r"^transfer_to: expected a DeviceRef .* not str 'gpu'"):
        ops.transfer_to(x, "gpu")


def test_a_transfer_moves_the_type(x):
    assert ops.transfer_to(x, DeviceRef.GPU(1)).type == TensorType(
        DType.float32, ["n"], DeviceRef.GPU(1)
    )


@pytest.mark.parametrize("kind", FLOATS[:4])
def test_a_bool_beside_a_float_is_a_number_and_no_choice(run, kind):
    x = np.array([np.nan, np.inf, 2, 2], kind)
    (out,) = run(lambda x, b: x * b, x, np.array([False, False, False, True]))
    np.testing.assert_array_equal(out.astype(np.float64), [np.nan, np.nan, 0, 2])
