# SPDX-License-Identifier: Apache-2.0
"""Inputs, sizes and weights as the command line gives them, and models to give them to."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from maxjax import export
from maxjax._cli_files import read, typed, weights_of
from maxjax._cli_stages import Stages
from maxjax._cli_text import Misused
from maxjax.artifact.manifest import spec_of
from maxjax.driver import CPU, Accelerator, Buffer, Device, accelerator_count
from maxjax.dtype import DType
from maxjax.engine import Model
from maxjax.export import Artifact
from maxjax.graph.dim import Dim, SymbolicDim, parse_dim
from maxjax.graph.type import BufferType, TensorType
from maxjax.lower.condition import Condition
from maxjax.support.ml import NamedSpec, fill_random

__all__ = ["Given", "Inputs", "dim_sizes", "fitting_sizes", "gather"]

_Array: TypeAlias = npt.NDArray[Any]
_Type: TypeAlias = TensorType | BufferType
_NAMED = re.compile(r"(?P<name>[^\W\d]\w*)=(?P<value>.*)", re.S)
_FILE = re.compile(r"(?P<path>.+\.np[yz])(?::(?P<key>.+))?", re.S)
# How many combinations of sizes are tried for conditions that are not met at once.
_TRIES = 100_000


@dataclasses.dataclass(frozen=True)
class Given:
    """What the command line says of inputs.

    Attributes:
        inputs: Files and specs, with or without the name of an input.
        dims: Sizes of named dims, such as ``batch=8``.
        weights: Files of weights.
        seed: That of random numbers; input ``i`` has ``seed + i``.
        device: "cpu", "accelerator", or "" for what the artifact is typed for.
    """

    inputs: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    seed: int = 0
    device: str = ""


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a model is called with.

    Attributes:
        sizes: The size of each named dim that is known.
        arrays: The content of each input, buffers included, in order.
        weights: Those that are not in the artifact.
    """

    sizes: Mapping[str, int]
    arrays: list[_Array]
    weights: dict[str, Any]

    def load(self, path: str, given: Given, stages: Stages) -> Model:
        """A model of the artifact with these weights.

        Raises:
            ValueError, OSError: As :func:`maxjax.export.load` does.
        """
        with stages.step("Loading"):
            return export.load(path, _devices(given), weights_registry=self.weights)

    def arguments(self, model: Model) -> list[Any]:
        """The arrays on the model's device: tensors, and buffers that it may change."""
        on = model.target
        return [Buffer.from_numpy(np.array(a, order="C")).to(on) for a in self.arrays]


def gather(artifact: Artifact, given: Given, *, fill: bool) -> Inputs:
    """The inputs that are given, with buffers of zeros where they are not.

    Args:
        artifact: What they are for.
        given: What the command line says.
        fill: Whether inputs, weights and sizes that are missing are made up.

    Raises:
        Misused: If something that is given is none, or something that is needed is missing.
        OSError, ValueError: If a file cannot be read.
    """
    manifest = artifact.manifest
    types = manifest.inputs
    values = _values(given.inputs, types)
    arrays: dict[int, _Array] = {}
    specs: dict[int, NamedSpec] = {}
    for at, value in values.items():
        match = _FILE.fullmatch(value)
        if match is None:
            specs[at] = _spec(at, value, types[at])
        else:
            arrays[at] = read(match["path"], match["key"], types[at].dtype)
    registry = {
        n: typed(a, manifest.weights[n].type.dtype)
        if isinstance(a, np.ndarray) and n in manifest.weights
        else a
        for n, a in weights_of(given.weights).items()
    }
    absent = {n: w.type for n, w in manifest.weights.items() if not w.sha256 and n not in registry}
    if not fill:
        _refuse_missing(types, values, absent)

    names = [p.name for t in (*types, *manifest.signature.weights.values()) for p in t.parameters]
    sizes = dim_sizes(given.dims)
    _refuse_strangers(sizes, {*names, *(n for s in specs.values() for n in s.names)})
    for at, array in arrays.items():
        _bind(sizes, types[at], array.shape)
    for at, spec in specs.items():
        _bind(sizes, types[at], [_known(dim, sizes) for dim in spec.dims])
    if any(w.type.parameters for w in manifest.weights.values()):
        for name, array in artifact.weights(verify=False).items():
            _bind(sizes, manifest.weights[name].type, array.shape)
    if fill:
        sizes = fitting_sizes(names, manifest.conditions, sizes)

    for at, spec in specs.items():
        dims = [
            d if known == -1 else parse_dim(known) if isinstance(known, str) else Dim(known)
            for known, d in zip(spec.dims, types[at].shape, strict=True)
        ]
        arrays[at] = _random(f"input{at}", types[at].dtype, dims, sizes, given.seed + at)
    for at, type_ in enumerate(types):
        if at not in arrays and isinstance(type_, BufferType):
            arrays[at] = np.zeros(_shape(f"input{at}", type_.shape, sizes), type_.dtype.np)
        elif at not in arrays:
            arrays[at] = _random(f"input{at}", type_.dtype, type_.shape, sizes, given.seed + at)
    for i, (name, type_) in enumerate(absent.items(), len(types)):
        who = f"weight {name!r}"
        registry[name] = _random(who, type_.dtype, type_.shape, sizes, given.seed + i)
    return Inputs(sizes, [arrays[i] for i in range(len(types))], registry)


# ---------------------------------------------------------------- what the command line says


def _values(texts: Iterable[str], types: Sequence[_Type]) -> dict[int, str]:
    """The value for each position; those without a name take the positions that are free.

    Raises:
        Misused: If there are too many, or one is for no input, or two are for one.
    """
    names = {f"input{i}": i for i in range(len(types))}
    there = ", ".join(f"{n} ({spec_of(types[i])})" for n, i in names.items()) or "none"
    found: dict[int, str] = {}
    unnamed = []
    for text in texts:
        match = _NAMED.fullmatch(text)
        if match is None:
            unnamed.append(text)
            continue
        at = names.get(match["name"])
        if at is None:
            raise Misused(f"--input: there is no input {match['name']!r}; they are {there:.500}")
        if at in found:
            raise Misused(f"--input: input{at} is given twice")
        found[at] = match["value"]
    free = [i for i in names.values() if i not in found]
    if len(unnamed) > len(free):
        raise Misused(
            f"--input is given {len(found) + len(unnamed)} times; inputs are {there:.500}"
        )
    return found | dict(zip(free, unnamed, strict=False))


def _spec(at: int, text: str, type_: _Type) -> NamedSpec:
    """The spec of random numbers for an input.

    Raises:
        Misused: If it is none, or not one of the input's.
    """
    if "/" in text or re.search(r"\.[A-Za-z]\w*$", text):
        raise Misused(f"--input: {text!r} is no .npy or .npz file")
    try:
        spec = NamedSpec.parse(text)
        for dim in spec.dims:
            if isinstance(dim, str):
                parse_dim(dim)
    except ValueError as e:
        raise Misused(f"--input: neither a .npy or .npz file nor a spec: {e}") from None
    if spec.dtype.value != type_.dtype.value or spec.rank != len(type_.shape):
        raise Misused(f"--input: input{at} is {spec_of(type_)}, not {spec}")
    return spec


def _refuse_missing(
    types: Sequence[_Type], values: Mapping[int, str], absent: Mapping[str, TensorType]
) -> None:
    if absent:
        raise Misused(
            f"the artifact lacks {len(absent)} of its weights ({', '.join(absent):.200}); give "
            "their files with --weights"
        )
    missing = [i for i, t in enumerate(types) if i not in values and not isinstance(t, BufferType)]
    if missing:
        at = missing[0]
        dims = "".join(f" --dim {p.name}=..." for p in types[at].parameters)
        raise Misused(
            f"missing {', '.join(f'input{i}' for i in missing)}: give a file, --input "
            f"input{at}=FILE.npy, or random numbers, --input input{at}={spec_of(types[at])}{dims}"
        )


def _refuse_strangers(sizes: Iterable[str], names: Iterable[str]) -> None:
    known = sorted(names)
    for name in sizes:
        if name not in known:
            there = ", ".join(known) or "all numbers"
            raise Misused(f"--dim: there is no dim {name!r}; they are {there}")


def dim_sizes(texts: Iterable[str]) -> dict[str, int]:
    """Sizes of dims, such as ``batch=8``.

    Raises:
        Misused: If one is none, or a dim has two.

    >>> dim_sizes(["batch=8", "seq=128"])
    {'batch': 8, 'seq': 128}
    """
    sizes: dict[str, int] = {}
    for text in texts:
        match = re.fullmatch(r"([^\W\d]\w*)=(\d{1,18})", text)
        if match is None:
            raise Misused(f"--dim is such as batch=8, not {text!r}")
        if sizes.setdefault(match[1], int(match[2])) != int(match[2]):
            raise Misused(f"--dim: {match[1]!r} has two sizes")
    return sizes


# ---------------------------------------------------------------- sizes


def _known(dim: int | str, sizes: Mapping[str, int]) -> int | None:
    """The size of a spec's dim, if it is known already."""
    if isinstance(dim, int):
        return None if dim < 0 else dim
    parsed = parse_dim(dim)
    return parsed.evaluate(sizes) if all(p.name in sizes for p in parsed.parameters) else None


def _bind(sizes: dict[str, int], type_: _Type, shape: Sequence[int | None]) -> None:
    """Takes the sizes of named dims from a shape; whether they fit is for the model to say."""
    for dim, size in zip(type_.shape, shape, strict=False):
        if isinstance(dim, SymbolicDim) and size is not None:
            sizes.setdefault(dim.name, size)


def _shape(who: str, dims: Iterable[Dim], sizes: Mapping[str, int]) -> list[int]:
    """A shape in numbers.

    Raises:
        Misused: If a name has no size, or one is negative.
    """
    shape = []
    for dim in dims:
        unknown = [p.name for p in dim.parameters if p.name not in sizes]
        if unknown:
            raise Misused(
                f"{who}: the size of {unknown[0]!r} is not known; give --dim {unknown[0]}=..."
            )
        size = dim.evaluate(sizes)
        if size < 0:
            raise Misused(f"{who}: the size of {dim} would be {size}; give other ones with --dim")
        shape.append(size)
    return shape


def fitting_sizes(
    names: Iterable[str], conditions: Sequence[Condition], fixed: Mapping[str, int]
) -> dict[str, int]:
    """Small sizes that meet all conditions.

    Args:
        names: The dims that need one.
        conditions: What has to hold.
        fixed: Sizes that are known.

    Raises:
        Misused: If none are found.

    >>> even = [Condition.parse("n % 4 == 0"), Condition.parse("m == n + 1")]
    >>> fitting_sizes(["n", "m"], even, {})
    {'n': 4, 'm': 5}
    """
    # Those that are computed from others come after them.
    computed = {
        c.left.name: c.right
        for c in conditions
        if c.relation == "==" and not c.divisor and isinstance(c.left, SymbolicDim)
    }
    free = sorted(
        (n for n in dict.fromkeys(names) if n not in fixed), key=lambda name: name in computed
    )
    told = {int(c) for each in conditions for c in re.findall(r"\b\d{1,9}\b", str(each))}
    near = {k * c + i for c in told for k in (1, 2) for i in range(3)}
    # Neither 0 nor 1 at first: they hide which dim is which.
    candidates = [2, 3, 4, 5, 6, 8, 1, *sorted(near - {0}), 12, 16, 32, 64, 128, 0]
    tries = itertools.count()

    def extended(sizes: dict[str, int], left: list[str]) -> dict[str, int] | None:
        if not left:
            return sizes
        name = left[0]
        own = computed.get(name)
        exact = [] if own is None else [s for s in [_known(str(own), sizes)] if s is not None]
        for size in dict.fromkeys([*(s for s in exact if s >= 0), *candidates]):
            if next(tries) > _TRIES:
                return None
            more = {**sizes, name: size}
            checked = (c for c in conditions if name in c.names and c.names <= more.keys())
            if all(c.holds(more) for c in checked):
                whole = extended(more, left[1:])
                if whole is not None:
                    return whole
        return None

    found = extended(dict(fixed), free)
    if found is None:
        raise Misused(
            f"no sizes were found that meet {', '.join(map(str, conditions))}; give them with "
            f"--dim, such as --dim {free[0]}=8"
        )
    return found


# ---------------------------------------------------------------- contents


def _random(
    who: str, dtype: DType, dims: Iterable[Dim], sizes: Mapping[str, int], seed: int
) -> _Array:
    array = np.empty(_shape(who, dims, sizes), dtype.np)
    fill_random(array, dtype, seed=seed)
    return array


def _devices(given: Given) -> list[Device]:
    """The devices a model may run on.

    Raises:
        Misused: If there is none of those that are asked for.
    """
    accelerators: list[Device] = (
        [] if given.device == "cpu" else [Accelerator(i) for i in range(accelerator_count())]
    )
    if given.device == "accelerator":
        if not accelerators:
            raise Misused("--device: there is no accelerator here")
        return accelerators
    return [CPU(), *accelerators]
