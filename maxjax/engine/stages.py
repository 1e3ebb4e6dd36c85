# SPDX-License-Identifier: Apache-2.0
"""Running graphs with sizes that depend on values: part by part, with sizes read in between."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from maxjax.driver import Device
from maxjax.engine.buckets import Plan, next_size
from maxjax.engine.inputs import unaliased
from maxjax.engine.lanes import spread
from maxjax.engine.programs import CompileStats, Program, Programs, Recompile, Shapes
from maxjax.graph.dim import UnboundDimError
from maxjax.graph.type import BufferType
from maxjax.lower import Function, LoweredFunction
from maxjax.lower.padding import Padding
from maxjax.lower.stages import Made, Stage, Stages, stages

__all__ = ["StagedPrograms", "programs"]


def programs(function: Function, devices: Sequence[Device], recompile: Recompile) -> Programs:
    """The programs of a function: in parts, if it has sizes that depend on values.

    Args:
        function: What is compiled.
        devices: Where it runs.
        recompile: Whether calls with new sizes may compile, after the first.

    Raises:
        ValueError: If such a size is made inside a branch or a loop, or ``recompile`` is none of
            the three words.
    """
    if len(devices) > 1:
        return spread(function, devices, recompile)
    (device,) = devices
    found = stages(function) if isinstance(function, LoweredFunction) else None
    if found is None:
        return Programs(function, device.jax, recompile)
    return StagedPrograms(found, device, recompile)


class _Part(Programs):
    """The programs of one part, by the shapes of its inputs."""

    def __init__(self, stage: Stage, device: Device, recompile: Recompile) -> None:
        super().__init__(stage.function, device.jax, recompile)
        self.stage = stage
        self.on_host = device.is_host
        self._plans: dict[Shapes, Plan | None] = {}

    @functools.cached_property
    def _proof(self) -> Padding | None:
        return self.stage.padding()

    def forget(self) -> None:
        """Drops what was found out so far, as when weights have other sizes."""
        self._plans.clear()

    def plan(self, shapes: Shapes) -> Plan | None:
        """How inputs of these shapes are padded, so that few programs serve all sizes; if so."""
        if shapes not in self._plans:
            proof = self._proof
            self._plans[shapes] = None if proof is None else self._planned(proof, shapes)
        return self._plans[shapes]

    def _planned(self, proof: Padding, shapes: Shapes) -> Plan | None:
        sizes = dict(self.sizes(shapes))
        # By JAX's names; those that are computed from others are none of them.
        real = {s.text: sizes[n] for n, s in proof.sizes.items() if s.text in s.names}
        padded = dict(real)
        for dim in proof.dims.values():
            padded[dim] = next_size("pow2", real[dim])
        larger = {name: s.at(padded) for name, s in proof.sizes.items()}
        if larger == sizes or not (
            proof.holds(sizes) and proof.holds(larger) and proof.may_become(real, padded)
        ):
            return None
        return Plan(
            tuple(t.shape.evaluate(larger) for t in self.function.signature.inputs),
            tuple(tuple(n.at(real) for n in shape) for shape in proof.outputs),
        )

    def _compiled(self, shapes: Shapes, weights: Any) -> Program:
        donated = self._donated(shapes)
        if not donated:
            return super()._compiled(shapes, weights)
        signature, keys = self.function.signature, self.function.weight_keys
        place = jax.sharding.SingleDeviceSharding(self._device)
        specs = [
            jax.ShapeDtypeStruct(shape, type_.dtype.np, sharding=place)
            for type_, shape in zip(signature.inputs, shapes, strict=True)
        ]
        count = len(specs) - len(self.stage.buffers)
        tensors, states = specs[:count], specs[count:]

        def run(weights: Any, kept: Any, given: Any, states: Any) -> Any:
            arrays = _merged(kept, given, donated)
            return self.function(dict(zip(keys, weights, strict=True)), arrays, states)

        run.__name__ = run.__qualname__ = signature.name or "graph"
        jitted = jax.jit(run, donate_argnums=(2, 3))
        compiled = jitted.lower(weights, *_parted(tensors, donated), states).compile()

        def program(weights: Any, tensors: Sequence[Any], states: Sequence[Any]) -> Any:
            return compiled(weights, *_parted(tensors, donated), states)

        return program

    def _donated(self, shapes: Shapes) -> frozenset[int]:
        """The places of tensors whose memory results can have: nobody needs them afterwards."""
        signature, stage = self.function.signature, self.stage
        sizes = dict(self.sizes(shapes))
        free: collections.Counter[Any] = collections.Counter()
        for type_ in signature.outputs:
            try:
                free[tuple(type_.shape.evaluate(sizes)), type_.dtype] += 1
            except UnboundDimError:
                continue  # a size that is made in this part
        taken = list(zip(shapes, signature.inputs, strict=True))
        for shape, type_ in taken:
            if isinstance(type_, BufferType):
                free.pop((shape, type_.dtype), None)  # the buffer's own contents go there
        found = set()
        for i, (value, (shape, type_)) in enumerate(zip(stage.takes, taken, strict=False)):
            if id(value) in stage.last and free[shape, type_.dtype] > 0:
                free[shape, type_.dtype] -= 1
                found.add(i)
        return frozenset(found)


def _parted(arrays: Sequence[Any], places: frozenset[int]) -> tuple[list[Any], list[Any]]:
    kept = [a for i, a in enumerate(arrays) if i not in places]
    return kept, [a for i, a in enumerate(arrays) if i in places]


def _merged(kept: Sequence[Any], given: Sequence[Any], places: frozenset[int]) -> list[Any]:
    others, chosen = iter(kept), iter(given)
    return [next(chosen if i in places else others) for i in range(len(kept) + len(given))]


class StagedPrograms(Programs):
    """The programs of a graph in parts.

    Args:
        found: The parts.
        device: Where they run.
        recompile: Whether calls with new sizes may compile, after the first.
    """

    def __init__(self, found: Stages, device: Device, recompile: Recompile = "allow") -> None:
        super().__init__(found.function, device.jax, recompile)
        self._calls = self._misses = 0
        self._graph = found.function.graph
        self._parts = [_Part(s, device, recompile) for s in found.parts]
        places = {key: i for i, key in enumerate(self.function.weight_keys)}
        self._places = [[places[k] for k in p.function.weight_keys] for p in self._parts]
        self._known: dict[Shapes, dict[str, int]] = {}
        uses = collections.Counter(id(v) for p in self._parts for v in p.stage.takes)
        self._reused = {v for v, n in uses.items() if n > 1}

    def bind(self, weights: Iterable[Any]) -> None:
        """Says what sizes symbolic dimensions of weights have, to all parts.

        Raises:
            ValueError: If a symbolic name has two sizes.
        """
        arrays = list(weights)
        super().bind(arrays)
        by_name = dict(zip(self._signature.weights, arrays, strict=True))
        for part in self._parts:
            part.bind(by_name[n] for n in part.function.signature.weights)
            part.forget()
        self._known.clear()

    def find(self, shapes: Shapes, weights: Any) -> Program:
        """What runs all parts, for a call with inputs of these shapes.

        The first part is compiled, if it is not yet; the others when their sizes are known.

        Raises:
            ValueError: If a shape is not as declared, or a symbolic name has two sizes.
            RuntimeError: If the first part would have to be compiled and must not.
        """
        self._calls += 1
        sizes = self._known.get(shapes)
        if sizes is None:
            sizes = self._known[shapes] = dict(self.sizes(shapes))
        first = self._parts[0]
        own = self._shapes_of(first, sizes)
        fresh = own not in first.compiled
        first.find(own, self._weights_of(0, weights))
        return functools.partial(self._run, sizes, fresh)

    def compile(self, shapes: Shapes, weights: Any, policy: Recompile = "allow") -> Program:
        """Compiles the first part; the sizes of the others come with the values.

        Raises:
            ValueError: If a shape is not as declared, or a symbolic name has two sizes.
            RuntimeError: If the policy is "error" and it is not compiled yet.
        """
        sizes = dict(self.sizes(shapes))
        first = self._parts[0]
        first.compile(self._shapes_of(first, sizes), self._weights_of(0, weights), policy)
        return functools.partial(self._run, sizes, False)

    @staticmethod
    def _shapes_of(part: _Part, sizes: dict[str, int]) -> Shapes:
        return tuple(tuple(t.shape.evaluate(sizes)) for t in part.function.signature.inputs)

    def _weights_of(self, k: int, weights: Any) -> tuple[Any, ...]:
        return tuple(weights[i] for i in self._places[k])

    @property
    def stats(self) -> CompileStats:
        """What was compiled so far; the parts that are for the same sizes count as one in dims."""
        each = [p.stats for p in self._parts]
        seconds: collections.Counter[Any] = collections.Counter()
        for s in each:
            seconds.update(s.per_dims)
        return CompileStats(
            sum(s.compiles for s in each),
            self._calls - self._misses,
            sum(s.seconds for s in each),
            dict(seconds),
            sum(s.read for s in each),
        )

    # ---------------------------------------------------------------- a call

    def _run(
        self,
        sizes: dict[str, int],
        fresh: bool,
        weights: Any,
        tensors: Sequence[Any],
        states: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        inputs = self._graph.inputs
        call = _Call(sizes)
        remaining, buffers = iter(tensors), iter(states)
        for value in inputs:
            if isinstance(value.type, BufferType):
                call.contents[id(value)] = next(buffers)
                continue
            array = next(remaining)
            if isinstance(array, np.ndarray) and id(value) in self._reused:
                array = jax.device_put(array, self._device)
            call.arrays[id(value)] = array
        try:
            for k, part in enumerate(self._parts):
                fresh |= call.run(part, self._weights_of(k, weights))
        finally:
            # A caller's buffer is what the parts that ran made of it, also if a later one fails.
            finals = [call.contents[id(v)] for v in inputs if isinstance(v.type, BufferType)]
            if isinstance(states, list):
                states[:] = finals
            self._misses += int(fresh)
        given = {id(v) for v in inputs}
        outputs = []
        for value in self._graph.outputs:
            array = call.of(value)
            if id(value) in given and not isinstance(value.type, BufferType):
                # What is an input is not the caller's array itself.
                array = jax.device_put(array, self._device, may_alias=False)
            given.add(id(value))
            outputs.append(array)
        return outputs, finals


class _Call:
    """The values of a call while its parts run."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = dict(sizes)
        self.arrays: dict[int, Any] = {}
        self.contents: dict[int, Any] = {}
        self._makers: dict[str, Made] = {}

    def of(self, value: Any) -> Any:
        return (self.contents if isinstance(value.type, BufferType) else self.arrays)[id(value)]

    def run(self, part: _Part, weights: Any) -> bool:
        """Runs a part and reads the sizes it made; whether it had to be compiled."""
        stage = part.stage
        arrays = [self.arrays[id(v)] for v in stage.takes]
        arrays += [np.zeros((self.sizes[n], 0), np.bool_) for n in stage.names]
        states = unaliased([self.contents[id(v)] for v in stage.buffers], arrays)
        shapes = tuple(tuple(a.shape) for a in (*arrays, *states))
        plan = part.plan(shapes) if stage.rests else None
        if plan:
            shapes = plan.shapes
            arrays = plan.pad([*arrays, *states], part.on_host)[: len(arrays)]
        fresh = shapes not in part.compiled
        program = part.find(shapes, weights)
        for v in stage.last:
            del self.arrays[v]
        outputs, finals = program(weights, arrays, states)
        del arrays
        if plan:
            outputs = plan.cut(outputs, part.on_host)
        for value, array in zip(stage.buffers, finals, strict=True):
            self.contents[id(value)] = array
        for value, array in zip(stage.gives, outputs, strict=False):
            is_buffer = isinstance(value.type, BufferType)
            (self.contents if is_buffer else self.arrays)[id(value)] = array
        if stage.made:
            self._read(stage.made, outputs[len(stage.gives) :])
        return fresh

    def _read(self, makers: Sequence[Made], counts: Sequence[Any]) -> None:
        """Reads sizes, all at once.

        Raises:
            ValueError: If one is no size, or a name has two.
        """
        read = iter(jax.device_get(list(counts)))
        for made in makers:
            for name in made.names:
                count = int(next(read))
                if count < 0:
                    raise made.wrong(f"its operands' values allow no size {name!r} of the result")
                other = self._makers.setdefault(name, made)
                if self.sizes.setdefault(name, count) != count:
                    place = f" at {other.node.location}" if other is not made else ""
                    raise made.wrong(
                        f"dimension {name!r} has two sizes: {self.sizes[name]} from "
                        f"{other.node.op.mnemonic}{place}, and {count} here; give one of them a "
                        "name of its own"
                    )
