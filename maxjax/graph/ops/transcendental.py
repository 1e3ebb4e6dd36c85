# SPDX-License-Identifier: Apache-2.0
"""Exponentials, logarithms, roots and trigonometric functions of one operand.

Each keeps the dtype of its operand; :mod:`maxjax.graph.ops._unary` says what that means for
floats narrower than 32 bits, integers and bools.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from maxjax.graph.ops._operands import tensor
from maxjax.graph.ops._unary import FloatFunction
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = [
    "acos",
    "atanh",
    "cos",
    "erf",
    "exp",
    "log",
    "log1p",
    "rsqrt",
    "sin",
    "sqrt",
    "tanh",
]


def _log1p(x: jax.Array) -> jax.Array:
    if x.dtype != jnp.float64:
        return jnp.log1p(x)
    # XLA's log1p is off by 100 times the rounding error between -0.42 and -0.29, and nowhere
    # above 0: log(1 + x) is -log(1 - x / (1 + x)).
    negative = x < 0
    y = jnp.log1p(jnp.where(negative, -x / (x + 1), x))
    return jnp.where(negative, -y, y)


class Acos(FloatFunction):
    """The angle in radians whose cosine is ``x``; NaN outside [-1, 1]."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.arccos(x)


class Atanh(FloatFunction):
    """The inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond."""

    def apply(self, x: jax.Array) -> jax.Array:
        return (_log1p(x) - _log1p(-x)) * jnp.asarray(0.5, x.dtype)


class Cos(FloatFunction):
    """The cosine of ``x`` radians."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.cos(x)


class Erf(FloatFunction):
    """The error function."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jax.lax.erf(x)


class Exp(FloatFunction):
    """``e`` to the power ``x``."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.exp(x)


class Log(FloatFunction):
    """The natural logarithm; ``-inf`` at 0, NaN below."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.log(x)


class Log1p(FloatFunction):
    """``log(1 + x)``, exact near 0; ``-inf`` at -1, NaN below."""

    def apply(self, x: jax.Array) -> jax.Array:
        return _log1p(x)


class Rsqrt(FloatFunction):
    """``1 / sqrt(x)``; ``inf`` at 0, NaN below."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jax.lax.rsqrt(x)


class Sin(FloatFunction):
    """The sine of ``x`` radians."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.sin(x)


class Sqrt(FloatFunction):
    """The square root; NaN below 0."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.sqrt(x)


class Tanh(FloatFunction):
    """The hyperbolic tangent."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.tanh(x)


# The ops have no attributes, so one instance of each serves every use.
_ACOS = Acos()
_ATANH = Atanh()
_COS = Cos()
_ERF = Erf()
_EXP = Exp()
_LOG = Log()
_LOG1P = Log1p()
_RSQRT = Rsqrt()
_SIN = Sin()
_SQRT = Sqrt()
_TANH = Tanh()


def acos(x: TensorValueLike) -> TensorValue:
    """The angle in radians whose cosine is ``x``; NaN outside [-1, 1].

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.acos(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _ACOS(tensor("acos", x))


def atanh(x: TensorValueLike) -> TensorValue:
    """The inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.atanh(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _ATANH(tensor("atanh", x))


def cos(x: TensorValueLike) -> TensorValue:
    """The cosine of ``x`` radians.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.cos(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _COS(tensor("cos", x))


def erf(x: TensorValueLike) -> TensorValue:
    """The error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t * t)`` from 0 to ``x``.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.erf(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _ERF(tensor("erf", x))


def exp(x: TensorValueLike) -> TensorValue:
    """``e`` to the power ``x``.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.exp(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _EXP(tensor("exp", x))


def log(x: TensorValueLike) -> TensorValue:
    """The natural logarithm; ``-inf`` at 0, NaN below.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.log(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _LOG(tensor("log", x))


def log1p(x: TensorValueLike) -> TensorValue:
    """``log(1 + x)``, exact near 0; ``-inf`` at -1, NaN below.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.log1p(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _LOG1P(tensor("log1p", x))


def rsqrt(x: TensorValueLike) -> TensorValue:
    """``1 / sqrt(x)``; ``inf`` at 0, NaN below.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.rsqrt(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _RSQRT(tensor("rsqrt", x))


def sin(x: TensorValueLike) -> TensorValue:
    """The sine of ``x`` radians.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.sin(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _SIN(tensor("sin", x))


def sqrt(x: TensorValueLike) -> TensorValue:
    """The square root; NaN below 0.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.sqrt(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _SQRT(tensor("sqrt", x))


def tanh(x: TensorValueLike) -> TensorValue:
    """The hyperbolic tangent.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.tanh(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _TANH(tensor("tanh", x))
