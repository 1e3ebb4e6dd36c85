# SPDX-License-Identifier: Apache-2.0
"""Programs on several devices at once: one program over a mesh, of which each device is a lane."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from maxjax.driver import Device
from maxjax.engine.islands import IslandPrograms
from maxjax.engine.pieces import check_home, cut_out, placed_piece, settled
from maxjax.engine.plan import Collective, ExecutionPlan, Placement, type_bytes, type_text
from maxjax.engine.programs import Program, Programs, Recompile, Shapes
from maxjax.graph.type import BufferType
from maxjax.lower import Function, to_jax
from maxjax.lower.fold import Folded, NotFolded, Spread, fold
from maxjax.lower.function import LoweredFunction
from maxjax.lower.lane_ops import LANES, LaneGather, LaneMove, LaneScatter, LaneSum
from maxjax.lower.split import split

__all__ = ["LanePrograms", "spread"]

_ALL = PartitionSpec()
_EACH = PartitionSpec(LANES)


def spread(function: Function, devices: Sequence[Device], recompile: Recompile) -> Programs:
    """The programs of a function over several devices.

    Args:
        function: What is compiled.
        devices: Where it runs: the accelerators it names, by number.
        recompile: Whether calls with new sizes may compile, after the first.

    Raises:
        ValueError: If it is an artifact: that is for one device.
    """
    if not isinstance(function, LoweredFunction):
        raise ValueError("a program from a file runs on the devices it was exported for")
    try:
        folded = fold(function.graph)
    except NotFolded as e:
        parts = split(function.graph, function.manner)
        return IslandPrograms(function, parts, devices, str(e), recompile)
    return LanePrograms(function, folded, devices, recompile)


class LanePrograms(Programs):
    """The programs of a graph that was folded.

    What each lane has of an input is one part of an array over the mesh, along its first axis;
    scalars are parts of a vector.

    Args:
        function: What the graph is as it was written.
        folded: The graph that all lanes run.
        devices: The device of each lane.
        recompile: Whether calls with new sizes may compile, after the first.
    """

    def __init__(
        self,
        function: LoweredFunction,
        folded: Folded,
        devices: Sequence[Device],
        recompile: Recompile = "allow",
    ) -> None:
        super().__init__(function, devices[0].jax, recompile)
        self.folded = folded
        self.lane_devices = [d.jax for d in devices]
        self.mesh = Mesh(np.array(self.lane_devices, dtype=object), (LANES,))
        self.lane_function = to_jax(folded.graph, function.manner)
        self._all = NamedSharding(self.mesh, _ALL)
        self._each = NamedSharding(self.mesh, _EACH)
        self._zeros: dict[Any, jax.Array] = {}
        whole = {k for k, lane in folded.outputs if lane is None}
        self._out_specs = [_ALL if k in whole else _EACH for k in range(len(folded.graph.outputs))]
        inputs = list(zip(folded.graph.inputs, folded.inputs, strict=True))
        self._tensors = [s for v, s in inputs if not isinstance(v.type, BufferType)]
        self._buffers = [s for v, s in inputs if isinstance(v.type, BufferType)]

    # ---------------------------------------------------------------- weights

    def place(self, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """The weights on their devices: of each only the parts that a device needs go there."""
        self.bind(arrays.values())
        return tuple(self._placed(s, arrays) for s in self.folded.weights.values())

    def weights(self, placed: Sequence[Any]) -> dict[str, jax.Array]:
        """What :meth:`place` gave, by the names in the folded graph."""
        return dict(zip(self.folded.weights, placed, strict=True))

    def _placed(self, spread: Spread, arrays: Mapping[str, Any]) -> jax.Array:
        if spread.everywhere is not None:
            array = cut_out(spread.everywhere, arrays)
            return jax.device_put(settled(array), self._all)
        parts: list[Any] = []
        for lane, device in enumerate(self.lane_devices):
            piece = spread.lanes.get(lane)
            if piece is None:
                like = cut_out(next(iter(spread.lanes.values())), arrays)
                parts.append(self._nothing(like.shape, like.dtype, lane))
                continue
            parts.append(placed_piece(piece, arrays, device))
        return self._joined(parts)

    # ---------------------------------------------------------------- calls

    def _joined(self, parts: Sequence[jax.Array]) -> jax.Array:
        """One array over the mesh of what each lane has."""
        shape = parts[0].shape
        if not shape:
            parts = [jnp.reshape(p, (1,)) for p in parts]
            shape = (1,)
        whole = (shape[0] * len(parts), *shape[1:])
        return jax.make_array_from_single_device_arrays(whole, self._each, list(parts))

    def _nothing(self, shape: tuple[int, ...], dtype: Any, lane: int) -> jax.Array:
        """What a lane is given in the place of an input that it has not."""
        key = shape, np.dtype(dtype), lane
        found = self._zeros.get(key)
        if found is None:
            found = jnp.zeros(shape, dtype, device=self.lane_devices[lane])
            self._zeros[key] = found
        return found

    def _gathered(self, spread: Spread, arrays: Mapping[int, Any]) -> jax.Array:
        """An input of the folded graph of inputs of the source."""
        if spread.everywhere is not None:
            return jax.device_put(settled(arrays[spread.everywhere]), self._all)
        like = arrays[next(iter(spread.lanes.values()))]
        parts = []
        for lane, device in enumerate(self.lane_devices):
            if lane in spread.lanes:
                array = arrays[spread.lanes[lane]]
                if isinstance(array, jax.Array):
                    check_home(array, device)
                parts.append(jax.device_put(settled(array), device))
            else:
                made = self._nothing(tuple(like.shape), like.dtype, lane)
                parts.append(jnp.array(made, copy=True) if spread in self._buffers else made)
        return self._joined(parts)

    def _compiled(self, shapes: Shapes, weights: Any) -> Program:
        types = self._signature.inputs
        specs = []
        for group in (self._tensors, self._buffers):
            specs.append([self._spec(s, shapes[s.used[0]], types[s.used[0]]) for s in group])
        names = tuple(self.folded.weights)
        spreads = list(self.folded.weights.values())
        scalar_weights = [not s.type.shape and s.everywhere is None for s in spreads]
        scalars = [
            [not shapes[s.used[0]] and s.everywhere is None for s in group]
            for group in (self._tensors, self._buffers)
        ]

        def body(weights: Any, tensors: Any, states: Any) -> Any:
            own = [_local(w, s) for w, s in zip(weights, scalar_weights, strict=True)]
            given = [_local(t, s) for t, s in zip(tensors, scalars[0], strict=True)]
            kept = [_local(t, s) for t, s in zip(states, scalars[1], strict=True)]
            outputs, finals = self.lane_function(dict(zip(names, own, strict=True)), given, kept)
            made = [
                jnp.reshape(o, (1,)) if spec is _EACH and not o.shape else o
                for o, spec in zip(outputs, self._out_specs, strict=True)
            ]
            ends = [
                jnp.reshape(f, (1,)) if s else f for f, s in zip(finals, scalars[1], strict=True)
            ]
            return made, ends

        of = [[_ALL if s.everywhere is not None else _EACH for s in g] for g in
              (spreads, self._tensors, self._buffers)]  # fmt: skip
        sharded = jax.shard_map(
            body,
            mesh=self.mesh,
            in_specs=(tuple(of[0]), of[1], of[2]),
            out_specs=(self._out_specs, of[2]),
            check_vma=False,
        )

        def run(weights: Any, tensors: Any, states: Any) -> Any:
            return sharded(weights, tensors, states)

        run.__name__ = run.__qualname__ = self._signature.name or "graph"
        jitted = jax.jit(run, donate_argnums=(2,))
        compiled = jitted.lower(tuple(weights), *specs).compile()
        return functools.partial(self._run, compiled)

    def _spec(self, spread: Spread, shape: tuple[int, ...], type_: Any) -> Any:
        """What is known of an input of the folded graph before there is one."""
        if spread.everywhere is None:
            shape = (shape[0] * len(self.lane_devices), *shape[1:]) if shape else (
                len(self.lane_devices),
            )  # fmt: skip
        sharding = self._all if spread.everywhere is not None else self._each
        return jax.ShapeDtypeStruct(shape, type_.dtype.np, sharding=sharding)

    def _run(
        self,
        compiled: Callable[..., Any],
        weights: Any,
        tensors: Sequence[Any],
        states: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        is_buffer = self._signature.is_buffer
        rest, buffers = iter(tensors), iter(states)
        arrays = {i: next(buffers if b else rest) for i, b in enumerate(is_buffer)}
        given = [self._gathered(s, arrays) for s in self._tensors]
        kept = [self._gathered(s, arrays) for s in self._buffers]
        outputs, finals = compiled(weights, given, kept)
        types = self._signature.outputs
        found = [
            _part(outputs[k], lane or 0, not types[i].shape and self._out_specs[k] is _EACH)
            for i, (k, lane) in enumerate(self.folded.outputs)
        ]
        ends: dict[int, Any] = {}
        for spread, final in zip(self._buffers, finals, strict=True):
            if spread.everywhere is not None:
                ends[spread.everywhere] = _part(final, 0, False)
            for lane, i in spread.lanes.items():
                ends[i] = _part(final, lane, not arrays[i].shape)
        return found, [ends[i] for i, b in enumerate(is_buffer) if b]

    # ---------------------------------------------------------------- what it says of itself

    def plan(self) -> ExecutionPlan:
        """One program on all devices."""
        refs = [str(d) for d in self.folded.devices]
        types = self._signature.inputs
        return ExecutionPlan(
            path="one program on all devices",
            devices=tuple(refs),
            inputs=tuple(
                Placement(f"input{i}", type_text(t), str(t.device)) for i, t in enumerate(types)
            ),
            weights=tuple(self._weight(n, s, refs) for n, s in self.folded.weights.items()),
            collectives=tuple(
                Collective(
                    _KINDS[type(n.op)] if not getattr(n.op, "everywhere", False) else "broadcast",
                    type_text(n.operands[0].type),
                    _moved(n),
                    str(n.location or ""),
                )
                for n in self.folded.collectives
            ),
        )

    @staticmethod
    def _weight(name: str, spread: Spread, refs: Sequence[str]) -> Placement:
        size = type_bytes(spread.type) or 0
        if spread.everywhere is not None:
            where = f"each of {len(refs)} devices"
        elif len(spread.lanes) == len(refs):
            where = f"a part on each of {len(refs)} devices"
        else:
            where = ", ".join(refs[i] for i in sorted(spread.lanes))
        return Placement(name, type_text(spread.type), where, dict.fromkeys(refs, size))


_KINDS = {
    LaneSum: "all-reduce",
    LaneGather: "all-gather",
    LaneScatter: "reduce-scatter",
    LaneMove: "permute",
}


def _moved(node: Any) -> int | None:
    """What each device receives, in bytes."""
    type_ = node.operands[0].type
    if type_bytes(type_) is None:
        return None
    return node.op.moved(tuple(int(d) for d in type_.shape)) * type_.dtype.size_in_bytes


def _part(array: jax.Array, lane: int, scalar: bool) -> jax.Array:
    part = array.addressable_data(lane)
    return jnp.reshape(part, ()) if scalar else part


def _local(array: Any, scalar: bool) -> Any:
    return jnp.reshape(array, ()) if scalar else array
