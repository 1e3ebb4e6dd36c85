# SPDX-License-Identifier: Apache-2.0
"""A process that loads artifacts and runs them, and knows nothing of the graphs they were.

Run as ``python -m tests.export.other_process``. Questions come on standard input, answers go to
standard output, both pickled: a `Question`, and for each of its calls the arrays that came out, or
the name and text of the exception.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from maxjax import export
from maxjax.driver import Buffer

__all__ = ["Asked", "OtherProcess", "Question", "run"]

ROOT = Path(__file__).parents[2]


class Question(NamedTuple):
    """What is run.

    Attributes:
        path: The artifact.
        calls: For each call the arrays that are its inputs.
        buffers: For each input whether it is changed in place.
        weights: The weights that the artifact lacks.
        is_bare: Whether it is run as a function for JAX, not as a model: models are for one device.
    """

    path: Path
    calls: list[list[Any]]
    buffers: tuple[bool, ...]
    weights: dict[str, Any]
    is_bare: bool = False


# For one call: outputs, then the buffers' contents afterwards; or what was raised.
Asked = list[Any] | tuple[str, str]


def run(model: Any, buffers: tuple[bool, ...], arrays: list[Any]) -> Asked:
    """What a model gives."""
    given = [Buffer.from_numpy(a.copy()) if b else a for a, b in zip(arrays, buffers, strict=True)]
    try:
        outputs = model(*given)
    except Exception as e:
        return type(e).__name__, str(e)
    return [np.array(b.jax()) for b in (*outputs, *(g for g in given if isinstance(g, Buffer)))]


def run_bare(
    function: Any, weights: Any, buffers: tuple[bool, ...], arrays: list[Any]
) -> list[Any]:
    """What a function for JAX gives."""
    parts = [[a for a, b in zip(arrays, buffers, strict=True) if b == kind] for kind in (0, 1)]
    with jax.enable_x64(True):
        outputs, finals = jax.jit(function.__call__)(weights, *parts)
    return [np.array(a) for a in (*outputs, *finals)]


def answer(q: Question) -> list[Asked]:
    if q.is_bare:
        function = export.inspect(q.path)
        return [run_bare(function, q.weights, q.buffers, call) for call in q.calls]
    model = export.load(q.path, weights_registry=q.weights)
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
