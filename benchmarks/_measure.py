# SPDX-License-Identifier: Apache-2.0
"""Timing several things in turns, and saying how they compare.

Only the standard library, because parts of this run under the reference's interpreter.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "ROOT",
    "Result",
    "Timing",
    "Worker",
    "at_most",
    "in_turns",
    "max_python",
    "ratio",
    "stopwatch",
]

ROOT = Path(__file__).resolve().parents[1]


def max_python() -> str | None:
    """The interpreter that has the reference, if one is named."""
    return os.environ.get("MAX_PYTHON") or None


@dataclass(frozen=True)
class Timing:
    """How long one thing took, run after run, in seconds."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the runs were faster than the first, a quarter slower than the second."""
        if len(self.samples) < 2:
            return self.samples[0], self.samples[0]
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, high


def in_turns(runs: int, *sides: Callable[[], float]) -> list[Timing]:
    """Calls each side ``runs`` times, in turns; a side gives the seconds it took.

    Every second round goes backwards: no side always follows the same other.
    """
    samples: list[list[float]] = [[] for _ in sides]
    order = list(range(len(sides)))
    for _ in range(runs):
        for i in order:
            samples[i].append(sides[i]())
        order.reverse()
    return [Timing(tuple(side)) for side in samples]


def ratio(a: Timing, b: Timing) -> float:
    """How many times as long ``a`` took as ``b``: the median over the rounds of `in_turns`."""
    return statistics.median(x / y for x, y in zip(a.samples, b.samples, strict=True))


def stopwatch(call: Callable[[], Any], *, calls: int = 1) -> Callable[[], float]:
    """A side for `in_turns`: the seconds that one of ``calls`` calls took."""

    def run() -> float:
        gc.collect()
        gc.disable()  # a collection in the middle would be charged to one side
        try:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - start) / calls
        finally:
            gc.enable()

    return run


class Worker:
    """A module run as a process of its own, possibly under another interpreter.

    It prints a line of JSON when it is ready, and one for every line it is sent.

    Args:
        module: The module to run, with ``python -m``.
        args: Its arguments.
        python: The interpreter; by default this one.
        cwd: Where to run; by default the root of the project.
        env: What to add to its environment.

    Attributes:
        ready: What its first line said.
        startup: The seconds from starting the process to its first line.
    """

    def __init__(
        self,
        module: str,
        *args: str,
        python: str | None = None,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
    ) -> None:
        start = time.perf_counter()
        self._process = subprocess.Popen(
            [python or sys.executable, "-m", module, *args],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = self._line()
        self.startup = time.perf_counter() - start

    def ask(self, question: str = "") -> Any:
        """Sends a line, and gives what the answer says."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(f"{self._process.args} ended with code {self._process.returncode}")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(frozen=True)
class Result:
    """One comparison.

    Attributes:
        name: What was measured.
        ours: How long maxjax took.
        others: How long the others took, by their names.
        target: The aim in words; empty where there is none.
        held: Whether it was met, None where there is none.
        unit: ``"s"``, or ``"op/s"`` where the number of operations in a second is shown.
        ops: Operations in one run, for ``"op/s"``.
    """

    name: str
    ours: Timing
    others: Mapping[str, Timing] = field(default_factory=dict)
    target: str = ""
    held: bool | None = None
    unit: str = "s"
    ops: int = 1

    def as_json(self) -> dict[str, Any]:
        """What `results.json` keeps of it."""

        def timing(t: Timing) -> dict[str, Any]:
            return {"median_s": t.median, "quartiles_s": t.quartiles, "runs": len(t.samples)}

        return {
            "name": self.name,
            "maxjax": timing(self.ours),
            "others": {
                name: timing(other) | {"ratio": ratio(self.ours, other)}
                for name, other in self.others.items()
            },
            "target": self.target,
            "held": self.held,
            "ops": self.ops,
        }


def at_most(limit: float, a: Timing, b: Timing, *, plus: float = 0.0) -> bool:
    """Whether ``a`` took at most ``limit`` times as long as ``b`` and ``plus`` seconds more."""
    return ratio(Timing(tuple(x - plus for x in a.samples)), b) <= limit
