# SPDX-License-Identifier: Apache-2.0
"""Ops that put tensors together, take them apart, and repeat or extend them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.graph.dim import Dim, DimLike, StaticDim
from maxjax.graph.op import Op, SizeError, refused
from maxjax.graph.ops._operands import axis_of, pair, same_device, tensor
from maxjax.graph.ops.shape import flatten
from maxjax.graph.shape import Shape, ShapeLike
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["chunk", "concat", "pad", "repeat_interleave", "split", "stack", "tile"]

_PAD_MODES = ("constant", "reflect", "edge")


class _PaddingsError(ValueError, AssertionError):
    """A wrong number of paddings: a ``ValueError``, and the reference's ``AssertionError``."""


def _at(shape: Shape, axis: int, dim: Dim) -> Shape:
    """``shape`` with another dim at ``axis``."""
    new = Shape(shape)
    new[axis] = dim
    return new


def _tensors(who: str, values: Any) -> list[TensorValue]:
    """The tensors of a list.

    Raises:
        TypeError: If it is no list, or holds what is not a graph value.
        ValueError: If it is empty.
    """
    if isinstance(values, TensorValue):
        raise refused(who, TypeError, "expected a list of tensors, got one tensor", values._type)
    given = [tensor(who, v) for v in values]
    if not given:
        raise refused(who, ValueError, "at least one tensor is needed, got an empty list")
    return given


def _one_dtype(*xs: TensorType) -> None:
    for x in xs:
        if x.dtype is not xs[0].dtype:
            raise ValueError(
                f"operands differ in dtype, {xs[0].dtype.name} and {x.dtype.name}; cast one"
            )


# ---------------------------------------------------------------- ops


class Concat(Op):
    """The tensors one after the other along an axis."""

    axis: int

    def infer(self, *xs: TensorType) -> TensorType:
        first, axis = xs[0], self.axis
        _one_dtype(*xs)
        total = first.shape[axis]
        for x in xs[1:]:
            if len(x.shape) != len(first.shape):
                raise ValueError("operands differ in rank")
            for i, (a, b) in enumerate(zip(first.shape, x.shape, strict=True)):
                if i != axis and a != b:
                    hint = "" if isinstance(a, StaticDim) and isinstance(b, StaticDim) else _REBIND
                    raise ValueError(
                        f"dimension {i} is {a} and {b}; only dimension {axis} may differ{hint}"
                    )
            total = total + x.shape[axis]
        return TensorType._of(first.dtype, _at(first.shape, axis, total), same_device(*xs))

    def lower(self, *xs: jax.Array) -> jax.Array:
        return jnp.concatenate(xs, self.axis)


_REBIND = "; if they are always equal, say so with x.rebind(...)"


class Stack(Op):
    """The tensors one after the other along a new axis."""

    axis: int

    def infer(self, *xs: TensorType) -> TensorType:
        first, axis = xs[0], self.axis
        _one_dtype(*xs)
        for x in xs:
            if x.shape != first.shape:
                raise ValueError(
                    f"operands differ in shape, {first.shape.brief()} and {x.shape.brief()}"
                )
        shape = Shape([*first.shape[:axis], StaticDim(len(xs)), *first.shape[axis:]])
        return TensorType._of(first.dtype, shape, same_device(*xs))

    def lower(self, *xs: jax.Array) -> jax.Array:
        return jnp.stack(xs, self.axis)


class Split(Op):
    """Consecutive parts along an axis."""

    sizes: tuple[int, ...]
    axis: int

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        whole = x.shape[self.axis]
        if min(self.sizes) < 0:
            raise ValueError(f"a part has a negative size in {list(self.sizes)}")
        if whole != sum(self.sizes):
            hint = "" if isinstance(whole, StaticDim) else "; rebind it to a number first"
            raise ValueError(
                f"the sizes {list(self.sizes)} add up to {sum(self.sizes)}, but dimension "
                f"{self.axis} is {whole}{hint}"
            )
        return tuple(
            [
                TensorType._of(x.dtype, _at(x.shape, self.axis, StaticDim(n)), x.device)
                for n in self.sizes
            ]
        )

    def lower(self, x: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jax.lax.split(x, self.sizes, self.axis))


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


class Repeat(Op):
    """Each element along an axis repeated ``repeats`` times in its place."""

    repeats: Dim
    axis: int

    def infer(self, x: TensorType) -> TensorType:
        n = self.repeats
        if isinstance(n, StaticDim) and n.dim < 1:
            raise ValueError(f"repeats must be at least 1, got {n}")
        shape = _at(x.shape, self.axis, x.shape[self.axis] * n)
        return TensorType._of(x.dtype, shape, x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        axis, n = self.axis, self.repeats
        spread = (*x.shape[: axis + 1], n, *x.shape[axis + 1 :])
        shape = (*x.shape[:axis], x.shape[axis] * n, *x.shape[axis + 1 :])
        return jnp.reshape(jnp.broadcast_to(jnp.expand_dims(x, axis + 1), spread), shape)


class RepeatEach(Op):
    """Each element along an axis repeated its own number of times.

    The result has ``out_dim`` elements along the axis whatever the numbers add up to: what is
    too many is cut off, what is missing repeats the last element.
    """

    axis: int
    out_dim: Dim

    def infer(self, x: TensorType, repeats: TensorType) -> TensorType:
        if not repeats.dtype.is_integral():
            raise ValueError(f"repeats must be integers, got {repeats.brief()}")
        if len(repeats.shape) > 1:
            raise ValueError(f"repeats must be a scalar or a vector, got {repeats.brief()}")
        if isinstance(self.out_dim, StaticDim) and self.out_dim.dim < 0:
            raise ValueError(f"out_dim cannot be negative, got {self.out_dim}")
        dim = x.shape[self.axis]
        for n in repeats.shape:
            if isinstance(n, StaticDim) and isinstance(dim, StaticDim) and n not in (1, dim):
                raise ValueError(f"there are {n} repeats for dimension {self.axis} of size {dim}")
        same_device(x, repeats)
        return TensorType._of(x.dtype, _at(x.shape, self.axis, self.out_dim), x.device)

    def at(self, dims: Mapping[str, Any]) -> Op:
        for parameter in self.out_dim.parameters:
            if parameter.name not in dims:
                raise SizeError(
                    f"the result's dimension {self.out_dim} depends on the data, as no input has "
                    f"{parameter.name!r}: give out_dim as a number or as a dimension of an input"
                )
        return super().at(dims)

    def lower(self, x: jax.Array, repeats: jax.Array) -> jax.Array:
        size: Any = x.shape[self.axis]
        counts = jnp.maximum(repeats.astype(jnp.int64), jnp.int64(0))
        if repeats.ndim and repeats.shape[0] != size and repeats.shape[0] != 1:
            raise SizeError(f"there are {repeats.shape[0]} repeats for {size} elements")
        if not repeats.ndim or repeats.shape[0] != size:
            counts = jnp.broadcast_to(counts, (size,))
        if isinstance(size, int) and size == 0:
            if self.out_dim == 0:
                return x
            raise SizeError(f"there is no element to repeat, so out_dim cannot be {self.out_dim}")
        ends = jnp.cumsum(counts)
        places = jnp.arange(self.out_dim, dtype=jnp.int64)
        source = jnp.searchsorted(ends, places, side="right")
        return jnp.take(x, source, self.axis, mode="clip")


# ---------------------------------------------------------------- functions


def concat(original_vals: Iterable[TensorValueLike], axis: int = 0) -> TensorValue:
    """The tensors one after the other along ``axis``; nothing is promoted.

    Args:
        original_vals: Tensors of one dtype and rank R >= 1, whose other dims are equal.
        axis: The axis that grows; negative counts from the end.

    Raises:
        TypeError: If it is no list of graph values.
        IndexError: If there is no such axis, as for scalars.
        ValueError: If the list is empty, or dtypes, ranks, other dims or devices differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 3], DeviceRef.CPU())]) as g:
    ...     x = g.inputs[0].tensor
    ...     ops.concat([x, x, x])
    TensorValue(float32, [n * 3, 3], cpu:0)
    """
    values = _tensors("concat", original_vals)
    return Concat(axis_of("concat", axis, len(values[0]._type.shape)))(*values)


def stack(values: Iterable[TensorValueLike], axis: int = 0) -> TensorValue:
    """The tensors one after the other along a new axis; nothing is promoted.

    Args:
        values: Tensors of one dtype and shape, of rank R.
        axis: Where the new axis is in the result, from ``-R - 1`` to ``R``.

    Raises:
        TypeError: If it is no list of graph values.
        IndexError: If there is no such place.
        ValueError: If the list is empty, or dtypes, shapes or devices differ.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.stack([g.inputs[0].tensor, g.inputs[0].tensor], axis=-1)
    TensorValue(float32, [n, 2], cpu:0)
    """
    given = _tensors("stack", values)
    return Stack(axis_of("stack", axis, len(given[0]._type.shape), extra=1))(*given)


def split(x: TensorValueLike, split_sizes: Sequence[DimLike], axis: int = 0) -> list[TensorValue]:
    """Consecutive parts along ``axis``.

    Args:
        x: A tensor of rank at least 1.
        split_sizes: The size of each part, numbers (0 included) that add up to the dimension.
        axis: The axis to divide; negative counts from the end.

    Returns:
        A tensor per size; none when there are no sizes.

    Raises:
        TypeError: If ``x`` is not a graph value or a size not a number.
        IndexError: If there is no such axis.
        ValueError: If a size is negative, or they do not add up to the dimension, which a
            symbolic one never does.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 5], DeviceRef.CPU())]) as g:
    ...     ops.split(g.inputs[0].tensor, [2, 3], axis=1)
    [TensorValue(float32, [n, 2], cpu:0), TensorValue(float32, [n, 3], cpu:0)]
    """
    x = tensor("split", x)
    at = axis_of("split", axis, len(x._type.shape))
    sizes = tuple([_number("split", "a size", n, x) for n in split_sizes])
    return list(Split(sizes, at)(x)) if sizes else []


def _number(who: str, what: str, value: Any, x: TensorValue) -> int:
    """``value`` as an int.

    Raises:
        TypeError: If it is not a number, or a dim that is not static.
    """
    if isinstance(value, StaticDim):
        return value.dim
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise refused(who, TypeError, f"{what} must be an int, got {value!r}", x._type)


def chunk(x: TensorValueLike, chunks: int, axis: int = 0) -> list[TensorValue]:
    """Equal parts along ``axis``.

    Args:
        x: A tensor of rank at least 1.
        chunks: How many; it must divide the dimension.
        axis: The axis to divide; negative counts from the end.

    Raises:
        TypeError: If ``x`` is not a graph value, or the dimension is not static.
        IndexError: If there is no such axis.
        ValueError: If ``x`` is a scalar, or the dimension does not divide into ``chunks`` parts.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 6], DeviceRef.CPU())]) as g:
    ...     ops.chunk(g.inputs[0].tensor, 2, axis=1)
    [TensorValue(float32, [n, 3], cpu:0), TensorValue(float32, [n, 3], cpu:0)]
    """
    x = tensor("chunk", x)
    shape = x._type.shape
    if not shape:
        raise refused("chunk", ValueError, "a scalar cannot be divided", x._type)
    at = axis_of("chunk", axis, len(shape))
    n = _number("chunk", "chunks", chunks, x)
    dim = shape[at]
    if not isinstance(dim, StaticDim):
        raise refused(
            "chunk", TypeError, f"dimension {at} is {dim}; rebind it to a number first", x._type
        )
    if n < 1 or dim.dim % n:
        raise refused(
            "chunk",
            ValueError,
            f"dimension {at} of size {dim} does not divide into {n} equal parts",
            x._type,
        )
    return list(Split((dim.dim // n,) * n, at)(x))


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
    op = Pad(tuple([_number("pad", "a padding", n, x) for n in paddings]), mode)
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
    return Tile(_dims("tile", repeats, x))(x)


def _dims(who: str, dims: ShapeLike, x: TensorValue) -> Shape:
    try:
        return Shape(dims)
    except (TypeError, ValueError) as e:
        raise refused(who, type(e), str(e), x._type) from None


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
        out_dim: The size of the result along the axis when ``repeats`` is a tensor. When the
            numbers add up to more the rest is cut off, when to less the last element is repeated.

    Raises:
        TypeError: If ``x`` is not a graph value, or ``repeats`` neither an int nor one.
        ValueError: If there is no such axis, an int is below 1, a tensor of repeats comes without
            ``out_dim``, is not of integers or not as long as the dimension; when it runs, if
            ``out_dim`` is a name that no input has.

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
    size = None if out_dim is None else _dims(who, [out_dim], x)[0]
    if isinstance(repeats, (int, np.integer, Dim)) and not isinstance(repeats, bool):
        result = Repeat(Dim(repeats), at)(x)
        given = result._type.shape[at]
        if isinstance(size, StaticDim) and isinstance(given, StaticDim) and size != given:
            raise refused(
                who, ValueError, f"out_dim is {size}, but the result has {given}", x._type
            )
        return result
    counts = tensor(who, repeats)
    if size is None:
        raise refused(
            who,
            ValueError,
            "repeats that are a tensor need out_dim, the size of the result",
            x._type,
            counts._type,
        )
    return RepeatEach(at, size)(x, counts)
