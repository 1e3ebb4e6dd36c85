# SPDX-License-Identifier: Apache-2.0
"""Elements picked by index: along an axis, or where coordinates point."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from maxjax.graph.dim import StaticDim
from maxjax.graph.op import Op, SizeError, refused
from maxjax.graph.ops._operands import axis_of, int_of, same_device, tensor
from maxjax.graph.ops._window import wrap_index
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["gather", "gather_nd"]


class Gather(Op):
    """The slices along ``axis`` that an integer tensor names."""

    axis: int

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        if not indices.dtype.is_integral():
            raise ValueError(f"indices must be integers, not {indices.dtype.name}")
        shape, axis = x.shape, self.axis
        dims = Shape([*shape[:axis], *indices.shape, *shape[axis + 1 :]])
        return TensorType._of(x.dtype, dims, same_device(x, indices))

    def lower(self, x: jax.Array, indices: jax.Array) -> jax.Array:
        size = x.shape[self.axis]
        if isinstance(size, int) and size == 0:
            shape = (*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :])
            if 0 not in shape:
                raise SizeError(f"axis {self.axis} has size 0, so no index is in range")
            return jnp.zeros(shape, x.dtype)
        return jnp.take(x, wrap_index(indices, size), axis=self.axis, mode="clip")


class GatherNd(Op):
    """The elements or slices that coordinates, in the last axis of the indices, point at."""

    batch_dims: int

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        if not indices.dtype.is_integral():
            raise ValueError(f"indices must be integers, not {indices.dtype.name}")
        shape, batch = x.shape, self.batch_dims
        if len(indices.shape) <= batch:
            raise ValueError(
                f"indices of rank {len(indices.shape)} are too few for {batch} batch dimensions "
                "and one of coordinates"
            )
        *many, depth = indices.shape
        if not isinstance(depth, StaticDim):
            raise ValueError(
                f"the number of coordinates, the last dimension of the indices, is {depth}; "
                "rebind it to a number first"
            )
        if batch + depth.dim > len(shape):
            after = f" after {batch} batch dimensions" if batch else ""
            raise ValueError(f"{depth} coordinates{after} are too many for rank {len(shape)}")
        for i, (a, b) in enumerate(zip(shape[:batch], many[:batch], strict=True)):
            if a != b:
                raise ValueError(f"batch dimension {i} is {a} and {b}; they must be equal")
        dims = Shape([*many, *shape[batch + depth.dim :]])
        return TensorType._of(x.dtype, dims, same_device(x, indices))

    def lower(self, x: jax.Array, indices: jax.Array) -> jax.Array:
        batch, many, depth = self.batch_dims, indices.shape[:-1], indices.shape[-1]
        sizes, rest = x.shape[batch : batch + depth], x.shape[batch + depth :]
        if depth == 0:
            added = tuple(range(batch, len(many)))
            return jnp.broadcast_to(jnp.expand_dims(x, added), (*many, *rest))
        if any(isinstance(size, int) and size == 0 for size in sizes):
            if 0 not in (*many, *rest):
                raise SizeError(f"{list(sizes)} holds no element, so no index is in range")
            return jnp.zeros((*many, *rest), x.dtype)
        at = [lax.broadcasted_iota(jnp.int64, many, i) for i in range(batch)]
        for k, size in enumerate(sizes):
            at.append(wrap_index(lax.index_in_dim(indices, k, -1, keepdims=False), size))
        return x.at[tuple(at)].get(mode="clip")


def gather(input: TensorValueLike, indices: TensorValueLike, axis: int) -> TensorValue:
    """The slices of ``input`` along ``axis`` that ``indices`` names.

    Indices from ``-N`` to ``-1`` count from the end. What is out of range becomes the nearest
    index that is in it: 0 below ``-N``, ``N - 1`` above.

    Args:
        input: A tensor of shape ``(..., N, ...)`` with ``N`` at ``axis``.
        indices: An integer tensor of any shape, on the same device.
        axis: Negative counts from the end.

    Returns:
        A tensor of the dtype and shape of ``input``, with the shape of ``indices`` in the place
        of ``axis``.

    Raises:
        TypeError: If an operand is not a graph value.
        IndexError: If there is no such axis.
        ValueError: If ``indices`` are not integers, or devices differ; and when the graph runs, if
            the axis is empty and ``indices`` is not.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> table = TensorType(DType.float32, [1000, 16], DeviceRef.CPU())
    >>> tokens = TensorType(DType.int64, ["batch", "seq"], DeviceRef.CPU())
    >>> with Graph("embed", input_types=[table, tokens]) as g:
    ...     ops.gather(g.inputs[0].tensor, g.inputs[1].tensor, axis=0)
    TensorValue(float32, [batch, seq, 16], cpu:0)
    """
    input, indices = tensor("gather", input), tensor("gather", indices)
    return Gather(axis_of("gather", axis, len(input._type.shape)))(input, indices)


def gather_nd(input: TensorValueLike, indices: TensorValueLike, batch_dims: int = 0) -> TensorValue:
    """The elements or slices of ``input`` that ``indices`` point at.

    The last dimension of ``indices`` holds coordinates, one for each of D axes of ``input``:
    ``result[b] = input[indices[b, 0], ..., indices[b, D - 1]]``. Negative coordinates count from
    the end; those out of range become the nearest that is in it, as in :func:`gather`.

    Args:
        input: A tensor of shape ``(*A, N1, ..., ND, *rest)``.
        indices: An integer tensor of shape ``(*A, *B, D)`` with a number D, on the same device.
        batch_dims: The number of dimensions in A, which both have in common.

    Returns:
        A tensor of the dtype of ``input``, of shape ``(*A, *B, *rest)``.

    Raises:
        TypeError: If an operand is not a graph value, or ``batch_dims`` not an int.
        ValueError: If ``indices`` are not integers, shapes do not go together, ``batch_dims`` is
            negative, or devices differ; and when the graph runs, if there is nothing to point at.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["batch", 10, 20, 3], DeviceRef.CPU())
    >>> points = TensorType(DType.int64, ["batch", 5, 2], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, points]) as g:
    ...     ops.gather_nd(g.inputs[0].tensor, g.inputs[1].tensor, batch_dims=1)
    TensorValue(float32, [batch, 5, 3], cpu:0)
    """
    who = "gather_nd"
    x, i = tensor(who, input), tensor(who, indices)
    batch = int_of(who, "batch_dims", batch_dims, x._type, i._type)
    if batch < 0:
        raise refused(who, ValueError, f"batch_dims is negative: {batch}", x._type, i._type)
    return GatherNd(batch)(x, i)
