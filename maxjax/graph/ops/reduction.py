# SPDX-License-Identifier: Apache-2.0
"""Reductions along one axis, which is kept with size 1, and running sums.

Sums and products of floats narrower than 32 bits are accumulated in ``float32`` and rounded once.
Those of integers wrap around; a sum of bools is whether any is true, a product whether all are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from maxjax.dtype import DType
from maxjax.graph.dim import StaticDim
from maxjax.graph.op import Op, SizeError, refused
from maxjax.graph.ops._operands import axis_of, pair, tensor
from maxjax.graph.ops._unary import is_float, wide_dtype
from maxjax.graph.ops.cast import convert
from maxjax.graph.ops.elementwise import Maximum, Minimum
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["argmax", "argmin", "cumsum", "max", "mean", "min", "prod", "sum"]

_ONE = StaticDim(1)
_MAXIMUM, _MINIMUM = Maximum(), Minimum()


def _wide(x: jax.Array) -> jax.Array:
    """``x`` in the dtype in which it is accumulated."""
    return convert(x, DType.of(wide_dtype(x.dtype))) if is_float(x) else x


class Reduction(Op, abstract=True):
    """One element for each slice along ``axis``."""

    axis: int

    def infer(self, x: TensorType) -> TensorType:
        dims = list(x.shape)
        dims[self.axis] = _ONE
        return TensorType._of(x.dtype, Shape(dims), x.device)


class Sum(Reduction):
    """The sum."""

    def lower(self, x: jax.Array) -> jax.Array:
        if x.dtype == jnp.bool_:
            return jnp.any(x, axis=self.axis, keepdims=True)
        wide = _wide(x)
        total = jnp.sum(wide, axis=self.axis, keepdims=True, dtype=wide.dtype)
        return convert(total, DType.of(x.dtype))


class Prod(Reduction):
    """The product."""

    def lower(self, x: jax.Array) -> jax.Array:
        if x.dtype == jnp.bool_:
            return jnp.all(x, axis=self.axis, keepdims=True)
        wide = _wide(x)
        product = jnp.prod(wide, axis=self.axis, keepdims=True, dtype=wide.dtype)
        return convert(product, DType.of(x.dtype))


class Mean(Reduction):
    """The sum divided by the number of elements; of integers toward zero, and 0 of none."""

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype is DType.bool:
            raise ValueError("bools have no mean that is a bool; cast them to a float first")
        return super().infer(x)

    def lower(self, x: jax.Array) -> jax.Array:
        if is_float(x):
            return convert(jnp.mean(_wide(x), axis=self.axis, keepdims=True), DType.of(x.dtype))
        unsigned = jnp.issubdtype(x.dtype, jnp.unsignedinteger)
        wide = DType.uint64 if unsigned else DType.int64
        total = jnp.sum(convert(x, wide), axis=self.axis, keepdims=True, dtype=wide.np)
        count = jnp.maximum(jnp.asarray(x.shape[self.axis], wide.np), 1)
        return convert(jax.lax.div(total, jnp.broadcast_to(count, total.shape)), DType.of(x.dtype))


class Extreme(Reduction, abstract=True):
    """An element chosen by size, or its index: there must be one."""

    def infer(self, x: TensorType) -> TensorType:
        if x.shape[self.axis] == 0:
            raise ValueError(self._nothing())
        return super().infer(x)

    def lower(self, x: jax.Array) -> jax.Array:
        if x.shape[self.axis] == 0:
            raise SizeError(self._nothing())
        return self.choose(x)

    def _nothing(self) -> str:
        return f"axis {self.axis} has size 0, so there is no element to choose"

    @abstractmethod
    def choose(self, x: jax.Array) -> jax.Array:
        """The element, or index, for each slice of at least one element."""


class Max(Extreme):
    """The largest element; NaN if one is."""

    def choose(self, x: jax.Array) -> jax.Array:
        return jnp.max(x, axis=self.axis, keepdims=True)


class Min(Extreme):
    """The smallest element; NaN if one is."""

    def choose(self, x: jax.Array) -> jax.Array:
        return jnp.min(x, axis=self.axis, keepdims=True)


class Index(Extreme, abstract=True):
    """The ``int64`` index of an element chosen by size."""

    def infer(self, x: TensorType) -> TensorType:
        result = super().infer(x)
        return TensorType._of(DType.int64, result.shape, result.device)


class Argmax(Index):
    """The index of the first largest element; the first NaN counts as the largest."""

    def choose(self, x: jax.Array) -> jax.Array:
        return jnp.expand_dims(jax.lax.argmax(x, self.axis, jnp.int64), self.axis)


class Argmin(Index):
    """The index of the first smallest element; the first NaN counts as the smallest."""

    def choose(self, x: jax.Array) -> jax.Array:
        return jnp.expand_dims(jax.lax.argmin(x, self.axis, jnp.int64), self.axis)


class Cumsum(Op):
    """The sum of all elements up to each along an axis."""

    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, x: TensorType) -> TensorType:
        return TensorType._of(x.dtype, x.shape, x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        own = DType.of(x.dtype)
        wide = convert(x, DType.int64) if own is DType.bool else _wide(x)
        sums = jax.lax.cumsum(wide, self.axis, reverse=self.reverse)
        if self.exclusive:
            # Moved by one place rather than less the element: no rounding, and inf stays right.
            config = [(0, 0, 0)] * x.ndim
            config[self.axis] = (-1, 1, 0) if self.reverse else (1, -1, 0)
            sums = jax.lax.pad(sums, jnp.zeros((), sums.dtype), config)
        return convert(sums, own)


def _along(op: type[Reduction], x: TensorValueLike, axis: int) -> TensorValue:
    who = op.mnemonic
    x = tensor(who, x)
    return op(axis_of(who, axis, len(x._type.shape), ValueError))(x)


def sum(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The sum along ``axis``, which is kept with size 1; 0 of no elements.

    Args:
        x: A tensor of shape ``(..., N, ...)``.
        axis: The axis of length ``N``; negative ones count from the end.

    Returns:
        A tensor of shape ``(..., 1, ...)`` and the dtype of ``x``.

    Raises:
        TypeError: If ``x`` is not a graph value, or ``axis`` not an int.
        ValueError: If there is no such axis.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.sum(g.inputs[0].tensor, axis=0)
    TensorValue(float32, [1, 4], cpu:0)
    """
    return _along(Sum, x, axis)


def prod(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The product along ``axis``, which is kept with size 1; 1 of no elements.

    Args, result and errors as for :func:`sum`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.prod(g.inputs[0].tensor)
    TensorValue(float32, [n, 1], cpu:0)
    """
    return _along(Prod, x, axis)


def mean(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The arithmetic mean along ``axis``, which is kept with size 1.

    Of no elements it is NaN. Integers are summed in 64 bits and the quotient is rounded toward
    zero; of no elements it is 0.

    Args, result and errors as for :func:`sum`.

    Raises:
        ValueError: Also for a bool tensor.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.mean(g.inputs[0].tensor)
    TensorValue(float32, [n, 1], cpu:0)
    """
    return _along(Mean, x, axis)


def max(
    x: TensorValueLike, y: TensorValueLike | None = None, /, axis: int | None = None
) -> TensorValue:
    """The largest element along an axis, or the larger of two tensors element by element.

    NaN wins in both forms.

    Args:
        x: A tensor of shape ``(..., N, ...)``; with ``y``, also a number or an array.
        y: A tensor, number or array to compare with; dtypes promote and shapes broadcast as for
            :func:`~maxjax.graph.ops.add`.
        axis: Without ``y``, the axis of length ``N``, by default the last.

    Returns:
        Without ``y`` a tensor of shape ``(..., 1, ...)``, else of the common shape.

    Raises:
        TypeError: If ``x`` (with ``y``: neither) is a graph value, or ``axis`` is not an int.
        ValueError: If there is no such axis or it has size 0, if both ``y`` and ``axis`` are
            given, dtypes do not promote, or shapes do not broadcast.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.max(g.inputs[0].tensor), ops.max(g.inputs[0].tensor, 0.5)
    (TensorValue(float32, [n, 1], cpu:0), TensorValue(float32, [n, 4], cpu:0))
    """
    return _either(Max, _MAXIMUM, x, y, axis)


def min(
    x: TensorValueLike, y: TensorValueLike | None = None, /, axis: int | None = None
) -> TensorValue:
    """The smallest element along an axis, or the smaller of two tensors element by element.

    NaN wins in both forms. Args, result and errors as for :func:`max`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.min(g.inputs[0].tensor, axis=0), ops.min(g.inputs[0].tensor, 0.5)
    (TensorValue(float32, [1, 4], cpu:0), TensorValue(float32, [n, 4], cpu:0))
    """
    return _either(Min, _MINIMUM, x, y, axis)


def _either(
    along: type[Reduction], between: Op, x: TensorValueLike, y: Any, axis: int | None
) -> TensorValue:
    who = along.mnemonic
    if y is None:
        return _along(along, x, -1 if axis is None else axis)
    if axis is not None:
        raise refused(who, ValueError, "give an axis, or a second tensor to compare with, not both")
    return between(*pair(who, x, y))


def argmax(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The index of the largest element along ``axis``, which is kept with size 1.

    Of equal elements it is the first one's; the first NaN counts as the largest.

    Args:
        x: A tensor of shape ``(..., N, ...)``.
        axis: The axis of length ``N``; negative ones count from the end.

    Returns:
        An ``int64`` tensor of shape ``(..., 1, ...)``.

    Raises:
        TypeError: If ``x`` is not a graph value, or ``axis`` not an int.
        ValueError: If there is no such axis, or it has size 0.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.argmax(g.inputs[0].tensor)
    TensorValue(int64, [n, 1], cpu:0)
    """
    return _along(Argmax, x, axis)


def argmin(x: TensorValueLike, axis: int = -1) -> TensorValue:
    """The index of the smallest element along ``axis``, which is kept with size 1.

    Of equal elements it is the first one's; the first NaN counts as the smallest.

    Args, result and errors as for :func:`argmax`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.argmin(g.inputs[0].tensor, axis=0)
    TensorValue(int64, [1, 4], cpu:0)
    """
    return _along(Argmin, x, axis)


def cumsum(
    x: TensorValueLike, axis: int = -1, exclusive: bool = False, reverse: bool = False
) -> TensorValue:
    """For each element the sum of all up to it along ``axis``.

    Args:
        x: A tensor of shape ``(..., N, ...)``.
        axis: The axis of length ``N``; negative ones count from the end.
        exclusive: Whether the element itself is left out, so that the first sum is 0.
        reverse: Whether to sum from the end.

    Returns:
        A tensor of the type of ``x``.

    Raises:
        TypeError: If ``x`` is not a graph value, or ``axis`` not an int.
        ValueError: If there is no such axis.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.cumsum(g.inputs[0].tensor, axis=0)
    TensorValue(float32, [n, 4], cpu:0)
    """
    x = tensor("cumsum", x)
    axis = axis_of("cumsum", axis, len(x._type.shape), ValueError)
    return Cumsum(axis, bool(exclusive), bool(reverse))(x)
