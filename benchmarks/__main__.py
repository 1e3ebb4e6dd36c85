# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks: `python -m benchmarks` all of them, `python -m benchmarks NAME ...` some.

Prints a table and writes `benchmarks/results.json`.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

import benchmarks
from benchmarks._measure import Result, Timing, ratio

OUTPUT = Path(__file__).with_name("results.json")


def amount(timing: Timing, result: Result) -> str:
    """A timing in the result's unit, with half the distance between its quartiles."""
    low, high = timing.quartiles
    spread = f"±{(high - low) / 2 / timing.median:.0%}"
    if result.unit == "op/s":
        return f"{result.ops / timing.median:,.0f} op/s {spread}"
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    unit, scale = next((u for u in units.items() if timing.median >= u[1]), ("µs", 1e-6))
    return f"{timing.median / scale:.3g} {unit} {spread}"


def main(names: list[str]) -> None:
    """Runs the named benchmarks, or all of them."""
    known = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name[0] != "_")
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    # Where the output is no terminal nobody says how wide it is; rich would take 80 and wrap.
    console = Console(width=None if sys.stdout.isatty() else 130)
    table = Table("measured", "maxjax", "against", "theirs", "ratio", "target", "held")
    results: list[Result] = []
    for name in names or known:
        console.print(f"[dim]{name} ...[/dim]")
        for result in importlib.import_module(f"benchmarks.{name}").results():
            results.append(result)
            held = {True: "[green]yes", False: "[red]no", None: ""}[result.held]
            row = [result.name, amount(result.ours, result)]
            rest = [result.target, held]
            for other, timing in result.others.items() or [("", None)]:
                theirs = ["", ""]
                if timing is not None:
                    theirs = [amount(timing, result), f"{ratio(result.ours, timing):.2f}"]
                table.add_row(*row, other, *theirs, *rest)
                row, rest = ["", ""], ["", ""]
        table.add_section()
    console.print(table)
    machine = {
        "python": platform.python_version(),
        "jax": version("jax"),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }
    report = {"machine": machine, "results": [result.as_json() for result in results]}
    OUTPUT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
