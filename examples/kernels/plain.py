# SPDX-License-Identifier: Apache-2.0
"""Kernels in plain JAX: one with a result whose size is a parameter, one that changes a buffer.

Given to a graph as ``Graph(..., custom_extensions=["examples/kernels/plain.py"])``.
"""

import jax
import jax.numpy as jnp

import maxjax

__all__ = ["append", "histogram"]


@maxjax.kernel("histogram")
def histogram(x: jax.Array, *, bins: int, low: float, high: float) -> jax.Array:
    """How many values of ``x`` fall into each of ``bins`` equal parts of ``[low, high)``.

    Args:
        x: `(N,)`, floating point; what is outside the interval counts nowhere.
        bins: The number of parts.
        low: Where the first begins.
        high: Where the last ends.

    Returns:
        `(bins,)`, int32.
    """
    width = (high - low) / bins
    place = jnp.floor((x - low) / width).astype(jnp.int32)
    inside = (x >= low) & (x < high)
    place = jnp.where(inside, jnp.clip(place, 0, bins - 1), bins)
    return jnp.zeros(bins, jnp.int32).at[place].add(1, mode="drop")


@maxjax.kernel("append")
def append(rows: jax.Array, count: jax.Array, new: jax.Array) -> tuple[jax.Array, ...]:
    """Writes ``new`` behind the first ``count`` rows of a buffer.

    Args:
        rows: A buffer, `(N, D)`.
        count: A buffer, `(1,)`, int32: how many rows are in use; N at most stay in use.
        new: `(D,)`.

    Returns:
        The new contents of both buffers.
    """
    full = count[0] >= rows.shape[0]
    written = jax.lax.dynamic_update_slice(rows, new[None], (count[0], jnp.int32(0)))
    return jnp.where(full, rows, written), jnp.where(full, count, count + 1)
