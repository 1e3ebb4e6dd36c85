# SPDX-License-Identifier: Apache-2.0
"""Debug options of a session, and the enums of its settings."""

from __future__ import annotations

import enum
from typing import Any

from maxjax.graph.debug import options

__all__ = ["DebugConfig", "LogLevel", "PrintStyle"]


class LogLevel(enum.StrEnum):
    """How much is logged."""

    NOTSET = "notset"
    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class PrintStyle(enum.IntEnum):
    """How ``ops.print`` shows tensors."""

    COMPACT = 0
    FULL = 1
    BINARY = 2
    NONE = 3
    BINARY_MAX_CHECKPOINT = 4


class DebugConfig:
    """What ``InferenceSession.debug`` offers; the state is process-wide.

    Attributes:
        source_tracebacks: Shared with ``Graph.debug.source_tracebacks``.
    """

    @property
    def source_tracebacks(self) -> bool:
        """Whether each op keeps the whole Python call stack that made it."""
        return options.source_tracebacks

    @source_tracebacks.setter
    def source_tracebacks(self, on: bool) -> None:
        options.source_tracebacks = bool(on)

    def reset(self) -> None:
        """Turns every option off."""
        options.source_tracebacks = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "source_tracebacks":
            raise AttributeError(f"there is no debug option {name!r}; there is source_tracebacks")
        super().__setattr__(name, value)
