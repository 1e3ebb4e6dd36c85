# SPDX-License-Identifier: Apache-2.0
"""Evenly spaced numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import Dim, DimLike, StaticDim
from maxjax.graph.dtype_promotion import weak_dtype
from maxjax.graph.op import Op, SizeError, refused
from maxjax.graph.ops._index import is_value, known_dims, known_size
from maxjax.graph.ops._window import int64
from maxjax.graph.ops.cast import convert
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike, has_tensor_value

__all__ = ["range"]


class Range(Op):
    """``start``, ``start + step``, ..., as long as it is before ``stop``.

    Each bound is a number, a dim, or ``"value"``: the next operand.
    """

    start: Any
    stop: Any
    step: Any
    out_dim: Any
    dtype: DType
    device: DeviceRef

    @property
    def bounds(self) -> tuple[Any, Any, Any]:
        """``start``, ``stop`` and ``step``."""
        return self.start, self.stop, self.step

    def infer(self, *values: TensorType) -> TensorType:
        for type_ in values:
            if type_.shape:
                raise ValueError(f"a bound that is a tensor is a scalar, not {type_.brief()}")
            if not self.dtype.is_float() and not type_.dtype.is_integral():
                raise ValueError(
                    f"a bound of a range of {self.dtype.name} is not {type_.dtype.name}; cast it"
                )
        if isinstance(self.out_dim, StaticDim) and _are_numbers(self.bounds):
            count = _count(*self.bounds)
            if count != self.out_dim.dim:
                raise ValueError(f"the range has {count} elements, out_dim says {self.out_dim}")
        return TensorType._of(self.dtype, Shape([self.out_dim]), self.device)

    def at(self, dims: Mapping[str, Any]) -> Op:
        (size,) = known_dims((self.out_dim,), dims)
        start, stop, step = [b.evaluate(dims) if isinstance(b, Dim) else b for b in self.bounds]
        return Range(start, stop, step, size, self.dtype, self.device)

    def lower(self, *values: jax.Array) -> jax.Array:
        start, _, step = self._with(values)
        if not values:
            return self._numbers(start, step, self._checked_count())
        return self._numbers(start, step, known_size(self.out_dim))

    def _with(self, values: tuple[jax.Array, ...]) -> list[Any]:
        """The bounds, with operands in the places of those that are values."""
        remaining = iter(values)
        return [next(remaining) if is_value(b) else b for b in self.bounds]

    @property
    def new_dims(self) -> tuple[Any, ...]:
        return (self.out_dim,) if any(is_value(b) for b in self.bounds) else ()

    def count(self, *values: jax.Array) -> tuple[jax.Array, ...]:
        bounds = self._with(values)
        start, stop, step = [_scalar(b, DType.float64) for b in bounds]
        near = jnp.ceil((stop - start) / step)
        # NaN is not below anything. What does not fit is refused, whatever it was rounded to.
        fits = (near < 2.0**53) & (step != 0)
        if any(isinstance(b, float) or jnp.issubdtype(_dtype(b), jnp.floating) for b in bounds):
            count = jnp.maximum(near, jnp.zeros((), near.dtype))
        else:
            count = _exact_count(*[int64(b) for b in bounds])
        return (jnp.where(fits, lax.convert_element_type(count, jnp.int64), int64(-1)),)

    def _checked_count(self) -> Any:
        """The number of elements between bounds that are known."""
        start, stop, step = self.bounds
        if isinstance(self.out_dim, int) and self.out_dim < 0:
            raise SizeError(
                f"from {start} to {stop} there are {self.out_dim} elements; where there may be "
                "none, give a new name as out_dim"
            )
        if isinstance(step, int) and step == 0:
            raise SizeError("the step is 0")
        try:
            count = _count(*self.bounds)
        except jax.errors.InconclusiveDimensionOperation as e:
            told = str(e).partition("\n")[0]
            raise SizeError(f"its size cannot be told ({told})") from None
        if not isinstance(self.out_dim, Dim) and self.out_dim != count:
            raise SizeError(f"the range has {count} elements, out_dim says {self.out_dim}")
        if not self.dtype.is_float() and isinstance(count, int) and count:
            for end in (start, start + (count - 1) * step):
                if isinstance(end, int) and not _low(self.dtype) <= end <= _high(self.dtype):
                    raise SizeError(f"{end} is beyond the range of {self.dtype.name}")
        return count

    def _numbers(self, start: Any, step: Any, count: Any) -> jax.Array:
        # Floats are counted in float32 at least and rounded once; integers wrap around.
        wide = self.dtype
        if wide.is_float() and wide is not DType.float64:
            wide = DType.float32
        steps = lax.broadcasted_iota(wide.np, (count,), 0)
        numbers = _scalar(start, wide) + steps * _scalar(step, wide)
        return convert(numbers, self.dtype)


def _low(dtype: DType) -> int:
    return int(np.iinfo(dtype.np).min)


def _high(dtype: DType) -> int:
    return int(np.iinfo(dtype.np).max)


def _are_numbers(bounds: tuple[Any, ...]) -> bool:
    return all(isinstance(b, (int, float)) for b in bounds)


def _count(start: Any, stop: Any, step: Any) -> Any:
    """How many elements there are, as NumPy counts; for numbers, dims and symbolic sizes."""
    if isinstance(start, float) or isinstance(stop, float) or isinstance(step, float):
        return max(0, math.ceil((stop - start) / step))
    if isinstance(step, int) and step < 0:
        start, stop, step = stop, start, -step
    distance = stop - start
    exact = distance // step
    count = exact if exact * step == distance else (distance + (step - 1)) // step
    if isinstance(count, StaticDim):
        count = count.dim
    return max(0, count) if isinstance(count, int) else count


def _exact_count(start: jax.Array, stop: jax.Array, step: jax.Array) -> jax.Array:
    """How many integers there are; what is no int64 in between is no matter."""
    low, high = jnp.where(step > 0, start, stop), jnp.where(step > 0, stop, start)
    distance = high.astype(jnp.uint64) - low.astype(jnp.uint64)
    stride = jnp.maximum(jnp.where(step > 0, step, -step).astype(jnp.uint64), jnp.uint64(1))
    count = (distance - jnp.uint64(1)) // stride + jnp.uint64(1)
    return jnp.where(high > low, count, jnp.uint64(0))


def _dtype(bound: Any) -> Any:
    return bound.dtype if isinstance(bound, jax.Array) else np.int64


def _scalar(number: Any, dtype: DType) -> jax.Array:
    if isinstance(number, (int, float)):
        return jnp.asarray(np.asarray(number).astype(dtype.np))
    if not isinstance(number, jax.Array):
        number = jnp.asarray(number, dtype=jnp.int64)  # a symbolic size
    return convert(number, dtype)


def _bound(name: str, bound: Any, dtype: DType, values: list[TensorValue]) -> Any:
    """A bound as a field: a number, a dim that is none, or ``"value"``."""
    if isinstance(bound, StaticDim):
        bound = bound.dim
    elif isinstance(bound, (np.generic, np.ndarray)) and bound.ndim == 0:
        bound = bound.item()
    if isinstance(bound, Dim):
        return bound
    if has_tensor_value(bound):
        values.append(TensorValue(bound))
        return "value"
    if isinstance(bound, bool) or not isinstance(bound, (int, float)):
        raise refused(
            "range", TypeError, f"{name} is a number, a dim or a scalar tensor, not {bound!r:.60}"
        )
    if isinstance(bound, float) and not math.isfinite(bound):
        raise refused("range", ValueError, f"{name} is {bound}, which has no place in a range")
    try:
        weak_dtype(bound, dtype)
    except ValueError as e:
        # A step down is negative also where the elements cannot be.
        if not (name == "step" and isinstance(bound, int) and 0 < -bound <= 2**63):
            raise refused("range", ValueError, f"{name}: {e}") from None
    return bound


def range(
    start: TensorValueLike,
    stop: TensorValueLike,
    step: TensorValueLike = 1,
    out_dim: DimLike | None = None,
    *,
    dtype: DType,
    device: Device | DeviceRef,
) -> TensorValue:
    """Evenly spaced numbers: ``start``, ``start + step``, ..., as long as before ``stop``.

    There are as many as NumPy's ``arange`` gives: ``(stop - start) / step`` rounded up, and none
    if that is negative.

    Args:
        start: The first: a number, a dim, or a scalar tensor, shape ``()``.
        stop: Where to end, itself not included; likewise.
        step: The difference between neighbours, negative to go down; likewise.
        out_dim: The number of elements, as a number, a dim or a new name. Left out it follows
            from the bounds; bounds that are tensors need it. A new name is as many as the bounds
            say when the graph runs. What is known before decides, and ``stop`` is not looked at.
        dtype: The element type. Integers wrap around only for bounds that are tensors.
        device: Where the result lives.

    Returns:
        A tensor of shape ``(out_dim,)``.

    Raises:
        TypeError: If a bound is of another kind, or ``dtype`` not a ``DType``.
        ValueError: If a bound is a tensor and ``out_dim`` is left out, or not a scalar; if a
            number does not fit ``dtype``; if the step is 0, or ``out_dim`` is not the size.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.range(0, 10, 3, dtype=DType.int64, device=DeviceRef.CPU())
    ...     ops.range(1, Dim("n"), dtype=DType.float32, device=DeviceRef.CPU())
    TensorValue(int64, [4], cpu:0)
    TensorValue(float32, [n + -1], cpu:0)
    """
    if not isinstance(dtype, DType):
        raise refused("range", TypeError, f"dtype is a DType, such as DType.int64, not {dtype!r}")
    if dtype is DType.bool:
        raise refused("range", ValueError, "there is no range of bool; compare one of integers")
    values: list[TensorValue] = []
    bounds = (
        _bound("start", start, dtype, values),
        _bound("stop", stop, dtype, values),
        _bound("step", step, dtype, values),
    )
    given = [v._type for v in values]
    if bounds[2] == 0:
        raise refused("range", ValueError, "the step is 0", *given)
    size = out_dim
    if size is None:
        reason = "a bound is a tensor" if values else "a dim with a fraction"
        if values or (not _are_numbers(bounds) and any(isinstance(b, float) for b in bounds)):
            raise refused(
                "range",
                ValueError,
                f"the number of elements is not known before the graph runs ({reason}); give it "
                "as out_dim",
                *given,
            )
        size = _count(*bounds)
    size = Dim(size)
    if isinstance(size, StaticDim) and size.dim < 0:
        raise refused("range", TypeError, f"out_dim is the negative size {size}", *given)
    return Range(*bounds, size, dtype, DeviceRef.from_device(device))(*values)
