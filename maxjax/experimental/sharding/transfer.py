# SPDX-License-Identifier: Apache-2.0
"""Which collectives bring a tensor from one mapping to another, and which part each device has.

Nothing here touches values: what moves them follows the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from maxjax.experimental.sharding.cost import tensor_byte_count
from maxjax.experimental.sharding.mappings import DeviceMapping
from maxjax.experimental.sharding.mesh import DeviceMesh
from maxjax.experimental.sharding.per_shard_dim import PerShardDim, global_dim, is_one
from maxjax.experimental.sharding.placements import (
    Collective,
    Partial,
    Placement,
    Replicated,
    ShardingError,
    Unknown,
    sharding_axes,
)
from maxjax.experimental.sharding.types import TensorLayout
from maxjax.graph.dim import Dim, StaticDim

__all__ = [
    "Step",
    "Window",
    "scatter_mapping",
    "shard_windows",
    "step_bytes",
    "transfer_steps",
    "transition",
]


class Step(NamedTuple):
    """One collective of a transfer.

    Attributes:
        collective: Which.
        mesh_axes: The axes of the mesh it is along; several count as one, in their order.
        tensor_axis: The axis of the tensor that is gathered, sliced or scattered; for
            ``ALL_TO_ALL``, that which is gathered.
        split_axis: For ``ALL_TO_ALL``, the axis of the tensor that is then split.
    """

    collective: Collective
    mesh_axes: tuple[int, ...]
    tensor_axis: int | None = None
    split_axis: int | None = None


class Window(NamedTuple):
    """The part of an axis that a device has, from ``start`` up to ``stop``."""

    start: Dim
    stop: Dim


def transition(source: Placement, dest: Placement) -> Collective:
    """What brings a tensor from one placement to another, along one axis of a mesh.

    >>> from maxjax.experimental.sharding import Sharded
    >>> transition(Sharded(0), Replicated())
    <Collective.ALLGATHER: 'allgather'>
    """
    return source.transition_to(dest)


def transfer_steps(layout: TensorLayout, target: DeviceMapping) -> list[Step]:
    """The collectives that place a tensor otherwise on its mesh, in the order to run them.

    Sums are taken first, then what is split otherwise is gathered, and last what has to be split
    is sliced. An axis that several mesh axes split is split by all of them at once; it is
    gathered over all of them, unless its parts nest evenly.

    Args:
        layout: The tensor.
        target: How it is to be placed, on a mesh of the same shape and names.

    Raises:
        ShardingError: If one of the placements is unknown and not the same in both, or the meshes
            differ.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental.sharding import DeviceMesh, Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> x = TensorLayout(DType.float32, [5, 4], DeviceMapping(mesh, (Partial(),)))
    >>> [s.collective.value for s in transfer_steps(x, DeviceMapping(mesh, (Sharded(0),)))]
    ['reduce_scatter']
    """
    mesh = layout.mesh
    if (mesh.mesh_shape, mesh.axis_names) != (target.mesh.mesh_shape, target.mesh.axis_names):
        raise ShardingError(
            f"a tensor on {mesh} cannot be placed on {target.mesh} without leaving the mesh; "
            "bring it to one device first"
        )
    target.check_shape(layout.shape)
    source = list(layout.placements)
    final = list(target.placements)
    _check_known(source, final, mesh)
    before, after = sharding_axes(source), sharding_axes(final)
    steps: list[Step] = []
    for axis, (here, there) in enumerate(zip(source, final, strict=True)):
        if not isinstance(here, Partial) or isinstance(there, Partial):
            continue
        into = there.localized_axis()
        if into is not None and into not in before and after[into] == (axis,):
            steps.append(Step(Collective.REDUCE_SCATTER, (axis,), into))
            before[into] = (axis,)
        else:
            steps.append(Step(Collective.ALLREDUCE, (axis,)))
    steps += _exchanges(before, after)
    slices: list[Step] = []
    for axis in sorted({*before, *after}):
        here, there = before.get(axis, ()), after.get(axis, ())
        kept = _shared(layout, axis, here, there)
        if here[len(kept) :]:
            steps.append(Step(Collective.ALLGATHER, here[len(kept) :], axis))
        if there[len(kept) :]:
            slices.append(Step(Collective.LOCAL_SLICE, there[len(kept) :], axis))
    keeps = [
        Step(Collective.KEEP_ONE_COPY, (axis,))
        for axis, (here, there) in enumerate(zip(source, final, strict=True))
        if isinstance(there, Partial) and not isinstance(here, Partial)
    ]
    return [*steps, *keeps, *slices]


def _check_known(source: Sequence[Placement], final: Sequence[Placement], mesh: DeviceMesh) -> None:
    for name, here, there in zip(mesh.axis_names, source, final, strict=True):
        if here != there and (isinstance(here, Unknown) or isinstance(there, Unknown)):
            raise ShardingError(
                f"along mesh axis {name!r} a tensor placed {here} cannot be placed {there}: what "
                "the devices hold has no known meaning; rebind_mapping gives it one"
            )


def _exchanges(before: dict[int, tuple[int, ...]], after: dict[int, tuple[int, ...]]) -> list[Step]:
    """The steps of mesh axes that split one axis alone and are to split another alone.

    They are taken out of ``before`` and put in as the result.
    """
    steps = []
    for axis, over in list(before.items()):
        into = next((a for a, to in after.items() if to == over), None)
        if len(over) != 1 or into in (None, axis) or into in before or axis in after:
            continue
        steps.append(Step(Collective.ALL_TO_ALL, over, axis, into))
        del before[axis]
        before[into] = over
    return steps


def _shared(
    layout: TensorLayout, axis: int, here: tuple[int, ...], there: tuple[int, ...]
) -> tuple[int, ...]:
    """The mesh axes that split an axis both before and after, and need not be gathered.

    Parts of parts are those of one split over all devices only if they are all equal.
    """
    if here == there:
        return here
    shorter, longer = (here, there) if len(here) < len(there) else (there, here)
    size = global_dim(layout.shape[axis])
    if longer[: len(shorter)] != shorter or not isinstance(size, StaticDim):
        return ()
    n = layout.mesh.axis_size(longer)
    cell = layout.shape[axis]
    even = not isinstance(cell, PerShardDim) or len(set(cell.per_shard)) == 1
    return shorter if size.dim % n == 0 and even else ()


def step_bytes(step: Step, layout: TensorLayout) -> float:
    """The bytes that each device sends in a step, by the model of ``cost.transition_cost``.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental.sharding import DeviceMesh, Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> x = TensorLayout(DType.float32, [4], DeviceMapping(mesh, (Sharded(0),)))
    >>> step_bytes(Step(Collective.ALLGATHER, (0,), 0), x)
    8.0
    """
    n = layout.mesh.axis_size(step.mesh_axes)
    total = tensor_byte_count(layout)
    match step.collective:
        case Collective.NOOP:
            return 0.0
        case Collective.LOCAL_SLICE | Collective.KEEP_ONE_COPY:
            return total / n / 64
        case Collective.ALLREDUCE:
            return 2 * total * (n - 1) / n
        case _:
            return total * (n - 1) / n


def scatter_mapping(layout: TensorLayout, target: DeviceMapping) -> DeviceMapping:
    """How a tensor on one device is spread over a mesh.

    Args:
        layout: The tensor.
        target: How it is asked to be placed; axes that it has not are left whole.

    Returns:
        How it is placed.

    Raises:
        ShardingError: If an axis of size 1 is to be split, or a placement is unknown.
        ValueError: If it is to be a sum, which a tensor with values is not.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental.sharding import DeviceMesh, Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> x = TensorLayout(DType.float32, [4], CPU())
    >>> scatter_mapping(x, DeviceMapping(mesh, (Sharded(1),))).placements
    (Replicated(),)
    """
    placements: list[Placement] = []
    for name, placement in zip(target.mesh.axis_names, target.placements, strict=True):
        if isinstance(placement, Partial):
            raise ValueError(
                f"a tensor on one device is no sum to be taken along mesh axis {name!r}; place it "
                "Replicated() first, and that as Partial()"
            )
        if isinstance(placement, Unknown):
            raise ShardingError(f"a tensor cannot be placed {placement} along mesh axis {name!r}")
        axis = placement.localized_axis()
        if axis is not None and not 0 <= axis < layout.rank:
            placement = Replicated()
        elif axis is not None and target.mesh.num_devices > 1 and is_one(layout.shape[axis]):
            raise ShardingError(
                f"axis {axis} has size 1 and cannot be split along mesh axis {name!r}; place it "
                "Replicated()"
            )
        placements.append(placement)
    return DeviceMapping(target.mesh, tuple(placements))


def shard_windows(layout: TensorLayout) -> list[list[Window]]:
    """The part of each axis that each device has.

    Raises:
        ShardingError: If a size cannot be split.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental.sharding import DeviceMesh, Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> x = TensorLayout(DType.float32, [5, "n"], DeviceMapping(mesh, (Sharded(0),)))
    >>> [f"{rows.start}:{rows.stop}" for rows, _ in shard_windows(x)]
    ['0:3', '3:5']
    """
    mesh = layout.mesh
    split = sharding_axes(layout.placements)
    shapes = layout.local_shapes
    windows = []
    for device, shape in enumerate(shapes):
        own = []
        for axis, size in enumerate(shape):
            start: Dim = Dim(0)
            for other in _before(mesh, device, split.get(axis, ())):
                start = start + shapes[other][axis]
            own.append(Window(start, start + size))
        windows.append(own)
    return windows


def _before(mesh: DeviceMesh, device: int, mesh_axes: tuple[int, ...]) -> list[int]:
    """The devices whose parts of an axis come before that of a device."""
    if not mesh_axes:
        return []
    (group,) = (g for g in mesh.groups(mesh_axes) if device in g)
    return list(group[: group.index(device)])
