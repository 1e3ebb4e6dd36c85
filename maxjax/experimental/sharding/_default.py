# SPDX-License-Identifier: Apache-2.0
"""The mesh that is meant where none is named."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maxjax.experimental.sharding.mesh import DeviceMesh

__all__ = ["DEFAULT_MESH"]

# ``tensor.default_device`` sets it; ``NamedMapping(None, spec)`` and new tensors read it.
DEFAULT_MESH: ContextVar[DeviceMesh | None] = ContextVar("DEFAULT_MESH", default=None)
