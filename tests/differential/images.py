# SPDX-License-Identifier: Apache-2.0
"""Pooling, folding and resizing, written as loops over exact positions."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tests.differential.convolution import Slides, image, slides
from tests.differential.program import Program, texts
from tests.differential.registry import op
from tests.differential.values import (
    ALL,
    I16,
    NUMBERS,
    Array,
    Size,
    Type,
    Value,
    finite,
    known,
    quotient,
    sizes,
)

# ---------------------------------------------------------------- windows


def _spread(p: Program, a: int, b: int) -> str:
    """Two numbers, as one at times where they are equal."""
    return str(a) if a == b and p.flip() else str((a, b))


def _steps(p: Program, axes: list[Slides]) -> str:
    rows, columns = axes
    return ", ".join(
        _spread(p, getattr(rows, name), getattr(columns, name))
        for name in ("stride", "dilation", "low")
    )


def _windows(a: Array, axes: list[Slides], counts: list[int]) -> Any:
    """For each window its place and the elements of it that are inside, (N, elements, C)."""
    for i, j in np.ndindex(*counts):
        rows = [at for _, at in axes[0].places(i, a.shape[1])]
        columns = [at for _, at in axes[1].places(j, a.shape[2])]
        inside = a[:, rows][:, :, columns]
        yield (slice(None), i, j), inside.reshape(a.shape[0], len(rows) * len(columns), a.shape[3])


@op("max_pool2d", "avg_pool2d")
def pool(p: Program, name: str) -> None:
    x = image(p, 2)
    batch, *spatial, channels = x.dims
    ceil = p.flip()
    if p.number(0, 4) == 4:
        # The whole image, whatever its size.
        axes = [Slides(d.size, 1, 1, 0, 0) for d in spatial]
        kernel = f"({spatial[0]}, {spatial[1]})"
    else:
        axes = [slides(p, d.size, padding=p.number(0, 2)) for d in spatial]
        kernel = f"({axes[0].window}, {axes[1].window})"
    counts = [s.count(d.size, ceil) for s, d in zip(axes, spatial, strict=True)]
    is_max = name == "max_pool2d"
    whole = p.flip()

    def apply(a: Array) -> Array:
        lowest = -np.inf if a.dtype.kind == "f" else np.iinfo(a.dtype).min
        wide = np.uint64 if a.dtype.kind == "u" else np.int64
        out = np.empty((a.shape[0], *counts, a.shape[3]), a.dtype)
        for place, inside in _windows(a, axes, counts):
            if is_max:
                out[place] = inside.max(1, initial=lowest)
                continue
            n = axes[0].window * axes[1].window if whole else inside.shape[1]
            if a.dtype.kind == "f":
                out[place] = np.divide(inside.sum(1), n)
            else:
                out[place] = quotient(inside.sum(1, dtype=wide), max(n, 1))
        return out

    given = f"{_steps(p, axes)}, {ceil}" + ("" if is_max else f", {whole}")
    dims = [known(n, d) for n, d in zip(counts, spatial, strict=True)]
    p.emit(f"ops.{name}({x.name}, {kernel}, {given})", [x], apply, [batch, *dims, channels],
           is_max)  # fmt: skip


@op("fold")
def fold(p: Program) -> None:
    output = [p.dim(1), p.dim(1)]
    axes = [slides(p, d.size, most=2, padding=p.number(0, 2)) for d in output]
    rows, columns = axes
    counts = [s.count(d.size) for s, d in zip(axes, output, strict=True)]
    channels, area = p.number(1, 2), rows.window * columns.window
    x = p.fresh(NUMBERS, dims=[p.dim(), Size.of(channels * area), Size.of(math.prod(counts))])

    def apply(a: Array) -> Array:
        a = a.reshape(a.shape[0], channels, rows.window, columns.window, *counts)
        out = np.zeros((a.shape[0], channels, *sizes(output)), a.dtype)
        for i, j in np.ndindex(*counts):
            of_rows = rows.places(i, output[0].size)
            for (r, y), (s, z) in itertools.product(of_rows, columns.places(j, output[1].size)):
                out[:, :, y, z] += a[:, :, r, s, i, j]
        return out

    p.emit(f"ops.fold({x.name}, ({output[0]}, {output[1]}), ({rows.window}, {columns.window}), "
           f"{_steps(p, axes)})", [x], apply, [x.dims[0], Size.of(channels), *output],
           False)  # fmt: skip


# ---------------------------------------------------------------- resizing

# Weighted sums of larger integers, and of bytes those that are so little below an integer, come out
# one off: `test_resize.py`.
LARGEST_MIXED, SLACK = 2**24, Fraction(1, 2**11)
Weights = list[list[tuple[int, Any]]]


def _position(mode: int, i: int, n: int, m: int) -> Fraction:
    """Where element ``i`` of ``m`` lies among ``n``."""
    if mode == 1:
        return Fraction(i * (n - 1), m - 1) if m > 1 else Fraction(0)
    if mode == 2:
        return Fraction(i * n, m)
    return Fraction(0) if mode == 3 and m == 1 else Fraction((2 * i + 1) * n - m, 2 * m)


_ROUND: list[Callable[[Fraction], int]] = [
    lambda at: math.ceil(at - Fraction(1, 2)),
    lambda at: math.floor(at + Fraction(1, 2)),
    math.floor,
    math.ceil,
]


def _linear(at: Fraction, n: int) -> list[tuple[int, Any]]:
    at = min(max(at, Fraction(0)), Fraction(n - 1))
    low = math.floor(at)
    return [(low, 1 - (at - low)), *([(low + 1, at - low)] if at > low else [])]


def _smooth(at: Fraction, n: int, m: int) -> list[tuple[int, Any]]:
    """A triangle over as many more elements as the axis shrinks."""
    width = max(Fraction(n, m), Fraction(1))
    weights = [max(1 - abs(at - k) / width, Fraction(0)) for k in range(n)]
    return [(k, w / sum(weights)) for k, w in enumerate(weights)]


def _cubic(at: Fraction, n: int) -> list[tuple[int, Any]]:
    """Cubic convolution with a = -3 / 4; outside are the elements at the border."""
    low, a = math.floor(at), Fraction(-3, 4)
    found = []
    for k in (-1, 0, 1, 2):
        d = abs(at - low - k)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        found.append((min(max(low + k, 0), n - 1), near if d <= 1 else far))
    return found


def _mixed(a: Array, axis: int, weights: Weights) -> Array:
    """Along an axis the weighted sums; exact fractions for an array of objects."""
    exact = a.dtype == object
    a = np.moveaxis(a, axis, 0)
    out = np.zeros((len(weights), *a.shape[1:]), a.dtype)
    for i, terms in enumerate(weights):
        for k, w in terms:
            out[i] += a[k] * (w if exact else float(w))
    return np.moveaxis(out, 0, axis)


def _interpolated(a: Array, size: list[int], of: Callable[[int, int, int], Any],
                  each: bool) -> Array:  # fmt: skip
    """Axis by axis; integers in exact fractions, cut off after each axis if ``each``."""
    out = a if a.dtype.kind == "f" else a.astype(object)
    for axis, m in enumerate(size):
        n = a.shape[axis]
        if n != m:
            out = _mixed(out, axis, [of(i, n, m) for i in range(m)])
            out = _cut(out) if each and out.dtype == object else out
    return out


def _saturated(a: Array, dtype: Type) -> Array:
    """Exact fractions as integers."""
    info = np.iinfo(dtype)
    return np.clip(_cut(a), int(info.min), int(info.max)).astype(dtype)


def _is_near_whole(a: Array) -> bool:
    """Whether one of these exact fractions is so little below an integer that maxjax gives that."""
    return any(0 < math.ceil(abs(n)) - abs(n) < SLACK for n in a.flat)


_cut = np.vectorize(int, otypes=[object])


def _new_sizes(p: Program, dims: list[Size]) -> list[Size]:
    """Other sizes; of nothing comes nothing."""
    return [p.chance(Size.of(p.number(1, 6)), p.dim(), d) if d.size else d for d in dims]


def _resizable(p: Program, rank: tuple[int, int]) -> Value:
    found = p.some(finite, dtypes=NUMBERS, rank=rank, finite=True)
    if not found.is_float and np.abs(found.array.astype(float)).max(initial=0) > LARGEST_MIXED:
        numbers = p.rng.integers(0, 99, found.array.shape).astype(found.dtype)
        found = p.given(numbers, found.dims)
    return p.tame(found)


@op("resize_nearest")
def resize_nearest(p: Program) -> None:
    x = p.some(dtypes=ALL, rank=(1, 4))
    _nearest(p, x, _new_sizes(p, x.dims), p.number(0, 3), p.number(0, 3))


def _nearest(p: Program, x: Value, dims: list[Size], mode: int, rounding: int,
             text: str = "") -> None:  # fmt: skip
    def apply(a: Array) -> Array:
        for axis, (n, m) in enumerate(zip(a.shape, sizes(dims), strict=True)):
            if n != m:
                at = [_ROUND[rounding](_position(mode, i, n, m)) for i in range(m)]
                a = np.take(a, np.clip(np.array(at, int), 0, n - 1), axis)
        return a

    text = text or f"ops.resize_nearest({x.name}, {texts(dims)}, {mode}, {rounding})"
    p.emit(text, [x], apply, dims)


@op("resize_linear")
def resize_linear(p: Program) -> None:
    x = _resizable(p, (1, 4))
    mode, smooth = p.number(0, 3), p.flip()
    text = f"ops.resize_linear({{}}, {{}}, {mode}, {smooth})"
    _weighted(p, x, _new_sizes(p, x.dims), text, mode, "smooth" if smooth else "linear")


@op("resize_bicubic")
def resize_bicubic(p: Program) -> None:
    x = _resizable(p, (4, 4))
    dims = [*x.dims[:2], *_new_sizes(p, x.dims[2:])]
    _weighted(p, x, dims, "ops.resize_bicubic({}, {})", 0, "cubic")


@op("resize")
def resize(p: Program) -> None:
    x = _resizable(p, (4, 4))
    mode = p.chance("NEAREST", "BILINEAR", "BICUBIC")
    text = f"ops.resize({{}}, {{}}, ops.InterpolationMode.{mode})"
    if mode == "NEAREST":
        dims = _new_sizes(p, x.dims)
        _nearest(p, x, dims, 0, 0, text.format(x.name, texts(dims)))
    elif mode == "BILINEAR":
        _weighted(p, x, _new_sizes(p, x.dims), text, 0, "linear")
    else:
        _weighted(p, x, [*x.dims[:2], *_new_sizes(p, x.dims[2:])], text, 0, "cubic")


def _weighted(p: Program, x: Value, dims: list[Size], text: str, mode: int, kind: str) -> None:
    def weights(i: int, n: int, m: int) -> list[tuple[int, Any]]:
        at = _position(mode, i, n, m)
        if kind == "linear":
            return _linear(at, n)
        return _smooth(at, n, m) if kind == "smooth" else _cubic(at, n)

    def mixed(a: Array) -> Array:
        return _interpolated(a, sizes(dims), weights, kind == "linear")

    if not x.is_float and x.dtype.itemsize == 1 and _is_near_whole(mixed(x.array)):
        x = p.cast(x, I16)
    dtype = x.dtype
    p.emit(text.format(x.name, texts(dims)), [x],
           lambda a: mixed(a) if a.dtype.kind == "f" else _saturated(mixed(a), dtype), dims,
           False)  # fmt: skip
