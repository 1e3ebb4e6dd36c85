# SPDX-License-Identifier: Apache-2.0
"""Tensors from one device to several and back, from one placement to another, and collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from maxjax.driver import CPU, Device
from maxjax.dtype import DType
from maxjax.experimental import _shards
from maxjax.experimental._context import CONTEXT
from maxjax.experimental._graph_functions import full
from maxjax.experimental._programs import at_once, computed
from maxjax.experimental.realization_context import ensure_context
from maxjax.experimental.sharding import (
    DeviceMapping,
    DeviceMesh,
    Partial,
    Replicated,
    Sharded,
    TensorLayout,
    as_device_mapping,
)
from maxjax.experimental.sharding.mesh import AxisLike
from maxjax.experimental.sharding.placements import Collective
from maxjax.experimental.sharding.transfer import Step, scatter_mapping, transfer_steps
from maxjax.experimental.tensor import Tensor
from maxjax.graph import ops
from maxjax.graph.device import DeviceRef
from maxjax.graph.shape import ShapeLike
from maxjax.graph.value import TensorValue

__all__ = [
    "allgather",
    "allreduce_sum",
    "distributed_broadcast",
    "filled",
    "materialize",
    "reduce_scatter",
    "transfer_to",
    "values_of",
]


def values_of(t: Tensor) -> list[TensorValue]:
    """The value on each device, in the graph being built."""
    return [TensorValue(shard) for shard in t._local()]


def _made(values: Sequence[Any], mapping: DeviceMapping) -> Tensor:
    ctx = CONTEXT.get()
    assert ctx is not None
    return ctx.create_unrealized(tuple(values), mapping=mapping)


# ---------------------------------------------------------------- transfers


def transfer_to(t: Any, target: Any) -> Tensor:
    """A tensor elsewhere, or placed otherwise; itself if it is there.

    Args:
        t: A tensor.
        target: A device, where it is then as a whole; a mesh, over which a tensor on one device
            is copied and one on several keeps its placements; or a mapping.

    Raises:
        TypeError: If it is no tensor or no target.
        ValueError: If a tensor on one device is to be a sum, the mesh has another number of axes
            than the tensor has placements, or a mapping splits an axis that is not there.
        ShardingError: If a placement is unknown, or an axis of size 1 is to be split.

    >>> from maxjax.driver import CPU
    >>> from maxjax.experimental.sharding import DeviceMesh, NamedMapping
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> rows = transfer_to(Tensor.ones([5, 2]), NamedMapping(mesh, ("tp",)))
    >>> [list(s.shape) for s in rows.local_shards]
    [[Dim(3), Dim(2)], [Dim(2), Dim(2)]]
    """
    if not isinstance(t, Tensor):
        with ensure_context():
            return transfer_to(Tensor.from_graph_value(TensorValue(t)), target)
    if isinstance(target, DeviceMesh) and t.is_distributed and target.num_devices > 1:
        target = DeviceMapping(target, t.placements)
    mapping = as_device_mapping(target)
    if mapping.mesh.num_devices == 1:
        device = mapping.mesh.devices[0]
        return _gathered(t, device) if t.is_distributed else _on_device(t, device)
    if not t.is_distributed:
        return _scattered(t, mapping)
    if t.mesh.mesh_shape != mapping.mesh.mesh_shape:
        return _scattered(_gathered(t, t.mesh.devices[0]), mapping)
    if (t.mesh, t.placements) == (mapping.mesh, mapping.placements):
        return t
    steps = transfer_steps(t.layout, DeviceMapping(t.mesh, mapping.placements))
    if t.real and at_once() and not steps:
        moved = zip(t.buffers, mapping.mesh.devices, strict=True)
        return Tensor._of(tuple(b.to(d) for b, d in moved), mapping)

    def run(inside: list[Tensor]) -> Tensor:
        pairs = zip(_after(inside[0], steps), mapping.mesh.devices, strict=True)
        return _made([_shards.moved(v, d) for v, d in pairs], mapping)

    return _computed(("transfer", mapping), t, run)


def _computed(key: Any, t: Tensor, run: Callable[[list[Tensor]], Tensor]) -> Tensor:
    """What a function gives of a tensor, at once or in the context in force."""
    if t.real and at_once():
        return computed(key, [t], run)
    with ensure_context():
        return run([t])


def _after(t: Tensor, steps: Sequence[Step]) -> list[TensorValue]:
    values = values_of(t)
    for step in steps:
        values = _shards.performed(step, values, t.mesh)
    return values


def _on_device(t: Tensor, device: Device) -> Tensor:
    if t.device == device:
        return t
    if t.real and at_once():
        return Tensor._of((t.storage.to(device),))
    with ensure_context():
        return Tensor.from_graph_value(
            ops.transfer_to(TensorValue(t), DeviceRef.from_device(device))
        )


def _scattered(t: Tensor, target: DeviceMapping) -> Tensor:
    if t.real and at_once():
        return Tensor._of(*_shards.spread(t.storage, target))
    with ensure_context():
        mapping = scatter_mapping(t.layout, target)
        return _made(_shards.spread_value(TensorValue(t), mapping), mapping)


def _gathered(t: Tensor, device: Device) -> Tensor:
    """The whole of a tensor, on one device."""
    steps = transfer_steps(t.layout, DeviceMapping.replicated(t.mesh))
    devices = t.mesh.devices
    nearest = devices.index(device) if device in devices else 0
    if t.real and at_once():
        if not steps:
            return Tensor._of((t.buffers[nearest].to(device),))
        if device.is_host and _shards.is_joinable(t.mapping):
            return Tensor._of((_shards.joined(t.buffers, t.layout),))

    def run(inside: list[Tensor]) -> Tensor:
        value = _shards.moved(_after(inside[0], steps)[nearest], device)
        return Tensor.from_graph_value(value)

    return _computed(("gather", device), t, run)


def materialize(t: Tensor) -> Tensor:
    """The whole of a distributed tensor, on the CPU."""
    return _gathered(t, CPU())


def filled(mapping: DeviceMapping, dtype: DType, shape: ShapeLike, value: Any) -> Tensor:
    """A tensor of one number in every place, each device making its part.

    Of a sum, the first device has the number and the others zero.
    """
    layout = TensorLayout(dtype, shape, mapping)
    sums = [axis for axis, p in enumerate(mapping.placements) if isinstance(p, Partial)]
    with ensure_context():
        values = [
            full(part, 0 if mapping.mesh.device_coord(d, sums) else value, dtype=dtype, device=on)
            for d, (part, on) in enumerate(
                zip(layout.local_shapes, mapping.mesh.devices, strict=True)
            )
        ]
        return _made(values, mapping)


# ---------------------------------------------------------------- collectives


def _collective(t: Tensor, kind: Collective, mesh_axis: AxisLike, axis: int, after: Any) -> Tensor:
    """A tensor after a collective along an axis of its mesh, or several, and how it is placed."""
    axes = t.mesh.axis_indices(mesh_axis)
    placements = tuple(after if i in axes else p for i, p in enumerate(t.placements))
    step = Step(kind, axes, axis)

    def run(inside: list[Tensor]) -> Tensor:
        values = _shards.performed(step, values_of(inside[0]), t.mesh)
        return _made(values, DeviceMapping(t.mesh, placements))

    return _computed(("collective", step), t, run)


def allreduce_sum(t: Tensor, mesh_axis: AxisLike = 0) -> Tensor:
    """On each device the sum over the devices along an axis of the mesh.

    Args:
        t: A tensor. One on a single device is given back as it is.
        mesh_axis: The axis of the mesh, by name or number, or several.

    Returns:
        A tensor with copies along that axis, whatever it held before.

    Raises:
        ValueError: If the mesh has no axis of that name, or shapes differ along it.
        IndexError: If it has no axis of that number.

    >>> from maxjax.driver import CPU
    >>> from maxjax.experimental.sharding import DeviceMapping, DeviceMesh, Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> x = Tensor([[1, 2], [3, 4]]).to(DeviceMapping(mesh, (Sharded(0),)))
    >>> allreduce_sum(x, "tp").to_numpy().tolist()
    [[4.0, 6.0]]
    """
    if not t.is_distributed:
        return t
    return _collective(t, Collective.ALLREDUCE, mesh_axis, 0, Replicated())


def allgather(t: Tensor, tensor_axis: int = 0, mesh_axis: AxisLike = 0) -> Tensor:
    """On each device what the devices along an axis of the mesh have, one after the other.

    Args:
        t: A tensor. One on a single device is given back as it is.
        tensor_axis: Along which they follow each other; negative counts from the end.
        mesh_axis: The axis of the mesh, by name or number, or several.

    Returns:
        A tensor with copies along that axis of the mesh.

    Raises:
        ValueError: If the mesh has no axis of that name, or other dims differ.
        IndexError: If it has no axis of that number, or the tensor has none.

    >>> from maxjax.driver import CPU
    >>> from maxjax.experimental.sharding import DeviceMapping, DeviceMesh, Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> x = Tensor([[1, 2, 3]]).to(DeviceMapping(mesh, (Sharded(1),)))
    >>> [s.to_numpy().tolist() for s in allgather(x, 1).local_shards]
    [[[1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0]]]
    """
    if not t.is_distributed:
        return t
    axis = tensor_axis + t.rank if tensor_axis < 0 else tensor_axis
    if not 0 <= axis < t.rank:
        raise IndexError(f"allgather: axis {tensor_axis} is out of range for rank {t.rank}")
    return _collective(t, Collective.ALLGATHER, mesh_axis, axis, Replicated())


def reduce_scatter(t: Tensor, scatter_axis: int = 0, mesh_axis: AxisLike = 0) -> Tensor:
    """On each device its part of the sum over the devices along an axis of the mesh.

    Parts are as equal as they can be, the larger ones first.

    Args:
        t: A tensor. One on a single device is given back as it is.
        scatter_axis: The axis of the sum that is split, from 0.
        mesh_axis: The axis of the mesh, by name or number, or several.

    Returns:
        A tensor that is split along that axis of the mesh.

    Raises:
        ValueError: If the mesh has no axis of that name, shapes differ along it, or
            ``scatter_axis`` is negative.
        IndexError: If it has no axis of that number, or the tensor has none.

    >>> from maxjax.driver import CPU
    >>> from maxjax.experimental.sharding import DeviceMapping, DeviceMesh, Partial
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> x = Tensor.full([3], 2, device=DeviceMapping(mesh, (Partial(),)))
    >>> [s.to_numpy().tolist() for s in reduce_scatter(x).local_shards]
    [[2.0, 2.0], [2.0]]
    """
    if not t.is_distributed:
        return t
    if scatter_axis < 0:
        raise ValueError(
            f"reduce_scatter: the axis that is split is counted from 0, got {scatter_axis}"
        )
    if scatter_axis >= t.rank:
        raise IndexError(f"reduce_scatter: axis {scatter_axis} is out of range for rank {t.rank}")
    after = Sharded(scatter_axis)
    return _collective(t, Collective.REDUCE_SCATTER, mesh_axis, scatter_axis, after)


def distributed_broadcast(t: Tensor, mesh: DeviceMesh) -> Tensor:
    """A tensor on one device, copied to each device of a mesh.

    Raises:
        RuntimeError: If it is on several devices already.

    >>> from maxjax.driver import CPU
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> distributed_broadcast(Tensor([1, 2]), mesh).placements
    (Replicated(),)
    """
    if t.is_distributed:
        raise RuntimeError(
            f"distributed_broadcast copies a tensor from one device, and this one is on {t.mesh}; "
            "use transfer_to"
        )
    return transfer_to(t, DeviceMapping.replicated(mesh))
