# SPDX-License-Identifier: Apache-2.0
"""Reading artifacts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from maxjax.artifact import Artifact
from maxjax.driver import CPU, Device
from maxjax.engine import Model
from maxjax.engine.artifacts import loaded
from maxjax.engine.programs import Recompile

__all__ = ["inspect", "load"]


def load(
    path: str | os.PathLike[str],
    devices: Iterable[Device] = (),
    *,
    weights_registry: Mapping[str, Any] | None = None,
    verify: bool = True,
    recompile: Recompile = "allow",
) -> Model:
    """A model of an artifact.

    Weights are mapped into memory from the file, which must stay as it is while the model lives.

    Args:
        path: The file.
        devices: What it may run on; the CPU when empty.
        weights_registry: Weights to use instead of those in the file, and those it lacks.
        verify: Whether to compare the hashes of the weights, for which each is read once.
        recompile: What a call does whose sizes nothing is compiled for yet, after the first:
            "allow" compiles, "warn" says so too, "error" refuses.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is no artifact, is damaged, of a version that is not read here, for other
            platforms or another number of devices, or weights are missing or do not fit.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from maxjax import export
    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType
    >>> g = Graph("double", lambda x: x * 2, [TensorType(DType.float32, ["n"], DeviceRef.CPU())])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = export.load(export.save(g, os.path.join(folder, "double.maxjax")))
    ...     model
    Model('double', (f32[n]) -> (f32[n]))
    """
    artifact = Artifact(path)
    return loaded(
        artifact,
        list(devices) or [CPU()],
        artifact.weights(verify=verify),
        weights_registry,
        recompile,
    )


def inspect(path: str | os.PathLike[str]) -> Artifact:
    """An artifact without loading it: its manifest, members, programs and weights.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is no artifact, is damaged, or of a version that is not read here.

    >>> import os, tempfile
    >>> from maxjax import export
    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType
    >>> g = Graph("double", lambda x: x * 2, [TensorType(DType.float32, ["n"], DeviceRef.CPU())])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     artifact = export.inspect(export.save(g, os.path.join(folder, "double.maxjax")))
    ...     artifact.manifest.platforms, [str(c) for c in artifact.manifest.conditions]
    (('cpu', 'cuda', 'rocm', 'tpu'), ['n >= 1'])
    """
    return Artifact(path)
