# SPDX-License-Identifier: Apache-2.0
"""Placement rules of ops that compute each element by itself: axes may be split, all alike."""

from __future__ import annotations

from typing import Any

from maxjax.dtype import DType
from maxjax.experimental.sharding.action import AxisAssignment, tensor_layouts_in
from maxjax.experimental.sharding.per_shard_dim import is_one
from maxjax.experimental.sharding.placements import Partial
from maxjax.experimental.sharding.rules._registry import kept_axes, places, row
from maxjax.experimental.sharding.types import TensorLayout

__all__ = [
    "aligned_axes",
    "binary_rule",
    "cast_rule",
    "div_rule",
    "linear_binary_rule",
    "linear_unary_rule",
    "mul_rule",
    "ternary_rule",
    "unary_rule",
]

_P = Partial()


def aligned_axes(layouts: list[TensorLayout]) -> list[tuple[list[int | None], int]]:
    """For each axis of a result that operands are broadcast to, the axis of each, from the end.

    None stands for an operand that has not the axis, or has size 1 along it. Axes of size 1 in
    all operands are left out.
    """
    rank = max(layout.rank for layout in layouts)
    found = []
    for axis in range(rank):
        own: list[int | None] = []
        for layout in layouts:
            i = axis - (rank - layout.rank)
            own.append(None if i < 0 or is_one(layout.shape[i]) else i)
        if any(i is not None for i in own):
            found.append((own, axis))
    return found


def _broadcast(layouts: list[TensorLayout]) -> list[AxisAssignment]:
    return [
        row([None] * len(layouts), None),
        *[row(own, axis) for own, axis in aligned_axes(layouts)],
    ]


@places(
    "abs", "acos", "atanh", "ceil", "cos", "erf", "exp", "floor", "gelu", "is_inf", "is_nan",
    "log", "log1p", "logical_not", "relu", "round", "rsqrt", "sigmoid", "silu", "sin", "sqrt",
    "tanh", "trunc",
)  # fmt: skip
def unary_rule(x: TensorLayout, *extra: Any, **kwargs: Any) -> list[AxisAssignment]:
    """Any axis may be split.

    >>> from maxjax.driver import CPU
    >>> len(unary_rule(TensorLayout(DType.float32, [4, 6], CPU())))
    3
    """
    return kept_axes((a, a) for a in range(x.rank))


@places("negate")
def linear_unary_rule(x: TensorLayout, *extra: Any, **kwargs: Any) -> list[AxisAssignment]:
    """Any axis may be split, and a sum stays one."""
    return kept_axes(((a, a) for a in range(x.rank)), linear=True)


@places("cast")
def cast_rule(x: TensorLayout, dtype: DType) -> list[AxisAssignment]:
    """Any axis may be split; a sum stays one if nothing is cast, as rounding comes after it."""
    return kept_axes(((a, a) for a in range(x.rank)), linear=x.dtype is dtype)


@places(
    "elementwise_max", "elementwise_min", "equal", "floor_div", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor", "mod", "not_equal", "pow",
)  # fmt: skip
def binary_rule(lhs: TensorLayout, rhs: TensorLayout) -> list[AxisAssignment]:
    """Axes that line up from the end are split alike; those of size 1 are copied."""
    return _broadcast([lhs, rhs])


@places("add", "sub")
def linear_binary_rule(lhs: TensorLayout, rhs: TensorLayout) -> list[AxisAssignment]:
    """As :func:`binary_rule`, and two sums give one."""
    return [*_broadcast([lhs, rhs]), row([_P, _P], _P)]


@places("mul")
def mul_rule(lhs: TensorLayout, rhs: TensorLayout) -> list[AxisAssignment]:
    """As :func:`binary_rule`, and a sum times a copy is a sum."""
    return [*_broadcast([lhs, rhs]), row([_P, None], _P), row([None, _P], _P)]


@places("complex_mul")
def complex_mul_rule(lhs: TensorLayout, rhs: TensorLayout) -> list[AxisAssignment]:
    """As :func:`binary_rule`, but for the last axis, which holds real and imaginary parts."""
    rank = max(lhs.rank, rhs.rank)
    axes = [(own, axis) for own, axis in aligned_axes([lhs, rhs]) if axis != rank - 1]
    return [row([None, None], None), *[row(own, axis) for own, axis in axes]]


@places("div")
def div_rule(lhs: TensorLayout, rhs: TensorLayout) -> list[AxisAssignment]:
    """As :func:`binary_rule`, and a sum over a copy is a sum."""
    return [*_broadcast([lhs, rhs]), row([_P, None], _P)]


@places("where")
def ternary_rule(condition: TensorLayout, x: TensorLayout, y: TensorLayout) -> list[AxisAssignment]:
    """As :func:`binary_rule`, of three."""
    return _broadcast([condition, x, y])


@places("clamp", "clip")
def clamp_rule(x: Any, lower_bound: Any, upper_bound: Any) -> list[AxisAssignment]:
    """As :func:`binary_rule`, of those that are tensors."""
    return _broadcast(list(tensor_layouts_in((x, lower_bound, upper_bound))))
