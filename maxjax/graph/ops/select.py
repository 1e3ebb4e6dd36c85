# SPDX-License-Identifier: Apache-2.0
"""Elements chosen from one tensor or another."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from maxjax.dtype import DType
from maxjax.graph.op import Op
from maxjax.graph.ops._operands import broadcast_shapes, pair, same_device, tensor
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["where"]


class Where(Op):
    """Elements of ``x`` where the condition holds, of ``y`` where it does not."""

    def infer(self, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
        if condition.dtype is not DType.bool:
            raise ValueError(
                f"the condition must be bool, not {condition.dtype.name}; compare it, as in c != 0"
            )
        if x.dtype is not y.dtype:
            raise ValueError(f"operands differ in dtype, {x.dtype.name} and {y.dtype.name}")
        shape = broadcast_shapes(condition.shape, broadcast_shapes(x.shape, y.shape))
        return TensorType._of(x.dtype, shape, same_device(condition, x, y))

    def lower(self, condition: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        shape = jnp.broadcast_shapes(condition.shape, x.shape, y.shape)
        condition, x, y = [jnp.broadcast_to(a, shape) for a in (condition, x, y)]
        return jax.lax.select(condition, x, y)


_WHERE = Where()


def where(condition: TensorValueLike, x: TensorValueLike, y: TensorValueLike) -> TensorValue:
    """Elements of ``x`` where ``condition`` holds, of ``y`` where it does not.

    NaN in what is not chosen does not matter.

    Args:
        condition: A bool tensor.
        x: A tensor, or a number or array beside a graph value; the three broadcast.
        y: The same.

    Returns:
        A tensor of the common shape, and the dtype that ``x`` and ``y`` promote to.

    Raises:
        TypeError: If ``condition`` is not a graph value, or neither ``x`` nor ``y`` is.
        ValueError: If ``condition`` is not bool, shapes do not broadcast, dtypes do not promote,
            or devices differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     x = g.inputs[0].tensor
    ...     ops.where(x > 0, x, 0)
    TensorValue(float32, [n, 4], cpu:0)
    """
    condition = tensor("where", condition)
    return _WHERE(condition, *pair("where", x, y))
