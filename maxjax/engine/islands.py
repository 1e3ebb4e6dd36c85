# SPDX-License-Identifier: Apache-2.0
"""Programs on several devices, one for each device at a time, with transfers between."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from maxjax.driver import Device
from maxjax.engine.pieces import check_home, placed_piece, settled
from maxjax.engine.plan import ExecutionPlan, Placement, type_bytes, type_text
from maxjax.engine.programs import Program, Programs, Recompile, Shapes
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import SymbolicDim
from maxjax.graph.type import BufferType
from maxjax.lower.function import LoweredFunction
from maxjax.lower.split import Island, Split
from maxjax.lower.spmd import no_program

__all__ = ["IslandPrograms"]


class IslandPrograms(Programs):
    """The programs of a graph in parts for one device each.

    Args:
        function: What the graph is as it was written.
        found: The parts.
        devices: The accelerators it names, by number.
        reason: Why it is no single program.
        recompile: Whether calls with new sizes may compile, after the first.
    """

    def __init__(
        self,
        function: LoweredFunction,
        found: Split,
        devices: Sequence[Device],
        reason: str,
        recompile: Recompile = "allow",
    ) -> None:
        super().__init__(function, devices[0].jax, recompile)
        self.split = found
        self.reason = reason
        self._refs = {DeviceRef.from_device(d): d for d in devices}
        self._jitted = [self._program(island) for island in found.islands]

    def _home(self, ref: DeviceRef) -> Any:
        """The ``jax.Device`` of a device; the host's ops run on the first accelerator."""
        device = self._refs.get(ref)
        return self._device if device is None else device.jax

    @staticmethod
    def _program(island: Island) -> Any:
        function = island.function

        def run(weights: Any, tensors: Any, states: Any, here: Any) -> Any:
            del here  # says where it runs, if nothing else does
            return function(dict(zip(island.weights, weights, strict=True)), tensors, states)

        run.__name__ = run.__qualname__ = function.signature.name or "graph"
        return jax.jit(run, donate_argnums=(2,))

    # ---------------------------------------------------------------- weights

    def place(self, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """The weights on their devices, for each part those that it uses."""
        self.bind(arrays.values())
        known: dict[Any, jax.Array] = {}
        found = []
        for island in self.split.islands:
            own = []
            for piece, _ in island.weights.values():
                key = piece, island.device
                if key not in known:
                    known[key] = placed_piece(piece, arrays, self._home(island.device))
                own.append(known[key])
            found.append(tuple(own))
        return tuple(found)

    def weights(self, placed: Sequence[Any]) -> dict[str, jax.Array]:
        """What :meth:`place` gave, by the names in the parts."""
        return {
            f"{island.device}/{name}": array
            for island, own in zip(self.split.islands, placed, strict=True)
            for name, array in zip(island.weights, own, strict=True)
        }

    # ---------------------------------------------------------------- calls

    def _compiled(self, shapes: Shapes, weights: Any) -> Program:
        sizes = dict(self.sizes(shapes))
        return functools.partial(self._run, sizes)

    def _run(
        self,
        known: Mapping[str, int],
        weights: Any,
        tensors: Sequence[Any],
        states: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        sizes = dict(known)
        arrays: dict[int, Any] = {}
        contents: dict[int, Any] = {}
        rest, buffers = iter(tensors), iter(states)
        inputs = self.split.graph.inputs
        for value in inputs:
            if isinstance(value.type, BufferType):
                contents[id(value)] = next(buffers)
                continue
            array = next(rest)
            home = self._home(value.type.device)
            on_lane = value.type.device in self._refs
            if on_lane and isinstance(array, jax.Array) and array.committed:
                check_home(array, home)
            arrays[id(value)] = jax.device_put(settled(array), home)
        for island, jitted, own in zip(self.split.islands, self._jitted, weights, strict=True):
            device = self._home(island.device)
            given = [jax.device_put(arrays[id(v)], device) for v in island.takes]
            given += [np.zeros((sizes[n], 0), np.bool_) for n in island.names]
            kept = [contents[id(v)] for v in island.buffers]
            kept = [jax.device_put(k, device) for k in kept]
            here = jax.device_put(np.zeros((), np.bool_), device)
            outputs, finals = jitted(own, given, kept, here)
            for value in island.takes:
                if id(value) in island.last:
                    arrays.pop(id(value), None)
            for value, array in zip(island.buffers, finals, strict=True):
                contents[id(value)] = array
            for value, array in zip(island.gives, outputs, strict=True):
                is_buffer = isinstance(value.type, BufferType)
                (contents if is_buffer else arrays)[id(value)] = array
                for dim, size in zip(value.type.shape, array.shape, strict=True):
                    if isinstance(dim, SymbolicDim):
                        sizes.setdefault(dim.name, size)
        found = []
        for value in self.split.graph.outputs:
            array = (contents if isinstance(value.type, BufferType) else arrays)[id(value)]
            found.append(jax.device_put(array, self._home(value.type.device)))
        return found, [contents[id(v)] for v in inputs if isinstance(v.type, BufferType)]

    # ---------------------------------------------------------------- what it says of itself

    @property
    def exported(self) -> Any:
        """Nothing: an artifact is one program.

        Raises:
            ValueError: Always; says why it is none.
        """
        raise no_program(self._signature.name, self.reason)

    def plan(self) -> ExecutionPlan:
        """A program for each device, and why."""
        refs = list(self._refs)
        weights: dict[tuple[str, Any, DeviceRef], Placement] = {}
        for island in self.split.islands:
            ref = island.device if island.device in self._refs else refs[0]
            for name, (piece, type_) in island.weights.items():
                size = {str(ref): type_bytes(type_) or 0}
                weights[name, piece, ref] = Placement(name, type_text(type_), str(ref), size)
        return ExecutionPlan(
            path="a program for each device",
            devices=tuple(map(str, refs)),
            inputs=tuple(
                Placement(f"input{i}", type_text(t), str(t.device))
                for i, t in enumerate(self._signature.inputs)
            ),
            weights=tuple(weights.values()),
            reason=self.reason,
        )
