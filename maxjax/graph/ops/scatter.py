# SPDX-License-Identifier: Apache-2.0
"""Elements replaced, or combined with others, by index along an axis or by mask.

What becomes of indices and of updates that meet: :mod:`maxjax.graph.ops._scatter`.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from maxjax.dtype import DType
from maxjax.graph.dim import Dim, DimLike, StaticDim
from maxjax.graph.op import Op, refused
from maxjax.graph.ops._operands import (
    axis_of,
    broadcast_shapes,
    is_strong,
    same_device,
    tensor,
)
from maxjax.graph.ops._scatter import ScatterOp, counter, last_only, places
from maxjax.graph.ops._window import holds, int64
from maxjax.graph.ops.cast import convert
from maxjax.graph.ops.constant import constant
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = [
    "masked_scatter",
    "scatter",
    "scatter_add",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
]

# ---------------------------------------------------------------- along an axis


class Scatter(ScatterOp):
    """Each update put in its own place, except along ``axis``, where its index says."""

    axis: int

    def check(self, x: TensorType, updates: TensorType, indices: TensorType) -> None:
        if updates.shape != indices.shape:
            raise ValueError(
                f"there is an update for each index, so their shapes are equal; they are "
                f"{updates.shape.brief()} and {indices.shape.brief()}"
            )
        if len(indices.shape) != len(x.shape):
            raise ValueError(
                f"the indices have rank {len(indices.shape)}, the input has {len(x.shape)}; "
                "they must be equal"
            )
        for i, (few, many) in enumerate(zip(indices.shape, x.shape, strict=True)):
            if i == self.axis or not isinstance(few, StaticDim) or not isinstance(many, StaticDim):
                continue
            if few.dim > many.dim:
                raise ValueError(_too_large(i, few, many))

    def lower(self, x: jax.Array, updates: jax.Array, indices: jax.Array) -> jax.Array:
        axis, shape = self.axis, indices.shape
        for i, (few, many) in enumerate(zip(shape, x.shape, strict=True)):
            if i != axis and few is not many:
                holds(lambda few=few, many=many: few <= many, _too_large(i, few, many))
        if any(isinstance(n, int) and n == 0 for n in x.shape):
            return x
        at = tuple(
            [
                places(indices, x.shape[i])
                if i == axis
                else lax.broadcasted_iota(jnp.int64, shape, i)
                for i in range(x.ndim)
            ]
        )
        if self.combine == "set" and not (isinstance(shape[axis], int) and shape[axis] <= 1):
            order = lax.broadcasted_iota(counter(shape[axis]), shape, axis)
            at = last_only(x.shape, at, order, axis)
        return self.put(x, at, updates)


def _too_large(axis: int, few: Any, many: Any) -> str:
    return f"there are updates for {few} elements of dimension {axis}, which has size {many}"


class ScatterAdd(Scatter):
    """As :class:`Scatter`; updates are added."""

    combine = "add"


class ScatterMax(Scatter):
    """As :class:`Scatter`; the larger of what is there and the updates."""

    combine = "max"


class ScatterMin(Scatter):
    """As :class:`Scatter`; the smaller of what is there and the updates."""

    combine = "min"


class ScatterMul(Scatter):
    """As :class:`Scatter`; updates are multiplied in."""

    combine = "mul"


# ---------------------------------------------------------------- by mask


class MaskedScatter(Op):
    """The elements where a mask is true replaced, in order, by the updates."""

    def infer(self, x: TensorType, mask: TensorType, updates: TensorType) -> TensorType:
        if not x.shape:
            raise ValueError("the input is a scalar; use where")
        if updates.dtype is not x.dtype:
            raise ValueError(
                f"the updates are {updates.dtype.name}, not {x.dtype.name}; cast one of them"
            )
        if broadcast_shapes(x.shape, mask.shape) != x.shape:
            raise ValueError(
                f"the mask {mask.shape.brief()} does not broadcast to {x.shape.brief()}"
            )
        return TensorType._of(x.dtype, x.shape, same_device(x, mask, updates))

    def lower(self, x: jax.Array, mask: jax.Array, updates: jax.Array) -> jax.Array:
        count, size = math.prod(updates.shape), math.prod(x.shape)
        if isinstance(count, int) and count == 0:
            return x
        chosen = jnp.reshape(jnp.broadcast_to(convert(mask, DType.bool), x.shape), (size,))
        rank = lax.cumsum(lax.convert_element_type(chosen, jnp.int64)) - 1
        source = jnp.take(jnp.reshape(updates, (count,)), rank, mode="clip")
        flat = jnp.where(chosen & (rank < int64(count)), source, jnp.reshape(x, (size,)))
        return jnp.reshape(flat, x.shape)


# ---------------------------------------------------------------- functions


def _along(
    op: type[Scatter], input: TensorValueLike, updates: Any, indices: Any, axis: int
) -> TensorValue:
    who = op.mnemonic
    x, u, i = tensor(who, input), tensor(who, updates), tensor(who, indices)
    return op(axis_of(who, axis, len(x._type.shape), ValueError))(x, u, i)


def scatter(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """``input`` with elements replaced by ``updates`` at ``indices`` along ``axis``.

    In two dimensions, for axis 0: ``result[indices[i, j], j] = updates[i, j]``. Of several updates
    of one element the last one stays. Negative indices count from the end; updates out of range
    are dropped.

    Args:
        input: A tensor of rank R >= 1.
        updates: A tensor of the dtype of ``input``, of rank R; except along ``axis`` no dimension
            is larger than that of ``input``.
        indices: An ``int32`` or ``int64`` tensor of the shape of ``updates``.
        axis: Negative counts from the end.

    Returns:
        A tensor of the type of ``input``.

    Raises:
        TypeError: If an operand is not a graph value, or ``axis`` not an int.
        ValueError: If there is no such axis, or dtypes, shapes or devices do not go together; for
            sizes that are known only then, when the graph runs.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n", 4], DeviceRef.CPU())
    >>> i = TensorType(DType.int64, ["k", 4], DeviceRef.CPU())
    >>> updates = TensorType(DType.float32, ["k", 4], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, updates, i]) as g:
    ...     ops.scatter(*[v.tensor for v in g.inputs], axis=0)
    TensorValue(float32, [n, 4], cpu:0)
    """
    return _along(Scatter, input, updates, indices, axis)


def scatter_add(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """``input`` with ``updates`` added at ``indices`` along ``axis``.

    In two dimensions, for axis 0: ``result[indices[i, j], j] += updates[i, j]``. The order in
    which floats are added is the device's own.

    Args, result and errors as for :func:`scatter`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, [10], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, TensorType(DType.int64, [3], DeviceRef.CPU())]) as g:
    ...     ops.scatter_add(g.inputs[0].tensor, g.inputs[0].tensor[:3], g.inputs[1].tensor)
    TensorValue(float32, [10], cpu:0)
    """
    return _along(ScatterAdd, input, updates, indices, axis)


def scatter_max(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """``input`` with elements raised to ``updates`` at ``indices`` along ``axis``; NaN wins.

    Args, result and errors as for :func:`scatter`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, [10], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, TensorType(DType.int64, [3], DeviceRef.CPU())]) as g:
    ...     ops.scatter_max(g.inputs[0].tensor, g.inputs[0].tensor[:3], g.inputs[1].tensor)
    TensorValue(float32, [10], cpu:0)
    """
    return _along(ScatterMax, input, updates, indices, axis)


def scatter_min(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """``input`` with elements lowered to ``updates`` at ``indices`` along ``axis``; NaN wins.

    Args, result and errors as for :func:`scatter`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, [10], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, TensorType(DType.int64, [3], DeviceRef.CPU())]) as g:
    ...     ops.scatter_min(g.inputs[0].tensor, g.inputs[0].tensor[:3], g.inputs[1].tensor)
    TensorValue(float32, [10], cpu:0)
    """
    return _along(ScatterMin, input, updates, indices, axis)


def scatter_mul(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """``input`` with elements multiplied by ``updates`` at ``indices`` along ``axis``.

    Args, result and errors as for :func:`scatter`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, [10], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, TensorType(DType.int64, [3], DeviceRef.CPU())]) as g:
    ...     ops.scatter_mul(g.inputs[0].tensor, g.inputs[0].tensor[:3], g.inputs[1].tensor)
    TensorValue(float32, [10], cpu:0)
    """
    return _along(ScatterMul, input, updates, indices, axis)


def masked_scatter(
    input: TensorValueLike, mask: TensorValueLike, updates: TensorValueLike, out_dim: DimLike
) -> TensorValue:
    """``input`` with the elements where ``mask`` is true replaced, in order, by ``updates``.

    The first element of ``updates`` goes to the first place where the mask is true, in row-major
    order, and so on. Updates that are too many are not used; where they are too few, the elements
    that remain keep what is in ``input``.

    Args:
        input: A tensor of rank at least 1.
        mask: A tensor or array that broadcasts to the shape of ``input``; of numbers, all but 0
            are true.
        updates: A tensor of the dtype of ``input``, of any shape.
        out_dim: How many elements of the mask are true, as a number, a dim or a new name. It says
            so to the reader: nothing is computed from it.

    Returns:
        A tensor of the type of ``input``.

    Raises:
        TypeError: If ``input`` or ``updates`` is not a graph value, or ``out_dim`` not a dim or
            negative.
        ValueError: If ``input`` is a scalar, dtypes or devices differ, or the mask does not
            broadcast to ``input``.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n", 4], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, TensorType(DType.float32, ["k"], DeviceRef.CPU())]) as g:
    ...     x, new = [v.tensor for v in g.inputs]
    ...     ops.masked_scatter(x, x < 0, new, out_dim="k")
    TensorValue(float32, [n, 4], cpu:0)
    """
    who = "masked_scatter"
    x, u = tensor(who, input), tensor(who, updates)
    given: Any = mask
    m = tensor(who, given) if is_strong(given) else constant(given, device=x._type.device)
    try:
        hits = Dim(out_dim)
    except (TypeError, ValueError) as e:
        raise refused(who, type(e), f"out_dim: {e}", x._type) from None
    if isinstance(hits, StaticDim) and hits.dim < 0:
        raise refused(who, TypeError, f"out_dim is the negative size {hits}", x._type)
    return MaskedScatter()(x, m, u)
