# SPDX-License-Identifier: Apache-2.0
"""What `import maxjax.graph` costs beyond `import jax`: at most 0.25 s is the aim."""

import subprocess
import sys

RUNS = 7
PROGRAM = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def seconds(module: str) -> float:
    """The time to import a module in a new process."""
    program = PROGRAM.format(module)
    return float(subprocess.check_output([sys.executable, "-c", program], text=True))


def main() -> None:
    """Imports both in turns, so that a busy machine slows both, and compares the best of each."""
    modules = ("jax", "maxjax.graph", "maxjax.engine")
    best = dict.fromkeys(modules, float("inf"))
    for _ in range(RUNS):
        for module in modules:
            best[module] = min(best[module], seconds(module))
    for module in modules:
        print(f"import {module:14} {best[module]:6.3f} s  (+{best[module] - best['jax']:.3f} s)")
