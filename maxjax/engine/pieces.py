# SPDX-License-Identifier: Apache-2.0
"""Cutting pieces out of weights, of which each device reads its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.driver.memory import place
from maxjax.graph.ops.join import Concat, Split
from maxjax.graph.ops.shape import Permute, Reshape
from maxjax.graph.ops.slicing import SliceTensor
from maxjax.lower.pieces import Piece

__all__ = ["check_home", "cut_out", "placed_piece", "settled"]


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
    ours = not array.flags.writeable and array.flags.c_contiguous
    return place(np.ascontiguousarray(array), device, ours=ours)


def cut_out(piece: Piece, arrays: Mapping[str, Any]) -> Any:
    """A piece of weights; of NumPy arrays, so also of mapped files, a view where one will do.

    Args:
        piece: What to cut out.
        arrays: The weights by name.
    """
    if piece.op is None:
        return arrays[piece.name]
    op: Any = piece.op
    operands = [cut_out(p, arrays) for p in piece.operands]
    if all(isinstance(o, np.ndarray) for o in operands):
        found = _view(op, operands)
        if found is not None:
            return found[piece.index]
    with jax.default_device(jax.local_devices(backend="cpu")[0]), jax.enable_x64(True):
        result = op.at({}).lower(*[jnp.asarray(o) for o in operands])
    many = result if isinstance(result, (tuple, list)) else (result,)
    return np.asarray(many[piece.index])


def _view(op: Any, operands: list[np.ndarray]) -> Sequence[Any] | None:
    """What an op gives of NumPy arrays, without touching what it leaves out; None to compute it."""
    first, at = operands[0], op.at({})
    if isinstance(op, SliceTensor) and len(operands) == 1 and not op.out_dims:
        index = tuple(None if e is None else slice(*e) if type(e) is tuple else e for e in at.index)
        return [first[index]]
    if isinstance(op, Split):
        ends = np.cumsum([int(n) for n in op.sizes])[:-1]
        return np.split(first, ends, axis=op.axis)
    if isinstance(op, Permute):
        return [np.transpose(first, op.dims)]
    if isinstance(op, Reshape):
        return [np.reshape(first, tuple(int(d) for d in at.shape))]
    if isinstance(op, Concat):
        return [np.concatenate(operands, axis=op.axis)]
    return None
