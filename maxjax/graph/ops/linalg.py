# SPDX-License-Identifier: Apache-2.0
"""Products of matrices and vectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from maxjax.graph.op import Op
from maxjax.graph.ops._operands import broadcast_shapes, pair, same_device
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["matmul"]


class Matmul(Op):
    """The matrix product over the last two dimensions; leading ones broadcast."""

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        if x.dtype is not y.dtype:
            raise ValueError(f"operands differ in dtype, {x.dtype.name} and {y.dtype.name}")
        device = same_device(x, y)
        a, b = x.shape, y.shape
        if not a or not b:
            raise ValueError("a scalar has no rows or columns; use * instead")
        inner, other = a[-1], b[-2] if len(b) > 1 else b[0]
        if inner != other:
            raise ValueError(f"inner dimensions differ, {inner} against {other}")
        batch = broadcast_shapes(a[:-2], b[:-2])
        return TensorType._of(x.dtype, Shape([*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ())]), device)

    def lower(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.matmul(x, y, precision=jax.lax.Precision.HIGHEST)


def matmul(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The matrix product ``lhs @ rhs``.

    Args:
        lhs: A tensor of shape ``(..., M, K)`` or ``(K,)``.
        rhs: A tensor of shape ``(..., K, N)`` or ``(K,)``; leading dimensions broadcast.

    Returns:
        A tensor of shape ``(..., M, N)``, without ``M`` or ``N`` for a vector.

    Raises:
        TypeError: If neither is a graph value, or one is not a tensor, a number or an array.
        ValueError: If an operand is a scalar, inner dimensions differ, leading dimensions do not
            broadcast, or dtypes do not promote.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     x = g.inputs[0].tensor
    ...     ops.matmul(x, x.T)
    TensorValue(float32, [n, n], cpu:0)
    """
    return Matmul()(*pair("matmul", lhs, rhs))
