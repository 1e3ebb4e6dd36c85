# SPDX-License-Identifier: Apache-2.0
"""Element-wise arithmetic, comparison and logic of two operands."""

from __future__ import annotations

from abc import abstractmethod

import jax
import jax.numpy as jnp

from maxjax.dtype import DType
from maxjax.graph.op import Op
from maxjax.graph.ops._operands import (
    broadcast_arrays,
    broadcast_shapes,
    is_strong,
    pair,
    same_device,
    tensor,
    to_dtype,
)
from maxjax.graph.ops._unary import is_float, wide_dtype
from maxjax.graph.ops.cast import convert
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = [
    "add",
    "div",
    "equal",
    "floor_div",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "mod",
    "mul",
    "not_equal",
    "pow",
    "sub",
]


class Binary(Op, abstract=True):
    """Two operands of one dtype, broadcast to a common shape."""

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        if x.dtype is not y.dtype:
            raise ValueError(f"operands differ in dtype, {x.dtype.name} and {y.dtype.name}")
        return TensorType._of(x.dtype, broadcast_shapes(x.shape, y.shape), same_device(x, y))

    def lower(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return self.apply(*broadcast_arrays(x, y))

    @abstractmethod
    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        """The op on arrays of one shape and dtype."""


class Add(Binary):
    """``x + y``; integers wrap around, ``or`` on bools."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.add(x, y)


class Sub(Binary):
    """``x - y``; integers wrap around, exclusive ``or`` on bools."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x ^ y if x.dtype == jnp.bool_ else x - y


class Mul(Binary):
    """``x * y``; integers wrap around, ``and`` on bools."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.multiply(x, y)


class Div(Binary):
    """``x / y`` of floats; of integers and bools the same as :class:`FloorDiv`."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.div(x, y) if is_float(x) else _floor_div(x, y)


class Stepwise(Binary, abstract=True):
    """An op of several steps: narrow floats are rounded once, at the end."""

    def lower(self, x: jax.Array, y: jax.Array) -> jax.Array:
        x, y = broadcast_arrays(x, y)
        if not is_float(x) or x.dtype == wide_dtype(x.dtype):
            return self.apply(x, y)
        wide = DType.of(wide_dtype(x.dtype))
        return convert(self.apply(convert(x, wide), convert(y, wide)), DType.of(x.dtype))


class FloorDiv(Stepwise):
    """The quotient rounded toward minus infinity; an integer divided by 0 is 0."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.floor(jax.lax.div(x, y)) if is_float(x) else _floor_div(x, y)


class Mod(Stepwise):
    """The remainder of :class:`FloorDiv`, with the sign of ``y``; an integer modulo 0 is 0."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        if x.dtype == jnp.bool_:
            return x & ~y
        if is_float(x):
            return jnp.remainder(x, y)
        zero = y == 0
        return jnp.where(zero, 0, jnp.remainder(x, jnp.where(zero, jnp.ones_like(y), y)))


def _floor_div(x: jax.Array, y: jax.Array) -> jax.Array:
    """The quotient of integers, 0 where ``y`` is; of bools ``x`` where ``y`` is true."""
    if x.dtype == jnp.bool_:
        return x & y
    zero = y == 0
    return jnp.where(zero, 0, jnp.floor_divide(x, jnp.where(zero, jnp.ones_like(y), y)))


class Pow(Stepwise):
    """``x ** y``; an integer to a negative power is 0 unless the base is 1 or -1."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        if x.dtype == jnp.bool_:
            return x | ~y
        if is_float(x):
            return jax.lax.pow(x, y)
        if not jnp.issubdtype(x.dtype, jnp.signedinteger):
            return _power(x, y)
        positive = _power(x, jnp.maximum(y, 0))
        odd = (y & 1) == 1
        unit = jnp.where(x == 1, x, jnp.where(x == -1, jnp.where(odd, x, -x), 0))
        return jnp.where(y < 0, unit, positive)


def _power(x: jax.Array, y: jax.Array) -> jax.Array:
    """The power of integers, ``y`` being 0 or more; it wraps around."""
    # jnp.power looks at the six lowest bits of y; beyond these there is seldom anything to do.
    y_high, x_64 = y >> 6, jnp.power(x, jnp.full_like(x, 32))
    x_64 = x_64 * x_64

    def square_and_multiply(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        result, base, left = carry
        return jnp.where((left & 1) == 1, result * base, result), base * base, left >> 1

    start = (jnp.power(x, y & 63), x_64, y_high)
    return jax.lax.while_loop(lambda c: jnp.any(c[2] != 0), square_and_multiply, start)[0]


class Maximum(Binary):
    """The larger of both; NaN when either is."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.maximum(x, y)


class Minimum(Binary):
    """The smaller of both; NaN when either is."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.minimum(x, y)


class Comparison(Binary, abstract=True):
    """Two operands of one dtype, compared: the result is bool."""

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        both = super().infer(x, y)
        return TensorType._of(DType.bool, both.shape, both.device)


class Equal(Comparison):
    """``x == y``; NaN equals nothing."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x == y


class NotEqual(Comparison):
    """``x != y``; NaN differs from everything."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x != y


class Greater(Comparison):
    """``x > y``; False with NaN."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x > y


class GreaterEqual(Comparison):
    """``x >= y``; False with NaN."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x >= y


class Logical(Binary, abstract=True):
    """Two bool operands."""

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        if x.dtype is not DType.bool or y.dtype is not DType.bool:
            raise ValueError("operands must be bool; compare with 0 or cast first")
        return super().infer(x, y)


class LogicalAnd(Logical):
    """``x and y``."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x & y


class LogicalOr(Logical):
    """``x or y``."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x | y


class LogicalXor(Logical):
    """``x`` or ``y``, not both."""

    def apply(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x ^ y


# The ops have no attributes, so one instance of each serves every use.
_ADD, _SUB, _MUL, _DIV, _FLOOR_DIV, _MOD, _POW = (
    Add(), Sub(), Mul(), Div(), FloorDiv(), Mod(), Pow(),
)  # fmt: skip
_MAXIMUM, _MINIMUM = Maximum(), Minimum()
_EQUAL, _NOT_EQUAL, _GREATER, _GREATER_EQUAL = Equal(), NotEqual(), Greater(), GreaterEqual()
_AND, _OR, _XOR = LogicalAnd(), LogicalOr(), LogicalXor()


def add(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """``lhs + rhs`` element-wise.

    Operands of different dtypes are promoted to the one that holds every value of the other;
    shapes broadcast where a dimension is 1. A number or array takes the other operand's dtype.
    Integers wrap around.

    Args:
        lhs: A tensor of shape ``(...)``, a number or an array; at least one must be a tensor.
        rhs: The same.

    Raises:
        TypeError: If neither is a graph value, or one is not a tensor, a number or an array.
        ValueError: If dtypes do not promote, shapes do not broadcast, or devices differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.add(g.inputs[0].tensor, 1)
    TensorValue(float32, [n, 4], cpu:0)
    """
    return _ADD(*pair("add", lhs, rhs))


def sub(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """``lhs - rhs`` element-wise. Operands and errors as for :func:`add`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.int32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.sub(10, g.inputs[0].tensor)
    TensorValue(int32, [n], cpu:0)
    """
    return _SUB(*pair("sub", lhs, rhs))


def mul(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """``lhs * rhs`` element-wise. Operands and errors as for :func:`add`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, [3], DeviceRef.CPU())]) as g:
    ...     ops.mul(g.inputs[0].tensor, 0.5)
    TensorValue(float32, [3], cpu:0)
    """
    return _MUL(*pair("mul", lhs, rhs))


def div(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """``lhs / rhs`` element-wise: true division, ``float64`` for two integers.

    Operands and errors as for :func:`add`. A float divided by 0 is an infinity or NaN.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.int32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.div(g.inputs[0].tensor, 2)
    TensorValue(float64, [n], cpu:0)
    """
    x = tensor("div", lhs) if is_strong(lhs) else lhs
    y = tensor("div", rhs) if is_strong(rhs) else rhs
    values = [v for v in (x, y) if isinstance(v, TensorValue)]
    if not values or not all(v._type.dtype.is_integral() for v in values):
        return _DIV(*pair("div", x, y))
    if len(values) == 1:
        values = pair("div", x, y)
    # Two integers need no common integer dtype: each goes to float64 by itself.
    return _DIV(*[to_dtype(v, DType.float64) for v in values])


def floor_div(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The quotient rounded toward minus infinity, in the operands' dtype.

    Operands and errors as for :func:`add`. An integer divided by 0 is 0.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.int32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.floor_div(g.inputs[0].tensor, 2)
    TensorValue(int32, [n], cpu:0)
    """
    return _FLOOR_DIV(*pair("floor_div", lhs, rhs))


def mod(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The remainder of :func:`floor_div`, which has the sign of ``rhs``.

    Operands and errors as for :func:`add`. An integer modulo 0 is 0.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.int32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.mod(g.inputs[0].tensor, 3)
    TensorValue(int32, [n], cpu:0)
    """
    return _MOD(*pair("mod", lhs, rhs))


def pow(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """``lhs`` to the power ``rhs``, in the operands' dtype.

    Operands and errors as for :func:`add`. An integer to a negative power is 0 unless the base
    is 1 or -1.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.pow(g.inputs[0].tensor, 2)
    TensorValue(float32, [n], cpu:0)
    """
    return _POW(*pair("pow", lhs, rhs))


def equal(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """``lhs == rhs`` element-wise, as bool; NaN equals nothing.

    Operands and errors as for :func:`add`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.int64, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.equal(g.inputs[0].tensor, 4)
    TensorValue(bool, [n], cpu:0)
    """
    return _EQUAL(*pair("equal", lhs, rhs))


def not_equal(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """``lhs != rhs`` element-wise, as bool; NaN differs from everything.

    Operands and errors as for :func:`add`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.int64, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.not_equal(g.inputs[0].tensor, 4)
    TensorValue(bool, [n], cpu:0)
    """
    return _NOT_EQUAL(*pair("not_equal", lhs, rhs))


def greater(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """``lhs > rhs`` element-wise, as bool; False with NaN.

    Operands and errors as for :func:`add`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.int64, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.greater(g.inputs[0].tensor, 4)
    TensorValue(bool, [n], cpu:0)
    """
    return _GREATER(*pair("greater", lhs, rhs))


def greater_equal(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """``lhs >= rhs`` element-wise, as bool; False with NaN.

    Operands and errors as for :func:`add`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.int64, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.greater_equal(g.inputs[0].tensor, 4)
    TensorValue(bool, [n], cpu:0)
    """
    return _GREATER_EQUAL(*pair("greater_equal", lhs, rhs))


def logical_and(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Whether both are true, element-wise.

    Operands broadcast as for :func:`add`.

    Raises:
        ValueError: If an operand is not bool.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.bool, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.logical_and(g.inputs[0].tensor, True)
    TensorValue(bool, [n], cpu:0)
    """
    return _AND(*pair("logical_and", lhs, rhs))


def logical_or(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Whether at least one is true, element-wise.

    Operands and errors as for :func:`logical_and`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.bool, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.logical_or(g.inputs[0].tensor, False)
    TensorValue(bool, [n], cpu:0)
    """
    return _OR(*pair("logical_or", lhs, rhs))


def logical_xor(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """Whether exactly one is true, element-wise.

    Operands and errors as for :func:`logical_and`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.bool, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.logical_xor(g.inputs[0].tensor, True)
    TensorValue(bool, [n], cpu:0)
    """
    return _XOR(*pair("logical_xor", lhs, rhs))
