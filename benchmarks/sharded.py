# SPDX-License-Identifier: Apache-2.0
"""A tensor-parallel network on eight virtual devices, against the same with ``jax.shard_map``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from benchmarks._measure import ROOT, Result, Timing, at_most

__all__ = ["results"]

RUNS = 25


def results() -> Iterator[Result]:
    """Its steady time, and how large its program is on 8 and on 64 devices."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks._sharded_worker", str(RUNS)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    ours, theirs = Timing(tuple(found["ours"])), Timing(tuple(found["theirs"]))
    yield Result(
        "8 layers on 8 virtual devices",
        ours,
        {"jax.shard_map": theirs},
        target="<= 1.05x",
        held=at_most(1.05, ours, theirs),
    )
    eight, many = found["characters"]["8"], found["characters"]["64"]
    few, most = (Timing((found["fold"][n],)) for n in ("2", "64"))
    yield Result(
        f"folding for 64 devices; program of {many:,} characters, {eight:,} for 8",
        most,
        {"2 devices": few},
        target="program within 5 %",
        held=abs(many - eight) <= 0.05 * eight,
    )
