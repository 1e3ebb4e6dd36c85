# SPDX-License-Identifier: Apache-2.0
"""Images made larger or smaller.

Where an element of the result lies in the input is computed in whole numbers, so that what is half
way between two elements is so on every device. Floats narrower than 32 bits are computed in
``float32`` and rounded once; integers are truncated toward zero.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from maxjax.dtype import DType
from maxjax.graph.dim import DimLike, StaticDim
from maxjax.graph.op import Op, refused
from maxjax.graph.ops._operands import int_of, not_negative, shape_of, tensor
from maxjax.graph.ops._precision import dot_precision
from maxjax.graph.ops._unary import is_float, wide_dtype
from maxjax.graph.ops._window import holds
from maxjax.graph.ops.cast import convert
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = [
    "InterpolationMode",
    "resize",
    "resize_bicubic",
    "resize_linear",
    "resize_nearest",
]


class InterpolationMode(enum.Enum):
    """How the elements of a resized image are made from those of the image.

    >>> from maxjax.graph import ops
    >>> ops.InterpolationMode.BICUBIC.value
    'bicubic'
    """

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


# The numbers of the modes, as callers give them.
_HALF_PIXEL, _ALIGN_CORNERS, _ASYMMETRIC, _HALF_PIXEL_1D = range(4)
_HALF_DOWN, _HALF_UP, _FLOOR, _CEIL = range(4)


def _int64(size: Any) -> jax.Array:
    return jnp.asarray(size, jnp.int64)


def _positions(mode: int, old: Any, new: Any) -> tuple[jax.Array, jax.Array]:
    """Where each of ``new`` elements lies among ``old`` ones: numerators, and one denominator."""
    i, n, m = jnp.arange(new, dtype=jnp.int64), _int64(old), _int64(new)
    if mode == _ALIGN_CORNERS:
        return i * (n - 1), jnp.maximum(m - 1, jnp.int64(1))
    if mode == _ASYMMETRIC:
        return i * n, m
    position = (2 * i + 1) * n - m
    if mode == _HALF_PIXEL_1D:
        position = jnp.where(m == jnp.int64(1), jnp.int64(0), position)
    return position, 2 * m


def _quotient(a: jax.Array, b: jax.Array) -> jax.Array:
    return a.astype(jnp.float64) / b.astype(jnp.float64)


def _along(of_axis: jax.Array, axis: int, x: jax.Array) -> jax.Array:
    """A number for each place along an axis of ``x``, in its shape and dtype."""
    return jax.lax.broadcast_in_dim(of_axis.astype(x.dtype), x.shape, (axis,))


def _take(x: jax.Array, index: jax.Array, axis: int) -> jax.Array:
    """Elements along an axis, of which the nearest stands for what is outside."""
    last = _int64(x.shape[axis]) - 1
    return jnp.take(x, jnp.clip(index, jnp.int64(0), last), axis, mode="clip")


class _Resize(Op, abstract=True):
    """A tensor with another shape of the same rank."""

    shape: Shape

    def infer(self, x: TensorType) -> TensorType:
        old, new = x.shape, self.shape
        if len(new) != len(old):
            raise ValueError(f"rank {len(old)} needs {len(old)} sizes, got {len(new)}")
        not_negative(new)
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            if a == 0 and isinstance(b, StaticDim) and b != 0:
                raise ValueError(_nothing(i, b))
        if x.dtype is DType.bool and not isinstance(self, ResizeNearest):
            raise ValueError("bools cannot be interpolated; cast them, or resize to the nearest")
        return TensorType._of(x.dtype, Shape(new), x.device)

    def changes(self, x: jax.Array) -> list[tuple[int, Any]]:
        """The axes whose size changes, or may, and the new sizes."""
        found = []
        for axis, (old, new) in enumerate(zip(x.shape, self.shape, strict=True)):
            size: Any = new
            if size is old or bool(size == old):
                continue
            if isinstance(old, int) and old == 0:
                holds(lambda n=size: n == 0, _nothing(axis, size))
            found.append((axis, size))
        return found


def _nothing(axis: int, size: Any) -> str:
    return f"dimension {axis} is 0: there is nothing to make {size} elements of"


class ResizeNearest(_Resize):
    """The nearest element, by the given rounding of the position."""

    coordinate_transform_mode: int = _HALF_PIXEL
    round_mode: int = _HALF_DOWN

    def lower(self, x: jax.Array) -> jax.Array:
        for axis, size in self.changes(x):
            at, unit = _positions(self.coordinate_transform_mode, x.shape[axis], size)
            if self.round_mode == _FLOOR:
                index = at // unit
            elif self.round_mode == _CEIL:
                index = -(-at // unit)
            elif self.round_mode == _HALF_UP:
                index = (2 * at + unit) // (2 * unit)
            else:
                index = -((unit - 2 * at) // (2 * unit))
            x = _take(x, index, axis)
        return x


class ResizeLinear(_Resize):
    """What lies between two elements, weighted by the distances, along one axis after another.

    With ``antialias``, the mean over as many more elements as the axis shrinks.
    """

    coordinate_transform_mode: int = _HALF_PIXEL
    antialias: bool = False

    def lower(self, x: jax.Array) -> jax.Array:
        if self.antialias:
            return _in_floats(x, self._smooth)
        return _in_floats(x, self._between) if is_float(x) else self._between(x)

    def _between(self, x: jax.Array) -> jax.Array:
        for axis, size in self.changes(x):
            at, unit = _positions(self.coordinate_transform_mode, x.shape[axis], size)
            at = jnp.clip(at, jnp.int64(0), (_int64(x.shape[axis]) - 1) * unit)
            low = at // unit
            rest = at - low * unit
            a, b = _take(x, low, axis), _take(x, low + 1, axis)
            if not is_float(x):
                a, b = a.astype(jnp.int64), b.astype(jnp.int64)
                whole = a * unit + (b - a) * _along(rest, axis, a)
                x = convert(jax.lax.div(whole, jnp.broadcast_to(unit, a.shape)), DType.of(x.dtype))
                continue
            share = _along(_quotient(rest, unit), axis, a)
            # An element that is met exactly is itself, whatever its neighbour.
            one = jnp.ones((), x.dtype)
            x = jnp.where(share == 0 * one, a, (one - share) * a + share * b)
        return x

    def _smooth(self, x: jax.Array) -> jax.Array:
        for axis, size in self.changes(x):
            old = x.shape[axis]
            at, unit = _positions(self.coordinate_transform_mode, old, size)
            width = jnp.maximum(_quotient(_int64(old), _int64(size)), jnp.float64(1))
            places = jnp.arange(old, dtype=jnp.int64).astype(jnp.float64)
            distances = jnp.abs(_quotient(at, unit)[:, None] - places[None, :])
            weights = jnp.maximum(1 - distances / width, jnp.float64(0))
            weights = weights / jnp.sum(weights, axis=1, keepdims=True)
            mixed = jnp.tensordot(
                weights.astype(x.dtype), x, ((1,), (axis,)), precision=dot_precision()
            )
            x = jnp.moveaxis(mixed, 0, axis)
        return x


class ResizeBicubic(_Resize):
    """Cubic convolution with ``a = -0.75`` over four by four pixels, along height and width."""

    def infer(self, x: TensorType) -> TensorType:
        if len(x.shape) != 4:
            raise ValueError(f"the input must have rank 4, not {len(x.shape)}")
        result = super().infer(x)
        if x.shape[:2] != self.shape[:2]:
            raise ValueError(
                f"only height and width can change, but the first two sizes are "
                f"{Shape(x.shape[:2]).brief()} and shall be {Shape(self.shape[:2]).brief()}"
            )
        return result

    def lower(self, x: jax.Array) -> jax.Array:
        return _in_floats(x, self._convolve)

    def _convolve(self, x: jax.Array) -> jax.Array:
        for axis, size in self.changes(x):
            at, unit = _positions(_HALF_PIXEL, x.shape[axis], size)
            low = at // unit
            t = _quotient(at - low * unit, unit)
            before, here, after, beyond = [
                _weighted(_take(x, low + k, axis), axis, _cubic(jnp.abs(t - k)))
                for k in (-1, 0, 1, 2)
            ]
            x = before + here + after + beyond
        return x


def _weighted(x: jax.Array, axis: int, weights: jax.Array) -> jax.Array:
    return x * _along(weights, axis, x)


def _cubic(distance: jax.Array) -> jax.Array:
    """The weight of an element at a distance up to 2 (Keys, 1981, with ``a = -0.75``)."""
    d, a = distance, -0.75
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return jnp.where(d <= jnp.float64(1), near, far)


def _in_floats(x: jax.Array, f: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """``f`` in floats that hold every ``x``; back in integers, truncated."""
    if is_float(x):
        return convert(f(convert(x, DType.of(wide_dtype(x.dtype)))), DType.of(x.dtype))
    y = f(convert(x, DType.float64))
    # The weights of a result that is whole add up to a little less than one now and then.
    slack = jnp.float64(2.0**-30) + jnp.abs(y) * jnp.float64(2.0**-48)
    return convert(y + jnp.sign(y) * slack, DType.of(x.dtype))


# ---------------------------------------------------------------- functions


def _mode(who: str, what: str, mode: Any, x: TensorValue) -> int:
    number = int_of(who, what, mode, x._type)
    if not 0 <= number <= 3:
        raise refused(who, ValueError, f"{what} must be from 0 to 3, got {number}", x._type)
    return number


def resize_nearest(
    input: TensorValueLike,
    size: Iterable[DimLike],
    coordinate_transform_mode: int = 0,
    round_mode: int = 0,
) -> TensorValue:
    """A tensor of another size, each element the nearest of the input's.

    Args:
        input: A tensor of any rank R.
        size: R sizes, the new shape.
        coordinate_transform_mode: Where element ``i`` of ``m`` lies among ``n``: 0 half pixel,
            ``(i + 0.5) * n / m - 0.5``; 1 aligned corners, ``i * (n - 1) / (m - 1)``, and 0 where
            ``m`` is 1; 2 asymmetric, ``i * n / m``; 3 half pixel, but 0 where ``m`` is 1.
        round_mode: How that is rounded: 0 to the nearest, of two the lower; 1 to the nearest, of
            two the higher; 2 down; 3 up. What is outside becomes the nearest that is inside.

    Raises:
        TypeError: If ``input`` is no graph value, a size no dim or a mode no int.
        ValueError: If there are not R sizes, one is negative, a mode is not from 0 to 3, or
            there is nothing to make elements of.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.uint8, ["h", "w"], DeviceRef.CPU())]) as g:
    ...     ops.resize_nearest(g.inputs[0].tensor, [8, 8])
    TensorValue(uint8, [8, 8], cpu:0)
    """
    who = "resize_nearest"
    x = tensor(who, input)
    transform = _mode(who, "coordinate_transform_mode", coordinate_transform_mode, x)
    rounding = _mode(who, "round_mode", round_mode, x)
    return ResizeNearest(shape_of(who, size, x._type), transform, rounding)(x)


def resize_linear(
    input: TensorValueLike,
    size: Iterable[DimLike],
    coordinate_transform_mode: int = 0,
    antialias: bool = False,
) -> TensorValue:
    """A tensor of another size, interpolated linearly along each axis that changes.

    Integers are truncated after each axis, with ``antialias`` once at the end.

    Args:
        input: A tensor of numbers, of any rank R.
        size: R sizes, the new shape.
        coordinate_transform_mode: Where an element lies in the input, as for
            :func:`resize_nearest`.
        antialias: Whether an axis that shrinks is smoothed, so that every element counts.

    Raises:
        TypeError: If ``input`` is no graph value, a size no dim, the mode no int or
            ``antialias`` no bool.
        ValueError: If there are not R sizes, one is negative, the mode is not from 0 to 3, there
            is nothing to make elements of, or ``input`` holds bools.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> image = TensorType(DType.float32, ["n", "h", "w", 3], DeviceRef.CPU())
    >>> with Graph("g", input_types=[image]) as g:
    ...     ops.resize_linear(g.inputs[0].tensor, ["n", 224, 224, 3], antialias=True)
    TensorValue(float32, [n, 224, 224, 3], cpu:0)
    """
    who = "resize_linear"
    x = tensor(who, input)
    transform = _mode(who, "coordinate_transform_mode", coordinate_transform_mode, x)
    if not isinstance(antialias, bool):
        raise refused(who, TypeError, f"antialias must be a bool, got {antialias!r}", x._type)
    return ResizeLinear(shape_of(who, size, x._type), transform, antialias)(x)


def resize_bicubic(input: TensorValueLike, size: Iterable[DimLike]) -> TensorValue:
    """Images of another height and width, interpolated by cubic convolution.

    With half pixels and ``a = -0.75``, pixels outside being those at the border.

    Args:
        input: Images of shape ``(N, C, H, W)``, of numbers.
        size: The new shape, four sizes of which the first two are ``N`` and ``C``.

    Raises:
        TypeError: If ``input`` is no graph value or a size no dim.
        ValueError: If the rank is not 4, there are not four sizes, the first two differ, one is
            negative, there is nothing to make pixels of, or ``input`` holds bools.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> image = TensorType(DType.float32, ["n", 3, "h", "w"], DeviceRef.CPU())
    >>> with Graph("g", input_types=[image]) as g:
    ...     ops.resize_bicubic(g.inputs[0].tensor, ["n", 3, 64, 64])
    TensorValue(float32, [n, 3, 64, 64], cpu:0)
    """
    x = tensor("resize_bicubic", input)
    return ResizeBicubic(shape_of("resize_bicubic", size, x._type))(x)


def resize(
    input: TensorValueLike,
    shape: Iterable[DimLike],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
) -> TensorValue:
    """Images of another size: by :func:`resize_linear`, or one of the other two.

    Args:
        input: Images of shape ``(N, C, H, W)``.
        shape: The new shape, four sizes.
        interpolation: Which of them, with its defaults.

    Raises:
        TypeError: If ``input`` is no graph value or a size no dim.
        ValueError: If the rank is not 4, there is no such interpolation, or as for them.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> image = TensorType(DType.float32, ["n", 3, "h", "w"], DeviceRef.CPU())
    >>> with Graph("g", input_types=[image]) as g:
    ...     ops.resize(g.inputs[0].tensor, ["n", 3, 64, 64], ops.InterpolationMode.NEAREST)
    TensorValue(float32, [n, 3, 64, 64], cpu:0)
    """
    x = tensor("resize", input)
    if len(x._type.shape) != 4:
        sentence = f"the input must have rank 4, not {len(x._type.shape)}"
        raise refused("resize", ValueError, sentence, x._type)
    try:
        mode = InterpolationMode(interpolation)
    except ValueError:
        names = ", ".join([m.value for m in InterpolationMode])
        sentence = f"interpolation must be one of {names}, got {interpolation!r}"
        raise refused("resize", ValueError, sentence, x._type) from None
    return _BY_MODE[mode](x, shape)


_BY_MODE: dict[InterpolationMode, Callable[..., TensorValue]] = {
    InterpolationMode.NEAREST: resize_nearest,
    InterpolationMode.BILINEAR: resize_linear,
    InterpolationMode.BICUBIC: resize_bicubic,
}
