# SPDX-License-Identifier: Apache-2.0
"""Reading artifacts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from maxjax.driver import CPU, Device
from maxjax.engine.model import Model
from maxjax.engine.programs import Recompile
from maxjax.export.artifact import Artifact

__all__ = ["inspect", "load", "loaded"]


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


def loaded(
    artifact: Artifact,
    devices: list[Device],
    weights: Mapping[str, Any],
    registry: Mapping[str, Any] | None,
    recompile: Recompile = "allow",
) -> Model:
    """A model of an artifact that is open, with these of its weights.

    Raises:
        ValueError: As :func:`load` does.
    """
    manifest = artifact.manifest
    if manifest.devices != 1:
        raise ValueError(
            f"{artifact.path} is a program for {manifest.devices} devices, and a model runs on one"
        )
    model = Model(artifact, devices, {**weights, **(registry or {})}, recompile=recompile)
    there = platforms_of(model.target)
    if not there & set(manifest.platforms):
        raise ValueError(
            f"{artifact.path} is for {', '.join(manifest.platforms)}, and {model.target} is "
            f"{' or '.join(sorted(there))}; save it with platforms=[...] that include it"
        )
    return model


def platforms_of(device: Device) -> set[str]:
    """What JAX calls the platform of a device; of a GPU that is not known further, both."""
    platform = device.jax.platform
    if platform != "gpu":
        return {platform}
    version = device.jax.client.platform_version.lower()
    if "rocm" in version:
        return {"rocm"}
    return {"cuda"} if "cuda" in version else {"cuda", "rocm"}


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
