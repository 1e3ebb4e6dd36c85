# SPDX-License-Identifier: Apache-2.0
"""A folded graph as a function of arrays over a mesh, of which each lane has a part."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import StaticDim
from maxjax.graph.shape import Shape
from maxjax.graph.type import BufferType, Type
from maxjax.lower.fold import Folded, NotFolded, accelerators, fold
from maxjax.lower.function import LoweredFunction, Manner, to_jax
from maxjax.lower.lane_ops import LANES, stacked
from maxjax.lower.pieces import cut_out, tiled
from maxjax.lower.signature import Function, Signature

__all__ = ["LaneFunction", "Layout", "Part", "arguments", "layout_of", "no_program", "one_program"]


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

    def whole_shape(self, lanes: int) -> tuple[int, ...]:
        """The shape of the array; empty where it is not known."""
        dims = self.whole(lanes).shape
        return tuple(int(d) for d in dims) if all(isinstance(d, StaticDim) for d in dims) else ()

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

    def arrays(self, sources: Mapping[str, Any]) -> dict[str, Any]:
        """The weights that go in here, whole, of those of the graph that was folded."""
        found = {}
        for name, spread in self.folded.weights.items():
            part = self.layout.weights[name]
            if spread.everywhere is not None:
                found[name] = cut_out(spread.everywhere, sources)
            elif name in sources and tuple(sources[name].shape) == part.whole_shape(self.lanes):
                found[name] = sources[name]
            else:
                own = [spread.lanes.get(i) for i in range(self.lanes)]
                like = np.asarray(cut_out(next(p for p in own if p is not None), sources))
                parts = [np.zeros_like(like) if p is None else cut_out(p, sources) for p in own]
                if part.is_vector:
                    parts = [np.reshape(p, (1,)) for p in parts]
                found[name] = np.concatenate(parts, part.axis or 0)
        return found

    @property
    def lanes(self) -> int:
        """How many there are."""
        return len(self.layout.devices)

    def over(self, mesh: Mesh | AbstractMesh) -> Any:
        """The function over a mesh with the axis ``LANES``: of weights, tensors and buffers."""
        layout, body = self.layout, self._body
        groups = [p for p, _ in layout.tensors], [p for p, _ in layout.buffers]
        tensors, buffers = ([p.spec for p in g] for g in groups)
        return jax.shard_map(
            body,
            mesh=mesh,
            in_specs=({n: p.spec for n, p in layout.weights.items()}, tensors, buffers),
            out_specs=([p.spec for p in layout.outputs], buffers),
            check_vma=False,
        )

    def stacked(self) -> Any:
        """The same function on arrays whose lanes are an axis of ``jax.vmap``.

        One device can run it for all lanes; on a mesh, XLA sees by the arguments' shardings that
        each device has one lane to compute.
        """
        layout, n = self.layout, self.lanes
        groups = [p for p, _ in layout.tensors], [p for p, _ in layout.buffers]

        def run(weights: Any, tensors: Any, states: Any) -> Any:
            own = {name: _lanes_first(w, layout.weights[name], n) for name, w in weights.items()}
            given = [_lanes_first(t, p, n) for t, p in zip(tensors, groups[0], strict=True)]
            kept = [_lanes_first(t, p, n) for t, p in zip(states, groups[1], strict=True)]
            axes = [
                {name: _mapped(layout.weights[name]) for name in weights},
                [_mapped(p) for p in groups[0]],
                [_mapped(p) for p in groups[1]],
            ]
            with stacked():
                mapped = jax.vmap(self._body, tuple(axes), axis_name=LANES, axis_size=n)
                outputs, finals = mapped(own, given, kept)
            made = [_lanes_last(o, p, n) for o, p in zip(outputs, layout.outputs, strict=True)]
            return made, [_lanes_last(f, p, n) for f, p in zip(finals, groups[1], strict=True)]

        return run

    def _body(self, weights: Any, tensors: Any, states: Any) -> Any:
        """What one lane computes of its parts, which are parts of its outputs."""
        layout = self.layout
        groups = [p for p, _ in layout.tensors], [p for p, _ in layout.buffers]
        own = {n: _inside(w, layout.weights[n]) for n, w in weights.items()}
        given = [_inside(t, p) for t, p in zip(tensors, groups[0], strict=True)]
        kept = [_inside(t, p) for t, p in zip(states, groups[1], strict=True)]
        outputs, finals = self.local(own, given, kept)
        made = [_outside(o, p) for o, p in zip(outputs, layout.outputs, strict=True)]
        return made, [_outside(f, p) for f, p in zip(finals, groups[1], strict=True)]

    def __call__(
        self, weights: Mapping[Any, Any], inputs: Sequence[Any], buffers: Sequence[Any] = ()
    ) -> tuple[list[Any], list[Any]]:
        """The outputs, and the buffers' contents afterwards, over a mesh that is only named."""
        arrays = [*weights.values(), *inputs, *buffers]
        if any(not isinstance(d, int) for a in arrays for d in a.shape):
            # JAX cannot find the sizes inside of a shard_map whose sizes were symbolic.
            return self.stacked()(dict(weights), list(inputs), list(buffers))
        mesh = AbstractMesh((self.lanes,), (LANES,))
        return self.over(mesh)(dict(weights), list(inputs), list(buffers))


def _mapped(part: Part) -> int | None:
    return None if part.axis is None else 0


def _lanes_first(array: Any, part: Part, lanes: int) -> Any:
    """An array over the mesh with an axis of lanes of its own, in front."""
    if part.axis is None:
        return array
    shape = list(array.shape)
    shape[part.axis : part.axis + 1] = [lanes, shape[part.axis] // lanes]
    return jnp.moveaxis(jnp.reshape(array, shape), part.axis, 0)


def _lanes_last(array: Any, part: Part, lanes: int) -> Any:
    """The other way."""
    if part.axis is None:
        return array[0]
    array = jnp.moveaxis(array, 0, part.axis)
    shape = list(array.shape)
    shape[part.axis : part.axis + 2] = [lanes * shape[part.axis + 1]]
    return jnp.reshape(array, shape)


def _inside(array: Any, part: Part) -> Any:
    return jnp.reshape(array, ()) if part.is_vector else array


def _outside(array: Any, part: Part) -> Any:
    return jnp.reshape(array, (1,)) if part.is_vector else array


def layout_of(function: Function) -> Layout | None:
    """How a function over a mesh is laid out; None of one for one device."""
    return getattr(function, "layout", None)


def arguments(signature: Signature, layout: Layout | None) -> tuple[list[Type], list[Type]]:
    """The types of the arrays that a function takes: tensors, and buffers."""
    if layout is not None:
        n = len(layout.devices)
        tensors, buffers = ([p.whole(n) for p, _ in g] for g in (layout.tensors, layout.buffers))
        return tensors, buffers
    found: tuple[list[Type], list[Type]] = [], []
    for type_, is_buffer in zip(signature.inputs, signature.is_buffer, strict=True):
        found[is_buffer].append(type_)
    return found


def one_program(function: Function) -> Function:
    """A function as one program: that over a mesh, if it names several accelerators.

    Raises:
        ValueError: If there is none; says why.
    """
    if not isinstance(function, LoweredFunction) or len(accelerators(function.graph)) < 2:
        return function
    try:
        return LaneFunction(fold(function.graph), function.manner)
    except NotFolded as e:
        raise no_program(function.signature.name, str(e)) from None


def no_program(name: str, reason: str) -> ValueError:
    """The error for a graph that would have to be one program."""
    return ValueError(
        f"graph {name!r} runs as a program for each device, and an artifact is one program: "
        f"{reason}"
    )
