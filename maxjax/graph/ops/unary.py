# SPDX-License-Identifier: Apache-2.0
"""Signs, rounding, tests for NaN and infinity, and logical not: functions of one operand."""

from __future__ import annotations

from abc import abstractmethod

import jax
import jax.numpy as jnp

from maxjax.dtype import DType
from maxjax.graph.op import Op
from maxjax.graph.ops._operands import tensor
from maxjax.graph.ops._unary import Unary, is_float
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = [
    "abs",
    "ceil",
    "floor",
    "is_inf",
    "is_nan",
    "logical_not",
    "negate",
    "round",
    "trunc",
]


class Rounding(Unary, abstract=True):
    """To a whole number, in the operand's dtype; integers and bools stay as they are."""

    def lower(self, x: jax.Array) -> jax.Array:
        return self.apply(x) if is_float(x) else x

    @abstractmethod
    def apply(self, x: jax.Array) -> jax.Array:
        """The rounding of a float array."""


class Ceil(Rounding):
    """The smallest whole number not below ``x``."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.ceil(x)


class Floor(Rounding):
    """The largest whole number not above ``x``."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.floor(x)


class Round(Rounding):
    """The nearest whole number; of two, the even one."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.round(x)


class Trunc(Rounding):
    """The whole part, toward zero."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.trunc(x)


class FloatTest(Op, abstract=True):
    """A question about each float; the answer for integers and bools is no."""

    def infer(self, x: TensorType) -> TensorType:
        return TensorType._of(DType.bool, x.shape, x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        return self.apply(x) if is_float(x) else jnp.zeros(x.shape, jnp.bool_)

    @abstractmethod
    def apply(self, x: jax.Array) -> jax.Array:
        """The answer for a float array."""


class IsInf(FloatTest):
    """Whether each element is an infinity."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.isinf(x)


class IsNan(FloatTest):
    """Whether each element is NaN."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.isnan(x)


class Abs(Unary):
    """The absolute value; the most negative integer and bools stay as they are."""

    def lower(self, x: jax.Array) -> jax.Array:
        return x if x.dtype == jnp.bool_ else jnp.abs(x)


class Negate(Unary):
    """``-x``; integers wrap around, bools flip."""

    def lower(self, x: jax.Array) -> jax.Array:
        return ~x if x.dtype == jnp.bool_ else -x


class LogicalNot(Unary):
    """``not x``."""

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype is not DType.bool:
            raise ValueError("the operand must be bool; compare with 0 or cast first")
        return super().infer(x)

    def lower(self, x: jax.Array) -> jax.Array:
        return ~x


# The ops have no attributes, so one instance of each serves every use.
_ABS = Abs()
_CEIL = Ceil()
_FLOOR = Floor()
_IS_INF = IsInf()
_IS_NAN = IsNan()
_LOGICAL_NOT = LogicalNot()
_NEGATE = Negate()
_ROUND = Round()
_TRUNC = Trunc()


def abs(x: TensorValueLike) -> TensorValue:
    """The absolute value; the most negative integer stays itself.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.abs(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _ABS(tensor("abs", x))


def ceil(x: TensorValueLike) -> TensorValue:
    """The smallest whole number not below ``x``, in the dtype of ``x``.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.ceil(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _CEIL(tensor("ceil", x))


def floor(x: TensorValueLike) -> TensorValue:
    """The largest whole number not above ``x``, in the dtype of ``x``.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.floor(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _FLOOR(tensor("floor", x))


def is_inf(x: TensorValueLike) -> TensorValue:
    """Whether each element is an infinity, as bool; no integer is.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.is_inf(g.inputs[0].tensor)
    TensorValue(bool, [n], cpu:0)
    """
    return _IS_INF(tensor("is_inf", x))


def is_nan(x: TensorValueLike) -> TensorValue:
    """Whether each element is NaN, as bool; no integer is.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.is_nan(g.inputs[0].tensor)
    TensorValue(bool, [n], cpu:0)
    """
    return _IS_NAN(tensor("is_nan", x))


def logical_not(x: TensorValueLike) -> TensorValue:
    """``not x`` for each element of a bool tensor.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.
        ValueError: If ``x`` is not bool.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.bool, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.logical_not(g.inputs[0].tensor)
    TensorValue(bool, [n], cpu:0)
    """
    return _LOGICAL_NOT(tensor("logical_not", x))


def negate(x: TensorValueLike) -> TensorValue:
    """``-x``; integers wrap around, bools flip.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.negate(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _NEGATE(tensor("negate", x))


def round(x: TensorValueLike) -> TensorValue:
    """The nearest whole number, of two the even one, in the dtype of ``x``.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.round(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _ROUND(tensor("round", x))


def trunc(x: TensorValueLike) -> TensorValue:
    """The whole part, toward zero, in the dtype of ``x``.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.trunc(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _TRUNC(tensor("trunc", x))
