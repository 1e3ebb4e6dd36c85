# SPDX-License-Identifier: Apache-2.0
"""``TensorLayout``: element type, shape and mapping; how compiled functions declare arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Self

from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.experimental.sharding.mappings import DeviceMapping, as_device_mapping
from maxjax.experimental.sharding.mesh import DeviceMesh
from maxjax.experimental.sharding.per_shard_dim import (
    PerShardDim,
    global_dim,
    make_per_shard_dim,
)
from maxjax.experimental.sharding.placements import (
    Placement,
    ShardingError,
    Unknown,
    local_shard_shape_from_global,
    sharding_axes,
)
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import Dim
from maxjax.graph.shape import Shape, ShapeLike
from maxjax.graph.type import BufferType, TensorType

__all__ = ["BufferLayout", "TensorLayout", "as_layout", "fold_shape"]


class TensorLayout:
    """The element type, shape and mapping of a tensor.

    Args:
        dtype: The element type.
        shape: The shape of the whole: numbers, names and dims.
        device: Where: a device, a mesh with a copy on each device, or a mapping.

    Attributes:
        dtype: The element type.
        shape: The shape of the whole; split axes of a tensor have a ``PerShardDim``.
        mapping: Where.

    Raises:
        TypeError: If ``dtype`` or ``device`` is something else.
        ValueError: If the mapping splits an axis that the shape has not.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental.sharding.placements import Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> rows = TensorLayout(DType.float32, ["n", 5], DeviceMapping(mesh, (Sharded(1),)))
    >>> rows
    TensorLayout(DType.float32, [n, 5], DeviceMapping(DeviceMesh(tp=2), [Sharded(axis=1)]))
    >>> rows.local_types
    [TensorType(float32, [n, 3], cpu:0), TensorType(float32, [n, 2], cpu:0)]
    """

    __slots__ = ("dtype", "mapping", "shape")
    dtype: DType
    shape: Shape
    mapping: DeviceMapping

    def __init__(
        self,
        dtype: DType,
        shape: ShapeLike,
        device: Device | DeviceRef | DeviceMesh | DeviceMapping,
    ) -> None:
        if not isinstance(dtype, DType):
            raise TypeError(
                f"the dtype of a layout is a DType, such as DType.float32, got {dtype!r:.60}"
            )
        mapping = as_device_mapping(device)
        dims = Shape(shape)
        mapping.check_shape(dims)
        if any(isinstance(d, PerShardDim) for d in dims):
            dims = _settled(dims, mapping)
        _set(self, "dtype", dtype)
        _set(self, "shape", dims)
        _set(self, "mapping", mapping)

    @classmethod
    def of_shards(cls, dtype: DType, shapes: Sequence[ShapeLike], mapping: DeviceMapping) -> Self:
        """The layout of a tensor whose parts have these shapes; see :func:`fold_shape`."""
        return cls(dtype, fold_shape([Shape(s) for s in shapes], mapping), mapping)

    @property
    def rank(self) -> int:
        """The number of axes of the tensor."""
        return len(self.shape)

    @property
    def mesh(self) -> DeviceMesh:
        """The devices."""
        return self.mapping.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """For each axis of the mesh, how the tensor is placed along it."""
        return self.mapping.placements

    @property
    def device(self) -> Device:
        """The device.

        Raises:
            ValueError: If there are several.
        """
        if self.mesh.num_devices != 1:
            raise ValueError(
                f"a layout over {self.mesh.num_devices} devices has no single device; see "
                "mesh.devices"
            )
        return self.mesh.devices[0]

    @property
    def local_shapes(self) -> list[Shape]:
        """The shape of the part on each device.

        Raises:
            ShardingError: If a size cannot be split.
        """
        return local_shard_shape_from_global(self.shape, self.mesh, self.placements)

    @property
    def local_types(self) -> list[Any]:
        """The type of the graph value on each device.

        Raises:
            ShardingError: If a size cannot be split.
        """
        places = map(DeviceRef.from_device, self.mesh.devices)
        return [
            self._type(self.dtype, shape, place)
            for shape, place in zip(self.local_shapes, places, strict=True)
        ]

    def as_buffer(self) -> BufferLayout:
        """The same, of a tensor that is written in place."""
        return BufferLayout(self.dtype, self.shape, self.mapping)

    def as_tensor(self) -> TensorLayout:
        """The same, of a tensor that is only read."""
        return TensorLayout(self.dtype, self.shape, self.mapping)

    _type: Any = TensorType

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"layouts are immutable: make a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"layouts are immutable: cannot delete {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.dtype, self.shape, self.mapping)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (
            self.dtype is other.dtype
            and len(self.shape) == len(other.shape)
            and all(map(_equal, self.shape, other.shape))
            and self.mapping == other.mapping
        )

    def __hash__(self) -> int:
        return hash((type(self), self.dtype, tuple(self.shape), self.mapping))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}, {self.shape.brief()}, {self.mapping})"


_set = object.__setattr__


def _equal(a: Dim, b: Dim) -> bool:
    # A dim with parts knows how it compares with one without, not the other way round.
    return b == a if isinstance(b, PerShardDim) else a == b


class BufferLayout(TensorLayout):
    """The layout of an argument that a compiled function writes in place.

    Args:
        dtype: The element type.
        shape: The shape of the whole.
        device: Where: a device, a mesh with a copy on each device, or a mapping.

    Raises:
        TypeError: If ``dtype`` or ``device`` is something else.
        ValueError: If the mapping splits an axis that the shape has not.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> BufferLayout(DType.int8, [2], CPU()).local_types
    [BufferType(int8, [2], cpu:0)]
    """

    __slots__ = ()
    _type = BufferType


def as_layout(layout: object) -> TensorLayout:
    """A layout as it is, or that of the type of a graph value.

    Raises:
        TypeError: If it is neither; a tensor has one, ``tensor.layout``.

    >>> from maxjax.dtype import DType
    >>> as_layout(TensorType(DType.int8, ["n"], DeviceRef.CPU()))
    TensorLayout(DType.int8, [n], DeviceMapping(DeviceMesh(_=1), [Replicated()]))
    """
    if isinstance(layout, TensorLayout):
        return layout
    if isinstance(layout, TensorType | BufferType):
        cls = BufferLayout if isinstance(layout, BufferType) else TensorLayout
        return cls(layout.dtype, layout.shape, layout.device)
    if isinstance(getattr(layout, "layout", None), TensorLayout):
        raise TypeError(
            f"expected a layout, got a live {type(layout).__name__}, whose sizes would all be "
            "fixed; if that is meant, give its layout: tensor.layout"
        )
    raise TypeError(
        "expected a TensorLayout, a BufferLayout, a TensorType or a BufferType, got "
        f"{type(layout).__name__} {layout!r:.60}"
    )


def fold_shape(shapes: Sequence[Shape], mapping: DeviceMapping) -> Shape:
    """The shape of a tensor whose parts have these shapes.

    A split axis gets a ``PerShardDim``: the sizes of the parts, and their sum. Devices that hold
    copies must agree, except where the placement is unknown.

    Args:
        shapes: The shape of the part on each device.
        mapping: How the parts make up the whole.

    Raises:
        ShardingError: If there is not a part for each device, parts have different numbers of
            axes, or copies differ in size.

    >>> from maxjax.driver import CPU
    >>> from maxjax.experimental.sharding.placements import Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> fold_shape([Shape([3, 4]), Shape([2, 4])], DeviceMapping(mesh, (Sharded(0),)))
    [PerShardDim((Dim(3), Dim(2)), global=Dim(5)), Dim(4)]
    """
    if len(shapes) != mapping.mesh.num_devices or len({len(s) for s in shapes}) != 1:
        ranks = ", ".join(s.brief() for s in shapes)
        raise ShardingError(
            f"{mapping.mesh} needs a part for each of its {mapping.mesh.num_devices} devices, "
            f"all with as many axes, got the shapes {ranks}"
        )
    split = sharding_axes(mapping.placements)
    return Shape(
        [
            _fold(list(cells), axis, split.get(axis, ()), mapping)
            for axis, cells in enumerate(zip(*shapes, strict=True))
        ]
    )


def _fold(cells: list[Dim], axis: int, mesh_axes: tuple[int, ...], mapping: DeviceMapping) -> Dim:
    """The dim of an axis whose parts have these sizes."""
    mesh = mapping.mesh
    distinct: dict[int, Dim] = {}
    for device, cell in enumerate(cells):
        known = distinct.setdefault(mesh.device_coord(device, mesh_axes), cell)
        if known != cell:
            if any(isinstance(p, Unknown) for p in mapping.placements):
                return make_per_shard_dim(cells)
            raise ShardingError(
                f"axis {axis} is {known} on one device and {cell} on another that holds a copy of "
                f"it, by {list(mapping.placements)}: {', '.join(map(str, cells))}"
            )
    if not mesh_axes:
        return cells[0]
    total = distinct.pop(0)
    for place in sorted(distinct):
        total = total + distinct[place]
    return make_per_shard_dim(cells, global_dim=total)


def _settled(shape: Shape, mapping: DeviceMapping) -> Shape:
    """A shape with the sizes of parts where they are those of this mapping, else with wholes."""
    split = sharding_axes(mapping.placements)
    dims = Shape(shape)
    for axis, dim in enumerate(shape):
        if not isinstance(dim, PerShardDim):
            continue
        mesh_axes = split.get(axis, ())
        unknown = any(isinstance(p, Unknown) for p in mapping.placements)
        if len(dim.per_shard) == mapping.mesh.num_devices and (mesh_axes or unknown):
            try:
                _fold(list(dim.per_shard), axis, mesh_axes, mapping)
            except ShardingError:
                pass  # the parts of another way to split it
            else:
                continue
        if dim._global is None:
            raise ShardingError(
                f"axis {axis} has the parts {dim}, which are not those of {mapping}"
            )
        dims[axis] = global_dim(dim)
    return dims
