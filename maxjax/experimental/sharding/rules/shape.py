# SPDX-License-Identifier: Apache-2.0
"""Placement rules of ops that rearrange, join, cut and repeat axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maxjax.experimental.sharding.action import AxisAssignment, tensor_layouts_in
from maxjax.experimental.sharding.per_shard_dim import global_dim, is_one, make_per_shard_dim
from maxjax.experimental.sharding.placements import Partial, even_shard_sizes, sharding_axes
from maxjax.experimental.sharding.rules._registry import (
    axis_of,
    kept_axes,
    localizes,
    places,
    row,
    whole,
)
from maxjax.experimental.sharding.types import TensorLayout
from maxjax.graph.dim import Dim, StaticDim

__all__ = [
    "chunk_rule",
    "concat_rule",
    "pad_rule",
    "permute_rule",
    "repeat_interleave_rule",
    "split_rule",
    "squeeze_rule",
    "stack_rule",
    "tile_rule",
    "transpose_rule",
    "unsqueeze_rule",
]


@places("permute")
def permute_rule(x: TensorLayout, dims: Sequence[int]) -> list[AxisAssignment]:
    """Any axis may be split.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> permute_rule(TensorLayout(DType.float32, [4, 6], CPU()), [1, 0])[1]
    AxisAssignment(needed_inputs=(Sharded(axis=0),), outputs=(Sharded(axis=1),))
    """
    order = [axis_of(d, x.rank) for d in dims]
    return kept_axes(sorted((a, i) for i, a in enumerate(order)), linear=True)


@places("transpose")
def transpose_rule(x: TensorLayout, axis_1: int, axis_2: int) -> list[AxisAssignment]:
    """Any axis may be split."""
    a, b = axis_of(axis_1, x.rank), axis_of(axis_2, x.rank)
    swapped = {a: b, b: a}
    return kept_axes([(i, swapped.get(i, i)) for i in range(x.rank)], linear=True)


@places("unsqueeze")
def unsqueeze_rule(x: TensorLayout, axis: int) -> list[AxisAssignment]:
    """Any axis may be split."""
    own = axis_of(axis, x.rank + 1)
    return kept_axes([(a, a + (a >= own)) for a in range(x.rank)], linear=True)


@places("squeeze")
def squeeze_rule(x: TensorLayout, axis: int) -> list[AxisAssignment]:
    """Any axis that is kept may be split."""
    own = axis_of(axis, x.rank)
    return kept_axes([(a, a - (a > own)) for a in range(x.rank) if a != own], linear=True)


def _alike(count: int, axes: list[tuple[int, int]]) -> list[AxisAssignment]:
    """Rows of operands that are all placed alike."""
    return [
        row([None] * count, None),
        *[row([a] * count, b) for a, b in axes],
        row([Partial()] * count, Partial()),
    ]


@places("concat")
def concat_rule(original_vals: Any, axis: int = 0) -> list[AxisAssignment]:
    """All may be split alike. Along the axis that they are joined on, each device joins its parts.

    The parts of such a result are then not in the order that one device would give.
    """
    layouts = tensor_layouts_in(list(original_vals))
    if not layouts:
        raise ValueError("concat of no tensors has no placement; give at least one")
    return _alike(len(layouts), [(a, a) for a in range(layouts[0].rank)])


@places("stack")
def stack_rule(values: Any, axis: int = 0, device: Any = None) -> list[AxisAssignment]:
    """All may be split alike."""
    layouts = tensor_layouts_in(list(values))
    if not layouts:
        raise ValueError("stack of no tensors has no placement; give at least one")
    own = axis_of(axis, layouts[0].rank + 1)
    return _alike(len(layouts), [(a, a + (a >= own)) for a in range(layouts[0].rank)])


@places("chunk")
def chunk_rule(x: TensorLayout, chunks: int, axis: int = 0) -> list[AxisAssignment]:
    """Axes but the one that is cut may be split."""
    own = axis_of(axis, x.rank)
    return kept_axes([(a, a) for a in range(x.rank) if a != own], linear=True, outputs=chunks)


def _sizes(x: TensorLayout, split_size_or_sections: Any, axis: int) -> list[Dim]:
    """The sizes of the parts that a split is asked for."""
    if not isinstance(split_size_or_sections, int):
        return [global_dim(Dim(s)) for s in split_size_or_sections]
    size, total = split_size_or_sections, whole(x)[axis]
    if not isinstance(total, StaticDim) or size < 1:
        return [total]
    full, rest = divmod(total.dim, size)
    return [Dim(size)] * full + [Dim(rest)] * (rest > 0)


@places("split")
def split_rule(x: TensorLayout, split_size_or_sections: Any, axis: int = 0) -> list[AxisAssignment]:
    """Axes but the one that is cut may be split; that one too, if all parts divide evenly.

    Each device then cuts its part of each from what it has, so that each result is placed as the
    tensor is, but with other elements on each device than one device would put there.
    """
    own = axis_of(axis, x.rank)
    sizes = _sizes(x, split_size_or_sections, own)
    axes = [a for a in range(x.rank) if a != own]
    over = sharding_axes(x.placements).get(own)
    if over is not None:
        n = x.mesh.axis_size(over)
        if all(isinstance(s, StaticDim) and s.dim % n == 0 for s in sizes):
            axes.append(own)
    return kept_axes([(a, a) for a in axes], linear=True, outputs=len(sizes))


@localizes("split")
def _localize_split(x: TensorLayout, split_size_or_sections: Any, axis: int = 0) -> dict[str, Any]:
    own = axis_of(axis, x.rank)
    over = sharding_axes(x.placements).get(own)
    if over is None:
        return {}
    places, n = range(x.mesh.num_devices), x.mesh.axis_size(over)
    cells = []
    for size in _sizes(x, split_size_or_sections, own):
        parts = even_shard_sizes(int(size), n)
        mine = [Dim(parts[x.mesh.device_coord(d, over)]) for d in places]
        cells.append(make_per_shard_dim(mine, global_dim=size))
    return {"split_size_or_sections": cells}


@places("tile")
def tile_rule(x: TensorLayout, repeats: Any) -> list[AxisAssignment]:
    """Axes that are not repeated may be split."""
    counts = list(repeats)
    offset = len(counts) - x.rank
    axes = [
        (a, a + offset) for a in range(x.rank) if a + offset >= 0 and is_one(counts[a + offset])
    ]
    return kept_axes(axes, linear=True)


@places("repeat_interleave")
def repeat_interleave_rule(
    x: TensorLayout, repeats: Any, axis: int | None = None, out_dim: Any = None
) -> list[AxisAssignment]:
    """Axes but the one that is repeated may be split; without an axis, none."""
    others = len(tensor_layouts_in(repeats))
    if axis is None:
        return kept_axes([], others=others)
    own = axis_of(axis, x.rank)
    return kept_axes([(a, a) for a in range(x.rank) if a != own], linear=True, others=others)


@places("pad")
def pad_rule(
    input: TensorLayout, paddings: Any, mode: str = "constant", value: Any = 0
) -> list[AxisAssignment]:
    """Axes that are not padded may be split; a sum stays one unless a number is added to it."""
    amounts = list(paddings)
    axes = [
        (a, a)
        for a in range(input.rank)
        if all(isinstance(p, int) and p == 0 for p in amounts[2 * a : 2 * a + 2])
    ]
    others = len(tensor_layouts_in(value))
    adds = mode == "constant" and (others > 0 or value != 0)
    return kept_axes(axes, linear=not adds, others=others)
