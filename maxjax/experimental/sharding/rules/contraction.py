# SPDX-License-Identifier: Apache-2.0
"""Placement rules of products that sum over an axis, and of pooling."""

from __future__ import annotations

from typing import Any

from maxjax.experimental.sharding.action import AxisAssignment, tensor_layouts_in
from maxjax.experimental.sharding.per_shard_dim import is_one
from maxjax.experimental.sharding.placements import Partial
from maxjax.experimental.sharding.rules._registry import kept_axes, places, row
from maxjax.experimental.sharding.types import TensorLayout
from maxjax.graph.type import ConvInputLayout, FilterLayout

__all__ = [
    "avg_pool_rule",
    "conv_rule",
    "conv_transpose_rule",
    "matmul_rule",
    "outer_rule",
    "pool_rule",
    "qmatmul_rule",
]

_P = Partial()
_PRODUCT = [row([_P, None], _P), row([None, _P], _P)]


@places("matmul")
def matmul_rule(lhs: TensorLayout, rhs: TensorLayout) -> list[AxisAssignment]:
    """Batches and rows of the left and columns of the right may be split, and what is summed over.

    Splitting the axis that is summed over gives a sum still to be taken. A sum times a copy is
    one too.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> x, w = (TensorLayout(DType.float32, shape, CPU()) for shape in ([4, 6], [6, 8]))
    >>> for needed, (output,) in matmul_rule(x, w)[:4]:
    ...     print(needed, output)
    (Replicated(), Replicated()) Replicated()
    (Sharded(axis=0), Replicated()) Sharded(axis=0)
    (Replicated(), Sharded(axis=1)) Sharded(axis=1)
    (Sharded(axis=1), Sharded(axis=0)) Partial()
    """
    left, right = max(lhs.rank - 2, 0), max(rhs.rank - 2, 0)
    batch = max(left, right)
    rows = [row([None, None], None)]
    for axis in range(batch):
        own = [
            None if (i := axis - batch + count) < 0 or is_one(x.shape[i]) else i
            for x, count in ((lhs, left), (rhs, right))
        ]
        if own != [None, None]:
            rows.append(row(own, axis))
    has_rows, has_columns = lhs.rank > 1, rhs.rank > 1
    if has_rows:
        rows.append(row([lhs.rank - 2, None], batch))
    if has_columns:
        rows.append(row([None, rhs.rank - 1], batch + has_rows))
    summed = rhs.rank - 2 if has_columns else 0
    return [*rows, row([lhs.rank - 1, summed], _P), *_PRODUCT]


@places("outer")
def outer_rule(lhs: TensorLayout, rhs: TensorLayout) -> list[AxisAssignment]:
    """Either may be split, or be a sum."""
    return [row([None, None], None), row([0, None], 0), row([None, 0], 1), *_PRODUCT]


def _conv(
    x: TensorLayout,
    filter: TensorLayout,
    bias: TensorLayout | None,
    channels: tuple[int, int],
    filter_channels: tuple[int, int],
    *,
    grouped: bool,
) -> list[AxisAssignment]:
    """Rows of a convolution.

    Args:
        x: The input.
        filter: The filter.
        bias: What is added to the result.
        channels: The axis of channels, in the input and in the result.
        filter_channels: The axes of input and of output channels, in the filter.
        grouped: Whether groups of channels are convolved apart from each other.
    """
    extra: list[None] = [] if bias is None else [None]
    rows = [row([None, None, *extra], None), row([0, None, *extra], 0)]
    columns = [None, filter_channels[1]] if bias is None else [None, filter_channels[1], 0]
    if not grouped:
        # A device's output channels need the input channels of their own groups only.
        rows.append(row(columns, channels[1]))
    if bias is None:
        if not grouped:
            rows.append(row([channels[0], filter_channels[0]], _P))
        rows += _PRODUCT
    return rows


_FILTER_CHANNELS = {
    FilterLayout.RSCF: (2, 3),
    FilterLayout.QRSCF: (3, 4),
    FilterLayout.FCRS: (1, 0),
    FilterLayout.FCQRS: (1, 0),
    FilterLayout.CFRS: (0, 1),
}


@places("conv2d", "conv3d")
def conv_rule(
    x: TensorLayout,
    filter: TensorLayout,
    stride: Any = None,
    dilation: Any = None,
    padding: Any = None,
    groups: int = 1,
    bias: TensorLayout | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout | None = None,
) -> list[AxisAssignment]:
    """Batches and output channels may be split, and input channels, which are summed over."""
    default = FilterLayout.RSCF if x.rank == 4 else FilterLayout.QRSCF
    own = _FILTER_CHANNELS[filter_layout or default]
    at = 1 if input_layout is ConvInputLayout.NCHW else x.rank - 1
    return _conv(x, filter, bias, (at, at), own, grouped=groups != 1)


@places("conv2d_transpose")
def conv_transpose_rule(
    x: TensorLayout,
    filter: TensorLayout,
    stride: Any = None,
    dilation: Any = None,
    padding: Any = None,
    output_paddings: Any = None,
    bias: TensorLayout | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
) -> list[AxisAssignment]:
    """As :func:`conv_rule`; the filter's axes of input and output channels change places."""
    outgoing, incoming = _FILTER_CHANNELS[filter_layout]
    at = 1 if input_layout is ConvInputLayout.NCHW else x.rank - 1
    return _conv(x, filter, bias, (at, at), (incoming, outgoing), grouped=False)


@places("max_pool2d")
def pool_rule(input: TensorLayout, *extra: Any, **kwargs: Any) -> list[AxisAssignment]:
    """Batches and channels may be split."""
    return kept_axes([(0, 0), (3, 3)])


@places("avg_pool2d")
def avg_pool_rule(input: TensorLayout, *extra: Any, **kwargs: Any) -> list[AxisAssignment]:
    """Batches and channels may be split, and a sum stays one."""
    return kept_axes([(0, 0), (3, 3)], linear=True)


@places("qmatmul")
def qmatmul_rule(
    encoding: Any, config: Any, lhs: TensorLayout, *rhs: TensorLayout
) -> list[AxisAssignment]:
    """Nothing may be split: weights are packed in blocks."""
    return kept_axes([], others=len(tensor_layouts_in(rhs)))
