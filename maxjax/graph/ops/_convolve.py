# SPDX-License-Identifier: Apache-2.0
"""The convolution that all of :mod:`maxjax.graph.ops.convolution` come down to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from maxjax.graph.ops._precision import accumulator, dot_precision
from maxjax.graph.ops._sliding import reach
from maxjax.graph.ops._unary import is_float
from maxjax.graph.ops._window import holds

__all__ = ["convolve"]


def convolve(
    x: jax.Array,
    filter: jax.Array,
    specs: tuple[str, str, str],
    pads: Sequence[tuple[Any, Any]],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    *,
    spread: tuple[int, ...] | None = None,
    groups: int = 1,
) -> jax.Array:
    """The sums of products of an image and a filter of one dtype, in that dtype.

    Args:
        x: The image, whose elements are first put ``spread`` apart, then padded with zeros.
        filter: The filter, not flipped.
        specs: The axes of the image, the filter and the result, in the letters of JAX.
        pads: Zeros before and after each axis that slides; less than none cuts elements off.
        stride: How far apart windows start.
        dilation: How far apart the elements of a window are.
        spread: How far apart the elements of the image are put; None leaves them.
        groups: In how many parts channels are divided.
    """
    spread = spread or (1,) * len(stride)
    wide = accumulator(x.dtype)
    if is_float(x):
        out = lax.conv_general_dilated(
            x,
            filter,
            stride,
            pads,
            lhs_dilation=spread,
            rhs_dilation=dilation,
            dimension_numbers=specs,
            feature_group_count=groups,
            precision=dot_precision(),
            preferred_element_type=wide,
        )
        return out.astype(x.dtype)
    image, kernel, result = specs
    sliding = "".join([axis for axis in image if axis not in "NC"])
    dtype, wide = x.dtype, wide or x.dtype
    x = lax.transpose(x, [image.index(axis) for axis in f"N{sliding}C"]).astype(wide)
    filter = lax.transpose(filter, [kernel.index(axis) for axis in f"{sliding}IO"]).astype(wide)
    config = [(low, high, gap - 1) for (low, high), gap in zip(pads, spread, strict=True)]
    x = lax.pad(x, jnp.zeros((), wide), [(0, 0, 0), *config, (0, 0, 0)])
    out = _of_integers(x, filter, stride, dilation, groups).astype(dtype)
    return lax.transpose(out, [f"N{sliding}C".index(axis) for axis in result])


def _of_integers(
    x: jax.Array, filter: jax.Array, stride: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> jax.Array:
    """One product for each element of the window: on GPUs XLA has no convolution of integers."""
    *windows, own, features = filter.shape
    fixed = all(isinstance(n, int) for n in windows)
    holds(lambda: fixed, "a filter of integers must have a height and width that are numbers")
    starts = [
        jnp.arange((size - reach(n, d)) // step + 1, dtype=jnp.int64) * jnp.int64(step)
        for size, n, d, step in zip(x.shape[1:-1], windows, dilation, stride, strict=True)
    ]
    total: Any = None
    for tap in itertools.product(*map(range, windows)):
        part = x
        for axis, (at, i, d) in enumerate(zip(starts, tap, dilation, strict=True)):
            part = jnp.take(part, at + jnp.int64(i * d), axis + 1, mode="clip")
        part = jnp.reshape(part, (*part.shape[:-1], groups, own))
        weights = jnp.reshape(filter[tap], (own, groups, features // groups))
        product = jnp.einsum("...gi,igo->...go", part, weights)
        total = product if total is None else total + product
    return jnp.reshape(total, (*total.shape[:-2], features))
