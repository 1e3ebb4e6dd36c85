# SPDX-License-Identifier: Apache-2.0
"""Elements picked by index."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from maxjax.graph.op import Op, SizeError
from maxjax.graph.ops._operands import axis_of, same_device, tensor
from maxjax.graph.ops._window import wrap_index
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["gather"]


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
