# SPDX-License-Identifier: Apache-2.0
"""``TensorSpec``: a shape and an element type in the same 16 bytes, and tables of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Self, SupportsIndex

import numpy as np
import numpy.typing as npt

from maxjax.support.ml.dispatch import code_table
from maxjax.support.ml.dtype import DType
from maxjax.support.ml.layout import AUXILIARY, FORM, MAX_DIM, decode, encode
from maxjax.support.ml.shape import TensorRankStyle, TensorShape
from maxjax.support.ml.table import ShapeTable
from maxjax.support.ml.text import bad_piece, print_dims, read_dims

__all__ = ["SpecTable", "TensorSpec", "split_spec"]


class TensorSpec(TensorShape):
    """A shape and an element type, in the 16 bytes of a shape.

    Args:
        dims: What a `TensorShape` is made of, or one.
        dtype: The element type, its name, a NumPy dtype or a `maxjax.dtype.DType`.

    A spec is a shape whose auxiliary byte is the element type. Two specs are equal if both are;
    a spec and a shape are not comparable, write ``spec.shape``. A subclass whose `kinds` is a
    subclass of `DType` reads and prints the types of that.

    Raises:
        TypeError, ValueError: A part is none; see `TensorShape` and `DType.of`.

    >>> spec = TensorSpec([1, 2, 3, 4], DType.bf16)
    >>> str(spec), spec.dtype, spec.size_in_bytes, len(spec.to_bytes())
    ('1x2x3x4xbf16', DType.bf16, 48, 16)
    >>> TensorSpec.parse("2xcomplex_f32") == TensorSpec([2], "complex_f32")
    True
    """

    __slots__ = ()

    _noun: ClassVar[str] = "spec"
    kinds: ClassVar[type[DType]] = DType
    """The class of the element types."""

    def __init__(self, dims: Iterable[SupportsIndex | None] | TensorRankStyle, dtype: Any) -> None:
        shape = TensorShape(dims)
        self._store(decode(shape._stored), self.kinds.of(dtype).value)

    @property
    def shape(self) -> TensorShape:
        """The shape alone."""
        return TensorShape._of(self._stored).with_auxiliary(0)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.kinds(self._stored[AUXILIARY])

    def with_dtype(self, dtype: Any) -> Self:
        """The same shape of another element type.

        >>> TensorSpec([4], "f32").with_dtype("bf16")
        TensorSpec('4xbf16')
        """
        return self.with_auxiliary(self.kinds.of(dtype).value)

    def with_auxiliary(self, value: int) -> Self:
        """The same shape with another last byte, which has to be an element type.

        Raises:
            ValueError: It is none.
        """
        return super().with_auxiliary(self.kinds(value).value)

    @property
    def size_in_bytes(self) -> int:
        """The size of a tensor, packed where an element takes less than a byte; -1 if unknown.

        Raises:
            ValueError: It is above 2**63 - 1, or the element type has no size.

        >>> [TensorSpec.parse(s).size_in_bytes for s in ("3x3xui1", "f64", "?xf32", "0x?xf32")]
        [2, 8, -1, 0]
        >>> TensorSpec.parse("2147483648x2147483648x2xf32").size_in_bytes
        Traceback (most recent call last):
        ValueError: the spec 2147483648x2147483648x2xf32 has 9223372036854775808 elements, more...
        """
        count = self.num_elements
        if count < 0:
            return -1
        try:
            return self.dtype.size_in_bytes_checked(count)
        except ValueError as e:
            raise ValueError(f"the spec {self}: {e}") from None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The spec of a text: a shape, ``x``, and the name of an element type.

        The type is the longest name that follows an ``x``; alone it is that of a scalar. So
        ``2xcomplex_f32`` is read although the name has an ``x`` in it.

        Raises:
            TypeError: ``text`` is no string.
            ValueError: It is no spec; the message names the piece, its bytes and where it is.

        >>> TensorSpec.parse("f32"), TensorSpec.parse("*xsi8"), TensorSpec.parse("?x0xcomplex_bool")
        (TensorSpec('f32'), TensorSpec('*xsi8'), TensorSpec('?x0xcomplex_bool'))
        >>> TensorSpec.parse("4xf33")
        Traceback (most recent call last):
        ValueError: no spec: '4xf33': the piece 'f33' (bytes 66 33 33) at byte 2: there is no ele...
        """
        shape, dtype = split_spec(text, cls.kinds)
        dims = [] if shape is None else read_dims("spec", text, shape)
        if shape == "":
            raise bad_piece("spec", text, "", 0, "there is no dim where one is expected")
        return cls._of(encode(None if dims is None else tuple(dims), dtype.value))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Self:
        """The spec of a stored form; the inverse of `to_bytes`.

        Raises:
            TypeError: ``data`` is no bytes.
            ValueError: It is not the form of a spec; the message names the byte.

        >>> TensorSpec.from_bytes(TensorShape([4]).to_bytes())
        Traceback (most recent call last):
        ValueError: byte 15 of a stored spec: no element type has the value 0 (0b00000000): it st...
        """
        spec = super().from_bytes(data)
        try:
            cls.kinds(spec._stored[AUXILIARY])
        except ValueError as e:
            raise ValueError(f"byte {AUXILIARY} of a stored spec: {e}") from None
        return spec

    def __str__(self) -> str:
        dims = decode(self._stored)
        return f"{print_dims(dims)}x{self.dtype.name}" if dims != () else self.dtype.name

    def _key(self) -> bytes:
        return self._stored

    def _order(self) -> tuple[Any, ...]:
        return *super()._order(), self._stored[AUXILIARY]


def split_spec(text: str, kinds: type[DType] = DType) -> tuple[str | None, DType]:
    """The shape's part of the text of a spec, and the element type.

    Args:
        text: The text: a type's name, alone or after an ``x``.
        kinds: The class of the element types.

    Returns:
        What comes before the ``x``, None where there is none; and the type.

    Raises:
        TypeError: ``text`` is no string.
        ValueError: It does not end in the name of an element type.

    >>> split_spec("?x2xcomplex_f32")
    ('?x2', DType.complex_f32)
    """
    if not isinstance(text, str):
        raise TypeError(f"the text of a spec is a string, not {text!r}")
    starts = [0] + [i + 1 for i, c in enumerate(text) if c == "x"]
    for start in starts:
        name = text[start:]
        if name in kinds._by_name or name.startswith("extended_"):
            try:
                dtype = kinds.parse(name)
            except ValueError:
                continue
            return (text[: start - 1] if start else None), dtype
    # What was meant as the type: behind the last x that is not in "complex" or "extended".
    whole = max(text.rfind("complex"), text.rfind("extended"))
    start = text.rfind("x", 0, whole if whole >= 0 else None) + 1
    name = text[start:]
    try:
        kinds.parse(name)
    except ValueError as e:
        what = str(e) if name else "a spec ends in an element type, as in 4xf32"
        raise bad_piece("spec", text, name, start, what) from None
    raise AssertionError("a name that parses was passed over")


class SpecTable(ShapeTable):
    """Many specs as one array of 16-byte elements.

    Args:
        specs: `TensorSpec`s.

    Raises:
        TypeError: One is of another kind.

    >>> table = SpecTable(TensorSpec.parse(s) for s in ("2x3xf32", "4xbf16", "*xf32"))
    >>> table.size_in_bytes(), table.dtypes, table[1]
    (array([24,  8, -1]), array([81, 80, 81], dtype=uint8), TensorSpec('4xbf16'))
    """

    __slots__ = ()
    element: ClassVar[type[TensorShape]] = TensorSpec

    def __init__(self, specs: Iterable[TensorSpec] = ()) -> None:
        given = list(specs)
        for row, spec in enumerate(given):
            if not isinstance(spec, TensorSpec):
                raise TypeError(f"row {row}: expected a TensorSpec, got {spec!r}")
        super().__init__(given)
        self._put_codes(np.array([s.auxiliary for s in given], np.uint8))

    def _put_codes(self, codes: npt.NDArray[np.uint8]) -> None:
        rows = self._rows.copy()
        rows["auxiliary"] = codes
        self._set(rows, self._outlying)

    @classmethod
    def of(cls, shapes: ShapeTable, dtypes: npt.ArrayLike) -> Self:
        """The table of shapes, and the code of an element type for each.

        Args:
            shapes: The shapes.
            dtypes: Codes of shape ``(n,)``, or one `DType` for all.

        Raises:
            ValueError: A code is no element type, or there are not as many as shapes.

        >>> SpecTable.of(ShapeTable([(2, 3), ()]), [DType.f32, DType.si8])
        SpecTable(['2x3xf32', 'si8'])
        """
        codes = np.asarray(dtypes.value if isinstance(dtypes, DType) else dtypes)
        if codes.dtype == object:
            codes = np.array([t.value if isinstance(t, DType) else t for t in codes.ravel()])
        if codes.size and (codes.dtype.kind not in "iu" or codes.min() < 0 or codes.max() > 255):
            raise ValueError(f"the codes of element types are bytes, not {dtypes!r}")
        if codes.shape not in ((), (len(shapes),)):
            raise ValueError(f"{len(shapes)} shapes have as many dtypes, and not {codes.shape}")
        new = cls._of(shapes._rows, shapes._outlying)
        new._put_codes(codes.astype(np.uint8))
        new._check_rows()
        return new

    @property
    def shapes(self) -> ShapeTable:
        """The shapes alone."""
        rows = self._rows.copy()
        rows["auxiliary"] = 0
        return ShapeTable._of(rows, self._outlying)

    @property
    def dtypes(self) -> npt.NDArray[np.uint8]:
        """The codes of the element types, shape ``(n,)``."""
        return self._rows["auxiliary"]

    def size_in_bytes(self) -> npt.NDArray[np.int64]:
        """The size of each, -1 where it is not known.

        Raises:
            ValueError: One is above 2**63 - 1, or its type has no size; the message names the
                row.
        """
        counts = self.num_elements()
        widths = code_table(self._kinds())["width"][self.dtypes].astype(np.int64)
        known = counts >= 0
        # As whole groups of 8 elements, which take as many bytes as an element has bits.
        groups, rest = np.divmod(np.where(known, counts, 0), 8)
        rest = -(-rest * widths // 8)
        wrong = known & ((widths < 0) | (groups > (MAX_DIM - rest) // np.maximum(widths, 1)))
        if wrong.any():
            row = int(np.argmax(wrong))
            spec: Any = self[row]
            try:
                _ = spec.size_in_bytes
            except ValueError as e:
                raise ValueError(f"row {row}: {e}") from None
        return np.where(known, groups * widths + rest, -1)

    @classmethod
    def _from_elements(cls, shapes: list[TensorShape]) -> Self:
        new = super()._from_elements(shapes)
        new._put_codes(np.array([s.auxiliary for s in shapes], np.uint8))
        return new

    @classmethod
    def _kinds(cls) -> type[DType]:
        return getattr(cls.element, "kinds", DType)

    def _sort_keys(self) -> list[npt.NDArray[Any]]:
        return [self.dtypes, *super()._sort_keys()]

    def _check_rows(self) -> None:
        """Refuses rows that have no element type."""
        bad = ~code_table(self._kinds())["valid"][self.dtypes]
        if bad.any():
            row = int(np.argmax(bad))
            form = bytes(FORM - 1) + self.dtypes[row : row + 1].tobytes()
            try:
                self.element.from_bytes(form)
            except ValueError as e:
                raise ValueError(f"row {row}: {e}") from None
