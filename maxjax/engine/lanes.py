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
from maxjax.engine.pieces import check_home, placed_piece, settled
from maxjax.engine.plan import Collective, ExecutionPlan, Placement, type_bytes, type_text
from maxjax.engine.programs import Program, Programs, Recompile, Shapes
from maxjax.lower import Function
from maxjax.lower.fold import Folded, NotFolded, Spread, fold
from maxjax.lower.function import LoweredFunction
from maxjax.lower.lane_ops import LANES, LaneGather, LaneMove, LaneScatter, LaneSum
from maxjax.lower.pieces import cut_out
from maxjax.lower.split import split
from maxjax.lower.spmd import LaneFunction, Layout, Part

__all__ = ["LanePrograms", "spread"]


def spread(function: Function, devices: Sequence[Device], recompile: Recompile) -> Programs:
    """The programs of a function over several devices.

    Args:
        function: What is compiled: a lowered graph, or an artifact of one.
        devices: Where it runs: the accelerators it names, by number.
        recompile: Whether calls with new sizes may compile, after the first.
    """
    if not isinstance(function, LoweredFunction):
        return LanePrograms(function, function, devices, recompile)
    try:
        folded = fold(function.graph)
    except NotFolded as e:
        parts = split(function.graph, function.manner)
        return IslandPrograms(function, parts, devices, str(e), recompile)
    return LanePrograms(function, LaneFunction(folded, function.manner), devices, recompile)


class LanePrograms(Programs):
    """The programs of a function over a mesh.

    Args:
        function: What the graph is as it was written, or an artifact.
        lanes: What all lanes run; the artifact itself if that is it.
        devices: The device of each lane.
        recompile: Whether calls with new sizes may compile, after the first.
    """

    def __init__(
        self,
        function: Function,
        lanes: Any,
        devices: Sequence[Device],
        recompile: Recompile = "allow",
    ) -> None:
        super().__init__(function, devices[0].jax, recompile)
        self.lane_function = lanes
        self.layout: Layout = lanes.layout
        self.folded: Folded | None = getattr(lanes, "folded", None)
        self.lane_devices = [d.jax for d in devices]
        self.mesh = Mesh(np.array(self.lane_devices, dtype=object), (LANES,))
        self._all = NamedSharding(self.mesh, PartitionSpec())
        self._zeros: dict[Any, jax.Array] = {}

    # ---------------------------------------------------------------- weights

    def place(self, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """The weights on their devices: of each only the parts that a device needs go there."""
        self.bind(arrays.values())
        if self.folded is None:
            return tuple(
                jax.device_put(settled(arrays[n]), NamedSharding(self.mesh, p.spec))
                for n, p in self.layout.weights.items()
            )
        return tuple(
            self._placed(part, self.folded.weights[name], arrays)
            for name, part in self.layout.weights.items()
        )

    @property
    def exported(self) -> Any:
        """What an artifact of the model is."""
        return self.lane_function

    def weights(self, placed: Sequence[Any]) -> dict[str, jax.Array]:
        """What :meth:`place` gave, by the names that the program has for it."""
        return dict(zip(self.layout.weights, placed, strict=True))

    def _placed(self, part: Part, spread: Spread, arrays: Mapping[str, Any]) -> jax.Array:
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
        return self._joined(part, parts)

    # ---------------------------------------------------------------- calls

    def _joined(self, part: Part, arrays: Sequence[jax.Array]) -> jax.Array:
        """One array over the mesh of what each lane has."""
        if part.is_vector:
            arrays = [jnp.reshape(a, (1,)) for a in arrays]
        shape = list(arrays[0].shape)
        shape[part.axis or 0] *= len(self.lane_devices)
        sharding = NamedSharding(self.mesh, part.spec)
        return jax.make_array_from_single_device_arrays(tuple(shape), sharding, list(arrays))

    def _nothing(self, shape: tuple[int, ...], dtype: Any, lane: int) -> jax.Array:
        """What a lane is given in the place of an input that it has not."""
        key = shape, np.dtype(dtype), lane
        found = self._zeros.get(key)
        if found is None:
            found = jnp.zeros(shape, dtype, device=self.lane_devices[lane])
            self._zeros[key] = found
        return found

    def _gathered(
        self, part: Part, numbers: Sequence[int], arrays: Mapping[int, Any], *, own: bool
    ) -> jax.Array:
        """An input of the program of the model's inputs; ``own`` if it will be written over."""
        if part.axis is None:
            return jax.device_put(settled(arrays[numbers[0]]), self._all)
        like = arrays[next(n for n in numbers if n >= 0)]
        parts = []
        for lane, (device, number) in enumerate(zip(self.lane_devices, numbers, strict=True)):
            if number < 0:
                made = self._nothing(tuple(like.shape), like.dtype, lane)
                parts.append(jnp.array(made, copy=True) if own else made)
                continue
            array = arrays[number]
            if isinstance(array, jax.Array):
                check_home(array, device)
            parts.append(jax.device_put(settled(array), device))
        return self._joined(part, parts)

    def _compiled(self, shapes: Shapes, weights: Any) -> Program:
        layout = self.layout
        specs = [
            [self._spec(part, shapes[max(numbers)]) for part, numbers in group]
            for group in (layout.tensors, layout.buffers)
        ]
        inner = self.lane_function
        if isinstance(inner, LaneFunction):
            inner = inner.over(self.mesh)

        def run(weights: Any, tensors: Any, states: Any) -> Any:
            return inner(dict(zip(layout.weights, weights, strict=True)), tensors, states)

        run.__name__ = run.__qualname__ = self._signature.name or "graph"
        jitted = jax.jit(run, donate_argnums=(2,))
        compiled = jitted.lower(tuple(weights), *specs).compile()
        return functools.partial(self._run, compiled)

    def _spec(self, part: Part, shape: tuple[int, ...]) -> Any:
        """What is known of an input of the program before there is one."""
        whole = list(shape)
        if part.axis is not None:
            whole = whole or [1]
            whole[part.axis] *= len(self.lane_devices)
        sharding = NamedSharding(self.mesh, part.spec)
        return jax.ShapeDtypeStruct(tuple(whole), part.type.dtype.np, sharding=sharding)

    def _run(
        self,
        compiled: Callable[..., Any],
        weights: Any,
        tensors: Sequence[Any],
        states: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        layout, is_buffer = self.layout, self._signature.is_buffer
        rest, buffers = iter(tensors), iter(states)
        arrays = {i: next(buffers if b else rest) for i, b in enumerate(is_buffer)}
        given = [self._gathered(p, n, arrays, own=False) for p, n in layout.tensors]
        kept = [self._gathered(p, n, arrays, own=True) for p, n in layout.buffers]
        outputs, finals = compiled(weights, given, kept)
        found = [_part(outputs[k], lane, layout.outputs[k]) for k, lane in layout.results]
        ends: dict[int, Any] = {}
        for (part, numbers), final in zip(layout.buffers, finals, strict=True):
            for lane, number in enumerate(numbers):
                if number >= 0:
                    ends[number] = _part(final, lane, part)
        return found, [ends[i] for i, b in enumerate(is_buffer) if b]

    # ---------------------------------------------------------------- what it says of itself

    def plan(self) -> ExecutionPlan:
        """One program on all devices."""
        refs = [str(d) for d in self.layout.devices]
        types = self._signature.inputs
        nodes = [] if self.folded is None else self.folded.collectives
        return ExecutionPlan(
            path="one program on all devices",
            devices=tuple(refs),
            inputs=tuple(
                Placement(f"input{i}", type_text(t), str(t.device)) for i, t in enumerate(types)
            ),
            weights=tuple(self._weight(n, p, refs) for n, p in self.layout.weights.items()),
            collectives=tuple(
                Collective(
                    _KINDS[type(n.op)] if not getattr(n.op, "everywhere", False) else "broadcast",
                    type_text(n.operands[0].type),
                    _moved(n),
                    str(n.location or ""),
                )
                for n in nodes
            ),
        )

    @staticmethod
    def _weight(name: str, part: Part, refs: Sequence[str]) -> Placement:
        size = type_bytes(part.type) or 0
        where = "a part on each" if part.axis is not None else "each"
        return Placement(
            name, type_text(part.type), f"{where} of {len(refs)} devices", dict.fromkeys(refs, size)
        )


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


def _part(array: jax.Array, lane: int, part: Part) -> jax.Array:
    found = array.addressable_data(lane)
    return jnp.reshape(found, ()) if part.is_vector else found
