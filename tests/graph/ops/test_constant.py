# SPDX-License-Identifier: Apache-2.0
"""Constants: from numbers, lists and arrays; weights; shapes as tensors."""

import math

import jax
import ml_dtypes
import numpy as np
import pytest

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops

CPU = DeviceRef.CPU()


@pytest.fixture(autouse=True)
def g():
    with Graph("g") as graph:
        yield graph


def array(constant):
    """The array of a constant of the graph being built."""
    (node,) = [n for n in Graph.current.body.walk() if constant in n.results]
    return node.op.value


def made(*args):
    value = ops.constant(*args)
    node = Graph.current.body.nodes[-1]
    assert node.results == (value,)
    assert value.type.shape == list(node.op.value.shape)
    return node.op.value


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (5, DType.int8, np.int8(5)),
        (np.int64(5), DType.int8, np.int8(5)),
        (True, DType.bool, np.bool_(True)),
        (1, DType.bool, np.bool_(True)),
        (2.0, DType.int32, np.int32(2)),
        (True, DType.float32, np.float32(1)),
        (0.1, DType.float64, np.float64(0.1)),
        ([[1, 2], [3, 4]], DType.int32, np.int32([[1, 2], [3, 4]])),
        ((1, 2.5), DType.float16, np.float16([1, 2.5])),
        (range(3), DType.uint8, np.uint8([0, 1, 2])),
        ([], DType.float32, np.zeros(0, np.float32)),
        ([[], []], DType.bool, np.zeros((2, 0), bool)),
        ([2**64 - 1, 0], DType.uint64, np.uint64([2**64 - 1, 0])),
        ([-(2**63), 2**63 - 1], DType.int64, np.int64([-(2**63), 2**63 - 1])),
        ([2**63, 2], DType.float32, np.float32([2**63, 2])),
        ([2**70, 1], DType.float64, np.float64([2**70, 1])),
        (1e39, DType.float32, np.float32(math.inf)),
        (70000, DType.float16, np.float16(math.inf)),
        (math.nan, DType.float32, np.float32(math.nan)),
        (1.25, DType.float8_e5m2, ml_dtypes.float8_e5m2(1.25)),
    ],
)
def test_numbers_and_lists(value, dtype, expected):
    result = made(value, dtype, CPU)
    assert result.dtype == dtype.np
    assert result.shape == np.shape(expected)
    np.testing.assert_array_equal(result.astype(np.float64), np.asarray(expected, np.float64))
    if dtype.is_integral():
        np.testing.assert_array_equal(result, expected)


def test_zeros_keep_their_sign(run):
    (out,) = run(lambda x: x * -0.0 + ops.constant(-0.0, DType.float32, CPU), np.float32([1]))
    assert np.signbit(out[0])
    (out,) = run(lambda x: x * 0.0, np.float32([1]))
    assert not np.signbit(out[0])


def test_numbers_beside_a_value_are_apart_though_equal(run):
    outs = run(lambda x: [x + 1, x + True, x + 1.0, x - 0.0, x * -0.0], np.float32([2]))
    np.testing.assert_array_equal(np.concatenate(outs), np.float32([3, 3, 3, 2, -0.0]))
    ints = run(lambda i, x: [i + 1, x + 1], np.int8([2]), np.float32([2]))
    assert [o.dtype for o in ints] == [np.int8, np.float32]


def test_numbers_round_to_the_nearest_bfloat16_as_arrays_and_casts_do(run):
    number, listed, beside, cast, given = run(
        lambda x: [
            ops.constant(0.3, DType.bfloat16, CPU),
            ops.constant([0.3, -0.3, 1e39, math.nan], DType.bfloat16, CPU),
            x + 0.3,
            ops.constant(0.3, DType.float32, CPU).cast(DType.bfloat16),
            x + np.float32([0.3]),
        ],
        np.zeros(1, ml_dtypes.bfloat16),
    )
    near = 0.30078125
    np.testing.assert_array_equal(number.astype(float), near)
    np.testing.assert_array_equal(listed.astype(float), [near, -near, math.inf, math.nan])
    np.testing.assert_array_equal(beside.astype(float), [near])
    np.testing.assert_array_equal(cast.astype(float), near)
    np.testing.assert_array_equal(given.astype(float), [near])


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.arange(6.0)[::-2],
        np.zeros((2, 0, 3), np.float16),
        np.array(3, np.float32),
        np.array([True, False]),
        np.array([1.5, 2], ml_dtypes.bfloat16),
        np.array([1.5, 2], ml_dtypes.float8_e4m3fn),
    ],
)
def test_arrays_keep_their_dtype_and_shape(run, value):
    for given in (value, Buffer.from_numpy(value.copy())):
        (out,) = run(lambda given=given: ops.constant(given))
        assert out.dtype == value.dtype and out.shape == value.shape
        np.testing.assert_array_equal(out.astype(np.float32), value.astype(np.float32))
    assert made(value, DType.of(value.dtype), CPU).dtype == value.dtype


def test_jax_arrays_and_dlpack():
    class Other:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **kwargs):
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    np.testing.assert_array_equal(made(jax.numpy.arange(3)), [0, 1, 2])
    np.testing.assert_array_equal(made(Other(np.arange(3))), [0, 1, 2])


def test_the_array_is_copied():
    value = np.float32([1, 2])
    constant = made(value)
    value[0] = 9
    np.testing.assert_array_equal(constant, [1, 2])
    with pytest.raises(ValueError, match="read-only"):
        constant[0] = 3


def test_devices():
    on_gpu = ops.constant(np.ones(2, np.float32), device=DeviceRef.GPU())
    assert on_gpu.device == DeviceRef.GPU()
    assert ops.constant(np.ones(2, np.float32)).device == CPU


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1.0,), TypeError, "a number or a list needs a dtype as well"),
        ((1.0, DType.float32), TypeError, "a number or a list needs a device as well"),
        (([1], DType.int8), TypeError, "a number or a list needs a device as well"),
        ((np.float32(1),), TypeError, "a number or a list needs a dtype as well"),
        ((256, DType.uint8, CPU), ValueError, "256 is outside uint8, which holds 0 to 255"),
        (([1, -1], DType.uint32, CPU), ValueError, "-1 is outside uint32, which holds 0 to"),
        ((2**63, DType.int64, CPU), ValueError, "9223372036854775808 is outside int64"),
        ((2**64, DType.uint64, CPU), ValueError, "18446744073709551616 is outside uint64"),
        ((2, DType.bool, CPU), ValueError, "2 is outside bool, which holds 0 to 1"),
        ((1.5, DType.int32, CPU), ValueError, "1.5 is not a whole number, and int32 holds only"),
        (([1, math.nan], DType.int32, CPU), ValueError, "nan is not a whole number"),
        ((math.inf, DType.bool, CPU), ValueError, "inf is not a whole number"),
        (([[1], [1, 2]], DType.int8, CPU), ValueError, "lists at each level must be of equal"),
        (([2**64, [1]], DType.uint64, CPU), ValueError, "lists at each level must be of equal"),
        ((10**400, DType.float32, CPU), ValueError, "an integer is too large for a float"),
        (("a", DType.int8, CPU), TypeError, "must be a number, a list or an array, got str"),
        ((None, DType.int8, CPU), TypeError, "must be a number, a list or an array, got NoneType"),
        ((["a"], DType.int8, CPU), TypeError, "expected numbers, got str"),
        (([1j], DType.float32, CPU), TypeError, "expected numbers, got complex128"),
        (([None, 1], DType.float32, CPU), TypeError, "expected numbers, got NoneType None"),
        (([1.0, None], DType.int8, CPU), TypeError, "expected numbers, got NoneType None"),
        ((1.0, DType.float4_e2m1fn, CPU), TypeError, "float4_e2m1fn is narrower than a byte"),
        ((1, "int8", CPU), TypeError, "dtype must be a DType, got 'int8'"),
        ((np.ones(2), DType.float32), ValueError, "the array is float64, not float32; convert"),
        ((np.ones(2, complex),), TypeError, "no DType holds the elements of a complex128 array"),
        ((np.array(["a"]),), TypeError, "no DType holds the elements of a <U1 array"),
        ((np.ones(2, ">f4"),), ValueError, "byte order"),
        ((1, DType.int8, "cpu"), TypeError, "device must be a Device or DeviceRef, got 'cpu'"),
    ],
)
def test_what_is_refused(arguments, error, message):
    with pytest.raises(error, match=message) as refusal:
        ops.constant(*arguments)
    assert str(refusal.value).startswith("constant: ")
    assert f"at {__file__}:" in str(refusal.value)


def test_outside_a_graph(g):
    g.__exit__(None, None, None)
    try:
        with pytest.raises(LookupError, match="no graph is being built"):
            ops.constant(np.ones(2))
        with pytest.raises(LookupError, match="no graph is being built"):
            ops.constant_external("w", TensorType(DType.float32, [2], CPU))
    finally:
        g.__enter__()


def test_weights():
    type_ = TensorType(DType.float32, [2, "n"], CPU)
    assert ops.constant_external("w", type_).type == type_
    with pytest.raises(ValueError, match="'w'"):
        ops.constant_external("w", type_)
    with pytest.raises(TypeError, match=r"^constant_external: type must be a TensorType, got 3"):
        ops.constant_external("v", 3)


def test_shapes_as_tensors(run, run_symbolic):
    x = np.zeros((3, 2), np.float32)
    for runs in (run, run_symbolic):
        (out,) = runs(
            lambda x: ops.shape_to_tensor([*x.shape, Dim("n") * 2 + 1, 7]), x, dims=[["n", 2]]
        )
        assert out.dtype == np.int64
        np.testing.assert_array_equal(out, [3, 2, 7, 7])
    (out,) = run(lambda: ops.shape_to_tensor([]))
    assert out.shape == (0,) and out.dtype == np.int64


def test_shapes_that_are_none():
    with pytest.raises(ValueError, match=r"^shape_to_tensor: .*'bad name'"):
        ops.shape_to_tensor(["bad name"])
    with pytest.raises(TypeError, match=r"^shape_to_tensor: a shape is made from dims"):
        ops.shape_to_tensor(3)
