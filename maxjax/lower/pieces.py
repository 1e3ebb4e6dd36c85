# SPDX-License-Identifier: Apache-2.0
"""Parts of weights that are cut out when the weights are loaded, not when a program runs.

A graph over several devices takes a weight apart and sends each device a part. Done once, at
loading, each device reads and keeps its own part only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import StaticDim
from maxjax.graph.ir import Node
from maxjax.graph.op import Op
from maxjax.graph.ops.cast import TransferTo
from maxjax.graph.ops.collective import ShardAndStack
from maxjax.graph.ops.constant import ConstantExternal
from maxjax.graph.ops.join import Concat, Split, Stack
from maxjax.graph.ops.shape import Permute, Reshape, Squeeze, Unsqueeze
from maxjax.graph.ops.slicing import SliceTensor
from maxjax.graph.value import Value

__all__ = ["Piece", "Pieces", "cut_out", "tiled"]

# What only looks at a tensor in another way, and the ones of these that cut something off.
_VIEWS = (
    Concat, Permute, Reshape, ShardAndStack, SliceTensor, Split, Squeeze, Stack, TransferTo,
    Unsqueeze,
)  # fmt: skip
_CUTS = (Concat, ShardAndStack, SliceTensor, Split, Stack, TransferTo)


@dataclasses.dataclass(frozen=True)
class Piece:
    """A weight, or a part of weights that is cut out when they are loaded.

    Attributes:
        name: The weight's name, if it is a whole one.
        shape: Its shape then, where that is numbers.
        op: What cuts it out of others.
        operands: These.
        index: Which of the results it is.
    """

    name: str = ""
    shape: tuple[int, ...] = ()
    op: Op | None = None
    operands: tuple[Piece, ...] = ()
    index: int = 0

    @property
    def names(self) -> Iterator[str]:
        """The weights that it is made of."""
        if self.name:
            yield self.name
        for operand in self.operands:
            yield from operand.names


def tiled(pieces: Sequence[Piece | None]) -> tuple[str, int] | None:
    """The weight and axis of which these are equal parts, in order, with nothing left out."""
    first = pieces[0]
    if first is None or any(p is None or len(p.operands) != 1 for p in pieces):
        return None
    found = [p for p in pieces if p is not None]
    names = {p.operands[0].name for p in found}
    if len(names) != 1 or "" in names:
        return None
    (name,) = names
    ops = [p.op for p in found]
    if all(isinstance(op, Split) for op in ops):
        (op, *others), n = ops, len(found)
        assert isinstance(op, Split)
        even = len(op.sizes) == n and len(set(op.sizes)) == 1
        in_order = [p.index for p in found] == list(range(n))
        return (name, op.axis) if even and in_order and all(o == op for o in others) else None
    cuts = [_cut(p) for p in found]
    axes = {c[0] for c in cuts if c is not None}
    if None in cuts or len(axes) != 1:
        return None
    at = 0
    for _, start, stop, size in (c for c in cuts if c is not None):
        if start != at or stop - start != size // len(found):
            return None
        at = stop
    _, _, _, size = cuts[0] or (0, 0, 0, 0)
    return (name, axes.pop()) if at == size else None


def _cut(piece: Piece) -> tuple[int, int, int, int] | None:
    """The one axis that a slice cuts, where from and to, and how long it is; None if others."""
    op = piece.op
    if not isinstance(op, SliceTensor) or op.out_dims:
        return None
    shape = piece.operands[0].shape
    found = None
    for axis, entry in enumerate(op.index):
        if type(entry) is not tuple or axis >= len(shape):
            return None
        start, stop, step = entry
        stop = shape[axis] if stop is None else stop
        if step != 1 or not isinstance(start, int) or not isinstance(stop, int):
            return None
        if (start, stop) != (0, shape[axis]):
            if found is not None:
                return None
            found = axis, start, stop, shape[axis]
    return found


@dataclasses.dataclass(frozen=True)
class _Known:
    piece: Piece
    node: Node
    is_cut: bool


class Pieces:
    """Which values of a graph are pieces of weights.

    Nodes are shown to it in program order. It replaces operands by equal ones, so that what is the
    same piece on the same device is one value.
    """

    def __init__(self) -> None:
        self._found: dict[int, _Known] = {}
        self._values: dict[tuple[Piece, DeviceRef], Value] = {}
        self._same: dict[int, Value] = {}

    def __contains__(self, value: Value) -> bool:
        return id(value) in self._found

    def same(self, value: Value) -> Value:
        """The value that stands for all that are the same piece on the same device."""
        return self._same.get(id(value), value)

    def note(self, node: Node) -> bool:
        """Takes a node in; whether its results are pieces, so that it need not run."""
        if isinstance(node.op, ConstantExternal):
            dims = node.op.type.shape
            static = all(isinstance(d, StaticDim) for d in dims)
            piece = Piece(node.op.name, tuple(int(d) for d in dims) if static else ())
            self._found[id(node.results[0])] = _Known(piece, node, True)
            return True
        node.operands = tuple(map(self.same, node.operands))
        if not (node.operands and isinstance(node.op, _VIEWS)):
            return False
        types = [v.type for v in (*node.operands, *node.results)]
        if not all(v in self for v in node.operands) or not all(
            isinstance(d, StaticDim) for t in types for d in t.shape
        ):
            return False
        operands = tuple(self._found[id(v)].piece for v in node.operands)
        moves = isinstance(node.op, TransferTo)
        for k, result in enumerate(node.results):
            piece = operands[0] if moves else Piece("", (), node.op, operands, k)
            known = self._values.setdefault((piece, result.type.device), result)
            if known is result:
                cuts = isinstance(node.op, _CUTS)
                self._found[id(result)] = _Known(piece, node, cuts)
            else:
                self._same[id(result)] = known
        return True

    def cut(self, value: Value) -> Piece | None:
        """The piece that a value is; None if it is looked at in another way where it is used."""
        known = self._found[id(value)]
        return known.piece if known.is_cut else None

    def node(self, value: Value) -> Node:
        """The node whose result a piece is."""
        return self._found[id(value)].node


# ---------------------------------------------------------------- cutting them out


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
