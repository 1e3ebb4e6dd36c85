# SPDX-License-Identifier: Apache-2.0
"""Buffers: reading, writing and making mutable tensors. Effects happen in program order."""

from __future__ import annotations

from typing import Any

import jax

from maxjax.graph.op import State, StateOp, refused
from maxjax.graph.type import BufferType, TensorType
from maxjax.graph.value import BufferValue, BufferValueLike, TensorValue, TensorValueLike

__all__ = ["buffer_load", "buffer_store"]


class BufferLoad(StateOp):
    """The current contents of a buffer."""

    def infer(self, buffer: BufferType) -> TensorType:
        return buffer.as_tensor()

    def lower(self, state: State, buffer: Any) -> jax.Array:
        return state.read(buffer)


class BufferStore(StateOp):
    """Replaces the contents of a buffer."""

    def infer(self, buffer: BufferType, source: TensorType) -> None:
        if source != buffer.as_tensor():
            raise ValueError("the source must have the buffer's dtype, shape and device")

    def lower(self, state: State, buffer: Any, source: jax.Array) -> None:
        state.write(buffer, source)


def _buffer(who: str, x: Any) -> BufferValue:
    try:
        return BufferValue(x)
    except TypeError as e:
        raise refused(who, TypeError, str(e)) from None


def _source(who: str, x: Any) -> TensorValue:
    try:
        return TensorValue(x)
    except TypeError as e:
        raise refused(who, TypeError, str(e)) from None


def buffer_load(x: BufferValue) -> TensorValue:
    """The current contents of a buffer, as a tensor.

    Args:
        x: A buffer.

    Raises:
        TypeError: If ``x`` is not a buffer.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, ops
    >>> with Graph("g", input_types=[BufferType(DType.float32, [4], DeviceRef.CPU())]) as g:
    ...     ops.buffer_load(g.inputs[0].buffer)
    TensorValue(float32, [4], cpu:0)
    """
    return BufferLoad()(_buffer("buffer_load", x))


def buffer_store(destination: BufferValueLike, source: TensorValueLike) -> None:
    """Replaces the contents of a buffer.

    Args:
        destination: A buffer.
        source: A tensor of its dtype, shape and device.

    Raises:
        TypeError: If ``destination`` is not a buffer or ``source`` not a graph value.
        ValueError: If the types differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, ops
    >>> with Graph("g", input_types=[BufferType(DType.float32, [4], DeviceRef.CPU())]) as g:
    ...     state = g.inputs[0].buffer
    ...     ops.buffer_store(state, ops.buffer_load(state) + 1)
    """
    BufferStore()(_buffer("buffer_store", destination), _source("buffer_store", source))
