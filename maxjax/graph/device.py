# SPDX-License-Identifier: Apache-2.0
"""Where a graph's values live: `DeviceRef` names a device without needing it to exist."""

from __future__ import annotations

import operator
from enum import StrEnum
from typing import Any, NoReturn, SupportsIndex

from maxjax.driver import CPU, Accelerator, Device

__all__ = ["DeviceKind", "DeviceRef"]


class DeviceKind(StrEnum):
    """The kinds of device a graph can name.

    Example:
        >>> from maxjax.graph.device import DeviceKind
        >>> str(DeviceKind.GPU), DeviceKind("cpu") is DeviceKind.CPU
        ('gpu', True)
    """

    CPU = "cpu"
    GPU = "gpu"

    # A kind equals its name, so it hashes like it: a dict finds either under the other.
    __hash__ = str.__hash__

    @staticmethod
    def from_string(text: str) -> DeviceKind:
        """The kind of that name, ``"cpu"`` or ``"gpu"``.

        Raises:
            ValueError: If there is no such kind.
        """
        return DeviceKind(text)

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        kinds = " or ".join(repr(kind.value) for kind in cls)
        raise ValueError(f"{value!r} is not a kind of device: expected {kinds}")


_refs: dict[tuple[str, int], DeviceRef] = {}
_set = object.__setattr__


class DeviceRef:
    """A device by its kind and number: ``DeviceRef.GPU(1)``.

    There is one object for each device, so ``is`` and ``==`` agree. An accelerator of any
    make (GPU or TPU) is of the kind GPU.

    Args:
        device_type: A `DeviceKind`, or ``"cpu"`` or ``"gpu"``.
        id: The number of the device among those of its kind; below 0 counts as 0.

    Attributes:
        device_type: The kind.
        id: The number.

    Raises:
        ValueError: If there is no such kind.
        TypeError: If ``id`` is not an int.

    Example:
        >>> from maxjax.graph.device import DeviceRef
        >>> DeviceRef("gpu", 1), DeviceRef.CPU() is DeviceRef("cpu")
        (gpu:1, True)
    """

    __slots__ = ("device_type", "id")
    device_type: DeviceKind
    id: int

    def __new__(cls, device_type: DeviceKind | str, id: SupportsIndex = 0) -> DeviceRef:
        """The one reference to that device."""
        if type(id) is int and isinstance(device_type, str):
            known = _refs.get((device_type, id))
            if known is not None:
                return known
        kind = DeviceKind(device_type)
        if isinstance(id, bool):
            raise TypeError(f"the number of a device is an int, not bool {id}")
        try:
            number = max(operator.index(id), 0)
        except TypeError:
            raise TypeError(
                f"the number of a device is an int, not {type(id).__name__} {id!r}"
            ) from None
        made = object.__new__(cls)
        _set(made, "device_type", kind)
        _set(made, "id", number)
        return _refs.setdefault((kind, number), made)

    @classmethod
    def CPU(cls, id: int = 0) -> DeviceRef:
        """The host, or one of its virtual devices."""
        return cls(DeviceKind.CPU, id)

    @classmethod
    def GPU(cls, id: int = 0) -> DeviceRef:
        """An accelerator."""
        return cls(DeviceKind.GPU, id)

    @classmethod
    def from_device(cls, device: Device | DeviceRef) -> DeviceRef:
        """The reference to a driver's device; a reference is returned as it is.

        Raises:
            TypeError: If ``device`` is neither.
        """
        if isinstance(device, DeviceRef):
            return device
        if not isinstance(device, Device):
            raise TypeError(
                f"expected a DeviceRef or a driver Device, not {type(device).__name__} "
                f"{device!r}; write DeviceRef.CPU() or DeviceRef.GPU(0)"
            )
        return cls(DeviceKind.CPU if device.label == "cpu" else DeviceKind.GPU, device.id)

    def to_device(self) -> Device:
        """The driver's device of that kind and number.

        Raises:
            ValueError: If this machine has no such device.
        """
        return CPU(self.id) if self.is_cpu() else Accelerator(self.id)

    def is_cpu(self) -> bool:
        """Whether it is a host device."""
        return self.device_type is DeviceKind.CPU

    def is_gpu(self) -> bool:
        """Whether it is an accelerator."""
        return self.device_type is DeviceKind.GPU

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"device references are immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"device references are immutable: cannot delete {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return DeviceRef, (self.device_type.value, self.id)

    def __repr__(self) -> str:
        return f"{self.device_type.value}:{self.id}"
