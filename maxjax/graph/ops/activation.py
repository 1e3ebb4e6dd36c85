# SPDX-License-Identifier: Apache-2.0
"""Activation functions of neural networks: element-wise ones, and softmax along an axis.

Each keeps the dtype of its operand; :mod:`maxjax.graph.ops._unary` says what that means for
floats narrower than 32 bits, integers and bools.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from maxjax.graph.op import refused
from maxjax.graph.ops._operands import axis_of, tensor
from maxjax.graph.ops._unary import FloatFunction, Unary
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["gelu", "logsoftmax", "relu", "sigmoid", "silu", "softmax"]


class Relu(Unary):
    """``max(x, 0)``; NaN stays NaN."""

    def lower(self, x: jax.Array) -> jax.Array:
        return x if x.dtype == jnp.bool_ else jnp.maximum(x, jnp.zeros_like(x))


class Sigmoid(FloatFunction):
    """``1 / (1 + exp(-x))``."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(x)


class Silu(FloatFunction):
    """``x * sigmoid(x)`` (Elfwing et al. 2017, arXiv:1702.03118)."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jax.nn.silu(x)


class Gelu(FloatFunction):
    """The Gaussian error linear unit (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""

    approximate: str = "none"

    def apply(self, x: jax.Array) -> jax.Array:
        if self.approximate == "quick":
            return x * jax.nn.sigmoid(x * jnp.asarray(1.702, x.dtype))
        return jax.nn.gelu(x, approximate=self.approximate == "tanh")


class Softmax(FloatFunction):
    """``exp(x)`` over its sum along an axis."""

    axis: int

    def apply(self, x: jax.Array) -> jax.Array:
        return jax.nn.softmax(x, axis=self.axis)


class Logsoftmax(FloatFunction):
    """The logarithm of :class:`Softmax`, without its underflow."""

    axis: int

    def apply(self, x: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(x, axis=self.axis)


# These ops have no attributes, so one instance of each serves every use.
_RELU, _SIGMOID, _SILU = Relu(), Sigmoid(), Silu()


def relu(x: TensorValueLike) -> TensorValue:
    """``max(x, 0)``; NaN stays NaN.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.relu(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _RELU(tensor("relu", x))


def sigmoid(x: TensorValue) -> TensorValue:
    """The logistic function, ``1 / (1 + exp(-x))``.

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.sigmoid(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _SIGMOID(tensor("sigmoid", x))


def silu(x: TensorValue) -> TensorValue:
    """The sigmoid linear unit, ``x * sigmoid(x)`` (Elfwing et al. 2017, arXiv:1702.03118).

    Args:
        x: A tensor of any shape.

    Raises:
        TypeError: If ``x`` is not a graph value.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.silu(g.inputs[0].tensor)
    TensorValue(float32, [n], cpu:0)
    """
    return _SILU(tensor("silu", x))


def gelu(x: TensorValue, approximate: str = "none") -> TensorValue:
    """The Gaussian error linear unit (Hendrycks and Gimpel 2016, arXiv:1606.08415).

    Args:
        x: A tensor of any shape.
        approximate: ``"none"`` by the error function; ``"tanh"``, or ``"quick"``
            (``x * sigmoid(1.702 * x)``), by an approximation.

    Raises:
        TypeError: If ``x`` is not a graph value.
        ValueError: For any other ``approximate``.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.gelu(g.inputs[0].tensor, "tanh")
    TensorValue(float32, [n], cpu:0)
    """
    x = tensor("gelu", x)
    if approximate not in ("none", "tanh", "quick"):
        wanted = f'approximate must be "none", "tanh" or "quick", got {approximate!r}'
        raise refused("gelu", ValueError, wanted, x._type)
    return Gelu(approximate)(x)


def softmax(value: TensorValueLike, axis: int = -1) -> TensorValue:
    """``exp(value)`` over its sum along ``axis``: positive numbers whose sum there is 1.

    The largest element is subtracted first, so that nothing overflows. Where an element is NaN,
    or ``inf``, or all are ``-inf``, the whole slice is NaN.

    Args:
        value: A tensor of shape ``(..., N, ...)``.
        axis: The axis of length ``N``; negative ones count from the end.

    Raises:
        TypeError: If ``value`` is not a graph value, or ``axis`` not an int.
        ValueError: If there is no such axis.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.softmax(g.inputs[0].tensor)
    TensorValue(float32, [n, 4], cpu:0)
    """
    x = tensor("softmax", value)
    return Softmax(axis_of("softmax", axis, len(x._type.shape), ValueError))(x)


def logsoftmax(value: TensorValueLike, axis: int = -1) -> TensorValue:
    """The logarithm of :func:`softmax`, exact also where the softmax itself is next to 0.

    Args, errors and the treatment of NaN and infinities as for :func:`softmax`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.logsoftmax(g.inputs[0].tensor)
    TensorValue(float32, [n, 4], cpu:0)
    """
    x = tensor("logsoftmax", value)
    return Logsoftmax(axis_of("logsoftmax", axis, len(x._type.shape), ValueError))(x)
