# SPDX-License-Identifier: Apache-2.0
"""Quantized weights: packed bytes become numbers inside the compiled program.

The block formats are those of GGUF files, and what is decoded is bit for bit what the ``gguf``
package decodes. Weights stay packed in device memory; the decoding is element-wise, so XLA fuses
it into whatever uses the numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from maxjax.dtype import DType
from maxjax.graph.dim import StaticDim
from maxjax.graph.op import Op, SizeError, describe, refused
from maxjax.graph.ops._operands import same_device, tensor
from maxjax.graph.ops._precision import dot_precision
from maxjax.graph.quantization import (
    Encoding,
    GGUFEncoding,
    QuantizationConfig,
    QuantizationEncoding,
)
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue

__all__ = ["dequantize", "qmatmul"]

_DECODED: tuple[Encoding, ...] = (
    QuantizationEncoding.Q4_0,
    QuantizationEncoding.Q4_K,
    GGUFEncoding.Q5_0,
    QuantizationEncoding.Q5_K,
    QuantizationEncoding.Q6_K,
    GGUFEncoding.Q8_0,
)


class Dequantize(Op):
    """The numbers that packed blocks along the last dimension stand for."""

    encoding: str

    def infer(self, packed: TensorType) -> TensorType:
        columns = _columns(self.encoding, packed)
        dims = Shape([*packed.shape[:-1], StaticDim(columns)])
        return TensorType._of(DType.float32, dims, packed.device)

    def lower(self, packed: jax.Array) -> jax.Array:
        return _decode(self.encoding, packed)


class Qmatmul(Op):
    """A matrix product with the transpose of a matrix of packed rows."""

    encoding: str

    def infer(self, x: TensorType, packed: TensorType) -> TensorType:
        device = same_device(x, packed)
        if x.dtype is not DType.float32:
            raise TypeError(f"the left operand must be float32, not {x.dtype.name}; cast it")
        if not x.shape:
            raise ValueError("the left operand is a scalar; it needs a dimension to sum over")
        if len(packed.shape) != 2:
            raise TypeError(f"the packed operand must be a matrix, not of rank {len(packed.shape)}")
        columns, inner = _columns(self.encoding, packed), x.shape[-1]
        if isinstance(inner, StaticDim) and inner.dim != columns:
            raise ValueError(
                f"inner dimensions differ, {inner} against the {columns} numbers of a packed row"
            )
        return TensorType._of(DType.float32, Shape([*x.shape[:-1], packed.shape[0]]), device)

    def lower(self, x: jax.Array, packed: jax.Array) -> jax.Array:
        matrix = _decode(self.encoding, packed)
        if x.shape[-1] != matrix.shape[-1]:
            raise SizeError(
                f"inner dimensions differ, {x.shape[-1]} against the {matrix.shape[-1]} numbers "
                "of a packed row"
            )
        # With the transpose written out, XLA decodes within the product on CPUs where x is one row:
        # three times as fast, and the decoded matrix never exists.
        return jnp.matmul(x, matrix.T, precision=dot_precision())


def _columns(encoding: str, packed: TensorType) -> int:
    """How many numbers a row of packed bytes holds."""
    if packed.dtype is not DType.uint8:
        raise TypeError(f"packed bytes must be uint8, not {packed.dtype.name}")
    if not packed.shape:
        raise ValueError("a scalar holds no packed block")
    last = packed.shape[-1]
    if not isinstance(last, StaticDim):
        raise TypeError(f"the last dimension must be a number, not {last}: rows are whole blocks")
    block = _BLOCKS[encoding]
    if last.dim % block.block_size:
        raise ValueError(
            f"rows of {last} bytes are no whole number of {encoding} blocks, which have "
            f"{block.block_size} bytes each"
        )
    return last.dim // block.block_size * block.elements_per_block


def dequantize(encoding: Encoding, quantized: TensorValue) -> TensorValue:
    """The numbers that packed bytes stand for.

    Args:
        encoding: How they are packed: Q4_0, Q4_K, Q5_0, Q5_K, Q6_K or Q8_0.
        quantized: uint8 of shape ``(..., bytes)``, whole blocks of ``encoding.block_size`` bytes.

    Returns:
        float32 of shape ``(..., bytes / encoding.block_size * encoding.elements_per_block)``, bit
        for bit what ``gguf.quants.dequantize`` gives.

    Raises:
        TypeError: If ``quantized`` is not a uint8 graph value, or its last dimension is symbolic.
        ValueError: If the encoding is none of these, or the last dimension is no whole number of
            blocks.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> from maxjax.graph.quantization import QuantizationEncoding
    >>> with Graph("g", input_types=[TensorType(DType.uint8, ["n", 36], DeviceRef.CPU())]) as g:
    ...     ops.dequantize(QuantizationEncoding.Q4_0, g.inputs[0].tensor)
    TensorValue(float32, [n, 64], cpu:0)
    """
    return Dequantize(_encoding("dequantize", encoding))(tensor("dequantize", quantized))


def qmatmul(
    encoding: Encoding,
    config: QuantizationConfig | None,
    lhs: TensorValue,
    *rhs: TensorValue,
) -> TensorValue:
    """The product ``lhs @ dequantize(encoding, rhs).T``, summed in float32.

    The packed matrix stays packed in memory.

    Args:
        encoding: How it is packed: Q4_0, Q4_K, Q5_0, Q5_K, Q6_K or Q8_0.
        config: Kept for programs that pass it: these encodings need none.
        lhs: float32 of shape ``(..., K)``.
        rhs: One tensor: uint8 of shape ``(N, bytes)``, each row whole blocks of K numbers.

    Returns:
        float32 of shape ``(..., N)``.

    Raises:
        TypeError: If ``lhs`` is not float32, ``rhs`` is not a uint8 matrix, or the dimension of
            its bytes is symbolic.
        ValueError: If the encoding is none of these, there is not one ``rhs``, rows are no whole
            number of blocks, or inner dimensions differ, the latter also when the graph runs.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, Weight, ops
    >>> from maxjax.graph.quantization import QuantizationEncoding
    >>> w = Weight("w", DType.uint8, [1000, 144], DeviceRef.CPU(), QuantizationEncoding.Q4_K)
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 256], DeviceRef.CPU())]) as g:
    ...     ops.qmatmul(w.quantization_encoding, None, g.inputs[0].tensor, w)
    TensorValue(float32, [n, 1000], cpu:0)
    """
    name = _encoding("qmatmul", encoding)
    operands = [tensor("qmatmul", x) for x in (lhs, *rhs)]
    if len(rhs) != 1:
        raise refused(
            "qmatmul",
            ValueError,
            f"{name} packs a matrix into one tensor, got {len(rhs)} "
            f"({describe(x._type for x in operands[1:])})",
        )
    return Qmatmul(name)(*operands)


def _encoding(who: str, encoding: object) -> str:
    if encoding not in _DECODED:
        given = getattr(encoding, "value", encoding)
        known = ", ".join(e.value for e in _DECODED)
        raise refused(
            who, ValueError, f"cannot decode the encoding {given!r}; these it can: {known}"
        )
    return encoding.value  # pyright: ignore[reportAttributeAccessIssue]


# ---------------------------------------------------------------- decoding

# In the decoders, `blocks` is uint8 of shape (..., block_size), and what comes back is float32 of
# shape (..., groups, numbers in a group): the numbers of a block in order. Where the last step is a
# product and a difference, the product is exact (at most 24 bits), so it makes no difference
# whether XLA fuses the two into one rounding.


def _float(b: jax.Array) -> jax.Array:
    """Pairs of bytes, ``(..., 2)``, as the float16 numbers that they are, ``(...)``."""
    # A bitcast of two bytes would do, but XLA makes a reduction of it, which does not fuse.
    low, high = b[..., 0].astype(jnp.uint16), b[..., 1].astype(jnp.uint16)
    bits = low | (high << jnp.uint16(8))
    return jax.lax.bitcast_convert_type(bits, jnp.float16).astype(jnp.float32)


def _fields(b: jax.Array, count: int, width: int) -> jax.Array:
    """``count`` fields of ``width`` bits of each byte, ``(..., n)`` to ``(..., count, n)``."""
    shifts = jnp.arange(0, count * width, width, dtype=jnp.uint8)
    mask = jnp.uint8((1 << width) - 1)
    shifts = shifts.reshape(*[1] * (b.ndim - 1), count, 1)
    shape = (*b.shape[:-1], count, b.shape[-1])
    wide = jnp.broadcast_to(b[..., None, :], shape)
    return jax.lax.shift_right_logical(wide, jnp.broadcast_to(shifts, shape)) & mask


def _split(b: jax.Array, *shape: int) -> jax.Array:
    """The last dimension in several."""
    return b.reshape(*b.shape[:-1], *shape)


def _signed(b: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(b, jnp.int8).astype(jnp.float32)


def _minus(b: jax.Array, offset: int) -> jax.Array:
    """Small unsigned numbers less an offset."""
    return b.astype(jnp.float32) - jnp.float32(offset)


def _times(scale: jax.Array, q: jax.Array) -> jax.Array:
    """``(..., groups)`` times ``(..., groups, n)``."""
    return _repeat(scale, q.shape[-1]) * q


def _q4_0(blocks: jax.Array) -> jax.Array:
    d, q = _float(blocks[..., :2]), _fields(blocks[..., 2:], 2, 4)
    return _times(_repeat(d, 2), _minus(q, 8))


def _q5_0(blocks: jax.Array) -> jax.Array:
    d, high, low = _float(blocks[..., :2]), blocks[..., 2:6], blocks[..., 6:]
    # Bit j of the four bytes is the highest bit of number j.
    bits = _fields(high[..., None], 8, 1).reshape(*high.shape[:-1], 2, 16)
    q = _fields(low, 2, 4) | (bits << jnp.uint8(4))
    return _times(_repeat(d, 2), _minus(q, 16))


def _q8_0(blocks: jax.Array) -> jax.Array:
    d, q = _float(blocks[..., :2]), _signed(blocks[..., 2:])
    return _times(d[..., None], q[..., None, :])


def _q4_k(blocks: jax.Array) -> jax.Array:
    scale, offset = _scales(blocks)
    q = _fields(_split(blocks[..., 16:], 4, 32), 2, 4)
    q = q.reshape(*blocks.shape[:-1], 8, 32).astype(jnp.float32)
    return _times(scale, q) - _repeat(offset, 32)


def _q5_k(blocks: jax.Array) -> jax.Array:
    scale, offset = _scales(blocks)
    high = _fields(blocks[..., 16:48], 8, 1)
    low = _fields(_split(blocks[..., 48:], 4, 32), 2, 4).reshape(high.shape)
    q = (low | (high << jnp.uint8(4))).astype(jnp.float32)
    return _times(scale, q) - _repeat(offset, 32)


def _q6_k(blocks: jax.Array) -> jax.Array:
    lead = blocks.shape[:-1]
    low = _fields(_split(blocks[..., :128], 2, 64), 2, 4).reshape(*lead, 8, 32)
    high = _fields(_split(blocks[..., 128:192], 2, 32), 4, 2).reshape(*lead, 8, 32)
    q = _minus(low | (high << jnp.uint8(4)), 32).reshape(*lead, 16, 16)
    d, scales = _float(blocks[..., 208:]), _signed(blocks[..., 192:208])
    return _times(_repeat(d, 16) * scales, q)


def _scales(blocks: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Scale and offset of each of the eight groups of a Q4_K or Q5_K block, ``(..., 8)``."""
    d, offset = _float(blocks[..., :2]), _float(blocks[..., 2:4])
    # Six bits each: those of the first four groups lie in the low bits of two times four bytes, the
    # others in four bytes of their own, with their two highest bits in the high bits of the former.
    a, b, c = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    six, two = jnp.uint8(63), jnp.uint8(48)
    by_two, by_four = jnp.uint8(2), jnp.uint8(4)
    scales = jnp.concatenate([a & six, (c & jnp.uint8(15)) | ((a >> by_two) & two)], axis=-1)
    offsets = jnp.concatenate([b & six, (c >> by_four) | ((b >> by_two) & two)], axis=-1)
    return (
        _repeat(d, 8) * scales.astype(jnp.float32),
        _repeat(offset, 8) * offsets.astype(jnp.float32),
    )


def _repeat(x: jax.Array, n: int) -> jax.Array:
    """Each number ``n`` times, ``(...)`` to ``(..., n)``."""
    return jnp.broadcast_to(x[..., None], (*x.shape, n))


_DECODERS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "Q4_0": _q4_0,
    "Q4_K": _q4_k,
    "Q5_0": _q5_0,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "Q8_0": _q8_0,
}
_BLOCKS = {encoding.value: encoding.block_parameters for encoding in _DECODED}


def _decode(encoding: str, packed: jax.Array) -> jax.Array:
    """Rows of packed bytes, ``(..., bytes)``, as float32, ``(..., numbers)``."""
    block = _BLOCKS[encoding]
    count = packed.shape[-1] // block.block_size
    blocks = _split(packed, count, block.block_size)
    numbers = _DECODERS[encoding](blocks)
    return numbers.reshape(*packed.shape[:-1], count * block.elements_per_block)
