# SPDX-License-Identifier: Apache-2.0
"""A process that loads an artifact and says how much memory that took at its peak.

Run as ``python -m tests.export.memory FILE``; prints a line of JSON with bytes. Pages of the mapped
file count as memory, so the least that loading can take is the weights once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jax

from maxjax import export
from tests.export.other_process import ROOT

__all__ = ["peak_of_loading"]


def peak_of_loading(path: Path) -> int:
    """How many bytes more than before a process has at most while it loads an artifact."""
    command = [sys.executable, "-m", "tests.export.memory", str(path)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return found["peak"] - found["before"]


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def main() -> None:
    jax.devices()
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _status("VmRSS")
    model = export.load(sys.argv[1])
    print(json.dumps({"before": before, "peak": _status("VmHWM"), "name": model.name}))


if __name__ == "__main__":
    main()
