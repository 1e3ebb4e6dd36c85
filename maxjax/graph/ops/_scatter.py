# SPDX-License-Identifier: Apache-2.0
"""What the scatters share: their operands, what becomes of each index, and how updates meet.

Indices are ``int32`` or ``int64``. Negative ones count from the end; an update whose index is out
of range is dropped. Where several updates meet in one place, ``scatter`` and ``scatter_nd`` keep
the last of them, on every device. The others combine all of them with what is there: floats
narrower than 32 bits in ``float32``, rounded once; integers wrap around; on bools ``add`` and
``max`` are *or*, ``mul`` and ``min`` are *and*; NaN wins in ``max`` and ``min``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from maxjax.dtype import DType
from maxjax.graph.op import Op
from maxjax.graph.ops._operands import same_device
from maxjax.graph.ops._unary import is_float, wide_dtype
from maxjax.graph.ops._window import int64
from maxjax.graph.ops.cast import convert
from maxjax.graph.type import TensorType

__all__ = ["ScatterOp", "counter", "last_only", "places"]

_INDEX_DTYPES = (DType.int32, DType.int64)
# On bools, kept as bytes that are 0 or 1.
_OF_BOOLS = {"set": "set", "add": "max", "max": "max", "mul": "min", "min": "min"}


class ScatterOp(Op, abstract=True):
    """Updates put into a tensor at places that integer indices name."""

    # How an update meets what is there: "set", "add", "max", "min" or "mul".
    combine: ClassVar[str] = "set"

    def infer(self, x: TensorType, updates: TensorType, indices: TensorType) -> TensorType:
        if updates.dtype is not x.dtype:
            raise ValueError(
                f"the updates are {updates.dtype.name}, not {x.dtype.name}; cast one of them"
            )
        if indices.dtype not in _INDEX_DTYPES:
            raise ValueError(f"indices must be int32 or int64, not {indices.dtype.name}; cast them")
        device = same_device(x, updates, indices)
        self.check(x, updates, indices)
        return TensorType._of(x.dtype, x.shape, device)

    def check(self, x: TensorType, updates: TensorType, indices: TensorType) -> None:
        """Refuses shapes that do not go together."""

    def put(self, x: jax.Array, at: tuple[jax.Array, ...], updates: jax.Array) -> jax.Array:
        """``x`` with the updates at the places ``at``; those past the end are dropped."""
        how, own = self.combine, DType.of(x.dtype)
        if how == "set":
            return x.at[at].set(updates, mode="drop")
        wide = own
        if own is DType.bool:
            how, wide = _OF_BOOLS[how], DType.uint8
        elif is_float(x):
            wide = DType.of(wide_dtype(x.dtype))
        places = lax.convert_element_type(x, wide.np).at[at]
        combined = {
            "add": places.add, "max": places.max, "min": places.min, "mul": places.multiply,
        }[how](lax.convert_element_type(updates, wide.np), mode="drop")  # fmt: skip
        return convert(combined, own)


def places(index: jax.Array, size: Any) -> jax.Array:
    """Indices as ``int64`` counted from the front; those out of range are at the end."""
    i, end = int64(index), int64(size)
    i = jnp.where(i < int64(0), i + end, i)
    # Not past the end: XLA may count in fewer bits.
    return jnp.where((i < int64(0)) | (i > end), end, i)


def counter(count: Any) -> Any:
    """The dtype that counts that far."""
    return jnp.int32 if isinstance(count, int) and count < 2**31 else jnp.int64


def last_only(
    shape: tuple[Any, ...], at: tuple[jax.Array, ...], order: jax.Array, axis: int
) -> tuple[jax.Array, ...]:
    """``at`` with all but the last update of each place moved out of range.

    XLA leaves open which of several updates of one place stays; what it does differs by device.

    Args:
        shape: The shape of what is written to.
        at: An index array per axis of it.
        order: The position of each update among those that may meet.
        axis: The axis along which to move them.
    """
    latest = jnp.full(shape, -1, order.dtype).at[at].max(order, mode="drop")
    stays = latest.at[at].get(mode="clip") == order
    moved = jnp.where(stays, at[axis], int64(shape[axis]))
    return (*at[:axis], moved, *at[axis + 1 :])
