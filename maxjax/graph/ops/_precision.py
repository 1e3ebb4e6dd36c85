# SPDX-License-Identifier: Apache-2.0
"""How exactly products are summed, the same for every op that multiplies matrices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["accumulator", "dot_precision"]


def dot_precision() -> jax.lax.Precision | None:
    """The precision of a product: full float32, unless the user asked JAX for another one.

    Where the hardware multiplies in less than float32 (TPUs, and GPUs with TF32), JAX would use
    that by default. ``jax.default_matmul_precision`` and ``jax_default_matmul_precision``, set by
    the user when the graph is traced, win.
    """
    config: Any = jax.config  # its options are attributes that no type checker knows
    if config.jax_default_matmul_precision is not None:
        return None
    return jax.lax.Precision.HIGHEST


def accumulator(dtype: jnp.dtype) -> jnp.dtype | None:
    """The dtype in which sums of products of ``dtype`` are kept; None when it is ``dtype``.

    Floats below 32 bits are summed in float32. So are integers in 32 bits, which gives what the
    narrow sum would (they wrap around), on hardware that cannot keep a narrow one.
    """
    if dtype.itemsize >= 4:
        return None
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.dtype(jnp.float32)
    return jnp.dtype(jnp.uint32 if jnp.issubdtype(dtype, jnp.unsignedinteger) else jnp.int32)
