# SPDX-License-Identifier: Apache-2.0
"""A language model, `examples/gemma3`: a decoding step against plain JAX, memory while loading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import jax.numpy as jnp
import numpy as np

from benchmarks._measure import Result, Worker, at_most, in_turns, stopwatch
from examples.gemma3 import jax_baseline
from examples.gemma3.generate import Generator

__all__ = ["results"]

RUNS, CONTEXT = 15, 256
STEADY = 1 / 0.95  # times as long as plain JAX
PROMPT = [2, 818, 5279, 529, 7001, 563]


def maxjax_step() -> Callable[[], np.ndarray]:
    """Reads the prompt token by token, then repeats its last token's step; gives the scores."""
    generator = Generator()
    caches, starts = generator.caches(1, CONTEXT), np.zeros(1, np.int64)
    model = generator.models["decode"]

    def step(place: int = len(PROMPT) - 1) -> np.ndarray:
        scores, best = model(
            np.int64([PROMPT[place : place + 1]]), starts, np.int64(place), *caches
        )
        best.to_numpy()  # as a program that writes must
        return scores.to_numpy()

    for place in range(len(PROMPT)):
        step(place)
    return step


def jax_step() -> Callable[[], np.ndarray]:
    """The same in plain JAX."""
    generator_config = jax_baseline.Config()
    params, kinds = jax_baseline.load_params(generator_config)
    program = jax_baseline.decode(generator_config, kinds)
    caches = jax_baseline.empty_caches(generator_config, CONTEXT)

    def step(place: int = len(PROMPT) - 1) -> np.ndarray:
        nonlocal caches
        token = jnp.array(PROMPT[place : place + 1], jnp.int32)
        best, scores, caches = program(params, token, jnp.int32(place), caches)
        np.asarray(best)
        return np.asarray(scores)

    for place in range(len(PROMPT)):
        step(place)
    return step


def results() -> Iterator[Result]:
    """Time per token, and the memory that loading takes."""
    ours, theirs = maxjax_step(), jax_step()
    np.testing.assert_allclose(ours(), theirs(), rtol=1e-3, atol=1e-3)
    a, b = in_turns(RUNS, *[stopwatch(partial(f)) for f in (ours, theirs)])
    yield Result(
        "language model, one token",
        a,
        {"plain JAX": b},
        target=f"<= {STEADY:.2f}x plain JAX",
        held=at_most(STEADY, a, b),
    )
    with Worker("benchmarks._generate_worker") as worker:
        print(memory(worker.ready))


def memory(sizes: dict[str, int]) -> str:
    """What loading took, in words; sizes are bytes."""
    most = 1.3 * sizes["file"] + sizes["device"]
    held = "held" if sizes["peak"] <= most else "missed"
    return (
        f"language model, loading: {sizes['peak'] / 1e6:,.0f} MB more memory at most, of which "
        f"{sizes['mapped'] / 1e6:,.0f} MB are the mapped file "
        f"(target: <= 1.3x the file of {sizes['file'] / 1e6:,.0f} MB and the device arrays: {held})"
    )
