# SPDX-License-Identifier: Apache-2.0
"""Cutting pieces out of weights, of which each device reads its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from maxjax.driver.memory import place, snapshot
from maxjax.lower.pieces import Piece, cut_out

__all__ = ["check_home", "placed_piece", "settled"]


def settled(array: Any) -> Any:
    """An array that nobody writes while it is read: a copy of memory that others see."""
    if isinstance(array, np.ndarray) and array.flags.writeable:
        return np.array(array, order="C")
    return array


def check_home(array: jax.Array, device: Any) -> None:
    """Refuses an array that is somewhere else; the model says which input it is.

    Raises:
        ValueError: If it is bound to another device.
    """
    if array.committed and array.sharding.device_set != {device}:
        raise ValueError(f"an input is not on {device}")


def placed_piece(piece: Piece, arrays: Mapping[str, Any], device: Any) -> jax.Array:
    """A piece of weights on a ``jax.Device``; nothing else of them goes there."""
    array = cut_out(piece, arrays)
    if not isinstance(array, np.ndarray):
        return jax.device_put(array, device)
    flags = array.flags
    # Memory that nobody writes can become the device's; else one copy does, which XLA takes over.
    own = array if flags.c_contiguous and not flags.writeable else snapshot(array)
    return place(own, device, ours=True)
