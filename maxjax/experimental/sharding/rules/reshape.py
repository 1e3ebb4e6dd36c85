# SPDX-License-Identifier: Apache-2.0
"""Placement rules of ops that are told the shape of their result, and that shape on each device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from maxjax.experimental.sharding.action import AxisAssignment
from maxjax.experimental.sharding.per_shard_dim import (
    PerShardDim,
    global_dim,
    is_one,
    make_per_shard_dim,
)
from maxjax.experimental.sharding.placements import (
    Partial,
    Sharded,
    ShardingError,
    Unknown,
    sharding_axes,
)
from maxjax.experimental.sharding.rules._registry import (
    kept_axes,
    localizes,
    places,
    row,
    whole,
)
from maxjax.experimental.sharding.types import TensorLayout
from maxjax.graph.dim import Dim, StaticDim
from maxjax.graph.shape import Shape

__all__ = [
    "broadcast_to_rule",
    "flatten_rule",
    "localize_broadcast_target",
    "localize_reshape_target",
    "localize_same_shape_target",
    "rebind_rule",
    "reshape_rule",
]


def _pass(rows: list[AxisAssignment]) -> list[AxisAssignment]:
    """Rows, and those of sums and of what has no known meaning, which stay what they are."""
    return [*rows, row([Partial()], Partial()), row([Unknown()], Unknown())]


def _product(dims: Iterable[Dim]) -> Dim:
    return math.prod(dims, start=Dim(1))  # pyright: ignore[reportArgumentType]


def _target(x: TensorLayout, shape: Iterable[Any]) -> Shape:
    """The shape that is asked for, in dims without parts and with -1 worked out."""
    dims = Shape([global_dim(Dim(d)) for d in shape])
    unknown = [i for i, d in enumerate(dims) if isinstance(d, StaticDim) and d.dim == -1]
    if len(unknown) == 1:
        rest = _product(d for i, d in enumerate(dims) if i != unknown[0])
        if not (isinstance(rest, StaticDim) and rest.dim == 0):
            dims[unknown[0]] = _product(whole(x)) // rest
    return dims


def _parts(x: TensorLayout, axis: int) -> list[Dim] | None:
    """The sizes of the parts of an axis on each device; None if it cannot be split."""
    try:
        shapes = x.local_shapes
    except ShardingError:
        return None
    return [shape[axis] for shape in shapes]


def _lines_up(x: TensorLayout, target: Shape, axis: int) -> tuple[int, list[Dim]] | None:
    """Where a split axis is in a shape of the same elements, and the sizes of its parts there.

    It is the axis before which there are as many elements as before the split one. Each part must
    be a whole number of steps along it.
    """
    source = whole(x)
    lead, inner = _product(source[:axis]), _product(source[axis + 1 :])
    parts = _parts(x, axis)
    if parts is None:
        return None
    for i in range(len(target)):
        if _product(target[:i]) != lead or is_one(target[i]):
            continue
        step = _product(target[i + 1 :])
        if isinstance(step, StaticDim) and step.dim == 0:
            continue
        sizes = [part * inner // step for part in parts]
        if all(size * step == part * inner for size, part in zip(sizes, parts, strict=True)):
            return i, sizes
    return None


@places("reshape")
def reshape_rule(x: TensorLayout, shape: Any) -> list[AxisAssignment]:
    """Axes stay split if their parts are whole steps along an axis of the result.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental.sharding import DeviceMapping, DeviceMesh, Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> x = TensorLayout(DType.float32, [4, 6], DeviceMapping(mesh, (Sharded(0),)))
    >>> reshape_rule(x, [24])[1]
    AxisAssignment(needed_inputs=(Sharded(axis=0),), outputs=(Sharded(axis=0),))
    """
    target = _target(x, shape)
    axes = []
    for axis in sharding_axes(x.placements):
        found = _lines_up(x, target, axis)
        if found is not None:
            axes.append((axis, found[0]))
    return _pass(kept_axes(axes))


def localize_reshape_target(x: TensorLayout, shape: Any) -> Shape | None:
    """The shape of the result, with the sizes of the parts where an axis is split.

    Args:
        x: What is reshaped.
        shape: The shape that is asked for; one dim may be -1.

    Returns:
        The shape; None if a split axis does not line up with it.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental.sharding import DeviceMapping, DeviceMesh, Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> x = TensorLayout(DType.float32, [5, 6], DeviceMapping(mesh, (Sharded(0),)))
    >>> localize_reshape_target(x, [30])
    [PerShardDim((Dim(18), Dim(12)), global=Dim(30))]
    >>> localize_reshape_target(x, [2, 15]) is None
    True
    """
    target = _target(x, shape)
    cells = Shape(target)
    for axis in sharding_axes(x.placements):
        found = _lines_up(x, target, axis)
        if found is None:
            return None
        i, sizes = found
        cells[i] = make_per_shard_dim(sizes, global_dim=target[i])
    return cells


@localizes("reshape")
def _localize_reshape(x: TensorLayout, shape: Any) -> dict[str, Any]:
    cells = localize_reshape_target(x, shape)
    assert cells is not None  # only rows that line up are taken
    return {"shape": cells}


@places("flatten")
def flatten_rule(x: TensorLayout, start_dim: int = 0, end_dim: int = -1) -> list[AxisAssignment]:
    """Axes that are not merged may be split, and a sum stays one."""
    start, end = (d + x.rank if d < 0 else d for d in (start_dim, end_dim))
    before = [(a, a) for a in range(min(start, x.rank))]
    after = [(a, a - (end - start)) for a in range(end + 1, x.rank)]
    return kept_axes([*before, *after], linear=True)


def _offset_axes(x: TensorLayout, target: Sequence[Dim]) -> list[tuple[int, int]]:
    """The axes of a tensor that is broadcast and where they are in the result, but size 1."""
    offset = len(target) - x.rank
    sizes = whole(x)
    return [(a, a + offset) for a in range(x.rank) if not is_one(sizes[a])]


@places("broadcast_to")
def broadcast_to_rule(x: TensorLayout, shape: Any, out_dims: Any = None) -> list[AxisAssignment]:
    """Axes of other sizes than 1 may be split."""
    return _pass(kept_axes(_offset_axes(x, list(shape))))


def localize_broadcast_target(x: TensorLayout, shape: Any) -> Shape:
    """The shape that a tensor is broadcast to, with the sizes of the parts of split axes."""
    target = Shape(shape)
    cells = Shape([global_dim(d) for d in target])
    moved = dict(_offset_axes(x, target))
    for axis in sharding_axes(x.placements):
        parts, size = _parts(x, axis), global_dim(x.shape[axis])
        # A size that is not the tensor's is left for the op to refuse.
        if axis in moved and parts is not None and cells[moved[axis]] == size:
            cells[moved[axis]] = make_per_shard_dim(parts, global_dim=size)
    return cells


@localizes("broadcast_to")
def _localize_broadcast(x: TensorLayout, shape: Any, out_dims: Any = None) -> dict[str, Any]:
    return {"shape": localize_broadcast_target(x, shape)}


@places("rebind")
def rebind_rule(
    x: TensorLayout, shape: Any, message: str = "", layout: Any = None
) -> list[AxisAssignment]:
    """Any axis may be split, and sums stay what they are: nothing changes but names."""
    return _pass(kept_axes((a, a) for a in range(x.rank)))


def localize_same_shape_target(x: TensorLayout, shape: Any) -> Shape:
    """Other names for the sizes of a tensor, with those of the parts where an axis is split."""
    cells = Shape(shape)
    for axis, over in sharding_axes(x.placements).items():
        if axis >= len(cells) or isinstance(cells[axis], PerShardDim):
            continue
        if cells[axis] == global_dim(x.shape[axis]):
            parts = [s[axis] for s in x.local_shapes]
            cells[axis] = make_per_shard_dim(parts, global_dim=cells[axis])
        else:
            cells[axis] = Sharded(axis).local_dim(cells[axis], x.mesh, over)
    return cells


@localizes("rebind")
def _localize_rebind(
    x: TensorLayout, shape: Any, message: str = "", layout: Any = None
) -> dict[str, Any]:
    return {"shape": localize_same_shape_target(x, shape)}
