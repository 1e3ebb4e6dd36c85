# SPDX-License-Identifier: Apache-2.0
"""What callers give a model, as arrays for the compiled program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.graph.type import BufferType, Type

__all__ = ["Input", "unaliased"]


class Input:
    """One input of a model: what is accepted, and how it becomes an array."""

    __slots__ = ("dtype", "is_buffer", "name", "np", "type")

    def __init__(self, name: str, type_: Type) -> None:
        self.name = name
        self.type = type_
        self.dtype: DType = type_.dtype
        self.np = type_.dtype.np
        self.is_buffer = isinstance(type_, BufferType)

    def array(self, value: Any) -> Any:
        """A caller's value as an array for the compiled program.

        A program may read NumPy memory after its call has returned, so it gets a copy.

        Raises:
            ValueError: If it is no array, or its dtype is another.
        """
        if isinstance(value, Buffer):
            if value.dtype is not self.dtype:
                raise self._refused(value.dtype.short, value.shape)
            return value._array()
        # NumPy's class is asked first: asking jax.Array of what it is not takes microseconds.
        if not isinstance(value, (np.ndarray, jax.Array)):
            value = self._converted(value)
        if not isinstance(value, np.ndarray):
            if value.dtype == self.np:
                return value
        elif value.dtype == self.np:
            return np.array(value, order="C")
        elif value.dtype.newbyteorder("=") == self.np:
            return value.astype(self.np)
        raise self._refused(str(value.dtype), value.shape)

    def buffer(self, value: Any) -> Buffer:
        """A caller's value for an input that is changed in place.

        Raises:
            ValueError: If it is no buffer, or its dtype is another.
        """
        if not isinstance(value, Buffer):
            raise ValueError(
                f"{self.name} is changed in place, so it must be a Buffer, got "
                f"{type(value).__name__}; use Buffer.from_numpy(array)"
            )
        if value.dtype is not self.dtype:
            raise self._refused(value.dtype.short, value.shape)
        return value

    def _converted(self, value: Any) -> Any:
        if isinstance(value, float) and not isinstance(value, np.generic):
            return np.asarray(value, np.float32)
        if isinstance(value, (int, bool, np.generic)):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        raise ValueError(f"{self.name} must be a Buffer or an array, got {type(value).__name__}")

    def _refused(self, dtype: str, shape: Iterable[int]) -> ValueError:
        return ValueError(f"{self.name} is {dtype}{list(shape)}, expected {self.type.brief()}")


def unaliased(states: list[Any], others: list[Any]) -> list[Any]:
    """Donated arrays that are given only once: a second mention is a copy."""
    seen = {id(a) for a in others}
    result = []
    for array in states:
        result.append(array.copy() if id(array) in seen else array)
        seen.add(id(array))
    return result
