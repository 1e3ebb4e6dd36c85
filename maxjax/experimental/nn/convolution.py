# SPDX-License-Identifier: Apache-2.0
"""``Conv2d``: a convolution of images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.experimental import functional as F
from maxjax.experimental import random
from maxjax.experimental.nn.module import Module
from maxjax.experimental.tensor import Tensor
from maxjax.graph.device import DeviceRef
from maxjax.graph.type import FilterLayout

__all__ = ["Conv2d"]


class Conv2d(Module[[Tensor], Tensor]):
    """A convolution over height and width, with parameters drawn from the normal distribution.

    Args:
        kernel_size: The filter's height and width, or one number for both.
        in_channels: The channels of the input.
        out_channels: Those of the result.
        dtype: The element type of the parameters, the default one if left out.
        stride: The steps along height and width.
        padding: Zeros around the image: top, bottom, left and right; or those at top and bottom,
            and those at left and right; or one number for all.
        dilation: The distances between the filter's taps along height and width.
        num_groups: In how many groups channels are convolved each by themselves.
        device: Where the parameters are, the default device if left out.
        has_bias: Whether there is a bias.
        permute: Whether images are ``(N, C, H, W)`` and the weight ``(out, in, H, W)``, as in
            PyTorch, rather than ``(N, H, W, C)`` and ``(H, W, in, out)``.
        name: Kept.

    Attributes:
        weight: The filter.
        bias: A tensor of shape ``(out_channels,)``, or 0.

    Raises:
        ValueError: If groups do not divide channels, or numbers are not as said.

    >>> conv = Conv2d(3, 2, 4, padding=1)
    >>> conv(Tensor.ones([1, 8, 8, 2])).shape
    [Dim(1), Dim(8), Dim(8), Dim(4)]
    """

    weight: Tensor
    bias: Tensor | Literal[0]

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        in_channels: int,
        out_channels: int,
        dtype: DType | None = None,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | tuple[int, int, int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        num_groups: int = 1,
        device: Device | DeviceRef | None = None,
        has_bias: bool = False,
        permute: bool = False,
        name: str | None = None,
    ) -> None:
        if num_groups < 1 or in_channels % num_groups or out_channels % num_groups:
            raise ValueError(
                f"{in_channels} channels in and {out_channels} out do not divide into "
                f"{num_groups} groups"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.dtype = dtype
        self.permute = permute
        self.num_groups = num_groups
        self.has_bias = has_bias
        self.name = name
        self.kernel_size = _pair("kernel_size", kernel_size)
        self.stride = _pair("stride", stride)
        self.padding = _sides(padding)
        self.dilation = _pair("dilation", dilation)
        own = in_channels // num_groups
        shape = [*self.kernel_size, own, out_channels]
        if permute:
            shape = [out_channels, own, *self.kernel_size]
        self.weight = random.normal(shape, dtype=dtype, device=device)
        self.bias = random.normal([out_channels], dtype=dtype, device=device) if has_bias else 0

    def __rich_repr__(self) -> Iterator[Any]:
        yield "kernel_size", self.kernel_size
        yield "in_channels", self.in_channels
        yield "out_channels", self.out_channels
        yield "stride", self.stride, (1, 1)
        yield "padding", self.padding, (0, 0, 0, 0)
        yield "dilation", self.dilation, (1, 1)
        yield "num_groups", self.num_groups, 1
        yield "has_bias", self.has_bias, False
        yield "permute", self.permute, False

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of images, of shape ``(N, H, W, in_channels)``.

        Raises:
            ValueError: If ``x`` has another rank or number of channels, or is too small.
        """
        if self.permute:
            x = F.permute(x, [0, 2, 3, 1])
        y = F.conv2d(
            x,
            self.weight,
            stride=self.stride,
            dilation=self.dilation,
            padding=self.padding,
            groups=self.num_groups,
            bias=self.bias if isinstance(self.bias, Tensor) else None,
            filter_layout=FilterLayout.FCRS if self.permute else FilterLayout.RSCF,
        )
        return F.permute(y, [0, 3, 1, 2]) if self.permute else y


def _pair(name: str, value: int | tuple[int, int]) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    if len(value) != 2:
        raise ValueError(f"{name} is a number, or one for height and one for width, not {value}")
    return value[0], value[1]


def _sides(value: Any) -> tuple[int, int, int, int]:
    """Padding at top, bottom, left and right."""
    if isinstance(value, int):
        return value, value, value, value
    if len(value) == 2:
        return value[0], value[0], value[1], value[1]
    if len(value) != 4:
        raise ValueError(f"padding is a number, two or four of them, not {value}")
    return value[0], value[1], value[2], value[3]
