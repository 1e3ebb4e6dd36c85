# SPDX-License-Identifier: Apache-2.0
"""A program while it is drawn: Python text over ``ops``, and a NumPy function for each line."""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.differential.values import (
    ALL,
    BOOL,
    FLOATS,
    LOOSE,
    ONE,
    Array,
    Size,
    Type,
    Value,
    converted,
    is_exact,
    is_representable,
    sizes,
    small,
    widened,
)

# A size may be None where it is whatever maxjax calls it: then it is named after the result.
Dims = Sequence[Size | None]
_NAME = re.compile(r"\b(?:[a-z]\d+|[nm])\b")
_SIZES = st.sampled_from([3, 2, 4, 1, 5, 0])


@dataclasses.dataclass
class Step:
    """The results of a line of the text, their operands, and the same in NumPy."""

    results: list[Value]
    operands: list[Value]
    reference: Callable[..., Any]


class Program:
    """Built line by line; ``repr`` is its text.

    Operands come from the lines before, or are new inputs where nothing there fits, and now and
    then all the same.
    """

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.symbols = {name: Size.of(draw(_SIZES), name) for name in ("n", "m")}
        self.used: set[str] = set()
        self.known = [*self.symbols.values(), Size.of(draw(_SIZES)), Size.of(draw(_SIZES)), ONE]
        self.rng = np.random.default_rng(self.number(0, 2**24 - 1))
        self.turn = int(self.rng.integers(2**31))
        self.inputs: list[tuple[Value, bool]] = []
        self.weights: dict[str, Array] = {}
        self.lines: list[str] = []
        self.steps: list[Step] = []
        self.pool: list[Value] = []
        self.buffers: dict[str, Value] = {}
        self.drawn: Counter[str] = Counter()
        self.names: Counter[str] = Counter()

    def __repr__(self) -> str:
        return "\n".join(["", *self._given(), *self.lines, ""])

    def _given(self) -> list[str]:
        symbols = [f"{n} = Dim({n!r})  # {self.symbols[n].size}" for n in sorted(self.used)]
        inputs = [
            f"{v.name} = {as_text(v.array)}  # {'buffer' if is_buffer else 'tensor'} "
            f"{texts(v.dims)}"
            for v, is_buffer in self.inputs
        ]
        weights = [f"{n} = {as_text(a)}  # weight" for n, a in self.weights.items()]
        return [*symbols, *inputs, *weights]

    def leading_to(self, name: str) -> str:
        """The lines that a value depends on: as ``repr``, without the others."""
        needed, kept = {name}, []
        for line in [*self._given(), *self.lines][::-1]:
            left, _, _ = line.partition(" = ")
            made, used = [set(_NAME.findall(text)) for text in (left, line)]
            # A line that makes no value writes a buffer, which it names.
            writes = not any(n[0] in "vx" for n in made)
            if needed & (used if writes else made):
                needed |= used
                kept.append(line)
        return "\n".join(kept[::-1])

    def new_name(self, letter: str) -> str:
        self.names[letter] += 1
        return f"{letter}{self.names[letter]}"

    # ------------------------------------------------------------ choices

    def chance(self, *choices: Any) -> Any:
        """One of them; the first is the simplest."""
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flip(self) -> bool:
        return self.draw(st.booleans())

    def dim(self, least: int = 0) -> Size:
        """A size that other values may have as well, at least so large."""
        size = self.chance(*[d for d in self.known if d.size >= least], Size.of(max(least, 2)))
        return self.use(size)

    def symbol(self, least: int = 0) -> Size:
        """A symbolic size if there is one at least so large."""
        found = [s for s in self.symbols.values() if s.size >= least]
        return self.use(self.chance(*found)) if found else Size.of(max(least, 2))

    def use(self, size: Size) -> Size:
        """Marks a symbol as part of the program, which then has an input of that size."""
        self.used |= {name for names, _ in size.terms for name in names if name in self.symbols}
        return size

    def axis(self, x: Value, *wanted: Callable[[Size], bool]) -> int:
        """An axis of ``x``, which has one, from either end."""
        found = [i for i, d in enumerate(x.dims) if all(w(d) for w in wanted)]
        return self.chance(*found) - self.chance(0, x.rank)

    # ------------------------------------------------------------ operands

    def random(self, dtype: Type, shape: Sequence[int]) -> Array:
        """Elements of that dtype: few bits, so that arithmetic is exact for a while."""
        rng = self.rng
        if dtype == BOOL:
            return np.asarray(rng.integers(0, 2, shape), dtype)
        if dtype in LOOSE:
            array = rng.integers(-16, 17, shape) / 4
            if self.number(0, 4) == 4:
                special = rng.choice([np.nan, np.inf, -np.inf, -0.0], shape)
                array = np.where(rng.integers(0, 4, shape) == 0, special, array)
            return np.asarray(array, dtype)
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        low, high = (max(-3, least), 6) if self.number(0, 1) == 0 else (least, most)
        return np.asarray(rng.integers(low, high, shape, dtype, endpoint=True))

    def given(self, array: Array, dims: Sequence[Size] | None = None, name: str = "x") -> Value:
        """A new input with these elements; where the dims are no names, it is rebound to them."""
        dims = [Size.of(n) for n in array.shape] if dims is None else list(dims)
        plain = [d if d.static or d in self.known else Size.of(d.size) for d in dims]
        for d in plain:
            self.use(d)
        value = Value(self.new_name(name), plain, array)
        self.inputs.append((value, name == "b"))
        if name == "b":
            self.buffers[value.name] = value
            return value
        self.pool.append(value)
        if plain == dims:
            return value
        return self.emit(f"ops.rebind({value.name}, {texts(dims)})", [value], np.copy, dims)

    def fresh(
        self,
        dtypes: Sequence[Type] = ALL,
        rank: tuple[int, int] = (0, 3),
        least: int = 0,
        dims: Sequence[Size] | None = None,
        finite: bool = False,
    ) -> Value:
        """A new input, with sizes of at least ``least`` if not of the given dims."""
        dtype = self.chance(*dtypes)
        if dims is None:
            dims = [self.dim(least) for _ in range(self.number(*rank))]
        array = self.random(dtype, sizes(list(dims)))
        if finite and dtype in LOOSE:
            array = np.where(np.isfinite(widened(array)), array, 2).astype(dtype)
        return self.given(array, dims)

    def pick(self, *wanted: Callable[[Value], bool]) -> Value | None:
        """A value of the program that is as wanted, more likely one of the last."""
        found = [v for v in self.pool if all(w(v) for w in wanted)][::-1]
        return self.chance(*found[:3], *found) if found else None

    def some(self, *wanted: Callable[[Value], bool], **of: Any) -> Value:
        """A value as wanted, of few elements; ``of`` says so for a new one."""
        dtypes, rank, least, dims = [of.get(k) for k in ("dtypes", "rank", "least", "dims")]
        tests = [
            small,
            *wanted,
            lambda v: dtypes is None or v.dtype in dtypes,
            lambda v: rank is None or rank[0] <= v.rank <= rank[1],
            lambda v: least is None or all(s >= least for s in sizes(v.dims)),
            lambda v: dims is None or v.dims == list(dims),
            lambda v: not of.get("finite") or np.isfinite(v.numbers).all(),
        ]
        return (self.pick(*tests) if self.number(0, 3) else None) or self.fresh(**of)

    def floating(self, *wanted: Callable[[Value], bool], **of: Any) -> Value:
        return self.some(*wanted, dtypes=FLOATS, **of)

    def scalar(self, dtypes: Sequence[Type], values: Sequence[Any]) -> Value:
        """A value of rank 0 that is one of ``values``."""
        fits = [lambda v: v.rank == 0 and v.exact and v.dtype in dtypes and v.array in values]
        found = self.pick(*fits) if self.flip() else None
        return found or self.given(np.array(self.chance(*values), self.chance(*dtypes)))

    # ------------------------------------------------------------ lines

    def cast(self, x: Value, dtype: Type) -> Value:
        return self.emit(f"ops.cast({x.name}, DType.{dtype.name})", [x], lambda a: a, x.dims,
                         dtype=dtype)  # fmt: skip

    def tame(self, x: Value, low: float = -8, high: float = 8, always: bool = False) -> Value:
        """``x`` clipped where it is a float that may not be in range."""
        numbers = x.numbers[np.isfinite(x.numbers)] if x.is_float else np.zeros(0)
        if not x.is_float or not (always or np.abs(numbers).max(initial=0) > high):
            return x
        return self.emit(f"ops.max(ops.min({x.name}, {high}), {low})", [x],
                         lambda a: np.clip(a, low, high), x.dims)  # fmt: skip

    def emit(self, text: str, operands: list[Value], reference: Callable[..., Any], dims: Dims,
             exact: bool = True, dtype: Any = None, equal: bool = False) -> Value:  # fmt: skip
        """A line with one result, of the first operand's dtype if none is given.

        Args:
            text: What is computed, an expression.
            operands: What the function is of.
            reference: The same in NumPy; its floats are ``float64``.
            dims: Those of the result.
            exact: Whether nothing is rounded if the result has few enough bits.
            dtype: That of the result.
            equal: Whether it must equal NumPy's, though something is rounded.
        """
        dtype = np.dtype(dtype or operands[0].dtype)
        (result,) = self._emit(text, operands, lambda *a: [reference(*a)], [dims], exact, [dtype])
        self.lines.append(f"{result.name} = {text}")
        result.equal = equal
        return result

    def emit_all(self, text: str, operands: list[Value], reference: Callable[..., Any],
                 dims: Sequence[Dims], exact: bool = True,
                 dtypes: Sequence[Type] | None = None) -> list[Value]:  # fmt: skip
        """A line with a list of results, of the first operand's dtype if none are given."""
        dtypes = dtypes or [operands[0].dtype] * len(dims)
        results = self._emit(text, operands, reference, dims, exact, dtypes)
        self.lines.append(f"[{', '.join(v.name for v in results)}] = {text}")
        return results

    def _emit(
        self,
        text: str,
        operands: list[Value],
        reference: Callable[..., Any],
        dims: Sequence[Dims],
        exact: bool,
        dtypes: Sequence[Type],
    ) -> list[Value]:
        with np.errstate(all="ignore"):
            wanted = reference(*[v.numbers for v in operands])
        results = []
        exact = exact and all(map(is_exact, operands))
        for want, each, dtype in zip(wanted, dims, dtypes, strict=True):
            name, array = self.new_name("v"), converted(want, dtype)
            assert len(each) == array.ndim, (text, array.shape, each)
            named = [
                Size.of(n, f"{name}.shape[{i}]") if d is None else d
                for i, (d, n) in enumerate(zip(each, array.shape, strict=True))
            ]
            assert array.shape == tuple(sizes(named)), (text, array.shape, each)
            value = Value(name, named, array)
            if value.is_float:
                value.exact = exact and is_representable(want, array)
                value.loose = max([LOOSE[dtype], *[v.loose for v in operands if not v.exact]])
            else:
                assert all(map(is_exact, operands)), f"{text} jumps"
            results.append(value)
        self.steps.append(Step(results, operands, reference))
        self.pool += results
        return results


def literal(p: Program, dtype: Type) -> Value:
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
    """The text of an array that is part of the program."""
    return f"ops.constant({as_text(values)}, device=CPU)"


def as_text(values: Array) -> str:
    return f"np.array({values.tolist()}, {values.dtype.name!r}).reshape({values.shape})"


def texts(dims: Sequence[Size]) -> str:
    return f"[{', '.join(map(str, dims))}]"
