# SPDX-License-Identifier: Apache-2.0
"""Host memory and ``jax.Array``: allocation, transfers, and numbers that fit an element type.

Transfers run inside ``jax.enable_x64(True)``, so that 64-bit elements stay what they are.
"""

import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.dtype import DType

__all__ = ["allocate", "duplicate", "native", "number", "place", "snapshot", "zeros_on"]

# XLA takes host memory as it is when it starts at a multiple of this; else it copies it.
_ALIGNMENT = 64


def allocate(shape: tuple[int, ...], dtype: np.dtype, *, zeros: bool = False) -> np.ndarray:
    """New host memory that XLA can take over without a copy."""
    size = math.prod(shape) * dtype.itemsize
    # Zeros of the system's making cost nothing until they are touched.
    raw = (np.zeros if zeros else np.empty)(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def snapshot(array: np.ndarray) -> np.ndarray:
    """A packed copy in memory that XLA can take over."""
    copy = allocate(array.shape, array.dtype)
    copy[...] = array
    return copy


def native(array: np.ndarray) -> tuple[np.ndarray, DType]:
    """The array as a plain one in this machine's byte order, and its `DType`.

    Raises:
        TypeError: If its elements are no numbers that a `DType` stands for.
        ValueError: If some of its elements are masked.
    """
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise ValueError("some elements of the array are masked; give them values with filled()")
    array = array.view(np.ndarray)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        return array, DType.from_numpy(array.dtype)
    except ValueError as error:
        raise TypeError(f"a Buffer cannot hold these elements: {error}") from None


def place(array: np.ndarray, device: Any, *, ours: bool) -> jax.Array:
    """The array on a ``jax.Device``.

    Args:
        array: The values.
        device: The ``jax.Device``.
        ours: Whether nobody writes to its memory any more; the result may share it then.

    Raises:
        TypeError: If JAX has no such elements.
    """
    dtype = DType.of(array.dtype)
    if dtype.size_in_bits == 6:
        raise TypeError(f"JAX has no {dtype!r}; view it as uint8, or convert it to float32")
    if not ours and device.platform == "cpu":
        array = snapshot(array)
    with jax.enable_x64(True):
        result = jax.device_put(array, device)
    if not ours and device.platform != "cpu":
        result.block_until_ready()  # the transfer reads the memory until then
    return result


def duplicate(array: jax.Array, device: Any) -> jax.Array:
    """A copy on a ``jax.Device`` that shares nothing with ``array``."""
    with jax.enable_x64(True):
        if device in array.sharding.device_set:
            return jnp.array(array, copy=True)
        return jax.device_put(array, device)


def zeros_on(shape: tuple[int, ...], dtype: DType, device: Any) -> jax.Array:
    """Elements whose bits are all zero, made on a ``jax.Device``."""
    if dtype.size_in_bits == 6:
        return place(allocate(shape, dtype.np, zeros=True), device, ours=True)
    with jax.enable_x64(True):
        if dtype is DType.float8_e8m0fnu:  # has no 0, so JAX would make it NaN
            return jnp.zeros(shape, np.uint8, device=device).view(dtype.np)
        return jnp.zeros(shape, dtype.np, device=device)


def number(value: Any, dtype: DType) -> np.generic:
    """A Python or NumPy number as an element.

    Raises:
        TypeError: If it is no real number, or a float for an integer type.
        ValueError: If it is out of the range of the type.
    """
    real = isinstance(value, bool | int | float | np.generic)
    if not real or isinstance(value, np.complexfloating | np.flexible | np.datetime64 | np.object_):
        raise TypeError(
            f"an element of {dtype!r} is a number, not {type(value).__name__} {value!r}"
        )
    if dtype is DType.bool or isinstance(value, np.bool_):
        value = bool(value)
    if dtype is DType.bool:
        return np.bool_(value)
    if dtype.is_integral():
        return dtype.np.type(_whole(value, dtype))
    try:
        real_value = float(value)
    except OverflowError:
        raise ValueError(f"{value} is beyond the range of {dtype!r}") from None
    with np.errstate(over="ignore"):
        return dtype.np.type(real_value)


def _whole(value: Any, dtype: DType) -> int:
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(
            f"an element of {dtype!r} is an int, not {type(value).__name__} {value!r}; convert "
            "it with int()"
        ) from None
    limits = np.iinfo(dtype.np)
    if not limits.min <= whole <= limits.max:
        raise ValueError(f"{whole} is out of the range of {dtype!r}, {limits.min} to {limits.max}")
    return whole
