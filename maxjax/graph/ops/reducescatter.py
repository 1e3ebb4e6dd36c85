# SPDX-License-Identifier: Apache-2.0
"""``ops.reducescatter``: a sum over devices, a part of it on each of them."""

from __future__ import annotations

from collections.abc import Iterable

from maxjax.graph.ops._collective import lanes
from maxjax.graph.ops._operands import axis_of
from maxjax.graph.ops.collective import Reducescatter
from maxjax.graph.value import BufferValueLike, TensorValue, TensorValueLike

__all__ = ["sum"]


def sum(
    inputs: Iterable[TensorValueLike],
    signal_buffers: Iterable[BufferValueLike],
    axis: int = 0,
    group_size: int | None = None,
) -> list[TensorValue]:
    """On each device its part of the sum of what all devices of its group have.

    Args:
        inputs: A tensor of shape ``(..., n, ...)`` on each device, of one dtype; shapes are equal
            within a group of D devices.
        signal_buffers: A buffer for each device; accepted, and not used.
        axis: The axis to divide; negative counts from the end.
        group_size: How many neighbours make a group; by default all are one.

    Returns:
        For each device a tensor of shape ``(..., n // D, ...)``; the first ``n % D`` devices of a
        group have one more.

    Raises:
        TypeError: If an input is no tensor or a signal no buffer.
        ValueError: If there is no such axis, signals are not one for each input, groups do not
            come out even, two inputs are on one device, or dtypes or shapes differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops
    >>> devices = [DeviceRef.GPU(0), DeviceRef.GPU(1)]
    >>> partial = [TensorType(DType.float32, [5, 8], d) for d in devices]
    >>> signals = [BufferType(DType.uint8, [1], d) for d in devices]
    >>> with Graph("g", input_types=[*partial, *signals]) as g:
    ...     ops.reducescatter.sum(g.inputs[:2], g.inputs[2:])
    [TensorValue(float32, [3, 8], gpu:0), TensorValue(float32, [2, 8], gpu:1)]
    """
    who = "reducescatter.sum"
    values, size = lanes(who, inputs, signal_buffers, group_size)
    at = axis_of(who, axis, min(len(v._type.shape) for v in values), ValueError)
    return list(Reducescatter(at, size)(*values))
