# SPDX-License-Identifier: Apache-2.0
"""Casting between element types, and moving between devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.op import Op, refused
from maxjax.graph.operand import tensor
from maxjax.graph.type import TensorType
from maxjax.graph.value import StrongTensorValueLike, TensorValue

__all__ = ["cast", "transfer_to"]


class Cast(Op):
    """Each element converted to ``dtype``."""

    dtype: DType

    def infer(self, x: TensorType) -> TensorType:
        return TensorType._of(self.dtype, x.shape, x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        return convert(x, self.dtype)


def convert(x: jax.Array, dtype: DType) -> jax.Array:
    """``x`` as ``dtype``: the one conversion used everywhere, so that all routes agree.

    Floats go to integers by truncation toward zero, saturating, NaN to 0; integers wrap.
    """
    if dtype is DType.bool:
        return x != jnp.zeros((), x.dtype)
    if x.dtype == jnp.bool_ and dtype.is_float():
        # XLA makes a choice between y and 0 of a product of y and a converted bool: NaN * 0 would
        # be 0, but only where both are compiled together.
        return jnp.where(x, jnp.ones((), dtype.np), jnp.zeros((), dtype.np))
    return jax.lax.convert_element_type(x, dtype.np)


class TransferTo(Op):
    """The same tensor on another device."""

    device: DeviceRef

    def infer(self, x: TensorType) -> TensorType:
        return TensorType._of(x.dtype, x.shape, self.device)

    def lower(self, x: jax.Array) -> jax.Array:
        return x


def cast(x: StrongTensorValueLike, dtype: DType) -> TensorValue:
    """Converts each element to ``dtype``.

    Floats become integers by truncation toward zero, saturating at the ends, NaN becomes 0.
    Integers become integers by wrapping around. Anything but zero is True as a bool, NaN too.
    Floats become narrower floats by rounding to the nearest, of two the even one. The same dtype
    gives ``x`` itself.

    Args:
        x: A tensor of any shape.
        dtype: The element type of the result.

    Returns:
        A tensor of the same shape and ``dtype``.

    Raises:
        TypeError: If ``x`` is not a graph value or ``dtype`` not a ``DType``.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.cast(g.inputs[0].tensor, DType.int8)
    TensorValue(int8, [n], cpu:0)
    """
    x = tensor("cast", x)
    if not isinstance(dtype, DType):
        raise refused("cast", TypeError, f"dtype must be a DType, got {dtype!r}")
    return x if x._type.dtype is dtype else Cast(dtype)(x)


def transfer_to(x: StrongTensorValueLike, device: Device | DeviceRef) -> TensorValue:
    """The same tensor on ``device``; ``x`` itself when it is there already.

    Args:
        x: A tensor of any shape.
        device: Where it goes.

    Raises:
        TypeError: If ``x`` is not a graph value or ``device`` no device.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, [2], DeviceRef.CPU())]) as g:
    ...     ops.transfer_to(g.inputs[0].tensor, DeviceRef.GPU())
    TensorValue(float32, [2], gpu:0)
    """
    x = tensor("transfer_to", x)
    try:
        target = DeviceRef.from_device(device)
    except TypeError as e:
        raise refused("transfer_to", TypeError, str(e), x._type) from None
    return x if x._type.device == target else TransferTo(target)(x)
