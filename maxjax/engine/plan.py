# SPDX-License-Identifier: Apache-2.0
"""What a model says of how it runs."""

from __future__ import annotations

import dataclasses
import math

from maxjax.graph.dim import StaticDim
from maxjax.graph.type import Type

__all__ = ["Collective", "ExecutionPlan", "Placement", "type_bytes", "type_text"]


def type_bytes(type_: Type) -> int | None:
    """The size in bytes of a tensor of a type; None where a dimension is symbolic."""
    if not all(isinstance(d, StaticDim) for d in type_.shape):
        return None
    return math.prod(int(d) for d in type_.shape) * type_.dtype.size_in_bytes


def type_text(type_: Type) -> str:
    """A type as it is written, without its device: ``f32[batch, 4]``."""
    return f"{type_.dtype.short}{type_.shape.brief()}"


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where an input or a weight is.

    Attributes:
        name: What it is called.
        type: Its type as it is written, ``f32[batch, 4]``.
        where: Where it is: ``cpu:0``, ``each of 4 devices``, ``a part on each of 4 devices``.
        bytes: How much each device has of it, by the device's name; empty where that depends on
            the call.
    """

    name: str
    type: str
    where: str
    bytes: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Collective:
    """A point at which devices hear of each other.

    Attributes:
        kind: ``all-reduce``, ``all-gather``, ``reduce-scatter``, ``permute``, ``broadcast``.
        type: The type of what each device gives.
        bytes: What each device receives in a call, in bytes; None where that depends on the call.
        location: Where it was written.
    """

    kind: str
    type: str
    bytes: int | None
    location: str


@dataclasses.dataclass(frozen=True)
class ExecutionPlan:
    """How a model runs.

    Attributes:
        path: ``one device``, ``one program on all devices``, ``a program for each device``.
        devices: The devices, in order.
        inputs: Where each input is.
        weights: Where each weight is.
        collectives: Where devices hear of each other, in program order.
        reason: Why it is no single program, if it is none.
    """

    path: str
    devices: tuple[str, ...]
    inputs: tuple[Placement, ...] = ()
    weights: tuple[Placement, ...] = ()
    collectives: tuple[Collective, ...] = ()
    reason: str = ""

    @property
    def weight_bytes(self) -> dict[str, int]:
        """How much each device has of all weights, in bytes."""
        total = dict.fromkeys(self.devices, 0)
        for weight in self.weights:
            for device, size in weight.bytes.items():
                total[device] += size
        return total

    def __str__(self) -> str:
        lines = [f"{self.path}: {', '.join(self.devices)}"]
        if self.reason:
            lines.append(f"  because {self.reason}")
        for title, placements in (("inputs", self.inputs), ("weights", self.weights)):
            if placements:
                lines.append(f"{title}:")
                wide = max(len(p.name) for p in placements)
                lines += [f"  {p.name:<{wide}}  {p.type}, {p.where}" for p in placements]
        if self.weights:
            each = self.weight_bytes
            lines.append("bytes of weights:")
            lines += [f"  {device}  {size:,}" for device, size in each.items()]
        if self.collectives:
            lines.append("collectives:")
        for c in self.collectives:
            size = "" if c.bytes is None else f", {c.bytes:,} bytes for each device"
            where = f" at {c.location}" if c.location else ""
            lines.append(f"  {c.kind} of {c.type}{size}{where}")
        return "\n".join(lines)
