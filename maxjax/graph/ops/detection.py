# SPDX-License-Identifier: Apache-2.0
"""Regions of images: their features pooled to one size, and the best of overlapping boxes."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import Dim, DimLike, StaticDim
from maxjax.graph.op import Counted, Op, refused
from maxjax.graph.ops._index import known_dims, known_size
from maxjax.graph.ops._operands import int_of, same_device, shape_of, tensor
from maxjax.graph.ops._unary import wide_dtype
from maxjax.graph.ops._window import holds
from maxjax.graph.ops.cast import convert
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType, Type
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["non_maximum_suppression", "roi_align"]

# More samples than this along an axis of one bin are not taken: a region that is not finite
# would need infinitely many.
_MOST_SAMPLES = 4096


class RoiAlign(Op):
    """Regions of images, each divided into bins, and for each bin the mean or largest sample.

    Samples lie on a regular grid within a bin: ``samples`` by ``samples`` of them, or, for 0, as
    many as there are pixels. Each is interpolated from the four pixels around it.
    """

    height: int
    width: int
    scale: float
    samples: int
    aligned: bool
    mode: str

    def infer(self, x: TensorType, rois: TensorType) -> TensorType:
        if len(x.shape) != 4:
            raise ValueError(f"the input must have rank 4, not {len(x.shape)}")
        if len(rois.shape) != 2 or (isinstance(rois.shape[1], StaticDim) and rois.shape[1] != 5):
            raise ValueError(f"the regions must be of shape (M, 5), not {rois.shape.brief()}")
        for what, t in (("input", x), ("regions", rois)):
            if not t.dtype.is_float():
                raise ValueError(f"the {what} must be floats, not {t.dtype.name}; cast them")
        if any(n == 0 for n in x.shape[:3]) and rois.shape[0] != 0:
            raise ValueError(_no_pixels(x.shape.brief()))
        shape = Shape([rois.shape[0], StaticDim(self.height), StaticDim(self.width), x.shape[3]])
        return TensorType._of(x.dtype, shape, same_device(x, rois))

    def lower(self, x: jax.Array, rois: jax.Array) -> jax.Array:
        holds(lambda: rois.shape[1] == 5, f"a region has {rois.shape[1]} numbers instead of 5")
        dtype, m = DType.of(x.dtype), rois.shape[0]
        shape = (m, self.height, self.width, x.shape[3])
        if _is_empty(shape):
            return jnp.zeros(shape, x.dtype)
        holds(lambda: not _is_empty(x.shape), _no_pixels(x.shape))
        wide = _wide(x, rois)
        x, rois = x.astype(wide), rois.astype(wide)
        image = convert(jnp.clip(rois[:, 0], 0, x.shape[0] - 1), DType.int64)
        rows = self._grid(rois[:, 2], rois[:, 4], self.height)
        columns = self._grid(rois[:, 1], rois[:, 3], self.width)
        total = rows.samples * columns.samples
        is_mean = self.mode == "AVG"

        def sample(i: Any, state: jax.Array) -> jax.Array:
            i = jnp.asarray(i, jnp.int64)
            per_row = jnp.maximum(columns.samples, 1)
            corners = _corners(x, image, rows.places(i // per_row), columns.places(i % per_row))
            if is_mean:
                new = state + (corners[0] + corners[1] + corners[2] + corners[3])
            else:
                new = functools.reduce(jnp.maximum, corners, state)
            return jnp.where((i < total)[:, None, None, None], new, state)

        many = self.samples**2 if self.samples else jnp.max(total)
        start = jnp.full(shape, 0 if is_mean else -jnp.inf, wide)
        state = lax.fori_loop(0, many, sample, start)
        if is_mean:
            state = state / jnp.maximum(total, 1).astype(wide)[:, None, None, None]
        else:
            state = jnp.where((total > 0)[:, None, None, None], state, 0)
        return convert(state, dtype)

    def _grid(self, first: jax.Array, last: jax.Array, bins: int) -> _Grid:
        size = (last - first) * self.scale
        if not self.aligned:
            size = jnp.maximum(size, 1)
        size = size / bins
        if self.samples:
            samples = jnp.full(size.shape, self.samples, jnp.int64)
        else:
            samples = convert(jnp.clip(jnp.ceil(size), 0, _MOST_SAMPLES), DType.int64)
        return _Grid(first * self.scale - (0.5 if self.aligned else 0.0), size, samples, bins)


@dataclasses.dataclass(frozen=True, slots=True)
class _Grid:
    """Along one axis, for each region: where it starts, the size of its bins, samples per bin."""

    start: jax.Array
    size: jax.Array
    samples: jax.Array
    bins: int

    def places(self, i: jax.Array) -> jax.Array:
        """Where sample ``i`` of each region is in each of its bins, ``(M, bins)``."""
        dtype = self.start.dtype
        within = (i.astype(dtype) + 0.5) / jnp.maximum(self.samples, 1).astype(dtype)
        steps = jnp.arange(self.bins, dtype=dtype)[None, :] + within[:, None]
        return self.start[:, None] + self.size[:, None] * steps


def _corners(
    x: jax.Array, image: jax.Array, rows: jax.Array, columns: jax.Array
) -> list[jax.Array]:
    """The four pixels around each place, weighted by how near they are; 0 outside of the image."""
    tops, bottoms = _neighbours(rows, x.shape[1])
    lefts, rights = _neighbours(columns, x.shape[2])
    found = []
    for row, row_weight in (tops, bottoms):
        for column, column_weight in (lefts, rights):
            weight = row_weight[:, :, None] * column_weight[:, None, :]
            pixels = x[image[:, None, None], row[:, :, None], column[:, None, :]]
            # An infinite pixel that does not count is not 0 * inf.
            weight = weight[..., None]
            found.append(jnp.where(weight == 0, 0, weight * pixels))
    return found


def _neighbours(places: jax.Array, size: Any) -> list[tuple[jax.Array, jax.Array]]:
    """The elements before and after each place, and their weights.

    A place up to one pixel outside belongs to the border; farther out, all weights are 0.
    """
    dtype = places.dtype
    last = jnp.asarray(size, jnp.int64) - 1
    inside = (places >= -1) & (places <= (last + 1).astype(dtype))
    place = jnp.where(inside, jnp.maximum(places, 0), 0)
    before = jnp.minimum(convert(place, DType.int64), last)
    after = jnp.minimum(before + 1, last)
    share = place - before.astype(dtype)
    return [(before, jnp.where(inside, 1 - share, 0)), (after, jnp.where(inside, share, 0))]


def _no_pixels(shape: Any) -> str:
    return f"there are regions, but no pixels in {shape}"


class NonMaximumSuppression(Op):
    """Of boxes that overlap too much, those with the highest scores, for each class.

    Operands are the boxes, their scores, and three scalars: at most how many per class, above
    which overlap a box goes, and above which score it counts. The result has ``out_dim`` rows,
    however many boxes there are: what is too many is cut off, what is missing is zeros.
    """

    out_dim: Dim

    def infer(
        self,
        boxes: TensorType,
        scores: TensorType,
        most: TensorType,
        overlap: TensorType,
        least: TensorType,
    ) -> TensorType:
        for what, t in (("boxes", boxes), ("scores", scores)):
            if len(t.shape) != 3:
                raise ValueError(f"the {what} must have rank 3, not {len(t.shape)}")
        for what, t in (
            ("boxes", boxes),
            ("scores", scores),
            ("iou_threshold", overlap),
            ("score_threshold", least),
        ):
            if not t.dtype.is_float():
                raise ValueError(f"{what} must be floats, not {t.dtype.name}")
        if not most.dtype.is_integral():
            raise ValueError(
                f"max_output_boxes_per_class must be an integer, not {most.dtype.name}"
            )
        for t in (most, overlap, least):
            if t.shape:
                raise ValueError(f"the limit and the thresholds must be scalars, got {t.brief()}")
        for a, b, problem in _wants(boxes.shape, scores.shape):
            if isinstance(a, StaticDim) and isinstance(b, StaticDim) and a != b:
                raise ValueError(problem)
        if isinstance(self.out_dim, StaticDim) and self.out_dim.dim < 0:
            raise ValueError(f"out_dim cannot be negative, got {self.out_dim}")
        shape = Shape([self.out_dim, StaticDim(3)])
        return TensorType._of(DType.int64, shape, same_device(boxes, scores))

    def at(self, dims: Mapping[str, Any]) -> Op:
        return NonMaximumSuppression(*known_dims((self.out_dim,), dims))

    @property
    def new_dims(self) -> tuple[Any, ...]:
        return (self.out_dim,)

    def counted(
        self, known: Container[str], types: Sequence[Type], kernel: Callable[[str], Any]
    ) -> Counted | None:
        # The boxes are chosen once: all there might be, of which the rest takes the first.
        if super().counted(known, types, kernel) is None:
            return None
        names = tuple(p.name for p in self.out_dim.parameters)
        return Counted(names, _AllBoxes(), _FirstBoxes(self.out_dim))

    def lower(self, *operands: jax.Array) -> jax.Array:
        return self.chosen(known_size(self.out_dim), *operands)[0]

    @staticmethod
    def chosen(
        rows: Any,
        boxes: jax.Array,
        scores: jax.Array,
        most: jax.Array,
        overlap: jax.Array,
        least: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """The chosen boxes as that many rows, and how many there are."""
        for a, b, problem in _wants(boxes.shape, scores.shape):
            holds(lambda a=a, b=b: a == b, problem)
        batch, classes, n = scores.shape
        if _is_empty((*scores.shape, rows)):
            return jnp.zeros((rows, 3), jnp.int64), jnp.zeros((), jnp.int64)
        wide = _wide(boxes, scores, overlap, least)
        boxes, scores, overlap, least = (a.astype(wide) for a in (boxes, scores, overlap, least))
        limit = convert(most, DType.int64)

        def of_class(boxes: jax.Array, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
            return _suppress(boxes, scores, limit, overlap, least)

        of_image = jax.vmap(of_class, in_axes=(None, 0))
        chosen, index = jax.vmap(of_image)(boxes, scores)
        where = [lax.broadcasted_iota(jnp.int64, chosen.shape, axis) for axis in (0, 1)]
        found = jnp.reshape(jnp.stack([*where, index], axis=-1), (batch * classes * n, 3))
        chosen = jnp.reshape(chosen, (batch * classes * n,))
        places = jnp.cumsum(chosen, dtype=jnp.int64) - 1
        places = jnp.where(chosen, places, jnp.asarray(rows, jnp.int64))
        result = jnp.zeros((rows, 3), jnp.int64).at[places].set(found, mode="drop")
        return result, jnp.sum(chosen, dtype=jnp.int64)


class _AllBoxes(Op, abstract=True):
    """How many boxes are chosen, and they in the first of as many rows as there are scores."""

    mnemonic = NonMaximumSuppression.mnemonic

    def infer(self, boxes: TensorType, scores: TensorType, *limits: TensorType) -> Any:
        rows = functools.reduce(lambda a, b: a * b, scores.shape)
        return (
            TensorType._of(DType.int64, Shape([]), DeviceRef.CPU()),
            TensorType._of(DType.int64, Shape([rows, StaticDim(3)]), same_device(boxes, scores)),
        )

    def lower(self, boxes: jax.Array, scores: jax.Array, *limits: jax.Array) -> Any:
        rows = math.prod(scores.shape)
        found, count = NonMaximumSuppression.chosen(rows, boxes, scores, *limits)
        return count, found


class _FirstBoxes(Op, abstract=True):
    """The first ``out_dim`` rows; zeros where there are fewer."""

    mnemonic = NonMaximumSuppression.mnemonic
    out_dim: Dim

    def infer(self, rows: TensorType) -> TensorType:
        return TensorType._of(rows.dtype, Shape([self.out_dim, StaticDim(3)]), rows.device)

    def lower(self, rows: jax.Array) -> jax.Array:
        count: Any = self.out_dim
        if _is_empty(rows.shape):
            return jnp.zeros((count, 3), jnp.int64)
        places = lax.iota(jnp.int64, count)
        return jnp.take(rows, places, axis=0, mode="fill", fill_value=0)


def _suppress(
    boxes: jax.Array, scores: jax.Array, limit: jax.Array, overlap: jax.Array, least: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Which boxes of one class are chosen, from the highest score down, and their indices."""
    # Of equal scores the first comes first; NaN is above no threshold.
    above = scores > least
    index = jnp.argsort(jnp.where(above, scores, -jnp.inf), stable=True, descending=True)
    above, boxes = above[index], boxes[index]
    low = jnp.minimum(boxes[:, :2], boxes[:, 2:])
    high = jnp.maximum(boxes[:, :2], boxes[:, 2:])
    area = jnp.prod(high - low, axis=1)

    def step(i: Any, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        chosen, gone, count = state
        take = above[i] & ~gone[i] & (count < limit)
        sides = jnp.minimum(high, high[i][None]) - jnp.maximum(low, low[i][None])
        both = jnp.prod(jnp.maximum(sides, 0), axis=1)
        either = area + area[i] - both
        covered = (either > 0) & (both / either > overlap)
        return chosen.at[i].set(take), gone | (covered & take), count + take.astype(jnp.int64)

    none = jnp.zeros(scores.shape, jnp.bool_)
    start = none, none, jnp.zeros((), jnp.int64)
    chosen, _, _ = lax.fori_loop(0, scores.shape[0], step, start)
    return chosen, index.astype(jnp.int64)


def _wants(boxes: Any, scores: Any) -> list[tuple[Any, Any, str]]:
    """Pairs of sizes that must be equal, and what is wrong when they are not."""
    return [
        (boxes[0], scores[0], f"there are boxes of {boxes[0]} images, and scores of {scores[0]}"),
        (boxes[1], scores[2], f"there are {boxes[1]} boxes, and {scores[2]} scores for each class"),
        (boxes[2], 4, f"a box has {boxes[2]} numbers instead of 4"),
    ]


def _is_empty(shape: tuple[Any, ...]) -> bool:
    return any(isinstance(size, int) and size == 0 for size in shape)


def _wide(*arrays: jax.Array) -> np.dtype:
    """The dtype to compute in: ``float64`` if any operand is that."""
    return max([wide_dtype(a.dtype) for a in arrays], key=lambda dtype: dtype.itemsize)


# ---------------------------------------------------------------- functions


def roi_align(
    input: TensorValueLike,
    rois: TensorValueLike,
    output_height: int,
    output_width: int,
    spatial_scale: float = 1.0,
    sampling_ratio: float = 0.0,
    aligned: bool = False,
    mode: str = "AVG",
) -> TensorValue:
    """The features of regions of images, pooled to one size without rounding their borders.

    A region is divided into bins, and a bin has a regular grid of samples, each interpolated from
    the four pixels around it (He et al., Mask R-CNN, 2017). A sample more than a pixel outside
    the image is 0.

    Args:
        input: Features of shape ``(N, H, W, C)``, floats.
        rois: Regions of shape ``(M, 5)``, floats: the image's index, which is brought into range,
            then x and y of one corner and of the other.
        output_height: How many bins a region has from top to bottom.
        output_width: How many it has from left to right.
        spatial_scale: What coordinates are multiplied by to be pixels of ``input``.
        sampling_ratio: A bin has this many samples along each axis, rounded down; with 0, as many
            as it spans pixels, rounded up, 4096 at most.
        aligned: Whether pixel centres are at halves; if not, a region is at least 1 by 1.
        mode: ``"AVG"`` for the mean of the samples; ``"MAX"`` for the largest of all the terms
            ``weight * pixel`` that they are made of, as ONNX has it.

    Returns:
        A tensor of shape ``(M, output_height, output_width, C)`` and the dtype of ``input``.

    Raises:
        TypeError: If an operand is no graph value, or a number is none or negative.
        ValueError: If a rank or dtype does not fit, ``mode`` is another, the ratio is between 0
            and 1, or there are no pixels.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> features = TensorType(DType.float32, [1, "h", "w", 256], DeviceRef.CPU())
    >>> regions = TensorType(DType.float32, ["m", 5], DeviceRef.CPU())
    >>> with Graph("g", input_types=[features, regions]) as g:
    ...     x, rois = [v.tensor for v in g.inputs]
    ...     ops.roi_align(x, rois, 7, 7, spatial_scale=1 / 16, sampling_ratio=2)
    TensorValue(float32, [m, 7, 7, 256], cpu:0)
    """
    who = "roi_align"
    x, regions = tensor(who, input), tensor(who, rois)
    types = x._type, regions._type
    height = int_of(who, "output_height", output_height, *types)
    width = int_of(who, "output_width", output_width, *types)
    if height < 0 or width < 0:
        raise refused(who, TypeError, f"the output cannot be {height} by {width}", *types)
    if mode not in ("AVG", "MAX"):
        raise refused(who, ValueError, f"mode must be 'AVG' or 'MAX', got {mode!r}", *types)
    scale, ratio = [
        _float_of(who, what, number, *types)
        for what, number in (("spatial_scale", spatial_scale), ("sampling_ratio", sampling_ratio))
    ]
    if 0 < ratio < 1 or not math.isfinite(ratio):
        sentence = f"sampling_ratio must be 0, or at least 1, got {ratio}"
        raise refused(who, ValueError, sentence, *types)
    samples = int(max(ratio, 0.0))
    return RoiAlign(height, width, scale, samples, bool(aligned), mode)(x, regions)


def _float_of(who: str, what: str, number: Any, *types: TensorType) -> float:
    if not isinstance(number, (int, float, np.number)) or isinstance(number, bool):
        raise refused(who, TypeError, f"{what} must be a number, got {number!r:.60}", *types)
    return float(number)


def non_maximum_suppression(
    boxes: TensorValueLike,
    scores: TensorValueLike,
    max_output_boxes_per_class: TensorValueLike,
    iou_threshold: TensorValueLike,
    score_threshold: TensorValueLike,
    out_dim: DimLike = "num_selected",
) -> TensorValue:
    """The boxes with the highest scores, of which no two of one class overlap too much.

    From the highest score down, of equal ones the first, a box is chosen unless its intersection
    over union with one that is chosen already is above the threshold.

    Args:
        boxes: Two opposite corners of each box, shape ``(N, B, 4)``, floats.
        scores: The score of each box for each class, shape ``(N, K, B)``, floats; a box of which
            it is NaN is never chosen.
        max_output_boxes_per_class: How many boxes are chosen of a class at most, a scalar.
        iou_threshold: The overlap above which a box is left out, a scalar.
        score_threshold: A box is left out unless its score is above this, a scalar.
        out_dim: How many rows the result has. A name that no input has stands for as many as
            there are boxes left. With a number or a dimension of an input what is too many is cut
            off, what is missing is filled with zeros.

    Returns:
        An ``int64`` tensor of shape ``(out_dim, 3)``: the index of the image, the class and the
        box, by image, then class, then score.

    Raises:
        TypeError: If an operand is no graph value.
        ValueError: If ranks, sizes or dtypes do not fit.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> cpu = DeviceRef.CPU()
    >>> of_boxes = TensorType(DType.float32, [1, "b", 4], cpu)
    >>> of_scores = TensorType(DType.float32, [1, 2, "b"], cpu)
    >>> with Graph("g", input_types=[of_boxes, of_scores]) as g:
    ...     boxes, scores = [v.tensor for v in g.inputs]
    ...     limit = ops.constant(10, DType.int64, cpu)
    ...     half = ops.constant(0.5, DType.float32, cpu)
    ...     ops.non_maximum_suppression(boxes, scores, limit, half, half, out_dim=20)
    TensorValue(int64, [20, 3], cpu:0)
    """
    who = "non_maximum_suppression"
    operands = [
        tensor(who, v)
        for v in (boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold)
    ]
    rows = shape_of(who, [out_dim], *[v._type for v in operands])[0]
    return NonMaximumSuppression(rows)(*operands)
