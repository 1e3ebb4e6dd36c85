# SPDX-License-Identifier: Apache-2.0
"""Ops over several devices: a value on each, put together, taken apart or handed around.

The sums over devices are ``ops.allreduce.sum``, ``ops.bundled_allreduce.sum`` and
``ops.reducescatter.sum``, each in a module of its own, as in the reference.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from maxjax.driver import Device
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import Dim, StaticDim
from maxjax.graph.op import Op, SizeError, refused
from maxjax.graph.ops._collective import equal_shapes, groups, lanes, one_dtype, signal_devices
from maxjax.graph.ops._operands import axis_of, same_device, tensor, with_dim
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import BufferValueLike, TensorValue, TensorValueLike

__all__ = ["allgather", "distributed_broadcast", "distributed_scatter", "shard_and_stack"]


# ---------------------------------------------------------------- ops


class Allreduce(Op):
    """The sum over each group of devices, on each of its devices."""

    group_size: int

    def infer(self, *xs: TensorType) -> tuple[TensorType, ...]:
        one_dtype(xs)
        for group in groups(xs, self.group_size):
            equal_shapes(group)
        return xs

    def lower(self, *xs: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(
            total
            for group in groups(xs, self.group_size)
            for total in [_sum(group)] * self.group_size
        )


class Reducescatter(Op):
    """The sum over each group of devices, a part of it on each of its devices.

    Where the parts cannot be equal, the first ones are larger by one.
    """

    axis: int
    group_size: int

    def infer(self, *xs: TensorType) -> tuple[TensorType, ...]:
        one_dtype(xs)
        types = []
        for group in groups(xs, self.group_size):
            equal_shapes(group)
            sizes = _parts(group[0].shape[self.axis], self.group_size)
            for x, size in zip(group, sizes, strict=True):
                types.append(TensorType._of(x.dtype, with_dim(x.shape, self.axis, size), x.device))
        return tuple(types)

    def lower(self, *xs: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(
            part
            for group in groups(xs, self.group_size)
            for part in cut(_sum(group), self.group_size, self.axis)
        )


class Allgather(Op):
    """What each device of a group has, one after the other, on each of its devices."""

    axis: int
    group_size: int

    def infer(self, *xs: TensorType) -> tuple[TensorType, ...]:
        one_dtype(xs)
        types = []
        for group in groups(xs, self.group_size):
            if any(len(x.shape) != len(xs[0].shape) for x in group):
                raise ValueError("inputs differ in rank")
            equal_shapes(group, but=self.axis)
            total = functools.reduce(lambda a, b: a + b, [x.shape[self.axis] for x in group])
            for x in group:
                types.append(TensorType._of(x.dtype, with_dim(x.shape, self.axis, total), x.device))
        return tuple(types)

    def lower(self, *xs: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(
            whole
            for group in groups(xs, self.group_size)
            for whole in [jnp.concatenate(group, self.axis)] * self.group_size
        )


class DistributedScatter(Op):
    """The inputs of one device, each on its own run of devices."""

    devices: tuple[DeviceRef, ...]

    def infer(self, *xs: TensorType) -> tuple[TensorType, ...]:
        one_dtype(xs)
        same_device(*xs)
        each = -(-len(self.devices) // len(xs))
        return tuple(
            TensorType._of(xs[i // each].dtype, xs[i // each].shape, device)
            for i, device in enumerate(self.devices)
        )

    def lower(self, *xs: jax.Array) -> tuple[jax.Array, ...]:
        each = -(-len(self.devices) // len(xs))
        return tuple(xs[i // each] for i in range(len(self.devices)))


class ShardAndStack(Op):
    """Equal parts of each tensor, those for one device stacked."""

    devices: tuple[DeviceRef, ...]
    axis: int

    def infer(self, *xs: TensorType) -> tuple[TensorType, ...]:
        first, n = xs[0], len(self.devices)
        one_dtype(xs)
        equal_shapes(xs)
        same_device(*xs)
        whole = first.shape[self.axis]
        if isinstance(whole, StaticDim) and whole.dim % n:
            raise ValueError(_uneven(whole, self.axis, n))
        part = with_dim(first.shape, self.axis, whole // n)
        shape = Shape([StaticDim(len(xs)), *part])
        return tuple(TensorType._of(first.dtype, shape, device) for device in self.devices)

    def lower(self, *xs: jax.Array) -> tuple[jax.Array, ...]:
        n, whole = len(self.devices), xs[0].shape[self.axis]
        if whole % n != 0:
            raise SizeError(_uneven(whole, self.axis, n))
        return tuple(cut(jnp.stack(xs), n, self.axis + 1))


def _uneven(whole: Any, axis: int, n: int) -> str:
    return f"dimension {axis} of size {whole} does not divide into {n} equal parts"


def _sum(xs: tuple[jax.Array, ...]) -> jax.Array:
    return functools.reduce(jnp.logical_or if xs[0].dtype == bool else jnp.add, xs)


def _parts(whole: Dim, n: int) -> list[Dim]:
    """The sizes of ``n`` parts of a dimension, the first ones larger by one at most."""
    return [(whole + (n - 1 - i)) // n for i in range(n)]


def cut(x: jax.Array, n: int, axis: int) -> list[jax.Array]:
    """``n`` consecutive parts, the first ones larger by one where they cannot be equal."""
    whole, parts, start = x.shape[axis], [], 0
    for i in range(n):
        stop = start + (whole + (n - 1 - i)) // n
        parts.append(lax.slice_in_dim(x, start, stop, axis=axis))
        start = stop
    return parts


# ---------------------------------------------------------------- functions


def allgather(
    inputs: Iterable[TensorValueLike],
    signal_buffers: Iterable[BufferValueLike],
    axis: int = 0,
    group_size: int | None = None,
) -> list[TensorValue]:
    """On each device what all devices of its group have, one after the other.

    Args:
        inputs: A tensor of shape ``(..., n_i, ...)`` on each device, alike but for ``axis``.
        signal_buffers: A buffer for each device; accepted, and not used.
        axis: Along which they follow each other; negative counts from the end.
        group_size: How many neighbours make a group; by default all are one.

    Returns:
        A tensor of shape ``(..., sum(n_i), ...)`` for each device.

    Raises:
        TypeError: If an input is no tensor or a signal no buffer.
        IndexError: If there is no such axis.
        ValueError: If signals are not one for each input, groups do not come out even, two inputs
            are on one device, or dtypes, ranks or other dims differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops
    >>> devices = [DeviceRef.GPU(0), DeviceRef.GPU(1)]
    >>> rows = [TensorType(DType.float32, ["n", 8], d) for d in devices]
    >>> signals = [BufferType(DType.uint8, [1], d) for d in devices]
    >>> with Graph("g", input_types=[*rows, *signals]) as g:
    ...     ops.allgather(g.inputs[:2], g.inputs[2:])
    [TensorValue(float32, [n * 2, 8], gpu:0), TensorValue(float32, [n * 2, 8], gpu:1)]
    """
    who = "allgather"
    values, size = lanes(who, inputs, signal_buffers, group_size)
    at = axis_of(who, axis, min(len(v._type.shape) for v in values))
    return list(Allgather(at, size)(*values))


def distributed_broadcast(
    input: TensorValueLike, signal_buffers: Iterable[BufferValueLike]
) -> list[TensorValue]:
    """A tensor of one device, on each of several.

    Args:
        input: A tensor on one of the devices.
        signal_buffers: A buffer on each device that is to have it.

    Returns:
        A tensor like ``input`` for each signal buffer, on its device.

    Raises:
        TypeError: If the input is no tensor or a signal no buffer.
        ValueError: If there is no signal, two are on one device, or none is on that of the input.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops
    >>> devices = [DeviceRef.GPU(0), DeviceRef.GPU(1)]
    >>> signals = [BufferType(DType.uint8, [1], d) for d in devices]
    >>> with Graph("g", input_types=[TensorType(DType.int32, [3], devices[0]), *signals]) as g:
    ...     ops.distributed_broadcast(g.inputs[0], g.inputs[1:])
    [TensorValue(int32, [3], gpu:0), TensorValue(int32, [3], gpu:1)]
    """
    return _handed_out("distributed_broadcast", [input], signal_buffers)


def distributed_scatter(
    input_chunks: Iterable[TensorValueLike], signal_buffers: Iterable[BufferValueLike]
) -> list[TensorValue]:
    """Tensors of one device, each on its own run of devices: one for each replica of a model.

    Args:
        input_chunks: K tensors of one dtype on one of the devices; shapes may differ.
        signal_buffers: A buffer on each of N devices.

    Returns:
        N tensors: the first ``ceil(N / K)`` devices have the first chunk, and so on. Where there
        are more chunks than devices, the last ones are on none.

    Raises:
        TypeError: If an input is no tensor or a signal no buffer.
        ValueError: If there is no chunk or no signal, chunks differ in dtype or device, two
            signals are on one device, or none is on that of the chunks.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops
    >>> devices = [DeviceRef.GPU(i) for i in range(4)]
    >>> chunk = TensorType(DType.int32, [5], devices[0])
    >>> signals = [BufferType(DType.uint8, [1], d) for d in devices]
    >>> with Graph("g", input_types=[chunk, chunk, *signals]) as g:
    ...     [str(x.device) for x in ops.distributed_scatter(g.inputs[:2], g.inputs[2:])]
    ['gpu:0', 'gpu:1', 'gpu:2', 'gpu:3']
    """
    return _handed_out("distributed_scatter", input_chunks, signal_buffers)


def _handed_out(who: str, chunks: Iterable[Any], signal_buffers: Iterable[Any]) -> list[Any]:
    values = [tensor(who, x, f"input {i}") for i, x in enumerate(chunks)]
    if not values:
        raise refused(who, ValueError, "at least one tensor is needed, got none")
    types = [v._type for v in values]
    devices = [b.device for b in signal_devices(who, signal_buffers)]
    for t in types:
        if t.device != types[0].device:
            raise refused(who, ValueError, "the inputs must be on one device", *types)
    if types[0].device not in devices:
        there = ", ".join(map(str, devices))
        raise refused(
            who,
            ValueError,
            f"the input is on {types[0].device}, where no signal buffer is; they are on {there}",
            *types,
        )
    each = -(-len(devices) // len(values))
    used = values[: -(-len(devices) // each)]
    return list(DistributedScatter(tuple(devices))(*used))


def shard_and_stack(
    inputs: Sequence[TensorValueLike], devices: Sequence[Device | DeviceRef], axis: int = 0
) -> list[TensorValue]:
    """A part of each tensor for each device, the parts for one device stacked.

    So the weights of several like layers are spread over devices.

    Args:
        inputs: K tensors of one dtype, device and shape ``(..., n, ...)``.
        devices: D devices; D must divide n.
        axis: The axis to divide; negative counts from the end.

    Returns:
        A tensor of shape ``(K, ..., n // D, ...)`` for each device.

    Raises:
        TypeError: If an input is no tensor.
        IndexError: If there is no such axis.
        ValueError: If there is no input or no device, inputs differ, or the dimension does not
            divide into equal parts, the latter also when the graph runs.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> w = TensorType(DType.float32, [8, 6], DeviceRef.CPU())
    >>> with Graph("g", input_types=[w, w]) as g:
    ...     ops.shard_and_stack(g.inputs, [DeviceRef.GPU(0), DeviceRef.GPU(1)], axis=1)
    [TensorValue(float32, [2, 8, 3], gpu:0), TensorValue(float32, [2, 8, 3], gpu:1)]
    """
    who = "shard_and_stack"
    values = [tensor(who, x, f"input {i}") for i, x in enumerate(inputs)]
    places = tuple(DeviceRef.from_device(d) for d in devices)
    if not values or not places:
        what = "input" if not values else "device"
        raise refused(who, ValueError, f"at least one {what} is needed, got none")
    at = axis_of(who, axis, len(values[0]._type.shape))
    return list(ShardAndStack(places, at)(*values))
