# SPDX-License-Identifier: Apache-2.0
"""What ops accept as operands, turned into values: conversion, promotion, axes, broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.graph.dim import Dim, StaticDim
from maxjax.graph.dtype_promotion import promote, weak_dtype
from maxjax.graph.op import refused
from maxjax.graph.operand import tensor
from maxjax.graph.ops.cast import Cast
from maxjax.graph.ops.constant import literal
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType, Type
from maxjax.graph.value import TensorValue, has_tensor_value

__all__ = [
    "axis_of",
    "beside",
    "broadcast_arrays",
    "broadcast_shapes",
    "int_of",
    "is_strong",
    "not_negative",
    "pair",
    "same_device",
    "shape_of",
    "tensor",
    "to_dtype",
    "with_dim",
]


def to_dtype(x: TensorValue, dtype: Any) -> TensorValue:
    """``x`` as ``dtype``; ``x`` itself when it is that already."""
    return x if x._type.dtype is dtype else Cast(dtype)(x)


def is_strong(x: Any) -> bool:
    """Whether ``x`` is or stands for a graph value, rather than being a number or an array."""
    return has_tensor_value(x) or isinstance(x, (Dim, Shape))


def pair(who: str, lhs: Any, rhs: Any) -> tuple[TensorValue, TensorValue]:
    """Both operands as tensor values of one dtype.

    Two graph values take the dtype that holds every value of the other; a number or array beside
    a graph value takes that value's dtype and device.

    Raises:
        TypeError: If neither is a graph value, or one is not a tensor, a number or an array.
        ValueError: If no input dtype holds both, or a number is not exact in it.
    """
    a, b = lhs, rhs
    if type(a) is not TensorValue:
        a = tensor(who, a) if is_strong(a) else None
    if type(b) is not TensorValue:
        b = tensor(who, b) if is_strong(b) else None
    if a is None:
        if b is None:
            raise refused(
                who,
                TypeError,
                f"at least one operand must be a graph value, got {type(lhs).__name__} and "
                f"{type(rhs).__name__}",
            )
        return _weak(who, lhs, b), b
    if b is None:
        return a, _weak(who, rhs, a)
    x, y = a._type.dtype, b._type.dtype
    if x is not y:
        try:
            dtype = promote(x, y)
        except ValueError as e:
            raise refused(who, ValueError, str(e), a._type, b._type) from None
        a, b = to_dtype(a, dtype), to_dtype(b, dtype)
    return a, b


def beside(who: str, x: Any, other: TensorValue) -> TensorValue:
    """``x`` as a tensor value; a number or array takes the dtype and device of ``other``.

    Raises:
        TypeError: If ``x`` is not a tensor, a number or an array.
        ValueError: If a number is not exact in that dtype.
    """
    return tensor(who, x) if is_strong(x) else _weak(who, x, other)


def _weak(who: str, number: Any, beside: TensorValue) -> TensorValue:
    """A number or array as a constant of the dtype and on the device of ``beside``."""
    type_ = beside._type
    try:
        return literal(number, weak_dtype(number, type_.dtype), type_.device)
    except (TypeError, ValueError) as e:
        raise refused(who, type(e), str(e), type_) from None


def axis_of(
    who: str, axis: int, rank: int, error: type[Exception] = IndexError, *, extra: int = 0
) -> int:
    """``axis`` counted from the front.

    Args:
        who: The op, for the message.
        axis: From ``-rank`` to ``rank - 1``.
        rank: The number of dimensions.
        error: What to raise.
        extra: How many positions past the end count too (1 where a new axis is made).

    Raises:
        error: If there is no such axis.
    """
    n = rank + extra
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        raise refused(who, TypeError, f"axis must be an int, got {axis!r}")
    if not -n <= axis < n:
        span = f"it must be from {-n} to {n - 1}" if n else "a scalar has no axis"
        raise refused(who, error, f"axis {axis} is out of range for rank {rank}: {span}")
    return int(axis) % n


def shape_of(who: str, dims: Any, *types: Type) -> Shape:
    """``dims`` as a shape; numbers in it may be negative.

    Raises:
        TypeError: If it is not made of ints, names and dims.
        ValueError: If a name is malformed.
    """
    try:
        return Shape(dims)
    except (TypeError, ValueError) as e:
        raise refused(who, type(e), str(e), *types) from None


def with_dim(shape: Shape, axis: int, dim: Dim) -> Shape:
    """A copy of ``shape`` with another dim at ``axis``."""
    new = Shape(shape)
    new[axis] = dim
    return new


def not_negative(shape: Sequence[Dim]) -> None:
    """Refuses a shape with a negative number in it.

    Raises:
        ValueError: If there is one.
    """
    for dim in shape:
        if type(dim) is StaticDim and dim.dim < 0:
            raise ValueError(f"the new shape {Shape(shape).brief()} has the negative size {dim}")


def int_of(who: str, what: str, value: Any, *types: Type) -> int:
    """``value``, an int or a static dim, as an int; ``what`` names it in the message.

    Raises:
        TypeError: If it is neither.
    """
    if isinstance(value, StaticDim):
        return value.dim
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise refused(who, TypeError, f"{what} must be an int, got {value!r}", *types)


def same_device(*types: TensorType) -> Any:
    """The device that all operands are on.

    Raises:
        ValueError: If they are on different ones.
    """
    device = types[0].device
    for t in types[1:]:
        if t.device is not device and t.device != device:
            raise ValueError(
                f"operands are on different devices, {device} and {t.device}; "
                "move one with x.to(y.device)"
            )
    return device


_ONE = StaticDim(1)


def broadcast_shapes(a: Sequence[Dim], b: Sequence[Dim]) -> Shape:
    """The shape both broadcast to; only a dimension that is 1 stretches.

    Raises:
        ValueError: If two dimensions differ and neither is 1.
    """
    if a == b:
        return Shape(a)
    if len(a) < len(b):
        a, b = b, a
    gap = len(a) - len(b)
    out = list(a[:gap])
    for x, y in zip(a[gap:], b, strict=True):
        if x == y or y == _ONE:
            out.append(x)
        elif x == _ONE:
            out.append(y)
        else:
            hint = (
                ""
                if isinstance(x, StaticDim) and isinstance(y, StaticDim)
                else "; if they are always equal, say so with x.rebind(...)"
            )
            raise ValueError(f"dimensions {x} and {y} do not broadcast{hint}")
    return Shape(out)


def broadcast_arrays(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both arrays in their common shape, by explicit broadcasts only."""
    if x.shape == y.shape:
        return x, y
    shape = jnp.broadcast_shapes(x.shape, y.shape)
    return _stretch(x, shape), _stretch(y, shape)


def _stretch(x: jax.Array, shape: tuple[Any, ...]) -> jax.Array:
    if x.shape == shape:
        return x
    # Rank-0 operands stay scalars for XLA to fuse; jnp.broadcast_to is explicit in strict mode.
    return jnp.broadcast_to(x, shape)
