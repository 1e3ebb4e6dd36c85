# SPDX-License-Identifier: Apache-2.0
"""A real model, the sentence encoder of `examples/minilm`, against the same in plain JAX."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks._encoder_worker import load
from benchmarks._measure import (
    ROOT,
    Result,
    Timing,
    Worker,
    at_most,
    in_turns,
    max_python,
    stopwatch,
)
from examples.minilm.assets import weights_path
from examples.minilm.tokenizer import encode

__all__ = ["results"]

STEADY_RUNS, FIRST_RUNS = 40, 5
STEADY, FIRST = 1.03, 1.2  # times as long as plain JAX
MODULE = "benchmarks._encoder_worker"
SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Compilers lower graphs to machine code.",
    "How do I shard a model across eight devices?",
    "The weather in Lisbon is mild in spring, and the light over the river in the late "
    "afternoon is something people travel a long way to see.",
] * 2


def reference_copy(folder: Path) -> None:
    """Copies what the worker needs, as a program of the reference."""
    for package in ("benchmarks", "examples"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("*.json"))
    program = folder / "examples" / "minilm" / "model.py"
    program.write_text(program.read_text().replace("from maxjax", "from max"))


def first_results(args: tuple[str, str]) -> Iterator[Result]:
    """The time from starting a process to its first result."""

    def start(root: str) -> float:
        with Worker(MODULE, root, *args) as worker:
            return worker.startup

    ours, theirs = in_turns(FIRST_RUNS, partial(start, "maxjax"), partial(start, "jax"))
    yield Result(
        "encoder, first result",
        ours,
        {"plain JAX": theirs},
        target=f"<= {FIRST}x plain JAX",
        held=at_most(FIRST, ours, theirs),
    )


def results() -> Iterator[Result]:
    """Time to the first result, and steady time per batch; the reference's beside them."""
    weights = weights_path()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        batch = encode(SENTENCES)
        np.savez(folder / "inputs.npz", **batch._asdict())
        args = str(weights), str(folder / "inputs.npz")
        yield from first_results(args)

        ours, theirs = load("maxjax", weights), load("jax", weights)
        one = encode(SENTENCES[:1])
        for name, inputs in (("8 sentences", batch), ("1 sentence", one)):
            np.testing.assert_allclose(ours(*inputs), theirs(*inputs), atol=2e-5)
            sides = [stopwatch(partial(f, *inputs)) for f in (ours, theirs)]
            a, b = in_turns(STEADY_RUNS, *sides)
            yield Result(
                f"encoder, {name}",
                a,
                {"plain JAX": b},
                target=f"<= {STEADY}x plain JAX",
                held=at_most(STEADY, a, b),
            )

        if max_python():
            yield from beside_max(folder, args, stopwatch(partial(ours, *batch)))


def beside_max(folder: Path, args: tuple[str, str], ours: Callable[[], float]) -> Iterator[Result]:
    """The reference's times; its first start compiles for minutes, the second finds a cache."""
    reference_copy(folder)
    # Its compiler's cache of earlier runs would hide what a first result costs.
    env = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    start = partial(Worker, MODULE, "max", *args, python=max_python(), cwd=folder, env=env)
    with start() as cold, start() as warm, Worker(MODULE, "maxjax", *args) as worker:
        np.testing.assert_allclose(worker.ready, warm.ready, rtol=1e-5)
        yield Result(
            "encoder, first result",
            Timing((worker.startup,)),
            {
                "MAX, empty cache": Timing((cold.startup,)),
                "MAX, warm cache": Timing((warm.startup,)),
            },
        )
        a, b = in_turns(STEADY_RUNS // 2, ours, warm.ask)
        yield Result("encoder, 8 sentences", a, {"MAX": b})
