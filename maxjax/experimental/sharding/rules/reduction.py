# SPDX-License-Identifier: Apache-2.0
"""Placement rules of ops along one axis: that axis is whole, the others may be split."""

from __future__ import annotations

from typing import Any

from maxjax.experimental.sharding.action import AxisAssignment
from maxjax.experimental.sharding.placements import Partial
from maxjax.experimental.sharding.rules._registry import axis_of, kept_axes, places, row
from maxjax.experimental.sharding.rules.elementwise import binary_rule
from maxjax.experimental.sharding.types import TensorLayout

__all__ = [
    "argsort_rule",
    "cumsum_rule",
    "group_norm_rule",
    "layer_norm_rule",
    "linear_reduce_rule",
    "minmax_rule",
    "reduce_rule",
    "rms_norm_rule",
    "softmax_rule",
    "top_k_rule",
]


def _others(x: TensorLayout, axis: int | None) -> list[tuple[int, int]]:
    """The axes but one; none of them if all are meant."""
    if axis is None:
        return []
    own = axis_of(axis, x.rank)
    return [(a, a) for a in range(x.rank) if a != own]


@places("mean", "prod", "argmax", "argmin")
def reduce_rule(x: TensorLayout, axis: int | None = -1) -> list[AxisAssignment]:
    """Axes that are not reduced may be split."""
    return kept_axes(_others(x, axis))


@places("sum")
def linear_reduce_rule(x: TensorLayout, axis: int | None = -1) -> list[AxisAssignment]:
    """Axes that are not reduced may be split, and the sum of parts is a sum still to be taken.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> linear_reduce_rule(TensorLayout(DType.float32, [4, 6], CPU()), 0)[2]
    AxisAssignment(needed_inputs=(Sharded(axis=0),), outputs=(Partial(),))
    """
    kept = _others(x, axis)
    summed = [a for a in range(x.rank) if (a, a) not in kept]
    return [
        *kept_axes(kept),
        *[row([a], Partial()) for a in summed],
        row([Partial()], Partial()),
    ]


@places("max", "min")
def minmax_rule(
    x: TensorLayout, y: TensorLayout | None = None, /, axis: int | None = -1
) -> list[AxisAssignment]:
    """Of two, as an elementwise op; of one, as a reduction."""
    return reduce_rule(x, axis) if y is None else binary_rule(x, y)


@places("softmax", "logsoftmax")
def softmax_rule(value: TensorLayout, axis: int = -1) -> list[AxisAssignment]:
    """Axes but the one that is worked along may be split."""
    return kept_axes(_others(value, axis))


@places("cumsum")
def cumsum_rule(
    x: TensorLayout, axis: int = -1, exclusive: bool = False, reverse: bool = False
) -> list[AxisAssignment]:
    """Axes but the one that is summed along may be split."""
    return kept_axes(_others(x, axis))


@places("top_k", "bottom_k")
def top_k_rule(input: TensorLayout, k: Any, axis: int = -1) -> list[AxisAssignment]:
    """Axes but the one that is picked from may be split, for values and places alike."""
    return kept_axes(_others(input, axis), outputs=2)


@places("argsort")
def argsort_rule(x: TensorLayout, ascending: bool = True) -> list[AxisAssignment]:
    """Nothing may be split."""
    return kept_axes([])


def _leading(x: TensorLayout, weight: TensorLayout) -> list[tuple[int, int]]:
    return [(a, a) for a in range(x.rank - weight.rank)]


@places("layer_norm")
def layer_norm_rule(
    input: TensorLayout, gamma: TensorLayout, beta: TensorLayout, epsilon: float
) -> list[AxisAssignment]:
    """Axes before those that are normalized may be split; each device has the weights."""
    return kept_axes(_leading(input, gamma), others=2)


@places("rms_norm")
def rms_norm_rule(
    input: TensorLayout, weight: TensorLayout, *extra: Any, **kwargs: Any
) -> list[AxisAssignment]:
    """Axes before those that are normalized may be split; each device has the weight."""
    return kept_axes(_leading(input, weight), others=1)


@places("group_norm")
def group_norm_rule(
    input: TensorLayout, gamma: TensorLayout, beta: TensorLayout, num_groups: int, epsilon: float
) -> list[AxisAssignment]:
    """The batch may be split; each device has the weights."""
    return kept_axes([(0, 0)], others=2)
