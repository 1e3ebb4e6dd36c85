# SPDX-License-Identifier: Apache-2.0
"""The compiled programs of a model: one for each set of sizes it is called with."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from maxjax.engine import cache
from maxjax.engine.plan import ExecutionPlan, Placement, type_bytes, type_text
from maxjax.engine.weights import placed_weight
from maxjax.graph.dim import SymbolicDim
from maxjax.graph.ir import warn
from maxjax.graph.type import Type
from maxjax.lower import Function
from maxjax.lower.dims import Sizes

__all__ = ["CompileStats", "Program", "Programs", "Recompile", "Shapes"]

# The shape of each input, buffers included, in order.
Shapes: TypeAlias = tuple[tuple[int, ...], ...]
# From weights, tensors and the buffers' contents to the outputs and the contents afterwards.
Program: TypeAlias = Callable[[Any, Sequence[Any], Sequence[Any]], tuple[list[Any], list[Any]]]
# What to do when a call has sizes for which nothing is compiled yet, after the first.
Recompile: TypeAlias = Literal["allow", "warn", "error"]


@dataclasses.dataclass(frozen=True)
class CompileStats:
    """What a model compiled, and how often that was used.

    Attributes:
        compiles: How many programs were compiled.
        hits: How many calls found their program compiled.
        seconds: The time that compiling took, tracing included.
        per_dims: The seconds of each program, by the sizes of the symbolic dimensions: the key for
            ``batch`` 8 and ``seq`` 128 is ``(("batch", 8), ("seq", 128))``.
        read: How many of the programs were read from the session's ``cache_dir``, where an earlier
            process left them.
    """

    compiles: int
    hits: int
    seconds: float
    per_dims: Mapping[tuple[tuple[str, int], ...], float]
    read: int = 0


class Programs:
    """The compiled programs of a function by the shapes of its inputs.

    Args:
        function: What is compiled.
        device: The ``jax.Device`` where it runs.
        recompile: Whether calls with new sizes may compile, after the first.

    Attributes:
        function: What is compiled.
        compiled: The programs so far.

    Raises:
        ValueError: If ``recompile`` is none of the three words.
    """

    def __init__(self, function: Function, device: Any, recompile: Recompile = "allow") -> None:
        if recompile not in ("allow", "warn", "error"):
            raise ValueError(f'recompile is "allow", "warn" or "error", not {recompile!r:.60}')
        self.function = function
        self._signature = function.signature
        self._device = device
        self._recompile: Recompile = recompile
        self._lock = threading.Lock()
        self.compiled: dict[Shapes, Program] = {}
        self._weights: list[tuple[str, Type, Any]] = []
        self._seconds: dict[tuple[tuple[str, int], ...], float] = {}
        self._calls = self._misses = self._read = 0

    def bind(self, weights: Iterable[Any]) -> None:
        """Says what sizes symbolic dimensions of weights have, before any input is known.

        Raises:
            ValueError: If a symbolic name has two sizes.
        """
        declared: list[tuple[str, Type, Any]] = [
            (f"weight {name!r}", type_, array.shape)
            for (name, type_), array in zip(self._signature.weights.items(), weights, strict=True)
            if any(isinstance(d, SymbolicDim) for d in type_.shape)
        ]
        Sizes().bind_all(declared)
        self._weights = declared

    def place(self, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """The weights as programs take them, on the device.

        Args:
            arrays: An array for each weight name.

        Raises:
            ValueError: If a symbolic name has two sizes.
        """
        placed = {n: placed_weight(arrays[n], self._device) for n in self._signature.weights}
        self.bind(placed.values())
        # Those that a program takes as a stack are kept as one only.
        return tuple(
            jnp.stack([placed[n] for n in key]) if isinstance(key, tuple) else placed[key]
            for key in self.function.weight_keys
        )

    def weights(self, placed: Sequence[Any]) -> dict[str, jax.Array]:
        """What :meth:`place` gave, by name."""
        found = {}
        for key, array in zip(self.function.weight_keys, placed, strict=True):
            found |= dict(zip(key, array, strict=True)) if isinstance(key, tuple) else {key: array}
        return {name: found[name] for name in self._signature.weights}

    @property
    def exported(self) -> Function:
        """What an artifact of the model is."""
        return self.function

    def plan(self) -> ExecutionPlan:
        """Where it runs, and what is there."""
        signature = self._signature
        gpu = next((str(d) for d in signature.devices if d.is_gpu()), "cpu:0")
        return ExecutionPlan(
            path="one device",
            devices=(gpu,),
            inputs=tuple(
                Placement(f"input{i}", type_text(t), gpu) for i, t in enumerate(signature.inputs)
            ),
            weights=tuple(
                Placement(n, type_text(t), gpu, {gpu: type_bytes(t) or 0})
                for n, t in signature.weights.items()
            ),
        )

    def known(self, shapes: Shapes) -> Program | None:
        """The program for a call with inputs of these shapes, if it is compiled already."""
        program = self.compiled.get(shapes)
        self._calls += program is not None
        return program

    def find(self, shapes: Shapes, weights: Any) -> Program:
        """The program for a call with inputs of these shapes, compiled if it is not yet.

        Raises:
            ValueError: If a shape is not as declared, or a symbolic name has two sizes.
            RuntimeError: If it would have to be compiled and must not.
        """
        self._calls += 1
        program = self.compiled.get(shapes)
        if program is None:
            self._misses += 1
            policy: Recompile = self._recompile if self.compiled else "allow"
            program = self.compile(shapes, weights, policy)
        return program

    def compile(self, shapes: Shapes, weights: Any, policy: Recompile = "allow") -> Program:
        """The program for inputs of these shapes; each is compiled once, whoever asks first.

        Raises:
            ValueError: If a shape is not as declared, or a symbolic name has two sizes.
            RuntimeError: If the policy is "error" and it is not compiled yet.
        """
        sizes = self.sizes(shapes)
        with self._lock:
            program = self.compiled.get(shapes)
            if program is not None:
                return program
            if policy != "allow":
                text = self._why(sizes)
                if policy == "error":
                    raise RuntimeError(text)
                warn(text)
            start, read = time.perf_counter(), cache.hits()
            program = self._compiled(shapes, weights)
            self._read += cache.hits() > read
            self._seconds[sizes] = time.perf_counter() - start
            self.compiled[shapes] = program
        return program

    def shapes(self, sizes: Mapping[str, Sequence[int]]) -> Iterator[Shapes]:
        """The inputs' shapes for each combination of the given sizes of symbolic dimensions.

        Raises:
            ValueError: If a name is unknown or one is missing, or a size is no number.
        """
        known = Sizes()
        known.bind_all(self._weights)
        names = {p.name for t in self._signature.inputs for p in t.parameters} - known.keys()
        if names != sizes.keys():
            raise ValueError(
                f"model {self._signature.name!r} needs sizes of the dimensions "
                f"{_listed(names)}, got {_listed(sizes)}"
            )
        for name, values in sizes.items():
            for n in values:
                if not isinstance(n, int) or isinstance(n, bool) or n < 0:
                    raise ValueError(f"a size of {name!r} is a number from 0 up, not {n!r:.60}")
        for combination in itertools.product(*sizes.values()):
            env = {**known, **dict(zip(sizes, combination, strict=True))}
            yield tuple(t.shape.evaluate(env) for t in self._signature.inputs)

    @property
    def stats(self) -> CompileStats:
        """What was compiled so far."""
        with self._lock:
            seconds = dict(self._seconds)
        return CompileStats(
            len(seconds), self._calls - self._misses, sum(seconds.values()), seconds, self._read
        )

    def sizes(self, shapes: Shapes) -> tuple[tuple[str, int], ...]:
        """The size of each symbolic dimension, checked against all that is declared.

        Raises:
            ValueError: If a shape is not as declared, or a symbolic name has two sizes.
        """
        sizes = Sizes()
        inputs = [
            (f"input{i}", type_, shape)
            for i, (type_, shape) in enumerate(zip(self._signature.inputs, shapes, strict=True))
        ]
        sizes.bind_all([*inputs, *self._weights])
        for condition in self._signature.conditions:
            if not condition.holds(sizes):
                given = ", ".join(f"{n} = {sizes[n]}" for n in sorted(condition.names))
                raise ValueError(
                    f"model {self._signature.name!r} is for sizes with {condition}, got {given}"
                )
        return tuple(sorted(sizes.items()))

    def _why(self, sizes: tuple[tuple[str, int], ...]) -> str:
        """What is new about these sizes, compared with the program that is most like them."""
        nearest = max(self._seconds, key=lambda known: len(set(known) & set(sizes)))
        new = [
            f"{name} is {size}, was {dict(nearest)[name]}"
            for name, size in sizes
            if dict(nearest)[name] != size
        ]
        return (
            f"model {self._signature.name!r} must be compiled again: {', '.join(new)}; compile "
            "beforehand with model.warmup(...), or allow it with recompile='allow'"
        )

    def _compiled(self, shapes: Shapes, weights: Any) -> Program:
        signature = self._signature
        place = jax.sharding.SingleDeviceSharding(self._device)
        specs = [
            jax.ShapeDtypeStruct(shape, type_.dtype.np, sharding=place)
            for type_, shape in zip(signature.inputs, shapes, strict=True)
        ]
        tensors = [s for s, b in zip(specs, signature.is_buffer, strict=True) if not b]
        states = [s for s, b in zip(specs, signature.is_buffer, strict=True) if b]
        keys = self.function.weight_keys

        def run(weights: Any, tensors: Any, states: Any) -> Any:
            return self.function(dict(zip(keys, weights, strict=True)), tensors, states)

        run.__name__ = run.__qualname__ = signature.name or "graph"
        jitted = jax.jit(run, donate_argnums=(2,))
        return jitted.lower(weights, tensors, states).compile()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
