# SPDX-License-Identifier: Apache-2.0
"""Eager tensors and compiled functions over them, against JAX on the same arrays."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks._measure import Result, Timing, at_most, in_turns, stopwatch
from maxjax.driver import CPU
from maxjax.dtype import DType
from maxjax.experimental import compilation
from maxjax.experimental import functional as F
from maxjax.experimental.sharding import TensorLayout
from maxjax.experimental.tensor import Tensor

__all__ = ["results"]

RUNS = 25
CALLS = 400
LAYERS, WIDTH, ROWS = 64, 256, 1024
MEMORY = 50 * 10**6  # bytes


def eager() -> Iterator[Result]:
    """Adds two small tensors."""
    x, y = Tensor([1, 2, 3, 4]), Tensor([5, 6, 7, 8])
    a, b = x.jax(), y.jax()
    ours, theirs = in_turns(
        RUNS,
        stopwatch(lambda: F.add(x, y), calls=CALLS),
        stopwatch(lambda: jnp.add(a, b), calls=CALLS),
    )
    yield Result(
        "eager addition",
        ours,
        {"jnp.add": theirs},
        target="<= 2x + 10 µs",
        held=at_most(2, ours, theirs, plus=10e-6),
    )


def called() -> Iterator[Result]:
    """Calls a compiled function with a tree of results."""
    spec = TensorLayout(DType.float32, [4], CPU())
    run = compilation.compile(lambda p, q: {"s": p + q, "d": [p - q]})(spec, spec)
    jitted = jax.jit(lambda p, q: {"s": p + q, "d": [p - q]})
    x, y = Tensor([1, 2, 3, 4]), Tensor([5, 6, 7, 8])
    a, b = x.jax(), y.jax()
    ours, theirs = in_turns(
        RUNS,
        stopwatch(lambda: run(x, y), calls=CALLS),
        stopwatch(lambda: jitted(a, b), calls=CALLS),
    )
    yield Result(
        "compiled call",
        ours,
        {"jax.jit": theirs},
        target="<= 1.3x + 15 µs",
        held=at_most(1.3, ours, theirs, plus=15e-6),
    )


def memory() -> Iterator[Result]:
    """Adds 5,000 times, over 50 shapes, and looks at how much memory that took."""

    def additions(count: int) -> None:
        for i in range(count):
            x = Tensor(np.ones(i % 50 + 1, np.float32))
            x + x

    additions(500)
    before = _resident()
    start = time.perf_counter()
    additions(5000)
    seconds = time.perf_counter() - start
    grown = _resident() - before
    yield Result(
        f"5,000 eager additions, {grown / 1e6:.0f} MB more memory",
        Timing((seconds,)),
        {},
        target=f"< {MEMORY / 1e6:.0f} MB",
        held=grown < MEMORY,
    )


def _resident() -> int:
    """The bytes of memory that the process has now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def first_result() -> Iterator[Result]:
    """Compiles a function of 30 ops, and runs it once."""

    def thirty(x: Tensor) -> Tensor:
        for i in range(15):
            x = F.tanh(x) * (i + 1)
        return x

    spec = TensorLayout(DType.float32, ["n", 64], CPU())
    start = time.perf_counter()
    run = compilation.compile(thirty)(spec)
    built = time.perf_counter() - start
    run(Tensor.ones([8, 64])).to_numpy()
    whole = time.perf_counter() - start
    yield Result("30 ops, compile()", Timing((built,)), {}, target="< 1 s", held=built < 1.0)
    yield Result("30 ops, first result", Timing((whole,)), {}, target="< 2 s", held=whole < 2.0)


def layers(count: int, *, shared: bool) -> compilation.CompiledCallable:
    """A stack of layers, as one body or written out."""

    def layer(x: Tensor) -> Tensor:
        up = F.constant_external("up", _matrix(WIDTH, 4 * WIDTH), is_placeholder=True)
        down = F.constant_external("down", _matrix(4 * WIDTH, WIDTH), is_placeholder=True)
        return x + F.gelu(x @ up) @ down

    def stack(x: Tensor) -> Tensor:
        for i in range(count):
            prefix = f"layers.{i}."
            if shared:
                x = compilation.as_subgraph(layer, prefix=prefix)(x)
            else:
                up = F.constant_external(f"{prefix}up", _matrix(WIDTH, 4 * WIDTH))
                down = F.constant_external(f"{prefix}down", _matrix(4 * WIDTH, WIDTH))
                x = x + F.gelu(x @ up) @ down
        return x

    rng = np.random.default_rng(0)
    weights = {}
    for i in range(count):
        weights[f"layers.{i}.up"] = _small(rng, WIDTH, 4 * WIDTH)
        weights[f"layers.{i}.down"] = _small(rng, 4 * WIDTH, WIDTH)
    return compilation.compile(stack, weights=weights)(_matrix("n", WIDTH))


def _matrix(rows: int | str, columns: int) -> TensorLayout:
    return TensorLayout(DType.float32, [rows, columns], CPU())


def _small(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return rng.normal(0, 0.02, (rows, columns)).astype(np.float32)


def deep() -> Iterator[Result]:
    """Compiles and runs 64 layers of one body, against 8, and against all written out."""
    x = Tensor(np.ones((ROWS, WIDTH), np.float32))

    def compiled(run: compilation.CompiledCallable) -> float:
        model = run.engine_model
        start = time.perf_counter()
        model.warmup({"n": [ROWS]})
        return time.perf_counter() - start

    short, long, inlined = (
        layers(8, shared=True), layers(LAYERS, shared=True), layers(LAYERS, shared=False)
    )  # fmt: skip
    seconds = [Timing((compiled(run),)) for run in (long, short, inlined)]
    yield Result(
        f"{LAYERS} layers, compiling",
        seconds[0],
        {"8 layers": seconds[1], "written out": seconds[2]},
        target="<= 1.5x 8 layers",
        held=at_most(1.5, seconds[0], seconds[1]),
    )
    ours, theirs = in_turns(
        9, stopwatch(lambda: long(x).to_numpy()), stopwatch(lambda: inlined(x).to_numpy())
    )
    np.testing.assert_allclose(long(x).to_numpy(), inlined(x).to_numpy(), rtol=1e-4, atol=1e-5)
    yield Result(
        f"{LAYERS} layers, {ROWS} rows",
        ours,
        {"written out": theirs},
        target="<= 1.05x",
        held=at_most(1.05, ours, theirs),
    )


def results() -> Iterator[Result]:
    """All of the above."""
    for part in (eager, called, memory, first_result, deep):
        yield from part()
