# SPDX-License-Identifier: Apache-2.0
"""What becomes a tensor: arrays, which keep their element type, and numbers and lists of them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from maxjax.driver import Buffer
from maxjax.dtype import DType

__all__ = ["buffer_of", "is_array", "numbers"]


def is_array(data: Any) -> bool:
    """Whether ``data`` has an element type of its own."""
    return isinstance(data, Buffer | np.ndarray | np.generic | jax.Array) or hasattr(
        data, "__dlpack__"
    )


def buffer_of(array: Any) -> Buffer:
    """The contents of an array, in its memory where that can be."""
    if isinstance(array, Buffer):
        return array
    if isinstance(array, jax.Array):
        return Buffer.from_jax(array)
    if isinstance(array, np.ndarray | np.generic):
        return Buffer.from_numpy(np.asarray(array))
    return Buffer.from_dlpack(array)


def numbers(data: Any, dtype: DType) -> np.ndarray:
    """A number, or nested lists of numbers, as an array.

    Raises:
        TypeError: If they are no numbers.
        ValueError: If lists of one depth have different lengths, or a number cannot be an element.
    """
    try:
        array = np.asarray(data)
    except (ValueError, OverflowError) as e:
        raise ValueError(f"no tensor: {e}") from None
    if array.dtype == object and all(isinstance(v, int) for v in array.flat):
        raise ValueError(f"a number in {data!r:.60} is beyond the 64-bit range")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"expected numbers, nested lists of them or an array, got {data!r:.60}")
    if dtype.is_integral():
        _check_integers(array, dtype)
    if array.dtype.kind in "iu" and dtype.is_float():
        array = array.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(dtype.np)


def _check_integers(array: np.ndarray, dtype: DType) -> None:
    if array.dtype.kind == "f" and not np.all(np.mod(array, 1) == 0):
        bad = array.flat[int(np.argmax(np.mod(array, 1).reshape(-1) != 0))]
        raise ValueError(f"{bad} cannot be an element of {dtype.name}; give a float dtype")
    if not array.size:
        return
    limits = np.iinfo(dtype.np)
    for value in (array.min(), array.max()):
        if not limits.min <= int(value) <= limits.max:
            raise ValueError(f"{value} is out of the range of {dtype.name}")
