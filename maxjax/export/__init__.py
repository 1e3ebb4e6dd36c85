# SPDX-License-Identifier: Apache-2.0
"""Graphs as files: StableHLO artifacts that run on every platform, with or without maxjax.

An artifact is a zip archive, uncompressed:

| member | what |
|---|---|
| ``manifest.yaml`` | names, types, conditions on sizes, platforms, hashes |
| ``module.jax_export`` | the program, for ``jax.export.deserialize`` |
| ``module.mlirbc`` | the same as portable StableHLO bytecode, for other consumers |
| ``weights.safetensors`` | the weights |
"""

from maxjax.artifact import PLATFORMS, Artifact, Manifest, is_artifact
from maxjax.export.load import inspect, load
from maxjax.export.save import save

__all__ = ["PLATFORMS", "Artifact", "Manifest", "inspect", "is_artifact", "load", "save"]
