# SPDX-License-Identifier: Apache-2.0
"""Slices of tensors: what ``x[...]`` does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import jax

from maxjax.graph.op import Count, Counted, Op
from maxjax.graph.ops._index import is_value, known_dims, parse_index, result_dims
from maxjax.graph.ops._operands import tensor
from maxjax.graph.ops._window import counts, select
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType, Type
from maxjax.graph.value import TensorValue

__all__ = ["slice_tensor"]


class SliceTensor(Op):
    """The elements of a tensor that an index selects; see :mod:`maxjax.graph.ops._index`."""

    index: tuple[Any, ...]
    out_dims: tuple[Any, ...] = ()

    def infer(self, x: TensorType, *values: TensorType) -> TensorType:
        dims = result_dims(self.index, self.out_dims, x.shape, values)
        return TensorType._of(x.dtype, Shape(dims), x.device)

    def at(self, dims: Mapping[str, Any]) -> Op:
        if not self.out_dims:
            return super().at(dims)
        index = SliceTensor(self.index).at(dims)
        assert isinstance(index, SliceTensor)
        return SliceTensor(index.index, known_dims(self.out_dims, dims))

    def lower(self, x: jax.Array, *values: jax.Array) -> jax.Array:
        return select(self.index, self.out_dims, x.shape, values).read(x)

    def counted(
        self, known: Container[str], types: Sequence[Type], kernel: Callable[[str], Any]
    ) -> Counted | None:
        counted = super().counted(known, types, kernel)
        if counted is None:
            return None
        assert isinstance(counted.first, Count)
        places = tuple(self._by_value[p] for p in counted.first.places)
        rest = _CountedSlice(self.index, self.out_dims, places)
        return dataclasses.replace(counted, rest=rest)

    @property
    def _by_value(self) -> tuple[int, ...]:
        """The slices whose bounds are values."""
        return tuple(
            i for i, e in enumerate(self.index) if type(e) is tuple and any(map(is_value, e))
        )

    @property
    def new_dims(self) -> tuple[Any, ...]:
        return tuple(self.out_dims[i] for i in self._by_value)

    def count(self, x: jax.Array, *values: jax.Array) -> tuple[jax.Array, ...]:
        found = counts(self.index, x.shape, values)
        return tuple(found[i] for i in self._by_value)


class _CountedSlice(SliceTensor, abstract=True):
    """A slice some of whose sizes were counted: those of the entries in ``places``, or larger."""

    places: tuple[int, ...] = ()

    def at(self, dims: Mapping[str, Any]) -> Op:
        known = super().at(dims)
        assert isinstance(known, SliceTensor)
        return _CountedSlice(known.index, known.out_dims, self.places)

    def lower(self, x: jax.Array, *values: jax.Array) -> jax.Array:
        return select(self.index, self.out_dims, x.shape, values, self.places).read(x)


def slice_tensor(x: TensorValue, indices: Any) -> TensorValue:
    """A part of a tensor; ``x[i, j]`` is ``slice_tensor(x, [i, j])``.

    An index is one of

    - an int, from ``-size`` to ``size - 1``: one element, whose axis goes;
    - a scalar integer tensor, shape ``()``: the same, known when the graph runs. What is out of
      range then is brought into it;
    - a slice: bounds are ints or dims, negative ints count from the end, and the step is a
      positive int. It must lie inside the axis: nothing is cut off, ``x[1:10]`` is refused for an
      axis of 4, and for a symbolic one when its size turns out to be below 10;
    - a pair ``(slice, out_dim)``, where ``out_dim`` is the number of elements: a number, a dim or a
      new name. Here the slice is Python's (it is cut to the axis, and steps may be negative), and
      bounds and step may be scalar integer tensors. Then a new name is as many elements as there
      are; a size that is known before the graph runs decides, and the window is moved into the
      axis where it is not inside;
    - ``None``: a new axis of size 1;
    - ``...``: as many whole axes as are left. So are the axes after the last index.

    Args:
        x: A tensor of rank R.
        indices: A list of at most R indices, ``None`` and ``...`` not counted.

    Returns:
        A tensor of the dtype of ``x``, with one axis for each slice, pair, ``None`` and axis taken
        whole. For a slice from ``start`` to ``stop`` it has size ``stop - start``, divided by the
        step and rounded up: ``x[1:]`` of ``[batch]`` is ``[batch - 1]``.

    Raises:
        TypeError: If ``x`` is not a graph value, or an index is of another kind.
        ValueError: If an index or slice is out of range, a slice ends before it starts, its step is
            not positive, or its size cannot be known; if there are more indices than axes.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType
    >>> x_type = TensorType(DType.float32, ["batch", 6, 8], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x_type]) as g:
    ...     x = g.inputs[0].tensor
    ...     x[1:, -1]
    ...     x[0, ..., None, ::2]
    ...     x[(slice(None, None, -1), "batch"), 0]
    TensorValue(float32, [batch + -1, 8], cpu:0)
    TensorValue(float32, [6, 1, 4], cpu:0)
    TensorValue(float32, [batch, 8], cpu:0)
    """
    x = tensor("slice_tensor", x)
    index = parse_index("slice_tensor", x._type, indices)
    if not index.entries:
        return x
    return SliceTensor(index.entries, index.out_dims)(x, *index.values)
