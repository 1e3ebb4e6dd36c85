# SPDX-License-Identifier: Apache-2.0
"""Convolutions in two and three dimensions, and the transposed one.

``float32`` is multiplied in ``float32`` everywhere unless JAX is told otherwise; narrower floats
are summed in ``float32`` and rounded once; integers wrap around.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
from jax import lax

from maxjax.dtype import DType
from maxjax.graph.dim import StaticDim
from maxjax.graph.op import Op, refused
from maxjax.graph.ops._convolve import convolve
from maxjax.graph.ops._operands import beside, int_of, pair, same_device
from maxjax.graph.ops._sliding import check_fit, count, numbers, reach
from maxjax.graph.ops._window import holds
from maxjax.graph.ops.elementwise import add
from maxjax.graph.ops.shape import reshape
from maxjax.graph.shape import Shape
from maxjax.graph.type import ConvInputLayout, FilterLayout, TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["conv2d", "conv2d_transpose", "conv3d"]

_NAMES = {"D": "depth", "H": "height", "W": "width"}


class _Convolution(Op, abstract=True):
    """Sums of products of an image and a filter that slides over it.

    ``padding`` has two numbers for each axis that slides. The axes have the letters that JAX gives
    them: N, C and D, H, W in an image, O, I and D, H, W in a filter.
    """

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    input_layout: ConvInputLayout = ConvInputLayout.NHWC
    filter_layout: FilterLayout = FilterLayout.RSCF

    sliding: ClassVar[str]
    filters: ClassVar[Mapping[FilterLayout, str]]

    @property
    def image(self) -> str:
        """The axes of the input."""
        is_first = self.input_layout is ConvInputLayout.NCHW
        return f"NC{self.sliding}" if is_first else f"N{self.sliding}C"

    @property
    def kernel(self) -> str:
        """The axes of the filter."""
        return self.filters[self.filter_layout]

    @property
    def result(self) -> str:
        """The axes of the result."""
        return f"N{self.sliding}C"

    def check(self, x: TensorType, filter: TensorType) -> None:
        """Refuses operands that are of no convolution in so many dimensions."""
        rank = len(self.sliding) + 2
        for what, t in (("input", x), ("filter", filter)):
            if len(t.shape) != rank:
                raise ValueError(f"the {what} must have rank {rank}, not {len(t.shape)}")
        if self.filter_layout not in self.filters:
            names = " or ".join([layout.name for layout in self.filters])
            raise ValueError(f"filter_layout must be {names}, not {self.filter_layout.name}")
        if x.dtype is not filter.dtype:
            given = f"the input is {x.dtype.name} and the filter {filter.dtype.name}"
            raise ValueError(f"{given}; cast one")
        if x.dtype is DType.bool:
            raise ValueError("bools cannot be convolved; cast them")

    def slides(self, x: Any, filter: Any) -> list[tuple[str, Any, Any, int, int, int, int]]:
        """For each axis that slides: its name, the input's and filter's size, and the numbers.

        They are stride, dilation, and the padding before and after.
        """
        return [
            (
                _NAMES[axis],
                x.shape[self.image.index(axis)],
                filter.shape[self.kernel.index(axis)],
                self.stride[i],
                self.dilation[i],
                self.padding[2 * i],
                self.padding[2 * i + 1],
            )
            for i, axis in enumerate(self.sliding)
        ]

    def channels(self, x: Any, filter: Any) -> tuple[Any, Any, Any]:
        """The channels of the input, those of the filter, and the output's."""
        kernel = self.kernel
        own, features = filter.shape[kernel.index("I")], filter.shape[kernel.index("O")]
        return x.shape[self.image.index("C")], own, features


class _Conv(_Convolution, abstract=True):
    """The input's channels, in ``groups`` equal parts, each with its part of the filters.

    The result has its channels last, whatever the input's layout.
    """

    groups: int = 1

    def infer(self, x: TensorType, filter: TensorType) -> TensorType:
        self.check(x, filter)
        channels, own, features = self.channels(x, filter)
        if _are_static(channels, own) and channels != own * self.groups:
            raise ValueError(_unlike(channels, own, self.groups))
        if _are_static(features) and features.dim % self.groups:
            raise ValueError(self._indivisible(features))
        sizes = [
            count(name, size, window, stride, dilation, low + high)
            for name, size, window, stride, dilation, low, high in self.slides(x, filter)
        ]
        shape = Shape([x.shape[0], *sizes, features])
        return TensorType._of(x.dtype, shape, same_device(x, filter))

    def lower(self, x: jax.Array, filter: jax.Array) -> jax.Array:
        channels, own, features = self.channels(x, filter)
        holds(lambda: channels == own * self.groups, _unlike(channels, own, self.groups))
        holds(lambda: features % self.groups == 0, self._indivisible(features))
        pads = []
        for name, size, window, _, dilation, low, high in self.slides(x, filter):
            check_fit(name, size, window, dilation, low + high)
            pads.append((low, high))
        specs = self.image, self.kernel, self.result
        return convolve(x, filter, specs, pads, self.stride, self.dilation, groups=self.groups)

    def _indivisible(self, features: Any) -> str:
        return f"{features} output channels do not divide into {self.groups} groups"


class Conv2d(_Conv):
    """The sums of products of an image and a filter that slides over its height and width."""

    sliding = "HW"
    filters: ClassVar = {FilterLayout.RSCF: "HWIO", FilterLayout.FCRS: "OIHW"}


class Conv3d(_Conv):
    """The sums of products of a volume and a filter that slides over depth, height and width."""

    sliding = "DHW"
    filters: ClassVar = {FilterLayout.QRSCF: "DHWIO", FilterLayout.FCQRS: "OIDHW"}


class Conv2dTranspose(_Convolution):
    """Each element of an image times the filter, put down with a stride and added up.

    The gradient of a convolution by its input. The result has the layout of the input.
    """

    output_paddings: tuple[int, ...] = (0, 0)

    sliding = "HW"
    # In the letters of the convolution whose gradient it is, F are the channels of the input.
    filters: ClassVar = {FilterLayout.RSCF: "HWOI", FilterLayout.CFRS: "IOHW"}

    @property
    def result(self) -> str:
        """The axes of the result."""
        return self.image

    def infer(self, x: TensorType, filter: TensorType) -> TensorType:
        self.check(x, filter)
        channels, own, features = self.channels(x, filter)
        if _are_static(channels, own) and channels != own:
            raise ValueError(_unlike(channels, own))
        sizes = {"N": x.shape[0], "C": features}
        for axis, (name, size, made, _) in zip(self.sliding, self._made(x, filter), strict=True):
            if size == 0 or (isinstance(made, StaticDim) and made.dim < 1):
                raise ValueError(self._nothing(name, size))
            sizes[axis] = made
        shape = Shape([sizes[axis] for axis in self.result])
        return TensorType._of(x.dtype, shape, same_device(x, filter))

    def lower(self, x: jax.Array, filter: jax.Array) -> jax.Array:
        channels, own, _ = self.channels(x, filter)
        holds(lambda: channels == own, _unlike(channels, own))
        pads = []
        for name, size, made, pad in self._made(x, filter):
            holds(lambda n=size: n >= 1, self._nothing(name, size))
            holds(lambda n=made: n >= 1, self._nothing(name, size))
            pads.append(pad)
        flipped = lax.rev(filter, [self.kernel.index(axis) for axis in self.sliding])
        specs, once = (self.image, self.kernel, self.result), (1,) * len(self.sliding)
        return convolve(x, flipped, specs, pads, once, self.dilation, spread=self.stride)

    def _made(self, x: Any, filter: Any) -> list[tuple[str, Any, Any, tuple[Any, Any]]]:
        """For each axis its name, its size before and after, and the padding between elements."""
        found = []
        for i, (name, size, window, stride, dilation, low, high) in enumerate(
            self.slides(x, filter)
        ):
            overlap, added = reach(window, dilation) - 1, self.output_paddings[i]
            made = (size - 1) * stride + overlap + 1 - low - high + added
            found.append((name, size, made, (overlap - low, overlap - high + added)))
        return found

    def _nothing(self, name: str, size: Any) -> str:
        return f"nothing is left of a {name} of {size} with the padding {list(self.padding)}"


def _are_static(*dims: Any) -> bool:
    return all(isinstance(dim, StaticDim) for dim in dims)


def _unlike(channels: Any, own: Any, groups: int = 1) -> str:
    parts = f" in each of {groups} groups" if groups != 1 else ""
    return f"the input has {channels} channels, but the filter {own}{parts}"


# ---------------------------------------------------------------- functions


def _fields(
    who: str, stride: Any, dilation: Any, padding: Any, input_layout: Any, filter_layout: Any
) -> dict[str, Any]:
    """The fields that all convolutions have."""
    n = 3 if who == "conv3d" else 2
    for kind, layout in ((ConvInputLayout, input_layout), (FilterLayout, filter_layout)):
        if not isinstance(layout, kind):
            raise refused(who, TypeError, f"a layout must be a {kind.__name__}, got {layout!r}")
    return {
        "stride": numbers(who, "stride", stride, n, 1),
        "dilation": numbers(who, "dilation", dilation, n, 1),
        "padding": numbers(who, "padding", padding, 2 * n, 0),
        "input_layout": input_layout,
        "filter_layout": filter_layout,
    }


def _with_bias(
    op: _Convolution, x: TensorValueLike, filter: TensorValueLike, bias: TensorValueLike | None
) -> TensorValue:
    """A convolution of two operands, and a bias added along its channels."""
    who = op.mnemonic
    x, filter = pair(who, x, filter)
    out = op(x, filter)
    if bias is None:
        return out
    bias = beside(who, bias, out)
    at = op.result.index("C")
    features, shape = out._type.shape[at], bias._type.shape
    if len(shape) != 1 or shape[0] not in (features, 1):
        sentence = f"the bias must be a vector of {features} elements, one per output channel"
        raise refused(who, ValueError, sentence, x._type, filter._type, bias._type)
    after = len(op.result) - 1 - at
    return add(out, reshape(bias, [shape[0], *[1] * after]) if after else bias)


def conv2d(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    groups: int = 1,
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
) -> TensorValue:
    """The sums of products of images and filters that slide over their height and width.

    Both are multiplied without being flipped, a cross-correlation as everywhere in machine
    learning. Input and filter are promoted to one dtype, then the result and the bias.

    Args:
        x: Images of shape ``(N, H, W, C)``, or ``(N, C, H, W)`` with
            ``ConvInputLayout.NCHW``.
        filter: ``F`` filters, of shape ``(R, S, C // groups, F)``, or ``(F, C // groups, R, S)``
            with ``FilterLayout.FCRS``.
        stride: How far apart the windows start, along the height and the width.
        dilation: How far apart the elements of a window are.
        padding: How many zeros are added above, below, left and right.
        groups: In how many parts the channels are divided; part ``i`` of the input's meets part
            ``i`` of the output's only. As many as channels make it depthwise.
        bias: A vector, shape ``(F,)``, that is added to each pixel.
        input_layout: The order of the axes of ``x``.
        filter_layout: The order of the axes of ``filter``.

    Returns:
        A tensor of shape ``(N, H', W', F)``, in this order whatever the input's layout, with
        ``H' = (H + above + below - dilation * (R - 1) - 1) // stride + 1``.

    Raises:
        TypeError: If an operand is no graph value or array, or numbers are not ints.
        ValueError: If a rank is not 4, channels, groups, bias or dtypes do not fit, a number is
            too small, the layout is not one for two dimensions, or not one window fits.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> image = TensorType(DType.float32, ["n", "h", "w", 3], DeviceRef.CPU())
    >>> weights = TensorType(DType.float32, [3, 3, 3, 16], DeviceRef.CPU())
    >>> with Graph("g", input_types=[image, weights]) as g:
    ...     x, filter = [v.tensor for v in g.inputs]
    ...     ops.conv2d(x, filter, padding=(1, 1, 1, 1))
    TensorValue(float32, [n, h, w, 16], cpu:0)
    """
    who = "conv2d"
    parts = int_of(who, "groups", groups)
    if parts < 1:
        raise refused(who, ValueError, f"groups must be at least 1, got {parts}")
    fields = _fields(who, stride, dilation, padding, input_layout, filter_layout)
    return _with_bias(Conv2d(**fields, groups=parts), x, filter, bias)


def conv3d(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: tuple[int, int, int] = (1, 1, 1),
    dilation: tuple[int, int, int] = (1, 1, 1),
    padding: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0),
    groups: int = 1,
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.QRSCF,
) -> TensorValue:
    """The sums of products of volumes and filters that slide over depth, height and width.

    As :func:`conv2d`, with one axis more.

    Args:
        x: Volumes of shape ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with
            ``ConvInputLayout.NCHW``.
        filter: ``F`` filters, of shape ``(Q, R, S, C // groups, F)``, or
            ``(F, C // groups, Q, R, S)`` with ``FilterLayout.FCQRS``.
        stride: How far apart the windows start along depth, height and width.
        dilation: How far apart the elements of a window are.
        padding: How many zeros are added before and after the depth, the height and the width.
        groups: In how many parts the channels are divided.
        bias: A vector, shape ``(F,)``, that is added to each element.
        input_layout: The order of the axes of ``x``.
        filter_layout: The order of the axes of ``filter``.

    Returns:
        A tensor of shape ``(N, D', H', W', F)``, in this order whatever the input's layout.

    Raises:
        TypeError: If an operand is no graph value or array, or numbers are not ints.
        ValueError: If a rank is not 5, or as for :func:`conv2d`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> volume = TensorType(DType.float32, ["n", 8, 8, 8, 3], DeviceRef.CPU())
    >>> weights = TensorType(DType.float32, [2, 3, 3, 3, 16], DeviceRef.CPU())
    >>> with Graph("g", input_types=[volume, weights]) as g:
    ...     x, filter = [v.tensor for v in g.inputs]
    ...     ops.conv3d(x, filter, stride=(2, 1, 1))
    TensorValue(float32, [n, 4, 6, 6, 16], cpu:0)
    """
    who = "conv3d"
    parts = int_of(who, "groups", groups)
    if parts < 1:
        raise refused(who, ValueError, f"groups must be at least 1, got {parts}")
    fields = _fields(who, stride, dilation, padding, input_layout, filter_layout)
    return _with_bias(Conv3d(**fields, groups=parts), x, filter, bias)


def conv2d_transpose(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    output_paddings: tuple[int, int] = (0, 0),
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
) -> TensorValue:
    """Each pixel times the filters, put down ``stride`` apart and added up where they overlap.

    It is the gradient of :func:`conv2d` with respect to its input, and makes images larger.

    Args:
        x: Images of shape ``(N, H, W, C)``, or ``(N, C, H, W)`` with
            ``ConvInputLayout.NCHW``.
        filter: Filters of shape ``(R, S, F, C)``, F being the output channels; or
            ``(C, F, R, S)`` with ``FilterLayout.CFRS``.
        stride: How far apart the filters are put down, along the height and the width.
        dilation: How far apart the elements of a filter are.
        padding: How much is cut off above, below, left and right.
        output_paddings: How many rows and columns are added below and on the right, each less
            than its stride.
        bias: A vector, shape ``(F,)``, that is added to each pixel.
        input_layout: The order of the axes of ``x``.
        filter_layout: The order of the axes of ``filter``.

    Returns:
        A tensor in the layout of ``x`` with F channels and ``H' = (H - 1) * stride +
        dilation * (R - 1) + 1 - above - below + output_padding``.

    Raises:
        TypeError: If an operand is no graph value or array, or numbers are not ints.
        ValueError: If a rank is not 4, channels, bias or dtypes do not fit, a number is too small,
            an output padding is not less than its stride, the layout is no other than these, or
            nothing is left.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> image = TensorType(DType.float32, ["n", 8, 8, 16], DeviceRef.CPU())
    >>> weights = TensorType(DType.float32, [2, 2, 3, 16], DeviceRef.CPU())
    >>> with Graph("g", input_types=[image, weights]) as g:
    ...     x, filter = [v.tensor for v in g.inputs]
    ...     ops.conv2d_transpose(x, filter, stride=(2, 2))
    TensorValue(float32, [n, 16, 16, 3], cpu:0)
    """
    who = "conv2d_transpose"
    steps = numbers(who, "stride", stride, 2, 1)
    added = numbers(who, "output_paddings", output_paddings, 2, 0)
    if any(a >= s for a, s in zip(added, steps, strict=True)):
        sentence = (
            f"output_paddings must be less than the stride, got {list(added)} and {list(steps)}"
        )
        raise refused(who, ValueError, sentence)
    fields = _fields(who, steps, dilation, padding, input_layout, filter_layout)
    return _with_bias(Conv2dTranspose(**fields, output_paddings=added), x, filter, bias)
