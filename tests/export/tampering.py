# SPDX-License-Identifier: Apache-2.0
"""Artifacts that somebody changed: a small one to begin with, and ways to write it differently."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import yaml

from maxjax import export
from maxjax.artifact.archive import write
from maxjax.dtype import DType
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, Weight, ops

__all__ = ["INPUTS", "WEIGHTS", "changed", "graph", "members", "rewritten", "small"]

CPU = DeviceRef.CPU()
WEIGHTS = {
    "layer.w": np.arange(24, dtype=np.float32).reshape(6, 4) / 7,
    "layer.b": np.arange(4).astype(ml_dtypes.bfloat16),
    "scale": np.float64([0.5]),
}
INPUTS = [np.linspace(-1, 1, 18, dtype=np.float32).reshape(3, 6)]


def graph(name: str = "small") -> Graph:
    """``(batch, 6)`` to ``(batch, 4)``, with weights of three dtypes, and a count of the calls."""

    def build(x: Any, calls: Any) -> Any:
        w = Weight("layer.w", DType.float32, [6, 4], CPU)
        b = Weight("layer.b", DType.bfloat16, [4], CPU)
        scale = Weight("scale", DType.float64, [1], CPU)
        calls[...] = calls[...] + 1
        return ops.relu(x @ w + b.cast(DType.float32)).cast(DType.float64) * scale

    types = [TensorType(DType.float32, ["batch", 6], CPU), BufferType(DType.int32, [1], CPU)]
    return Graph(name, build, types)


def small(path: Path, **options: Any) -> Path:
    """Writes it."""
    options = {"weights_registry": WEIGHTS, "specialize": {"batch": [2]}, **options}
    return export.save(graph(), path, **options)


def members(path: Path) -> dict[str, bytes]:
    """The contents of an archive by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path: Path, contents: Mapping[str, bytes]) -> Path:
    """Writes an archive as artifacts are written."""
    write(path, {name: (len(c), [c]) for name, c in contents.items()})
    return path


def changed(
    source: Path,
    target: Path,
    manifest: Callable[[dict[str, Any]], Any] = lambda document: None,
    contents: Mapping[str, bytes | None] | None = None,
    *,
    rehash: bool = True,
) -> Path:
    """An artifact whose manifest and members are other ones, checksums as they must be.

    Args:
        source: The artifact.
        target: The new one.
        manifest: Changes the manifest, or gives one that takes its place; after hashes are set.
        contents: New members; None to leave one out.
        rehash: Whether the hashes in the manifest become those of the new members.
    """
    parts = members(source)
    for name, content in (contents or {}).items():
        if content is None:
            parts.pop(name)
        else:
            parts[name] = content
    document = yaml.safe_load(parts["manifest.yaml"])
    if rehash:
        _hashed(document, parts)
    document = document if (other := manifest(document)) is None else other
    text = document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False)
    return rewritten(target, {**parts, "manifest.yaml": text.encode()})


def _hashed(document: dict[str, Any], parts: Mapping[str, bytes]) -> None:
    def sha256(content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()

    for entry in document["programs"]:
        for each in (entry, *entry["modules"].values()):
            if each["member"] in parts:
                each["sha256"] = sha256(parts[each["member"]])
    weights = parts.get("weights.safetensors")
    if weights is None:
        return
    end = 8 + int.from_bytes(weights[:8], "little")
    document["weights_sha256"] = sha256(weights[:end])
    for name, fields in json.loads(weights[8:end]).items():
        if name in document["weights"] and isinstance(fields, dict):
            begin, stop = fields["data_offsets"]
            document["weights"][name]["sha256"] = sha256(weights[end + begin : end + stop])
