# SPDX-License-Identifier: Apache-2.0
"""A folded graph as a function of arrays over a mesh, of which each lane has a part."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import StaticDim
from maxjax.graph.shape import Shape
from maxjax.graph.type import BufferType, Type
from maxjax.lower.fold import Folded
from maxjax.lower.function import Manner, to_jax
from maxjax.lower.lane_ops import LANES
from maxjax.lower.pieces import tiled
from maxjax.lower.signature import Signature

__all__ = ["LaneFunction", "Layout", "Part"]


@dataclasses.dataclass(frozen=True)
class Part:
    """How an array is spread over the lanes.

    Attributes:
        type: The type of what one lane has.
        axis: The axis along which the lanes' parts follow each other; None where every lane has
            all. Scalars that differ are the elements of a vector: axis 0 of nothing.
    """

    type: Type
    axis: int | None = None

    def whole(self, lanes: int) -> Any:
        """The type of the array."""
        if self.axis is None:
            return self.type
        dims = list(self.type.shape) or [StaticDim(1)]
        dims[self.axis] = dims[self.axis] * lanes
        cls: Any = type(self.type)
        return cls._of(self.type.dtype, Shape(dims), self.type.device)

    @property
    def spec(self) -> PartitionSpec:
        """The same in JAX's words."""
        if self.axis is None:
            return PartitionSpec()
        return PartitionSpec(*[None] * self.axis, LANES)

    @property
    def is_vector(self) -> bool:
        """Whether it is a scalar on each lane."""
        return self.axis is not None and not self.type.shape


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a program over a mesh takes and gives, and what of that each device has.

    Attributes:
        devices: The device of each lane.
        inputs: For each array that goes in how it is spread, and for each lane the number of the
            input that it has there; -1 where it has none, one number where all have the same.
        weights: How each weight is spread, by its name.
        outputs: How each array that comes out is spread.
        results: For each output the number of the array and the lane of the part that it is.
    """

    devices: tuple[DeviceRef, ...]
    inputs: tuple[tuple[Part, tuple[int, ...]], ...]
    weights: Mapping[str, Part]
    outputs: tuple[Part, ...]
    results: tuple[tuple[int, int], ...]

    @property
    def tensors(self) -> list[tuple[Part, tuple[int, ...]]]:
        """The inputs that are no buffers."""
        return [i for i in self.inputs if not isinstance(i[0].type, BufferType)]

    @property
    def buffers(self) -> list[tuple[Part, tuple[int, ...]]]:
        """The inputs that are buffers."""
        return [i for i in self.inputs if isinstance(i[0].type, BufferType)]

    @classmethod
    def of(cls, folded: Folded) -> Layout:
        """The layout of a folded graph."""
        lanes = range(len(folded.devices))
        inputs = []
        for spread in folded.inputs:
            if spread.everywhere is not None:
                inputs.append((Part(spread.type), (spread.everywhere,)))
            else:
                numbers = tuple(spread.lanes.get(i, -1) for i in lanes)
                inputs.append((Part(spread.type, 0), numbers))
        weights = {}
        for name, spread in folded.weights.items():
            axis = 0
            if spread.everywhere is not None:
                weights[name] = Part(spread.type)
                continue
            found = tiled([spread.lanes.get(i) for i in lanes])
            if found is not None and found[0] == name:
                axis = found[1]
            weights[name] = Part(spread.type, axis)
        whole = {k for k, lane in folded.outputs if lane is None}
        outputs = tuple(
            Part(v.type, None if k in whole else 0) for k, v in enumerate(folded.graph.outputs)
        )
        results = tuple((k, lane or 0) for k, lane in folded.outputs)
        return cls(folded.devices, tuple(inputs), weights, outputs, results)


class LaneFunction:
    """A folded graph as a pure function of arrays over a mesh, traceable by JAX.

    Args:
        folded: The graph.
        manner: How it is lowered.

    Attributes:
        folded: The graph.
        layout: What it takes and gives.
        signature: The types around the graph that was folded; weights are those that go in here.
        local: What one lane computes.
    """

    def __init__(self, folded: Folded, manner: Manner | None = None) -> None:
        self.folded = folded
        self.layout = Layout.of(folded)
        self.local = to_jax(folded.graph, manner)
        lanes = len(folded.devices)
        weights: dict[str, Any] = {n: p.whole(lanes) for n, p in self.layout.weights.items()}
        of_source = Signature.of(folded.source, weights)
        self.signature = dataclasses.replace(of_source, devices=frozenset(folded.devices))

    @property
    def weight_keys(self) -> tuple[str, ...]:
        """The names of its weights."""
        return tuple(self.layout.weights)

    def over(self, mesh: Mesh | AbstractMesh) -> Any:
        """The function over a mesh with the axis ``LANES``: of weights, tensors and buffers."""
        layout = self.layout
        groups = [p for p, _ in layout.tensors], [p for p, _ in layout.buffers]

        def body(weights: Any, tensors: Any, states: Any) -> Any:
            own = {n: _inside(w, layout.weights[n]) for n, w in weights.items()}
            given = [_inside(t, p) for t, p in zip(tensors, groups[0], strict=True)]
            kept = [_inside(t, p) for t, p in zip(states, groups[1], strict=True)]
            outputs, finals = self.local(own, given, kept)
            made = [_outside(o, p) for o, p in zip(outputs, layout.outputs, strict=True)]
            return made, [_outside(f, p) for f, p in zip(finals, groups[1], strict=True)]

        tensors, buffers = ([p.spec for p in g] for g in groups)
        return jax.shard_map(
            body,
            mesh=mesh,
            in_specs=({n: p.spec for n, p in layout.weights.items()}, tensors, buffers),
            out_specs=([p.spec for p in layout.outputs], buffers),
            check_vma=False,
        )

    def __call__(
        self, weights: Mapping[Any, Any], inputs: Sequence[Any], buffers: Sequence[Any] = ()
    ) -> tuple[list[Any], list[Any]]:
        """The outputs, and the buffers' contents afterwards, over a mesh that is only named."""
        mesh = AbstractMesh((len(self.layout.devices),), (LANES,))
        return self.over(mesh)(dict(weights), list(inputs), list(buffers))


def _inside(array: Any, part: Part) -> Any:
    return jnp.reshape(array, ()) if part.is_vector else array


def _outside(array: Any, part: Part) -> Any:
    return jnp.reshape(array, (1,)) if part.is_vector else array
