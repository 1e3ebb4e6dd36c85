# SPDX-License-Identifier: Apache-2.0
"""Programs for `test_differential.py`: Python text over `ops`, and a NumPy function per line."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

F64, F32, F16 = [np.dtype(d) for d in ("float64", "float32", "float16")]
BF16 = np.dtype(ml_dtypes.bfloat16)
I8, I32, I64, U8, U32 = [np.dtype(d) for d in ("int8", "int32", "int64", "uint8", "uint32")]
BOOL = np.dtype(bool)
FLOATS, INTS = (F32, F64, BF16, F16), (I32, I64, I8, U8, U32)
# How far a result may be off, relative to itself and to the largest operand.
LOOSE = {F64: 1e-12, F32: 2e-5, F16: 2**-8, BF16: 2**-5}
# The bits of the integers that a float or an integer holds.
BITS = {F64: 53, F32: 24, F16: 11, BF16: 8, BOOL: 1, I8: 7, U8: 8, I32: 31, U32: 32, I64: 63}
LARGEST = 200  # elements of an operand of an op that makes more of them

Array = np.ndarray[Any, Any]


# ---------------------------------------------------------------- programs


@dataclasses.dataclass(frozen=True)
class Size:
    """A dimension: a sum of products of names, and its size in this program."""

    terms: frozenset[tuple[tuple[str, ...], int]]
    size: int = dataclasses.field(compare=False)

    @classmethod
    def of(cls, size: int, name: str | None = None) -> "Size":
        if name is not None:
            return cls(frozenset({((name,), 1)}), size)
        return cls(frozenset({((), size)} if size else ()), size)

    @property
    def static(self) -> bool:
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


@dataclasses.dataclass
class Value:
    """A value of a program: its name in the text, and what it is for the drawn inputs."""

    name: str
    dims: list[Size]
    array: Array
    exact: bool = True
    loose: float = 0.0

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def is_float(self) -> bool:
        return self.dtype in LOOSE

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclasses.dataclass
class Step:
    """The results of a line of the text, their operands, and the same in NumPy."""

    results: list[Value]
    operands: list[Value]
    reference: Callable[..., Any]


class Program:
    """Built while it is drawn; ``repr`` is its text."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.symbols: dict[str, Size] = {}
        self.inputs: list[tuple[Value, bool]] = []
        self.lines: list[str] = []
        self.steps: list[Step] = []
        self.pool: list[Value] = []
        self.buffers: dict[str, Value] = {}
        self.count = 0

    def __repr__(self) -> str:
        given = [
            f"{v.name} = np.array({v.array.tolist()}, {v.dtype.name!r}).reshape({v.array.shape})"
            f"  # {'buffer' if is_buffer else 'tensor'} [{', '.join(map(str, v.dims))}]"
            for v, is_buffer in self.inputs
        ]
        sizes = [f"{name} = Dim({name!r})  # {s.size}" for name, s in self.symbols.items()]
        return "\n".join(["", *sizes, *given, *self.lines, ""])

    def add_input(self, value: Value, is_buffer: bool = False) -> None:
        self.inputs.append((value, is_buffer))
        if is_buffer:
            self.buffers[value.name] = value
        else:
            self.pool.append(value)

    def chance(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, *wanted: Callable[[Value], bool], among: Sequence[Value] = ()) -> Value | None:
        found = [v for v in among or self.pool if all(w(v) for w in wanted)][::-1]
        return self.draw(st.sampled_from(found[:3] + found)) if found else None

    def some(self, *wanted: Callable[[Value], bool]) -> Value:
        """A value of at most `LARGEST` elements; there is always an input."""
        return self.pick(small, *wanted) or self.pool[0]

    def floating(self, exact: bool = False) -> Value:
        wanted = [is_exact] if exact else []
        x = self.pick(small, lambda v: v.is_float, *wanted)
        return x or self.cast(self.some(is_exact), self.chance(*FLOATS))

    def ranked(self, x: Value, least: int = 1) -> Value:
        """``x`` with at least that many axes."""
        while x.rank < least:
            axis = self.number(-x.rank - 1, x.rank)
            at = axis % (x.rank + 1)
            dims = [*x.dims[:at], Size.of(1), *x.dims[at:]]
            x = self.emit(f"ops.unsqueeze({x.name}, {axis})", [x],
                          lambda a, axis=axis: np.expand_dims(a, axis), dims)  # fmt: skip
        return x

    def cast(self, x: Value, dtype: np.dtype[Any]) -> Value:
        return self.emit(
            f"ops.cast({x.name}, DType.{dtype.name})", [x], lambda a: a, x.dims, dtype=dtype
        )

    def tame(self, x: Value, low: float = -8, high: float = 8, always: bool = False) -> Value:
        """``x`` clipped where it is a float that may not be in range."""
        finite = widened(x.array)[np.isfinite(widened(x.array))] if x.is_float else np.zeros(0)
        if not x.is_float or not (always or (finite.size and np.abs(finite).max() > high)):
            return x
        return self.emit(f"ops.max(ops.min({x.name}, {high}), {low})", [x],
                         lambda a: np.clip(a, low, high), x.dims)  # fmt: skip

    def emit(self, text: str, operands: list[Value], reference: Callable[..., Any],
             dims: list[Size], exact: bool = True, dtype: Any = None) -> Value:  # fmt: skip
        """A line with one result, of the first operand's dtype if none is given."""
        dtype = np.dtype(dtype or operands[0].dtype)
        (result,) = self.emit_all(
            text, operands, lambda *a: [reference(*a)], [dims], exact, dtype, one=True
        )
        return result

    def emit_all(self, text: str, operands: list[Value], reference: Callable[..., Any],
                 dims: list[list[Size]], exact: bool, dtype: Any,
                 one: bool = False) -> list[Value]:  # fmt: skip
        with np.errstate(all="ignore"):
            wanted = reference(*[widened(v.array) for v in operands])
        results = []
        exact = exact and all(v.exact for v in operands)
        for want, d in zip(wanted, dims, strict=True):
            array = converted(want, dtype)
            assert array.shape == tuple(s.size for s in d), (text, array.shape, d)
            self.count += 1
            value = Value(f"v{self.count}", list(d), array)
            if value.is_float:
                value.exact = exact and is_representable(want, array)
                value.loose = max([LOOSE[value.dtype], *[v.loose for v in operands if not v.exact]])
            else:
                assert all(v.exact for v in operands), f"{text} jumps"
            results.append(value)
        names = ", ".join(v.name for v in results)
        self.lines.append(f"{names if one else f'[{names}]'} = {text}")
        self.steps.append(Step(results, operands, reference))
        self.pool += results
        return results


def small(v: Value) -> bool:
    return v.array.size <= LARGEST


def is_exact(v: Value) -> bool:
    return v.exact


def widened(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype in LOOSE else array


def converted(want: Any, dtype: np.dtype[Any]) -> Array:
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


def literal(p: Program, dtype: np.dtype[Any]) -> Value:
    """A Python number that stands for an operand of that dtype."""
    n: Any = p.chance(2, 1, 3, 0, -1, -2)
    if dtype == BOOL:
        n = n > 0
    elif dtype in LOOSE:
        n = p.chance(0.5, 2.0, -1.5, 0.0, 3, -1, 0.25)
    elif dtype.kind == "u":
        n = abs(n)
    return Value(repr(n), [], np.array(n, dtype))


def constant(values: Array) -> str:
    return f"ops.constant(np.array({values.tolist()}, {values.dtype.name!r}), device=CPU)"
