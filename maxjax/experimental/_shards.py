# SPDX-License-Identifier: Apache-2.0
"""The parts of distributed tensors: cut from a whole and put together, as buffers and in graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maxjax.driver import CPU, Buffer
from maxjax.driver.memory import allocate
from maxjax.experimental.sharding import (
    DeviceMapping,
    DeviceMesh,
    Partial,
    TensorLayout,
    Unknown,
)
from maxjax.experimental.sharding.placements import Collective, sharding_axes
from maxjax.experimental.sharding.transfer import Step, scatter_mapping, shard_windows
from maxjax.graph import ops
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import Dim
from maxjax.graph.ops.collective import Allgather, Allreduce, Reducescatter
from maxjax.graph.value import TensorValue

__all__ = ["cut", "is_joinable", "joined", "moved", "performed", "spread", "spread_value", "zeros"]


# ---------------------------------------------------------------- buffers


def spread(buffer: Buffer, target: DeviceMapping) -> tuple[tuple[Buffer, ...], DeviceMapping]:
    """The part of a buffer for each device of a mesh, and how they are placed.

    Raises:
        ShardingError, ValueError: As ``scatter_mapping`` does.
    """
    layout = TensorLayout(buffer.dtype, list(buffer.shape), buffer.device)
    mapping = scatter_mapping(layout, target)
    windows = shard_windows(TensorLayout(buffer.dtype, list(buffer.shape), mapping))
    parts = [
        buffer[tuple(slice(int(w.start), int(w.stop)) for w in own)] if own else buffer
        for own in windows
    ]
    return tuple(p.copy(d) for p, d in zip(parts, mapping.mesh.devices, strict=True)), mapping


def is_joinable(mapping: DeviceMapping) -> bool:
    """Whether the parts make up the whole side by side: none is a term of a sum."""
    return not any(isinstance(p, Partial | Unknown) for p in mapping.placements)


def joined(buffers: Sequence[Buffer], layout: TensorLayout) -> Buffer:
    """The whole of parts that lie side by side, on the host."""
    whole = allocate(tuple(int(d) for d in layout.shape), layout.dtype.np)
    for buffer, own in zip(buffers, shard_windows(layout), strict=True):
        whole[tuple(slice(int(w.start), int(w.stop)) for w in own)] = buffer.to_numpy()
    return Buffer._hold(whole, CPU(), shared=False)


# ---------------------------------------------------------------- values of graphs


def moved(value: TensorValue, device: Any) -> TensorValue:
    """A value on a device; itself if it is there."""
    ref = device if isinstance(device, DeviceRef) else DeviceRef.from_device(device)
    return value if value.device == ref else ops.transfer_to(value, ref)


def zeros(like: TensorValue) -> TensorValue:
    """Zeros in the shape of a value."""
    return ops.broadcast_to(ops.constant(0, like.dtype, like.device), like.shape)


def cut(value: TensorValue, axis: int, place: int, count: int) -> TensorValue:
    """One of ``count`` parts of an axis, as equal as they can be, the larger ones first."""
    whole = value.shape[axis]
    sizes = [(whole + (count - 1 - i)) // count for i in range(place + 1)]
    start = sum(sizes[:-1], start=Dim(0))
    window = slice(start, start + sizes[-1]), sizes[-1]
    return ops.slice_tensor(value, [*[slice(None)] * axis, window])


def spread_value(value: TensorValue, mapping: DeviceMapping) -> list[TensorValue]:
    """The part of a value for each device of a mesh, on that device."""
    mesh, known = mapping.mesh, {}
    split = sharding_axes(mapping.placements)
    found = []
    for d, device in enumerate(mesh.devices):
        places = tuple(mesh.device_coord(d, over) for over in split.values())
        if places not in known:
            part = value
            for (axis, over), place in zip(split.items(), places, strict=True):
                part = cut(part, axis, place, mesh.axis_size(over))
            known[places] = part
        found.append(moved(known[places], device))
    return found


def performed(step: Step, values: Sequence[TensorValue], mesh: DeviceMesh) -> list[TensorValue]:
    """The values of each device of a mesh after a collective."""
    axes, axis = step.mesh_axes, step.tensor_axis
    count = mesh.axis_size(axes)
    match step.collective:
        case Collective.ALLREDUCE:
            return _crossed(Allreduce(count), values, mesh, axes)
        case Collective.ALLGATHER:
            assert axis is not None
            return _crossed(Allgather(axis, count), values, mesh, axes)
        case Collective.REDUCE_SCATTER:
            assert axis is not None
            return _crossed(Reducescatter(axis, count), values, mesh, axes)
        case Collective.ALL_TO_ALL:
            assert axis is not None and step.split_axis is not None
            whole = _crossed(Allgather(axis, count), values, mesh, axes)
            return _sliced(whole, mesh, axes, step.split_axis)
        case Collective.LOCAL_SLICE:
            assert axis is not None
            return _sliced(values, mesh, axes, axis)
        case Collective.KEEP_ONE_COPY:
            return [zeros(v) if mesh.device_coord(d, axes) else v for d, v in enumerate(values)]
        case _:
            return list(values)


def _crossed(
    op: Any, values: Sequence[TensorValue], mesh: DeviceMesh, axes: tuple[int, ...]
) -> list[TensorValue]:
    """What an op over the devices of each group gives."""
    found = list(values)
    for group in mesh.groups(axes):
        for d, value in zip(group, op(*[values[d] for d in group]), strict=True):
            found[d] = value
    return found


def _sliced(
    values: Sequence[TensorValue], mesh: DeviceMesh, axes: tuple[int, ...], axis: int
) -> list[TensorValue]:
    count = mesh.axis_size(axes)
    return [cut(v, axis, mesh.device_coord(d, axes), count) for d, v in enumerate(values)]
