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
    if artifact.layout is not None:
        there = [d for d in devices if not d.is_host]
        if len(there) < manifest.devices:
            names = ", ".join(map(str, there or devices))
            raise ValueError(
                f"{artifact.path} is a program for {manifest.devices} devices "
                f"({', '.join(map(str, artifact.layout.devices))}), and here are {len(there)} "
                f"accelerators ({names}); save it again for these, or load it with "
                "devices=[Accelerator(0), ...]"
            )
    _ = artifact.whole  # a damaged program is found now, and not at the first call
    bound = {**weights, **(registry or {})}
    model = Model(artifact, devices, bound, recompile=recompile, buckets=buckets)
    found = platforms_of(model.target)
    if not found & set(manifest.platforms):
        raise ValueError(
            f"{artifact.path} is for {', '.join(manifest.platforms)}, and {model.target} is "
            f"{' or '.join(sorted(found))}; save it with platforms=[...] that include it"
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
