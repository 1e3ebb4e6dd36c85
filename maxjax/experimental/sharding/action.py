# SPDX-License-Identifier: Apache-2.0
"""What placement rules are made of: rows that say which placements of inputs give which results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from maxjax import tree
from maxjax.experimental.sharding.mappings import DeviceMapping
from maxjax.experimental.sharding.mesh import DeviceMesh
from maxjax.experimental.sharding.placements import Placement, Replicated, ShardingError
from maxjax.experimental.sharding.types import TensorLayout

__all__ = [
    "Action",
    "AxisAssignment",
    "PerShard",
    "common_mesh",
    "input_placements_at_axis",
    "match_operand_placement",
    "pass_through_rows",
    "placements_on",
    "replicated_rows",
    "stays",
    "tensor_layouts_in",
]

_T = TypeVar("_T")


class AxisAssignment(NamedTuple):
    """One way to run an op along an axis of a mesh.

    Attributes:
        needed_inputs: How each tensor operand has to be placed.
        outputs: How the results are then placed.

    >>> from maxjax.experimental.sharding.placements import Partial, Sharded
    >>> AxisAssignment((Sharded(1), Sharded(0)), (Partial(),))
    AxisAssignment(needed_inputs=(Sharded(axis=1), Sharded(axis=0)), outputs=(Partial(),))
    """

    needed_inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]


@dataclass(frozen=True)
class Action:
    """How an op is run on a mesh.

    Attributes:
        inputs: Where each tensor operand has to be.
        outputs: Where the results then are.
    """

    inputs: tuple[DeviceMapping, ...]
    outputs: tuple[DeviceMapping, ...]


class PerShard(Generic[_T]):
    """A value for each device of a mesh; ``functional.call_on_mesh`` gives each its own.

    >>> offsets = PerShard([0, 4])
    >>> offsets, len(offsets), offsets[1]
    (PerShard((0, 4)), 2, 4)
    """

    __slots__ = ("values",)

    def __init__(self, values: Iterable[_T]) -> None:
        self.values = tuple(values)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> _T:
        return self.values[index]

    def __iter__(self) -> Iterator[_T]:
        return iter(self.values)

    def __eq__(self, other: object) -> bool:
        return self.values == other.values if isinstance(other, PerShard) else NotImplemented

    def __hash__(self) -> int:
        return hash((PerShard, self.values))

    def __repr__(self) -> str:
        return f"PerShard({self.values!r})"


# A rule takes what its op takes, with layouts for tensors.
Rule = Callable[..., list[AxisAssignment]]


def tensor_layouts_in(arguments: Any) -> tuple[TensorLayout, ...]:
    """The layouts among arguments, in order, at any depth of lists, tuples and dicts."""
    found, _ = tree.flatten(arguments, leaf=lambda v: isinstance(v, TensorLayout))
    return tuple(found)


def common_mesh(layouts: Sequence[TensorLayout]) -> DeviceMesh:
    """The mesh that operands are on; operands on one device go with any.

    Raises:
        ShardingError: If they are on meshes of different shapes or axis names.
    """
    meshes = [layout.mesh for layout in layouts]
    first = next((m for m in meshes if m.num_devices > 1), meshes[0])
    for mesh in meshes:
        kind = mesh.mesh_shape, mesh.axis_names
        if mesh.num_devices > 1 and kind != (first.mesh_shape, first.axis_names):
            raise ShardingError(
                f"one operand is on {first} and another on {mesh}; bring them to one mesh with "
                "transfer_to first"
            )
    return first


def placements_on(layout: TensorLayout, mesh: DeviceMesh) -> tuple[Placement, ...]:
    """A placement for each axis of a mesh; an operand on one device counts as a copy on each."""
    return (Replicated(),) * mesh.ndim if stays(layout, mesh) else layout.placements


def stays(layout: TensorLayout, mesh: DeviceMesh) -> bool:
    """Whether an operand of an op on a mesh is on one device, from which each place reads it."""
    single = layout.mesh.num_devices == 1
    return single and (mesh.num_devices > 1 or layout.mesh.ndim != mesh.ndim)


def input_placements_at_axis(
    per_input_placements: Sequence[tuple[Placement, ...]], mesh_axis: int
) -> tuple[Placement, ...]:
    """How each operand is placed along one axis of the mesh."""
    return tuple(placements[mesh_axis] for placements in per_input_placements)


def pass_through_rows(
    layouts: Sequence[TensorLayout],
    outputs: Callable[[tuple[Placement, ...]], tuple[Placement, ...] | None],
) -> list[AxisAssignment]:
    """The rows of an op that takes its operands as they are placed, and never moves them.

    Args:
        layouts: The operands.
        outputs: For the placements of the operands along an axis of the mesh, those of the
            results; None if the op cannot have operands so.

    Raises:
        ShardingError: If it gives None, or the operands are on different meshes.
    """
    mesh = common_mesh(layouts)
    placed = [placements_on(layout, mesh) for layout in layouts]
    rows: dict[AxisAssignment, None] = {}
    for axis in range(mesh.ndim):
        given = input_placements_at_axis(placed, axis)
        results = outputs(given)
        if results is None:
            raise ShardingError(
                f"operands placed {given} along mesh axis {mesh.axis_names[axis]!r} do not go "
                "together, and this op moves none; place them alike with transfer_to first"
            )
        rows[AxisAssignment(given, results)] = None
    return list(rows)


def replicated_rows(*args: Any, output_count: int = 1) -> list[AxisAssignment]:
    """The rule of an op that every device computes in full.

    Args:
        *args: The op's arguments, with a layout for each tensor.
        output_count: The number of results.

    Raises:
        ValueError: If there is no layout among the arguments.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> replicated_rows(TensorLayout(DType.int8, [2], CPU()), 3)
    [AxisAssignment(needed_inputs=(Replicated(),), outputs=(Replicated(),))]
    """
    count = len(tensor_layouts_in(args))
    if not count:
        raise ValueError("no layout of a tensor among the arguments, so nothing is placed")
    return [AxisAssignment((Replicated(),) * count, (Replicated(),) * output_count)]


def match_operand_placement(
    graph_op: Callable[..., Any], name: str, *, output_count: int = 1
) -> Rule:
    """The rule of an op that takes operands as they are, with results placed as one of them.

    Args:
        graph_op: The op.
        name: The parameter whose placement the results take.
        output_count: The number of results.

    Raises:
        ValueError: If the op has no such parameter.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import ops
    >>> rule = match_operand_placement(ops.relu, "x")
    >>> rule(TensorLayout(DType.int8, [2], CPU()))
    [AxisAssignment(needed_inputs=(Replicated(),), outputs=(Replicated(),))]
    """
    signature = inspect.signature(graph_op)
    op = getattr(graph_op, "__name__", "the op")
    if name not in signature.parameters:
        raise ValueError(
            f"{op} has no parameter {name!r}; it has {', '.join(signature.parameters)}"
        )

    def rule(*args: Any, **kwargs: Any) -> list[AxisAssignment]:
        bound = signature.bind(*args, **kwargs)
        followed = bound.arguments.get(name)
        if not isinstance(followed, TensorLayout):
            raise ShardingError(
                f"the results of {op} are placed as {name!r}, which is {followed!r:.60} and no "
                "tensor; name a parameter that is one"
            )
        layouts = tensor_layouts_in((args, kwargs))
        place = next(i for i, layout in enumerate(layouts) if layout is followed)
        return pass_through_rows(layouts, lambda given: (given[place],) * output_count)

    return rule
