# SPDX-License-Identifier: Apache-2.0
"""The manifest of an artifact: what the program takes and gives, and what is in the file.

It is YAML. Types are written as specs (``batchx128xf32``), conditions on sizes as text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import yaml

from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import StaticDim, parse_dim
from maxjax.graph.type import BufferType, TensorType
from maxjax.lower.condition import Condition
from maxjax.lower.signature import Signature
from maxjax.lower.spmd import Layout, Part
from maxjax.support.ml import NamedSpec

__all__ = ["FORMAT", "PLATFORMS", "Manifest", "ProgramEntry", "WeightEntry", "spec_of"]

FORMAT = 1
"""The version of the format that is written; all versions up to it are read."""

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""Where a program can run."""

_Type: TypeAlias = TensorType | BufferType
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True)
class ProgramEntry:
    """One program of an artifact.

    Attributes:
        sizes: The sizes it is specialised for; of other dimensions it takes any.
        member: Where it is, as ``jax.export.deserialize`` reads it.
        sha256: The hash of that member.
        modules: Where it is as portable StableHLO: a member and its hash for each platform, or one
            for ``"all"`` where they do not differ.
    """

    sizes: Mapping[str, int]
    member: str
    sha256: str
    modules: Mapping[str, tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class WeightEntry:
    """One weight of an artifact.

    Attributes:
        type: Its type.
        sha256: The hash of its bytes in the weights file; empty if they are not in the artifact.
    """

    type: TensorType
    sha256: str = ""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What an artifact is.

    Attributes:
        name: The name of the graph.
        producer: The versions of what wrote it.
        platforms: Where its programs run.
        devices: How many devices they run on.
        precision: How products of float32 are computed.
        inputs: The type of each input.
        outputs: The type of each output.
        returned: For each output the position of the buffer input that it is, else None.
        counts: The sizes that depend on values, in the order in which the last outputs give them.
        conditions: What sizes it is for.
        programs: The programs; the first one is for all sizes.
        weights: The weights by name.
        weights_sha256: The hash of the header of the weights file; empty if there is none.
        layout: How what goes in and out is spread over several devices; None for one.
    """

    name: str
    producer: Mapping[str, str]
    platforms: tuple[str, ...]
    devices: int
    precision: str
    inputs: tuple[_Type, ...]
    outputs: tuple[_Type, ...]
    returned: tuple[int | None, ...]
    counts: tuple[str, ...]
    conditions: tuple[Condition, ...]
    programs: tuple[ProgramEntry, ...]
    weights: Mapping[str, WeightEntry]
    weights_sha256: str = ""
    layout: Layout | None = None

    @property
    def signature(self) -> Signature:
        """The types around the programs."""
        weights = {name: entry.type for name, entry in self.weights.items()}
        types = (*self.inputs, *self.outputs, *weights.values())
        return Signature(
            self.name,
            self.inputs,
            self.outputs,
            weights,
            self.returned,
            frozenset(self.layout.devices if self.layout else (t.device for t in types)),
            self.conditions,
        )

    def dump(self) -> str:
        """The manifest's text."""
        document: dict[str, Any] = {
            "format": FORMAT,
            "name": self.name,
            "producer": dict(self.producer),
            "platforms": list(self.platforms),
            "devices": self.devices,
            "precision": self.precision,
            "inputs": [_described(t) for t in self.inputs],
            "outputs": [
                _described(t) | ({} if at is None else {"input": at})
                for t, at in zip(self.outputs, self.returned, strict=True)
            ],
            "counts": list(self.counts),
            "conditions": [str(c) for c in self.conditions],
            "programs": [
                {
                    "sizes": dict(p.sizes),
                    "member": p.member,
                    "sha256": p.sha256,
                    "modules": {k: {"member": m, "sha256": h} for k, (m, h) in p.modules.items()},
                }
                for p in self.programs
            ],
            "weights_sha256": self.weights_sha256,
            "weights": {
                name: {"type": str(spec_of(w.type)), "device": str(w.type.device)}
                | ({"sha256": w.sha256} if w.sha256 else {})
                for name, w in self.weights.items()
            },
        }
        if self.layout is not None:
            document["layout"] = _laid_out(self.layout)
        return yaml.dump(document, Dumper=_DUMPER, sort_keys=False, width=2**16, allow_unicode=True)

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """Reads a manifest.

        Raises:
            ValueError: If it is none, is of a version that is not read, or anything in it is not
                as it must be; says which part.
        """
        try:
            document = _loaded(text)
        except (yaml.YAMLError, RecursionError, ValueError) as e:
            raise ValueError(f"the manifest is no proper YAML: {e}") from None
        top = _Part("the manifest", document)
        version = top.get("format", int)
        if not 1 <= version <= FORMAT:
            reads = "version 1" if FORMAT == 1 else f"versions 1 to {FORMAT}"
            raise ValueError(
                f"the artifact has format version {version}, and this maxjax reads {reads}; "
                "update maxjax, or save the artifact again"
            )
        outputs = top.parts("outputs")
        programs = tuple(_program(p) for p in top.parts("programs"))
        if not programs or programs[0].sizes:
            raise ValueError("the manifest has no program for all sizes")
        manifest = cls(
            top.get("name", str),
            {k: str(v) for k, v in top.get("producer", dict).items()},
            tuple(top.strings("platforms")),
            top.get("devices", int),
            top.get("precision", str),
            tuple(_type(p) for p in top.parts("inputs")),
            tuple(_type(p) for p in outputs),
            tuple(p.get("input", int) if "input" in p.value else None for p in outputs),
            tuple(top.strings("counts")),
            tuple(top.each("conditions", Condition.parse)),
            programs,
            {name: _weight(part) for name, part in top.named("weights")},
            top.hash("weights_sha256") if top.get("weights_sha256", str) else "",
            _layout(_Part("the manifest, layout", document["layout"]))
            if "layout" in document
            else None,
        )
        unknown = set(manifest.platforms) - set(PLATFORMS)
        if unknown or not manifest.platforms:
            raise ValueError(f"the manifest lists platforms that are none: {sorted(unknown)}")
        if manifest.devices < 1:
            raise ValueError(f"the manifest says that it runs on {manifest.devices} devices")
        manifest._check_layout()
        for at in manifest.returned:
            if at is not None and not (
                0 <= at < len(manifest.inputs) and isinstance(manifest.inputs[at], BufferType)
            ):
                raise ValueError(f"the manifest says that an output is input {at}, no buffer")
        told = manifest.outputs[max(0, len(manifest.outputs) - len(manifest.counts)) :]
        if len(told) != len(manifest.counts) or not all(map(_is_count, told)):
            raise ValueError(
                f"the manifest says that its last {len(manifest.counts)} outputs tell sizes, which "
                "are int64 scalars"
            )
        return manifest

    def _check_layout(self) -> None:
        layout = self.layout
        n = 1 if layout is None else len(layout.devices)
        if n != self.devices or (layout is not None and n < 2):
            raise ValueError(
                f"the manifest says that it runs on {self.devices} devices, and lays out {n}"
            )
        if layout is None:
            return
        if layout.weights.keys() != self.weights.keys():
            raise ValueError("the manifest's layout has other weights than the manifest")
        used = sorted(i for _, numbers in layout.inputs for i in numbers if i >= 0)
        if used != list(range(len(self.inputs))):
            raise ValueError("the manifest's layout has other inputs than the manifest")
        right = len(layout.results) == len(self.outputs) and all(
            0 <= k < len(layout.outputs) and 0 <= lane < n for k, lane in layout.results
        )
        for part, numbers in layout.inputs:
            right = right and len(numbers) == (1 if part.axis is None else n)
            right = right and max(numbers) >= 0
        if not right:
            raise ValueError("the manifest's layout is not of its inputs and outputs")


def _laid_out(layout: Layout) -> dict[str, Any]:
    def part(p: Part) -> dict[str, Any]:
        return _described(p.type) | ({} if p.axis is None else {"axis": p.axis})

    return {
        "devices": [str(d) for d in layout.devices],
        "inputs": [part(p) | {"of": list(numbers)} for p, numbers in layout.inputs],
        "outputs": [part(p) for p in layout.outputs],
        "results": [list(r) for r in layout.results],
        "weights": {name: part(p) for name, p in layout.weights.items()},
    }


def _layout(top: _Part) -> Layout:
    def part(entry: _Part) -> Part:
        axis = entry.get("axis", int) if "axis" in entry.value else None
        type_ = _type(entry)
        if axis is not None and not 0 <= axis < max(1, len(type_.shape)):
            raise ValueError(f"{entry.where}: 'axis' is none of {type_.brief()}")
        return Part(type_, axis)

    def numbers(where: str, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or not value or any(type(v) is not int for v in value):
            raise ValueError(f"{where} is to be numbers, not {value!r:.60}")
        return tuple(value)

    pairs = [numbers("the manifest, layout, results", r) for r in top.get("results", list)]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("the manifest, layout, results: each is to be a pair")
    return Layout(
        tuple(_device("the manifest, layout", d) for d in top.strings("devices")),
        tuple((part(i), numbers(i.where, i.value.get("of"))) for i in top.parts("inputs")),
        {name: part(p) for name, p in top.named("weights")},
        tuple(part(o) for o in top.parts("outputs")),
        tuple((pair[0], pair[1]) for pair in pairs),
    )


def _device(where: str, text: str) -> DeviceRef:
    name, _, number = text.partition(":")
    if name not in ("cpu", "gpu") or not re.fullmatch(r"\d{1,9}", number):
        raise ValueError(f"{where}: 'device' is such as cpu:0, not {text!r:.60}")
    return DeviceRef(name, int(number))


def _is_count(type_: _Type) -> bool:
    return type_.dtype is DType.int64 and not type_.shape


def spec_of(type_: _Type) -> NamedSpec:
    """A graph type as a spec."""
    dims = [d.dim if isinstance(d, StaticDim) else str(d) for d in type_.shape]
    return NamedSpec(dims, type_.dtype)


def _described(type_: Any) -> dict[str, Any]:
    kind = "buffer" if isinstance(type_, BufferType) else "tensor"
    return {"type": str(spec_of(type_)), "kind": kind, "device": str(type_.device)}


class _Part:
    """A mapping of the document, whose entries are checked as they are read."""

    def __init__(self, where: str, value: Any) -> None:
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            raise ValueError(f"{where} is no mapping with names as keys, but {value!r:.60}")
        self.where = where
        self.value: dict[str, Any] = value

    def get(self, key: str, kind: type) -> Any:
        value = self.value.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(
                f"{self.where}: {key!r} is to be of type {kind.__name__}, not {value!r:.60}"
            )
        return value

    def parts(self, key: str) -> list[_Part]:
        where = f"{self.where}, {key}"
        return [_Part(f"{where} {i}", v) for i, v in enumerate(self.get(key, list))]

    def named(self, key: str) -> list[tuple[str, _Part]]:
        part = _Part(f"{self.where}, {key}", self.get(key, dict))
        return [(n, _Part(f"{part.where} {n!r:.60}", v)) for n, v in part.value.items()]

    def strings(self, key: str) -> list[str]:
        values: Sequence[Any] = self.get(key, list)
        if not all(isinstance(v, str) for v in values):
            raise ValueError(f"{self.where}: {key!r} is to be names, not {values!r:.60}")
        return list(values)

    def each(self, key: str, read: Callable[[str], Any]) -> list[Any]:
        try:
            return [read(v) for v in self.strings(key)]
        except ValueError as e:
            raise ValueError(f"{self.where}: {key!r}: {e}") from None

    def hash(self, key: str) -> str:
        value = self.get(key, str)
        if not _HASH.fullmatch(value):
            raise ValueError(f"{self.where}: {key!r} is no SHA-256: {value!r:.60}")
        return value


def _type(part: _Part) -> Any:
    kind = part.value.get("kind", "tensor")
    if kind not in ("tensor", "buffer"):
        raise ValueError(f"{part.where}: 'kind' is tensor or buffer, not {kind!r:.60}")
    device = _device(part.where, part.get("device", str))
    try:
        spec = NamedSpec.parse(part.get("type", str))
        if any(d == -1 for d in spec.dims):
            raise ValueError(f"the spec {spec} has a dim without a name")
        dims = [parse_dim(d) if isinstance(d, str) else d for d in spec.dims]
        dtype = DType(spec.dtype.value)
        cls = BufferType if kind == "buffer" else TensorType
        return cls(dtype, dims, device)
    except (ValueError, TypeError, OverflowError, RecursionError, ZeroDivisionError) as e:
        raise ValueError(f"{part.where}: 'type': {e}") from None


def _program(part: _Part) -> ProgramEntry:
    sizes = part.get("sizes", dict)
    for name, size in sizes.items():
        if not isinstance(name, str) or type(size) is not int or size < 0:
            raise ValueError(f"{part.where}: 'sizes' are to be numbers by name, not {sizes!r:.60}")
    modules = {
        platform: (module.get("member", str), module.hash("sha256"))
        for platform, module in part.named("modules")
    }
    return ProgramEntry(sizes, part.get("member", str), part.hash("sha256"), modules)


def _weight(part: _Part) -> WeightEntry:
    if part.value.get("kind", "tensor") != "tensor":
        raise ValueError(f"{part.where}: a weight is a tensor, not a {part.value['kind']!r:.60}")
    return WeightEntry(_type(part), part.hash("sha256") if "sha256" in part.value else "")


# libyaml's parser and emitter, where PyYAML was built with them, are ten times as fast.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = type("_Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})
_DEEPEST = 16


def _loaded(text: str) -> Any:
    """A YAML document that is as long as its text: without aliases, and not deep.

    Raises:
        ValueError: If it is another.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST:
            raise ValueError("it has aliases, or is too deep")
    return yaml.load(text, Loader=_LOADER)


def _mapping(dumper: Any, value: Mapping[str, Any]) -> yaml.Node:
    """What is small on one line."""
    plain = all(isinstance(v, str | int) for v in value.values())
    return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=plain)


_DUMPER.ignore_aliases = lambda self, data: True
_DUMPER.add_representer(dict, _mapping)
