# SPDX-License-Identifier: Apache-2.0
"""Small parts that the modules of ``maxjax.experimental`` share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Generic, TypeVar

from maxjax.driver import Buffer
from maxjax.engine import InferenceSession, MefStore
from maxjax.graph.device import DeviceRef
from maxjax.graph.type import TensorType

__all__ = [
    "SetterContext",
    "contextvar_context",
    "driver_tensor_type",
    "set_export_mefs",
    "set_precompiled_mefs",
]

_T = TypeVar("_T")


class SetterContext(Generic[_T]):
    """A value that is set already; as a context manager it sets the one before again at the end.

    Args:
        value: What was set.
        previous: What was set before.
        restore: Sets a value.

    >>> kept = ["new"]
    >>> with SetterContext("new", "old", lambda v: kept.append(v)) as value:
    ...     value
    'new'
    >>> kept
    ['new', 'old']
    """

    def __init__(self, value: _T, previous: _T, restore: Callable[[_T], None]) -> None:
        self.value = value
        self.previous = previous
        self._restore = restore

    def __enter__(self) -> _T:
        return self.value

    def __exit__(self, *exc: object) -> None:
        self._restore(self.previous)


@contextlib.contextmanager
def contextvar_context(var: ContextVar[_T], value: _T) -> Iterator[_T]:
    """Sets a context variable while the block lasts.

    >>> from contextvars import ContextVar
    >>> level = ContextVar("level", default=0)
    >>> with contextvar_context(level, 3):
    ...     level.get()
    3
    >>> level.get()
    0
    """
    token = var.set(value)
    try:
        yield value
    finally:
        var.reset(token)


def driver_tensor_type(t: Buffer) -> TensorType:
    """The graph type of a buffer's contents.

    >>> import numpy as np
    >>> driver_tensor_type(Buffer.from_numpy(np.ones((2, 3), np.float32)))
    TensorType(float32, [2, 3], cpu:0)
    """
    return TensorType(t.dtype, list(t.shape), DeviceRef.from_device(t.device))


def _set_store(store: MefStore | None) -> SetterContext[MefStore | None]:
    previous = InferenceSession.default_mef_store

    def restore(value: MefStore | None) -> None:
        InferenceSession.default_mef_store = value

    restore(store)
    return SetterContext(store, previous, restore)


def set_export_mefs(directory: str | Path | None) -> SetterContext[MefStore | None]:
    """Writes the artifact of each graph that is compiled from now on into a folder.

    Args:
        directory: The folder; None to write none.
    """
    return _set_store(None if directory is None else MefStore.for_export(directory))


def set_precompiled_mefs(directory: Any) -> SetterContext[MefStore | None]:
    """Takes the artifact of each graph that is compiled from now on from a folder, or several.

    Args:
        directory: What :func:`set_export_mefs` wrote; None to compile again.

    Raises:
        FileNotFoundError: If a folder has no list of artifacts.
    """
    return _set_store(None if directory is None else MefStore.for_import(directory))
