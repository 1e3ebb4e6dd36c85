# SPDX-License-Identifier: Apache-2.0
"""Loads the language model in a process of its own and says how much memory that took."""

from __future__ import annotations

import json
from pathlib import Path

import jax

from examples.gemma3.assets import model_path
from examples.gemma3.generate import Generator


def status(key: str) -> int:
    """A size in bytes from what Linux says about this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{key}:")]
    return int(line.split()[1]) * 1024


def main() -> None:
    """Prints sizes in bytes as JSON."""
    path = model_path()
    jax.devices()
    before, mapped = status("VmHWM"), status("RssFile")
    generator = Generator()
    # What is mapped comes into memory as it is touched, so all of it is.
    weights = generator.models["decode"]._weights or ()
    for array in weights:
        int(array.reshape(-1)[::1024].astype("int32").sum())
    sizes = {
        "peak": status("VmHWM") - before,
        "mapped": status("RssFile") - mapped,
        "file": path.stat().st_size,
        "device": sum(array.nbytes for array in weights),
    }
    print(json.dumps(sizes), flush=True)


if __name__ == "__main__":
    main()
