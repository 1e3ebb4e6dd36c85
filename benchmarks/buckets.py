# SPDX-License-Identifier: Apache-2.0
"""Twenty batch sizes through the encoder of `examples/minilm`, with buckets and without."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks._measure import Result, Timing, in_turns, stopwatch
from examples.minilm.assets import weights_path
from examples.minilm.model import build_graph
from maxjax.dtype import DType
from maxjax.engine import InferenceSession, Model
from maxjax.graph import DeviceRef, Graph, TensorType
from maxjax.graph.weights import load_weights

__all__ = ["results"]

SIZES = [1, 2, 3, 5, 7, 8, 9, 11, 13, 15, 16, 17, 19, 21, 23, 25, 27, 29, 31, 32]
COMPILES, NEAR = 6, 1e-6
TOKENS = 16
RUNS, CALLS = 25, 400


def batch(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token ids, a mask and segments; the sentences have several lengths."""
    rng = np.random.default_rng(size)
    ids = rng.integers(0, 30_000, (size, TOKENS))
    mask = np.arange(TOKENS) < rng.integers(1, TOKENS + 1, (size, 1))
    return ids, mask.astype(np.int64), np.zeros_like(ids)


def run(model: Model, *inputs: np.ndarray) -> np.ndarray:
    """The result, waited for: a call without padding returns before it is there."""
    return model(*inputs)[0].to_numpy()


def first_calls(model: Model) -> tuple[float, list[np.ndarray]]:
    """The seconds that a call with each of the sizes takes, and the results."""
    start = time.perf_counter()
    outputs = [run(model, *batch(size)) for size in SIZES]
    return time.perf_counter() - start, outputs


def results() -> Iterator[Result]:
    """The first calls with all sizes, and what padding costs a call later."""
    weights = load_weights([weights_path()])
    graph = build_graph(weights)
    load = partial(InferenceSession().load, graph, weights_registry=weights.allocated_weights)
    bucketed, exact = load(buckets={"batch": "pow2"}), load()
    (a, ours), (b, theirs) = first_calls(bucketed), first_calls(exact)
    apart = max(float(np.abs(x - y).max()) for x, y in zip(ours, theirs, strict=True))
    yield Result(
        f"encoder, first calls with {len(SIZES)} batch sizes: {bucketed.stats.compiles} compiles, "
        f"results {apart:.0e} apart",
        Timing((a,)),
        {f"no buckets, {exact.stats.compiles} compiles": Timing((b,))},
        target=f"<= {COMPILES} compiles, {NEAR:.0e}",
        held=bucketed.stats.compiles <= COMPILES and apart <= NEAR,
    )
    for size, name in ((8, "8 sentences"), (7, "7 sentences in a bucket of 8")):
        sides = [stopwatch(partial(run, model, *batch(size))) for model in (bucketed, exact)]
        yield Result(f"encoder, {name}", *_against(*in_turns(RUNS, *sides)))

    # The same on a program that takes no time.
    tiny = Graph("tiny", lambda x: x + 1.0, [TensorType(DType.float32, ["n", 4], DeviceRef.CPU())])
    models = [InferenceSession().load(tiny, buckets=b) for b in ({"n": [4]}, None)]
    for size in (4, 3):
        x = np.ones((size, 4), np.float32)
        sides = [stopwatch(partial(run, model, x), calls=CALLS) for model in models]
        for side in sides:
            side()
        yield Result(f"call, {size} rows in a bucket of 4", *_against(*in_turns(RUNS, *sides)))


def _against(ours: Timing, theirs: Timing) -> tuple[Timing, dict[str, Timing]]:
    return ours, {"no buckets": theirs}
