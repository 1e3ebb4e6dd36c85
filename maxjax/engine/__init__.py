# SPDX-License-Identifier: Apache-2.0
"""Running graphs: sessions compile them, models are called."""

from maxjax.engine.compiled import CompiledModel, read
from maxjax.engine.debug import DebugConfig, LogLevel, PrintStyle
from maxjax.engine.model import Model, TensorSpec
from maxjax.engine.programs import CompileStats
from maxjax.engine.session import InferenceSession
from maxjax.engine.store import ArtifactBodyMismatch, MefStore, MissingArtifactError

__all__ = [
    "ArtifactBodyMismatch",
    "CompileStats",
    "CompiledModel",
    "DebugConfig",
    "InferenceSession",
    "LogLevel",
    "MefStore",
    "MissingArtifactError",
    "Model",
    "PrintStyle",
    "TensorSpec",
    "read",
]
