# SPDX-License-Identifier: Apache-2.0
"""Ops on the two last axes of a tensor seen as matrices, and the places of what is not zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from maxjax.dtype import DType
from maxjax.graph.dim import Dim, DimLike, StaticDim
from maxjax.graph.op import Op, refused
from maxjax.graph.ops._index import known_dims, known_size
from maxjax.graph.ops._operands import int_of, tensor
from maxjax.graph.ops._window import int64
from maxjax.graph.ops.cast import convert
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["band_part", "nonzero"]


class BandPart(Op):
    """Matrices with all but a band around the diagonal set to 0; ``-1`` is no limit."""

    num_lower: int = -1
    num_upper: int = -1
    exclude: bool = False

    def infer(self, x: TensorType) -> TensorType:
        if len(x.shape) < 2:
            raise ValueError(f"a matrix has at least rank 2, got rank {len(x.shape)}")
        for name, number, size in (
            ("num_lower", self.num_lower, x.shape[-2]),
            ("num_upper", self.num_upper, x.shape[-1]),
        ):
            if number < -1:
                raise ValueError(f"{name} is {number}; give a number from 0, or -1 or None for all")
            if isinstance(size, StaticDim) and number >= max(size.dim, 1):
                raise ValueError(
                    f"{name} is {number}, but that dimension has size {size}; give None for all"
                )
        return TensorType._of(x.dtype, x.shape, x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        rows, columns = x.shape[-2:]
        below = lax.broadcasted_iota(jnp.int64, (rows, columns), 0)
        below -= lax.broadcasted_iota(jnp.int64, (rows, columns), 1)
        inside = jnp.ones((rows, columns), jnp.bool_)
        if self.num_lower >= 0:
            inside &= below <= int64(self.num_lower)
        if self.num_upper >= 0:
            inside &= below >= int64(-self.num_upper)
        if self.exclude:
            inside = ~inside
        return jnp.where(jnp.broadcast_to(inside, x.shape), x, jnp.zeros((), x.dtype))


class Nonzero(Op):
    """The ``int64`` coordinates of the elements that are not 0, a row each, in row-major order."""

    out_dim: Any

    def infer(self, x: TensorType) -> TensorType:
        rank = len(x.shape)
        if not rank:
            raise ValueError("a scalar has no coordinates; compare it with 0")
        return TensorType._of(DType.int64, Shape([self.out_dim, StaticDim(rank)]), x.device)

    def at(self, dims: Mapping[str, Any]) -> Op:
        return Nonzero(*known_dims((self.out_dim,), dims))

    @property
    def new_dims(self) -> tuple[Any, ...]:
        return (self.out_dim,)

    def count(self, x: jax.Array) -> tuple[jax.Array, ...]:
        return (jnp.sum(convert(x, DType.bool), dtype=jnp.int64),)

    def lower(self, x: jax.Array) -> jax.Array:
        count: Any = known_size(self.out_dim)
        size = math.prod(x.shape)
        chosen = convert(jnp.reshape(x, (size,)), DType.bool)
        rank = lax.cumsum(lax.convert_element_type(chosen, jnp.int64)) - 1
        row = jnp.where(chosen, rank, int64(count))
        found = jnp.full((count,), int64(size))
        found = found.at[row].set(lax.iota(jnp.int64, size), mode="drop")
        columns = []
        left = found
        for n in reversed(x.shape):
            n = int64(n)
            columns.append(jnp.where(found < int64(size), left % jnp.maximum(n, int64(1)), n))
            left = left // jnp.maximum(n, int64(1))
        return jnp.stack(columns[::-1], axis=1)


def band_part(
    x: TensorValueLike,
    num_lower: int | None = None,
    num_upper: int | None = None,
    exclude: bool = False,
) -> TensorValue:
    """The matrices in ``x`` with everything outside a band around the diagonal set to 0.

    An element in row i and column j is in the band if ``i - j <= num_lower`` and
    ``j - i <= num_upper``.

    Args:
        x: A tensor of shape ``(..., M, N)``.
        num_lower: How many diagonals below the main one to keep, less than M; None or -1 for all.
        num_upper: How many diagonals above the main one to keep, less than N; None or -1 for all.
        exclude: Whether to set the band itself to 0 instead, and keep the rest.

    Returns:
        A tensor of the type of ``x``.

    Raises:
        TypeError: If ``x`` is not a graph value, or a number not an int.
        ValueError: If ``x`` has no matrices, or a number is less than -1 or too large for a
            dimension that is a number.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> scores = TensorType(DType.float32, ["batch", "seq", "seq"], DeviceRef.CPU())
    >>> with Graph("causal", input_types=[scores]) as g:
    ...     ops.band_part(g.inputs[0].tensor, num_upper=0)
    TensorValue(float32, [batch, seq, seq], cpu:0)
    """
    x = tensor("band_part", x)
    lower, upper = [
        -1 if n is None else int_of("band_part", name, n, x._type)
        for name, n in (("num_lower", num_lower), ("num_upper", num_upper))
    ]
    return BandPart(lower, upper, bool(exclude))(x)


def nonzero(x: TensorValueLike, out_dim: DimLike) -> TensorValue:
    """The coordinates of the elements of ``x`` that are not 0, in row-major order.

    How many there are depends on the values. With a new name as ``out_dim`` there are as many rows:
    a model counts them and goes on with a program for that size; see ``docs/data-dependent.md``.
    With an ``out_dim`` that is known before the graph runs there are that many rows: what is too
    many is cut off, and the rows that are missing hold ``x.shape``, one past the end of each axis,
    which the scatters drop.

    Args:
        x: A tensor of rank R >= 1. NaN is not 0.
        out_dim: The number of rows: a number, a dim, or a new name.

    Returns:
        An ``int64`` tensor of shape ``(out_dim, R)``.

    Raises:
        TypeError: If ``x`` is not a graph value, or ``out_dim`` not a dim or negative.
        ValueError: If ``x`` is a scalar; and when the graph is loaded, if ``out_dim`` is a new name
            inside a branch or loop.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], DeviceRef.CPU())]) as g:
    ...     ops.nonzero(g.inputs[0].tensor, "found"), ops.nonzero(g.inputs[0].tensor, 8)
    (TensorValue(int64, [found, 2], cpu:0), TensorValue(int64, [8, 2], cpu:0))
    """
    x = tensor("nonzero", x)
    try:
        size = Dim(out_dim)
    except (TypeError, ValueError) as e:
        raise refused("nonzero", type(e), f"out_dim: {e}", x._type) from None
    if isinstance(size, StaticDim) and size.dim < 0:
        raise refused("nonzero", TypeError, f"out_dim is the negative size {size}", x._type)
    return Nonzero(size)(x)
