# SPDX-License-Identifier: Apache-2.0
"""From a lowered graph to programs in bytes: ``jax.export``, and portable StableHLO."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax import export
from jax.sharding import AbstractMesh, NamedSharding

from maxjax.graph.dim import Dim
from maxjax.lower import Function, LoweredFunction, to_jax
from maxjax.lower.condition import Condition
from maxjax.lower.lane_ops import LANES
from maxjax.lower.spmd import LaneFunction, Part, arguments, layout_of
from maxjax.lower.symbolic import Symbols, asked, specs, symbols

__all__ = ["Program", "programs"]

# What XLA's programs call back into Python with, by JAX's name for it.
_CALLBACKS = ("callback", "debug_print", "outside_call")


@dataclasses.dataclass(frozen=True)
class Program:
    """A program in bytes.

    Attributes:
        sizes: The sizes it is specialised for.
        exported: What ``jax.export.deserialize`` reads.
        modules: Portable StableHLO for each platform, or for ``"all"`` where they do not differ.
        conditions: What sizes it is for.
    """

    sizes: Mapping[str, int]
    exported: bytes
    modules: Mapping[str, bytes]
    conditions: tuple[Condition, ...]


def programs(
    function: Function,
    conditions: Sequence[Condition],
    *,
    platforms: Sequence[str],
    specialize: Mapping[str, Sequence[int]],
    baked: Mapping[str, Any],
    custom_calls: Iterable[str],
) -> Iterator[Program]:
    """The program for all sizes, then one for each combination of the specialised ones.

    Args:
        function: What is exported.
        conditions: What sizes it is for.
        platforms: Where it is to run.
        specialize: For names of dimensions the sizes to write programs for.
        baked: The weights that become constants.
        custom_calls: The targets of foreign calls that the user answers for.

    Raises:
        ValueError: If a program cannot be written to a file; names the ops and what to do.
    """
    known = list(conditions)

    def program(sizes: Mapping[str, int]) -> Program:
        fixed = [Condition(Dim(n), "==", Dim(size)) for n, size in sizes.items()]
        found = symbols(function.signature, [*known, *fixed])
        return _program(function, sizes, found, platforms, baked, custom_calls)

    while True:
        try:
            whole = program({})
        except ValueError as e:
            condition = asked(e, function.signature)
            if condition is None or condition in known:
                raise
            known.append(condition)
            continue
        break
    yield whole
    for sizes in _combinations(specialize):
        yield program(sizes)


def _combinations(specialize: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    if specialize:
        for sizes in itertools.product(*specialize.values()):
            yield dict(zip(specialize, sizes, strict=True))


def _program(
    function: Function,
    sizes: Mapping[str, int],
    found: Symbols,
    platforms: Sequence[str],
    baked: Mapping[str, Any],
    custom_calls: Iterable[str],
) -> Program:
    signature = function.signature

    def run(weights: Any, inputs: Any, buffers: Any) -> Any:
        return function({**weights, **baked}, inputs, buffers)

    run.__name__ = run.__qualname__ = re.sub(r"\W", "_", signature.name) or "graph"
    kept = {n: t for n, t in signature.weights.items() if n not in baked}
    # Other consumers find their arguments by their places, so that none is left out.
    jitted = jax.jit(run, donate_argnums=(2,), keep_unused=True, **_shardings(function, kept))
    weights = dict(zip(kept, specs(kept.values(), found.sizes), strict=True))
    inputs, buffers = (
        specs(types, found.sizes) for types in arguments(signature, layout_of(function))
    )
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in custom_calls]

    def exported(platforms: Sequence[str]) -> export.Exported:
        write = export.export(jitted, platforms=platforms, disabled_checks=checks)
        return write(weights, inputs, buffers)

    with jax.enable_x64(True), _without_paths():
        _refuse_callbacks(function, jitted.trace(weights, inputs, buffers).jaxpr)
        try:
            whole = exported(platforms)
            single = {p: exported([p]).mlir_module_serialized for p in platforms[1:]}
            first = exported(platforms[:1]) if single else whole
            single = {platforms[0]: first.mlir_module_serialized, **single}
        except ValueError as e:
            raise _explained(function, e) from None
    modules: dict[str, bytes] = single
    if len(set(single.values())) == 1:
        modules = {"all": single[platforms[0]]}
    return Program(sizes, bytes(whole.serialize()), modules, found.conditions)


def _shardings(function: Function, weights: Iterable[str]) -> dict[str, Any]:
    """How arguments and results are spread over a mesh, if they are, for ``jax.jit``."""
    layout = layout_of(function)
    if layout is None:
        return {}
    mesh = AbstractMesh((len(layout.devices),), (LANES,))

    def of(parts: Iterable[Part]) -> list[NamedSharding]:
        return [NamedSharding(mesh, p.spec) for p in parts]

    own = list(weights)
    given = dict(zip(own, of(layout.weights[n] for n in own), strict=True))
    tensors, states = ([p for p, _ in g] for g in (layout.tensors, layout.buffers))
    return {
        "in_shardings": (given, of(tensors), of(states)),
        "out_shardings": (of(layout.outputs), of(states)),
    }


# ---------------------------------------------------------------- what cannot be in a file


def _refuse_callbacks(function: Function, jaxpr: Any) -> None:
    """Refuses programs that call back into Python.

    Raises:
        ValueError: Naming the ops, and where they were written.
    """
    if not list(_callbacks(jaxpr, "")):
        return
    located: Any = None
    if isinstance(function, LaneFunction):
        manner = dataclasses.replace(function.local.manner, locations=True)
        located = LaneFunction(function.folded, manner)
    elif isinstance(function, LoweredFunction):
        located = to_jax(function.graph, dataclasses.replace(function.manner, locations=True))
    if located is not None:
        jaxpr = _retraced(located)
    names = dict.fromkeys(_last(path) for path in _callbacks(jaxpr, ""))
    raise ValueError(
        "a program in a file cannot call back into Python, as these ops do: "
        f"{'; '.join(names)}; write the kernel with JAX, or leave it out of the exported graph"
    )


def _retraced(located: Any) -> Any:
    """The trace of the same graph with locations in its names."""
    sizes = symbols(located.signature, located.signature.conditions).sizes
    weights = located.signature.weights
    given = dict(zip(weights, specs(weights.values(), sizes), strict=True))
    inputs, buffers = (
        specs(types, sizes) for types in arguments(located.signature, layout_of(located))
    )
    return jax.jit(located.__call__).trace(given, inputs, buffers).jaxpr


def _callbacks(jaxpr: Any, path: str) -> Iterator[str]:
    """The name stacks of the equations that call back into Python, also in nested programs."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        here = f"{path}/{equation.source_info.name_stack}"
        if any(word in equation.primitive.name for word in _CALLBACKS):
            yield here
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                    yield from _callbacks(inner, here)


def _last(path: str) -> str:
    """The innermost op of a name stack."""
    return path.rstrip("/").rpartition("/")[2].replace("∕", "/") or "an op"


def _explained(function: Function, error: ValueError) -> ValueError:
    """The error for a program that JAX does not write, in this system's words."""
    told = str(error)
    if "no compatibility guarantees" not in told:
        return error
    calls = dict(re.findall(r'custom_call @"?([^\s"(]+)"?\(.* at loc\("([^"]*)"', told))
    named = ", ".join(f"{_caller(place)} calls {target}" for target, place in calls.items())
    return ValueError(
        f"graph {function.signature.name!r} makes foreign calls, which are not part of StableHLO: "
        f"{named}; no other process can be promised to have them. Where every reader of the "
        f"artifact registers them, say custom_calls={list(calls)!r}"
    )


def _caller(place: str) -> str:
    """The op of a name stack that ends in JAX's own operation."""
    return (place.rpartition("/")[0] or place).rpartition("/")[2]


# ---------------------------------------------------------------- equal files

_PATHS = threading.Lock()


@contextlib.contextmanager
def _without_paths() -> Iterator[None]:
    """While it lasts JAX writes no paths of source files into programs."""
    with _PATHS:
        before = jax.config.jax_traceback_in_locations_limit  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_traceback_in_locations_limit", 0)
        try:
            yield
        finally:
            jax.config.update("jax_traceback_in_locations_limit", before)
