# SPDX-License-Identifier: Apache-2.0
"""Complex numbers as pairs of real ones in the last axis: ``ops.complex``."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from maxjax.graph.dim import StaticDim
from maxjax.graph.op import Op, refused
from maxjax.graph.ops._operands import (
    broadcast_arrays,
    broadcast_shapes,
    pair,
    same_device,
    tensor,
)
from maxjax.graph.ops.shape import reshape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["as_interleaved_complex", "mul"]


class ComplexMul(Op):
    """The product of complex numbers."""

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        for t in (x, y):
            if not t.shape or t.shape[-1] != 2:
                raise ValueError(
                    "a complex number is a last dimension of 2, its real and its imaginary part; "
                    f"{t.brief()} has none"
                )
        return TensorType._of(x.dtype, broadcast_shapes(x.shape, y.shape), same_device(x, y))

    def lower(self, x: jax.Array, y: jax.Array) -> jax.Array:
        x, y = broadcast_arrays(x, y)
        a, b = [lax.index_in_dim(x, i, -1, keepdims=False) for i in (0, 1)]
        c, d = [lax.index_in_dim(y, i, -1, keepdims=False) for i in (0, 1)]
        return jnp.stack([a * c - b * d, a * d + b * c], axis=-1)


def mul(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The product of complex numbers, ``(a, b) * (c, d) = (ac - bd, ad + bc)``.

    Args:
        lhs: A tensor of shape ``(..., 2)``.
        rhs: A tensor of shape ``(..., 2)``; dtypes promote and shapes broadcast as for
            :func:`~maxjax.graph.ops.mul`.

    Returns:
        A tensor of the common shape.

    Raises:
        TypeError: If an operand is not a graph value.
        ValueError: If a last dimension is not 2, dtypes do not promote, shapes do not broadcast, or
            devices differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 2], DeviceRef.CPU())]) as g:
    ...     ops.complex.mul(g.inputs[0].tensor, g.inputs[0].tensor)
    TensorValue(float32, [n, 2], cpu:0)
    """
    who = ComplexMul.mnemonic
    return ComplexMul()(*pair(who, tensor(who, lhs), tensor(who, rhs)))


def as_interleaved_complex(x: TensorValueLike) -> TensorValue:
    """Real numbers as complex ones: each two neighbours are a real and an imaginary part.

    Args:
        x: A tensor of shape ``(..., N)`` with an even number N.

    Returns:
        A tensor of shape ``(..., N / 2, 2)``.

    Raises:
        TypeError: If ``x`` is not a graph value, or the last dimension is not a number.
        ValueError: If the last dimension is odd, or ``x`` a scalar.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 6], DeviceRef.CPU())]) as g:
    ...     ops.as_interleaved_complex(g.inputs[0].tensor)
    TensorValue(float32, [n, 3, 2], cpu:0)
    """
    who = "as_interleaved_complex"
    x = tensor(who, x)
    shape = x._type.shape
    if not shape:
        raise refused(who, ValueError, "a scalar has no pairs of numbers", x._type)
    last = shape[-1]
    if not isinstance(last, StaticDim):
        raise refused(
            who, TypeError, f"the last dimension is {last}; rebind it to a number first", x._type
        )
    if last.dim % 2:
        raise refused(
            who, ValueError, f"the last dimension, {last}, does not divide into pairs", x._type
        )
    return reshape(x, [*shape[:-1], last.dim // 2, 2])
