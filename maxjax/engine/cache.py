# SPDX-License-Identifier: Apache-2.0
"""JAX's persistent compilation cache: programs in a folder, for later processes.

JAX has one cache for the whole process, so the folder that was given last is the one in use, also
for programs that are not maxjax's. Entries are kept by what was compiled, for what device, and the
versions of JAX and XLA. One that is damaged is a warning, and is compiled again; where a folder
cannot be written to, programs are compiled in each process, with a warning. Whoever can write to
the folder can make this process run anything: it should be one's own.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import jax
from jax import monitoring
from jax.experimental.compilation_cache import compilation_cache

__all__ = ["hits", "use_folder"]

_HIT = "/jax/compilation_cache/cache_hits"


class _Count(threading.local):
    """The programs that a thread read from the cache."""

    hits = 0


_count = _Count()
_lock = threading.Lock()
_listening = False


def use_folder(folder: str | Path) -> None:
    """Keeps every program that is compiled from now on, small ones too, and takes it from there.

    Args:
        folder: Its path; it is made when the first program is kept.

    Raises:
        TypeError: If it is no path.
    """
    global _listening
    path = os.fspath(folder)
    if not isinstance(path, str):
        raise TypeError(f"cache_dir is a path, not {path!r:.60}")
    if "://" not in path:
        path = os.path.abspath(os.path.expanduser(path))
    with _lock:
        if not _listening:
            monitoring.register_event_listener(_on_event)
            _listening = True
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        jax.config.update("jax_compilation_cache_dir", path)
        # What JAX decided when it compiled for the first time is decided again.
        compilation_cache.reset_cache()


def _on_event(event: str, **_: Any) -> None:
    if event == _HIT:
        _count.hits += 1


def hits() -> int:
    """How many programs this thread took from the cache, since the first :func:`use_folder`."""
    return _count.hits
