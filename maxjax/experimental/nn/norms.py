# SPDX-License-Identifier: Apache-2.0
"""Normalizations: ``RMSNorm``, ``GemmaRMSNorm``, ``LayerNorm``, ``GroupNorm``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from maxjax.dtype import DType
from maxjax.experimental import functional as F
from maxjax.experimental.nn.module import Module
from maxjax.experimental.tensor import Tensor
from maxjax.graph.dim import Dim

__all__ = ["GemmaRMSNorm", "GroupNorm", "LayerNorm", "RMSNorm"]


class RMSNorm(Module[[Tensor], Tensor]):
    """The last axis divided by its root mean square, then scaled.

    Args:
        dim: The size of the last axis.
        eps: Added to the mean square.

    Attributes:
        weight: The scale, of shape ``(dim,)``; ones.
        eps: As given.

    >>> RMSNorm(2)(Tensor([[3, 4]])).to_numpy().round(2)
    array([[0.85, 1.13]], dtype=float32)
    """

    weight: Tensor

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        self.weight = Tensor.ones([dim])
        self.eps = eps

    @property
    def dim(self) -> Dim:
        """The size of the last axis."""
        return self.weight.shape[0]

    def __rich_repr__(self) -> Iterator[Any]:
        yield "dim", self.dim
        yield "eps", self.eps, 1e-6

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of shape ``(..., dim)``, normalized.

        Raises:
            ValueError: If ``x`` has another last dimension, or no floats.
        """
        return F.rms_norm(x, self.weight, self.eps)


class GemmaRMSNorm(RMSNorm):
    """As :class:`RMSNorm`, with 1 added to the weight, and scaled before rounding to the dtype.

    Args:
        dim: The size of the last axis.
        eps: Added to the mean square.

    >>> GemmaRMSNorm(2)(Tensor([[1, 1]])).to_numpy().round(3).tolist()
    [[2.0, 2.0]]
    """

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of shape ``(..., dim)``, normalized.

        Raises:
            ValueError: If ``x`` has another last dimension, or no floats.
        """
        return F.rms_norm(x, self.weight, self.eps, weight_offset=1.0, multiply_before_cast=True)


class LayerNorm(Module[[Tensor], Tensor]):
    """The last axis with mean 0 and variance 1, then scaled and shifted.

    Args:
        dim: The size of the last axis.
        eps: Added to the variance.
        keep_dtype: Whether to compute with ``x`` as it is, rather than as ``float32``.
        elementwise_affine: Whether it is scaled and shifted.
        use_bias: Whether it is shifted.

    Attributes:
        weight: The scale, of shape ``(dim,)``; ones, or None.
        bias: The shift, likewise; zeros, or None.

    >>> LayerNorm(2)(Tensor([[1, 3]])).to_numpy().round(3).tolist()
    [[-1.0, 1.0]]
    """

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        dim: int,
        eps: float = 1e-5,
        *,
        keep_dtype: bool = True,
        elementwise_affine: bool = True,
        use_bias: bool = True,
    ) -> None:
        self.dim = dim
        self.eps = eps
        self.keep_dtype = keep_dtype
        self.elementwise_affine = elementwise_affine
        self.use_bias = use_bias
        self.weight = Tensor.ones([dim]) if elementwise_affine else None
        self.bias = Tensor.zeros([dim]) if elementwise_affine and use_bias else None

    def __rich_repr__(self) -> Iterator[Any]:
        yield "dim", self.dim
        yield "eps", self.eps, 1e-5
        yield "keep_dtype", self.keep_dtype, True
        yield "elementwise_affine", self.elementwise_affine, True
        yield "use_bias", self.use_bias, True

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of shape ``(..., dim)``, normalized, of the same element type.

        Raises:
            ValueError: If ``x`` has another last dimension, or no floats.
        """
        wide = x if self.keep_dtype else x.cast(DType.float32)
        weight, bias = _affine(self.weight, self.bias, self.dim, wide)
        return F.layer_norm(wide, weight, bias, self.eps).cast(x.dtype)


class GroupNorm(Module[[Tensor], Tensor]):
    """Groups of channels, each with mean 0 and variance 1 over all positions, then scaled.

    Args:
        num_groups: How many groups there are; it divides ``num_channels``.
        num_channels: The size of axis 1.
        eps: Added to the variance.
        affine: Whether channels are scaled and shifted.

    Attributes:
        weight: The scale, of shape ``(num_channels,)``; ones, or None.
        bias: The shift, likewise; zeros, or None.

    Raises:
        ValueError: If the channels do not divide into so many groups.

    >>> GroupNorm(2, 4)(Tensor([[[1], [3], [5], [7]]])).to_numpy().round(3).ravel().tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"{num_channels} channels do not divide into {num_groups} groups")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.weight = Tensor.ones([num_channels]) if affine else None
        self.bias = Tensor.zeros([num_channels]) if affine else None

    def __rich_repr__(self) -> Iterator[Any]:
        yield "num_groups", self.num_groups
        yield "num_channels", self.num_channels
        yield "eps", self.eps, 1e-5
        yield "affine", self.affine, True

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of shape ``(N, num_channels, ...)``, normalized.

        Raises:
            ValueError: If ``x`` has another number of channels, less than two axes, or no floats.
        """
        weight, bias = _affine(self.weight, self.bias, self.num_channels, x)
        return F.group_norm(x, weight, bias, self.num_groups, self.eps)


def _affine(
    weight: Tensor | None, bias: Tensor | None, size: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """A scale and a shift: those given, or ones and zeros."""
    if weight is None:
        weight = F.full([size], 1, dtype=like.dtype, device=like.device)
    if bias is None:
        bias = F.full([size], 0, dtype=like.dtype, device=like.device)
    return weight, bias
