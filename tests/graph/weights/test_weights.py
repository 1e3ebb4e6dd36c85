# SPDX-License-Identifier: Apache-2.0
"""`WeightData`: arrays with a name, cast on the host."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.graph.quantization import QuantizationEncoding
from maxjax.graph.shape import Shape
from maxjax.graph.weights import WeightData

FLOATS = np.float32([[0.0, -1.5, 2.25], [3.0, 1e-3, -70000.0]])


def numbers(data: WeightData) -> np.ndarray:
    """The numbers of a float type, as float64, through the buffer's own items."""
    buffer = data.to_buffer()
    values = [buffer[i].item() for i in np.ndindex(*buffer.shape)]
    return np.array(values, np.float64).reshape(buffer.shape)


def test_from_numpy_shares_memory():
    array = np.arange(4, dtype=np.int32)
    data = WeightData.from_numpy(array, "a.b")
    assert (data.name, data.dtype, data.shape) == ("a.b", DType.int32, [4])
    array[2] = 7
    assert data.to_buffer() is data.to_buffer()
    assert data.to_buffer().to_numpy().tolist() == [0, 1, 7, 3]
    assert np.from_dlpack(data).tolist() == [0, 1, 7, 3]


def test_any_layout_will_do():
    for array in (FLOATS.T, FLOATS[:, ::2], np.broadcast_to(np.float32(3), (2,)), np.float32(4)):
        array = np.asarray(array)
        data = WeightData.from_numpy(array, "w")
        assert data.shape == list(array.shape)
        np.testing.assert_array_equal(data.to_buffer().to_numpy(), array)
        double = data.astype(DType.float64).to_buffer().to_numpy()
        np.testing.assert_array_equal(double, array.astype(np.float64))


def test_from_numpy_refuses_complex():
    with pytest.raises(ValueError, match="complex64"):
        WeightData.from_numpy(np.ones(2, np.complex64), "a")


def test_data_from_elsewhere():
    array = jnp.arange(3, dtype=jnp.float32)
    data = WeightData(array, "j", DType.float32, Shape([3]))
    assert isinstance(data.to_buffer(), Buffer)
    assert data.to_buffer().to_numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "dtype", [DType.bfloat16, DType.float16, DType.float64, DType.float8_e5m2, DType.float8_e4m3fn]
)
def test_astype_rounds_like_ml_dtypes(dtype):
    with np.errstate(over="ignore"):
        expected = FLOATS.astype(dtype.np).astype(np.float64)
        cast = WeightData.from_numpy(FLOATS, "w").astype(dtype)
    assert (cast.name, cast.dtype, cast.shape) == ("w", dtype, [2, 3])
    assert cast.to_buffer().dtype is dtype
    np.testing.assert_array_equal(numbers(cast), expected)


def test_astype_from_bfloat16():
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    data = WeightData.from_numpy(array, "w")
    assert data.dtype is DType.bfloat16
    assert data.astype(DType.float32).to_buffer().to_numpy().tolist() == [1.5, -2.0]


def test_astype_to_integers_cuts_off():
    data = WeightData.from_numpy(np.float32([1.75, -1.75, 0.0]), "w")
    assert data.astype(DType.int32).to_buffer().to_numpy().tolist() == [1, -1, 0]
    assert data.astype(DType.bool).to_buffer().to_numpy().tolist() == [True, True, False]


def test_astype_to_itself_is_itself():
    data = WeightData.from_numpy(FLOATS, "w")
    assert data.astype(DType.float32) is data


def test_quantized_bytes_are_not_cast():
    data = WeightData.from_numpy(np.zeros((2, 18), np.uint8), "w")
    data.quantization_encoding = QuantizationEncoding.Q4_0
    assert repr(data) == "WeightData('w', uint8, [2, 18], Q4_0)"
    with pytest.raises(ValueError, match=r"'w' is quantized as Q4_0: .* float32; dequantize it"):
        data.astype(DType.float32)
