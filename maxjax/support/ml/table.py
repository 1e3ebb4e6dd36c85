# SPDX-License-Identifier: Apache-2.0
"""``ShapeTable``: many shapes as one NumPy array, compared and sorted as such."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn, Self, overload

import numpy as np
import numpy.typing as npt

from maxjax.support.ml.layout import (
    DYNAMIC_RANK,
    FORM,
    KIND,
    MAX_DIM,
    MAX_RANK,
    SHAPE_DTYPE,
    RepKind,
    decode_rows,
    encode_rows,
)
from maxjax.support.ml.shape import TensorShape

__all__ = ["ShapeTable"]

# Rows compared at a time, so that what is computed on the way stays in the processor's cache.
_CHUNK = 65536


class ShapeTable:
    """Many shapes as one array of 16-byte elements.

    Args:
        shapes: Shapes: `TensorShape`, or what that is made of, such as ``(1, None, 3)``.

    Comparing with another table of the same length, or with one shape, gives an array of bools.
    The order is that of `TensorShape`. Tables do not change.

    Raises:
        TypeError: A dim is no integer.
        ValueError: One of them is no shape; the message names the row.

    >>> table = ShapeTable([(1, 2), (3, None, 4), (1, 2)])
    >>> table == TensorShape([1, 2])
    array([ True, False,  True])
    >>> table[1], table.sorted()[:2], table.rows.itemsize
    (TensorShape('3x?x4'), ShapeTable(['1x2', '1x2']), 16)
    """

    __slots__ = ("_outlying", "_rows")
    _rows: npt.NDArray[Any]
    _outlying: npt.NDArray[np.int64]
    element: ClassVar[type[TensorShape]] = TensorShape
    """What a row is."""

    def __init__(self, shapes: Iterable[TensorShape | Sequence[int | None]] = ()) -> None:
        given = list(shapes)
        fast = _dims_of_tuples(given)
        if fast is None:
            fast = _dims_of_shapes([_shape(row, s) for row, s in enumerate(given)])
        self._set(*encode_rows(*fast))

    def _set(self, rows: npt.NDArray[Any], outlying: npt.NDArray[np.int64]) -> None:
        rows.flags.writeable = outlying.flags.writeable = False
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_outlying", outlying)

    @classmethod
    def _of(cls, rows: npt.NDArray[Any], outlying: npt.NDArray[np.int64]) -> Self:
        new = object.__new__(cls)
        new._set(rows, outlying)
        return new

    @classmethod
    def from_arrays(cls, dims: npt.ArrayLike, ranks: npt.ArrayLike | None = None) -> Self:
        """The table of sizes that are in arrays already.

        Args:
            dims: Integers of shape ``(n, r)``, ``r`` at most 8, -1 where dynamic.
            ranks: Integers of shape ``(n,)``: how many of the dims of each row count, -1 where
                the rank is dynamic. Left out, all do.

        Raises:
            TypeError: They are no integers.
            ValueError: They have other shapes, or an element is no size or no rank; the message
                names the row.

        >>> ShapeTable.from_arrays([[1, 2], [3, -1]], ranks=[1, 2])
        ShapeTable(['1', '3x?'])
        """
        sizes = np.asarray(dims)
        if sizes.ndim != 2 or sizes.shape[1] > MAX_RANK:
            raise ValueError(f"dims have the shape (n, r), r at most 8, and not {sizes.shape}")
        counts = np.full(len(sizes), sizes.shape[1]) if ranks is None else np.asarray(ranks)
        if counts.shape != (len(sizes),):
            raise ValueError(f"ranks have the shape ({len(sizes)},), and not {counts.shape}")
        for what, array in (("dims", sizes), ("ranks", counts)):
            if array.dtype.kind not in "iu" and array.size:
                raise TypeError(f"{what} are integers, not {array.dtype}")
        wrong = np.flatnonzero((counts < -1) | (counts > sizes.shape[1]))
        if wrong.size:
            raise ValueError(
                f"row {wrong[0]}: the rank {counts[wrong[0]]} is not from -1 to {sizes.shape[1]}"
            )
        used = np.arange(sizes.shape[1]) < counts[:, None]
        bad = used & ((sizes < -1) | (sizes > MAX_DIM))
        if bad.any():
            row, dim = np.argwhere(bad)[0]
            raise ValueError(
                f"row {row}: dim {dim} of a shape is {sizes[row, dim]}; a size is from 0 to "
                f"{MAX_DIM}, and -1 is dynamic"
            )
        padded = np.zeros((len(sizes), MAX_RANK), np.int64)
        np.copyto(padded[:, : sizes.shape[1]], sizes, where=used, casting="unsafe")
        return cls._of(*encode_rows(padded, counts.astype(np.int8)))

    # ---------------------------------------------------------------- contents

    @property
    def rows(self) -> npt.NDArray[Any]:
        """The elements, read-only; see `maxjax.support.ml.SHAPE_DTYPE`."""
        return self._rows

    @property
    def outlying(self) -> npt.NDArray[np.int64]:
        """The dims of rows out of line, shape ``(m, 8)``, read-only; ``index`` counts in it."""
        return self._outlying

    @property
    def dims(self) -> npt.NDArray[np.int64]:
        """All sizes, shape ``(n, 8)``: -1 where dynamic, 0 beyond the rank."""
        return decode_rows(self._rows, self._outlying)[0]

    @property
    def ranks(self) -> npt.NDArray[np.int8]:
        """All ranks, shape ``(n,)``, -1 where dynamic."""
        return self._rows["rank"].view(np.int8)

    def num_elements(self) -> npt.NDArray[np.int64]:
        """The number of elements of each shape, -1 where it is not known.

        Raises:
            ValueError: It is above 2**63 - 1; the message names the row.

        >>> ShapeTable([(2, 3), (), (2, None)]).num_elements()
        array([ 6,  1, -1])
        """
        dims, ranks = decode_rows(self._rows, self._outlying)
        used = np.arange(MAX_RANK) < ranks[:, None]
        unknown = (ranks < 0) | (used & (dims < 0)).any(axis=1)
        empty = (used & (dims == 0)).any(axis=1)
        factors = np.where(used & ~(unknown | empty)[:, None], dims, 1)
        product = np.ones(len(dims), np.int64)
        over = np.zeros(len(dims), np.bool_)
        for column in factors.T:
            over |= product > MAX_DIM // column
            product *= column
        if over.any():
            row = int(np.argmax(over))
            raise ValueError(f"row {row}: {_message(lambda: self[row].num_elements)}")
        product[unknown] = -1
        product[empty] = 0
        return product

    @overload
    def __getitem__(self, index: int) -> TensorShape: ...
    @overload
    def __getitem__(self, index: slice | npt.NDArray[Any] | list[int] | list[bool]) -> Self: ...
    def __getitem__(self, index: Any) -> Any:
        rows = self._rows[index]
        if isinstance(rows, np.ndarray) and rows.ndim == 1:
            return type(self)._of(rows.view(), self._outlying)
        if rows.ndim != 0:
            raise IndexError(f"a ShapeTable has one axis; {index!r} is for more")
        form = rows.tobytes()
        if form[KIND] == RepKind.kOutOfLine:
            dims = self._outlying[rows["index"], : rows["rank"]]
            form = bytes(8) + form[8:] + dims.astype("<i8").tobytes()
        return self.element._of(form)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[TensorShape]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        shown = [str(shape) for shape in self[:6]]
        more = f" and {len(self) - 6} more" if len(self) > 6 else ""
        return f"{type(self).__name__}({shown}{more})"

    # ---------------------------------------------------------------- comparing

    def __eq__(self, other: object) -> npt.NDArray[np.bool_]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Which rows equal those of another table, or a shape; an array of bools."""
        same = np.empty(len(self), np.bool_)
        for rows, words in self._compared(other):
            # Two bools at a time: the words of a row.
            np.equal(words.view(np.uint16), 0x0101, out=same[rows])
        return same

    def __ne__(self, other: object) -> npt.NDArray[np.bool_]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ~(self == other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def equals(self, other: ShapeTable) -> bool:
        """Whether another table has the same shapes in the same order.

        >>> ShapeTable([(1, 2)]).equals(ShapeTable([(1, 2)])), ShapeTable([()]).equals(ShapeTable())
        (True, False)
        """
        if not isinstance(other, ShapeTable) or len(self) != len(other):
            return False
        return all(words.all() for _, words in self._compared(other))

    def argsort(self) -> npt.NDArray[np.intp]:
        """The rows in order, as of a stable sort of the shapes.

        >>> ShapeTable([(3, 1), (2, 9), (7,)]).argsort()
        array([2, 1, 0])
        """
        return np.lexsort(self._sort_keys())

    def sorted(self) -> Self:
        """The table in order."""
        return self[self.argsort()]

    def unique(self) -> tuple[Self, npt.NDArray[np.intp]]:
        """The different shapes in order, and of each row which of them it is.

        >>> ShapeTable([(2,), (1,), (2,)]).unique()
        (ShapeTable(['1', '2']), array([1, 0, 1]))
        """
        order = self.argsort()
        ordered = self[order]
        first = np.ones(len(self), np.bool_)
        if len(self) > 1:
            first[1:] = ordered[1:] != ordered[:-1]
        which = np.empty(len(self), np.intp)
        which[order] = np.cumsum(first) - 1
        return ordered[first], which

    def _sort_keys(self) -> list[npt.NDArray[Any]]:
        """What to sort by, the most important last."""
        dims, ranks = decode_rows(self._rows, self._outlying)
        return [c for c in dims.T[::-1] if c.any()] + [ranks]

    def _compared(self, other: object) -> Iterator[tuple[slice, npt.NDArray[np.bool_]]]:
        """Some rows at a time, and for both words of each whether they equal the other's."""
        ours, theirs = (words.ravel() for words in self._words_with(other))
        chunk, stays = _CHUNK, len(theirs) != len(ours)
        if stays:
            chunk = _CHUNK // 8
            theirs = np.tile(theirs, chunk)
        buffer = np.empty(min(len(ours), 2 * chunk), np.bool_)
        for start in range(0, len(self), chunk):
            part = ours[2 * start : 2 * (start + chunk)]
            at = 0 if stays else 2 * start
            equal = np.equal(part, theirs[at : at + len(part)], out=buffer[: len(part)])
            yield slice(start, start + chunk), equal

    def _words_with(self, other: object) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The rows of both as pairs of words, equal where the shapes are."""
        if isinstance(other, TensorShape) and other._noun == self.element._noun:
            other = type(self)._from_elements([other])
        elif not isinstance(other, ShapeTable):
            raise TypeError(
                f"a {type(self).__name__} is compared with another or with a {self.element._noun}, "
                f"not with {other!r}"
            )
        elif len(other) != len(self):
            raise ValueError(f"tables of {len(self)} and {len(other)} shapes are not comparable")
        if self.element is not other.element:
            raise TypeError(
                f"a {type(self).__name__} is not compared with a {type(other).__name__}"
            )
        ours, theirs = self._rows, other._rows
        if self._outlying is not other._outlying and len(self._outlying) and len(other._outlying):
            ours, theirs = ours.copy(), theirs.copy()
            both = np.concatenate([self._outlying, other._outlying])
            number = _numbered(both)
            _renumber(ours, number[: len(self._outlying)])
            _renumber(theirs, number[len(self._outlying) :])
        elif len(self._outlying):
            # One set of dims may hold the same ones twice.
            ours = ours.copy()
            number = _numbered(self._outlying)
            _renumber(ours, number)
            if self._outlying is other._outlying:
                theirs = theirs.copy()
                _renumber(theirs, number)
        return _words(ours), _words(theirs)

    @classmethod
    def _from_elements(cls, shapes: list[TensorShape]) -> Self:
        return cls._of(*encode_rows(*_dims_of_shapes(shapes)))

    # ---------------------------------------------------------------- bytes

    def to_bytes(self) -> bytes:
        """All rows, 16 bytes each, then the dims of those out of line, in order, 8 bytes each.

        >>> len(ShapeTable([(1, 2), (2**40,)]).to_bytes())
        40
        """
        rows = self._rows.copy()
        outside = rows["kind"] == RepKind.kOutOfLine
        dims = self._outlying[rows["index"][outside]].astype("<i8")
        rows["index"][outside] = 0
        used = np.arange(MAX_RANK) < rows["rank"][outside][:, None]
        return rows.tobytes() + dims[used].tobytes()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, num_rows: int) -> Self:
        """The table of the bytes that `to_bytes` gives.

        Args:
            data: The bytes.
            num_rows: How many rows there are.

        Raises:
            ValueError: The bytes are no such table; the message names the row.

        >>> table = ShapeTable([(1, 2), (2**40,)])
        >>> ShapeTable.from_bytes(table.to_bytes(), 2).equals(table)
        True
        """
        view = memoryview(data).cast("B")
        if not 0 <= num_rows * FORM <= len(view):
            raise ValueError(f"{len(view)} bytes are too few for {num_rows} rows of {FORM} bytes")
        rows = np.frombuffer(view, SHAPE_DTYPE, num_rows).copy()
        outside = rows["kind"] == RepKind.kOutOfLine
        ranks = rows["rank"][outside].astype(np.int64)
        row = np.flatnonzero(
            (rows["kind"] > RepKind.kOutOfLine)
            | ((rows["rank"] > MAX_RANK) & (outside | (rows["rank"] != DYNAMIC_RANK)))
        )
        if row.size:
            form = rows[row[0]].tobytes()
            raise ValueError(f"row {row[0]}: {_message(lambda: cls.element.from_bytes(form))}")
        size = num_rows * FORM + 8 * int(ranks.sum())
        if len(view) != size:
            raise ValueError(f"a table of these {num_rows} rows has {size} bytes, not {len(view)}")
        outlying = np.zeros((len(ranks), MAX_RANK), np.int64)
        flat = np.frombuffer(view, "<i8", int(ranks.sum()), num_rows * FORM)
        outlying[np.arange(MAX_RANK) < ranks[:, None]] = flat
        zeroed = rows.copy()
        rows["index"][outside] = np.arange(len(ranks))
        dims, ranks_of_all = decode_rows(rows, outlying)
        dims[np.arange(MAX_RANK) >= ranks_of_all[:, None]] = 0  # what lies there is an error
        good, _ = encode_rows(dims, ranks_of_all)
        if cls.element is TensorShape:
            rows["auxiliary"] = zeroed["auxiliary"] = 0  # no part of a shape
        good["auxiliary"] = rows["auxiliary"]
        good["index"][outside] = 0
        bad = (_words(good) != _words(zeroed)).any(axis=1) | (dims < -1).any(axis=1)
        if not bad.any():
            new = cls._of(rows, outlying)
            new._check_rows()
            return new
        first = int(np.argmax(bad))
        form = zeroed[first].tobytes()
        if outside[first]:
            form += outlying[rows["index"][first], : rows["rank"][first]].astype("<i8").tobytes()
        raise ValueError(f"row {first}: {_message(lambda: cls.element.from_bytes(form))}")

    def _check_rows(self) -> None:
        """Refuses rows whose auxiliary bytes say nothing."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(), len(self))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} can not be changed: no setting of {name!r}")


def _message(call: Any) -> str:
    """What the error of a call says."""
    try:
        call()
    except (TypeError, ValueError) as e:
        return str(e)
    raise AssertionError("a row was refused that is no error by itself")


def _shape(row: int, given: Any) -> TensorShape:
    """One shape of many.

    Raises:
        TypeError, ValueError: It is none; the message names the row.
    """
    try:
        return given if isinstance(given, TensorShape) else TensorShape(given)
    except (TypeError, ValueError) as e:
        raise type(e)(f"row {row}: {e}") from None


def _dims_of_tuples(shapes: list[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]] | None:
    """The sizes and ranks of many tuples of integers; None where that is not what they are."""
    if not shapes or any(type(s) is not tuple and type(s) is not list for s in shapes):
        return None
    ranks = np.fromiter(map(len, shapes), np.int64, len(shapes))
    if ranks.max() > MAX_RANK:
        return None
    everything = list(itertools.chain.from_iterable(shapes))
    if not all(type(d) is int for d in everything):
        return None
    try:
        flat = np.array(everything, np.int64)
    except OverflowError:
        return None
    if flat.size and flat.min() < -1:
        return None
    dims = np.zeros((len(shapes), MAX_RANK), np.int64)
    dims[np.arange(MAX_RANK) < ranks[:, None]] = flat
    return dims, ranks


def _dims_of_shapes(
    shapes: list[TensorShape],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The sizes and ranks of many shapes."""
    ranks = np.array([s.rank for s in shapes], np.int64)
    dims = np.zeros((len(shapes), MAX_RANK), np.int64)
    known = [s.dims for s in shapes if s.has_rank()]
    dims[np.arange(MAX_RANK) < ranks[:, None]] = list(itertools.chain.from_iterable(known))
    return dims, ranks


def _words(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Rows as pairs of words, shape ``(n, 2)``."""
    return np.ascontiguousarray(rows).view("<u8").reshape(-1, 2)


def _numbered(dims: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A number for each row of dims, equal where the dims are."""
    order = np.lexsort(dims.T)
    ordered = dims[order]
    number = np.empty(len(dims), np.int64)
    number[order] = np.cumsum(np.append(False, (ordered[1:] != ordered[:-1]).any(axis=1)))
    return number


def _renumber(rows: npt.NDArray[Any], number: npt.NDArray[np.int64]) -> None:
    """Replaces the indices of the rows out of line."""
    outside = rows["kind"] == RepKind.kOutOfLine
    rows["index"][outside] = number[rows["index"][outside]]
