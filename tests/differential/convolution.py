# SPDX-License-Identifier: Apache-2.0
"""Convolutions: sums over windows, written as loops."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.differential.program import Program, as_text
from tests.differential.registry import op
from tests.differential.values import (
    FLOATS,
    NUMBERS,
    Array,
    Size,
    Value,
    finite,
    joint,
    known,
)


@dataclasses.dataclass(frozen=True)
class Slides:
    """How windows slide along an axis."""

    window: int
    stride: int
    dilation: int
    low: int
    high: int

    @property
    def span(self) -> int:
        """How many elements a window reaches over."""
        return (self.window - 1) * self.dilation + 1

    def count(self, size: int, ceil: bool = False) -> int:
        """How many windows there are."""
        room = size + self.low + self.high - self.span
        return (room + (self.stride - 1 if ceil else 0)) // self.stride + 1

    def places(self, i: int, size: int) -> list[tuple[int, int]]:
        """Of the elements of window ``i`` those inside: where in the window, where on the axis."""
        first = i * self.stride - self.low
        at = [(k, first + k * self.dilation) for k in range(self.window)]
        return [(k, place) for k, place in at if 0 <= place < size]


def slides(p: Program, size: int, most: int = 3, padding: int | None = None) -> Slides:
    """Windows of which at least one fits."""
    low, high = (p.number(0, 2), p.number(0, 2)) if padding is None else (padding, padding)
    room = size + low + high
    dilation = p.chance(1, 2)
    window = p.number(1, max(1, min(most, (room - 1) // dilation + 1)))
    return Slides(window, p.number(1, 3), dilation, low, high)


def image(p: Program, n: int, least: int = 0) -> Value:
    """Finite numbers of rank ``n + 2`` with all sizes but the first at least 1."""

    def fits(v: Value) -> bool:
        return v.rank == n + 2 and all(d.size >= max(least, i > 0) for i, d in enumerate(v.dims))

    found = p.pick(finite, fits, lambda v: v.dtype in NUMBERS, lambda v: v.array.size <= 400)
    if found is not None and p.flip():
        return p.tame(found)
    dims = [p.dim(least), *[p.dim(1) for _ in range(n)], Size.of(p.number(1, 4))]
    return p.tame(p.fresh(NUMBERS, dims=dims, finite=True))


def _correlate(x: Array, w: Array, axes: Sequence[Slides], groups: int) -> Array:
    """``x`` (N, ..., C) under the filters ``w`` (..., C / groups, F)."""
    own, features = w.shape[-2], w.shape[-1] // groups
    counts = [s.count(n) for s, n in zip(axes, x.shape[1:-1], strict=True)]
    pads = [(0, 0), *[(s.low, s.high) for s in axes], (0, 0)]
    x = np.pad(x, pads)
    out = np.zeros((x.shape[0], *counts, w.shape[-1]), x.dtype)
    for place in np.ndindex(*counts):
        at = [slice(i * s.stride, i * s.stride + s.span, s.dilation)
              for i, s in zip(place, axes, strict=True)]  # fmt: skip
        window = x[(slice(None), *at)]
        for g in range(groups):
            part = window[..., g * own : (g + 1) * own]
            chosen = slice(g * features, (g + 1) * features)
            summed = list(range(len(axes) + 1))
            out[(slice(None), *place, chosen)] = np.tensordot(
                part, w[..., chosen], ([i + 1 for i in summed], summed)
            )
    return out


def _bias(p: Program, features: Size, dtype: np.dtype[Any]) -> tuple[str, list[Value]]:
    """What is written for a bias, and the operand that it is or is not."""
    kind = p.chance("none", "value", "array")
    if kind == "none":
        return "", []
    if kind == "value" or not features.static:
        value = p.some(finite, dtypes=[dtype], dims=[features], finite=True)
        return f", bias={value.name}", [value]
    numbers = p.rng.integers(0, 4, features.size).astype(dtype)
    return f", bias={as_text(numbers)}", [Value("", [features], numbers)]


def _filter(p: Program, x: Value, dims: list[Size]) -> Value:
    fitting = [d for d in NUMBERS if joint(d, x.dtype) is not None]
    found = p.pick(finite, lambda v: v.dtype in fitting and v.dims == dims)
    return p.tame(found or p.fresh(fitting, dims=dims, finite=True))


def _layouts(p: Program, *, first: str, last: str) -> tuple[bool, bool, str]:
    """Whether the channels of the input, and those of the filter, come first."""
    image_first, filter_first = p.flip(), p.flip()
    text = ", input_layout=ConvInputLayout.NCHW" if image_first else ""
    text += f", filter_layout=FilterLayout.{first}" if filter_first else ""
    if not filter_first and p.flip():
        text += f", filter_layout=FilterLayout.{last}"
    return image_first, filter_first, text


@op("conv2d", "conv3d")
def convolution(p: Program, name: str) -> None:
    n = int(name[4])
    x = image(p, n)
    first, last = ("FCRS", "RSCF") if n == 2 else ("FCQRS", "QRSCF")
    image_first, filter_first, layouts = _layouts(p, first=first, last=last)
    batch, *rest = x.dims
    spatial, channels = (rest[1:], rest[0]) if image_first else (rest[:-1], rest[-1])
    axes = [slides(p, d.size, most=3 if n == 2 else 2) for d in spatial]
    groups = p.chance(1, *[g for g in (2, 3, 4) if channels.size % g == 0])
    own = channels if groups == 1 else Size.of(channels.size // groups)
    features = Size.of(groups * p.number(1, 2))
    windows = [Size.of(s.window) for s in axes]
    w = _filter(p, x, [features, own, *windows] if filter_first else [*windows, own, features])
    dtype = joint(x.dtype, w.dtype)
    assert dtype is not None
    bias, added = _bias(p, features, dtype)
    wide = np.dtype(np.float64) if dtype in FLOATS else dtype

    def apply(x: Array, w: Array, *bias: Array) -> Array:
        x, w = x.astype(wide), w.astype(wide)
        if image_first:
            x = np.moveaxis(x, 1, -1)
        if filter_first:
            w = np.moveaxis(w, (0, 1), (-1, -2))
        out = _correlate(x, w, axes, groups)
        return out + bias[0] if bias else out

    padding = [k for s in axes for k in (s.low, s.high)]
    text = (
        f"ops.{name}({x.name}, {w.name}, {tuple(s.stride for s in axes)}, "
        f"{tuple(s.dilation for s in axes)}, {tuple(padding)}, {groups}{bias}{layouts})"
    )
    sizes = [known(s.count(d.size), d) for s, d in zip(axes, spatial, strict=True)]
    p.emit(text, [x, w, *added], apply, [batch, *sizes, features], False, dtype)


@op("conv2d_transpose")
def conv2d_transpose(p: Program) -> None:
    x = image(p, 2)
    image_first, filter_first, layouts = _layouts(p, first="CFRS", last="RSCF")
    batch, *rest = x.dims
    spatial, channels = (rest[1:], rest[0]) if image_first else (rest[:-1], rest[-1])
    axes, more = [], []
    for d in spatial:
        window, stride, dilation = p.number(1, 3), p.number(1, 3), p.chance(1, 2)
        added = p.number(0, stride - 1)
        made = (d.size - 1) * stride + (window - 1) * dilation + 1 + added
        low = p.number(0, min(2, made - 1))
        high = p.number(0, min(2, made - 1 - low))
        axes.append(Slides(window, stride, dilation, low, high))
        more.append(added)
    features = Size.of(p.number(1, 3))
    windows = [Size.of(s.window) for s in axes]
    dims = [channels, features, *windows] if filter_first else [*windows, features, channels]
    w = _filter(p, x, dims)
    dtype = joint(x.dtype, w.dtype)
    assert dtype is not None
    bias, added_bias = _bias(p, features, dtype)
    wide = np.dtype(np.float64) if dtype in FLOATS else dtype
    sizes = [
        (d.size - 1) * s.stride + s.span + k - s.low - s.high
        for s, d, k in zip(axes, spatial, more, strict=True)
    ]

    def apply(x: Array, w: Array, *bias: Array) -> Array:
        x, w = x.astype(wide), w.astype(wide)
        if image_first:
            x = np.moveaxis(x, 1, -1)
        if filter_first:
            w = np.moveaxis(w, (0, 1), (-1, -2))
        rows, columns = axes
        whole = [n + s.low + s.high for n, s in zip(sizes, axes, strict=True)]
        out = np.zeros((x.shape[0], *whole, w.shape[-2]), wide)
        for i, j, r, q in np.ndindex(*x.shape[1:3], *w.shape[:2]):
            at = i * rows.stride + r * rows.dilation, j * columns.stride + q * columns.dilation
            out[:, *at] += x[:, i, j] @ w[r, q].T
        out = out[:, rows.low : rows.low + sizes[0], columns.low : columns.low + sizes[1]]
        out = out + bias[0] if bias else out
        return np.moveaxis(out, -1, 1) if image_first else out

    padding = tuple(k for s in axes for k in (s.low, s.high))
    text = (
        f"ops.conv2d_transpose({x.name}, {w.name}, {tuple(s.stride for s in axes)}, "
        f"{tuple(s.dilation for s in axes)}, {padding}, {tuple(more)}{bias}{layouts})"
    )
    made_dims = [known(n, d) for n, d in zip(sizes, spatial, strict=True)]
    out = [batch, features, *made_dims] if image_first else [batch, *made_dims, features]
    p.emit(text, [x, w, *added_bias], apply, out, False, dtype)
