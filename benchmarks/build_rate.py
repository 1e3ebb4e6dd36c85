# SPDX-License-Identifier: Apache-2.0
"""How many operations a second go into a graph, by kind of operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks._build_worker import COUNT, KINDS
from benchmarks._measure import Result, Worker, in_turns, max_python

__all__ = ["results"]

RUNS = 9
TARGET = 20_000  # operations a second, for the mixed kind


def results() -> Iterator[Result]:
    """Builds graphs of each kind; beside the reference where there is one."""
    with ExitStack() as stack:
        module = "benchmarks._build_worker"
        workers = [stack.enter_context(Worker(module, "maxjax"))]
        if max_python():
            workers.append(stack.enter_context(Worker(module, "max", python=max_python())))
        for kind in KINDS:
            asks = [partial(worker.ask, kind) for worker in workers]
            for ask in asks:
                ask()  # the first graph pays for what is cached after it
            ours, *others = in_turns(RUNS, *asks)
            yield Result(
                f"build, {kind}",
                ours,
                dict(zip(["MAX"], others, strict=False)),
                target=f">= {TARGET:,} op/s" if kind == "mixed" else "",
                held=COUNT / ours.median >= TARGET if kind == "mixed" else None,
                unit="op/s",
                ops=COUNT,
            )
