# SPDX-License-Identifier: Apache-2.0
"""``DType``: an element type in one byte, open for the types of others."""

from __future__ import annotations

import operator
from typing import Any, ClassVar, NoReturn, Self, SupportsIndex

import numpy as np

from maxjax import dtype as _dtype
from maxjax.support.ml.codes import (
    BOOL,
    FIRST_EXTENDED,
    INT_WIDTH_SHIFT,
    IS_COMPLEX,
    IS_FLOAT,
    IS_INTEGER,
    IS_SIGNED,
    LAST_EXTENDED,
    MAX_INT_WIDTH_LOG2,
    NAMES,
    NUMPY,
    WIDTHS,
)

__all__ = ["DType", "extended"]

_CLASS = IS_INTEGER | IS_FLOAT | IS_COMPLEX
_LARGEST = 2**63 - 1
_BY_NUMPY = {dtype: code for code, dtype in NUMPY.items()}


class _Extension:
    """A type of a subclass of `DType`, until the class is made."""

    __slots__ = ("name", "offset", "width")

    def __init__(self, offset: int, name: str, width: int) -> None:
        self.offset, self.name, self.width = offset, name, width


def extended(offset: int, name: str, width: int = -1) -> Any:
    """Declares an element type of one's own, in the body of a subclass of `DType`.

    Args:
        offset: Its number: the code is ``DType.kFirstExtendedOption + offset``.
        name: What it prints as: a letter, then letters, digits and ``_``.
        width: The bits of an element in memory; -1 where there is no such thing.

    Returns:
        What becomes the member, once the class is made.

    Raises:
        ValueError: The number is beyond the codes that are free, the name is none, or the width
            is neither -1 nor from 1 to 256.

    >>> class MyDType(DType):
    ...     kString = extended(0, "string")
    ...     kF80 = extended(1, "f80", width=80)
    >>> MyDType.kString, MyDType.kF80.size_in_bytes(3), MyDType.parse("complex_f80").width
    (MyDType.string, 30, 160)
    """
    last = LAST_EXTENDED - FIRST_EXTENDED
    if not 0 <= offset <= last:
        raise ValueError(f"an extended type has a number from 0 to {last}, not {offset}")
    if not (name.isascii() and name.isidentifier()) or name[0] == "_":
        raise ValueError(f"{name!r} is not the name of a type: a letter, then letters, digits, _")
    if name.startswith(("complex_", "extended_")):
        raise ValueError(f"{name!r} begins like the names that DType itself gives")
    if width != -1 and not 1 <= width <= 256:
        raise ValueError(f"the type {name!r} is from 1 to 256 bits wide (-1: unknown), not {width}")
    return _Extension(offset, name, width)


class DType:
    """An element type: one byte, whose bits say what it is.

    Args:
        value: The byte, from 0 to 255.

    Equal types are one object within a class. Subclasses add types of their own with `extended`;
    all others they share, and two types are equal if they have the same byte and, where that is
    an extended one, the same class.

    Raises:
        TypeError: ``value`` is no integer.
        ValueError: It stands for no type.

    >>> DType.f32, DType.f32.value, DType(0b1000_0111)
    (DType.f32, 81, DType.si8)
    >>> DType.parse("complex_f32").complex_element is DType.f32
    True
    >>> DType.si8.is_integer(), DType.si8.width, DType.f4e2m1fn.size_in_bytes(3)
    (True, 8, 2)
    """

    __slots__ = ("name", "value", "width")

    name: str
    """What it prints as: ``si8``, ``bf16``, ``complex_f32``."""
    value: int
    """The byte."""
    width: int
    """The bits that an element takes, 8 for ``bool``, or -1 where that is not known."""

    kBool: ClassVar[DType]
    si1: ClassVar[DType]
    si2: ClassVar[DType]
    si4: ClassVar[DType]
    si8: ClassVar[DType]
    si16: ClassVar[DType]
    si32: ClassVar[DType]
    si64: ClassVar[DType]
    si128: ClassVar[DType]
    si256: ClassVar[DType]
    ui1: ClassVar[DType]
    ui2: ClassVar[DType]
    ui4: ClassVar[DType]
    ui8: ClassVar[DType]
    ui16: ClassVar[DType]
    ui32: ClassVar[DType]
    ui64: ClassVar[DType]
    ui128: ClassVar[DType]
    ui256: ClassVar[DType]
    f4e2m1fn: ClassVar[DType]
    f6e2m3fn: ClassVar[DType]
    f6e3m2fn: ClassVar[DType]
    f8e8m0fnu: ClassVar[DType]
    f8e3m4: ClassVar[DType]
    f8e4m3fn: ClassVar[DType]
    f8e4m3fnuz: ClassVar[DType]
    f8e5m2: ClassVar[DType]
    f8e5m2fnuz: ClassVar[DType]
    f16: ClassVar[DType]
    bf16: ClassVar[DType]
    f32: ClassVar[DType]
    f64: ClassVar[DType]
    complex_f32: ClassVar[DType]
    complex_f64: ClassVar[DType]

    kFirstExtendedOption: ClassVar[int] = FIRST_EXTENDED
    kIntWidthShift: ClassVar[int] = INT_WIDTH_SHIFT
    kMaxElementSizeInBytes: ClassVar[int] = 64
    """The size of the widest element: a complex number of two 256-bit ones."""
    mIsInteger: ClassVar[int] = IS_INTEGER
    mIsFloat: ClassVar[int] = IS_FLOAT
    mIsComplex: ClassVar[int] = IS_COMPLEX
    mIsSigned: ClassVar[int] = IS_SIGNED

    _extensions: ClassVar[dict[int, _Extension]] = {}
    _members: ClassVar[dict[int, DType]] = {}
    _by_name: ClassVar[dict[str, int]] = {name: code for code, name in NAMES.items()}

    def __new__(cls, value: SupportsIndex) -> Self:
        """Gives the one object that stands for the byte."""
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(
                f"the value of a DType is a byte, not {value!r}; for a name, a NumPy dtype or a "
                "maxjax.dtype.DType write DType.of(it)"
            )
        code = operator.index(value)
        found = cls._members.get(code)
        if found is None:
            name, width = cls._describe(code)
            found = object.__new__(cls)
            for field, content in (("value", code), ("name", name), ("width", width)):
                object.__setattr__(found, field, content)
            # Where two threads come here at once, both get the first one's.
            found = cls._members.setdefault(code, found)
        return found  # pyright: ignore[reportReturnType]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._extensions = dict(cls._extensions)
        cls._members = {}
        own = {key: e for key, e in vars(cls).items() if isinstance(e, _Extension)}
        for key, extension in own.items():
            code = FIRST_EXTENDED + extension.offset
            taken = cls._extensions.get(code)
            if taken is not None:
                raise ValueError(
                    f"{cls.__name__}.{key} has the number {extension.offset} of {taken.name!r}"
                )
            names = {e.name for e in cls._extensions.values()}
            if extension.name in names or extension.name in DType._by_name:
                raise ValueError(f"{cls.__name__}.{key}: there is a type {extension.name!r}")
            cls._extensions[code] = extension
        cls._by_name = dict(DType._by_name)
        for code, extension in cls._extensions.items():
            cls._by_name[extension.name] = code
            if extension.width >= 8:
                cls._by_name[f"complex_{extension.name}"] = code | IS_COMPLEX
        for key, extension in own.items():
            setattr(cls, key, cls(FIRST_EXTENDED + extension.offset))

    @classmethod
    def _describe(cls, code: int) -> tuple[str, int]:
        """The name and the width of a code.

        Raises:
            ValueError: It is none.
        """
        if code in NAMES:
            return NAMES[code], WIDTHS[code]
        element = code & ~IS_COMPLEX
        extension = cls._extensions.get(element)
        if extension is not None and code == element:
            return extension.name, extension.width
        if extension is not None and extension.width >= 8:
            return f"complex_{extension.name}", 2 * extension.width
        if FIRST_EXTENDED <= code <= LAST_EXTENDED:
            return f"extended_{code}", -1
        raise ValueError(_invalid(code))

    @classmethod
    def is_valid(cls, value: SupportsIndex) -> bool:
        """Whether a byte stands for a type.

        >>> [DType.is_valid(v) for v in (0, 1, 2, 81, 129, 129 | DType.mIsComplex)]
        [False, True, True, True, True, False]
        """
        try:
            cls(value)
        except ValueError:
            return False
        return True

    @classmethod
    def parse(cls, text: str) -> Self:
        """The type of that name, the inverse of `name`.

        Raises:
            TypeError: ``text`` is no string.
            ValueError: There is no such type.

        >>> DType.parse("bf16"), DType.parse("complex_si8").value
        (DType.bf16, 167)
        """
        if not isinstance(text, str):
            raise TypeError(f"the name of an element type is a string, not {text!r}")
        code = cls._by_name.get(text)
        if code is None and text.startswith("extended_") and text[9:].isdecimal():
            code = int(text[9:]) if len(text) < 12 else 0
            if not FIRST_EXTENDED <= code <= LAST_EXTENDED or cls(code).name != text:
                code = None
        if code is None:
            reals = [name for name in cls._by_name if not name.startswith("complex_")]
            raise ValueError(
                f"there is no element type {text!r}; there are {', '.join(reals)}, and complex_ "
                "of each that takes a byte or more"
            )
        return cls(code)

    @classmethod
    def of(cls, x: Any) -> Self:
        """The type of a name, a NumPy dtype or scalar type, or a `maxjax.dtype.DType`.

        Raises:
            TypeError: ``x`` is nothing of the kind.
            ValueError: There is no type for it.

        >>> import maxjax.dtype, numpy
        >>> DType.of(maxjax.dtype.DType.bfloat16), DType.of(numpy.int16), DType.of("f64")
        (DType.bf16, DType.si16, DType.f64)
        """
        if isinstance(x, DType | _dtype.DType):
            return cls(x.value)
        if isinstance(x, str):
            return cls.parse(x)
        is_scalar_type = isinstance(x, type) and issubclass(x, np.generic)
        if not isinstance(x, np.dtype) and not is_scalar_type:
            raise TypeError(
                f"expected the name of an element type, a NumPy dtype or a DType, got {x!r}"
            )
        dtype = np.dtype(x)
        code = _BY_NUMPY.get(dtype)
        if code is None:
            raise ValueError(f"no element type corresponds to the NumPy dtype {dtype}")
        return cls(code)

    @classmethod
    def get_complex(cls, element: DType) -> Self:
        """The complex type of two such elements.

        Raises:
            ValueError: An element takes less than a byte, or is complex itself.

        >>> DType.get_complex(DType.kBool), DType.get_complex(DType.f64).size_in_bytes()
        (DType.complex_bool, 16)
        """
        if element.is_complex():
            raise ValueError(f"{element.name} is complex already")
        if element.width < 8:
            known = f"{element.width} bits" if element.width > 0 else "an unknown size"
            raise ValueError(
                f"there is no complex {element.name}: an element takes {known}, and each part of "
                "a complex number at least a byte"
            )
        return cls(element.value | IS_COMPLEX)

    @property
    def complex_element(self) -> Self:
        """The type of the parts of a complex type.

        Raises:
            ValueError: It is not complex.
        """
        if not self.is_complex():
            raise ValueError(f"{self.name} is not complex")
        return type(self)(self.value & ~IS_COMPLEX)

    def is_bool(self) -> bool:
        """Whether it is ``bool``: a byte that is 0 or 1, other than ``ui1``."""
        return self.value == BOOL

    def is_integer(self) -> bool:
        """Whether it is an integer, and not a complex one."""
        return self.value & (IS_INTEGER | IS_COMPLEX) == IS_INTEGER

    def is_signed_integer(self) -> bool:
        """Whether it is one of ``si1`` to ``si256``."""
        return self.value & (IS_INTEGER | IS_COMPLEX | IS_SIGNED) == IS_INTEGER | IS_SIGNED

    def is_unsigned_integer(self) -> bool:
        """Whether it is one of ``ui1`` to ``ui256``."""
        return self.value & (IS_INTEGER | IS_COMPLEX | IS_SIGNED) == IS_INTEGER

    def is_float(self) -> bool:
        """Whether it is a float, and not a complex one."""
        return self.value & _CLASS == IS_FLOAT

    def is_complex(self) -> bool:
        """Whether it is complex, of any element."""
        return self.value & IS_COMPLEX != 0

    def is_extended(self) -> bool:
        """Whether it is a type of a client's own, and not a complex one."""
        return self.value & _CLASS == 0 and self.value != BOOL

    def size_in_bytes(self, num_elements: SupportsIndex = 1) -> int:
        """The size of a number of elements, packed where one takes less than a byte.

        Returns:
            Bytes; -1 where the width or the number of elements is not known (below 0), or the
            size is above 2**63 - 1.

        >>> DType.ui1.size_in_bytes(9), DType.kBool.size_in_bytes(9), DType.f64.size_in_bytes(-1)
        (2, 9, -1)
        """
        count = operator.index(num_elements)
        if count < 0 or self.width < 0:
            return -1
        size = -(-count * self.width // 8)
        return size if size <= _LARGEST else -1

    def size_in_bytes_checked(self, num_elements: SupportsIndex = 1) -> int:
        """The size of a number of elements, in bytes.

        Raises:
            ValueError: It is not known, or too large.

        >>> DType.f64.size_in_bytes_checked(2**60)
        Traceback (most recent call last):
        ValueError: 1152921504606846976 elements of f64 take more than 9223372036854775807 bytes
        """
        count = operator.index(num_elements)
        size = self.size_in_bytes(count)
        if size >= 0:
            return size
        if self.width < 0:
            raise ValueError(f"an element of {self.name} has no known size")
        if count < 0:
            raise ValueError(f"the number of elements is not known ({count})")
        raise ValueError(f"{count} elements of {self.name} take more than {_LARGEST} bytes")

    @property
    def np(self) -> np.dtype[Any]:
        """The dtype with which NumPy computes; types below a byte take one there.

        Raises:
            ValueError: Neither NumPy nor ml_dtypes has such a type.
        """
        found = NUMPY.get(self.value)
        if found is None:
            raise ValueError(f"neither NumPy nor ml_dtypes has {self.name}")
        return found

    def to_maxjax(self) -> _dtype.DType:
        """The type of that byte of which tensors of graphs can be.

        Raises:
            ValueError: Graphs have no such type.

        >>> DType.bf16.to_maxjax()
        bfloat16
        """
        try:
            return _dtype.DType(self.value)
        except ValueError:
            raise ValueError(f"tensors of a graph can not be of {self.name}") from None

    def __index__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{'kBool' if self.value == BOOL else self.name}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DType):
            return NotImplemented
        if self.value != other.value:
            return False
        return self.value in NAMES or type(self) is type(other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.value,)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self!r} can not be changed: no setting of {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self!r} can not be changed: no deleting of {name!r}")


def _invalid(code: int) -> str:
    """Why a code is no type."""
    if not 0 <= code <= 255:
        return f"the value of an element type is a byte, and {code} is none"
    given = f"no element type has the value {code} ({code:#010b})"
    log2 = code >> INT_WIDTH_SHIFT & 0xF
    if code == 0:
        return f"{given}: it stands for none"
    if code & IS_INTEGER and code & IS_FLOAT:
        return f"{given}: bit 6, float, excludes bit 7, integer"
    if code & IS_INTEGER and log2 > MAX_INT_WIDTH_LOG2:
        return f"{given}: its bits 4 to 1 say an integer of 2**{log2} bits, more than 256"
    if code & IS_COMPLEX:
        return f"{given}: bit 5, complex, needs an element of a known size, of a byte or more"
    return f"{given}: there is no float of that number"


for _code, _name in NAMES.items():
    if not _code & IS_COMPLEX and _code != BOOL:
        setattr(DType, _name, DType(_code))
DType.kBool = DType(BOOL)
DType.complex_f32 = DType.get_complex(DType.f32)
DType.complex_f64 = DType.get_complex(DType.f64)
