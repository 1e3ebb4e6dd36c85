# SPDX-License-Identifier: Apache-2.0
"""Pools over windows that slide over images, and images put together from such windows.

Floats narrower than 32 bits are summed in ``float32`` and rounded once; integers wrap around, and
their averages are truncated toward zero. NaN in a window makes its maximum NaN.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from maxjax.dtype import DType
from maxjax.graph.dim import DimLike, StaticDim
from maxjax.graph.op import Op, SizeError, refused
from maxjax.graph.ops._operands import shape_of, tensor
from maxjax.graph.ops._sliding import check_fit, count, numbers, reach
from maxjax.graph.ops._unary import is_float, wide_dtype
from maxjax.graph.ops._window import holds
from maxjax.graph.ops.cast import convert
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["avg_pool2d", "fold", "max_pool2d"]

_NAMES = ("height", "width")


class _Pool(Op, abstract=True):
    """One element for each window of an image whose channels are last."""

    kernel: Shape
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    ceil_mode: bool = False

    def infer(self, x: TensorType) -> TensorType:
        if len(x.shape) != 4:
            raise ValueError(f"the input must have rank 4, not {len(x.shape)}")
        if x.dtype is DType.bool:
            raise ValueError("bools cannot be pooled; cast them")
        _check_kernel(self.kernel)
        n, *sizes, channels = x.shape
        made = [
            count(
                name,
                sizes[i],
                self.kernel[i],
                self.stride[i],
                self.dilation[i],
                2 * self.padding[i],
                self.ceil_mode,
            )
            for i, name in enumerate(_NAMES)
        ]
        return TensorType._of(x.dtype, Shape([n, *made, channels]), x.device)

    def reduce(
        self,
        x: jax.Array,
        start: Any,
        combine: Callable[..., Any],
        whole: Callable[..., jax.Array],
    ) -> jax.Array:
        """Each window's elements combined, ``start`` standing for those outside.

        ``whole`` combines an entire axis.
        """
        window, stride, dilation = [1] * 4, [1] * 4, [1] * 4
        pads: list[tuple[int, int]] = [(0, 0)] * 4
        for i, name in enumerate(_NAMES):
            axis, size = i + 1, x.shape[i + 1]
            kernel: Any = self.kernel[i]
            low, step = self.padding[i], self.stride[i]
            check_fit(name, size, kernel, self.dilation[i], 2 * low)
            high = low + (step - 1 if self.ceil_mode else 0)
            if not isinstance(kernel, int):
                # The size of a window is part of an XLA program, but one that takes in
                # the whole axis is no window.
                if not (kernel == size and low == high == 0 and self.dilation[i] == 1):
                    raise SizeError(
                        f"the kernel's {name} {kernel} is no number and not the input's, {size}"
                    )
                x = whole(x, axis, keepdims=True)
                continue
            window[axis], stride[axis], dilation[axis] = kernel, step, self.dilation[i]
            pads[axis] = low, high
        return lax.reduce_window(x, start, combine, window, stride, pads, window_dilation=dilation)


class MaxPool2d(_Pool):
    """The largest element of each window; the lowest number there is where it has none."""

    def lower(self, x: jax.Array) -> jax.Array:
        return self.reduce(x, _lowest(x.dtype), lax.max, jnp.max)


def _lowest(dtype: np.dtype) -> np.ndarray:
    """The lowest number of a dtype, negative infinity where it has one."""
    if not jnp.issubdtype(dtype, jnp.floating):
        return np.array(jnp.iinfo(dtype).min, dtype)
    lowest = np.array(-np.inf, dtype)
    return lowest if np.isinf(lowest.astype(np.float32)) else np.array(jnp.finfo(dtype).min, dtype)


class AvgPool2d(_Pool):
    """The mean of each window.

    With ``count_boundary`` what is outside counts as zeros; without, only what is inside counts.
    """

    count_boundary: bool = True

    def lower(self, x: jax.Array) -> jax.Array:
        dtype = DType.of(x.dtype)
        if is_float(x):
            wide = wide_dtype(x.dtype)
        else:
            wide = np.dtype(np.uint64 if dtype.is_unsigned_integral() else np.int64)
        sums = self.reduce(convert(x, DType.of(wide)), np.zeros((), wide), lax.add, jnp.sum)
        n = self._counts(x, sums.shape)
        if is_float(x):
            return convert(sums / n.astype(wide), dtype)
        n = jnp.maximum(n, jnp.int64(1)).astype(wide)
        return convert(lax.div(sums, n), dtype)

    def _counts(self, x: jax.Array, shape: tuple[Any, ...]) -> jax.Array:
        """How many elements the mean of each window is over."""
        found: Any = None
        for i in range(2):
            axis, step, gap = i + 1, self.stride[i], self.dilation[i]
            kernel = jnp.asarray(self.kernel[i], jnp.int64)
            first = jnp.arange(shape[axis], dtype=jnp.int64) * step - self.padding[i]
            if self.count_boundary:
                n = jnp.broadcast_to(kernel, first.shape)
            else:
                # Those from the first that is not before the axis to the last that is in it.
                size = jnp.asarray(x.shape[axis], jnp.int64)
                lowest = jnp.maximum(-(first // gap), jnp.int64(0))
                highest = jnp.minimum((size - 1 - first) // gap, kernel - 1)
                n = jnp.maximum(highest - lowest + 1, jnp.int64(0))
            n = lax.broadcast_in_dim(n, shape, (axis,))
            found = n if found is None else found * n
        return found


def _check_kernel(kernel: Shape) -> None:
    for n in kernel:
        if isinstance(n, StaticDim) and n.dim < 1:
            raise ValueError(f"the kernel must be at least 1 by 1, got {kernel.brief()}")


class Fold(Op):
    """Windows put down in an image and added up where they overlap."""

    output: Shape
    kernel: Shape
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]

    def infer(self, x: TensorType) -> TensorType:
        if len(x.shape) != 3:
            raise ValueError(f"the input must have rank 3, not {len(x.shape)}")
        if x.dtype is DType.bool:
            raise ValueError("bools cannot be added up; cast them")
        _check_kernel(self.kernel)
        n, channels, windows = x.shape
        area = self.kernel[0] * self.kernel[1]
        found = channels // area
        if isinstance(found, StaticDim) and found * area != channels:
            raise ValueError(_indivisible(channels, area))
        rows, columns = [
            count(
                name,
                self.output[i],
                self.kernel[i],
                self.stride[i],
                self.dilation[i],
                2 * self.padding[i],
            )
            for i, name in enumerate(_NAMES)
        ]
        places = rows * columns
        are_static = isinstance(places, StaticDim) and isinstance(windows, StaticDim)
        if are_static and places != windows:
            raise ValueError(_unlike(windows, rows, columns))
        return TensorType._of(x.dtype, Shape([n, found, *self.output]), x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        n, channels, windows = x.shape
        kernel: Any = self.kernel
        output: Any = self.output
        if not all(isinstance(k, int) for k in kernel):
            raise SizeError(f"the kernel's size {kernel[0]} by {kernel[1]} must be numbers")
        area = kernel[0] * kernel[1]
        holds(lambda: channels % area == 0, _indivisible(channels, area))
        made = []
        for i, name in enumerate(_NAMES):
            check_fit(name, output[i], kernel[i], self.dilation[i], 2 * self.padding[i])
            room = output[i] + 2 * self.padding[i] - reach(kernel[i], self.dilation[i])
            made.append(room // self.stride[i] + 1)
        rows, columns = made
        holds(lambda: windows == rows * columns, _unlike(windows, rows, columns))
        dtype = DType.of(x.dtype)
        if is_float(x):
            x = convert(x, DType.of(wide_dtype(x.dtype)))
        x = jnp.reshape(x, (n, channels // area, *kernel, rows, columns))
        # The offsets within a window go one axis at a time: their sum is then two loops, not one
        # over all pairs.
        x = self._put_down(x, 1, offsets=3, places=5)
        return convert(self._put_down(x, 0, offsets=2, places=3), dtype)

    def _put_down(self, x: jax.Array, i: int, *, offsets: int, places: int) -> jax.Array:
        """What is at each offset within a window, moved to where it belongs and added up."""
        step, gap, border = self.stride[i], self.dilation[i], self.padding[i]
        size: Any = self.output[i]
        span = (x.shape[places] - 1) * step + 1
        config: list[tuple[Any, Any, int]] = [(0, 0, 0)] * (x.ndim - 1)
        parts = []
        for offset in range(x.shape[offsets]):
            low = offset * gap - border
            config[places - 1] = low, size - low - span, step - 1
            part = lax.index_in_dim(x, offset, offsets, keepdims=False)
            parts.append(lax.pad(part, jnp.zeros((), x.dtype), config))
        return functools.reduce(operator.add, parts)


def _indivisible(channels: Any, area: Any) -> str:
    return f"{channels} channels do not divide into windows of {area} elements"


def _unlike(windows: Any, rows: Any, columns: Any) -> str:
    return f"there are {windows} windows, but {rows} by {columns} have a place in the image"


# ---------------------------------------------------------------- functions


def _two(who: str, what: str, dims: Any, x: TensorValue) -> Shape:
    if isinstance(dims, str):
        raise refused(who, TypeError, f"{what} must be two dims, got {dims!r}", x._type)
    shape = shape_of(who, dims, x._type)
    if len(shape) != 2:
        raise refused(
            who, ValueError, f"{what} must be two dims, got {len(shape)}, {shape.brief()}", x._type
        )
    return shape


def _steps(who: str, x: TensorValue, stride: Any, dilation: Any, padding: Any) -> dict[str, Any]:
    return {
        name: numbers(who, name, given, 2, least, x._type, spread=True)
        for name, given, least in (
            ("stride", stride, 1),
            ("dilation", dilation, 1),
            ("padding", padding, 0),
        )
    }


def max_pool2d(
    input: TensorValueLike,
    kernel_size: tuple[DimLike, DimLike],
    stride: int | tuple[int, int] = 1,
    dilation: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    ceil_mode: bool = False,
) -> TensorValue:
    """The largest element of each window that slides over images.

    Elements in the padding do not count; of a window that has no others the result is the
    lowest number of the dtype, negative infinity for floats. NaN in a window gives NaN.

    Args:
        input: Images of shape ``(N, H, W, C)``, of numbers.
        kernel_size: Height and width of a window.
        stride: How far apart windows start; one number for both axes, or two.
        dilation: How far apart the elements of a window are.
        padding: How much is added on either side of an axis.
        ceil_mode: Whether a last window that leaves the padded image counts.

    Returns:
        A tensor of shape ``(N, H', W', C)`` with ``H' = (H + 2 * padding - dilation *
        (kernel - 1) - 1) / stride + 1``, rounded down, or up with ``ceil_mode``.

    Raises:
        TypeError: If ``input`` is no graph value, a size no dim or a number no int.
        ValueError: If the rank is not 4, ``input`` holds bools, there are not as many numbers as
            axes, one is too small, or not one window fits.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> image = TensorType(DType.float32, ["n", 32, 32, 3], DeviceRef.CPU())
    >>> with Graph("g", input_types=[image]) as g:
    ...     ops.max_pool2d(g.inputs[0].tensor, (2, 2), stride=2)
    TensorValue(float32, [n, 16, 16, 3], cpu:0)
    """
    who = "max_pool2d"
    x = tensor(who, input)
    kernel = _two(who, "kernel_size", kernel_size, x)
    return MaxPool2d(kernel, **_steps(who, x, stride, dilation, padding), ceil_mode=ceil_mode)(x)


def avg_pool2d(
    input: TensorValueLike,
    kernel_size: tuple[DimLike, DimLike],
    stride: int | tuple[int, int] = 1,
    dilation: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
) -> TensorValue:
    """The mean of each window that slides over images.

    Args:
        input: Images of shape ``(N, H, W, C)``, of numbers.
        kernel_size: Height and width of a window; those of the images give the mean of all.
        stride: How far apart windows start; one number for both axes, or two.
        dilation: How far apart the elements of a window are.
        padding: How much is added on either side of an axis.
        ceil_mode: Whether a last window that leaves the padded image counts.
        count_boundary: Whether what is outside the image counts as zeros, so that every sum is
            divided by the window's area; else it is divided by how many elements are inside,
            which of none gives NaN, and 0 for integers.

    Returns:
        A tensor of the shape that :func:`max_pool2d` gives.

    Raises:
        TypeError: If ``input`` is no graph value, a size no dim or a number no int.
        ValueError: As for :func:`max_pool2d`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> image = TensorType(DType.float32, ["n", "h", "w", 3], DeviceRef.CPU())
    >>> with Graph("g", input_types=[image]) as g:
    ...     x = g.inputs[0].tensor
    ...     ops.avg_pool2d(x, (x.shape[1], x.shape[2]))
    TensorValue(float32, [n, 1, 1, 3], cpu:0)
    """
    who = "avg_pool2d"
    x = tensor(who, input)
    kernel = _two(who, "kernel_size", kernel_size, x)
    steps = _steps(who, x, stride, dilation, padding)
    return AvgPool2d(kernel, **steps, ceil_mode=ceil_mode, count_boundary=count_boundary)(x)


def fold(
    input: TensorValueLike,
    output_size: tuple[DimLike, DimLike],
    kernel_size: tuple[DimLike, DimLike],
    stride: int | tuple[int, int] = 1,
    dilation: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
) -> TensorValue:
    """Images of the windows that slide over them, added up where they overlap.

    What lies in the padding, outside of the images, is dropped.

    Args:
        input: A tensor of numbers of shape ``(N, C * R * S, L)``: ``L`` windows, row by row, each
            with ``R`` by ``S`` elements of each channel.
        output_size: Height and width of the images.
        kernel_size: Height ``R`` and width ``S`` of a window.
        stride: How far apart windows start; one number for both axes, or two.
        dilation: How far apart the elements of a window are.
        padding: How far the windows reach beyond the image on either side of an axis.

    Returns:
        A tensor of shape ``(N, C, *output_size)``.

    Raises:
        TypeError: If ``input`` is no graph value, a size no dim or a number no int.
        ValueError: If the rank is not 3, the channels do not divide into windows, there are not
            ``L`` windows, ``input`` holds bools, or a number is too small.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph(
    ...     "g", input_types=[TensorType(DType.float32, ["n", 12, 9], DeviceRef.CPU())]
    ... ) as g:
    ...     ops.fold(g.inputs[0].tensor, (4, 4), (2, 2))
    TensorValue(float32, [n, 3, 4, 4], cpu:0)
    """
    x = tensor("fold", input)
    output = _two("fold", "output_size", output_size, x)
    kernel = _two("fold", "kernel_size", kernel_size, x)
    return Fold(output, kernel, **_steps("fold", x, stride, dilation, padding))(x)
