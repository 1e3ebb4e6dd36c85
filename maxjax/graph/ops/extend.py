# SPDX-License-Identifier: Apache-2.0
"""Ops that make a tensor larger: padding it, and repeating it or its elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.graph.dim import Dim, DimLike, StaticDim
from maxjax.graph.op import Op, SizeError, refused
from maxjax.graph.ops._index import known_dims, known_size
from maxjax.graph.ops._operands import (
    axis_of,
    int_of,
    pair,
    same_device,
    shape_of,
    tensor,
    with_dim,
)
from maxjax.graph.ops.shape import flatten
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["pad", "repeat_interleave", "tile"]

_PAD_MODES = ("constant", "reflect", "edge")


class _PaddingsError(ValueError, AssertionError):
    """A wrong number of paddings: a ``ValueError``, and the reference's ``AssertionError``."""


class Pad(Op):
    """With elements added before and after along each axis.

    ``paddings`` holds two numbers per axis. The mode ``constant`` has the value as a second
    operand; ``reflect`` mirrors about the outermost elements, as often as needed; ``edge``
    repeats them.
    """

    paddings: tuple[int, ...]
    mode: str

    def infer(self, x: TensorType, value: TensorType | None = None) -> TensorType:
        rank, pads = len(x.shape), self.paddings
        if len(pads) != 2 * rank:
            raise _PaddingsError(
                f"rank {rank} needs {2 * rank} paddings, two per dimension, got {len(pads)}"
            )
        if any(p < 0 for p in pads):
            raise ValueError(f"paddings cannot be negative, got {list(pads)}; use a slice")
        if self.mode not in _PAD_MODES:
            raise ValueError(f"mode must be one of {', '.join(_PAD_MODES)}, got {self.mode!r}")
        if (value is not None) != (self.mode == "constant"):
            raise ValueError("a value goes with mode 'constant', and with no other")
        if value is not None:
            if value.dtype is not x.dtype:
                raise ValueError(f"the value is {value.dtype.name}, not {x.dtype.name}; cast it")
            if value.shape:
                raise ValueError(f"the value must be a scalar, got {value.brief()}")
            same_device(x, value)
        shape = Shape(x.shape)
        for i in range(rank):
            added = pads[2 * i] + pads[2 * i + 1]
            if added:
                if self.mode != "constant" and shape[i] == 0:
                    raise ValueError(_nothing_to_repeat(i, self.mode))
                shape[i] = shape[i] + added
        return TensorType._of(x.dtype, shape, x.device)

    def lower(self, x: jax.Array, value: jax.Array | None = None) -> jax.Array:
        pads = list(zip(self.paddings[::2], self.paddings[1::2], strict=True))
        if value is not None:
            return jax.lax.pad(x, value, [(low, high, 0) for low, high in pads])
        for axis, (low, high) in enumerate(pads):
            if low or high:
                x = self._extend(x, axis, low, high)
        return x

    def _extend(self, x: jax.Array, axis: int, low: int, high: int) -> jax.Array:
        """``x`` extended along one axis by its own elements, for a size of any kind."""
        size: Any = x.shape[axis]
        if isinstance(size, int) and size == 0:
            raise SizeError(_nothing_to_repeat(axis, self.mode))
        last = jnp.asarray(size, jnp.int64) - 1
        source = jnp.arange(low + size + high, dtype=jnp.int64) - low
        if self.mode == "edge":
            source = jnp.clip(source, jnp.int64(0), last)
        else:
            # One period goes up to the last element and back to the one after the first.
            source = source % jnp.maximum(2 * last, jnp.int64(1))
            source = jnp.where(source > last, 2 * last - source, source)
        return jnp.take(x, source, axis, mode="clip")


def _nothing_to_repeat(axis: int, mode: str) -> str:
    return f"dimension {axis} is 0: mode {mode!r} has no element to repeat; use mode 'constant'"


class Tile(Op):
    """The whole tensor repeated along each axis."""

    repeats: Shape

    def infer(self, x: TensorType) -> TensorType:
        old, times = x.shape, self.repeats
        if len(times) != len(old):
            raise ValueError(
                f"rank {len(old)} needs {len(old)} repeats, one per dimension, got {len(times)}"
            )
        for n in times:
            if isinstance(n, StaticDim) and n.dim < 1:
                raise ValueError(f"repeats must be at least 1, got {times.brief()}")
        shape = Shape([a * n for a, n in zip(old, times, strict=True)])
        return TensorType._of(x.dtype, shape, x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        times: Any = self.repeats
        spread = [n for pair in zip(times, x.shape, strict=True) for n in pair]
        rows = jnp.expand_dims(x, tuple(range(0, 2 * x.ndim, 2)))
        shape = [n * a for n, a in zip(times, x.shape, strict=True)]
        return jnp.reshape(jnp.broadcast_to(rows, spread), shape)


class RepeatInterleave(Op):
    """Each element along an axis repeated in its place.

    All ``repeats`` times; or, with a second operand in its stead, each its own number of times. The
    result then has ``out_dim`` elements along the axis whatever the numbers add up to: what is
    too many is cut off, what is missing repeats the last element.
    """

    axis: int
    repeats: Dim | None = None
    out_dim: Dim | None = None

    def infer(self, x: TensorType, counts: TensorType | None = None) -> TensorType:
        dim, n, size = x.shape[self.axis], self.repeats, self.out_dim
        if counts is not None and size is not None:
            _check_counts(counts, dim, self.axis)
            if isinstance(size, StaticDim) and size.dim < 0:
                raise ValueError(f"out_dim cannot be negative, got {size}")
            same_device(x, counts)
            return TensorType._of(x.dtype, with_dim(x.shape, self.axis, size), x.device)
        if counts is not None or n is None:
            raise ValueError("repeats that are a tensor need out_dim, the size of the result")
        if isinstance(n, StaticDim) and n.dim < 1:
            raise ValueError(f"repeats must be at least 1, got {n}")
        return TensorType._of(x.dtype, with_dim(x.shape, self.axis, dim * n), x.device)

    def at(self, dims: Mapping[str, Any]) -> Op:
        if self.out_dim is None:
            return super().at(dims)
        return RepeatInterleave(self.axis, out_dim=known_dims((self.out_dim,), dims)[0])

    @property
    def new_dims(self) -> tuple[Any, ...]:
        return () if self.out_dim is None else (self.out_dim,)

    def count(self, x: jax.Array, counts: jax.Array) -> tuple[jax.Array, ...]:
        return (jnp.sum(self._counts(x, counts), dtype=jnp.int64),)

    def _counts(self, x: jax.Array, counts: jax.Array) -> jax.Array:
        """How often each element is repeated."""
        size = x.shape[self.axis]
        if counts.ndim and counts.shape[0] != size and counts.shape[0] != 1:
            raise SizeError(f"there are {counts.shape[0]} repeats for {size} elements")
        counts = jnp.maximum(counts.astype(jnp.int64), jnp.int64(0))
        return jnp.broadcast_to(counts, (size,))

    def lower(self, x: jax.Array, counts: jax.Array | None = None) -> jax.Array:
        axis, size = self.axis, x.shape[self.axis]
        if counts is None:
            n: Any = self.repeats
            spread = (*x.shape[: axis + 1], n, *x.shape[axis + 1 :])
            shape = (*x.shape[:axis], size * n, *x.shape[axis + 1 :])
            return jnp.reshape(jnp.broadcast_to(jnp.expand_dims(x, axis + 1), spread), shape)
        repeats = self._counts(x, counts)
        out_dim: Any = known_size(self.out_dim)
        if isinstance(size, int) and size == 0:
            if isinstance(out_dim, int) and out_dim == 0:
                return x
            raise SizeError(f"there is no element to repeat, so the result cannot have {out_dim}")
        return jnp.repeat(x, repeats, axis, total_repeat_length=out_dim)


def _check_counts(counts: TensorType, dim: Dim, axis: int) -> None:
    if not counts.dtype.is_integral():
        raise ValueError(f"repeats must be integers, got {counts.brief()}")
    if len(counts.shape) > 1:
        raise ValueError(f"repeats must be a scalar or a vector, got {counts.brief()}")
    for n in counts.shape:
        if isinstance(n, StaticDim) and isinstance(dim, StaticDim) and n not in (1, dim):
            raise ValueError(f"there are {n} repeats for dimension {axis} of size {dim}")


# ---------------------------------------------------------------- functions


def pad(
    input: TensorValueLike,
    paddings: Iterable[int],
    mode: Literal["constant", "reflect", "edge"] = "constant",
    value: TensorValueLike = 0,
) -> TensorValue:
    """With elements added before and after along each axis.

    Args:
        input: A tensor of rank R.
        paddings: ``2 * R`` numbers from 0 up: before and after axis 0, before and after axis 1, ...
        mode: ``"constant"`` adds ``value``; ``"reflect"`` mirrors about the outermost elements,
            which are not repeated, and back again as often as needed; ``"edge"`` repeats them.
        value: A number or a scalar of the input's dtype; only for ``"constant"``.

    Returns:
        A tensor of ``input``'s dtype, dim ``i`` being larger by the two paddings of axis ``i``.

    Raises:
        TypeError: If ``input`` is not a graph value or a padding not an int.
        ValueError: If a padding is negative, their number is not ``2 * R`` (then an
            ``AssertionError`` as well), the mode is unknown, ``value`` does not fit the dtype, or
            there is no element to mirror or repeat.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 3], DeviceRef.CPU())]) as g:
    ...     ops.pad(g.inputs[0].tensor, [0, 0, 1, 2], mode="edge")
    TensorValue(float32, [n, 6], cpu:0)
    """
    x = tensor("pad", input)
    op = Pad(tuple([int_of("pad", "a padding", n, x._type) for n in paddings]), mode)
    if mode != "constant":
        return op(x)
    same, filling = pair("pad", x, value)
    if same is not x:
        wide, own = filling._type.dtype.name, x._type.dtype.name
        sentence = f"a value of {wide} does not fit a tensor of {own}; cast one of them"
        raise refused("pad", ValueError, sentence, x._type)
    return op(x, filling)


def tile(x: TensorValueLike, repeats: Iterable[DimLike]) -> TensorValue:
    """The whole tensor repeated along each axis.

    Args:
        x: A tensor of rank R.
        repeats: R numbers from 1 up, or dims.

    Returns:
        A tensor whose dim ``i`` is ``x.shape[i] * repeats[i]``.

    Raises:
        TypeError: If ``x`` is not a graph value or a repeat not a dim.
        ValueError: If there are not R repeats, or one is below 1.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 3], DeviceRef.CPU())]) as g:
    ...     ops.tile(g.inputs[0].tensor, [1, 2])
    TensorValue(float32, [n, 6], cpu:0)
    """
    x = tensor("tile", x)
    return Tile(shape_of("tile", repeats, x._type))(x)


def repeat_interleave(
    x: TensorValueLike,
    repeats: int | TensorValue,
    axis: int | None = None,
    out_dim: DimLike | None = None,
) -> TensorValue:
    """Each element along ``axis`` repeated in its place.

    Args:
        x: A tensor of any shape.
        repeats: How often, from 1 up; or a tensor of integers, of shape ``()``, ``(1,)`` or
            ``(x.shape[axis],)``, with how often each is (0 leaves it out, negative is 0).
        axis: Along which axis; None flattens ``x`` first.
        out_dim: The size of the result along the axis when ``repeats`` is a tensor. A new name is
            what the numbers add up to. Of a number, or a dimension of an input, what is more is
            cut off, and where it is less the last element is repeated.

    Raises:
        TypeError: If ``x`` is not a graph value, or ``repeats`` neither an int nor one.
        ValueError: If there is no such axis, an int is below 1, a tensor of repeats comes without
            ``out_dim``, is not of integers or not as long as the dimension.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 3], DeviceRef.CPU())]) as g:
    ...     ops.repeat_interleave(g.inputs[0].tensor, 2, axis=1)
    TensorValue(float32, [n, 6], cpu:0)
    """
    who = "repeat_interleave"
    x = tensor(who, x)
    if axis is None:
        x, at = flatten(x), 0
    else:
        at = axis_of(who, axis, len(x._type.shape), ValueError)
    size = None if out_dim is None else shape_of(who, [out_dim], x._type)[0]
    if not isinstance(repeats, (int, np.integer, Dim)) or isinstance(repeats, bool):
        return RepeatInterleave(at, out_dim=size)(x, tensor(who, repeats))
    result = RepeatInterleave(at, Dim(repeats))(x)
    actual = result._type.shape[at]
    if isinstance(size, StaticDim) and isinstance(actual, StaticDim) and size != actual:
        raise refused(who, ValueError, f"out_dim is {size}, but the result has {actual}", x._type)
    return result
