# SPDX-License-Identifier: Apache-2.0
"""The encoder of `examples/minilm` as an artifact: writing, loading, running, bytes and memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks._measure import Result, at_most, in_turns, stopwatch
from benchmarks.buckets import batch, run
from examples.minilm.model import load_model
from maxjax import export
from maxjax.engine import InferenceSession
from tests.export.memory import peak_of_loading

__all__ = ["results"]

RUNS = 15
STEADY = 1.05  # times as long as the model that was not saved
PROGRAM = 1_000_000  # bytes
MEMORY = 1.2  # times the weights
NEAR = 1e-5


def results() -> Iterator[Result]:
    """How long saving and loading take, and a call of what is loaded beside the model itself."""
    model = load_model(InferenceSession())
    weights = sum(w.nbytes for w in model.weights.values())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.maxjax"
        (a,) = in_turns(5, stopwatch(partial(export.save, model, path)))
        sizes = export.inspect(path).sizes
        program = sum(size for name, size in sizes.items() if name.startswith("module"))
        yield Result(
            f"artifact, written for {len(export.PLATFORMS)} platforms: programs of {program:,} B",
            a,
            target=f"< {PROGRAM:,} B",
            held=program < PROGRAM,
        )
        (a,) = in_turns(5, stopwatch(partial(export.load, path)))
        peak = peak_of_loading(path)
        yield Result(
            f"artifact, loaded: {peak / weights:.2f}x the weights in memory at most",
            a,
            target=f"<= {MEMORY}x",
            held=peak <= MEMORY * weights,
        )
        loaded = export.load(path)
        apart = max(
            float(np.abs(run(loaded, *batch(n)) - run(model, *batch(n))).max()) for n in range(1, 6)
        )
        sides = [stopwatch(partial(run, m, *batch(8))) for m in (loaded, model)]
        for side in sides:
            side()
        a, b = in_turns(RUNS, *sides)
        yield Result(
            f"artifact, 8 sentences; 5 sizes are {apart:.0e} apart",
            a,
            {"not saved": b},
            target=f"<= {STEADY}x, {NEAR:.0e}",
            held=at_most(STEADY, a, b) and apart <= NEAR,
        )
