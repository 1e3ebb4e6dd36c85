# SPDX-License-Identifier: Apache-2.0
"""What calling a `Model` costs beyond calling a jitted function on the same arrays."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks._measure import Result, at_most, in_turns, stopwatch
from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, TensorType

__all__ = ["results"]

RUNS = 25
CALLS = 400
FACTOR, EXTRA = 1.3, 10e-6  # times, and seconds


def results() -> Iterator[Result]:
    """Calls ``x * y + 1`` on ``[4]`` float32 with jax arrays, buffers and NumPy arrays."""
    tiny = TensorType(DType.float32, [4], DeviceRef.CPU())
    with Graph("tiny", input_types=[tiny, tiny]) as graph:
        x, y = (value.tensor for value in graph.inputs)
        graph.output(x * y + 1.0)
    model = InferenceSession().load(graph)
    jitted = jax.jit(lambda x, y: x * y + 1.0)

    numpy = [np.arange(4, dtype=np.float32), np.ones(4, np.float32)]
    arrays = [jnp.asarray(a) for a in numpy]
    # As a model's own outputs are, and as what shares its memory with NumPy, which a call copies.
    buffers = [Buffer.from_jax(a) for a in arrays]
    shared = [Buffer.from_numpy(a) for a in numpy]
    for name, ours, theirs in (
        ("jax arrays", arrays, arrays),
        ("buffers", buffers, arrays),
        ("NumPy arrays", numpy, numpy),
        ("buffers on NumPy", shared, numpy),
    ):
        # Computing takes next to nothing; the last call of a run waits for all before it.
        sides = (
            stopwatch(lambda args=ours: model(*args), calls=CALLS),
            stopwatch(lambda args=theirs: jitted(*args), calls=CALLS),
        )
        for side in sides:
            side()
        a, b = in_turns(RUNS, *sides)
        yield Result(
            f"call, {name}",
            a,
            {"jax.jit": b},
            target=f"<= {FACTOR}x + {EXTRA * 1e6:.0f} µs",
            held=at_most(FACTOR, a, b, plus=EXTRA),
        )
