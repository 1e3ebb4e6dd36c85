# SPDX-License-Identifier: Apache-2.0
"""Element types: `DType`, its conversions to and from NumPy and JAX, and `finfo`."""

from __future__ import annotations

import builtins
import enum
from typing import Any, Self

import ml_dtypes
import numpy

__all__ = ["DType", "finfo"]

_READ_ONLY = frozenset({"align", "np", "short", "size_in_bits", "size_in_bytes"})


class finfo:
    """Limits of a floating-point `DType`, like `numpy.finfo`.

    Attributes:
        dtype: The element type described.
        bits: Its width in bits.
        eps: The distance from 1.0 to the next larger number.
        max: The largest finite number.
        min: The smallest finite number (the most negative one, where the type is signed).
        tiny: The smallest positive normal number.

    Raises:
        TypeError: ``dtype`` is not a floating-point `DType`.

    >>> finfo(DType.bfloat16).max
    3.3895313892515355e+38
    """

    __slots__ = ("bits", "dtype", "eps", "max", "min", "tiny")

    def __init__(self, dtype: DType) -> None:
        if not isinstance(dtype, DType) or not dtype.is_float():
            raise TypeError(
                f"finfo describes floating-point dtypes, got {dtype!r}; "
                "for the range of an integer dtype use numpy.iinfo(dtype.np)"
            )
        info = ml_dtypes.finfo(dtype.np)
        self.dtype = dtype
        self.bits = int(info.bits)
        self.eps = float(info.eps)
        self.max = float(info.max)
        self.min = float(info.min)
        self.tiny = float(info.tiny)

    @property
    def smallest_normal(self) -> float:
        """The smallest positive normal number; the same as `tiny`."""
        return self.tiny

    def __repr__(self) -> str:
        return (
            f"finfo(dtype={self.dtype!r}, bits={self.bits}, eps={self.eps}, "
            f"max={self.max}, min={self.min}, tiny={self.tiny})"
        )


class DType(enum.Enum):
    """The element type of a tensor.

    A member's value is the byte that stands for it in serialized graphs. Looking a member
    up by that value, or by its MLIR name as a string, gives the member itself.

    >>> DType.float32.value, DType.float32.size_in_bytes, DType.float32.short
    (81, 4, 'f32')
    >>> DType(81), DType("si64"), DType["bool"]
    (float32, int64, bool)
    >>> DType.of(DType.bfloat16.np)
    bfloat16
    """

    bool = 1, "bool", "bool"
    int8 = 135, "int8", "si8"
    int16 = 137, "int16", "si16"
    int32 = 139, "int32", "si32"
    int64 = 141, "int64", "si64"
    uint8 = 134, "uint8", "ui8"
    uint16 = 136, "uint16", "ui16"
    uint32 = 138, "uint32", "ui32"
    uint64 = 140, "uint64", "ui64"
    float16 = 79, "float16", "f16"
    float32 = 81, "float32", "f32"
    float64 = 82, "float64", "f64"
    bfloat16 = 80, ml_dtypes.bfloat16, "bf16"
    float4_e2m1fn = 64, ml_dtypes.float4_e2m1fn, "f4e2m1fn"
    float6_e2m3fn = 65, ml_dtypes.float6_e2m3fn, "f6e2m3fn"
    float6_e3m2fn = 66, ml_dtypes.float6_e3m2fn, "f6e3m2fn"
    float8_e8m0fnu = 73, ml_dtypes.float8_e8m0fnu, "f8e8m0fnu"
    float8_e4m3fn = 75, ml_dtypes.float8_e4m3fn, "f8e4m3fn"
    float8_e4m3fnuz = 76, ml_dtypes.float8_e4m3fnuz, "f8e4m3fnuz"
    float8_e5m2 = 77, ml_dtypes.float8_e5m2, "f8e5m2"
    float8_e5m2fnuz = 78, ml_dtypes.float8_e5m2fnuz, "f8e5m2fnuz"

    finfo = enum.nonmember(finfo)

    np: numpy.dtype[Any]
    """The NumPy dtype (one of `ml_dtypes` beyond NumPy's own): what JAX computes with."""
    short: str
    """The MLIR name: ``f32``, ``si64``, ``bf16``, ``bool``."""
    size_in_bits: int
    """The width of the numbers: 4 for ``float4_e2m1fn``, 8 for ``bool``."""
    size_in_bytes: int
    """The size of one element in memory; sub-byte types take a whole byte."""
    align: int
    """The alignment of one element in memory, in bytes."""
    _integral: builtins.bool
    _signed: builtins.bool
    _float: builtins.bool

    def __new__(cls, value: int, np_type: Any, short: str) -> Self:
        """Makes a member; only the class body calls it."""
        self = object.__new__(cls)
        self._value_ = value
        np_dtype = numpy.dtype(np_type)
        size = np_dtype.itemsize
        integral = short.startswith(("si", "ui"))
        floating = not integral and short != "bool"
        # Plain instance attributes, filled once: graph building reads them all the time.
        self.np = np_dtype
        self.short = short
        self.size_in_bits = ml_dtypes.finfo(np_dtype).bits if floating else 8 * size
        self.size_in_bytes = size
        self.align = size
        self._integral = integral
        self._signed = short.startswith("si")
        self._float = floating
        return self

    def __setattr__(self, name: str, value: object) -> None:
        if name in _READ_ONLY and name in self.__dict__:
            raise AttributeError(f"DType.{self._name_}.{name} is read-only")
        super().__setattr__(name, value)

    # Members are singletons compared by identity; Enum's own hash is a slow Python function.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return self._name_

    @classmethod
    def _missing_(cls, value: object) -> DType:
        if isinstance(value, str):
            # MLIR has no bool, so here alone its name is that of the one-bit integer.
            if value == "i1":
                return cls.bool
            if value != "bool":
                return cls.from_short(value)
            raise KeyError(_no_short(value))
        known = ", ".join(f"{d._value_}={d!r}" for d in cls)
        raise ValueError(f"no DType has the value {value!r}; the values are {known}")

    def is_integral(self) -> builtins.bool:
        """Whether this is a signed or unsigned integer type; ``bool`` is not."""
        return self._integral

    def is_signed_integral(self) -> builtins.bool:
        """Whether this is one of ``int8`` to ``int64``."""
        return self._signed

    def is_unsigned_integral(self) -> builtins.bool:
        """Whether this is one of ``uint8`` to ``uint64``."""
        return self._integral and not self._signed

    def is_float(self) -> builtins.bool:
        """Whether this is a floating-point type of any width."""
        return self._float

    def is_float8(self) -> builtins.bool:
        """Whether this is one of the 8-bit floating-point types."""
        return self._float and self.size_in_bits == 8

    def is_half(self) -> builtins.bool:
        """Whether this is ``float16`` or ``bfloat16``."""
        return self._float and self.size_in_bits == 16

    def to_numpy(self) -> numpy.dtype[Any]:
        """The dtype of an array of NumPy's own types that holds these elements.

        The 8-bit floats are given as ``uint8``, their bytes. `np` is the exact dtype.

        Raises:
            ValueError: NumPy itself has no such type (``bfloat16`` and the 4- and 6-bit floats).

        >>> DType.float64.to_numpy()
        dtype('float64')
        >>> DType.float8_e5m2.to_numpy()
        dtype('uint8')
        """
        if self.is_float8():
            return _UINT8
        if self.is_float() and self.np.type.__module__ != "numpy":
            raise ValueError(
                f"NumPy itself has no {self._name_}; "
                f"DType.{self._name_}.np is the dtype that ml_dtypes gives it"
            )
        return self.np

    @classmethod
    def from_numpy(cls, dtype: numpy.dtype[Any] | type[numpy.generic]) -> DType:
        """The `DType` of a NumPy or `ml_dtypes` dtype or scalar type.

        Raises:
            ValueError: Nothing corresponds to ``dtype``: complex, strings, dates, a byte order
                other than the machine's, or not a NumPy dtype at all.

        >>> import numpy as np
        >>> DType.from_numpy(np.dtype("int16")), DType.from_numpy(np.uint8)
        (int16, uint8)
        """
        found = None
        if isinstance(dtype, numpy.dtype):
            if dtype.isnative:
                found = _BY_TYPE.get(dtype.type)
        elif isinstance(dtype, type):
            found = _BY_TYPE.get(dtype)
        if found is None:
            raise ValueError(_no_dtype(dtype))
        return found

    @classmethod
    def of(cls, x: Any) -> DType:
        """The `DType` of a NumPy, `ml_dtypes` or JAX dtype, scalar type or array.

        Args:
            x: A `DType` (given back), a dtype, a scalar type such as ``numpy.float32`` or
                ``jax.numpy.bfloat16``, or anything with a ``dtype`` of these.

        Raises:
            ValueError: Nothing corresponds to it. Python's ``int`` and ``float`` are refused:
                they do not say a width.

        >>> import jax.numpy as jnp
        >>> DType.of(jnp.bfloat16), DType.of(jnp.dtype("int32"))
        (bfloat16, int32)
        """
        if not isinstance(x, numpy.dtype):
            if isinstance(x, cls):
                return x
            inner = getattr(x, "dtype", None)
            if isinstance(inner, (cls, numpy.dtype)):
                return cls.of(inner)
        return cls.from_numpy(x)

    @classmethod
    def from_short(cls, short: str) -> DType:
        """The `DType` of that MLIR name, the inverse of `short`.

        Raises:
            KeyError: No `DType` has that name.

        >>> DType.from_short("bf16")
        bfloat16
        """
        found = _BY_SHORT.get(short)
        if found is None:
            raise KeyError(_no_short(short))
        return found


_UINT8 = numpy.dtype("uint8")
_BY_SHORT = {d.short: d for d in DType}
# By scalar type, because numpy.dtype hashes slowly. NumPy's C names are types of their own.
_BY_TYPE = {d.np.type: d for d in DType}
_BY_TYPE |= {
    c_type: DType[numpy.dtype(c_type).name]
    for c_type in (numpy.intc, numpy.uintc, numpy.longlong, numpy.ulonglong)
}


def _no_short(short: str) -> str:
    """What to say about a string that is no MLIR name."""
    hint = f"; write DType[{short!r}]" if short in DType.__members__ else ""
    return f"no DType has the MLIR name {short!r}, such as 'f32' or 'si64'{hint}"


def _no_dtype(dtype: object) -> str:
    """What to say about something that has no `DType`."""
    if isinstance(dtype, numpy.dtype):
        native = dtype.newbyteorder("=")
        if not dtype.isnative and native.type in _BY_TYPE:
            return (
                f"{dtype.str} has the other byte order, and tensors have this machine's; "
                f"convert the array first: array.astype({native.name!r})"
            )
    elif not (isinstance(dtype, type) and issubclass(dtype, numpy.generic)):
        return f"expected a NumPy dtype or scalar type, such as numpy.float32, got {dtype!r}"
    names = ", ".join(d._name_ for d in DType)
    return f"no DType corresponds to the NumPy dtype {dtype!s}; there are {names}"
