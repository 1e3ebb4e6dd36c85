# SPDX-License-Identifier: Apache-2.0
"""Indices of tensors: what ``x[...]`` takes, as plain fields of an op, and the dims it gives.

An index is a tuple with an entry per axis; axes after the last entry are taken whole.

- ``None``: a new axis of size 1.
- a number or a dim: one element, counted from the front.
- ``"value"``: one element; the next operand says which.
- ``(start, stop, step)``: the elements from ``start`` up to ``stop``, counted from the front and
  in range; a stop of None is the end. With an ``out_dim`` it means what it does in Python: each
  may also be None, negative, or ``"value"``, and what is out of range is cut off.

Beside it goes a tuple of ``out_dims``: the dim given for each entry, or None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maxjax.dtype import DType
from maxjax.graph.dim import AlgebraicDim, Dim, StaticDim, SymbolicDim, UnboundDimError
from maxjax.graph.op import SizeError, refused
from maxjax.graph.type import Type
from maxjax.graph.value import TensorValue, has_tensor_value

__all__ = [
    "ParsedIndex",
    "ceil_div",
    "is_value",
    "known_dims",
    "known_size",
    "parse_index",
    "result_dims",
]

_VALUE = "value"

_ONE = StaticDim(1)
_WHOLE = (0, None, 1)


def is_value(part: Any) -> bool:
    """Whether a part of an entry stands for the next operand."""
    # By its class: a dim may be called "value".
    return type(part) is str


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedIndex:
    """An index as fields of an op: no ``out_dims`` when none is given."""

    entries: tuple[Any, ...]
    out_dims: tuple[Dim | None, ...]
    values: tuple[TensorValue, ...]


# ---------------------------------------------------------------- reading what the user wrote


def parse_index(who: str, type_: Type, index: Any, *, new_axes: bool = True) -> ParsedIndex:
    """What the user wrote in brackets, as fields of an op.

    Args:
        who: The op, for messages.
        type_: The type of the tensor or buffer that is indexed.
        index: A list or tuple of indices.
        new_axes: Whether ``None`` may be among them.

    Raises:
        TypeError: If an index is of another kind.
        ValueError: If there are too many indices, two ellipses, a step that is not positive
            outside a pair, or a size that cannot be known.
    """
    return _Parser(who, type_, new_axes).parse(index)


class _Parser:
    def __init__(self, who: str, type_: Any, new_axes: bool) -> None:
        self.who = who
        self.type = type_
        self.new_axes = new_axes
        self.values: list[TensorValue] = []

    def fail(self, error: type[Exception], sentence: str) -> Exception:
        return refused(self.who, error, sentence, self.type)

    def parse(self, index: Any) -> ParsedIndex:
        if not isinstance(index, (list, tuple)):
            raise self.fail(TypeError, f"indices are a list, got {_show(index)}; write [index]")
        shape = self.type.shape
        # Identity, never equality: == of a graph value makes an op.
        used = sum([item is not None and item is not ... for item in index])
        skipped = len(shape) - used
        if skipped < 0:
            raise self.fail(ValueError, f"{used} indices are too many for rank {len(shape)}")
        entries: list[Any] = []
        out_dims: list[Dim | None] = []
        axis, ellipsis = 0, False
        for item in index:
            out_dim = None
            if item is ...:
                if ellipsis:
                    raise self.fail(ValueError, "only one ellipsis (...) is possible")
                ellipsis = True
                entries += [_WHOLE] * skipped
                out_dims += [None] * skipped
                axis += skipped
                continue
            if item is None:
                if not self.new_axes:
                    raise self.fail(ValueError, "a new axis (None) can be read, not written")
                entry = None
            else:
                entry, out_dim = self.entry(item, shape[axis])
                axis += 1
            entries.append(entry)
            out_dims.append(out_dim)
        while entries and entries[-1] is _WHOLE:
            entries.pop()
            out_dims.pop()
        if all(d is None for d in out_dims):
            out_dims = []
        return ParsedIndex(tuple(entries), tuple(out_dims), tuple(self.values))

    def entry(self, item: Any, size: Dim) -> tuple[Any, Dim | None]:
        """An index that uses up an axis of this size, and its out_dim."""
        if isinstance(item, slice):
            return self.plain(item, size), None
        if type(item) is int:
            return _from_front(item, size), None
        if isinstance(item, tuple):
            return self.pair(item)
        if has_tensor_value(item):
            self.values.append(TensorValue(item))
            return _VALUE, None
        hint = "expected an int, a slice, None, ..., an integer scalar, or (slice, out_dim)"
        if isinstance(item, str):
            hint = f"to name a dimension of the result, write x[(slice(0, k), {item!r}),]"
        elif isinstance(item, Dim):
            hint = f"take a slice and squeeze it, as in ops.squeeze(x[d : d + 1], 0) for d = {item}"
        elif isinstance(item, np.integer):
            hint = f"write int({item})"
        raise self.fail(TypeError, f"{_show(item)} is not an index: {hint}")

    def plain(self, item: slice, size: Dim) -> tuple[Any, ...]:
        """A slice whose size is what its bounds say."""
        start, stop, step = item.start, item.stop, item.step
        if start is None and stop is None and step is None:
            return _WHOLE
        step = 1 if step is None else _number(step)
        if step is None or step <= 0:
            raise self.fail(
                ValueError,
                f"the step of a slice is a positive int, got {_show(item.step)}; for another one "
                "give the result's size, as in x[(slice(None, None, -1), out_dim),]",
            )
        low, high = self.bound(start), self.bound(stop)
        if is_value(low) or is_value(high):
            raise self.fail(
                ValueError,
                "a slice to or from a value has a size that is known only when the graph runs; "
                "give it with (slice(...), out_dim)",
            )
        mixed = type(low) is int and low < 0 and type(high) is int and high >= 0
        if mixed and not isinstance(size, StaticDim):
            raise self.fail(
                ValueError,
                f"the size of {low}:{high} would shrink as {size} grows, so it cannot be known; "
                f"give it with (slice({low}, {high}), out_dim)",
            )
        low = 0 if low is None else _from_front(low, size)
        return low, None if high is None else _from_front(high, size), step

    def pair(self, item: tuple[Any, ...]) -> tuple[tuple[Any, ...], Dim]:
        """A slice whose size is given."""
        if len(item) != 2 or not isinstance(item[0], slice):
            raise self.fail(
                ValueError, f"a tuple among indices is a pair (slice, out_dim), got {_show(item)}"
            )
        cut, size = item
        try:
            out_dim = Dim(size)
        except (TypeError, ValueError) as e:
            raise self.fail(ValueError, f"out_dim: {e}") from None
        if isinstance(out_dim, StaticDim) and out_dim.dim < 0:
            raise self.fail(TypeError, f"out_dim is the negative size {out_dim}")
        start, stop = self.bound(cut.start), self.bound(cut.stop)
        step = 1
        if has_tensor_value(cut.step):
            step = self.bound(cut.step)
        elif cut.step is not None:
            step = _number(cut.step)
            if not step:
                raise self.fail(
                    ValueError,
                    f"the step of a slice is an int other than 0, got {_show(cut.step)}",
                )
        return (start, stop, step), out_dim

    def bound(self, item: Any) -> Any:
        """A bound of a slice: None, a number, a dim that is none, or what `is_value`."""
        if item is None or type(item) is int:
            return item
        if has_tensor_value(item):
            self.values.append(TensorValue(item))
            return _VALUE
        try:
            dim = Dim(item)
        except (TypeError, ValueError) as e:
            raise self.fail(
                type(e), f"{_show(item)} is not a bound of a slice, an int, a dim or a value: {e}"
            ) from None
        return dim.dim if isinstance(dim, StaticDim) else dim


def _show(item: Any) -> str:
    return f"{item!r:.60}"


def _number(step: Any) -> int | None:
    """A step as an int; None when it is not a number known now."""
    if isinstance(step, StaticDim):
        return step.dim
    if isinstance(step, (int, np.integer)) and not isinstance(step, bool):
        return int(step)
    return None


def _from_front(bound: Any, size: Dim) -> Any:
    """A number or dim that counts from the end when it is negative, counted from the front."""
    if isinstance(bound, AlgebraicDim):
        negative = all(coefficient < 0 for _, coefficient in bound._terms)
    else:
        negative = type(bound) is int and bound < 0
    if not negative:
        return bound
    dim = size + bound
    return dim.dim if isinstance(dim, StaticDim) else dim


# ---------------------------------------------------------------- the type rule


def result_dims(
    entries: Sequence[Any],
    out_dims: Sequence[Dim | None],
    shape: Sequence[Dim],
    values: Sequence[Any],
    error: type[Exception] = ValueError,
) -> list[Dim]:
    """The dims that an index gives.

    Args:
        entries: The index, and
        out_dims: the dims given in it; see the module.
        shape: The dims of what is indexed.
        values: The types of the operands it mentions.
        error: What to raise for what is out of range.

    Raises:
        ValueError: If a value is not an integer scalar, or an out_dim cannot be right.
        error: If an index or slice is provably out of range.
    """
    for type_ in values:
        if not type_.dtype.is_integral() or list(type_.shape) not in ([], [_ONE]):
            hint = ""
            if type_.dtype is DType.bool:
                hint = '; what a mask selects is ops.gather_nd(x, ops.nonzero(mask, "found"))'
            raise ValueError(
                f"an index that is a value is an integer scalar, not {type_.brief()}{hint}"
            )
    dims: list[Dim] = []
    axis = 0
    for i, entry in enumerate(entries):
        if entry is None:
            dims.append(_ONE)
            continue
        size = shape[axis]
        out_dim = out_dims[i] if out_dims else None
        if out_dim is not None:
            _check_out_dim(axis, entry, size, out_dim)
            dims.append(out_dim)
        elif type(entry) is tuple:
            start, stop, step = entry
            whole = stop is None and step == 1 and type(start) is int and start == 0
            dims.append(size if whole else _size(axis, start, stop, step, size, error))
        elif not is_value(entry):
            _check_position(axis, entry, size, error)
        axis += 1
    dims += shape[axis:]
    return dims


def _check_position(axis: int, at: Any, size: Dim, error: type[Exception]) -> None:
    if type(at) is int:
        if at < 0:  # only beside a static size: a negative index was counted from its end
            at = StaticDim(at) - size
        elif not isinstance(size, StaticDim) or at < size.dim:
            return
        raise error(f"index {at} is out of range for dimension {axis} of size {size}")


def _size(axis: int, start: Any, stop: Any, step: int, size: Dim, error: type[Exception]) -> Dim:
    """The number of elements of a slice that is all in range."""
    low, high = Dim(start), size if stop is None else Dim(stop)
    length = high - low
    # What is not a number yet is checked when the sizes are known.
    for part in (low, length, size - high):
        if type(part) is StaticDim and part.dim < 0:
            raise error(
                f"the slice of dimension {axis} ends at {high}, before its start {low}"
                if part is length
                else f"the slice from {low} to {high} is not inside dimension {axis} of size {size}"
            )
    return ceil_div(length, step)


def ceil_div(length: Dim, step: int) -> Dim:
    """``length / step`` rounded up; without the rounding where the division is exact."""
    if step == 1:
        return length
    exact = length // step
    return exact if exact * step == length else (length + (step - 1)) // step


def _check_out_dim(axis: int, entry: Any, size: Dim, out_dim: Dim) -> None:
    if not isinstance(size, StaticDim) or not isinstance(out_dim, StaticDim):
        return
    if all(part is None or type(part) is int for part in entry):
        count = len(range(*slice(*entry).indices(size.dim)))
        if count != out_dim.dim:
            raise ValueError(
                f"out_dim is {out_dim}, but the slice takes {count} elements of dimension {axis}"
            )


def known_dims(out_dims: Sequence[Dim | None], sizes: Mapping[str, Any]) -> tuple[Any, ...]:
    """Each dim as its size where that is known; a name without one stays, and is new.

    Raises:
        SizeError: If an expression has a name without a size.
    """
    return tuple([dim if dim is None else _known(dim, sizes) for dim in out_dims])


def known_size(size: Any) -> Any:
    """A size that an op was given by `known_dims`.

    Raises:
        SizeError: If it is a name still.
    """
    if isinstance(size, Dim):
        raise SizeError(
            f"the size {size} depends on values, so it is not known before the graph runs. A model "
            "of the graph counts it; one program, as in an artifact, needs a number or a dimension "
            "of an input as out_dim, or bounds={...}"
        )
    return size


def _known(dim: Dim, sizes: Mapping[str, Any]) -> Any:
    try:
        return dim.evaluate(sizes)
    except UnboundDimError as e:
        if isinstance(dim, SymbolicDim):
            return dim
        raise SizeError(f"out_dim {dim} has no size ({e.args[0]}); use a new name") from None
