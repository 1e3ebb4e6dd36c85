# SPDX-License-Identifier: Apache-2.0
"""Placement rules of the ops that are left: images, signals, bands and quantized weights."""

from __future__ import annotations

from typing import Any

from maxjax.experimental.sharding.action import AxisAssignment
from maxjax.experimental.sharding.per_shard_dim import make_per_shard_dim
from maxjax.experimental.sharding.placements import sharding_axes
from maxjax.experimental.sharding.rules._registry import (
    axis_of,
    kept_axes,
    localizes,
    places,
    whole,
)
from maxjax.experimental.sharding.types import TensorLayout

__all__ = [
    "as_interleaved_complex_rule",
    "band_part_rule",
    "batch_rule",
    "dequantize_rule",
    "irfft_rule",
]


@places("band_part")
def band_part_rule(x: TensorLayout, *extra: Any, **kwargs: Any) -> list[AxisAssignment]:
    """Axes but the last two may be split, and a sum stays one."""
    return kept_axes(((a, a) for a in range(x.rank - 2)), linear=True)


@places("as_interleaved_complex")
def as_interleaved_complex_rule(
    x: TensorLayout, *extra: Any, **kwargs: Any
) -> list[AxisAssignment]:
    """Axes but the last may be split, and a sum stays one."""
    return kept_axes(((a, a) for a in range(x.rank - 1)), linear=True)


@places("irfft")
def irfft_rule(
    input_tensor: TensorLayout, n: Any = None, axis: int = -1, *extra: Any, **kwargs: Any
) -> list[AxisAssignment]:
    """Axes but the one that is transformed may be split, and a sum stays one.

    The last axis of an input whose last axis holds real and imaginary parts is not split either.
    """
    own = axis_of(axis, input_tensor.rank)
    axes = [a for a in range(input_tensor.rank) if a not in (own, input_tensor.rank - 1)]
    return kept_axes([(a, a) for a in axes], linear=True)


@places("fold", "resize", "resize_bicubic", "resize_linear", "resize_nearest")
def batch_rule(input: TensorLayout, *extra: Any, **kwargs: Any) -> list[AxisAssignment]:
    """The first axis may be split, and a sum stays one.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> len(batch_rule(TensorLayout(DType.float32, [2, 3, 8, 8], CPU()), [2, 3, 4, 4]))
    3
    """
    return kept_axes([(0, 0)], linear=True)


def _sized(name: str) -> Any:
    """What gives the size of a resized image: its first axis is the batch, which may be split."""

    def localize(input: TensorLayout, *extra: Any, **kwargs: Any) -> dict[str, Any]:
        sizes = list(extra[0] if extra else kwargs[name])
        if 0 not in sharding_axes(input.placements):
            return {}
        parts = [shape[0] for shape in input.local_shapes]
        return {name: [make_per_shard_dim(parts, global_dim=whole(input)[0]), *sizes[1:]]}

    return localize


localizes("resize")(_sized("shape"))
localizes("resize_bicubic", "resize_linear", "resize_nearest")(_sized("size"))


@places("dequantize")
def dequantize_rule(encoding: Any, quantized: TensorLayout) -> list[AxisAssignment]:
    """Axes but the last, which is packed in blocks, may be split."""
    return kept_axes((a, a) for a in range(quantized.rank - 1))
