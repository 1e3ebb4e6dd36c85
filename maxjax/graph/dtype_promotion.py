# SPDX-License-Identifier: Apache-2.0
"""Which element type an operation on two operands has: `promote` and `weak_dtype`.

A graph value is *strong*: its dtype was chosen. A Python number or an array from outside the
graph is *weak*: it takes the dtype of the strong value beside it, if that holds its values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maxjax.dtype import DType, finfo

__all__ = ["promote", "weak_dtype"]


def promote(a: DType, b: DType) -> DType:
    """The dtype of an operation on values of dtypes ``a`` and ``b``.

    It is always one of the two: the one that holds every value of the other. ``bool`` goes into
    everything, as 0 and 1, an integer into a float that represents all of its range exactly, and
    the floats of 4 to 8 bits into the wider ones.

    Raises:
        ValueError: Neither holds every value of the other (``int32`` and ``float32``, ``uint8``
            and ``int8``, ``float16`` and ``bfloat16``, two different floats of 4 to 8 bits).

    >>> promote(DType.uint8, DType.bfloat16)
    bfloat16
    >>> promote(DType.int32, DType.float32)
    Traceback (most recent call last):
    ValueError: neither of int32 and float32 holds every value of the other; cast one first, \
such as x.cast(DType.float32)
    """
    if a is b:
        return a
    found = _PROMOTED.get((a, b))
    if found is None:
        raise ValueError(
            f"neither of {a!r} and {b!r} holds every value of the other; "
            f"cast one first, such as x.cast(DType.{_suggestion(a, b)!r})"
        )
    return found


def weak_dtype(value: Any, strong: DType) -> DType:
    """The dtype that an operand from outside the graph takes beside a value of dtype ``strong``.

    Args:
        value: A Python or NumPy number, or an array that NumPy or DLPack can read.
        strong: The dtype of the graph value beside it.

    Returns:
        ``strong``; weak operands have no dtype of their own.

    Raises:
        ValueError: ``strong`` does not hold the value: an integer outside its exact range (each
            one of an array's is looked at), or a float beside an integer or ``bool`` dtype.
        TypeError: ``value`` is no operand: a `numpy.bool_`, a complex number, a string, a list.

    >>> weak_dtype(200, DType.uint8)
    uint8
    >>> weak_dtype(200, DType.int8)
    Traceback (most recent call last):
    ValueError: 200 does not fit int8, which holds the integers from -128 to 127; \
cast the other operand to a wider dtype first
    """
    kind = type(value)
    if kind is int:
        lo, hi = _INT_RANGE[strong]
        if lo <= value <= hi:
            return strong
        raise ValueError(_does_not_fit(value, strong))
    if kind is float:
        if strong.is_float():
            return strong
        raise ValueError(_no_float(f"the float {value!r}", strong))
    if kind is bool:
        return strong
    # Subclasses (an IntEnum, numpy.float64) and NumPy's scalars are numbers like Python's.
    if isinstance(value, (int, np.integer)):
        return weak_dtype(int(value), strong)
    if isinstance(value, (float, np.floating)):
        return weak_dtype(float(value), strong)
    if isinstance(value, (np.bool_, complex, np.complexfloating)):
        raise TypeError(_no_operand(value))
    return _weak_array(value, strong)


def _weak_array(array: Any, strong: DType) -> DType:
    """`weak_dtype` of an array."""
    dtype = _array_dtype(array)
    if dtype is DType.bool:
        return strong
    if dtype.is_float():
        if strong.is_float():
            return strong
        raise ValueError(_no_float(f"an array of {dtype!r}", strong))
    if _PROMOTED.get((dtype, strong)) is strong:
        return strong
    values = _read(array)
    if values.size:
        lo, hi = _INT_RANGE[strong]
        for v in (int(values.min()), int(values.max())):
            if not lo <= v <= hi:
                raise ValueError(_does_not_fit(v, strong, f" of the array of {dtype!r}"))
    return strong


def _array_dtype(array: Any) -> DType:
    """The dtype of an array that NumPy or DLPack can read; TypeError for anything else."""
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, DType):
        return dtype
    if dtype is None and hasattr(array, "__dlpack__"):
        dtype = np.from_dlpack(array).dtype
    if not isinstance(dtype, np.dtype):
        raise TypeError(_no_operand(array))
    if dtype.kind in "biufV":
        try:
            return DType.of(dtype)
        except ValueError:
            # An array in the other byte order is an operand after one conversion: say which.
            if not dtype.isnative:
                raise
    raise TypeError(_no_operand(array))


def _read(array: Any) -> np.ndarray[Any, Any]:
    """The values of an integer array, wherever it lives."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "to_numpy"):
        return array.to_numpy()
    if hasattr(array, "__array__"):
        return np.asarray(array)
    return np.from_dlpack(array)


def _int_range(d: DType) -> tuple[int, int]:
    """The integers a weak operand may have beside a value of dtype ``d``."""
    if d is DType.bool:
        return 0, 1
    if d.is_integral():
        info = np.iinfo(d.np)
        return int(info.min), int(info.max)
    info = finfo(d)
    if d.size_in_bits > 8:
        # The largest n such that every integer up to n is exact.
        exact = int(2 / info.eps)
        return -exact, exact
    if d is DType.float8_e5m2:
        # Beyond its largest number, as far as the reference is known to accept.
        return -(2**16), 2**16
    return math.ceil(info.min), int(info.max)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of ``narrow`` is one of ``wide``, two different dtypes."""
    if narrow is DType.bool:
        return True
    if wide is DType.bool or (wide.is_float() and wide.size_in_bits <= 8):
        return False
    if narrow.is_integral():
        (lo, hi), (least, most) = _INT_RANGE[narrow], _INT_RANGE[wide]
        return least <= lo and hi <= most
    if not wide.is_float():
        return False
    if narrow.size_in_bits <= 8:
        # float8_e8m0fnu beside float16 too, as in the reference, although it reaches 2**127.
        return True
    a, b = finfo(narrow), finfo(wide)
    return b.eps <= a.eps and b.max >= a.max


_INT_RANGE = {d: _int_range(d) for d in DType}
# Both orders of every pair of different dtypes that has an answer.
_PROMOTED = {
    pair: wide
    for wide in DType
    for narrow in DType
    if wide is not narrow and _holds(wide, narrow)
    for pair in ((wide, narrow), (narrow, wide))
}


def _suggestion(a: DType, b: DType) -> DType:
    """The likelier target of the cast that makes ``a`` and ``b`` one dtype."""
    return max(a, b, key=lambda d: (d.is_float(), d.size_in_bits, d.is_signed_integral()))


def _does_not_fit(value: int, strong: DType, where: str = "") -> str:
    """The message for an integer outside the range of ``strong``."""
    lo, hi = _INT_RANGE[strong]
    integers = "exactly only the integers" if strong.is_float() else "the integers"
    return (
        f"{value}{where} does not fit {strong!r}, which holds {integers} from {lo} to {hi}; "
        "cast the other operand to a wider dtype first"
    )


def _no_float(what: str, strong: DType) -> str:
    """The message for floats beside a dtype without fractions."""
    return (
        f"{what} beside a value of {strong!r} would lose its fraction; "
        "cast the value to a float dtype first, such as x.cast(DType.float32)"
    )


def _no_operand(value: object) -> str:
    """The message for what can't stand beside a graph value."""
    if isinstance(value, np.bool_):
        return f"numpy.bool_ is not an operand; give bool(value), here {bool(value)}"
    dtype = getattr(value, "dtype", None)
    kind = type(value).__name__ if dtype is None else f"{type(value).__name__} of {dtype}"
    return (
        "expected a graph value, a Python or NumPy number that is not complex, "
        f"or an array of such numbers, got {kind}"
    )
