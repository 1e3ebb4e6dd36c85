# SPDX-License-Identifier: Apache-2.0
"""Ops that change a tensor's shape or the order of its axes, not its values."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from maxjax.graph.dim import Dim, DimLike, StaticDim
from maxjax.graph.op import Counted, Op, refused
from maxjax.graph.ops._index import known_dims, known_size
from maxjax.graph.ops._operands import axis_of, not_negative, shape_of, tensor
from maxjax.graph.ops._window import int64
from maxjax.graph.shape import Shape, ShapeLike
from maxjax.graph.type import TensorType, Type
from maxjax.graph.value import StrongTensorValueLike, TensorValue, TensorValueLike

__all__ = [
    "broadcast_to",
    "flatten",
    "permute",
    "reshape",
    "squeeze",
    "transpose",
    "unsqueeze",
]

_ONE = StaticDim(1)


# ---------------------------------------------------------------- element counts


def _factors(shape: Iterable[Dim]) -> tuple[int, list[Dim]]:
    """The number of elements as a product: of the static dims, and the other dims."""
    number, others = 1, []
    for dim in shape:
        if type(dim) is StaticDim:
            number *= dim.dim
        else:
            others.append(dim)
    return number, others


def _cancel(left: list[Dim], right: list[Dim]) -> None:
    """Removes from both lists the dims they have in common."""
    for dim in tuple(left):
        if dim in right:
            left.remove(dim)
            right.remove(dim)


def _product(number: int, others: list[Dim]) -> Dim:
    result: Dim = StaticDim(number)
    for dim in others:
        result = result * dim
    return result


def _same_count(old: Sequence[Dim], new: Sequence[Dim]) -> bool:
    """Whether both shapes have the same number of elements whatever the names stand for."""
    m, a = _factors(old)
    n, b = _factors(new)
    if m == n == 0:
        return True
    if a or b:
        _cancel(a, b)
        if a or b:
            return _product(m, a) == _product(n, b)
    return m == n


def _missing(old: Sequence[Dim], known: Sequence[Dim]) -> Dim:
    """The dim that makes a shape with the dims ``known`` as large as ``old``.

    Raises:
        ValueError: If there is none, or not one for every size that the names may have.
    """
    m, a = _factors(old)
    n, b = _factors(known)
    if n == 0:
        raise ValueError("-1 stands for no particular size beside a dimension of 0; write it out")
    _cancel(a, b)
    if not b and m % n == 0:
        return _product(m // n, a)
    total, part = _product(m, a), _product(n, b)
    size = total // part
    if size * part != total:
        raise ValueError(
            f"-1 cannot be inferred: {_product(*_factors(old))} elements do not divide by "
            f"{_product(*_factors(known))}"
        )
    return size


# ---------------------------------------------------------------- ops


class Reshape(Op):
    """The same elements, in row-major order, in another shape."""

    shape: Shape

    def infer(self, x: TensorType) -> TensorType:
        not_negative(self.shape)
        try:
            same = _same_count(x.shape, self.shape)
        except OverflowError as e:
            raise ValueError(str(e)) from None
        if not same:
            old, new = _product(*_factors(x.shape)), _product(*_factors(self.shape))
            hint = ""
            if not (isinstance(old, StaticDim) and isinstance(new, StaticDim)):
                hint = "; if they are always equal, say so with x.rebind(...)"
            raise ValueError(
                f"cannot reshape to {self.shape.brief()}: it has {new} elements, not {old}{hint}"
            )
        return TensorType._of(x.dtype, self.shape, x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        return jnp.reshape(x, self.shape)


class Squeeze(Op):
    """Without an axis of size 1."""

    axis: int

    def infer(self, x: TensorType) -> TensorType:
        dim = x.shape[self.axis]
        if dim != _ONE:
            raise ValueError(f"dimension {self.axis} is {dim}; only a dimension of 1 is removed")
        dims = Shape([*x.shape[: self.axis], *x.shape[self.axis + 1 :]])
        return TensorType._of(x.dtype, dims, x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        return jnp.squeeze(x, self.axis)


class Unsqueeze(Op):
    """With a new axis of size 1."""

    axis: int

    def infer(self, x: TensorType) -> TensorType:
        dims = Shape([*x.shape[: self.axis], _ONE, *x.shape[self.axis :]])
        return TensorType._of(x.dtype, dims, x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        return jnp.expand_dims(x, self.axis)


class BroadcastTo(Op):
    """Repeated along dimensions of size 1 and new leading ones; a shape operand only agrees."""

    shape: Shape

    def infer(self, x: TensorType, shape: TensorType | None = None) -> TensorType:
        new, old = self.shape, x.shape
        not_negative(new)
        gap = len(new) - len(old)
        if gap < 0:
            raise ValueError(f"{new.brief()} has fewer dimensions than the tensor")
        for i, dim in enumerate(old):
            if dim != new[gap + i] and dim != _ONE:
                raise ValueError(
                    f"cannot broadcast to {new.brief()}: dimension {i} is {dim}, neither 1 nor "
                    f"{new[gap + i]}"
                )
        if shape is not None:
            _check_shape_operand(shape, len(new))
        return TensorType._of(x.dtype, new, x.device)

    def at(self, dims: Mapping[str, Any]) -> Op:
        # A name without a size stays: the operand has it.
        sizes: Any = known_dims(self.shape, dims)
        return BroadcastTo(sizes)

    def counted(
        self, known: Container[str], types: Sequence[Type], kernel: Callable[[str], Any]
    ) -> Counted | None:
        # Without an operand to say so, no size is new.
        return super().counted(known, types, kernel) if len(types) == 2 else None

    @property
    def new_dims(self) -> tuple[Any, ...]:
        return tuple(self.shape)

    def count(self, x: jax.Array, shape: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(int64(shape[i]) for i in range(shape.shape[0]))

    def lower(self, x: jax.Array, shape: jax.Array | None = None) -> jax.Array:
        # Without that operand a name without a size is a mistake, of which `evaluate` tells.
        size = known_size if shape is not None else _evaluated
        return jnp.broadcast_to(x, tuple(map(size, self.shape)))


def _evaluated(size: Any) -> Any:
    return size.evaluate({}) if isinstance(size, Dim) else size


def _check_shape_operand(shape: TensorType, rank: int) -> None:
    if not shape.dtype.is_integral() or len(shape.shape) != 1:
        raise ValueError(f"a shape that is a tensor is a vector of integers, not {shape.brief()}")
    length = shape.shape[0]
    if isinstance(length, StaticDim) and length.dim != rank:
        raise ValueError(f"the shape has {length} entries, out_dims has {rank}")


class Permute(Op):
    """The axes in another order: axis ``i`` of the result is axis ``dims[i]``."""

    dims: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        shape = x.shape
        return TensorType._of(x.dtype, Shape([shape[d] for d in self.dims]), x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        return jnp.transpose(x, self.dims)


# ---------------------------------------------------------------- functions


def reshape(x: TensorValueLike, shape: ShapeLike) -> TensorValue:
    """The same elements, in row-major order, in another shape.

    The number of elements must be provably the same: dims are compared as products of sums, so
    ``[batch, seq, 8]`` becomes ``[batch * seq, 8]``, and never ``[-1, 16]``.

    Args:
        x: A tensor of any shape.
        shape: The new dims; one may be -1, which is inferred.

    Raises:
        TypeError: If ``x`` is not a graph value or ``shape`` not dims.
        ValueError: If the numbers of elements differ or are not provably equal, -1 occurs twice
            or beside a 0, or it cannot be inferred.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x_type = TensorType(DType.float32, ["batch", "seq", 8], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x_type]) as g:
    ...     ops.reshape(g.inputs[0].tensor, [-1, 2, 4])
    TensorValue(float32, [batch * seq, 2, 4], cpu:0)
    """
    x = tensor("reshape", x)
    new = shape_of("reshape", shape, x._type)
    unknown = [i for i, dim in enumerate(new) if dim == -1]
    if unknown:
        try:
            if len(unknown) > 1:
                raise ValueError(f"only one dimension can be -1, got {new.brief()}")
            at = unknown[0]
            new[at] = _missing(x._type.shape, new[:at] + new[at + 1 :])
        except (ValueError, OverflowError) as e:
            raise refused("reshape", ValueError, str(e), x._type) from None
    return Reshape(new)(x)


def flatten(x: TensorValueLike, start_dim: int = 0, end_dim: int = -1) -> TensorValue:
    """Dimensions ``start_dim`` to ``end_dim``, both included, as one; a scalar becomes ``(1,)``.

    Args:
        x: A tensor of any shape.
        start_dim: The first of them; negative counts from the end.
        end_dim: The last of them.

    Raises:
        TypeError: If ``x`` is not a graph value.
        IndexError: If there is no such dimension.
        ValueError: If ``start_dim`` comes after ``end_dim``.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x_type = TensorType(DType.float32, ["batch", 3, 4], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x_type]) as g:
    ...     ops.flatten(g.inputs[0].tensor, 1)
    TensorValue(float32, [batch, 12], cpu:0)
    """
    x = tensor("flatten", x)
    old = x._type.shape
    rank = len(old) or 1
    start = axis_of("flatten", start_dim, rank)
    end = axis_of("flatten", end_dim, rank)
    if start > end:
        raise refused(
            "flatten",
            ValueError,
            f"start_dim {start_dim} comes after end_dim {end_dim}; swap them",
            x._type,
        )
    try:
        merged = _product(*_factors(old[start : end + 1]))
    except (OverflowError, ValueError) as e:
        raise refused("flatten", ValueError, str(e), x._type) from None
    return Reshape(Shape([*old[:start], merged, *old[end + 1 :]]))(x)


def squeeze(x: TensorValueLike, axis: int) -> TensorValue:
    """Without ``axis``, whose size must be 1.

    Args:
        x: A tensor of rank at least 1.
        axis: The axis to remove; negative counts from the end.

    Raises:
        TypeError: If ``x`` is not a graph value.
        IndexError: If there is no such axis.
        ValueError: If the dimension is not 1; a symbolic one is not, so rebind it first.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 1], DeviceRef.CPU())]) as g:
    ...     ops.squeeze(g.inputs[0].tensor, 1)
    TensorValue(float32, [n], cpu:0)
    """
    x = tensor("squeeze", x)
    return Squeeze(axis_of("squeeze", axis, len(x._type.shape)))(x)


def unsqueeze(x: TensorValueLike, axis: int) -> TensorValue:
    """With a new axis of size 1.

    Args:
        x: A tensor of rank R.
        axis: Where the new axis is in the result, from ``-R - 1`` to ``R``.

    Raises:
        TypeError: If ``x`` is not a graph value.
        ValueError: If there is no such place.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 3], DeviceRef.CPU())]) as g:
    ...     ops.unsqueeze(g.inputs[0].tensor, -1)
    TensorValue(float32, [n, 3, 1], cpu:0)
    """
    x = tensor("unsqueeze", x)
    return Unsqueeze(axis_of("unsqueeze", axis, len(x._type.shape), ValueError, extra=1))(x)


def broadcast_to(
    x: StrongTensorValueLike,
    shape: TensorValue | ShapeLike,
    out_dims: Iterable[DimLike] | None = None,
) -> TensorValue:
    """Repeated along dimensions of size 1 and along new leading dimensions.

    Args:
        x: A tensor whose dims, from the last backwards, are 1 or those of ``shape``.
        shape: The new dims, or a vector of integers, shape ``(R,)``, that holds them.
        out_dims: The dims that ``shape`` stands for when it is a tensor. New names have the sizes
            in it; for dims that are known before the graph runs it is not looked at.

    Raises:
        TypeError: If ``x`` is not a graph value or ``shape`` not dims.
        ValueError: If a dimension is neither 1 nor the new one, the rank would shrink, or
            ``shape`` is a tensor without ``out_dims``.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 1], DeviceRef.CPU())]) as g:
    ...     ops.broadcast_to(g.inputs[0].tensor, [2, "n", 4])
    TensorValue(float32, [2, n, 4], cpu:0)
    """
    x = tensor("broadcast_to", x)
    if not isinstance(shape, TensorValue):
        return BroadcastTo(shape_of("broadcast_to", shape, x._type))(x)
    if out_dims is None:
        raise refused(
            "broadcast_to",
            ValueError,
            "a shape that is a tensor is known only when the graph runs; name it with out_dims",
            x._type,
            shape._type,
        )
    return BroadcastTo(shape_of("broadcast_to", out_dims, x._type))(x, shape)


def permute(x: TensorValueLike, dims: Sequence[int]) -> TensorValue:
    """The axes in another order: axis ``i`` of the result is axis ``dims[i]`` of ``x``.

    Args:
        x: A tensor of rank R.
        dims: Each axis once; negative counts from the end.

    Raises:
        TypeError: If ``x`` is not a graph value.
        IndexError: If there is no such axis.
        ValueError: If an axis is missing or occurs twice.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x_type = TensorType(DType.float32, ["batch", "seq", 8], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x_type]) as g:
    ...     ops.permute(g.inputs[0].tensor, [-1, 0, 1])
    TensorValue(float32, [8, batch, seq], cpu:0)
    """
    x = tensor("permute", x)
    given = tuple(dims)
    rank = len(x._type.shape)
    if len(given) == rank:
        order = tuple([axis_of("permute", d, rank) for d in given])
        if len(set(order)) == rank:
            return Permute(order)(x)
    raise refused(
        "permute", ValueError, f"dims must name each of the {rank} axes once, got {given}", x._type
    )


def transpose(x: TensorValueLike, axis_1: int, axis_2: int) -> TensorValue:
    """Two axes swapped; a scalar stays as it is.

    Args:
        x: A tensor of any shape.
        axis_1: One axis; negative counts from the end.
        axis_2: The other.

    Raises:
        TypeError: If ``x`` is not a graph value.
        IndexError: If there is no such axis.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 3], DeviceRef.CPU())]) as g:
    ...     ops.transpose(g.inputs[0].tensor, 0, 1)
    TensorValue(float32, [3, n], cpu:0)
    """
    x = tensor("transpose", x)
    rank = len(x._type.shape)
    a = axis_of("transpose", axis_1, rank or 1)
    b = axis_of("transpose", axis_2, rank or 1)
    order = list(range(rank))
    if rank:
        order[a], order[b] = b, a
    return Permute(tuple(order))(x)
