# SPDX-License-Identifier: Apache-2.0
"""A process that loads artifacts and runs them, and knows nothing of the graphs they were.

Run as ``python -m tests.export.other_process``. Questions come on standard input, answers go to
standard output, both pickled: a `Question`, and for each of its calls the arrays that came out, or
the name and text of the exception.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from maxjax import export
from maxjax.driver import CPU, Accelerator, Buffer, Device, set_virtual_device_count

__all__ = ["Asked", "OtherProcess", "Question", "devices", "run"]

ROOT = Path(__file__).parents[2]


class Question(NamedTuple):
    """What is run.

    Attributes:
        path: The artifact.
        calls: For each call the arrays that are its inputs.
        buffers: For each input whether it is changed in place.
        weights: The weights that the artifact lacks.
        accelerators: Whether it runs on virtual accelerators.
    """

    path: Path
    calls: list[list[Any]]
    buffers: tuple[bool, ...]
    weights: dict[str, Any]
    accelerators: bool = False


# For one call: outputs, then the buffers' contents afterwards; or what was raised.
Asked = list[Any] | tuple[str, str]


@contextlib.contextmanager
def devices(accelerators: bool) -> Iterator[list[Device]]:
    """The devices that a model is loaded for."""
    if not accelerators:
        yield [CPU()]
        return
    set_virtual_device_count(8)
    try:
        yield [Accelerator(i) for i in range(8)]
    finally:
        set_virtual_device_count(0)


def run(model: Any, buffers: tuple[bool, ...], arrays: list[Any]) -> Asked:
    """What a model gives."""
    homes = model.input_devices
    given = [
        Buffer.from_numpy(a.copy()).to(home) if b or not home.is_host else a
        for a, b, home in zip(arrays, buffers, homes, strict=True)
    ]
    try:
        outputs = model(*given)
    except Exception as e:
        return type(e).__name__, str(e)
    kept = [g for g, b in zip(given, buffers, strict=True) if b]
    return [np.array(b.jax()) for b in (*outputs, *kept)]


def answer(q: Question) -> list[Asked]:
    with devices(q.accelerators) as there:
        model = export.load(q.path, there, weights_registry=q.weights)
        return [run(model, q.buffers, call) for call in q.calls]


class OtherProcess:
    """Asks such a process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.export.other_process"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe)

    def send(self, question: Question) -> None:
        assert self._process.stdin is not None
        pickle.dump(question, self._process.stdin)
        self._process.stdin.flush()

    def receive(self) -> list[Asked]:
        assert self._process.stdout is not None
        found = pickle.load(self._process.stdout)
        if isinstance(found, str):
            raise AssertionError(f"the artifact cannot be loaded: {found}")
        return found

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def main() -> None:
    jax.config.update("jax_num_cpu_devices", 8)
    while True:
        try:
            question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            found: Any = answer(question)
        except Exception as e:
            found = f"{type(e).__name__}: {e}"
        pickle.dump(found, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
