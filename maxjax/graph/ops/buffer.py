# SPDX-License-Identifier: Apache-2.0
"""Buffers: reading, writing and making mutable tensors. Effects happen in program order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.ir import Block
from maxjax.graph.op import Op, State, StateOp, refused
from maxjax.graph.operand import buffer
from maxjax.graph.ops._index import known_dims, parse_index, result_dims
from maxjax.graph.ops._operands import tensor
from maxjax.graph.ops._window import select
from maxjax.graph.shape import Shape
from maxjax.graph.type import BufferType, TensorType
from maxjax.graph.value import BufferValue, BufferValueLike, TensorValue, TensorValueLike, Value

__all__ = ["buffer_create", "buffer_load", "buffer_store", "buffer_store_slice"]


class BufferLoad(StateOp):
    """The current contents of a buffer."""

    def infer(self, buffer: BufferType) -> TensorType:
        return TensorType._of(buffer.dtype, buffer.shape, buffer.device)

    def lower(self, state: State, buffer: Any) -> jax.Array:
        return state.read(buffer)


def written(region: Block) -> list[Value]:
    """The buffers outside a region that it may write: all that its ops take, but for loads."""
    assert region.parent is not None
    return [
        v
        for node in region.walk()
        if not isinstance(node.op, BufferLoad)
        for v in node.operands
        if isinstance(v.type, BufferType) and region.parent.sees(v._block)
    ]


class BufferStore(StateOp):
    """Replaces the contents of a buffer."""

    def infer(self, buffer: BufferType, source: TensorType) -> None:
        _check_source(buffer, source, buffer.shape, "the buffer")

    def lower(self, state: State, buffer: Any, source: jax.Array) -> None:
        state.write(buffer, source)


class BufferStoreSlice(StateOp):
    """Replaces the elements of a buffer that an index selects; see `maxjax.graph.ops._index`."""

    index: tuple[Any, ...]
    out_dims: tuple[Any, ...] = ()

    def infer(self, buffer: BufferType, source: TensorType, *values: TensorType) -> None:
        dims = result_dims(self.index, self.out_dims, buffer.shape, values, IndexError)
        _check_source(buffer, source, Shape(dims), "the slice")

    def at(self, dims: Mapping[str, Any]) -> Op:
        if not self.out_dims:
            return super().at(dims)
        index = BufferStoreSlice(self.index).at(dims)
        assert isinstance(index, BufferStoreSlice)
        return BufferStoreSlice(index.index, known_dims(self.out_dims, dims))

    def lower(self, state: State, buffer: Any, source: jax.Array, *values: jax.Array) -> None:
        array = state.read(buffer)
        windows = select(self.index, self.out_dims, array.shape, values)
        state.write(buffer, windows.write(array, source))


class BufferCreate(StateOp):
    """A new buffer, filled with a number."""

    dtype: DType
    shape: Shape
    device: DeviceRef
    init_value: float | int | bool = 0

    def infer(self) -> BufferType:
        return BufferType._of(self.dtype, self.shape, self.device)

    def lower(self, state: State) -> Any:
        fill = jnp.asarray(np.asarray(self.init_value).astype(self.dtype.np))
        return state.create(jnp.broadcast_to(fill, tuple(self.shape)))


def _check_source(buffer: BufferType, source: TensorType, dims: Shape, what: str) -> None:
    if source.dtype is not buffer.dtype:
        raise ValueError(
            f"the source is {source.dtype.name}, the buffer {buffer.dtype.name}; cast it"
        )
    if source.shape != dims:
        raise ValueError(f"the source has shape {source.shape.brief()}, {what} {dims.brief()}")
    if source.device != buffer.device:
        raise ValueError(
            f"the source is on {source.device}, the buffer on {buffer.device}; transfer it"
        )


def buffer_load(x: BufferValue) -> TensorValue:
    """The contents of a buffer at this point of the program, as a tensor.

    Later writes do not change the tensor.

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
    return BufferLoad()(buffer("buffer_load", x))


def buffer_store(destination: BufferValueLike, source: TensorValueLike) -> None:
    """Replaces the contents of a buffer.

    Args:
        destination: A buffer.
        source: A tensor of its dtype, shape and device.

    Raises:
        TypeError: If ``destination`` is not a buffer or ``source`` not a graph value.
        ValueError: If dtypes, shapes or devices differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, ops
    >>> with Graph("g", input_types=[BufferType(DType.float32, [4], DeviceRef.CPU())]) as g:
    ...     state = g.inputs[0].buffer
    ...     ops.buffer_store(state, ops.buffer_load(state) + 1)
    """
    BufferStore()(buffer("buffer_store", destination), tensor("buffer_store", source))


def buffer_store_slice(
    destination: BufferValueLike, source: TensorValueLike, indices: Sequence[Any]
) -> None:
    """Replaces a part of a buffer; ``b[i, j] = x`` is ``buffer_store_slice(b, x, [i, j])``.

    Args:
        destination: A buffer.
        source: A tensor of its dtype and device, of exactly the shape that reading ``indices``
            gives.
        indices: As for ``ops.slice_tensor``, without ``None``. Where an index is a scalar tensor,
            what is out of range when the graph runs is brought into it.

    Raises:
        TypeError: If ``destination`` is not a buffer, ``source`` not a graph value, or an index of
            another kind.
        IndexError: If an index or slice is out of range.
        ValueError: If dtypes, shapes or devices differ, or an index is otherwise wrong.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, ops
    >>> cache = BufferType(DType.float32, ["batch", 128, 64], DeviceRef.CPU())
    >>> with Graph("g", input_types=[cache]) as g:
    ...     b = g.inputs[0].buffer
    ...     ops.buffer_store_slice(b, b[:, 0], [slice(None), 1])
    ...     b[:, 2:4] = b[:, 0:2]
    """
    who = "buffer_store_slice"
    target, value = buffer(who, destination), tensor(who, source)
    index = parse_index(who, target._type, indices, new_axes=False)
    BufferStoreSlice(index.entries, index.out_dims)(target, value, *index.values)


def buffer_create(type: BufferType, init_value: float | bool | None = None) -> BufferValue:
    """A new buffer, made each time the graph runs.

    Args:
        type: Its dtype, shape and device.
        init_value: What each element is at first; 0 when left out.

    Raises:
        TypeError: If ``type`` is not a ``BufferType`` or ``init_value`` not a number.
        ValueError: If ``init_value`` does not fit the dtype.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, ops
    >>> with Graph("g") as g:
    ...     ops.buffer_create(BufferType(DType.int32, [2, 3], DeviceRef.CPU()), init_value=1)
    BufferValue(int32, [2, 3], cpu:0)
    """
    if not isinstance(type, BufferType):
        raise refused("buffer_create", TypeError, f"type is a BufferType, not {type!r:.80}")
    fill = 0 if init_value is None else _fill(init_value, type)
    return BufferCreate(type.dtype, Shape(type.shape), type.device, fill)()


def _fill(number: Any, type_: BufferType) -> float | int | bool:
    if isinstance(number, (np.generic, np.ndarray)) and number.ndim == 0:
        number = number.item()
    if not isinstance(number, (int, float)):
        raise refused("buffer_create", TypeError, f"init_value is a number, not {number!r:.60}")
    dtype = type_.dtype
    if dtype.is_float():
        return float(number)
    low, high = (0, 1) if dtype is DType.bool else (np.iinfo(dtype.np).min, np.iinfo(dtype.np).max)
    if not math.isfinite(number) or number != int(number) or not low <= number <= high:
        raise refused(
            "buffer_create",
            ValueError,
            f"init_value {number} is none of the integers from {low} to {high} that "
            f"{dtype.name} holds",
            type_,
        )
    return bool(number) if dtype is DType.bool else int(number)
