# SPDX-License-Identifier: Apache-2.0
"""``maxjax verify``: whether an artifact is whole, and every way to run it gives the same."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np
import numpy.typing as npt
from jax import export as jax_export

from maxjax._cli_files import typed, write
from maxjax._cli_inputs import Given, Inputs, gather
from maxjax._cli_run import call, spec
from maxjax._cli_stages import Stages
from maxjax._cli_text import columns, counted, duration, one_line
from maxjax.artifact.manifest import ProgramEntry
from maxjax.dtype import DType
from maxjax.engine import Model
from maxjax.engine.weights import as_array
from maxjax.export import Artifact, inspect

__all__ = ["Check", "difference", "lines", "verify"]

_Array: TypeAlias = npt.NDArray[Any]
_Results: TypeAlias = dict[str, _Array]
# How far two programs' floats may be apart, relative to 1 plus their size: XLA may fuse one as it
# does not the other.
_TOLERANCES = {8: 1e-12, 4: 1e-5, 2: 2e-2, 1: 0.25}
_FAILURES = (ValueError, TypeError, OSError, RuntimeError, MemoryError, subprocess.TimeoutExpired)
# For the new process, in seconds.
_PATIENCE = 600


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        ok: Whether it is as it must be.
        told: What was found.
        seconds: How long it took.
    """

    name: str
    ok: bool
    told: str
    seconds: float


class _Unequal(Exception):
    """Two ways to run an artifact that do not give the same."""


def verify(
    path: str, given: Given, stages: Stages, *, tolerance: float | None
) -> tuple[dict[str, int], list[Check]]:
    """Reads all of an artifact, and runs it in every way there is.

    Args:
        path: The file.
        given: Inputs; those that are missing are random.
        stages: Where to tell.
        tolerance: How far floats may be apart, relative to 1 plus their size; None for what their
            type allows.

    Returns:
        The sizes it was run with, and the checks; the first that is not ok is the last.

    Raises:
        Misused: If an input is none.
    """
    checks: list[Check] = []

    def check(name: str, do: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        try:
            value, told = do()
        except (*_FAILURES, _Unequal) as e:
            text = str(e) if isinstance(e, _Unequal) else one_line(e)
            checks.append(Check(name, False, text, time.perf_counter() - start))
            raise _Failed from None
        checks.append(Check(name, True, told, time.perf_counter() - start))
        return value

    sizes: dict[str, int] = {}
    try:
        artifact: Artifact = check("hashes", lambda: _whole(path, stages))
        inputs = gather(artifact, given, fill=True)
        sizes |= inputs.sizes
        model: Model = check("load", lambda: (inputs.load(path, given, stages), "by maxjax"))
        first = check("run", lambda: _ran(model, inputs, stages))
        check("jax.export", lambda: _plain(artifact, inputs, model, first, stages, tolerance))
        for entry in artifact.manifest.programs[1:]:
            name = ", ".join(f"{n} = {s}" for n, s in entry.sizes.items())
            check(name, lambda e=entry: _specialized(artifact, e, given, model, stages, tolerance))
        check(
            "new process",
            lambda: _elsewhere(artifact, inputs, given, first, stages, tolerance),
        )
    except _Failed:
        pass
    return sizes, checks


class _Failed(Exception):
    """A check is not ok, and those after it have no sense."""


def _whole(path: str, stages: Stages) -> tuple[Artifact, str]:
    with stages.step("Comparing hashes"):
        artifact = inspect(path)
        artifact.verify()
    count = len(artifact.sizes)
    weights = sum(bool(w.sha256) for w in artifact.manifest.weights.values())
    return artifact, f"{counted(count, 'member')}, {counted(weights, 'weight')}"


def _ran(model: Model, inputs: Inputs, stages: Stages) -> tuple[_Results, str]:
    with stages.step("Running"):
        results = call(model, inputs)
    return results, ", ".join(map(spec, results.values())) or "no outputs"


def _plain(
    artifact: Artifact,
    inputs: Inputs,
    model: Model,
    expected: _Results,
    stages: Stages,
    tolerance: float | None,
    entry: ProgramEntry | None = None,
) -> tuple[None, str]:
    """Runs a program as one does who has JAX alone."""
    entry = entry or artifact.manifest.programs[0]
    with zipfile.ZipFile(artifact.path) as archive:
        program = jax_export.deserialize(bytearray(archive.read(entry.member)))
    takes = artifact.signature.is_buffer
    weights = {**artifact.weights(verify=False), **inputs.weights}
    # Those that were given as files may have more than the program takes.
    weights = {n: np.asarray(as_array(weights[n])) for n in artifact.weight_keys}
    tensors = [a for a, b in zip(inputs.arrays, takes, strict=True) if not b]
    buffers = [a for a, b in zip(inputs.arrays, takes, strict=True) if b]
    with (
        stages.step("Running with jax.export"),
        jax.enable_x64(True),
        jax.default_device(model.target.jax),
    ):
        outputs, finals = program.call(weights, tensors, buffers)
        results = {f"output{i}": np.asarray(o) for i, o in enumerate(outputs)}
        places = [i for i, b in enumerate(takes) if b]
        results |= {f"input{i}": np.asarray(f) for i, f in zip(places, finals, strict=True)}
    return None, difference(results, expected, tolerance)


def _specialized(
    artifact: Artifact,
    entry: ProgramEntry,
    given: Given,
    model: Model,
    stages: Stages,
    tolerance: float | None,
) -> tuple[None, str]:
    """Compares a program of fixed sizes with the one for all."""
    dims = tuple(f"{n}={s}" for n, s in entry.sizes.items())
    inputs = gather(
        artifact,
        Given(dims=dims, weights=given.weights, seed=given.seed, device=given.device),
        fill=True,
    )
    with stages.step("Running"):
        expected = call(model, inputs)
    return _plain(artifact, inputs, model, expected, stages, tolerance, entry)


def _elsewhere(
    artifact: Artifact,
    inputs: Inputs,
    given: Given,
    expected: _Results,
    stages: Stages,
    tolerance: float | None,
) -> tuple[None, str]:
    """Runs it by ``maxjax run`` in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="maxjax-verify-") as folder:
        files = write({f"input{i}": a for i, a in enumerate(inputs.arrays)}, f"{folder}/inputs")
        command = [sys.executable, "-P", "-m", "maxjax", "run", "-q", os.fspath(artifact.path)]
        for name, file in files.items():
            command += ["--input", f"{name}={file}"]
        if inputs.weights:
            arrays = {n: np.asarray(as_array(w)) for n, w in inputs.weights.items()}
            write(arrays, f"{folder}/weights.npz")
            command += ["--weights", f"{folder}/weights.npz"]
        if given.device:
            command += ["--device", given.device]
        command += ["--out", f"{folder}/results.npz"]
        root = os.fspath(Path(__file__).parents[1])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with stages.step("Running in a new process"):
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, "PYTHONPATH": paths},
                timeout=_PATIENCE,
            )
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise _Unequal(f"it ended with {done.returncode}: {said[-1] if said else 'no word'}")
        with np.load(f"{folder}/results.npz") as loaded:
            results = {
                n: typed(loaded[n], DType.of(expected[n].dtype)) if n in expected else loaded[n]
                for n in loaded.files
            }
    return None, difference(results, expected, tolerance)


# ---------------------------------------------------------------- comparing


def difference(
    found: Mapping[str, _Array], expected: Mapping[str, _Array], tolerance: float | None
) -> str:
    """How far two sets of results are apart, in words.

    Raises:
        _Unequal: If it is more than the tolerance, or they are of other types.
    """
    if found.keys() != expected.keys():
        raise _Unequal(f"it gives {', '.join(found)} instead of {', '.join(expected)}")
    most = 0.0
    for name, wanted in expected.items():
        array = found[name]
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            raise _Unequal(f"{name} is {spec(array)} instead of {spec(wanted)}")
        apart, excess = _apart(array, wanted, tolerance)
        if excess:
            raise _Unequal(
                f"{name} is {apart:.3g} apart at most; {excess:,} of {array.size:,} numbers are "
                "too far"
            )
        most = max(most, apart)
    return "the same" if most == 0 else f"at most {most:.2g} apart"


def _apart(found: _Array, wanted: _Array, tolerance: float | None) -> tuple[float, int]:
    """The largest difference, and how many numbers are too far apart. NaN is as NaN."""
    dtype = DType.of(wanted.dtype)
    if not dtype.is_float():
        count = int(np.count_nonzero(found != wanted))
        wide = found.astype(np.float64), wanted.astype(np.float64)
        return float(np.abs(wide[0] - wide[1]).max(initial=0)), count
    if tolerance is None:
        tolerance = _TOLERANCES[dtype.size_in_bytes]
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        far = ~same & ~(np.isfinite(gap) & (gap <= tolerance * (1 + np.abs(b))))
    gap = np.where(same, 0.0, gap)
    return float(np.where(np.isnan(gap), np.inf, gap).max(initial=0)), int(np.count_nonzero(far))


def lines(checks: Sequence[Check]) -> Iterator[str]:
    """The checks as text."""
    yield from columns(
        ("ok" if c.ok else "FAILED", c.name, c.told, duration(c.seconds)) for c in checks
    )
