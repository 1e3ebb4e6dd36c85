# SPDX-License-Identifier: Apache-2.0
"""Whether a program in an artifact is the one that its manifest describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax import export

from maxjax.artifact.manifest import Manifest, ProgramEntry
from maxjax.graph.dim import Dim
from maxjax.graph.type import Type
from maxjax.lower.condition import Condition
from maxjax.lower.spmd import arguments
from maxjax.lower.symbolic import symbols

__all__ = ["misfit"]


def misfit(program: export.Exported, manifest: Manifest, entry: ProgramEntry) -> str:
    """What of a program is not as its manifest says; empty if all is."""
    if set(program.platforms) != set(manifest.platforms):
        return f"it is for {', '.join(program.platforms)}"
    if program.nr_devices != manifest.devices:
        return f"it is for {program.nr_devices} devices"
    signature = manifest.signature
    try:
        (weights, inputs, buffers), options = jax.tree.unflatten(program.in_tree, program.in_avals)
        outputs, finals = jax.tree.unflatten(program.out_tree, program.out_avals)
        if options or weights.keys() != signature.weights.keys():
            return f"it takes the weights {', '.join(weights) or 'none'}"
    except (TypeError, ValueError, AttributeError):
        return "it takes or gives other parts than weights, inputs and buffers"
    tensors, states = arguments(signature, manifest.layout)
    results: list[Any] = [*signature.outputs]
    if manifest.layout is not None:
        results = [p.whole(manifest.devices) for p in manifest.layout.outputs]
    fixed = [Condition(Dim(name), "==", Dim(size)) for name, size in entry.sizes.items()]
    try:
        sizes = symbols(signature, [*manifest.conditions, *fixed]).sizes
    except ValueError as e:
        return str(e)
    for what, types, avals in (
        ("weights", [*signature.weights.values()], [weights[name] for name in signature.weights]),
        ("inputs", tensors, inputs),
        ("buffers", states, buffers),
        ("outputs", results, outputs),
        ("buffers' contents", states, finals),
    ):
        fits = len(types) == len(avals)
        if not fits or not all(_fits(t, a, sizes) for t, a in zip(types, avals, strict=True)):
            return f"its {what} are {', '.join(a.str_short() for a in avals)}"
    return ""


def _fits(type_: Type, aval: Any, sizes: Mapping[str, Any]) -> bool:
    """Whether an array of JAX's is of a type: its numbers are, and what else there is has names."""
    if aval.dtype != type_.dtype.np or len(aval.shape) != len(type_.shape):
        return False
    for dim, size in zip(type_.shape, aval.shape, strict=True):
        if not {p.name for p in dim.parameters} <= sizes.keys():
            continue  # a size that depends on values
        known = dim.evaluate(sizes)
        if isinstance(known, int) != isinstance(size, int):
            return False
        if isinstance(size, int) and known != size:
            return False
    return True
