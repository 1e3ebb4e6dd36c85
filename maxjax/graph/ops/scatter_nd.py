# SPDX-License-Identifier: Apache-2.0
"""Elements and slices replaced, or combined with others, where coordinates point.

What becomes of indices and of updates that meet: :mod:`maxjax.graph.ops._scatter`.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from maxjax.graph.dim import StaticDim
from maxjax.graph.ops._operands import tensor
from maxjax.graph.ops._scatter import ScatterOp, counter, last_only, places
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = [
    "scatter_nd",
    "scatter_nd_add",
    "scatter_nd_max",
    "scatter_nd_min",
    "scatter_nd_mul",
]


class ScatterNd(ScatterOp):
    """Elements or slices put where coordinates say: the first axes' indices, in the last axis."""

    def check(self, x: TensorType, updates: TensorType, indices: TensorType) -> None:
        if not indices.shape:
            raise ValueError("the indices are a scalar; their last dimension holds coordinates")
        *batch, depth = indices.shape
        if not isinstance(depth, StaticDim):
            raise ValueError(
                f"the number of coordinates, the last dimension of the indices, is {depth}; "
                "rebind it to a number first"
            )
        rest = x.shape[depth.dim :]
        if depth.dim > len(x.shape):
            raise ValueError(f"{depth} coordinates are too many for rank {len(x.shape)}")
        if list(updates.shape) != [*batch, *rest]:
            expected = Shape([*batch, *rest]).brief()
            raise ValueError(
                f"the updates have shape {updates.shape.brief()}, expected {expected}: that of "
                f"the indices without the last dimension, and of what {depth} coordinates pick"
            )

    def lower(self, x: jax.Array, updates: jax.Array, indices: jax.Array) -> jax.Array:
        if any(isinstance(n, int) and n == 0 for n in x.shape):
            return x
        whole = x.shape
        if indices.shape[-1] == 0:  # each update is for the whole tensor: the only one of a list
            x = jnp.expand_dims(x, 0)
            indices = jnp.zeros((*indices.shape[:-1], 1), indices.dtype)
        depth, batch = indices.shape[-1], indices.shape[:-1]
        at = tuple(
            [
                places(lax.index_in_dim(indices, k, -1, keepdims=False), x.shape[k])
                for k in range(depth)
            ]
        )
        count = math.prod(batch)
        if self.combine == "set" and not (isinstance(count, int) and count <= 1):
            order = jnp.reshape(lax.iota(counter(count), count), batch)
            at = last_only(x.shape[:depth], at, order, 0)
        return jnp.reshape(self.put(x, at, updates), whole)


class ScatterNdAdd(ScatterNd):
    """As :class:`ScatterNd`; updates are added."""

    combine = "add"


class ScatterNdMax(ScatterNd):
    """As :class:`ScatterNd`; the larger of what is there and the updates."""

    combine = "max"


class ScatterNdMin(ScatterNd):
    """As :class:`ScatterNd`; the smaller of what is there and the updates."""

    combine = "min"


class ScatterNdMul(ScatterNd):
    """As :class:`ScatterNd`; updates are multiplied in."""

    combine = "mul"


# ---------------------------------------------------------------- functions


def _by_coordinates(
    op: ScatterNd, input: TensorValueLike, updates: Any, indices: Any
) -> TensorValue:
    who = op.mnemonic
    return op(tensor(who, input), tensor(who, updates), tensor(who, indices))


def scatter_nd(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike
) -> TensorValue:
    """``input`` with elements or slices replaced by ``updates`` where ``indices`` point.

    The last dimension of ``indices`` holds coordinates, one for each of the first D axes of
    ``input``: ``result[indices[b, 0], ..., indices[b, D - 1]] = updates[b]``. Of several updates of
    one place the last one stays. Negative coordinates count from the end; updates with a
    coordinate out of range are dropped.

    Args:
        input: A tensor of rank R.
        updates: A tensor of the dtype of ``input``, of shape ``(*B, *input.shape[D:])``.
        indices: An ``int32`` or ``int64`` tensor of shape ``(*B, D)``, with a number D <= R.

    Returns:
        A tensor of the type of ``input``.

    Raises:
        TypeError: If an operand is not a graph value.
        ValueError: If dtypes, shapes or devices do not go together.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n", 4], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, TensorType(DType.int64, [2, 1], DeviceRef.CPU())]) as g:
    ...     ops.scatter_nd(g.inputs[0].tensor, g.inputs[0].tensor[:2], g.inputs[1].tensor)
    TensorValue(float32, [n, 4], cpu:0)
    """
    return _by_coordinates(ScatterNd(), input, updates, indices)


def scatter_nd_add(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike
) -> TensorValue:
    """``input`` with ``updates`` added where ``indices`` point.

    The order in which floats are added is the device's own. Args, result and errors as for
    :func:`scatter_nd`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n", 4], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, TensorType(DType.int64, [2, 1], DeviceRef.CPU())]) as g:
    ...     ops.scatter_nd_add(g.inputs[0].tensor, g.inputs[0].tensor[:2], g.inputs[1].tensor)
    TensorValue(float32, [n, 4], cpu:0)
    """
    return _by_coordinates(ScatterNdAdd(), input, updates, indices)


def scatter_nd_max(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike
) -> TensorValue:
    """``input`` raised to ``updates`` where ``indices`` point; NaN wins.

    Args, result and errors as for :func:`scatter_nd`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n", 4], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, TensorType(DType.int64, [2, 1], DeviceRef.CPU())]) as g:
    ...     ops.scatter_nd_max(g.inputs[0].tensor, g.inputs[0].tensor[:2], g.inputs[1].tensor)
    TensorValue(float32, [n, 4], cpu:0)
    """
    return _by_coordinates(ScatterNdMax(), input, updates, indices)


def scatter_nd_min(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike
) -> TensorValue:
    """``input`` lowered to ``updates`` where ``indices`` point; NaN wins.

    Args, result and errors as for :func:`scatter_nd`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n", 4], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, TensorType(DType.int64, [2, 1], DeviceRef.CPU())]) as g:
    ...     ops.scatter_nd_min(g.inputs[0].tensor, g.inputs[0].tensor[:2], g.inputs[1].tensor)
    TensorValue(float32, [n, 4], cpu:0)
    """
    return _by_coordinates(ScatterNdMin(), input, updates, indices)


def scatter_nd_mul(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike
) -> TensorValue:
    """``input`` multiplied by ``updates`` where ``indices`` point.

    Args, result and errors as for :func:`scatter_nd`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n", 4], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, TensorType(DType.int64, [2, 1], DeviceRef.CPU())]) as g:
    ...     ops.scatter_nd_mul(g.inputs[0].tensor, g.inputs[0].tensor[:2], g.inputs[1].tensor)
    TensorValue(float32, [n, 4], cpu:0)
    """
    return _by_coordinates(ScatterNdMul(), input, updates, indices)
