# SPDX-License-Identifier: Apache-2.0
"""``DeviceMesh``: devices in a grid whose axes have names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from maxjax.driver import Device
from maxjax.experimental.sharding._default import DEFAULT_MESH
from maxjax.graph.device import DeviceRef

__all__ = ["AxisLike", "DeviceMesh", "get_default_mesh"]

AxisLike: TypeAlias = "str | int | Sequence[str | int]"
"""One axis of a mesh, by name or number, or several."""


@dataclass(frozen=True, repr=False)
class DeviceMesh:
    """Devices in a grid with named axes.

    Devices are numbered row by row: the last axis changes first. They are all distinct, or all
    the same one. A mesh of one device repeated simulates several: each place has a part of its
    own, in the memory of that device.

    Args:
        devices: The devices, row by row.
        mesh_shape: The size of each axis.
        axis_names: The name of each axis.

    Raises:
        TypeError: If a device is none, a size is no int, or a name no string.
        ValueError: If there are no devices, their number is not the product of the sizes, some
            of them but not all are the same, there is not a name for each axis, or two axes
            have one name.

    >>> from maxjax.driver import CPU
    >>> mesh = DeviceMesh((CPU(),) * 6, (2, 3), ("dp", "tp"))
    >>> mesh, mesh.num_devices
    (DeviceMesh(dp=2, tp=3), 6)
    """

    devices: tuple[Device, ...]
    mesh_shape: tuple[int, ...]
    axis_names: tuple[str, ...]

    def __post_init__(self) -> None:
        devices = tuple(_device(d) for d in self.devices)
        shape, names = tuple(self.mesh_shape), tuple(self.axis_names)
        for size in shape:
            if not isinstance(size, int) or isinstance(size, bool):
                raise TypeError(f"the size of a mesh axis is an int, got {size!r:.60}")
            if size < 1:
                raise ValueError(f"mesh_shape {shape} has the size {size}; sizes are 1 or more")
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"the name of a mesh axis is a string, got {name!r:.60}")
        if not devices or not shape:
            raise ValueError("a mesh needs at least one device and one axis")
        if len(devices) != math.prod(shape):
            raise ValueError(
                f"mesh_shape {shape} is for {math.prod(shape)} devices, got {len(devices)}"
            )
        if len(names) != len(shape):
            raise ValueError(
                f"mesh_shape {shape} has {len(shape)} axes, and axis_names has {len(names)} "
                f"names: {names}"
            )
        if len(set(names)) != len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise ValueError(f"two axes of the mesh are named {twice!r}; names must differ")
        if len(set(devices)) not in (1, len(devices)):
            twice = next(d for d in devices if devices.count(d) > 1)
            raise ValueError(
                f"{twice} is in the mesh {devices.count(twice)} times, beside others; the devices "
                "of a mesh are all distinct, or one device repeated"
            )
        object.__setattr__(self, "devices", devices)
        object.__setattr__(self, "mesh_shape", shape)
        object.__setattr__(self, "axis_names", names)

    @staticmethod
    def single(device: Device) -> DeviceMesh:
        """The mesh of one device: one axis, named ``_``.

        >>> from maxjax.driver import CPU
        >>> DeviceMesh.single(CPU())
        DeviceMesh(_=1)
        """
        return DeviceMesh((device,), (1,), ("_",))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.mesh_shape)

    @property
    def num_devices(self) -> int:
        """The number of places, which a repeated device takes several of."""
        return len(self.devices)

    @property
    def is_simulated(self) -> bool:
        """Whether one device stands for several."""
        return self.num_devices > 1 and self.devices[0] == self.devices[-1]

    def axis_indices(self, axis: AxisLike) -> tuple[int, ...]:
        """The number of each axis that is meant.

        Raises:
            TypeError: If an axis is neither a name nor a number.
            ValueError: If no axis has the name.
            IndexError: If the number is below 0 or past the last axis.
        """
        if isinstance(axis, str | int):
            return (self._axis(axis),)
        if not isinstance(axis, Sequence):
            raise TypeError(
                f"an axis of a mesh is a name, a number or several of these, got {axis!r:.60}"
            )
        return tuple(self._axis(a) for a in axis)

    def _axis(self, axis: str | int) -> int:
        if isinstance(axis, str):
            if axis not in self.axis_names:
                raise ValueError(f"{self} has no axis {axis!r}; its axes are {self.axis_names}")
            return self.axis_names.index(axis)
        if not isinstance(axis, int):
            raise TypeError(f"an axis of a mesh is a name or a number, got {axis!r:.60}")
        if not 0 <= axis < self.ndim:
            raise IndexError(f"{self} has the axes 0 to {self.ndim - 1}, not {axis}")
        return axis

    def axis_size(self, axis: AxisLike) -> int:
        """The size of an axis, or the product of the sizes of several.

        Raises:
            ValueError: If no axis has the name.
            IndexError: If the number is below 0 or past the last axis.

        >>> from maxjax.driver import CPU
        >>> mesh = DeviceMesh((CPU(),) * 6, (2, 3), ("dp", "tp"))
        >>> mesh.axis_size("tp"), mesh.axis_size((0, 1))
        (3, 6)
        """
        return math.prod(self.mesh_shape[a] for a in self.axis_indices(axis))

    def device_coord(self, device_idx: int, axis: AxisLike) -> int:
        """Where a device is along an axis; along several, its place among all their devices.

        Args:
            device_idx: The number of the device in ``devices``.
            axis: An axis, or several, of which the last changes first.

        Raises:
            ValueError: If no axis has the name.
            IndexError: If the device or the axis is below 0 or past the last.

        >>> from maxjax.driver import CPU
        >>> mesh = DeviceMesh((CPU(),) * 6, (2, 3), ("dp", "tp"))
        >>> [mesh.device_coord(4, axis) for axis in ("dp", "tp", ("tp", "dp"))]
        [1, 1, 3]
        """
        axes = self.axis_indices(axis)
        if not 0 <= device_idx < self.num_devices:
            raise IndexError(
                f"{self} has the devices 0 to {self.num_devices - 1}, not {device_idx}"
            )
        coord = 0
        for a in axes:
            stride = math.prod(self.mesh_shape[a + 1 :])
            size = self.mesh_shape[a]
            coord = coord * size + device_idx // stride % size
        return coord

    def groups(self, axis: AxisLike) -> list[tuple[int, ...]]:
        """The devices that differ along these axes only, group by group.

        >>> from maxjax.driver import CPU
        >>> mesh = DeviceMesh((CPU(),) * 6, (2, 3), ("dp", "tp"))
        >>> mesh.groups("tp"), mesh.groups("dp")
        ([(0, 1, 2), (3, 4, 5)], [(0, 3), (1, 4), (2, 5)])
        """
        along = self.axis_indices(axis)
        across = [a for a in range(self.ndim) if a not in along]
        found: dict[int, list[int]] = {}
        for d in range(self.num_devices):
            found.setdefault(self.device_coord(d, across), []).append(d)
        return [tuple(sorted(g, key=lambda d: self.device_coord(d, along))) for g in found.values()]

    def __repr__(self) -> str:
        axes = zip(self.axis_names, self.mesh_shape, strict=True)
        return f"DeviceMesh({', '.join(f'{name}={size}' for name, size in axes)})"


def get_default_mesh() -> DeviceMesh | None:
    """The mesh that ``tensor.default_device`` has set; None outside of it."""
    return DEFAULT_MESH.get()


def _device(device: object) -> Device:
    if isinstance(device, DeviceRef):
        return device.to_device()
    if not isinstance(device, Device):
        raise TypeError(f"a mesh is made of devices, got {type(device).__name__} {device!r:.60}")
    return device
