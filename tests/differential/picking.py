# SPDX-License-Identifier: Apache-2.0
"""Elements picked by index."""

from typing import Any

import numpy as np

from tests.differential.axes import has_elements, not_empty
from tests.differential.program import Program, constant
from tests.differential.registry import op
from tests.differential.values import (
    I32,
    I64,
    INTS,
    ONE,
    Array,
    Size,
    Value,
    is_exact,
    known,
    sizes,
)

# ---------------------------------------------------------------- brackets


def index(
    p: Program, dims: list[Size], new_axes: bool = True
) -> tuple[str, Any, list[Size | None]]:
    """What is written in brackets, the same for NumPy, and the dims it gives."""
    texts: list[str] = []
    entries: list[Any] = []
    out: list[Size | None] = []
    for axis, d in enumerate(dims):
        n = d.size
        if new_axes and p.number(0, 5) == 5:
            texts, entries, out = [*texts, "None"], [*entries, None], [*out, ONE]
        kinds = [":", "slice", "pair", *(["int", "value"] if n else [])]
        kind = p.chance(*kinds)
        if kind == ":":
            text, entry = ":", slice(None)
            out.append(d)
        elif kind == "int":
            entry = p.number(-n, n - 1)
            text = str(entry)
        elif kind == "value":
            k = p.number(-n - 1, n + 1)
            entry = max(0, min(n - 1, k + n if k < 0 else k))
            text = f"ops.constant({k}, DType.{p.chance('int64', 'int32')}, CPU)"
        elif kind == "slice":
            text, entry, size = _slice(p, d)
            out.append(size)
        else:
            # Of any bounds, as in Python, with the size given.
            ends = [None, *range(-n - 1, n + 2)]
            entry = slice(p.chance(*ends), p.chance(*ends), p.chance(1, -1, 2, -2))
            size = len(range(n)[entry])
            same = p.chance(Size.of(size), *[s for s in p.symbols.values() if s.size == size])
            text = f"({entry}, {p.use(same)})"
            out.append(same)
        texts.append(text)
        entries.append(entry)
        if p.number(0, 5) == 5:
            rest = list(dims[axis + 1 :])
            written = p.chance(["..."], [])
            return ", ".join([*texts, *written, ""]), (*entries, ...), [*out, *rest]
    return ", ".join([*texts, "" if texts else "..., "]), tuple(entries) or ..., out


def _slice(p: Program, d: Size) -> tuple[str, slice, Size | None]:
    """A slice that is in range, and its size."""
    n = d.size
    low = p.number(0, n)
    high = p.number(low, n)
    # From which end each bound counts says how the size depends on the dimension's.
    low_ends: list[int] = [low]
    high_ends: list[int | None] = [high]
    if low < n:
        low_ends.append(low - n)
    if high == n:
        high_ends.append(None)
    elif high > 0:
        high_ends.append(high - n)
    start: int | None = p.chance(*low_ends)
    stop: int | None = p.chance(*high_ends)
    if start == 0 and p.flip():
        start = None
    if not d.static and start is not None and start < 0 and stop is not None and stop >= 0:
        start = low
    step = p.chance(1, 1, 2, 3)
    first = d + start if start is not None and start < 0 else Size.of(start or 0)
    last = d if stop is None else Size.of(stop) if stop >= 0 else d + stop
    whole = last + first * -1
    size = whole if step == 1 else known(-(-whole.size // step), whole)
    bounds = ["" if b is None else str(b) for b in (start, stop)]
    return ":".join([*bounds, str(step)][: 3 if step > 1 else 2]), slice(start, stop, step), size


@op("slice_tensor")
def slice_tensor(p: Program) -> None:
    x = p.some(rank=(1, 3))
    text, entries, dims = index(p, x.dims)
    written = p.chance(f"{x.name}[{text}]", f"ops.slice_tensor({x.name}, [*np.s_[{text}]])")
    p.emit(written, [x], lambda a: a[entries], dims)


# ---------------------------------------------------------------- gathers


def _near(i: Array, n: int) -> Array:
    """The nearest index in range."""
    if i.dtype.kind == "u":
        i = np.minimum(i.astype(np.uint64), 2**62)
    i = i.astype(np.int64)
    return np.clip(np.where(i < 0, i + n, i), 0, max(n - 1, 0))


def places(p: Program, dims: list[Size], low: int, high: int) -> Value:
    """A tensor of integers in a range, as an input or part of the program."""
    numbers = p.rng.integers(low, high, sizes(dims), endpoint=True)
    numbers = numbers.astype(p.chance(I64, I32))
    if p.flip() and all(d.static for d in dims):
        return Value(constant(numbers), dims, numbers)
    return p.given(numbers, dims)


@op("gather")
def gather(p: Program) -> None:
    x = p.some(has_elements, rank=(1, 3), least=1)
    axis = p.axis(x, not_empty)
    at = axis % x.rank
    n = x.dims[at].size
    i = p.pick(lambda v: v.dtype in INTS and v.array.size * x.array.size <= 2000)
    if i is None or p.flip():
        i = places(p, [p.dim() for _ in range(p.number(0, 2))], -n - 1, n + 1)
    p.emit(f"ops.gather({x.name}, {i.name}, {axis})", [x, i],
           lambda a, i: np.take(a, _near(i, n), at),
           [*x.dims[:at], *i.dims, *x.dims[at + 1 :]])  # fmt: skip


@op("gather_nd")
def gather_nd(p: Program) -> None:
    x = p.some(has_elements, lambda v: 0 not in sizes(v.dims), rank=(1, 4), least=1)
    batch = p.number(0, x.rank - 1)
    depth = p.number(0, x.rank - batch)
    picked = sizes(x.dims)[batch : batch + depth]
    many = [p.dim() for _ in range(p.number(0, 1))]
    dims = [*x.dims[:batch], *many]
    i = places(p, [*dims, Size.of(depth)], -3, 3)

    def apply(a: Array, i: Array) -> Array:
        out = np.empty((*i.shape[:-1], *a.shape[batch + depth :]), a.dtype)
        for place in np.ndindex(i.shape[:-1]):
            near = [int(_near(k, n)) for k, n in zip(i[place], picked, strict=True)]
            out[place] = a[(*place[:batch], *near)]
        return out

    given = f", batch_dims={batch}" if batch else ""
    p.emit(f"ops.gather_nd({x.name}, {i.name}{given})", [x, i], apply,
           [*dims, *x.dims[batch + depth :]])  # fmt: skip


# ---------------------------------------------------------------- matrices


@op("band_part")
def band_part(p: Program) -> None:
    x = p.some(rank=(2, 4))
    limits = []
    for d in x.dims[-2:]:
        most = max(d.size, 1) - 1 if d.static else d.size + 1
        limits.append(p.chance(None, -1, *range(most + 1)))
    exclude = p.flip()

    def apply(a: Array) -> Array:
        below = np.arange(a.shape[-2])[:, None] - np.arange(a.shape[-1])
        inside = np.ones(below.shape, bool)
        if limits[0] not in (None, -1):
            inside &= below <= limits[0]
        if limits[1] not in (None, -1):
            inside &= -below <= limits[1]
        return np.where(inside != exclude, a, np.zeros((), a.dtype))

    p.emit(f"ops.band_part({x.name}, {limits[0]}, {limits[1]}, {exclude})", [x], apply, x.dims)


@op("nonzero")
def nonzero(p: Program) -> None:
    x = p.some(is_exact, rank=(1, 3))
    rows = p.chance(Size.of(p.number(0, 7)), p.symbol())

    def apply(a: Array) -> Array:
        found = np.argwhere(a)[: rows.size]
        missing = np.full((rows.size - len(found), a.ndim), a.shape)
        return np.concatenate([found, missing])

    p.emit(f"ops.nonzero({x.name}, {rows})", [x], apply, [rows, Size.of(x.rank)],
           dtype=I64)  # fmt: skip
