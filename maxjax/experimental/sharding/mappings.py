# SPDX-License-Identifier: Apache-2.0
"""``DeviceMapping``: a mesh, and how a tensor is placed along each of its axes."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

from maxjax.driver import Device
from maxjax.experimental.sharding.mesh import DeviceMesh, get_default_mesh
from maxjax.experimental.sharding.placements import Partial, Placement, Replicated, Sharded
from maxjax.graph.device import DeviceRef

__all__ = ["ConversionError", "DeviceMapping", "NamedMapping", "SpecEntry", "as_device_mapping"]

SpecEntry: TypeAlias = "str | tuple[str, ...] | None"
"""What splits an axis of a tensor: an axis of the mesh, several, or none."""


class ConversionError(Exception):
    """A specification by names has no meaning as placements."""


@dataclass(frozen=True, repr=False)
class DeviceMapping:
    """A mesh, and how a tensor is placed along each axis of it.

    Args:
        mesh: The devices.
        placements: A placement for each axis of the mesh.

    Raises:
        TypeError: If one of them is something else.
        ValueError: If there is not a placement for each axis.

    >>> from maxjax.driver import CPU
    >>> mesh = DeviceMesh((CPU(),) * 4, (2, 2), ("dp", "tp"))
    >>> DeviceMapping(mesh, (Sharded(0), Replicated()))
    DeviceMapping(DeviceMesh(dp=2, tp=2), [Sharded(axis=0), Replicated()])
    """

    mesh: DeviceMesh
    placements: tuple[Placement, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.mesh, DeviceMesh):
            raise TypeError(f"a mapping is over a DeviceMesh, got {self.mesh!r:.60}")
        placements = tuple(self.placements)
        for p in placements:
            if not isinstance(p, Placement):
                hint = f"; write {p.__name__}()" if isinstance(p, type) else ""
                raise TypeError(
                    f"expected a placement, such as Replicated() or Sharded(0), got {p!r:.60}{hint}"
                )
        if len(placements) != self.mesh.ndim:
            raise ValueError(
                f"{self.mesh} has {self.mesh.ndim} axes and needs a placement for each, got "
                f"{len(placements)}: {list(placements)}"
            )
        object.__setattr__(self, "placements", placements)

    @classmethod
    def replicated(cls, mesh: DeviceMesh) -> DeviceMapping:
        """A copy on every device of a mesh.

        >>> from maxjax.driver import CPU
        >>> DeviceMapping.replicated(DeviceMesh.single(CPU())).is_fully_replicated
        True
        """
        return DeviceMapping(mesh, (Replicated(),) * mesh.ndim)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device has a copy."""
        return all(isinstance(p, Replicated) for p in self.placements)

    def check_shape(self, shape: Sized) -> None:
        """Makes sure that a tensor has the axes that are split.

        Args:
            shape: Its shape.

        Raises:
            ValueError: If it lacks one.
        """
        for name, p in zip(self.mesh.axis_names, self.placements, strict=True):
            axis = p.localized_axis()
            if axis is not None and not 0 <= axis < len(shape):
                last = f"0 to {len(shape) - 1}" if len(shape) else "none"
                raise ValueError(
                    f"{p} on mesh axis {name!r} splits an axis that the tensor has not; "
                    f"a tensor of {len(shape)} axes has: {last}"
                )

    def __repr__(self) -> str:
        return f"DeviceMapping({self.mesh}, {list(self.placements)})"


class NamedMapping(DeviceMapping):
    """A mapping given by the names of mesh axes, one entry for each axis of the tensor.

    Names that the mesh has not are left out, so that one specification serves meshes with and
    without some axis.

    Args:
        mesh: The devices; those of ``tensor.default_device`` if left out.
        spec: For each axis of the tensor, the mesh axis that splits it, a tuple of several, or
            None. Axes past the last entry are whole.
        unreduced: Mesh axes along which the tensor is a sum that has not been taken.

    Raises:
        ConversionError: If a mesh axis is used twice.
        TypeError: If an entry is none of these.
        ValueError: If no mesh is given and there is no default one.

    >>> from maxjax.driver import CPU
    >>> mesh = DeviceMesh((CPU(),) * 4, (2, 2), ("dp", "tp"))
    >>> NamedMapping(mesh, (None, "tp")).placements
    (Replicated(), Sharded(axis=1))
    """

    spec: tuple[SpecEntry, ...]
    unreduced: frozenset[str]

    def __init__(
        self,
        mesh: DeviceMesh | None = None,
        spec: tuple[SpecEntry, ...] = (),
        *,
        unreduced: Iterable[str] = (),
    ) -> None:
        mesh = get_default_mesh() if mesh is None else mesh
        if mesh is None:
            raise ValueError(
                "no mesh is given, and none is in force; name one, or use "
                "tensor.default_device(mesh)"
            )
        if not isinstance(mesh, DeviceMesh):
            raise TypeError(f"a mapping is over a DeviceMesh, got {mesh!r:.60}")
        if isinstance(spec, str) or isinstance(unreduced, str):
            given = spec if isinstance(spec, str) else unreduced
            raise TypeError(f"expected a tuple with an entry for each axis, got {given!r}")
        entries = [_names(mesh, e) for e in spec]
        sums = [n for n in unreduced if n in mesh.axis_names]
        placements: dict[str, Placement] = {}
        for axis, names in enumerate(entries):
            for name in names:
                _once(placements, name, Sharded(axis), spec)
        for name in sums:
            _once(placements, name, Partial(), spec)
        kept = [e[0] if len(e) == 1 else e or None for e in entries]
        while kept and kept[-1] is None:
            kept.pop()
        object.__setattr__(self, "spec", tuple(kept))
        object.__setattr__(self, "unreduced", frozenset(sums))
        super().__init__(mesh, tuple(placements.get(n, Replicated()) for n in mesh.axis_names))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NamedMapping):
            return False if isinstance(other, DeviceMapping) else NotImplemented
        return (self.mesh, self.placements) == (other.mesh, other.placements)

    def __hash__(self) -> int:
        return hash((NamedMapping, self.mesh, self.placements))

    def __repr__(self) -> str:
        spec = ", ".join(map(repr, self.spec))
        names = ", ".join(repr(n) for n in self.mesh.axis_names if n in self.unreduced)
        sums = f", unreduced={{{names}}}" if names else ""
        return f"NamedMapping({self.mesh}, ({spec}){sums})"


def _names(mesh: DeviceMesh, entry: Any) -> tuple[str, ...]:
    """The axes of the mesh that an entry names."""
    names = () if entry is None else (entry,) if isinstance(entry, str) else entry
    if not isinstance(names, tuple | list) or not all(isinstance(n, str) for n in names):
        raise TypeError(
            f"an entry is the name of a mesh axis, a tuple of names or None, got {entry!r:.60}"
        )
    return tuple(n for n in names if n in mesh.axis_names)


def _once(placements: dict[str, Placement], name: str, placement: Placement, spec: Any) -> None:
    if name in placements:
        raise ConversionError(
            f"mesh axis {name!r} cannot be both {placements[name]} and {placement}, as {spec!r} "
            "asks; name each axis once"
        )
    placements[name] = placement


def as_device_mapping(device: Any) -> DeviceMapping:
    """A device, a mesh with a copy on each device, or a mapping as it is, as a mapping.

    Raises:
        TypeError: If it is none of these.

    >>> from maxjax.driver import CPU
    >>> as_device_mapping(CPU())
    DeviceMapping(DeviceMesh(_=1), [Replicated()])
    """
    if isinstance(device, DeviceMapping):
        return device
    if isinstance(device, DeviceMesh):
        return DeviceMapping.replicated(device)
    if isinstance(device, Device | DeviceRef):
        return DeviceMapping.replicated(DeviceMesh.single(device))  # pyright: ignore[reportArgumentType]
    raise TypeError(
        f"expected a Device, a DeviceRef, a DeviceMesh or a DeviceMapping, got "
        f"{type(device).__name__} {device!r:.60}"
    )
