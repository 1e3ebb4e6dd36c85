# SPDX-License-Identifier: Apache-2.0
"""What an index of :mod:`maxjax.graph.ops._index` selects in an array: read or written.

What is out of range is an error where the numbers are known; a number that is a value of the
graph is brought into range, so that a window always has its size and lies inside the array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from maxjax.graph.dim import Dim
from maxjax.graph.op import SizeError
from maxjax.graph.ops._index import is_value, known_size

__all__ = ["Windows", "counts", "holds", "int64", "select", "wrap_index"]


@dataclasses.dataclass(frozen=True, slots=True)
class _Window:
    """Elements ``first``, ``first + step``, ... of an axis, ``count`` of them.

    ``first`` and ``step`` are numbers or traced integers; sizes are numbers or symbolic dims.
    """

    first: Any
    step: Any
    count: Any
    size: Any
    is_one: bool = False  # one element, whose axis goes

    @property
    def is_dynamic(self) -> bool:
        return isinstance(self.first, jax.Array) or isinstance(self.step, jax.Array)

    @property
    def is_regular(self) -> bool:
        """Whether it is a strided slice whose size XLA and the type rule write the same way."""
        if isinstance(self.step, jax.Array):
            return False
        if self.is_dynamic or self.step not in (1, -1):
            return isinstance(self.count, int) and isinstance(self.size, int)
        return True

    def slice(self) -> tuple[Any, Any, Any]:
        """Where it starts, how much it spans, and its stride, both going up."""
        if self.step == 1:
            return self.first, self.count, 1
        reach = (self.count - 1) * abs(self.step)
        if isinstance(self.count, int) and self.count == 0:
            return 0, 0, 1
        low = self.first if self.step > 0 else self.first - reach
        return low, reach + 1, abs(self.step)

    def positions(self) -> jax.Array:
        """The positions of its elements."""
        steps = lax.broadcasted_iota(jnp.int64, (self.count,), 0) * int64(self.step)
        at = int64(self.first) + steps
        return lax.clamp(int64(0), at, int64(self.size - 1)) if self.is_dynamic else at


@dataclasses.dataclass(frozen=True, slots=True)
class Windows:
    """What an index selects: a window per axis (None for a whole one), and the new axes."""

    axes: tuple[_Window | None, ...]
    new_axes: tuple[int, ...]

    @property
    def dropped(self) -> tuple[int, ...]:
        """The axes of which one element is taken."""
        return tuple([a for a, w in enumerate(self.axes) if w is not None and w.is_one])

    def read(self, x: jax.Array) -> jax.Array:
        """The elements of ``x``."""
        regular = {a: w for a, w in enumerate(self.axes) if w is not None and w.is_regular}
        x = _read_regular(x, regular)
        for axis, w in enumerate(self.axes):
            if w is not None and axis not in regular:
                x = jnp.take(x, w.positions(), axis=axis, mode="clip")
        if self.dropped:
            x = lax.squeeze(x, self.dropped)
        return lax.expand_dims(x, self.new_axes) if self.new_axes else x

    def write(self, x: jax.Array, source: jax.Array) -> jax.Array:
        """``x`` with the elements replaced by those of ``source``."""
        return _write(x, self.axes, lax.expand_dims(source, self.dropped))


def _read_regular(x: jax.Array, windows: dict[int, _Window]) -> jax.Array:
    for dynamic in (False, True):
        chosen = {a: w.slice() for a, w in windows.items() if w.is_dynamic == dynamic}
        if not chosen:
            continue
        lows: list[Any] = [0] * x.ndim
        spans, strides = list(x.shape), [1] * x.ndim
        for axis, (low, span, stride) in chosen.items():
            lows[axis], spans[axis], strides[axis] = low, span, stride
        if dynamic:
            x = lax.dynamic_slice(x, [int64(low) for low in lows], spans)
            lows = [0] * x.ndim
        highs = [low + span for low, span in zip(lows, spans, strict=True)]
        x = lax.slice(x, lows, highs, strides)
    flipped = tuple([a for a, w in windows.items() if w.step < 0])
    return lax.rev(x, flipped) if flipped else x


def _write(x: jax.Array, axes: Sequence[_Window | None], source: jax.Array) -> jax.Array:
    for axis, w in enumerate(axes):
        if w is not None and not (w.is_regular and abs(w.step) == 1):
            # Scattered along this axis: what is inside is made first, then put there.
            at = (slice(None),) * axis + (w.positions(),)
            inner = jnp.take(x, w.positions(), axis=axis, mode="clip")
            rest = [None if a == axis else other for a, other in enumerate(axes)]
            return x.at[at].set(_write(inner, rest, source))
    flipped = tuple([a for a, w in enumerate(axes) if w is not None and w.step < 0])
    if flipped:
        source = lax.rev(source, flipped)
    lows = [w.slice()[0] if w is not None else 0 for w in axes]
    lows += [0] * (x.ndim - len(lows))
    return lax.dynamic_update_slice(x, source, [int64(low) for low in lows])


# ---------------------------------------------------------------- from an index


def int64(number: Any) -> jax.Array:
    """A number, symbolic dim or integer array as an ``int64`` array."""
    if isinstance(number, jax.Array):
        if number.dtype == jnp.uint64:  # what is beyond int64 is out of range, not negative
            number = lax.min(number, jnp.asarray(2**63 - 1, jnp.uint64))
        return lax.convert_element_type(number, jnp.int64)
    return jnp.asarray(number, dtype=jnp.int64)


def wrap_index(index: jax.Array, size: Any) -> jax.Array:
    """Indices as ``int64`` from 0 to ``size - 1``.

    Negative ones count from the end; what is out of range becomes the nearest that is in it.
    """
    i = int64(index)
    end = int64(size)
    i = jnp.where(i < int64(0), i + end, i)
    return lax.clamp(int64(0), i, end - int64(1))


def select(
    entries: Sequence[Any],
    out_dims: Sequence[Any],
    shape: Sequence[Any],
    values: Sequence[jax.Array],
    counted: Container[int] = (),
) -> Windows:
    """The windows of an index whose dims have been evaluated.

    Args:
        entries: The index, and
        out_dims: the sizes given in it, where known; a dim that has no size yet is new.
        shape: The array's shape.
        values: The operands that the index mentions.
        counted: The entries whose out_dim is what `counts` says, or larger. These windows are not
            moved, and behind that many elements repeat one inside of the axis.

    Raises:
        SizeError: If an index or slice is out of range, has another size than was given, or a
            size that is known only when the program runs.
    """
    remaining = iter([jnp.reshape(v, ()) for v in values])
    axes: list[_Window | None] = []
    new_axes: list[int] = []
    new_sizes: dict[Any, Any] = {}
    place = 0  # among the dimensions of the result
    for i, entry in enumerate(entries):
        if entry is None:
            new_axes.append(place)
            place += 1
            continue
        axis, size = len(axes), shape[len(axes)]
        out_dim = out_dims[i] if out_dims else None
        if out_dim is not None:
            count = new_sizes.get(out_dim, out_dim) if isinstance(out_dim, Dim) else out_dim
            window = _pair(axis, entry, count, size, remaining, i in counted)
            if isinstance(out_dim, Dim):
                new_sizes[out_dim] = window.count
        elif type(entry) is tuple:
            start, stop, step = entry
            window = _plain(axis, start, stop, step, size)
        else:
            window = _element(axis, entry, size, remaining)
        place += not (window is not None and window.is_one)
        axes.append(window)
    return Windows(tuple(axes), tuple(new_axes))


def holds(condition: Callable[[], Any], problem: str) -> None:
    """Refuses what is not so, or cannot be told for symbolic sizes.

    Raises:
        SizeError: If ``condition`` is False, or inconclusive.
    """
    try:
        if condition():
            return
    except jax.errors.InconclusiveDimensionOperation as e:
        told = str(e).partition("\n")[0]
        raise SizeError(
            f"{problem} for some sizes ({told}); export with a constraint that excludes them"
        ) from None
    raise SizeError(problem)


def _element(axis: int, at: Any, size: Any, values: Any) -> _Window:
    if is_value(at):
        holds(lambda: size >= 1, f"dimension {axis} has size {size}, so no index is in range")
        return _Window(wrap_index(next(values), size), 1, 1, size, is_one=True)
    shown = at - size if isinstance(at, int) and at < 0 else at
    problem = f"index {shown} is out of range for dimension {axis}, which has size {size}"
    holds(lambda: at >= 0 and at < size, problem)
    return _Window(at, 1, 1, size, is_one=True)


def _plain(axis: int, start: Any, stop: Any, step: int, size: Any) -> _Window | None:
    if stop is None:
        stop = size
        if isinstance(start, int) and start == 0 and step == 1:
            return None
    problem = (
        f"the slice from {start} to {stop} is not inside dimension {axis}, which has size {size}"
    )
    holds(lambda: start >= 0 and stop >= start and size >= stop, problem)
    return _Window(start, step, _count(start, stop, step), size)


def _count(start: Any, stop: Any, step: int) -> Any:
    """How many elements there are from ``start`` on before ``stop``, as ``ceil_div`` writes it."""
    length = stop - start if step > 0 else start - stop
    stride = abs(step)
    if stride == 1:
        return length
    exact = length // stride
    return exact if exact * stride == length else (length + (stride - 1)) // stride


def _pair(axis: int, entry: Any, out_dim: Any, size: Any, values: Any, is_counted: bool) -> _Window:
    start, stop, step = [next(values) if is_value(part) else part for part in entry]
    if any(isinstance(part, jax.Array) for part in (start, stop, step)):
        count = known_size(out_dim)
        if is_counted:
            return _counted(axis, start, step, count, size)
        return _by_value(axis, start, step, count, size)
    forward = step > 0
    low, high = (0, size) if forward else (-1, size - 1)
    first = _cut(start, low if forward else high, low, high, size)
    end = _cut(stop, high if forward else low, low, high, size)
    some = _decided(lambda: end >= first if forward else first >= end, axis, size)
    count = _count(first, end, step) if some else 0
    if not isinstance(out_dim, Dim):
        problem = f"the slice takes {count} elements of dimension {axis}, out_dim says {out_dim}"
        holds(lambda: count == out_dim, problem)
        count = out_dim
    return _Window(first if some else 0, step, count, size)


def _decided(condition: Callable[[], Any], axis: int, size: Any) -> bool:
    try:
        return bool(condition())
    except jax.errors.InconclusiveDimensionOperation as e:
        told = str(e).partition("\n")[0]
        raise SizeError(
            f"the slice of dimension {axis}, which has size {size}, may or may not be empty "
            f"({told}); export with a constraint that decides it"
        ) from None


def _cut(bound: Any, default: Any, low: Any, high: Any, size: Any) -> Any:
    """A bound as Python's slices read it: counted from the end if negative, cut to the range."""
    if bound is None:
        return default
    if isinstance(bound, int) and bound < 0:
        bound = bound + size
    if bound < low:
        return low
    return high if bound > high else bound


def _by_value(axis: int, start: Any, step: Any, count: Any, size: Any) -> _Window:
    """A slice whose bounds are values: ``count`` elements from the start on."""
    last = int64(size) - int64(1)
    if start is None:
        if isinstance(step, jax.Array):
            first = jnp.where(int64(step) < int64(0), last, int64(0))
        else:
            first = int64(0) if step > 0 else last
    else:
        first = int64(start)
        first = jnp.where(first < int64(0), first + int64(size), first)
    if isinstance(step, jax.Array):
        holds(
            lambda: count == 0 or size >= 1,
            f"out_dim says {count}, but dimension {axis} has size {size}",
        )
        return _Window(lax.clamp(int64(0), first, last), int64(step), count, size)
    reach = (count - 1) * abs(step)
    holds(
        lambda: count == 0 or size >= reach + 1,
        f"{count} elements with step {step} do not fit into dimension {axis}, which has size "
        f"{size}",
    )
    lowest, highest = (0, last - int64(reach)) if step > 0 else (reach, last)
    return _Window(lax.clamp(int64(lowest), first, int64(highest)), step, count, size)


# ---------------------------------------------------------------- sizes that depend on values


def counts(
    entries: Sequence[Any], shape: Sequence[Any], values: Sequence[jax.Array]
) -> dict[int, jax.Array]:
    """How many elements each entry takes whose bounds are values, as Python's slices do.

    For a step of 0 that is -1.
    """
    remaining = iter([jnp.reshape(v, ()) for v in values])
    found = {}
    axis = 0
    for i, entry in enumerate(entries):
        if type(entry) is tuple and any(map(is_value, entry)):
            start, stop, step = [next(remaining) if is_value(part) else part for part in entry]
            found[i] = _python_count(start, stop, step, int64(shape[axis]))
        elif is_value(entry):
            next(remaining)
        axis += entry is not None
    return found


def _python_count(start: Any, stop: Any, step: Any, size: jax.Array) -> jax.Array:
    step = int64(step)
    forward = step > 0
    low, high = _range(forward, size)
    first = jnp.where(forward, low, high) if start is None else _clipped(start, low, high, size)
    end = jnp.where(forward, high, low) if stop is None else _clipped(stop, low, high, size)
    length = jnp.where(forward, end - first, first - end)
    stride = jnp.maximum(jnp.abs(step), int64(1))
    count = jnp.maximum((length + stride - 1) // stride, int64(0))
    return jnp.where(step == 0, int64(-1), count)


def _range(forward: jax.Array, size: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where bounds may lie: one behind the last element in the direction of the step."""
    low = jnp.where(forward, int64(0), int64(-1))
    return low, low + size


def _clipped(bound: Any, low: jax.Array, high: jax.Array, size: jax.Array) -> jax.Array:
    at = int64(bound)
    return lax.clamp(low, jnp.where(at < int64(0), at + size, at), high)


def _counted(axis: int, start: Any, step: Any, count: Any, size: Any) -> _Window:
    """A slice whose bounds are values, with its own size, or more: the positions are clamped."""
    holds(
        lambda: count == 0 or size >= 1,
        f"the result is to have {count} elements, but dimension {axis} has size {size}",
    )
    step = int64(step)
    low, high = _range(step > 0, int64(size))
    if start is None:
        first = jnp.where(step > 0, low, high)
    else:
        first = _clipped(start, low, high, int64(size))
    return _Window(first, step, count, size)
