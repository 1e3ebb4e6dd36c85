# SPDX-License-Identifier: Apache-2.0
"""Element-wise functions of one operand: arithmetic, rounding, transcendental, activations."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from maxjax.dtype import DType
from maxjax.graph.op import Op, refused
from maxjax.graph.ops._operands import tensor
from maxjax.graph.ops.cast import convert
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = [
    "abs",
    "acos",
    "atanh",
    "ceil",
    "cos",
    "erf",
    "exp",
    "floor",
    "gelu",
    "is_inf",
    "is_nan",
    "log",
    "log1p",
    "logical_not",
    "negate",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "sqrt",
    "tanh",
    "trunc",
]


class Unary(Op, abstract=True):
    """One operand; the result has its type."""

    def infer(self, x: TensorType) -> TensorType:
        return TensorType._of(x.dtype, x.shape, x.device)


class FloatFunction(Unary, abstract=True):
    """A function of real numbers. Other element types are computed in float32 and cast back."""

    def lower(self, x: jax.Array) -> jax.Array:
        if jnp.issubdtype(x.dtype, jnp.floating):
            return self.apply(x)
        return convert(self.apply(x.astype(jnp.float32)), DType.of(x.dtype))

    def apply(self, x: jax.Array) -> jax.Array:
        """The function on a float array."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes")


class Exp(FloatFunction):
    """``e`` to the power ``x``."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.exp(x)


class Erf(FloatFunction):
    """The error function."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jax.scipy.special.erf(x)


class Log(FloatFunction):
    """The natural logarithm; NaN below 0."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.log(x)


class Log1p(FloatFunction):
    """``log(1 + x)``, exact near 0."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.log1p(x)


class Cos(FloatFunction):
    """The cosine of ``x`` radians."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.cos(x)


class Sin(FloatFunction):
    """The sine of ``x`` radians."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.sin(x)


class Tanh(FloatFunction):
    """The hyperbolic tangent."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.tanh(x)


class Atanh(FloatFunction):
    """The inverse hyperbolic tangent; NaN outside [-1, 1]."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.arctanh(x)


class Acos(FloatFunction):
    """The angle in radians whose cosine is ``x``; NaN outside [-1, 1]."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.arccos(x)


class Sqrt(FloatFunction):
    """The square root; NaN below 0."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.sqrt(x)


class Rsqrt(FloatFunction):
    """``1 / sqrt(x)``."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jax.lax.rsqrt(x)


class Sigmoid(FloatFunction):
    """``1 / (1 + exp(-x))``."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(x)


class Silu(FloatFunction):
    """``x * sigmoid(x)`` (Elfwing et al. 2017, arXiv:1702.03118)."""

    def apply(self, x: jax.Array) -> jax.Array:
        return x * jax.nn.sigmoid(x)


class Rounding(Unary, abstract=True):
    """To a whole number, in the same dtype; integers stay as they are."""

    def lower(self, x: jax.Array) -> jax.Array:
        return self.apply(x) if jnp.issubdtype(x.dtype, jnp.floating) else x

    def apply(self, x: jax.Array) -> jax.Array:
        """The rounding of a float array."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it rounds")


class Ceil(Rounding):
    """The smallest whole number not below ``x``."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.ceil(x)


class Floor(Rounding):
    """The largest whole number not above ``x``."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.floor(x)


class Round(Rounding):
    """The nearest whole number; halves go to the even one."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.round(x)


class Trunc(Rounding):
    """The whole part, toward zero."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.trunc(x)


class Abs(Unary):
    """The absolute value; the most negative integer stays itself."""

    def lower(self, x: jax.Array) -> jax.Array:
        return x if x.dtype == jnp.bool_ else jnp.abs(x)


class Negate(Unary):
    """``-x``; the most negative integer stays itself, unsigned integers wrap, bools flip."""

    def lower(self, x: jax.Array) -> jax.Array:
        return ~x if x.dtype == jnp.bool_ else jnp.negative(x)


class Relu(Unary):
    """``max(x, 0)``; NaN stays NaN."""

    def lower(self, x: jax.Array) -> jax.Array:
        return x if x.dtype == jnp.bool_ else jnp.maximum(x, jnp.zeros_like(x))


class LogicalNot(Unary):
    """``not x``."""

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype is not DType.bool:
            raise ValueError("the operand must be bool; compare with 0 or cast first")
        return super().infer(x)

    def lower(self, x: jax.Array) -> jax.Array:
        return ~x


class FloatTest(Op, abstract=True):
    """A question about each float; no integer is NaN or infinite."""

    def infer(self, x: TensorType) -> TensorType:
        return TensorType._of(DType.bool, x.shape, x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        if jnp.issubdtype(x.dtype, jnp.floating):
            return self.apply(x)
        return jnp.zeros(x.shape, jnp.bool_)

    def apply(self, x: jax.Array) -> jax.Array:
        """The answer for a float array."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it asks")


class IsNan(FloatTest):
    """Whether each element is NaN."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.isnan(x)


class IsInf(FloatTest):
    """Whether each element is an infinity."""

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.isinf(x)


class Gelu(FloatFunction):
    """The Gaussian error linear unit (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""

    approximate: str = "none"

    def apply(self, x: jax.Array) -> jax.Array:
        if self.approximate == "quick":
            return x * jax.nn.sigmoid(x * jnp.asarray(1.702, x.dtype))
        return jax.nn.gelu(x, approximate=self.approximate == "tanh")


def _unary(op: Op, who: str, x: TensorValueLike) -> TensorValue:
    return op(tensor(who, x))



_ABS = Abs()


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
    return _unary(_ABS, "abs", x)


_ACOS = Acos()


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
    return _unary(_ACOS, "acos", x)


_ATANH = Atanh()


def atanh(x: TensorValueLike) -> TensorValue:
    """The inverse hyperbolic tangent; NaN outside [-1, 1].

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
    return _unary(_ATANH, "atanh", x)


_CEIL = Ceil()


def ceil(x: TensorValueLike) -> TensorValue:
    """The smallest whole number not below ``x``.

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
    return _unary(_CEIL, "ceil", x)


_COS = Cos()


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
    return _unary(_COS, "cos", x)


_ERF = Erf()


def erf(x: TensorValueLike) -> TensorValue:
    """The error function.

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
    return _unary(_ERF, "erf", x)


_EXP = Exp()


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
    return _unary(_EXP, "exp", x)


_FLOOR = Floor()


def floor(x: TensorValueLike) -> TensorValue:
    """The largest whole number not above ``x``.

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
    return _unary(_FLOOR, "floor", x)


_IS_INF = IsInf()


def is_inf(x: TensorValueLike) -> TensorValue:
    """Whether each element is an infinity, as bool.

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
    return _unary(_IS_INF, "is_inf", x)


_IS_NAN = IsNan()


def is_nan(x: TensorValueLike) -> TensorValue:
    """Whether each element is NaN, as bool.

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
    return _unary(_IS_NAN, "is_nan", x)


_LOG = Log()


def log(x: TensorValueLike) -> TensorValue:
    """The natural logarithm; NaN below 0.

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
    return _unary(_LOG, "log", x)


_LOG1P = Log1p()


def log1p(x: TensorValueLike) -> TensorValue:
    """``log(1 + x)``, exact near 0.

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
    return _unary(_LOG1P, "log1p", x)


_LOGICAL_NOT = LogicalNot()


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
    return _unary(_LOGICAL_NOT, "logical_not", x)


_NEGATE = Negate()


def negate(x: TensorValueLike) -> TensorValue:
    """``-x``; the most negative integer stays itself, unsigned integers wrap around.

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
    return _unary(_NEGATE, "negate", x)


_RELU = Relu()


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
    return _unary(_RELU, "relu", x)


_ROUND = Round()


def round(x: TensorValueLike) -> TensorValue:
    """The nearest whole number; halves go to the even one.

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
    return _unary(_ROUND, "round", x)


_RSQRT = Rsqrt()


def rsqrt(x: TensorValueLike) -> TensorValue:
    """``1 / sqrt(x)``.

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
    return _unary(_RSQRT, "rsqrt", x)


_SIGMOID = Sigmoid()


def sigmoid(x: TensorValueLike) -> TensorValue:
    """``1 / (1 + exp(-x))``.

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
    return _unary(_SIGMOID, "sigmoid", x)


_SILU = Silu()


def silu(x: TensorValueLike) -> TensorValue:
    """``x * sigmoid(x)`` (Elfwing et al. 2017, arXiv:1702.03118).

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
    return _unary(_SILU, "silu", x)


_SIN = Sin()


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
    return _unary(_SIN, "sin", x)


_SQRT = Sqrt()


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
    return _unary(_SQRT, "sqrt", x)


_TANH = Tanh()


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
    return _unary(_TANH, "tanh", x)


_TRUNC = Trunc()


def trunc(x: TensorValueLike) -> TensorValue:
    """The whole part, toward zero.

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
    return _unary(_TRUNC, "trunc", x)


def gelu(x: TensorValue, approximate: str = "none") -> TensorValue:
    """The Gaussian error linear unit (Hendrycks and Gimpel 2016, arXiv:1606.08415).

    Args:
        x: A tensor of any shape.
        approximate: ``"none"`` by the error function, ``"tanh"`` or ``"quick"``
            (``x * sigmoid(1.702 * x)``) by an approximation.

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
        raise refused(
            "gelu",
            ValueError,
            f'approximate must be "none", "tanh" or "quick", got {approximate!r}',
            x._type,
        )
    return Gelu(approximate)(x)
