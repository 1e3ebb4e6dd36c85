# SPDX-License-Identifier: Apache-2.0
"""``NamedSpec``: a spec whose dims may have names: ``batchx128xf32``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self

from maxjax.support.ml.dtype import DType
from maxjax.support.ml.layout import MAX_DIM
from maxjax.support.ml.shape import TensorRankStyle
from maxjax.support.ml.spec import TensorSpec, split_spec
from maxjax.support.ml.text import bad_piece, read_dims

__all__ = ["NamedSpec"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A name without an x needs no parentheses: an x between dims could not be told from one in it.
_BARE = re.compile(r"[A-WYZa-wyz_][A-WYZa-wyz0-9_]*")
_EXPRESSION = re.compile(r"[A-Za-z0-9_+\-*/%(),. ]+")


class NamedSpec:
    """A shape whose dims may have names, and an element type.

    This is how a spec is written where sizes are known only later: in the manifest of an
    artifact, on a command line. `TensorSpec` holds numbers alone.

    Args:
        dims: Sizes; -1 or None where one is dynamic; names; expressions such as
            ``"2*batch + 1"``, which are kept as text. A `TensorRankStyle` for no dims.
        dtype: What `DType.of` takes.

    The text is that of a `TensorSpec` with names and expressions as dims. Expressions are in
    parentheses, and so are names with an ``x`` in them: ``(max)x128xf32``.

    Raises:
        TypeError: A dim is neither an integer nor a string.
        ValueError: One is negative and not -1, or neither a name nor an expression.

    >>> spec = NamedSpec.parse("batchx(2*batch + 1)x128x?xf32")
    >>> spec.dims, spec.names, spec.dtype
    (('batch', '2*batch + 1', 128, -1), ('batch',), DType.f32)
    >>> str(NamedSpec(["maxlen", 4], "bf16")), spec.to_spec({"batch": 8, "2*batch + 1": 17})
    ('(maxlen)x4xbf16', TensorSpec('8x17x128x?xf32'))
    """

    __slots__ = ("_dims", "_dtype")
    _dims: tuple[int | str, ...] | None
    _dtype: DType
    kinds: ClassVar[type[DType]] = DType
    """The class of the element types."""

    def __init__(self, dims: Iterable[int | str | None] | TensorRankStyle, dtype: Any) -> None:
        if isinstance(dims, str | bytes):
            raise TypeError(f"the dims of a spec are several; to read text write parse({dims!r})")
        if isinstance(dims, TensorRankStyle):
            self._dims = None if dims is TensorRankStyle.kDynamicallyRanked else ()
        else:
            self._dims = tuple(_dim(i, d) for i, d in enumerate(dims))
        self._dtype = self.kinds.of(dtype)

    @property
    def dims(self) -> tuple[int | str, ...]:
        """Sizes, -1 where dynamic, names, and expressions without their parentheses.

        Raises:
            ValueError: The rank is dynamic.
        """
        if self._dims is None:
            raise ValueError(f"the spec {self} has no known number of dims")
        return self._dims

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._dtype

    @property
    def rank(self) -> int:
        """The number of dims, -1 where it is dynamic."""
        return -1 if self._dims is None else len(self._dims)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in its dims, in order, each once."""
        texts = (d for d in self._dims or () if isinstance(d, str))
        return tuple(dict.fromkeys(name for text in texts for name in _NAME.findall(text)))

    def is_static(self) -> bool:
        """Whether all dims are numbers."""
        return self._dims is not None and all(isinstance(d, int) and d >= 0 for d in self._dims)

    def to_spec(self, sizes: Mapping[str, int] | Callable[[str], int] | None = None) -> TensorSpec:
        """The spec with a number, or ``?``, for each name and expression.

        Args:
            sizes: The number for each of the strings in `dims`, or a function that gives it.
                Left out, and where a mapping lacks one, the dim is dynamic.

        Raises:
            TypeError, ValueError: A size is none, or there are more than 8 dims.

        >>> NamedSpec.parse("batchx4xf32").to_spec(), NamedSpec.parse("nxf32").to_spec({"n": 2})
        (TensorSpec('?x4xf32'), TensorSpec('2xf32'))
        """
        if self._dims is None:
            return TensorSpec(TensorRankStyle.kDynamicallyRanked, self._dtype)
        if sizes is None:
            sizes = {}
        find = sizes if callable(sizes) else sizes.get
        return TensorSpec([find(d) if isinstance(d, str) else d for d in self._dims], self._dtype)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The spec of a text; the inverse of `str`.

        Raises:
            TypeError: ``text`` is no string.
            ValueError: It is no spec; the message names the piece, its bytes and where it is.

        >>> NamedSpec.parse("(maxlen)x4xcomplex_f32").dims
        ('maxlen', 4)
        >>> NamedSpec.parse("4x(n + 1xf32")
        Traceback (most recent call last):
        ValueError: no spec: '4x(n + 1xf32': the piece '(n + 1xf32' (bytes 28 6e 20 2b 20 31 78 6...
        """
        shape, dtype = split_spec(text, cls.kinds)
        if shape == "*":
            return cls(TensorRankStyle.kDynamicallyRanked, dtype)
        if shape is None:
            return cls((), dtype)
        return cls([_read(text, piece, start) for piece, start in _pieces(text, shape)], dtype)

    def __str__(self) -> str:
        if self._dims is None:
            return f"*x{self._dtype.name}"
        return "x".join([*map(_print, self._dims), self._dtype.name])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NamedSpec):
            return NotImplemented
        return (self._dims, self._dtype) == (other._dims, other._dtype)

    def __hash__(self) -> int:
        return hash((self._dims, self._dtype))


def _dim(i: int, given: Any) -> int | str:
    """One dim as it is kept.

    Raises:
        TypeError, ValueError: It is none.
    """
    if given is None:
        return -1
    if isinstance(given, str):
        inner = given.strip(" ")
        while _closes(inner) == len(inner) - 1:
            inner = inner[1:-1].strip(" ")
        if inner.isascii() and inner.isdigit():
            given = int(inner) if len(inner) < 20 else MAX_DIM + 1
        elif _EXPRESSION.fullmatch(inner) and _balanced(inner) and _NAME.search(inner):
            return inner
        else:
            raise ValueError(
                f"dim {i} of a spec is {given!r}; expected a name, or an expression of names, "
                "numbers, + - * / % and parentheses"
            )
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"dim {i} of a spec is a number, a name or None, not {given!r}")
    size = operator.index(given)
    if not -1 <= size <= MAX_DIM:
        raise ValueError(
            f"dim {i} of a spec is {size}; a size is from 0 to {MAX_DIM}, and -1 is dynamic"
        )
    return size


def _closes(text: str) -> int:
    """Where the parenthesis closes that a text begins with; -2 if it does not."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return i if c == ")" else -2
    return -2


def _balanced(text: str) -> bool:
    """Whether every parenthesis has its other half."""
    depth = 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if depth < 0:
            return False
    return depth == 0


def _print(dim: int | str) -> str:
    """The text of a dim."""
    if isinstance(dim, int):
        return "?" if dim < 0 else str(dim)
    return dim if _BARE.fullmatch(dim) else f"({dim})"


def _pieces(text: str, shape: str) -> Iterator[tuple[str, int]]:
    """The dims of the text of a shape, and where each begins.

    Raises:
        ValueError: Parentheses are not closed.
    """
    start = depth = 0
    for i, c in enumerate(shape):
        depth += (c == "(") - (c == ")")
        if c == "x" and depth == 0:
            yield shape[start:i], start
            start = i + 1
    if depth > 0:
        raise bad_piece("spec", text, text[start:], start, "a parenthesis is not closed")
    yield shape[start:], start


def _read(text: str, piece: str, start: int) -> int | str:
    """One dim of a text.

    Raises:
        ValueError: It is none.
    """
    if _BARE.fullmatch(piece):
        return piece
    if not piece.startswith("("):
        dims = read_dims("spec", text, piece, start) if piece not in ("", "*") else None
        if dims is None:
            expected = "there is no dim where one is expected"
            if piece:
                expected = "* is a dynamic rank, with no dims beside it"
            raise bad_piece("spec", text, piece, start, expected)
        return dims[0]
    try:
        if _closes(piece) != len(piece) - 1:
            raise ValueError("its parentheses do not fit together")
        return _dim(0, piece)
    except ValueError as e:
        reason = str(e).rpartition("; ")[2]
        raise bad_piece("spec", text, piece, start, reason) from None
