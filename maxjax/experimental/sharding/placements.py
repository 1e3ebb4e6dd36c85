# SPDX-License-Identifier: Apache-2.0
"""Placements: what the devices along one axis of a mesh hold of a tensor."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from maxjax.experimental.sharding.mesh import AxisLike, DeviceMesh
from maxjax.experimental.sharding.per_shard_dim import PerShardDim, make_per_shard_dim
from maxjax.graph.dim import AlgebraicDim, Dim, DimLike, StaticDim, SymbolicDim
from maxjax.graph.shape import Shape

__all__ = [
    "Collective",
    "Partial",
    "Placement",
    "Replicated",
    "Sharded",
    "ShardingError",
    "Unknown",
    "even_shard_sizes",
    "local_shard_shape_from_global",
    "sharding_axes",
]


class ShardingError(RuntimeError):
    """Tensors are not placed as they would have to be, or cannot be split so."""


class Collective(enum.Enum):
    """What brings the devices along an axis from one placement to another.

    Attributes:
        NOOP: Nothing.
        LOCAL_SLICE: Each device keeps a part of its copy.
        KEEP_ONE_COPY: The first device keeps its copy, the others hold zeros.
        ALLGATHER: Every device gets all parts.
        ALL_TO_ALL: Every device gets a part of another axis from each device.
        ALLREDUCE: Every device gets the sum.
        REDUCE_SCATTER: Every device gets a part of the sum.
        INFEASIBLE: Nothing can.
    """

    NOOP = "noop"
    LOCAL_SLICE = "local_slice"
    KEEP_ONE_COPY = "keep_one_copy"
    ALLGATHER = "allgather"
    ALL_TO_ALL = "all_to_all"
    ALLREDUCE = "allreduce"
    REDUCE_SCATTER = "reduce_scatter"
    INFEASIBLE = "infeasible"


class Placement(ABC):
    """What the devices along one axis of a mesh hold of a tensor."""

    __slots__ = ()

    def localized_axis(self) -> int | None:
        """The tensor axis that is split; None if none is."""
        return None

    def local_dim(
        self,
        parent: DimLike,
        mesh: DeviceMesh,
        mesh_axis: int | Sequence[int],
        *,
        allow_symbolic_mint: bool = True,
    ) -> Dim:
        """The size that each device has of a dimension of this size.

        Args:
            parent: The size of the whole.
            mesh: The devices.
            mesh_axis: The axis, or axes, that the placement is for.
            allow_symbolic_mint: Whether parts of a symbolic size may get names.

        Raises:
            ShardingError: If the size cannot be split.
        """
        return Dim(parent)

    def transition_to(self, other: Placement) -> Collective:
        """What brings a tensor from this placement to another.

        >>> Partial().transition_to(Sharded(0))
        <Collective.REDUCE_SCATTER: 'reduce_scatter'>
        """
        if self == other:
            return Collective.NOOP
        return _COLLECTIVES.get((type(self), type(other)), Collective.INFEASIBLE)

    @abstractmethod
    def __repr__(self) -> str:
        """The placement as Python writes it."""


@dataclass(frozen=True, repr=False)
class Replicated(Placement):
    """Every device holds a copy."""

    def __repr__(self) -> str:
        return "Replicated()"


@dataclass(frozen=True, repr=False)
class Partial(Placement):
    """The tensor is the sum of what the devices hold."""

    def __repr__(self) -> str:
        return "Partial()"


@dataclass(frozen=True, repr=False)
class Unknown(Placement):
    """What the devices hold has no known meaning as one tensor."""

    def __repr__(self) -> str:
        return "Unknown()"


@dataclass(frozen=True, repr=False)
class Sharded(Placement):
    """Each device holds a part along an axis of the tensor.

    Parts are as equal as they can be, the larger ones first: 10 over 4 devices is 3, 3, 2, 2.
    The parts of a symbolic size are named after it, the axis of the mesh and the place along it:
    ``n_tp_0``, ``n_tp_1``. Where several axes of a mesh split one axis of a tensor, they split it
    together, over all their devices.

    Args:
        axis: The axis of the tensor.

    Raises:
        TypeError: If the axis is no int.

    >>> from maxjax.driver import CPU
    >>> from maxjax.experimental.sharding.mesh import DeviceMesh
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> print(Sharded(0).local_dim(5, mesh, 0), Sharded(0).local_dim("n", mesh, 0))
    (3 | 2) (n_tp_0 | n_tp_1)
    """

    axis: int

    def __post_init__(self) -> None:
        if not isinstance(self.axis, int) or isinstance(self.axis, bool):
            raise TypeError(f"the axis that is split is an int, got {self.axis!r:.60}")

    def localized_axis(self) -> int:
        """The tensor axis that is split."""
        return self.axis

    def local_dim(
        self,
        parent: DimLike,
        mesh: DeviceMesh,
        mesh_axis: int | Sequence[int],
        *,
        allow_symbolic_mint: bool = True,
    ) -> Dim:
        """The part of a dimension that each device has.

        Args:
            parent: The size of the whole; sizes that are split already stay so.
            mesh: The devices.
            mesh_axis: The axis of the mesh, or the axes, over which it is split.
            allow_symbolic_mint: Whether parts of a symbolic size may get names.

        Raises:
            ShardingError: If the size is an expression, or symbolic and may get no names.
        """
        whole = Dim(parent)
        axes = _in_order(mesh, mesh_axis)
        places = range(mesh.num_devices)
        if isinstance(whole, PerShardDim):
            return whole
        if isinstance(whole, StaticDim):
            sizes = even_shard_sizes(whole.dim, mesh.axis_size(axes))
            return make_per_shard_dim([Dim(sizes[mesh.device_coord(d, axes)]) for d in places])
        if isinstance(whole, AlgebraicDim):
            raise ShardingError(
                f"the size {whole} cannot be split over {_named(mesh, axes)}: parts of an "
                "expression have no names; split what it is computed from, or give it a name"
            )
        if not allow_symbolic_mint:
            raise ShardingError(
                f"the size {whole} cannot be split over {_named(mesh, axes)}: its parts have no "
                "names here"
            )
        return make_per_shard_dim([_part(whole, mesh, axes, d) for d in places])

    def __repr__(self) -> str:
        return f"Sharded(axis={self.axis})"


_COLLECTIVES = {
    (Replicated, Sharded): Collective.LOCAL_SLICE,
    (Replicated, Partial): Collective.KEEP_ONE_COPY,
    (Sharded, Replicated): Collective.ALLGATHER,
    (Sharded, Sharded): Collective.ALL_TO_ALL,
    (Partial, Replicated): Collective.ALLREDUCE,
    (Partial, Sharded): Collective.REDUCE_SCATTER,
}


def even_shard_sizes(global_size: int, num_shards: int) -> list[int]:
    """The sizes of parts that are as equal as they can be, the larger ones first.

    Raises:
        ValueError: If there are no parts, or the size is negative.

    >>> even_shard_sizes(10, 4), even_shard_sizes(3, 4)
    ([3, 3, 2, 2], [1, 1, 1, 0])
    """
    if num_shards < 1 or global_size < 0:
        raise ValueError(f"a size of {global_size} cannot be split into {num_shards} parts")
    each, rest = divmod(global_size, num_shards)
    return [each + (i < rest) for i in range(num_shards)]


def sharding_axes(placements: Sequence[Placement]) -> dict[int, tuple[int, ...]]:
    """For each axis of a tensor that is split, the axes of the mesh that split it.

    >>> sharding_axes((Sharded(1), Replicated(), Sharded(1)))
    {1: (0, 2)}
    """
    found: dict[int, tuple[int, ...]] = {}
    for mesh_axis, placement in enumerate(placements):
        axis = placement.localized_axis()
        if axis is not None:
            found[axis] = (*found.get(axis, ()), mesh_axis)
    return found


def local_shard_shape_from_global(
    global_shape: Sequence[DimLike], mesh: DeviceMesh, placements: Sequence[Placement]
) -> list[Shape]:
    """The shape of the part on each device.

    Args:
        global_shape: The shape of the whole.
        mesh: The devices.
        placements: A placement for each axis of the mesh.

    Raises:
        ValueError: If there is not a placement for each axis, or one splits an axis that the
            shape has not.
        ShardingError: If a size cannot be split.

    >>> from maxjax.driver import CPU
    >>> from maxjax.experimental.sharding.mesh import DeviceMesh
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> [str(s) for s in local_shard_shape_from_global(["n", 5], mesh, (Sharded(1),))]
    ["[Dim('n'), Dim(3)]", "[Dim('n'), Dim(2)]"]
    """
    if len(placements) != mesh.ndim:
        raise ValueError(
            f"{mesh} has {mesh.ndim} axes, and there are {len(placements)} placements; "
            "give one for each axis"
        )
    shape = Shape(global_shape)
    for axis, mesh_axes in sharding_axes(placements).items():
        if not 0 <= axis < len(shape):
            raise ValueError(
                f"Sharded(axis={axis}) splits an axis that a tensor of {len(shape)} axes has not"
            )
        shape[axis] = Sharded(axis).local_dim(shape[axis], mesh, mesh_axes)
    return [
        Shape([d.per_shard[i] if isinstance(d, PerShardDim) else d for d in shape])
        for i in range(mesh.num_devices)
    ]


def _in_order(mesh: DeviceMesh, mesh_axis: AxisLike) -> tuple[int, ...]:
    """Axes of a mesh, in its order: that in which they split a dimension."""
    return tuple(sorted(mesh.axis_indices(mesh_axis)))


def _part(whole: Dim, mesh: DeviceMesh, axes: tuple[int, ...], device: int) -> Dim:
    places = [f"{mesh.axis_names[a]}_{mesh.device_coord(device, a)}" for a in axes]
    return SymbolicDim("_".join([str(whole), *places]))


def _named(mesh: DeviceMesh, axes: Sequence[int]) -> str:
    return "mesh axis " + " and ".join(repr(mesh.axis_names[a]) for a in axes)
