# SPDX-License-Identifier: Apache-2.0
"""Placement rules of ops that pick elements and that write them, and of branches and loops."""

from __future__ import annotations

from typing import Any

from maxjax.experimental.sharding.action import (
    AxisAssignment,
    pass_through_rows,
    tensor_layouts_in,
)
from maxjax.experimental.sharding.placements import Partial, Placement, Replicated, Sharded, Unknown
from maxjax.experimental.sharding.rules._registry import axis_of, kept_axes, places, row, whole
from maxjax.experimental.sharding.types import TensorLayout
from maxjax.graph.dim import Dim

__all__ = [
    "buffer_store_rule",
    "buffer_store_slice_rule",
    "cond_rule",
    "gather_nd_rule",
    "gather_rule",
    "scatter_rule",
    "slice_tensor_rule",
    "sliced_axes",
    "while_loop_rule",
    "whole_rule",
]

_P = Partial()


@places("gather")
def gather_rule(input: TensorLayout, indices: TensorLayout, axis: int) -> list[AxisAssignment]:
    """Axes of the table but the one that is looked up may be split, or those of the indices.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> table = TensorLayout(DType.float32, [8, 4], CPU())
    >>> for needed, (output,) in gather_rule(table, TensorLayout(DType.int64, ["n"], CPU()), 0):
    ...     print(needed, output)
    (Replicated(), Replicated()) Replicated()
    (Sharded(axis=1), Replicated()) Sharded(axis=1)
    (Replicated(), Sharded(axis=0)) Sharded(axis=0)
    (Partial(), Replicated()) Partial()
    """
    own = axis_of(axis, input.rank)
    columns = [(a, a + (indices.rank - 1 if a > own else 0)) for a in range(input.rank) if a != own]
    return [
        row([None, None], None),
        *[row([a, None], b) for a, b in columns],
        *[row([None, a], own + a) for a in range(indices.rank)],
        row([_P, None], _P),
    ]


@places("gather_nd")
def gather_nd_rule(
    input: TensorLayout, indices: TensorLayout, batch_dims: int = 0
) -> list[AxisAssignment]:
    """Batches may be split, alike; a table may be a sum."""
    return [
        row([None, None], None),
        *[row([a, a], a) for a in range(batch_dims)],
        row([_P, None], _P),
    ]


@places("scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul")
def scatter_rule(
    input: TensorLayout, updates: TensorLayout, indices: TensorLayout, axis: int = -1
) -> list[AxisAssignment]:
    """Axes but the one that is written along may be split, where all three have the same size."""
    own = axis_of(axis, input.rank)
    sizes = [whole(layout) for layout in (input, updates, indices)]
    axes = [
        a
        for a in range(input.rank)
        if a != own and all(len(s) == input.rank and s[a] == sizes[0][a] for s in sizes)
    ]
    return [row([None] * 3, None), *[row([a] * 3, a) for a in axes]]


@places(
    "masked_scatter", "scatter_nd", "scatter_nd_add", "scatter_nd_max", "scatter_nd_min",
    "scatter_nd_mul", "nonzero",
)  # fmt: skip
def whole_rule(*operands: Any, **kwargs: Any) -> list[AxisAssignment]:
    """Nothing may be split: any element may go anywhere."""
    return kept_axes([], others=len(tensor_layouts_in((operands, kwargs))) - 1)


def sliced_axes(x: TensorLayout, indices: Any) -> list[tuple[int, int]]:
    """The axes of a tensor that indices leave whole, and where they are in what they pick."""
    given = list(indices) if isinstance(indices, tuple | list) else [indices]
    used = sum(1 for i in given if i is not None and i is not Ellipsis)
    if Ellipsis not in [i for i in given if not isinstance(i, TensorLayout)]:
        given.append(Ellipsis)
    found, axis, place = [], 0, 0
    for index in given:
        if index is None:
            place += 1
        elif index is Ellipsis:
            rest = x.rank - used
            found += [(axis + i, place + i) for i in range(rest)]
            axis, place = axis + rest, place + rest
        else:
            if isinstance(index, slice) and _is_whole(index):
                found.append((axis, place))
            scalar = isinstance(index, int | Dim) or (
                isinstance(index, TensorLayout) and index.rank == 0
            )
            axis, place = axis + 1, place + (not scalar)
    return found


def _is_whole(index: slice) -> bool:
    """Whether a slice leaves an axis of any size as it is."""
    return index.stop is None and index.start in (None, 0) and index.step in (None, 1)


@places("slice_tensor")
def slice_tensor_rule(x: TensorLayout, indices: Any) -> list[AxisAssignment]:
    """Axes that are taken whole may be split, and a sum stays one."""
    others = len(tensor_layouts_in(list(indices)))
    return kept_axes(sliced_axes(x, indices), linear=True, others=others)


def _stores(destination: Placement, source: Placement) -> bool:
    return destination == source or isinstance(destination, Unknown)


@places("buffer_store")
def buffer_store_rule(destination: TensorLayout, source: TensorLayout) -> list[AxisAssignment]:
    """What is written must be placed as the buffer is; nothing is moved.

    Raises:
        ShardingError: If it is placed otherwise.
    """
    return pass_through_rows([destination, source], lambda p: () if _stores(*p) else None)


@places("buffer_store_slice")
def buffer_store_slice_rule(
    destination: TensorLayout, source: TensorLayout, indices: Any
) -> list[AxisAssignment]:
    """What is written must be split as the buffer is, along axes that are written whole.

    Raises:
        ShardingError: If it is placed otherwise, or a split axis of the buffer is cut.
    """
    kept = dict(sliced_axes(destination, indices))
    extra = tensor_layouts_in(list(indices))

    def outputs(placed: tuple[Placement, ...]) -> tuple[Placement, ...] | None:
        into, written, *others = placed
        if any(not isinstance(p, Replicated) for p in others):
            return None
        if isinstance(into, Sharded):
            to = kept.get(into.axis)
            return () if to is not None and written == Sharded(to) else None
        return () if _stores(into, written) else None

    return pass_through_rows([destination, source, *extra], outputs)


@places("cond")
def cond_rule(
    pred: TensorLayout, out_types: Any, then_fn: Any, else_fn: Any
) -> list[AxisAssignment]:
    """Every device decides by itself, so each needs the predicate; results are copies."""
    count = 0 if out_types is None else len(list(out_types))
    return [row([None], *[None] * count)]


@places("while_loop")
def while_loop_rule(initial_values: Any, predicate: Any, body: Any) -> list[AxisAssignment]:
    """Every device runs the loop by itself, on copies."""
    single = isinstance(initial_values, TensorLayout)
    values = [initial_values] if single else list(initial_values)
    return [row([None] * len(tensor_layouts_in(values)), *[None] * len(values))]
