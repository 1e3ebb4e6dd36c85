# SPDX-License-Identifier: Apache-2.0
"""Numbers in the formats of the OCP Microscaling specification (MX), version 1.0.

A block of 32 numbers along the last axis shares a scale, a power of two in ``float8_e8m0fnu``; each
number is stored in 8 or 6 bits as a multiple of it. The scale is that of section 6.3: the largest
power of two that is not above the block's largest magnitude, divided by the largest power of two
that the element format has.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from maxjax.dtype import DType
from maxjax.graph.dim import StaticDim
from maxjax.graph.op import Op
from maxjax.graph.ops._operands import with_dim
from maxjax.graph.ops.cast import convert
from maxjax.graph.type import TensorType

__all__ = ["BLOCK", "FP6", "MxQuantize"]

# How many numbers share a scale.
BLOCK = 32
# For each six-bit format: bits of the mantissa, exponents of the smallest and largest power of two.
FP6 = {"e2m3": (3, 0, 2), "e3m2": (2, -2, 4)}
_FP8 = "e4m3"
_FP8_LARGEST = 8


class MxQuantize(Op):
    """Codes and scales of blocks of numbers.

    Eight-bit codes are ``float8_e4m3fn``. Six-bit ones are a stream of bits, lowest first, in
    ``uint8``: four codes in three bytes.
    """

    element: str

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        if not x.dtype.is_float():
            raise ValueError(f"the input must be a float, not {x.dtype.name}")
        columns = x.shape[-1] if x.shape else None
        if not isinstance(columns, StaticDim) or columns.dim % BLOCK:
            raise ValueError(
                f"the last dimension must be a number that {BLOCK} divides, so that blocks of "
                f"{BLOCK} can share a scale; it is {columns}"
            )
        last, n = len(x.shape) - 1, columns.dim
        blocks = with_dim(x.shape, last, StaticDim(n // BLOCK))
        if self.element == _FP8:
            codes = TensorType._of(DType.float8_e4m3fn, x.shape, x.device)
        else:
            packed = with_dim(x.shape, last, StaticDim(n // 4 * 3))
            codes = TensorType._of(DType.uint8, packed, x.device)
        return codes, TensorType._of(DType.float8_e8m0fnu, blocks, x.device)

    def lower(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        blocks = convert(x, DType.float32).reshape(*x.shape[:-1], -1, BLOCK)
        largest = _FP8_LARGEST if self.element == _FP8 else FP6[self.element][2]
        exponent = _exponent(jnp.max(jnp.abs(blocks), axis=-1)) - largest
        exponent = jnp.maximum(exponent, -127)
        scaled = _times_power(blocks, -exponent[..., None])
        bad = jnp.any(~jnp.isfinite(blocks), axis=-1)  # a block with NaN or infinity is NaN
        bits = jnp.where(bad, jnp.uint8(255), (exponent + 127).astype(jnp.uint8))
        scales = lax.bitcast_convert_type(bits, jnp.float8_e8m0fnu)
        if self.element == _FP8:
            limit = jnp.float32(jnp.finfo(jnp.float8_e4m3fn).max)
            codes = jnp.clip(scaled, -limit, limit).astype(jnp.float8_e4m3fn)
            return codes.reshape(x.shape), scales
        codes = _six_bits(scaled, *FP6[self.element][:2]).reshape(*x.shape[:-1], -1, 4)
        return _packed(codes).reshape(*x.shape[:-1], -1), scales


def _exponent(x: jax.Array) -> jax.Array:
    """``floor(log2(x))`` of non-negative numbers, -127 for 0 and subnormal ones."""
    bits = lax.bitcast_convert_type(x, jnp.int32)
    return lax.shift_right_logical(bits, jnp.full_like(bits, 23)) - 127


def _times_power(x: jax.Array, n: jax.Array) -> jax.Array:
    """``x * 2**n`` for n from -128 to 127, in two steps, each a normal number."""
    half = n // 2
    return x * _power(half) * _power(n - half)


def _power(n: jax.Array) -> jax.Array:
    bits = lax.shift_left((n + 127).astype(jnp.int32), jnp.full(n.shape, 23, jnp.int32))
    return lax.bitcast_convert_type(bits, jnp.float32)


def _six_bits(x: jax.Array, mantissa: int, smallest: int) -> jax.Array:
    """Codes of sign, exponent and ``mantissa`` bits, rounded to even, at most the largest."""
    magnitude = jnp.abs(x)
    exponent = jnp.maximum(_exponent(magnitude), smallest)
    # In units of the last place. What rounds up to the next power of two carries into the exponent.
    steps = jnp.round(_times_power(magnitude, mantissa - exponent)).astype(jnp.int32)
    code = lax.min(
        (exponent - smallest) * (1 << mantissa) + steps, jnp.full(x.shape, 31, jnp.int32)
    )
    return jnp.where(jnp.signbit(x), code + 32, code).astype(jnp.uint8)


def _packed(codes: jax.Array) -> jax.Array:
    """Four codes of six bits, ``(..., 4)``, in three bytes."""
    a, b, c, d = (codes[..., i] for i in range(4))
    six, four, two = jnp.uint8(6), jnp.uint8(4), jnp.uint8(2)
    return jnp.stack([a | (b << six), (b >> two) | (c << four), (c >> four) | (d << two)], axis=-1)
