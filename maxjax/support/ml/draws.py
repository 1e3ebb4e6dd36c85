# SPDX-License-Identifier: Apache-2.0
"""Random elements as a function of a seed and a position, the same from NumPy and from JAX.

Element ``i`` comes from word ``i`` of a generator that counts (SplitMix64: Steele, Lea and Flood,
"Fast splittable pseudorandom number generators", OOPSLA 2014). So parts can be made in any order,
on any device, and a buffer on the host and an array on an accelerator get the same numbers.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any

import ml_dtypes
import numpy as np

from maxjax.support.ml.dtype import DType

__all__ = ["Draw", "key_of", "plan"]

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def key_of(seed: int) -> int:
    """What a seed contributes: seeds next to each other give words that have nothing in common.

    Raises:
        TypeError: ``seed`` is no integer.

    >>> key_of(0) == key_of(1)
    False
    """
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError(f"a seed is an integer, not {seed!r}")
    z = operator.index(seed) + _GOLDEN & _MASK
    z = (z ^ z >> 30) * _MIX_1 & _MASK
    z = (z ^ z >> 27) * _MIX_2 & _MASK
    return z ^ z >> 31


@dataclasses.dataclass(frozen=True)
class Draw:
    """How a word of 64 random bits becomes an element.

    Attributes:
        dtype: The type of what is drawn; the parts of complex numbers are drawn one by one.
        kind: ``"bool"``, ``"int"`` or ``"float"``.
        low: The lowest number.
        high: The highest that is drawn; for a float, what all stay below.
        limits: For a float, the lowest and the highest number of the type in that range.
        threshold: For a bool, how many of 2**53 are true.
    """

    dtype: DType
    kind: str
    low: Any = 0
    high: Any = 0
    limits: tuple[float, float] = (0.0, 0.0)
    threshold: int = 0

    def __call__(self, key: Any, index: Any) -> Any:
        """The elements at some positions.

        Args:
            key: `key_of` the seed, as a ``uint64``.
            index: Positions, as a NumPy or JAX array of ``uint64``; it decides which of the two
                computes.

        Returns:
            An array of the shape of ``index``: ``uint8`` for a bool, the low 64 bits as
            ``uint64`` for integers that are wider, else the NumPy dtype of the type.
        """
        word = _mixed(key, index)
        if self.kind == "bool":
            return (_shifted(word, 11) < np.uint64(self.threshold)).astype(np.uint8)
        if self.kind == "int":
            return self._int(word)
        return self._float(word)

    def _int(self, word: Any) -> Any:
        span = self.high - self.low + 1
        if span <= 2**32:
            word = _shifted(_shifted(word, 32) * np.uint64(span), 32)
        elif span < 2**64:
            word = _high_product(word, span)
        word = word + np.uint64(self.low & _MASK)
        return word if self.dtype.width > 64 else word.astype(self.dtype.np)

    def _float(self, word: Any) -> Any:
        double = self.dtype.width > 32
        real, bits = (np.float64, 53) if double else (np.float32, 24)
        # Exact: an integer of as many bits as the significand has, times a power of two.
        unit = _shifted(word, 64 - bits).astype(real) * real(2.0**-bits)
        # This way round nothing overflows, whatever the bounds.
        value = (real(1) - unit) * real(self.low) + unit * real(self.high)
        # Rounding to the type may reach the upper bound, which is none of the numbers.
        value = value.clip(real(self.limits[0]), real(self.limits[1]))
        return value.astype(self.dtype.np)


def _shifted(word: Any, bits: int) -> Any:
    return word >> np.uint64(bits)


def _mixed(key: Any, index: Any) -> Any:
    """Word after word of the generator."""
    z = key + (index + np.uint64(1)) * np.uint64(_GOLDEN)
    z = (z ^ _shifted(z, 30)) * np.uint64(_MIX_1)
    z = (z ^ _shifted(z, 27)) * np.uint64(_MIX_2)
    return z ^ _shifted(z, 31)


def _high_product(word: Any, factor: int) -> Any:
    """The upper 64 bits of a product of 128."""
    half = np.uint64(2**32 - 1)
    low, high = np.uint64(factor & 2**32 - 1), np.uint64(factor >> 32)
    word_low, word_high = word & half, _shifted(word, 32)
    middle = word_high * low + _shifted(word_low * low, 32)
    other = word_low * high + (middle & half)
    return word_high * high + _shifted(middle, 32) + _shifted(other, 32)


def plan(
    dtype: DType, low: float | None = None, high: float | None = None, probability: float = 0.5
) -> Draw:
    """How elements of a type are drawn.

    Args:
        dtype: The type; for a complex one, both parts are drawn alike.
        low: The lowest number: by default -10 for signed integers, 0 for unsigned ones, -1 for
            floats (0 for ``f8e8m0fnu``, which has no negative numbers).
        high: The highest integer, by default 10; what all floats are below, by default 1.
        probability: How often a bool is true.

    Raises:
        TypeError: A bound is no number, or the type is not one of numbers.
        ValueError: A bound is beyond the type, there is no number between them, or the
            probability is not from 0 to 1.

    >>> plan(DType.ui8).low, plan(DType.ui8).high, plan(DType.f16).limits
    (0, 10, (-1.0, 0.99951171875))
    """
    if dtype.is_complex():
        dtype = dtype.complex_element
    if dtype.is_bool():
        if low is not None or high is not None:
            raise ValueError("a bool has no bounds; say how often it is true: probability=0.5")
        if not 0 <= probability <= 1:
            raise ValueError(f"a probability is from 0 to 1, not {probability}")
        return Draw(dtype, "bool", threshold=round(probability * 2**53))
    if dtype.width < 8 or not (dtype.is_integer() or dtype.is_float()):
        raise TypeError(f"random elements are bools, integers or floats of a byte or more; {dtype}")
    if dtype.is_integer():
        return _plan_int(dtype, low, high)
    return _plan_float(dtype, low, high)


def _plan_int(dtype: DType, low: Any, high: Any) -> Draw:
    signed = dtype.is_signed_integer()
    low = (-10 if signed else 0) if low is None else low
    high = 10 if high is None else high
    for bound in (low, high):
        if isinstance(bound, bool) or not hasattr(bound, "__index__"):
            raise TypeError(f"the bounds of {dtype.name} are integers, not {bound!r}")
    low, high = operator.index(low), operator.index(high)
    # Wider types are drawn within 64 bits too.
    width = min(dtype.width, 64)
    least, most = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
    if not least <= low <= high <= most:
        raise ValueError(
            f"the bounds of random {dtype.name} are from {least} to {most}, the lower one first; "
            f"not {low} and {high}"
        )
    return Draw(dtype, "int", low, high)


def _plan_float(dtype: DType, low: Any, high: Any) -> Draw:
    info = ml_dtypes.finfo(dtype.np)
    signed = float(info.min) < 0
    most = float(info.max)
    least = -most if signed else 0.0
    given_low, given_high = low, high
    try:
        low = float((-1.0 if signed else 0.0) if low is None else low)
        high = float(1.0 if high is None else high)
    except (TypeError, ValueError):
        raise TypeError(
            f"the bounds of {dtype.name} are numbers, not {given_low!r} and {given_high!r}"
        ) from None
    if not (least <= low < high <= most):
        raise ValueError(
            f"the bounds of random {dtype.name} are from {least} to {most}, the lower one first; "
            f"not {low} and {high}"
        )
    limits = _within(dtype.np, low, high)
    if limits is None:
        raise ValueError(f"there is no {dtype.name} from {low} to below {high}")
    return Draw(dtype, "float", low, high, limits)


def _within(dtype: np.dtype[Any], low: float, high: float) -> tuple[float, float] | None:
    """The lowest and the highest number of a type in ``[low, high)``."""
    if dtype.itemsize <= 2:
        coded = np.arange(2 ** (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}").view(dtype)
        with np.errstate(invalid="ignore"):  # NaNs among them, which fall out below
            values = coded.astype(np.float64)
        inside = values[(values >= low) & (values < high)]
        return (float(inside.min()), float(inside.max())) if inside.size else None
    first, last = dtype.type(low), dtype.type(high)
    if float(first) < low:
        first = np.nextafter(first, dtype.type(math.inf))
    if float(last) >= high:
        last = np.nextafter(last, dtype.type(-math.inf))
    return (float(first), float(last)) if first <= last else None
