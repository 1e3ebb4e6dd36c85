# SPDX-License-Identifier: Apache-2.0
"""Products of matrices and vectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from maxjax.graph.op import Op
from maxjax.graph.ops._operands import broadcast_shapes, pair, same_device, tensor
from maxjax.graph.ops._precision import accumulator, dot_precision
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["matmul", "outer"]


def _one_dtype(x: TensorType, y: TensorType) -> None:
    if x.dtype is not y.dtype:
        raise ValueError(f"operands differ in dtype, {x.dtype.name} and {y.dtype.name}")


class Matmul(Op):
    """The matrix product over the last two dimensions; leading ones broadcast."""

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        _one_dtype(x, y)
        device = same_device(x, y)
        a, b = x.shape, y.shape
        if not a or not b:
            raise ValueError("a scalar has no rows or columns; use * instead")
        inner, other = a[-1], b[-2] if len(b) > 1 else b[0]
        if inner != other:
            raise ValueError(f"inner dimensions differ, {inner} against {other}")
        columns = b[-1:] if len(b) > 1 else []
        dims = [*broadcast_shapes(a[:-2], b[:-2]), *a[-2:-1], *columns]
        return TensorType._of(x.dtype, Shape(dims), device)

    def lower(self, x: jax.Array, y: jax.Array) -> jax.Array:
        if x.dtype == jnp.bool_:  # "any" of "and": a sum of zeros and ones that is not zero
            x, y = x.astype(jnp.float32), y.astype(jnp.float32)
            return jnp.matmul(x, y) > jnp.zeros((), jnp.float32)
        wide = accumulator(x.dtype)
        product = jnp.matmul(x, y, precision=dot_precision(), preferred_element_type=wide)
        return product.astype(x.dtype)


class Outer(Op):
    """The products of each element of one vector with each of another."""

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        _one_dtype(x, y)
        if len(x.shape) != 1 or len(y.shape) != 1:
            raise ValueError("both operands must be vectors, of rank 1")
        return TensorType._of(x.dtype, Shape([*x.shape, *y.shape]), same_device(x, y))

    def lower(self, x: jax.Array, y: jax.Array) -> jax.Array:
        shape = (*x.shape, *y.shape)
        return jnp.multiply(
            jax.lax.broadcast_in_dim(x, shape, (0,)), jax.lax.broadcast_in_dim(y, shape, (1,))
        )


_MATMUL, _OUTER = Matmul(), Outer()


def matmul(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The matrix product ``lhs @ rhs``.

    float32 is multiplied in float32 everywhere, unless JAX is told otherwise by
    ``jax.default_matmul_precision``; float16, bfloat16 and float8 are summed in float32 and
    rounded once. Integers wrap around; on bools it is ``any(lhs and rhs)``. An inner dimension of
    size 0 gives zeros.

    Args:
        lhs: A tensor of shape ``(..., M, K)`` or ``(K,)``.
        rhs: A tensor of shape ``(..., K, N)`` or ``(K,)``; leading dimensions broadcast.

    Returns:
        A tensor of shape ``(..., M, N)``, without ``M`` or ``N`` for a vector.

    Raises:
        TypeError: If an operand is not a graph value.
        ValueError: If an operand is a scalar, inner dimensions differ, leading dimensions do not
            broadcast, dtypes do not promote, or devices differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     x = g.inputs[0].tensor
    ...     ops.matmul(x, x.T)
    TensorValue(float32, [n, n], cpu:0)
    """
    return _MATMUL(*pair("matmul", tensor("matmul", lhs), tensor("matmul", rhs)))


def outer(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The outer product of two vectors: element ``[i, j]`` is ``lhs[i] * rhs[j]``.

    Args:
        lhs: A tensor of shape ``(M,)``, or an array beside a graph value.
        rhs: A tensor of shape ``(N,)``, or an array beside a graph value.

    Returns:
        A tensor of shape ``(M, N)``.

    Raises:
        TypeError: If neither is a graph value, or one is not a tensor, a number or an array.
        ValueError: If an operand is not a vector, dtypes do not promote, or devices differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> t = [TensorType(DType.float32, [d], DeviceRef.CPU()) for d in ("m", "n")]
    >>> with Graph("g", input_types=t) as g:
    ...     ops.outer(g.inputs[0].tensor, g.inputs[1].tensor)
    TensorValue(float32, [m, n], cpu:0)
    """
    return _OUTER(*pair("outer", lhs, rhs))
