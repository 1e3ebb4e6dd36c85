# SPDX-License-Identifier: Apache-2.0
"""``TensorShape``: the sizes of a tensor, some or all of them unknown, in 16 bytes."""

from __future__ import annotations

import enum
import functools
import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NoReturn, Self, SupportsIndex

from maxjax.support.ml.layout import (
    AUXILIARY,
    DYNAMIC_RANK,
    FORM,
    KIND,
    MAX_DIM,
    MAX_RANK,
    RANK,
    RepKind,
    decode,
    encode,
)
from maxjax.support.ml.text import print_dims, read_dims

__all__ = [
    "TensorRankStyle",
    "TensorShape",
    "kDynamicDimensionValue",
    "kDynamicRankValue",
    "kMaxRank",
]

kMaxRank = MAX_RANK
"""The highest rank of a shape."""
kDynamicDimensionValue = -1
"""The size of a dim that is not known."""
kDynamicRankValue = -1
"""The rank of a shape whose rank is not known."""


class TensorRankStyle(enum.Enum):
    """Whether the rank of a shape is known."""

    kStaticallyRanked = 0
    kDynamicallyRanked = 1


@functools.total_ordering
class TensorShape:
    """The sizes of a tensor, some or all of them unknown, in 16 bytes.

    Args:
        dims: Up to 8 sizes from 0 to 2**63 - 1; -1 or None where one is dynamic. A
            `TensorRankStyle` instead says that nothing is known, or that the rank is 0.

    Shapes do not change. They are equal if their dims are, and order by rank and then by dims,
    unknown ones first. `maxjax.support.ml.ShapeTable` holds many.

    Raises:
        TypeError: A dim is no integer.
        ValueError: A dim is negative and not -1, or too large, or there are more than 8.

    >>> shape = TensorShape([1, None, 3])
    >>> str(shape), shape.rank, shape.dims, len(shape.to_bytes())
    ('1x?x3', 3, (1, -1, 3), 16)
    >>> TensorShape.parse("1x?x3") == shape
    True
    >>> str(TensorShape(TensorRankStyle.kDynamicallyRanked)), str(TensorShape([]))
    ('*', '')
    """

    __slots__ = ("_stored",)
    _stored: bytes
    _noun: ClassVar[str] = "shape"

    kMaxRank: ClassVar[int] = MAX_RANK
    kDynamicDimensionValue: ClassVar[int] = kDynamicDimensionValue
    kDynamicRankValue: ClassVar[int] = kDynamicRankValue

    def __init__(self, dims: Iterable[SupportsIndex | None] | TensorRankStyle = ()) -> None:
        self._store(_checked(dims))

    def _store(self, dims: tuple[int, ...] | None, auxiliary: int = 0) -> None:
        object.__setattr__(self, "_stored", encode(dims, auxiliary))

    @classmethod
    def _of(cls, stored: bytes) -> Self:
        """The shape of a form that is known to be good."""
        new = object.__new__(cls)
        object.__setattr__(new, "_stored", stored)
        return new

    # ---------------------------------------------------------------- what it is

    @property
    def rank(self) -> int:
        """The number of dims, -1 where it is dynamic."""
        rank = self._stored[RANK]
        return kDynamicRankValue if rank == DYNAMIC_RANK else rank

    @property
    def dims(self) -> tuple[int, ...]:
        """The sizes, -1 where dynamic.

        Raises:
            ValueError: The rank is dynamic.
        """
        dims = decode(self._stored)
        if dims is None:
            raise ValueError(f"the {self._noun} {self} has no known number of dims")
        return dims

    @property
    def representation(self) -> RepKind:
        """Which form it is stored in.

        >>> [TensorShape(d).representation.name for d in ([1, 2, 3, 127], [1, 2, 3, 128], [2**31])]
        ['k32', 'k16', 'kOutOfLine']
        """
        return RepKind(self._stored[KIND])

    @property
    def auxiliary(self) -> int:
        """The last byte, which is no part of the shape: it takes no part in comparing."""
        return self._stored[AUXILIARY]

    def with_auxiliary(self, value: int) -> Self:
        """The same shape with another last byte.

        Raises:
            ValueError: ``value`` is no byte.

        >>> TensorShape([2]).with_auxiliary(7) == TensorShape([2])
        True
        """
        if not 0 <= value <= 255:
            raise ValueError(f"the auxiliary field is a byte, and {value} is none")
        head, tail = self._stored[:AUXILIARY], self._stored[FORM:]
        return type(self)._of(head + bytes([value]) + tail)

    def has_rank(self) -> bool:
        """Whether the rank is known."""
        return self._stored[RANK] != DYNAMIC_RANK

    def is_static(self) -> bool:
        """Whether the rank and all dims are known.

        >>> [TensorShape.parse(s).is_static() for s in ("", "1x2", "1x?", "*")]
        [True, True, False, False]
        """
        dims = decode(self._stored)
        return dims is not None and kDynamicDimensionValue not in dims

    @property
    def num_elements(self) -> int:
        """The product of the dims; -1 where that is not known.

        Raises:
            ValueError: It is above 2**63 - 1.

        >>> TensorShape([2, 3]).num_elements, TensorShape([]).num_elements
        (6, 1)
        >>> TensorShape([2, -1]).num_elements, TensorShape([0, -1]).num_elements
        (-1, 0)
        """
        dims = decode(self._stored)
        if dims is None:
            return -1
        if 0 in dims:
            return 0
        if -1 in dims:
            return -1
        count = math.prod(dims)
        if count > MAX_DIM:
            raise ValueError(f"the {self._noun} {self} has {count} elements, more than {MAX_DIM}")
        return count

    # ---------------------------------------------------------------- refinement

    def is_refined_by(self, static_shape: TensorShape) -> bool:
        """Whether another shape, all of it known, agrees with all that is known of this one.

        >>> TensorShape([2, -1]).is_refined_by(TensorShape([2, 3]))
        True
        >>> TensorShape([2, -1]).is_refined_by(TensorShape([2, -1]))
        False
        """
        return self._unrefined(static_shape) is None

    def check_refined_by(self, static_shape: TensorShape) -> None:
        """Refuses a shape that `is_refined_by` denies.

        Raises:
            ValueError: Saying where the two differ.

        >>> TensorShape([2, -1]).check_refined_by(TensorShape([3, 3]))
        Traceback (most recent call last):
        ValueError: the shape 2x? is not refined by 3x3: dim 0 is 2 and not 3
        """
        reason = self._unrefined(static_shape)
        if reason is not None:
            ours, theirs = (
                print_dims(decode(self._stored)),
                print_dims(decode(static_shape._stored)),
            )
            raise ValueError(f"the shape {ours} is not refined by {theirs}: {reason}")

    def _unrefined(self, static_shape: TensorShape) -> str | None:
        """Why another shape does not refine this one."""
        if not isinstance(static_shape, TensorShape):
            raise TypeError(f"expected a TensorShape, got {static_shape!r}")
        ours, theirs = decode(self._stored), decode(static_shape._stored)
        if theirs is None:
            return "the rank of the latter is not known"
        if ours is not None and len(ours) != len(theirs):
            return f"the rank is {len(ours)} and not {len(theirs)}"
        for i, their in enumerate(theirs):
            if their < 0:
                return f"dim {i} of the latter is not known"
            if ours is not None and ours[i] not in (their, kDynamicDimensionValue):
                return f"dim {i} is {ours[i]} and not {their}"
        return None

    # ---------------------------------------------------------------- text and bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shape of a text: numbers or ``?`` joined by ``x``, ``*``, or nothing.

        Raises:
            TypeError: ``text`` is no string.
            ValueError: It is no shape; the message names the piece, its bytes and where it is.

        >>> TensorShape.parse("1x2x")
        Traceback (most recent call last):
        ValueError: no shape: '1x2x': the piece '' (empty) at byte 4: there is no dim where one...
        """
        if not isinstance(text, str):
            raise TypeError(f"the text of a shape is a string, not {text!r}")
        dims = read_dims("shape", text, text)
        return cls._of(encode(None if dims is None else tuple(dims)))

    def to_bytes(self) -> bytes:
        """The stored form: 16 bytes, and 8 for each dim where they are out of line.

        >>> TensorShape([1, -1, 3]).to_bytes().hex(" ", 4)
        '01000000 ffffffff 03000000 00030000'
        """
        return self._stored

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Self:
        """The shape of a stored form; the inverse of `to_bytes`.

        Raises:
            TypeError: ``data`` is no bytes.
            ValueError: It is not the form of a shape; the message names the byte.

        >>> TensorShape.from_bytes(TensorShape([4, 5]).to_bytes())
        TensorShape('4x5')
        """
        stored = bytes(memoryview(data))
        if len(stored) < FORM:
            raise ValueError(f"a stored shape has at least {FORM} bytes, not {len(stored)}")
        rank, kind = stored[RANK], stored[KIND]
        if kind > RepKind.kOutOfLine:
            raise ValueError(f"byte {KIND} of a stored shape is 0, 1 or 2, not {kind}")
        dynamic = rank == DYNAMIC_RANK and kind == RepKind.k32
        highest = (4, 6, MAX_RANK)[kind]
        if rank > highest and not dynamic:
            raise ValueError(
                f"byte {RANK} of a stored shape, its rank, is at most {highest} in the form "
                f"{RepKind(kind).name}, not {rank}"
            )
        size = FORM + (8 * rank if kind == RepKind.kOutOfLine else 0)
        if len(stored) != size:
            raise ValueError(
                f"a stored shape of rank {rank} in the form {RepKind(kind).name} has {size} "
                f"bytes, not {len(stored)}"
            )
        dims = decode(stored)
        for i, d in enumerate(dims or ()):
            if d < kDynamicDimensionValue:
                raise ValueError(f"dim {i} of a stored shape is {d}; a size is not negative")
        good = encode(dims, stored[AUXILIARY])
        if good != stored:
            order = [KIND, *range(FORM)]  # the wrong form moves the dims too
            at = next(i for i in order if good[i] != stored[i])
            raise ValueError(
                f"byte {at} of a stored shape is {stored[at]:#04x}, and the form of "
                f"{print_dims(dims)!r} has {good[at]:#04x} there"
            )
        return cls._of(stored)

    def __str__(self) -> str:
        return print_dims(decode(self._stored))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    # ---------------------------------------------------------------- protocols

    def _key(self) -> bytes:
        """What comparing compares: all but the auxiliary byte."""
        return self._stored[:AUXILIARY] + self._stored[FORM:]

    def _order(self) -> tuple[Any, ...]:
        return self.rank, decode(self._stored) or ()

    def __len__(self) -> int:
        return len(self.dims)

    def __iter__(self) -> Iterator[int]:
        return iter(self.dims)

    def __getitem__(self, index: int) -> int:
        return self.dims[operator.index(index)]

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorShape) or self._noun != other._noun:
            return NotImplemented
        return self._key() == other._key()

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, TensorShape) or self._noun != other._noun:
            return NotImplemented
        return self._order() < other._order()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self._stored,)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} can not be changed: no setting of {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} can not be changed: no deleting of {name!r}")


def _checked(dims: Iterable[SupportsIndex | None] | TensorRankStyle) -> tuple[int, ...] | None:
    """The sizes that a caller gave.

    Raises:
        TypeError, ValueError: See `TensorShape`.
    """
    if isinstance(dims, TensorRankStyle):
        return None if dims is TensorRankStyle.kDynamicallyRanked else ()
    if isinstance(dims, str | bytes):
        raise TypeError(f"the dims of a shape are numbers; to read text write parse({dims!r})")
    if isinstance(dims, TensorShape):
        return decode(dims._stored)
    sizes: list[int] = []
    for i, given in enumerate(dims):
        if given is None:
            sizes.append(kDynamicDimensionValue)
            continue
        if isinstance(given, bool) or not hasattr(given, "__index__"):
            raise TypeError(f"dim {i} of a shape is a number, or None where dynamic, not {given!r}")
        size = operator.index(given)
        if not kDynamicDimensionValue <= size <= MAX_DIM:
            raise ValueError(
                f"dim {i} of a shape is {size}; a size is from 0 to {MAX_DIM}, and -1 is dynamic"
            )
        sizes.append(size)
    if len(sizes) > MAX_RANK:
        raise ValueError(f"a shape has at most {MAX_RANK} dims, got {len(sizes)}: {sizes}")
    return tuple(sizes)
