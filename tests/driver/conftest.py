# SPDX-License-Identifier: Apache-2.0
"""Virtual accelerators, and programs in a process of their own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from maxjax import driver

# What may set the number of CPU devices from outside.
COUNTS = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")


@pytest.fixture
def gpus() -> Iterator[list[driver.Accelerator]]:
    """Eight CPU devices that act as accelerators."""
    driver.set_virtual_device_count(8)
    yield [driver.Accelerator(i) for i in range(8)]
    driver.set_virtual_device_count(0)


@pytest.fixture
def run() -> Callable[..., str]:
    """Runs a program in a new process, where JAX has not started; gives what it prints."""

    def go(program: str, **environment: str) -> str:
        kept = {k: v for k, v in os.environ.items() if k not in COUNTS}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env={**kept, "JAX_PLATFORMS": "cpu", **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return go
