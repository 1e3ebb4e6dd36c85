# SPDX-License-Identifier: Apache-2.0
"""``maxjax bench``: how long an artifact takes to load, to compile and to run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from maxjax._cli_inputs import Given, gather
from maxjax._cli_stages import Stages
from maxjax._cli_text import byte_text, columns, duration, scaled
from maxjax.engine import Model
from maxjax.export import inspect
from maxjax.support.ml import NamedSpec

try:
    import resource
except ImportError:  # Windows has none
    resource = None

__all__ = ["bench", "lines"]

_MOST_RUNS, _LEAST_RUNS = 100_000, 5


def bench(
    path: str, given: Given, stages: Stages, *, warmup: int, runs: int | None, seconds: float
) -> dict[str, Any]:
    """Measures an artifact.

    Args:
        path: The file.
        given: Inputs; those that are missing are random.
        stages: Where to tell.
        warmup: How many calls are not measured, after the first, which compiles.
        runs: How many calls are; None for as many as ``seconds`` allow, at least 5.
        seconds: How long to measure, where ``runs`` is None.

    Raises:
        Misused, OSError, ValueError: As for :func:`maxjax._cli_run.run`.
    """
    start = time.perf_counter()
    inputs = gather(inspect(path), given, fill=True)
    model = inputs.load(path, given, stages)
    loaded = time.perf_counter() - start
    arguments = inputs.arguments(model)
    with stages.step("Compiling") as compiling:
        _call(model, arguments)
    with stages.step("Measuring"):
        for _ in range(warmup):
            _call(model, arguments)
        times, until = [], time.perf_counter() + seconds
        while len(times) < (_LEAST_RUNS if runs is None else runs) or (
            runs is None and time.perf_counter() < until and len(times) < _MOST_RUNS
        ):
            begin = time.perf_counter()
            _call(model, arguments)
            times.append(time.perf_counter() - begin)
    low, median, high = np.percentile(times, [10, 50, 90]).tolist()
    # What the compiler knows of the one program there is.
    (program,) = model._programs.compiled.values()
    flops = _flops(program)
    return {
        "name": model.name,
        "device": f"{model.target.label}:{model.target.id}",
        "inputs": [str(NamedSpec(a.shape, a.dtype)) for a in inputs.arrays],
        "dims": dict(inputs.sizes),
        "load_seconds": round(loaded, 6),
        "compile_seconds": compiling.rounded(),
        "warmup": warmup,
        "runs": len(times),
        "run_seconds": {
            "median": median,
            "p10": low,
            "p90": high,
            "min": min(times),
            "max": max(times),
        },
        "memory": _memory(program),
        "peak_bytes": _peak(model),
        "flops": flops,
        "flops_per_second": None if flops is None else flops / median,
    }


def _call(model: Model, arguments: list[Any]) -> None:
    """One call, until all that it makes is there; buffers hold what was written to them."""
    made = [*model.execute(*arguments), *arguments]
    jax.block_until_ready([m.jax() for m in made])


def _flops(program: Any) -> float | None:
    """The arithmetic of a call as XLA counts it: the body of a loop once."""
    costs = program.cost_analysis()
    costs = costs[0] if isinstance(costs, list) and costs else costs
    count = costs.get("flops", -1.0) if isinstance(costs, dict) else -1.0
    return float(count) if count >= 0 else None


def _memory(program: Any) -> dict[str, int] | None:
    """The bytes that the program works on; weights are arguments. None where XLA does not say."""
    stats = program.memory_analysis()
    if stats is None:
        return None
    return {
        "arguments": stats.argument_size_in_bytes,
        "outputs": stats.output_size_in_bytes,
        "temporaries": stats.temp_size_in_bytes,
    }


def _peak(model: Model) -> int | None:
    """The most memory so far: of the device, on the CPU of the process."""
    if not model.target.is_host:
        return (model.target.jax.memory_stats() or {}).get("peak_bytes_in_use")
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What `bench` found, as text."""
    run, compiling = found["run_seconds"], found["compile_seconds"]
    sizes = "".join(f", {n} {s}" for n, s in found["dims"].items())
    yield f"{found['name']} on {found['device']}{sizes}"
    stages = ", ".join(f"{s} {duration(t)}" for s, t in compiling.items() if s != "all")
    rows = [
        ("load", duration(found["load_seconds"]), ""),
        ("first call", duration(compiling["all"]), stages),
        ("run", duration(run["median"]), f"median of {found['runs']:,} after {found['warmup']}"),
        ("", "", f"{duration(run['p10'])} to {duration(run['p90'])}, 10th to 90th percentile"),
    ]
    if found["memory"]:
        parts = [f"{byte_text(count)} {what}" for what, count in found["memory"].items()]
        rows.append(("program", byte_text(sum(found["memory"].values())), ", ".join(parts)))
    if found["peak_bytes"]:
        rows.append(("peak", byte_text(found["peak_bytes"]), "of memory, the compiler's included"))
    if found["flops"] is not None:
        rate = found["flops_per_second"]
        rows.append(("work", scaled(found["flops"], "FLOP"), scaled(rate, "FLOP/s")))
    yield from columns(rows, right=[1])
