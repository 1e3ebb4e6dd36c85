# SPDX-License-Identifier: Apache-2.0
"""Regions of interest and box suppression, written as plain loops."""

import math
from typing import Any

import numpy as np

from tests.differential.convolution import image
from tests.differential.program import Program, constant
from tests.differential.registry import op
from tests.differential.values import (
    F16,
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    Array,
    Size,
    Type,
    Value,
)

# ---------------------------------------------------------------- regions


def _terms(pixels: Array, y: float, x: float) -> list[Array]:
    """The four pixels around a place, times how near they are; 0 more than one outside."""
    height, width, channels = pixels.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return [np.zeros(channels)]
    y, x = max(y, 0.0), max(x, 0.0)
    top, left = min(int(y), height - 1), min(int(x), width - 1)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    v, u = y - top, x - left
    corners = [(top, left, (1 - v) * (1 - u)), (top, right, (1 - v) * u),
               (bottom, left, v * (1 - u)), (bottom, right, v * u)]  # fmt: skip
    return [pixels[i, j] * weight for i, j, weight in corners]


def _samples(first: float, last: float, scale: float, bins: int, ratio: int,
             aligned: bool) -> tuple[float, float, int]:  # fmt: skip
    """Where a region starts along an axis, the size of its bins, and samples in each."""
    size = (last - first) * scale
    size = (size if aligned else max(size, 1)) / bins
    count = ratio or max(math.ceil(size), 0)
    return first * scale - (0.5 if aligned else 0), size, count


@op("roi_align")
def roi_align(p: Program) -> None:
    x = image(p, 2, least=1)
    if not x.is_float:
        x = p.tame(p.fresh(FLOATS, dims=x.dims, finite=True))
    bins, scale = (p.chance(1, 2, 4), p.chance(2, 1)), p.chance(1.0, 0.5, 0.25, 2.0)
    ratio, aligned, mode = p.chance(0, 1, 2, 4), p.flip(), p.chance("AVG", "MAX")
    m = p.dim()
    rois = p.rng.integers(-4, 24, (m.size, 5)) / 2
    rois[:, 0] = p.rng.integers(-1, x.dims[0].size + 1, m.size)
    if ratio == 0:
        # As many samples as a power of two, for places that are exact.
        rois[:, 3:] = rois[:, 1:3] + p.rng.choice([-1, 0, 1, 2, 4, 8], (m.size, 2)) / scale
    regions = p.given(rois.astype(p.chance(F32, F64, F16)), [m, Size.of(5)])

    def apply(a: Array, rois: Array) -> Array:
        out = np.zeros((len(rois), *bins, a.shape[3]))
        for k, (index, x0, y0, x1, y1) in enumerate(rois):
            pixels = a[int(min(max(index, 0), a.shape[0] - 1))]
            top, rows, down = _samples(y0, y1, scale, bins[0], ratio, aligned)
            left, columns, across = _samples(x0, x1, scale, bins[1], ratio, aligned)
            for i, j in np.ndindex(*bins):
                found = [
                    _terms(pixels, top + rows * (i + (r + 0.5) / down),
                           left + columns * (j + (s + 0.5) / across))
                    for r, s in np.ndindex(down, across)
                ]  # fmt: skip
                if found and mode == "AVG":
                    out[k, i, j] = sum(sum(terms) for terms in found) / len(found)
                elif found:
                    out[k, i, j] = np.max([term for terms in found for term in terms], 0)
        return out

    p.emit(f"ops.roi_align({x.name}, {regions.name}, {bins[0]}, {bins[1]}, {scale}, {ratio}, "
           f"{aligned}, {mode!r})", [x, regions], apply,
           [m, Size.of(bins[0]), Size.of(bins[1]), x.dims[3]], False)  # fmt: skip


# ---------------------------------------------------------------- boxes


def _overlap(a: Array, b: Array) -> tuple[float, float]:
    """The areas of the intersection and of the union of two boxes."""
    (a0, a1), (b0, b1) = [(np.minimum(v[:2], v[2:]), np.maximum(v[:2], v[2:])) for v in (a, b)]
    both = float(np.prod(np.maximum(np.minimum(a1, b1) - np.maximum(a0, b0), 0)))
    return both, float(np.prod(a1 - a0) + np.prod(b1 - b0)) - both


def _chosen(boxes: Array, scores: Array, most: int, overlap: float, least: float) -> list[int]:
    """Of one class, from the highest score down."""
    above = [i for i in range(len(scores)) if scores[i] > least]
    kept: list[int] = []
    for i in sorted(above, key=lambda i: -scores[i]):
        areas = [_overlap(boxes[i], boxes[k]) for k in kept]
        if len(kept) < most and not any(w > 0 and v / w > overlap for v, w in areas):
            kept.append(i)
    return kept


def _number(p: Program, dtypes: list[Type], *values: Any) -> Value:
    """A scalar, as an input or a constant."""
    if p.flip():
        return p.scalar(dtypes, values)
    array = np.array(p.chance(*values), p.chance(*dtypes))
    return Value(constant(array), [], array)


@op("non_maximum_suppression")
def non_maximum_suppression(p: Program) -> None:
    batch, count, classes = p.dim(), p.dim(), p.chance(Size.of(1), Size.of(2), p.symbol())
    boxes = p.fresh((F32, F64, F16), dims=[batch, count, Size.of(4)], finite=True)
    scores = p.fresh((F32, F64, F16), dims=[batch, classes, count])
    most = _number(p, [I64, I32], 2, 1, 9, 0, -1)
    # Halves: whether an overlap is above is not a matter of rounding.
    overlap = _number(p, [F32, F64], 0.5, 0.0, 0.25, 1.0)
    least = _number(p, [F32, F64], 0.0, 0.5, -9.0)
    rows = p.chance(Size.of(p.number(0, 6)), p.symbol())

    def apply(boxes: Array, scores: Array, most: Any, overlap: Any, least: Any) -> Array:
        found = [
            (i, k, at)
            for i, k in np.ndindex(*scores.shape[:2])
            for at in _chosen(boxes[i], scores[i, k], int(most), float(overlap), float(least))
        ][: rows.size]
        return np.array([*found, *[(0, 0, 0)] * (rows.size - len(found))], int).reshape(-1, 3)

    operands = [boxes, scores, most, overlap, least]
    p.emit(f"ops.non_maximum_suppression({', '.join(v.name for v in operands)}, {rows})",
           operands, apply, [rows, Size.of(3)], dtype=I64)  # fmt: skip
