# SPDX-License-Identifier: Apache-2.0
"""Ops that put tensors together and take them apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from maxjax.graph.dim import DimLike, StaticDim
from maxjax.graph.op import Op, refused
from maxjax.graph.ops._operands import axis_of, int_of, same_device, tensor, with_dim
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["chunk", "concat", "split", "stack"]


def _tensors(who: str, values: Any) -> list[TensorValue]:
    """The tensors of a list.

    Raises:
        TypeError: If it is no list, or holds what is not a graph value.
        ValueError: If it is empty.
    """
    if isinstance(values, TensorValue) or not isinstance(values, Iterable):
        what = "one tensor" if isinstance(values, TensorValue) else f"{values!r:.60}"
        raise refused(who, TypeError, f"expected a list of tensors, got {what}")
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
        return TensorType._of(first.dtype, with_dim(first.shape, axis, total), same_device(*xs))

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
                TensorType._of(x.dtype, with_dim(x.shape, self.axis, StaticDim(n)), x.device)
                for n in self.sizes
            ]
        )

    def lower(self, x: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jax.lax.split(x, self.sizes, self.axis))


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
    sizes = tuple([int_of("split", "a size", n, x._type) for n in split_sizes])
    return list(Split(sizes, at)(x)) if sizes else []


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
    n = int_of("chunk", "chunks", chunks, x._type)
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
