# SPDX-License-Identifier: Apache-2.0
"""The parts of distributed tensors: cut from a whole and put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from maxjax.driver import CPU, Accelerator, Buffer, Device, get_virtual_device_count
from maxjax.driver.device import device_of
from maxjax.driver.memory import allocate
from maxjax.experimental.sharding import (
    DeviceMapping,
    DeviceMesh,
    Partial,
    Placement,
    Replicated,
    Sharded,
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

__all__ = [
    "as_array",
    "cut",
    "from_array",
    "is_joinable",
    "joined",
    "moved",
    "performed",
    "spread",
    "spread_value",
    "zeros",
]


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


# ---------------------------------------------------------------- arrays of JAX


def as_array(buffers: Sequence[Buffer], layout: TensorLayout) -> jax.Array | None:
    """The parts as one array over a ``jax.sharding.Mesh``, without a copy.

    None where JAX has no such array: on a mesh of one device repeated, for sums, and for parts of
    different sizes.
    """
    mesh = layout.mesh
    if mesh.is_simulated or not is_joinable(layout.mapping):
        return None
    if len({b.shape for b in buffers}) > 1:
        return None
    split = sharding_axes(layout.placements)
    spec = [
        tuple(mesh.axis_names[a] for a in split[axis]) if axis in split else None
        for axis in range(layout.rank)
    ]
    devices = np.array([d.jax for d in mesh.devices]).reshape(mesh.mesh_shape)
    over = NamedSharding(Mesh(devices, mesh.axis_names), PartitionSpec(*spec))
    shape = tuple(int(d) for d in layout.shape)
    with jax.enable_x64(True):
        arrays = [b.jax() for b in buffers]
        return jax.make_array_from_single_device_arrays(shape, over, arrays)


def from_array(array: jax.Array) -> tuple[tuple[Buffer, ...], DeviceMapping]:
    """The parts of an array that is spread over a ``jax.sharding.Mesh``, without a copy.

    Raises:
        ValueError: If it is spread by something else than a ``NamedSharding``, other processes
            have some of its parts, or it names axes of the mesh in another order than the mesh.
    """
    over = array.sharding
    if not isinstance(over, NamedSharding) or not array.is_fully_addressable:
        raise ValueError(
            f"an array over several devices of this process has a NamedSharding, got {over}"
        )
    names = tuple(map(str, over.mesh.axis_names))
    placements: dict[str, Placement] = {}
    for axis, entry in enumerate(over.spec):
        axes = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
        if list(axes) != sorted(axes, key=names.index):
            raise ValueError(f"{over.spec} names axes in another order than the mesh: {names}")
        placements.update(dict.fromkeys(axes, Sharded(axis)))
    placements.update(dict.fromkeys(getattr(over.spec, "unreduced", ()), Partial()))
    grid = np.asarray(over.mesh.devices)
    found = list(grid.flat)
    devices = tuple(_device(d) for d in found)
    parts = {shard.device: shard.data for shard in array.addressable_shards}
    mesh = DeviceMesh(devices, grid.shape, names)
    mapping = DeviceMapping(mesh, tuple(placements.get(n, Replicated()) for n in names))
    pairs = zip(found, devices, strict=True)
    return tuple(Buffer.from_jax(parts[d], device=own) for d, own in pairs), mapping


def _device(device: Any) -> Device:
    """A device of a mesh: among several CPU devices each is a virtual accelerator."""
    if device.platform == "cpu" and device.id < get_virtual_device_count():
        return Accelerator(device.id)
    return device_of(device)


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
