# SPDX-License-Identifier: Apache-2.0
"""Writing artifacts."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from maxjax import __version__
from maxjax.engine.model import Model
from maxjax.engine.weights import bind
from maxjax.export.archive import write
from maxjax.export.artifact import MANIFEST, WEIGHTS
from maxjax.export.manifest import PLATFORMS, Manifest, ProgramEntry, WeightEntry
from maxjax.export.program import Program, programs
from maxjax.export.weights import written
from maxjax.graph.graph import Graph, callees
from maxjax.graph.ir import Node
from maxjax.graph.module import Module
from maxjax.graph.ops.debug import Print
from maxjax.lower import Function, LoweredFunction, Manner, Signature, to_jax
from maxjax.lower.condition import Condition
from maxjax.lower.symbolic import needed

__all__ = ["save"]


def save(
    model: Graph | Module | Model,
    path: str | os.PathLike[str],
    *,
    weights_registry: Mapping[str, Any] | None = None,
    platforms: Sequence[str] = PLATFORMS,
    specialize: Mapping[str, Sequence[int]] | None = None,
    conditions: Iterable[str] = (),
    bake: Iterable[str] = (),
    debug_info: bool = False,
    custom_calls: Iterable[str] = (),
) -> Path:
    """Writes a graph and its weights as an artifact: one file, for every platform and all sizes.

    The file is the same, byte for byte, for the same graph and weights, wherever it is written.
    What JAX needs to run it, and what other consumers of StableHLO need, is in it, and nothing
    of maxjax: a dozen lines run it without.

    Args:
        model: A finished graph, a module with one, or a model, whose weights go with it.
        path: The file to write; it is written beside and renamed.
        weights_registry: An array for each weight of the graph. Without it the artifact has no
            weights, and whoever loads it gives them.
        platforms: Where it is to run, of cpu, cuda, rocm and tpu; none of them need be here.
        specialize: For names of dimensions the sizes for which programs without that dimension
            are added, in all combinations; for consumers that need fixed sizes.
        conditions: What sizes it is for, where that is not all: ``"n % 4 == 0"``. What the graph's
            types need (such as 2 elements for ``x[1:-1]``) is found and added.
        bake: The names of weights that become constants of the program.
        debug_info: Whether the program names the user's files and lines.
        custom_calls: The targets of foreign calls that every reader will have registered.

    Returns:
        The path.

    Raises:
        TypeError: If ``model`` is none of these, or the graph has no outputs yet.
        ValueError: If weights are missing or do not fit; if an op cannot be exported; if a
            platform, a name or a condition is none.
        OSError: If the file cannot be written.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from maxjax import export
    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType
    >>> g = Graph("double", lambda x: x * 2, [TensorType(DType.float32, ["n"], DeviceRef.CPU())])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = export.save(g, os.path.join(folder, "double.maxjax"))
    ...     model = export.load(path)
    ...     model(np.float32([1, 2, 3]))[0].to_numpy().tolist()
    [2.0, 4.0, 6.0]
    """
    function, registry = _function(model, weights_registry, debug_info)
    signature = function.signature
    platforms = _platforms(platforms)
    known = [*signature.conditions, *(Condition.parse(c) for c in conditions)]
    if isinstance(function, LoweredFunction):
        known = [*needed(function), *known]
    arrays: dict[str, Any] = {}
    if registry is not None:
        bound = bind(signature.name, signature.weights, registry)
        arrays = {name: np.asarray(array) for name, array in bound.items()}
    baked = {name: arrays.pop(name) for name in _named("bake", bake, arrays)}
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
    if arrays:
        header, hashes, size, pieces = written(arrays)
        header_hash = hashlib.sha256(header).hexdigest()
        members[WEIGHTS] = size, pieces
    manifest = Manifest(
        signature.name,
        {"maxjax": __version__, "jax": jax.__version__, "jaxlib": metadata.version("jaxlib")},
        tuple(platforms),
        1,
        "highest",
        signature.inputs,
        signature.outputs,
        signature.returned,
        (),
        made[0].conditions,
        entries,
        {
            name: WeightEntry(type_, hashes.get(name, ""))
            for name, type_ in sorted(signature.weights.items())
            if name not in baked
        },
        header_hash,
    )
    text = manifest.dump().encode()
    target = Path(path)
    write(target, {MANIFEST: (len(text), [text]), **members})
    return target


def _function(
    model: Any, registry: Mapping[str, Any] | None, debug_info: bool
) -> tuple[Function, Mapping[str, Any] | None]:
    """What is exported, and its weights."""
    if isinstance(model, Model):
        function = model.function
        registry = model.weights if registry is None else registry
    else:
        function = to_jax(_graph(model))
    if isinstance(function, LoweredFunction):
        prints = [
            node
            for g in (*callees(function.graph), function.graph)
            for node in g.body.walk()
            if isinstance(node.op, Print)
        ]
        if prints:
            _warn_prints(prints)
        function = to_jax(function.graph, Manner(prints=False, locations=debug_info))
    return function, registry


def _graph(model: Any) -> Graph:
    if isinstance(model, Module):
        if len(model.graphs) != 1:
            raise TypeError(
                f"an artifact is one graph, and the module has {len(model.graphs)}: save each"
            )
        return model.graphs[0]
    if not isinstance(model, Graph):
        raise TypeError(f"expected a Graph, a Module or a Model, got {type(model).__name__}")
    return model


def _warn_prints(prints: Sequence[Node]) -> None:
    places = ", ".join(dict.fromkeys(str(n.location) for n in prints if n.location))
    warnings.warn(
        f"an artifact does not print: {len(prints)} ops.print are left out"
        f"{f' (at {places})' if places else ''}",
        UserWarning,
        stacklevel=4,
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
