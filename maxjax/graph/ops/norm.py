# SPDX-License-Identifier: Apache-2.0
"""Normalizations: layer norm, RMS norm and group norm.

The statistics of floats narrower than 32 bits are computed in ``float32``; the result has the
dtype of the input. The variance is the mean of squared differences from the mean, so that it is 0
for equal elements and never negative.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.dtype import DType
from maxjax.graph.dim import Dim, StaticDim
from maxjax.graph.op import Op, SizeError, refused
from maxjax.graph.ops._operands import beside, same_device, tensor
from maxjax.graph.ops._unary import wide_dtype
from maxjax.graph.ops.cast import convert
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["group_norm", "layer_norm", "rms_norm"]


def _float_input(x: TensorType) -> None:
    if not x.dtype.is_float():
        raise ValueError(f"the input must be a float, not {x.dtype.name}; cast it first")


def _last(x: TensorType) -> Dim:
    """The size of the axis to normalize over."""
    _float_input(x)
    if not x.shape:
        raise ValueError("a scalar has no last axis to normalize over")
    return x.shape[-1]


def _parameter(what: str, t: TensorType, size: Dim) -> None:
    if t.shape and t.shape != [size]:
        raise ValueError(f"{what} must have shape [{size}], got {t.shape.brief()}")
    if not t.dtype.is_float():
        raise ValueError(f"{what} must be a float, not {t.dtype.name}; cast it first")


def _wide(x: jax.Array) -> jax.Array:
    return convert(x, DType.of(wide_dtype(x.dtype)))


def _as(x: jax.Array, like: jax.Array) -> jax.Array:
    """A parameter in the dtype of ``like``, and in its rank, to stretch along leading axes."""
    return jnp.expand_dims(convert(x, DType.of(like.dtype)), tuple(range(like.ndim - x.ndim)))


def _rounded(x: jax.Array, dtype: DType) -> jax.Array:
    """``x`` with the precision of ``dtype``; a cast there and back is one that XLA leaves out."""
    if not dtype.is_half():
        return x
    info = jnp.finfo(dtype.np)
    return jax.lax.reduce_precision(x, exponent_bits=info.nexp, mantissa_bits=info.nmant)


def _standardized(x: jax.Array, axes: tuple[int, ...], epsilon: float) -> jax.Array:
    """``x`` with mean 0 and variance 1 over ``axes``."""
    centred = x - jnp.mean(x, axis=axes, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=axes, keepdims=True)
    return centred * jax.lax.rsqrt(variance + jnp.asarray(epsilon, x.dtype))


class LayerNorm(Op):
    """The last axis with mean 0 and variance 1, then scaled and shifted."""

    epsilon: float

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> TensorType:
        size = _last(x)
        _parameter("gamma", gamma, size)
        _parameter("beta", beta, size)
        return TensorType._of(x.dtype, x.shape, same_device(x, gamma, beta))

    def lower(self, x: jax.Array, gamma: jax.Array, beta: jax.Array) -> jax.Array:
        y = _standardized(_wide(x), (x.ndim - 1,), self.epsilon)
        return convert(y * _as(gamma, y) + _as(beta, y), DType.of(x.dtype))


class RmsNorm(Op):
    """The last axis divided by its root mean square, then scaled."""

    epsilon: float
    weight_offset: float = 0.0
    multiply_before_cast: bool = False

    def infer(self, x: TensorType, weight: TensorType) -> TensorType:
        _parameter("weight", weight, _last(x))
        return TensorType._of(x.dtype, x.shape, same_device(x, weight))

    def lower(self, x: jax.Array, weight: jax.Array) -> jax.Array:
        own = DType.of(x.dtype)
        wide = _wide(x)
        square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
        y = wide * jax.lax.rsqrt(square + jnp.asarray(self.epsilon, wide.dtype))
        scale = _as(weight, y)
        if self.weight_offset:
            scale = scale + jnp.asarray(self.weight_offset, y.dtype)
        if not self.multiply_before_cast:
            y, scale = _rounded(y, own), _rounded(scale, own)
        return convert(y * scale, own)


class GroupNorm(Op):
    """Groups of channels with mean 0 and variance 1, then each channel scaled and shifted."""

    num_groups: int
    epsilon: float

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> TensorType:
        _float_input(x)
        if len(x.shape) < 2:
            raise ValueError("the input must have shape (N, C, ...), with an axis of channels")
        channels = x.shape[1]
        if isinstance(channels, StaticDim) and channels.dim % self.num_groups:
            raise ValueError(_indivisible(channels, self.num_groups))
        _parameter("gamma", gamma, channels)
        _parameter("beta", beta, channels)
        return TensorType._of(x.dtype, x.shape, same_device(x, gamma, beta))

    def lower(self, x: jax.Array, gamma: jax.Array, beta: jax.Array) -> jax.Array:
        wide = _wide(x)
        batch, channels, *rest = x.shape
        if channels % self.num_groups != 0:
            raise SizeError(_indivisible(channels, self.num_groups))
        groups = (batch, self.num_groups, channels // self.num_groups, *rest)
        y = _standardized(wide.reshape(groups), tuple(range(2, len(groups))), self.epsilon)
        y = y.reshape(x.shape)
        gamma, beta = (p.reshape(*p.shape, *[1] * (x.ndim - 2)) for p in (gamma, beta))
        return convert(y * _as(gamma, y) + _as(beta, y), DType.of(x.dtype))


def _indivisible(channels: Any, groups: int) -> str:
    return f"{channels} channels cannot be divided into {groups} groups of one size"


def _number(who: str, what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise refused(who, TypeError, f"{what} must be a number, got {value!r}")
    return float(value)


def _epsilon(who: str, epsilon: Any) -> float:
    number = _number(who, "epsilon", epsilon)
    if not number >= 0:
        raise refused(who, ValueError, f"epsilon must be 0 or more, got {epsilon}")
    return number


def layer_norm(
    input: TensorValue, gamma: TensorValueLike, beta: TensorValueLike, epsilon: float
) -> TensorValue:
    """Layer normalization over the last axis (Ba et al. 2016, arXiv:1607.06450).

    ``(input - mean) / sqrt(variance + epsilon) * gamma + beta``, with the mean and the population
    variance of each row. Floats narrower than 32 bits are computed in ``float32``.

    Args:
        input: A float tensor of shape ``(..., N)``.
        gamma: The scale: a float tensor of shape ``(N,)``, an array, or a number for all.
        beta: The shift, likewise.
        epsilon: Added to the variance; more than 0.

    Returns:
        A tensor of the type of ``input``.

    Raises:
        TypeError: If ``input`` is not a graph value, or ``epsilon`` not a number.
        ValueError: If ``epsilon`` is not positive, ``input`` is a scalar or not a float, or
            ``gamma`` or ``beta`` is of another size, no float, or on another device.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n", 4], DeviceRef.CPU())
    >>> w = TensorType(DType.float32, [4], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, w, w]) as g:
    ...     ops.layer_norm(*g.inputs, epsilon=1e-5)
    TensorValue(float32, [n, 4], cpu:0)
    """
    x = tensor("layer_norm", input)
    epsilon = _epsilon("layer_norm", epsilon)
    if not epsilon:
        raise refused("layer_norm", ValueError, "epsilon must be more than 0", x._type)
    gamma, beta = beside("layer_norm", gamma, x), beside("layer_norm", beta, x)
    return LayerNorm(epsilon)(x, gamma, beta)


def rms_norm(
    input: TensorValueLike,
    weight: TensorValueLike,
    epsilon: float,
    weight_offset: float = 0.0,
    multiply_before_cast: bool = False,
) -> TensorValue:
    """RMS normalization over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467).

    ``input / sqrt(mean(input ** 2) + epsilon) * (weight + weight_offset)``. Floats narrower than
    32 bits are divided in ``float32``.

    Args:
        input: A float tensor of shape ``(..., N)``.
        weight: The scale: a float tensor of shape ``(N,)``, an array, or a number for all.
        epsilon: Added to the mean square; 0 or more.
        weight_offset: Added to ``weight``; 1 for models whose weights are stored less 1 (Gemma).
        multiply_before_cast: Whether to scale in ``float32``, before rounding to the dtype of
            ``input`` (Gemma), rather than after it (Llama).

    Returns:
        A tensor of the type of ``input``.

    Raises:
        TypeError: If ``input`` is not a graph value, or a number is none.
        ValueError: If ``epsilon`` is negative, ``input`` is a scalar or not a float, or
            ``weight`` is of another size, no float, or on another device.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.bfloat16, ["n", 4], DeviceRef.CPU())
    >>> w = TensorType(DType.bfloat16, [4], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, w]) as g:
    ...     ops.rms_norm(*g.inputs, epsilon=1e-6, weight_offset=1)
    TensorValue(bfloat16, [n, 4], cpu:0)
    """
    x = tensor("rms_norm", input)
    epsilon = _epsilon("rms_norm", epsilon)
    offset = _number("rms_norm", "weight_offset", weight_offset)
    weight = beside("rms_norm", weight, x)
    return RmsNorm(epsilon, offset, bool(multiply_before_cast))(x, weight)


def group_norm(
    input: TensorValueLike,
    gamma: TensorValueLike,
    beta: TensorValueLike,
    num_groups: int,
    epsilon: float,
) -> TensorValue:
    """Group normalization (Wu and He 2018, arXiv:1803.08494).

    As :func:`layer_norm`, over groups of ``C / num_groups`` channels and all trailing axes
    together; each channel has its own scale and shift.

    Args:
        input: A float tensor of shape ``(N, C, ...)``.
        gamma: The scale: a float tensor of shape ``(C,)``, an array, or a number for all.
        beta: The shift, likewise.
        num_groups: How many groups there are; it divides ``C``.
        epsilon: Added to the variance; 0 or more.

    Returns:
        A tensor of the type of ``input``.

    Raises:
        TypeError: If ``input`` is not a graph value, or a number is none.
        ValueError: If ``epsilon`` is negative, ``input`` has less than two axes or is not a
            float, ``num_groups`` does not divide ``C``, or ``gamma`` or ``beta`` is of another
            size, no float, or on another device.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n", 6, "h", "w"], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x]) as g:
    ...     ops.group_norm(g.inputs[0].tensor, 1.0, 0.0, num_groups=3, epsilon=1e-5)
    TensorValue(float32, [n, 6, h, w], cpu:0)
    """
    x = tensor("group_norm", input)
    epsilon = _epsilon("group_norm", epsilon)
    if isinstance(num_groups, bool) or not isinstance(num_groups, (int, np.integer)):
        raise refused("group_norm", TypeError, f"num_groups must be an int, got {num_groups!r}")
    if num_groups < 1:
        raise refused("group_norm", ValueError, f"num_groups must be 1 or more, got {num_groups}")
    gamma, beta = beside("group_norm", gamma, x), beside("group_norm", beta, x)
    return GroupNorm(int(num_groups), epsilon)(x, gamma, beta)
