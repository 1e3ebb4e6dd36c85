# SPDX-License-Identifier: Apache-2.0
"""Options that matter while a graph is being built, and the names of profile-scope colours."""

from __future__ import annotations

import enum

__all__ = ["GraphDebugConfig", "ProfileScopeColor", "options"]


class _Options:
    """The process-wide debug options, shared with ``InferenceSession.debug``."""

    __slots__ = ("source_tracebacks",)

    def __init__(self) -> None:
        self.source_tracebacks = False


options = _Options()


class GraphDebugConfig:
    """What ``Graph.debug`` offers: the debug options that are read while a graph is built.

    The state is process-wide and shared with ``InferenceSession.debug``.

    >>> from maxjax.graph import Graph
    >>> Graph.debug.source_tracebacks
    False
    """

    __slots__ = ()

    @property
    def source_tracebacks(self) -> bool:
        """Whether each op keeps the whole Python call stack that made it, not one line of it."""
        return options.source_tracebacks

    @source_tracebacks.setter
    def source_tracebacks(self, on: bool) -> None:
        options.source_tracebacks = bool(on)

    def __repr__(self) -> str:
        return f"GraphDebugConfig(source_tracebacks={self.source_tracebacks})"


class ProfileScopeColor(enum.StrEnum):
    """The colours a profile scope can be given."""

    MODULAR_PURPLE = "modular_purple"
    BLUE = "blue"
    GREEN = "green"
    ORANGE = "orange"
    PURPLE = "purple"
    RED = "red"
    WHITE = "white"
    YELLOW = "yellow"
