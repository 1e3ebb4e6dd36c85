# SPDX-License-Identifier: Apache-2.0
"""How a slice or a reinterpretation of a Buffer lies in the Buffer's memory.

A view is a recipe: it can be taken of NumPy memory, where it shares the memory, and of a
``jax.Array``, where writing gives a new array to put in the old one's place.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from maxjax.dtype import DType

__all__ = ["Layout", "Recast", "Window", "parse_index", "parse_shape"]

ArrayT = TypeVar("ArrayT")


class Layout(NamedTuple):
    """Sizes, and how many elements of memory lie between neighbours along each axis."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def packed(cls, shape: tuple[int, ...]) -> "Layout":
        """Row after row without gaps."""
        strides, step = [], 1
        for size in reversed(shape):
            strides.append(step)
            step *= size
        return cls(shape, tuple(reversed(strides)))

    @classmethod
    def of(cls, array: np.ndarray) -> "Layout":
        """The layout of an array."""
        return cls(array.shape, tuple(s // array.itemsize for s in array.strides))

    def is_contiguous(self) -> bool:
        """Whether the elements lie row after row without gaps."""
        if 0 in self.shape:
            return True
        expected = Layout.packed(self.shape).strides
        steps = zip(self.shape, self.strides, expected, strict=True)
        return all(size == 1 or step == want for size, step, want in steps)


class Window(NamedTuple):
    """The elements at an index: an int or a slice per axis."""

    index: tuple[int | slice, ...]

    def layout(self, base: Layout) -> Layout:
        """The layout of the elements, given that of the whole."""
        shape, strides = [], []
        for i, size, step in zip(self.index, base.shape, base.strides, strict=True):
            if isinstance(i, slice):
                picked = range(*i.indices(size))
                shape.append(len(picked))
                strides.append(step * picked.step)
        return Layout(tuple(shape), tuple(strides))

    def take(self, array: Any) -> Any:
        """The elements, in the memory of ``array`` where that is NumPy's."""
        return array[(*self.index, ...)]

    def put(self, array: Any, new: Any) -> Any:
        """A ``jax.Array`` like ``array`` with other elements at the index."""
        return array.at[self.index].set(new)


class Recast(NamedTuple):
    """The same bytes as elements of another type, in another shape."""

    dtype: DType
    shape: tuple[int, ...]

    @classmethod
    def plan(
        cls, base: Layout, old: DType, new: DType, shape: tuple[int, ...] | None
    ) -> tuple["Recast", Layout]:
        """The view and its layout.

        Raises:
            ValueError: If the bytes do not fit, or the elements do not lie where the view needs
                them.
        """
        if new is not old and new.size_in_bits < 8 * new.size_in_bytes:
            # Packed data would look like this, and every second number would be lost.
            raise ValueError(
                f"cannot view {old!r} as {new!r}: each {new!r} has a byte of its own here, two "
                "are not packed into one"
            )
        a, b = old.size_in_bytes, new.size_in_bytes
        natural = _rescaled(base.shape, a, b)
        wanted = natural if shape is None else shape
        if wanted is None or math.prod(wanted) * b != math.prod(base.shape) * a:
            as_shape = "" if shape is None else f" with shape {list(shape)}"
            raise ValueError(
                f"cannot view {old!r}{list(base.shape)} as {new!r}{as_shape}: "
                f"{math.prod(base.shape) * a} bytes do not divide into that"
            )
        if base.is_contiguous():
            return cls(new, wanted), Layout.packed(wanted)
        rows = base.strides[:-1]
        packed = a == b or (base.strides[-1] == 1 and all(s * a % b == 0 for s in rows))
        if wanted != natural or not packed:
            raise ValueError(
                f"cannot view a slice with shape {list(base.shape)} and strides "
                f"{list(base.strides)} as {new!r}{list(wanted)}, since its elements are not "
                "adjacent; call contiguous() first"
            )
        strides = base.strides if a == b else (*(s * a // b for s in rows), 1)
        return cls(new, wanted), Layout(wanted, strides)

    def take(self, array: Any) -> Any:
        """The elements, in the memory of ``array`` where that is NumPy's."""
        if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
            return array.view(self.dtype.np)
        return array.reshape(-1).view(self.dtype.np).reshape(self.shape)

    def put(self, array: Any, new: Any) -> Any:
        """A ``jax.Array`` like ``array`` with the bytes of ``new``."""
        return new.reshape(-1).view(array.dtype).reshape(array.shape)


def _rescaled(shape: tuple[int, ...], old: int, new: int) -> tuple[int, ...] | None:
    """The shape once the last axis is counted in elements of another size; None if it cannot."""
    if old == new:
        return shape
    if not shape or shape[-1] * old % new:
        return None
    return (*shape[:-1], shape[-1] * old // new)


# ---------------------------------------------------------------- arguments


def parse_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of ints.

    Raises:
        TypeError: If it is no sequence of ints.
        ValueError: If a size is negative.
    """
    if not isinstance(shape, Sequence | np.ndarray) or isinstance(shape, str | bytes):
        raise TypeError(
            f"a shape is a list or tuple of ints, such as [2, 3], not "
            f"{type(shape).__name__} {shape!r}"
        )
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise TypeError(f"the sizes of a shape are ints, got {list(shape)}") from None
    if min(sizes, default=0) < 0:
        raise ValueError(f"the sizes of a shape are 0 or more, got {list(sizes)}")
    return sizes


def parse_index(index: Any, shape: tuple[int, ...]) -> tuple[int | slice, ...]:
    """An index that names every axis, with ints counted from the front.

    Raises:
        TypeError: If a part is neither an int nor a slice.
        ValueError: If there is not one part per axis, or a slice has the step 0.
        IndexError: If an int is out of range.
    """
    parts: list[Any]
    if isinstance(index, tuple | list | range):
        parts = list(index)
    elif isinstance(index, np.ndarray) and index.ndim == 1:
        parts = index.tolist()
    else:
        parts = [index]
    for part in parts:
        if not isinstance(part, slice) and not hasattr(part, "__index__"):
            raise TypeError(
                f"a Buffer is indexed by ints and slices, not {type(part).__name__} {part!r}"
            )
    if len(parts) != len(shape):
        raise ValueError(
            f"a Buffer of rank {len(shape)} takes {len(shape)} indices, got {len(parts)}; "
            "write : for a whole axis"
        )
    return tuple(
        _slice(part) if isinstance(part, slice) else _position(part, size, axis)
        for axis, (part, size) in enumerate(zip(parts, shape, strict=True))
    )


def _slice(part: slice) -> slice:
    if part.step is not None and operator.index(part.step) == 0:
        raise ValueError("a slice with step 0 has no elements to go through; use a step of 1 or -1")
    return part


def _position(part: Any, size: int, axis: int) -> int:
    at = operator.index(part)
    if not -size <= at < size:
        raise IndexError(f"index {at} is out of range for axis {axis} with size {size}")
    return at + size if at < 0 else at
