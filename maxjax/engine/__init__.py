# SPDX-License-Identifier: Apache-2.0
"""Running graphs: sessions compile them, models are called."""

from maxjax.engine.debug import DebugConfig, LogLevel, PrintStyle
from maxjax.engine.model import Model, TensorSpec
from maxjax.engine.programs import CompileStats
from maxjax.engine.session import InferenceSession

__all__ = [
    "CompileStats",
    "DebugConfig",
    "InferenceSession",
    "LogLevel",
    "Model",
    "PrintStyle",
    "TensorSpec",
]
