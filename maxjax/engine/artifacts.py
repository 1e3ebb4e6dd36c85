# SPDX-License-Identifier: Apache-2.0
"""Models of artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxjax.artifact import Artifact
from maxjax.driver import Device
from maxjax.engine.buckets import Bucket
from maxjax.engine.model import Model
from maxjax.engine.programs import Recompile

__all__ = ["loaded", "platforms_of"]


def loaded(
    artifact: Artifact,
    devices: list[Device],
    weights: Mapping[str, Any],
    registry: Mapping[str, Any] | None,
    recompile: Recompile = "allow",
    buckets: Mapping[str, Bucket] | None = None,
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
    _ = artifact.whole  # a damaged program is found now, and not at the first call
    bound = {**weights, **(registry or {})}
    model = Model(artifact, devices, bound, recompile=recompile, buckets=buckets)
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
