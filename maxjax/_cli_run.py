# SPDX-License-Identifier: Apache-2.0
"""``maxjax run``: calls an artifact, and shows and writes what it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np
import numpy.typing as npt

from maxjax._cli_inputs import Given, Inputs, gather
from maxjax._cli_stages import Stages, Times
from maxjax.dtype import DType
from maxjax.engine import Model
from maxjax.export import inspect
from maxjax.graph.type import BufferType
from maxjax.support.ml import NamedSpec

__all__ = ["Ran", "call", "described", "lines", "run", "spec"]

_Array: TypeAlias = npt.NDArray[Any]
# Up to how many numbers of an array are printed, and how many of larger ones at each edge.
_WHOLE, _EDGE = 64, 3


class Ran:
    """What a run gave.

    Attributes:
        inputs: What the model was called with.
        results: The outputs by name, then the buffers' contents afterwards.
        times: How long the call took, compiling included.
    """

    def __init__(self, inputs: Inputs, results: dict[str, _Array], times: Times) -> None:
        self.inputs = inputs
        self.results = results
        self.times = times


def run(path: str, given: Given, stages: Stages) -> Ran:
    """Loads an artifact and calls it once.

    Raises:
        Misused: If an input is none, or one is missing.
        OSError, ValueError: If a file cannot be read, or an input is not as it must be.
    """
    inputs = gather(inspect(path), given, fill=False)
    model = inputs.load(path, given, stages)
    with stages.step("Running") as times:
        results = call(model, inputs)
    return Ran(inputs, results, times)


def call(model: Model, inputs: Inputs) -> dict[str, _Array]:
    """The outputs of a model by name, then the contents of its buffers afterwards."""
    arguments = inputs.arguments(model)
    outputs = model.execute(*arguments)
    found = {f"output{i}": o for i, o in enumerate(outputs)}
    types = model.function.signature.inputs
    found |= {
        f"input{i}": a
        for i, (a, t) in enumerate(zip(arguments, types, strict=True))
        if isinstance(t, BufferType)
    }
    return {name: np.asarray(buffer.jax()) for name, buffer in found.items()}


# ---------------------------------------------------------------- what is shown


def spec(array: _Array) -> str:
    """The type of an array as a spec."""
    return str(NamedSpec(array.shape, DType.of(array.dtype)))


def lines(results: Mapping[str, _Array]) -> Iterator[str]:
    """Each array's name, spec and numbers, of large ones those at the edges."""
    for name, array in results.items():
        yield click.style(name, bold=True) + f" {spec(array)}"
        numbers = np.array2string(
            _plain(array), threshold=_WHOLE, edgeitems=_EDGE, max_line_width=78, separator=" "
        )
        yield from (f"  {row}" for row in numbers.splitlines())


def described(array: _Array, file: Path | None) -> dict[str, Any]:
    """An array as JSON's types: its numbers if they are few, else their bounds and mean."""
    plain = _plain(array)
    found: dict[str, Any] = {"type": spec(array)}
    if plain.size <= _WHOLE:
        found["values"] = _json(plain.tolist())
    elif plain.dtype.kind != "c":
        with np.errstate(all="ignore"):
            wide = plain.astype(np.float64)
            found |= {
                "min": _json(plain.min().item()),
                "max": _json(plain.max().item()),
                "mean": _json(float(wide.mean())),
            }
    return found | ({"file": str(file)} if file else {})


def _plain(array: _Array) -> _Array:
    """The numbers in a type that NumPy itself prints."""
    own = array.dtype.isbuiltin == 1
    if own:
        return array
    integral = DType.of(array.dtype).is_integral()
    return array.astype(np.int64 if integral else np.float32)


def _json(value: Any) -> Any:
    """Numbers that JSON lacks as text."""
    if isinstance(value, list):
        return [_json(v) for v in value]
    if isinstance(value, complex):
        return [_json(value.real), _json(value.imag)]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value
