# SPDX-License-Identifier: Apache-2.0
"""Values of a random program: their sizes, and what is known about how exact they are."""

import dataclasses
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Type = np.dtype[Any]

F64, F32, F16 = [np.dtype(d) for d in ("float64", "float32", "float16")]
BF16 = np.dtype(ml_dtypes.bfloat16)
I8, I16, I32, I64 = [np.dtype(d) for d in ("int8", "int16", "int32", "int64")]
U8, U16, U32, U64 = [np.dtype(d) for d in ("uint8", "uint16", "uint32", "uint64")]
BOOL = np.dtype(bool)
FLOATS = (F32, F64, BF16, F16)
INTS = (I32, I64, I8, U8, U32, I16, U16, U64)
NUMBERS = (*FLOATS, *INTS)
ALL = (*NUMBERS, BOOL)
# How far a result may be off, relative to itself and to the largest operand.
LOOSE = {F64: 1e-12, F32: 2e-5, F16: 2**-8, BF16: 2**-5}
# The bits of the integers that a dtype holds all of.
BITS = {F64: 53, F32: 24, F16: 11, BF16: 8, BOOL: 1} | {
    d: 8 * d.itemsize - (d.kind == "i") for d in INTS
}
LARGEST = 200  # elements of an operand of an op that makes more of them


@dataclasses.dataclass(frozen=True)
class Size:
    """A dimension: a sum of products of names, and its size in this program."""

    terms: frozenset[tuple[tuple[str, ...], int]]
    size: int = dataclasses.field(compare=False)

    @classmethod
    def of(cls, size: int, name: str | None = None) -> "Size":
        """A number, or what ``name`` stands for in the program's text."""
        if name is not None:
            return cls(frozenset({((name,), 1)}), size)
        return cls(frozenset({((), size)} if size else ()), size)

    @property
    def static(self) -> bool:
        """Whether it is a number in the text too."""
        return all(names == () for names, _ in self.terms)

    def __add__(self, other: "Size | int") -> "Size":
        other = Size.of(other) if isinstance(other, int) else other
        sums: Counter[tuple[str, ...]] = Counter()
        for names, n in (*self.terms, *other.terms):
            sums[names] += n
        return Size(frozenset((k, n) for k, n in sums.items() if n), self.size + other.size)

    def __mul__(self, other: "Size | int") -> "Size":
        other = Size.of(other) if isinstance(other, int) else other
        sums: Counter[tuple[str, ...]] = Counter()
        for a, n in self.terms:
            for b, m in other.terms:
                sums[tuple(sorted(a + b))] += n * m
        return Size(frozenset((k, n) for k, n in sums.items() if n), self.size * other.size)

    def __str__(self) -> str:
        if self.static:
            return str(self.size)
        products = [
            " * ".join([*names, str(n)] if n != 1 or not names else names)
            for names, n in sorted(self.terms)
        ]
        return products[0] if self.terms == {((products[0],), 1)} else f"({' + '.join(products)})"


ONE = Size.of(1)


@dataclasses.dataclass
class Value:
    """A value of a program: its name in the text, and what it is for the drawn inputs.

    ``exact`` says that no way to compute it rounds anything, so that its last bit is known;
    ``loose`` how far off it may be where that is not so.
    """

    name: str
    dims: list[Size]
    array: Array
    exact: bool = True
    loose: float = 0.0
    # Whether it must be equal to what NumPy computes from its operands, even if not exact.
    equal: bool = False

    @property
    def dtype(self) -> Type:
        return self.array.dtype

    @property
    def is_float(self) -> bool:
        return self.dtype in LOOSE

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def numbers(self) -> Array:
        """The elements, floats as ``float64``."""
        return widened(self.array)

    @property
    def wide(self) -> Type:
        """The dtype of ``numbers``."""
        return F64 if self.is_float else self.dtype


def small(v: Value) -> bool:
    return v.array.size <= LARGEST


def is_exact(v: Value) -> bool:
    return v.exact


def finite(v: Value) -> bool:
    return bool(np.isfinite(v.numbers).all())


def sizes(dims: list[Size]) -> list[int]:
    return [d.size for d in dims]


def product(dims: list[Size]) -> Size:
    whole = ONE
    for d in dims:
        whole = whole * d
    return whole


def with_size(dims: list[Size], axis: int, size: Size | int) -> list[Size]:
    """A copy of ``dims`` with another size at ``axis``."""
    dims = list(dims)
    dims[axis] = Size.of(size) if isinstance(size, int) else size
    return dims


def known(size: int, *sources: Size) -> Size | None:
    """A size that follows from others: a number if they are, else whatever maxjax calls it."""
    return Size.of(size) if all(s.static for s in sources) else None


def broadcast(a: list[Size], b: list[Size]) -> list[Size] | None:
    """The dims that both stretch to, or None."""
    rank = max(len(a), len(b))
    a, b = [ONE] * (rank - len(a)) + a, [ONE] * (rank - len(b)) + b
    if any(x != y and ONE not in (x, y) for x, y in zip(a, b, strict=True)):
        return None
    return [y if x == ONE else x for x, y in zip(a, b, strict=True)]


def joint(a: Type, b: Type) -> Type | None:
    """The one of two dtypes that holds every value of the other."""
    for wide, narrow in ((a, b), (b, a)):
        if wide == narrow or narrow == BOOL:
            return wide
        if wide == BOOL or (narrow in LOOSE and wide not in LOOSE):
            continue
        signs = wide.kind == "u" and narrow.kind == "i"
        halves = {wide, narrow} == {F16, BF16}
        if BITS[wide] >= BITS[narrow] and not signs and not halves:
            return wide
    return None


def widened(array: Array) -> Array:
    """Floats as ``float64``, anything else as it is."""
    return array.astype(np.float64) if array.dtype in LOOSE else array


def quotient(sums: Array, n: int) -> Array:
    """Integers divided by a number, rounded toward zero."""
    numbers = [abs(int(s)) // n * (-1 if s < 0 else 1) for s in sums.ravel()]
    return np.array(numbers, object).reshape(sums.shape)


def converted(want: Any, dtype: Type) -> Array:
    """As documented: floats saturate, integers wrap around, what is not 0 is True."""
    want = np.asarray(want)
    with np.errstate(all="ignore"):
        if want.dtype.kind == "f" and dtype.kind in "iu":
            low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
            whole = np.trunc(np.nan_to_num(want, nan=0.0, posinf=1e30, neginf=-1e30))
            numbers = [min(max(int(n), low), high) for n in whole.ravel()]
            return np.array(numbers, dtype).reshape(want.shape)
        return (want != 0) if dtype == BOOL else want.astype(dtype)


def is_representable(want: Any, array: Array) -> bool:
    """Whether the result has few enough bits that nothing was or will be rounded on any way."""
    want = np.asarray(want)
    if want.dtype.kind not in "f":
        return bool(np.all(np.abs(want.astype(np.float64)) <= 2 ** min(BITS[array.dtype], 24)))
    least = np.abs(want[(want != 0) & np.isfinite(want)]).min(initial=1)
    same = np.array_equal(widened(array), want, equal_nan=True) and least > 1e-4
    with np.errstate(all="ignore"):
        return same and np.array_equal(want.astype(np.float32), want, equal_nan=True)


def differs(v: Value, got: Array, want: Array, operands: list[Array]) -> bool:
    """Whether ``got`` is not what NumPy says for ``v``.

    Args:
        v: The value.
        got: Its elements as maxjax computed them.
        want: As NumPy did, in the same dtype.
        operands: What both were computed from.
    """
    got, want = widened(got), widened(want)
    if v.exact or v.equal:
        return not np.array_equal(got, want, equal_nan=v.is_float)
    floats = [np.abs(o[np.isfinite(o)]) for o in operands if o.dtype == F64]
    largest = max([1.0, *[float(o.max(initial=0)) for o in floats]])
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= v.loose * (np.abs(want) + largest)
    return not np.all(near | (got == want) | (np.isnan(got) & np.isnan(want)))
