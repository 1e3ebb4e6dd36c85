# SPDX-License-Identifier: Apache-2.0
"""What a function of weights, inputs and buffers takes and gives: all that running one needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from maxjax.graph.device import DeviceRef
from maxjax.graph.graph import Graph
from maxjax.graph.type import BufferType, TensorType
from maxjax.graph.value import Value
from maxjax.lower.condition import Condition

__all__ = ["Function", "Signature"]


@dataclasses.dataclass(frozen=True)
class Signature:
    """The types around a function.

    Attributes:
        name: What it is called.
        inputs: The type of each input, buffers included, in order.
        outputs: The type of each output.
        weights: The type of each weight by its full name.
        returned: For each output the position of the buffer input that it is, else None.
        devices: The devices that it names anywhere.
        conditions: What sizes it is for, where that is not all.
    """

    name: str
    inputs: tuple[TensorType | BufferType, ...]
    outputs: tuple[TensorType | BufferType, ...]
    weights: Mapping[str, TensorType]
    returned: tuple[int | None, ...]
    devices: frozenset[DeviceRef]
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, graph: Graph, weights: Mapping[str, TensorType]) -> Signature:
        """The signature of a finished graph with these weights.

        Raises:
            TypeError: If the graph has no outputs yet.
        """
        outputs = graph.outputs
        positions = {id(v): i for i, v in enumerate(graph.inputs) if isinstance(v.type, BufferType)}
        inputs = tuple(_typed(v) for v in graph.inputs)
        made = [r.type.device for node in graph.body.walk() for r in node.results]
        return cls(
            graph.name,
            inputs,
            tuple(_typed(v) for v in outputs),
            weights,
            tuple(positions.get(id(v)) for v in outputs),
            frozenset([*made, *(t.device for t in inputs)]),
        )

    @property
    def is_buffer(self) -> tuple[bool, ...]:
        """For each input whether it is a buffer."""
        return tuple(isinstance(t, BufferType) for t in self.inputs)


def _typed(value: Value) -> TensorType | BufferType:
    return value.type


class Function(Protocol):
    """A pure function with a signature, traceable by JAX inside ``jax.enable_x64(True)``."""

    @property
    def signature(self) -> Signature:
        """What it takes and gives."""
        ...

    @property
    def weight_keys(self) -> tuple[Any, ...]:
        """The keys of ``weights`` in a call: a name, or the names of weights that are stacked."""
        ...

    def __call__(
        self, weights: Mapping[Any, Any], inputs: Sequence[Any], buffers: Sequence[Any] = ()
    ) -> tuple[list[Any], list[Any]]:
        """The outputs, and the buffers' contents afterwards."""
        ...
