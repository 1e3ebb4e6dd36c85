# SPDX-License-Identifier: Apache-2.0
"""Ops of one program that runs on many devices: each device is a *lane* of a mesh axis.

They are made when a graph is folded (:mod:`maxjax.lower.fold`) and lowered inside
``jax.shard_map``; no graph that a user builds contains them.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from maxjax.graph.op import Op
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType

__all__ = ["LANES", "covering", "stacked"]

LANES = "lanes"
"""The name of the mesh axis."""

_stacked: contextvars.ContextVar[bool] = contextvars.ContextVar("_stacked", default=False)


@contextlib.contextmanager
def stacked() -> Iterator[None]:
    """While it lasts the lanes are an axis of ``jax.vmap``, which knows no groups of lanes."""
    token = _stacked.set(True)
    try:
        yield
    finally:
        _stacked.reset(token)


def _own_group(x: jax.Array, groups: list[list[int]]) -> jax.Array:
    """What the lanes of this lane's group have, along a new first axis; groups of one size."""
    lanes = sum(map(len, groups))
    own = np.zeros((lanes, len(groups[0])), np.int32)
    for group in groups:
        own[group] = group
    return lax.all_gather(x, LANES)[jnp.asarray(own)[lax.axis_index(LANES)]]


def _group_sum(x: jax.Array, groups: list[list[int]] | None) -> jax.Array:
    if not _stacked.get():
        return lax.psum(x, LANES, axis_index_groups=groups)
    if groups is None:  # psum has no lowering there for sizes that are symbolic
        return jnp.sum(lax.all_gather(x, LANES), 0, dtype=x.dtype)
    lanes = sum(map(len, groups))
    mine = np.zeros((lanes, lanes), bool)
    for group in groups:
        mine[np.ix_(group, group)] = True
    chosen = jnp.asarray(mine)[lax.axis_index(LANES)]
    every = lax.all_gather(x, LANES)
    wide = jnp.reshape(chosen, (lanes, *[1] * x.ndim))
    return jnp.sum(jnp.where(wide, every, jnp.zeros_like(every)), 0, dtype=x.dtype)


class LaneOp(Op, abstract=True):
    """An op over the lanes."""

    def moved(self, *shapes: tuple[int, ...]) -> int:
        """How many elements each lane receives, by the usual ring algorithms."""
        return 0


def covering(groups: tuple[tuple[int, ...], ...], lanes: int) -> list[list[int]] | None:
    """Groups as JAX takes them: every lane in one of them; None where all are in one, in order.

    Lanes that are in no group make groups of their own, of the same size where sizes are one.
    """
    found = [list(g) for g in groups]
    if found == [list(range(lanes))]:
        return None
    used = {lane for g in found for lane in g}
    rest = [lane for lane in range(lanes) if lane not in used]
    sizes = {len(g) for g in found}
    size = sizes.pop() if len(sizes) == 1 else 1
    if len(rest) % size:
        size = 1
    return found + [rest[i : i + size] for i in range(0, len(rest), size)]


class LaneSum(LaneOp, abstract=True):
    """The sum over the lanes of each group, on each of them; of bools "or"."""

    groups: tuple[tuple[int, ...], ...]
    lanes: int

    mnemonic = "lane_sum"

    def infer(self, x: TensorType) -> TensorType:
        return x

    def lower(self, x: jax.Array) -> jax.Array:
        groups = covering(self.groups, self.lanes)
        if x.dtype == bool:
            return _group_sum(x.astype(jnp.int32), groups) > 0
        return _group_sum(x, groups)

    def moved(self, *shapes: tuple[int, ...]) -> int:
        n = max(map(len, self.groups))
        return int(2 * (n - 1) * np.prod(shapes[0], dtype=np.int64)) // n


class LaneGather(LaneOp, abstract=True):
    """What the lanes of a group have, one after the other."""

    axis: int
    groups: tuple[tuple[int, ...], ...]
    lanes: int

    mnemonic = "lane_gather"

    def infer(self, x: TensorType) -> TensorType:
        return _resized(x, self.axis, x.shape[self.axis] * len(self.groups[0]))

    def lower(self, x: jax.Array) -> jax.Array:
        groups = covering(self.groups, self.lanes)
        if groups is not None and _stacked.get():
            own = _own_group(x, groups)
            return jnp.concatenate([own[i] for i in range(len(groups[0]))], self.axis)
        return lax.all_gather(x, LANES, axis=self.axis, tiled=True, axis_index_groups=groups)

    def moved(self, *shapes: tuple[int, ...]) -> int:
        return int((len(self.groups[0]) - 1) * np.prod(shapes[0], dtype=np.int64))


class LaneScatter(LaneOp, abstract=True):
    """The sum over the lanes of a group, an equal part of it on each of them."""

    axis: int
    groups: tuple[tuple[int, ...], ...]
    lanes: int

    mnemonic = "lane_scatter"

    def infer(self, x: TensorType) -> TensorType:
        return _resized(x, self.axis, x.shape[self.axis] // len(self.groups[0]))

    def lower(self, x: jax.Array) -> jax.Array:
        groups = covering(self.groups, self.lanes)
        if _stacked.get():
            return self._of_the_sum(x, groups)
        wide = x.astype(jnp.int32) if x.dtype == bool else x
        part = lax.psum_scatter(
            wide, LANES, scatter_dimension=self.axis, tiled=True, axis_index_groups=groups
        )
        return part > 0 if x.dtype == bool else part

    def _of_the_sum(self, x: jax.Array, groups: list[list[int]] | None) -> jax.Array:
        """This lane's part of the sum, which all lanes make."""
        total = LaneSum(self.groups, self.lanes).lower(x)
        place = np.zeros(self.lanes, np.int32)
        for group in groups or [list(range(self.lanes))]:
            place[group] = np.arange(len(group))
        size = x.shape[self.axis] // len(self.groups[0])
        start = jnp.asarray(place)[lax.axis_index(LANES)] * size
        return lax.dynamic_slice_in_dim(total, start, size, self.axis)

    def moved(self, *shapes: tuple[int, ...]) -> int:
        n = len(self.groups[0])
        return int((n - 1) * np.prod(shapes[0], dtype=np.int64)) // n


def _resized(x: TensorType, axis: int, size: Any) -> TensorType:
    dims = list(x.shape)
    dims[axis] = size
    return TensorType._of(x.dtype, Shape(dims), x.device)


class LaneMove(LaneOp, abstract=True):
    """What some lanes have, on others; from one lane to all, or from each to at most one.

    Attributes:
        pairs: From which lane to which.
        everywhere: Whether what the first lane of the first pair has goes to all lanes.
    """

    pairs: tuple[tuple[int, int], ...]
    everywhere: bool = False

    mnemonic = "lane_move"

    def infer(self, x: TensorType) -> TensorType:
        return x

    def lower(self, x: jax.Array) -> jax.Array:
        if not self.everywhere:
            return lax.ppermute(x, LANES, self.pairs)
        # As whole numbers, whose sum with zeros is exact for every bit pattern.
        source = self.pairs[0][0]
        bits = _bits(x)
        here = lax.axis_index(LANES) == source
        own = jnp.where(here, bits, jnp.zeros_like(bits))
        return _from_bits(_group_sum(own, None), x.dtype)

    def moved(self, *shapes: tuple[int, ...]) -> int:
        return int((2 if self.everywhere else 1) * np.prod(shapes[0], dtype=np.int64))


def _bits(x: jax.Array) -> jax.Array:
    if x.dtype == bool:
        return x.astype(jnp.uint8)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return x
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return _bits(jnp.stack([x.real, x.imag], -1))
    return lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")


def _from_bits(bits: jax.Array, dtype: Any) -> jax.Array:
    if dtype == np.bool_:
        return bits.astype(bool)
    if jnp.issubdtype(dtype, jnp.integer):
        return bits
    if jnp.issubdtype(dtype, jnp.complexfloating):
        part = np.zeros((), dtype).real.dtype
        parts = _from_bits(bits, part)
        return lax.complex(parts[..., 0], parts[..., 1])
    return lax.bitcast_convert_type(bits, dtype)


class LanePick(LaneOp, abstract=True):
    """On each lane one of the operands.

    Attributes:
        which: For each lane the number of the operand.
    """

    which: tuple[int, ...]

    mnemonic = "lane_pick"

    def infer(self, *xs: TensorType) -> TensorType:
        return xs[0]

    def lower(self, *xs: jax.Array) -> jax.Array:
        if len(xs) == 1:
            return xs[0]
        which = jnp.asarray(np.asarray(self.which, np.int32))[lax.axis_index(LANES)]
        if len(xs) == 2:
            return jnp.where(which == 0, xs[0], xs[1])
        return lax.select_n(which, *xs)


class LaneConstant(LaneOp, abstract=True):
    """A constant of each lane's own.

    Attributes:
        values: One after the other, of shape ``(lanes, ...)``.
        type: That of the constant.
    """

    values: np.ndarray
    type: TensorType

    mnemonic = "lane_constant"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def infer(self) -> TensorType:
        return self.type

    def lower(self) -> jax.Array:
        values = jnp.asarray(self.values, dtype=self.values.dtype)
        return lax.dynamic_index_in_dim(values, lax.axis_index(LANES), keepdims=False)
