# SPDX-License-Identifier: Apache-2.0
"""What moving a tensor costs, and which rows of a rule can be had at all."""

from __future__ import annotations

import math
from collections.abc import Sequence

from maxjax.experimental.sharding.action import (
    AxisAssignment,
    input_placements_at_axis,
    placements_on,
    stays,
)
from maxjax.experimental.sharding.mesh import DeviceMesh
from maxjax.experimental.sharding.per_shard_dim import global_dim
from maxjax.experimental.sharding.placements import Collective, Placement
from maxjax.experimental.sharding.types import TensorLayout
from maxjax.graph.dim import StaticDim

__all__ = [
    "action_is_feasible",
    "feasible_rows_at_axis",
    "tensor_byte_count",
    "transition_cost",
]

# A copy in a device's own memory is this much cheaper than sending it.
_LOCAL = 1 / 64


def tensor_byte_count(layout: TensorLayout) -> float:
    """The bytes of a whole tensor; sizes that are not known count as 1.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> tensor_byte_count(TensorLayout(DType.float32, ["n", 6], CPU()))
    24.0
    """
    sizes = [global_dim(d) for d in layout.shape]
    known = math.prod(d.dim for d in sizes if isinstance(d, StaticDim))
    return float(known * layout.dtype.size_in_bytes)


def transition_cost(
    source: Placement, dest: Placement, *, message_bytes: float, mesh: DeviceMesh, axis_index: int
) -> float:
    """The bytes that each device sends to get a tensor from one placement to another.

    Rings are assumed: of ``B`` bytes over ``n`` devices, gathering, scattering a sum and
    exchanging parts send ``B * (n - 1) / n``, and a sum that all get sends twice that. What
    stays in a device's memory counts ``B / n / 64``.

    Args:
        source: How it is placed along the axis.
        dest: How it is to be placed.
        message_bytes: The bytes of the whole.
        mesh: The devices.
        axis_index: The axis of the mesh.

    Returns:
        The bytes; infinity if there is no way.

    >>> from maxjax.driver import CPU
    >>> from maxjax.experimental.sharding.placements import Partial, Replicated
    >>> mesh = DeviceMesh((CPU(),) * 4, (4,), ("tp",))
    >>> transition_cost(Partial(), Replicated(), message_bytes=1024, mesh=mesh, axis_index=0)
    1536.0
    """
    n = mesh.mesh_shape[axis_index]
    match source.transition_to(dest):
        case Collective.NOOP:
            return 0.0
        case Collective.INFEASIBLE:
            return math.inf
        case Collective.LOCAL_SLICE | Collective.KEEP_ONE_COPY:
            return message_bytes / n * _LOCAL
        case Collective.ALLREDUCE:
            return 2 * message_bytes * (n - 1) / n
        case _:
            return message_bytes * (n - 1) / n


def action_is_feasible(
    row: AxisAssignment,
    layouts: Sequence[TensorLayout],
    mesh: DeviceMesh,
    mesh_axis: int,
    per_input_placements: Sequence[tuple[Placement, ...]],
) -> bool:
    """Whether the operands of an op can be placed as a row needs them.

    They cannot if no collective does it, if an operand on one device would be split or be a sum,
    or if a device would get an empty part.

    Args:
        row: The row.
        layouts: The operands.
        mesh: The devices.
        mesh_axis: The axis of the mesh that the row is for.
        per_input_placements: How each operand is placed; along axes before ``mesh_axis``, how it
            will be.
    """
    current = input_placements_at_axis(per_input_placements, mesh_axis)
    for i, (here, there) in enumerate(zip(current, row.needed_inputs, strict=True)):
        if here == there:
            continue
        if stays(layouts[i], mesh):
            return False
        if here.transition_to(there) is Collective.INFEASIBLE:
            return False
        axis = there.localized_axis()
        if axis is not None and not _splits(
            layouts[i], axis, mesh, mesh_axis, per_input_placements[i]
        ):
            return False
    return True


def _splits(
    layout: TensorLayout,
    axis: int,
    mesh: DeviceMesh,
    mesh_axis: int,
    placements: Sequence[Placement],
) -> bool:
    """Whether every device gets a part of an axis that is split along one more mesh axis."""
    if not 0 <= axis < layout.rank:
        return False
    size = global_dim(layout.shape[axis])
    along = [a for a, p in enumerate(placements) if p.localized_axis() == axis and a != mesh_axis]
    parts = mesh.axis_size([*along, mesh_axis])
    return not isinstance(size, StaticDim) or size.dim >= parts


def feasible_rows_at_axis(
    rows: Sequence[AxisAssignment],
    layouts: Sequence[TensorLayout],
    mesh: DeviceMesh,
    mesh_axis: int,
    per_input_placements: Sequence[tuple[Placement, ...]] | None = None,
) -> tuple[AxisAssignment, ...]:
    """The rows that the operands of an op can be placed for; see :func:`action_is_feasible`."""
    placed = per_input_placements or [placements_on(layout, mesh) for layout in layouts]
    return tuple(r for r in rows if action_is_feasible(r, layouts, mesh, mesh_axis, placed))
