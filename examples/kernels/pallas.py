# SPDX-License-Identifier: Apache-2.0
"""A kernel in Pallas: the gate of a feed-forward layer, computed block by block.

Pallas compiles for accelerators; on the CPU it is interpreted.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import maxjax

__all__ = ["swiglu"]


def _block(gate: Any, up: Any, out: Any) -> None:
    """One block: references to its rows of the operands and of the result."""
    x = gate[...].astype(jnp.float32)
    out[...] = (x * jax.nn.sigmoid(x) * up[...].astype(jnp.float32)).astype(out.dtype)


@maxjax.kernel("swiglu")
def swiglu(
    gate: jax.Array, up: jax.Array, *, rows: int, results: tuple[jax.ShapeDtypeStruct, ...]
) -> jax.Array:
    """``silu(gate) * up``, in float32 whatever the dtype.

    Args:
        gate: `(N, D)`.
        up: `(N, D)`.
        rows: How many rows a block has; the last block may have fewer.
        results: What the op declares: one result, `(N, D)`.

    Returns:
        `(N, D)`.
    """
    (out,) = results
    n, d = out.shape
    if n == 0:
        return jnp.zeros(out.shape, out.dtype)
    spec = pl.BlockSpec((rows, d), lambda i: (i, 0))
    make = functools.partial(
        pl.pallas_call,
        _block,
        out_shape=out,
        grid=(pl.cdiv(n, rows),),
        in_specs=[spec, spec],
        out_specs=spec,
    )
    return jax.lax.platform_dependent(gate, up, cpu=make(interpret=True), default=make())
