# SPDX-License-Identifier: Apache-2.0
"""``maxjax inspect``: what is in an artifact, as data and as text."""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import click

from maxjax._cli_text import byte_text, columns, shown, tree
from maxjax.artifact.manifest import spec_of
from maxjax.export import Artifact
from maxjax.graph.dim import StaticDim, SymbolicDim
from maxjax.graph.type import BufferType, TensorType

__all__ = ["describe", "histogram", "lines"]

# An op begins a line, perhaps after the names of its results; a reduction names its body's op.
_OP = re.compile(
    r"""^\s*(?:%[\w:]+(?:,\ %[\w:]+)*\ =\ )?"?((?:stablehlo|chlo|mhlo|sdy)\.\w+)|
        \ applies\ (stablehlo\.\w+)\ across""",
    re.M | re.X,
)
# How many weights the text shows unless all are asked for.
_WEIGHTS = 20


def describe(artifact: Artifact) -> dict[str, Any]:
    """What an artifact says of itself, as JSON's types; the ops are left to `histogram`.

    Raises:
        ValueError: If its weights are damaged.
    """
    manifest = artifact.manifest
    inputs = [{"name": f"input{i}", **_typed(t)} for i, t in enumerate(manifest.inputs)]
    outputs = [
        {"name": f"output{i}", **_typed(t)} | ({} if at is None else {"is": f"input{at}"})
        for i, (t, at) in enumerate(zip(manifest.outputs, manifest.returned, strict=True))
    ]
    sizes = artifact.sizes
    return {
        "path": str(artifact.path),
        "name": manifest.name,
        "bytes": artifact.path.stat().st_size,
        "producer": dict(manifest.producer),
        "platforms": list(manifest.platforms),
        "devices": manifest.devices,
        "precision": manifest.precision,
        "members": dict(sizes),
        "inputs": inputs,
        "outputs": outputs,
        "dims": _dims(artifact),
        "counts": list(manifest.counts),
        "conditions": [str(c) for c in manifest.conditions],
        "programs": [
            {"sizes": dict(p.sizes), "member": p.member, "bytes": sizes.get(p.member)}
            for p in manifest.programs
        ],
        "weights": _weights(artifact),
    }


def _typed(type_: TensorType | BufferType) -> dict[str, str]:
    kind = "buffer" if isinstance(type_, BufferType) else "tensor"
    return {"type": str(spec_of(type_)), "kind": kind, "device": str(type_.device)}


def _dims(artifact: Artifact) -> dict[str, dict[str, Any]]:
    """The named dims of inputs and weights: where each is first, and what sizes have programs."""
    manifest = artifact.manifest
    types: dict[str, TensorType | BufferType] = {
        f"input{i}": t for i, t in enumerate(manifest.inputs)
    }
    types |= {name: w.type for name, w in manifest.weights.items()}
    found: dict[str, dict[str, Any]] = {}
    for who, type_ in types.items():
        for axis, dim in enumerate(type_.shape):
            if isinstance(dim, SymbolicDim) and dim.name not in found:
                special = {p.sizes[dim.name] for p in manifest.programs if dim.name in p.sizes}
                found[dim.name] = {"is": who, "axis": axis, "specialized": sorted(special)}
    return found


def _weights(artifact: Artifact) -> list[dict[str, Any]]:
    """The weights, those of most bytes first."""
    stored = artifact.weights(verify=False)
    found = []
    for name, entry in artifact.manifest.weights.items():
        dims = [d.dim if isinstance(d, StaticDim) else None for d in entry.type.shape]
        size = None
        if name in stored:
            size = stored[name].nbytes
        elif None not in dims:
            size = math.prod(d or 0 for d in dims) * entry.type.dtype.size_in_bytes
        found.append(
            {
                "name": name,
                "type": str(spec_of(entry.type)),
                "device": str(entry.type.device),
                "bytes": size,
                "stored": name in stored,
                "sha256": entry.sha256 or None,
            }
        )
    return sorted(found, key=lambda w: (-(w["bytes"] or 0), w["name"]))


def histogram(artifact: Artifact) -> dict[str, Any]:
    """How often each op is in the program for all sizes, for the first of its platforms.

    Ops in branches and loops count once each, the ends of those (``return``) do not.

    Raises:
        ValueError: If the program is damaged.
    """
    platform = artifact.manifest.platforms[0]
    # The program for all platforms has the ops that differ once for each of them.
    code = artifact.stablehlo(platform)
    exported = dataclasses.replace(artifact.program(), mlir_module_serialized=code)
    try:
        text = exported.mlir_module()
    except (ValueError, RuntimeError) as e:
        raise ValueError(f"{artifact.path} is damaged: its StableHLO cannot be read: {e}") from None
    names = (match[1] or match[2] for match in _OP.finditer(text))
    counts = collections.Counter(n.removeprefix("stablehlo.") for n in names)
    counts.pop("return", None)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {"platform": platform, "total": counts.total(), "counts": dict(ordered)}


# ---------------------------------------------------------------- as text


def lines(found: Mapping[str, Any], *, every_weight: bool = False) -> Iterator[str]:
    """What `describe` found, with ``"ops"`` where these are known, as text."""
    by = ", ".join(f"{name} {version}" for name, version in found["producer"].items())
    yield _head(shown(found["name"])) + f" ({byte_text(found['bytes'])}, by {shown(by)})"
    yield f"for {', '.join(found['platforms'])}"
    yield _head("\nMembers")
    yield from tree(found["members"])
    for what in "inputs", "outputs":
        yield _head(f"\n{what.capitalize()}")
        yield from columns(_argument(a) for a in found[what])
    if found["dims"]:
        yield _head("\nDims")
        yield from columns(
            (
                name,
                f"axis {dim['axis']} of {dim['is']}",
                "programs of their own for " + ", ".join(map(str, dim["specialized"]))
                if dim["specialized"]
                else "",
            )
            for name, dim in found["dims"].items()
        )
    if found["counts"]:
        yield _head("\nSizes that the last outputs tell")
        yield from columns([(c,) for c in found["counts"]])
    if found["conditions"]:
        yield _head("\nConditions")
        yield from columns([(c,) for c in found["conditions"]])
    if found["weights"]:
        yield from _weight_lines(found["weights"], every_weight)
    if found.get("ops"):
        ops = found["ops"]
        yield _head("\nOps") + f" ({ops['total']:,} of {len(ops['counts'])} kinds)"
        yield from columns([(n, f"{c:,}") for n, c in ops["counts"].items()], right=[1])


def _argument(found: Mapping[str, Any]) -> tuple[str, ...]:
    note = "buffer" if found["kind"] == "buffer" else ""
    if "is" in found:
        note = f"buffer, the same as {found['is']}"
    return found["name"], found["type"], found["device"], note


def _weight_lines(weights: list[Mapping[str, Any]], every: bool) -> Iterator[str]:
    total = byte_text(sum(w["bytes"] or 0 for w in weights))
    stored = sum(w["stored"] for w in weights)
    note = "" if stored == len(weights) else f", {len(weights) - stored} of them not in the file"
    yield _head("\nWeights") + f" ({len(weights)}, {total}{note})"
    some = weights if every else weights[:_WEIGHTS]
    yield from columns(
        [
            (
                w["name"],
                w["type"],
                "?" if w["bytes"] is None else byte_text(w["bytes"]),
                "" if w["stored"] else "not in the file",
            )
            for w in some
        ],
        right=[2],
    )
    if len(some) < len(weights):
        yield f"  and {len(weights) - len(some)} smaller ones; --all shows them"


def _head(text: str) -> str:
    return click.style(text, bold=True)
