# SPDX-License-Identifier: Apache-2.0
"""``ops.allreduce``: a sum over devices, on each of them."""

from __future__ import annotations

from collections.abc import Iterable

from maxjax.graph.ops._collective import lanes
from maxjax.graph.ops.collective import Allreduce
from maxjax.graph.value import BufferValueLike, TensorValue, TensorValueLike

__all__ = ["sum"]


def sum(
    inputs: Iterable[TensorValueLike],
    signal_buffers: Iterable[BufferValueLike],
    group_size: int | None = None,
) -> list[TensorValue]:
    """On each device the sum of what all devices of its group have.

    Args:
        inputs: A tensor on each device, of one dtype; shapes are equal within a group.
        signal_buffers: A buffer for each device; accepted, and not used.
        group_size: How many neighbours make a group; by default all are one.

    Returns:
        A tensor like its input for each device.

    Raises:
        TypeError: If an input is no tensor or a signal no buffer.
        ValueError: If signals are not one for each input, groups do not come out even, two inputs
            are on one device, or dtypes or shapes differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops
    >>> devices = [DeviceRef.GPU(0), DeviceRef.GPU(1)]
    >>> partial = [TensorType(DType.float32, ["n", 8], d) for d in devices]
    >>> signals = [BufferType(DType.uint8, [1], d) for d in devices]
    >>> with Graph("g", input_types=[*partial, *signals]) as g:
    ...     ops.allreduce.sum(g.inputs[:2], g.inputs[2:])
    [TensorValue(float32, [n, 8], gpu:0), TensorValue(float32, [n, 8], gpu:1)]
    """
    values, size = lanes("allreduce.sum", inputs, signal_buffers, group_size)
    return list(Allreduce(size)(*values))
