# SPDX-License-Identifier: Apache-2.0
"""What importing maxjax costs beyond importing jax, in new processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

from benchmarks._measure import ROOT, Result, in_turns

__all__ = ["results"]

RUNS = 7
LIMIT = 0.25  # seconds
PROGRAM = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def seconds(module: str) -> Callable[[], float]:
    """The time to import a module in a new process."""
    command = [sys.executable, "-c", PROGRAM.format(module)]
    return lambda: float(subprocess.check_output(command, text=True, cwd=ROOT))


def results() -> Iterator[Result]:
    """Compares ``import maxjax.graph`` and ``maxjax.engine`` with ``import jax``."""
    modules = ("jax", "maxjax.graph", "maxjax.engine")
    jax, *ours = in_turns(RUNS, *map(seconds, modules))
    for module, timing in zip(modules[1:], ours, strict=True):
        # The least disturbed run of each; the files' first reading from disk is in no minimum.
        more = min(timing.samples) - min(jax.samples)
        yield Result(
            f"import {module}",
            timing,
            {"import jax": jax},
            target=f"<= jax + {LIMIT} s",
            held=more <= LIMIT,
        )
