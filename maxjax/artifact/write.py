# SPDX-License-Identifier: Apache-2.0
"""Writing artifacts: a function and its weights as one file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy.typing as npt

from maxjax import __version__
from maxjax.artifact.archive import write
from maxjax.artifact.manifest import PLATFORMS, Manifest, ProgramEntry, WeightEntry
from maxjax.artifact.program import Program, programs
from maxjax.artifact.reader import MANIFEST, WEIGHTS
from maxjax.artifact.weights import written
from maxjax.graph.graph import Graph, callees
from maxjax.graph.ir import warn
from maxjax.graph.ops.debug import Print
from maxjax.lower import Function, LoweredFunction, Manner, Signature, to_jax
from maxjax.lower.condition import Condition
from maxjax.lower.spmd import LaneFunction, layout_of, one_program
from maxjax.lower.symbolic import needed

__all__ = ["write_artifact"]


def write_artifact(
    function: Function,
    path: str | os.PathLike[str],
    arrays: Mapping[str, npt.NDArray[Any]] | None = None,
    *,
    platforms: Sequence[str] = PLATFORMS,
    specialize: Mapping[str, Sequence[int]] | None = None,
    conditions: Iterable[str] = (),
    counts: Sequence[str] = (),
    bake: Iterable[str] = (),
    debug_info: bool = False,
    custom_calls: Iterable[str] = (),
) -> Path:
    """Writes a function as an artifact.

    Args:
        function: What is written.
        path: The file; it is written beside and renamed.
        arrays: The weights, all that the function has or none.
        platforms: Where it is to run.
        specialize: For names of dimensions the sizes to add programs for.
        conditions: What sizes it is for, beyond what its types need.
        counts: The sizes that depend on values, which the last outputs tell in this order.
        bake: The names of weights that become constants.
        debug_info: Whether the program names the user's files and lines.
        custom_calls: The targets of foreign calls that every reader will have registered.

    Raises:
        ValueError: If an op cannot be exported, or a platform, a name or a condition is none.
        OSError: If the file cannot be written.
    """
    function = one_program(function)
    signature = function.signature
    platforms = _platforms(platforms)
    known = [*signature.conditions, *(Condition.parse(c) for c in conditions)]
    if isinstance(function, LoweredFunction):
        known = [*needed(function), *known]
        _warn_prints(function.graph)
        function = to_jax(function.graph, Manner(prints=False, locations=debug_info))
    elif isinstance(function, LaneFunction):
        known = [*needed(function.local), *known]
        function = LaneFunction(function.folded, Manner(prints=False, locations=debug_info))
    layout = layout_of(function)
    kept = dict(arrays or {})
    baked = {name: kept.pop(name) for name in _named("bake", bake, kept)}
    made = list(
        programs(
            function,
            list({str(c): c for c in known}.values()),
            platforms=platforms,
            specialize=_specialized(specialize or {}, signature),
            baked=baked,
            custom_calls=tuple(custom_calls),
        )
    )
    members: dict[str, tuple[int, Iterable[Any]]] = {}
    entries = tuple(_added(members, p) for p in made)
    hashes: dict[str, str] = {}
    header_hash = ""
    if kept:
        header, hashes, size, pieces = written(kept)
        header_hash = hashlib.sha256(header).hexdigest()
        members[WEIGHTS] = size, pieces
    manifest = Manifest(
        signature.name,
        {"maxjax": __version__, "jax": jax.__version__, "jaxlib": metadata.version("jaxlib")},
        tuple(platforms),
        1 if layout is None else len(layout.devices),
        "highest",
        signature.inputs,
        signature.outputs,
        signature.returned,
        tuple(counts),
        made[0].conditions,
        entries,
        {
            name: WeightEntry(type_, hashes.get(name, ""))
            for name, type_ in sorted(signature.weights.items())
            if name not in baked
        },
        header_hash,
        layout,
    )
    text = manifest.dump().encode()
    target = Path(path)
    write(target, {MANIFEST: (len(text), [text]), **members})
    return target


def _warn_prints(graph: Graph) -> None:
    nodes = (n for g in (*callees(graph), graph) for n in g.body.walk())
    prints = [n for n in nodes if isinstance(n.op, Print)]
    if prints:
        places = ", ".join(dict.fromkeys(str(n.location) for n in prints if n.location))
        warn(
            f"an artifact does not print: {len(prints)} ops.print are left out"
            f"{f' (at {places})' if places else ''}"
        )


def _platforms(platforms: Sequence[str]) -> tuple[str, ...]:
    found = (platforms,) if isinstance(platforms, str) else tuple(platforms)
    wrong = [p for p in found if p not in PLATFORMS]
    if wrong or not found:
        raise ValueError(
            f"platforms are of {', '.join(PLATFORMS)}, got {', '.join(map(repr, wrong)) or 'none'}"
        )
    return tuple(p for p in PLATFORMS if p in found)


def _named(what: str, names: Iterable[str], known: Mapping[str, Any]) -> list[str]:
    """Names that are all known.

    Raises:
        ValueError: If one is not.
    """
    found = [names] if isinstance(names, str) else list(names)
    for name in found:
        if name not in known:
            there = ", ".join(known) or "none that is given"
            raise ValueError(f"{what}: there is no weight {name!r}; the weights are {there:.500}")
    return found


def _specialized(
    specialize: Mapping[str, Sequence[int]], signature: Signature
) -> Mapping[str, Sequence[int]]:
    """Sizes to write programs for.

    Raises:
        ValueError: If a name is none of an input's or weight's dimensions, or a size no number.
    """
    types = (*signature.inputs, *signature.weights.values())
    known = {p.name for t in types for p in t.parameters}
    for name, sizes in specialize.items():
        if name not in known:
            there = ", ".join(sorted(known)) or "all numbers"
            raise ValueError(f"specialize: there is no dimension {name!r}; they are {there}")
        for size in sizes:
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise ValueError(f"specialize: a size of {name!r} is a number, not {size!r:.60}")
    return specialize


def _added(members: dict[str, tuple[int, Iterable[Any]]], program: Program) -> ProgramEntry:
    """A program among the members of the file, and its entry in the manifest."""
    folder = "".join(f"{name}={size}," for name, size in program.sizes.items()).rstrip(",")
    prefix = f"specialized/{folder}/" if folder else ""

    def add(name: str, content: bytes) -> tuple[str, str]:
        members[prefix + name] = len(content), [content]
        return prefix + name, hashlib.sha256(content).hexdigest()

    member, sha256 = add("module.jax_export", program.exported)
    modules = {
        platform: add("module.mlirbc" if platform == "all" else f"module.{platform}.mlirbc", code)
        for platform, code in program.modules.items()
    }
    return ProgramEntry(program.sizes, member, sha256, modules)
