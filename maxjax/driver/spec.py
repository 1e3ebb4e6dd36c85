# SPDX-License-Identifier: Apache-2.0
"""Device specs: which devices a program wants, before any of them is looked up."""

import dataclasses
import operator
from collections.abc import Iterable, Sequence
from typing import Literal

from maxjax.driver.device import CPU, Accelerator, Device, accelerator_count

__all__ = [
    "DeviceSpec",
    "calculate_virtual_device_count",
    "calculate_virtual_device_count_from_cli",
    "devices_exist",
    "load_devices",
    "scan_available_devices",
]

# What "gpu:all" asks for where there are no accelerators to count.
_ALL = 2


@dataclasses.dataclass(frozen=True)
class DeviceSpec:
    """A device by kind and number, whether it exists or not.

    Attributes:
        id: The number; for the CPU it says nothing.
        device_type: ``"cpu"`` or ``"gpu"``.

    Raises:
        ValueError: If the kind is another, or a GPU's number is negative.

    Example:
        >>> from maxjax.driver import DeviceSpec
        >>> DeviceSpec.accelerator(1), DeviceSpec.cpu()
        (DeviceSpec(id=1, device_type='gpu'), DeviceSpec(id=-1, device_type='cpu'))
    """

    id: int
    device_type: Literal["cpu", "gpu"] = "cpu"

    def __post_init__(self) -> None:
        if self.device_type not in ("cpu", "gpu"):
            raise ValueError(
                f"the type of a device is 'cpu' or 'gpu' (any accelerator), not "
                f"{self.device_type!r}"
            )
        if self.device_type == "gpu" and self.id < 0:
            raise ValueError(f"the number of an accelerator is 0 or more, not {self.id}")

    @staticmethod
    def accelerator(id: int = 0) -> "DeviceSpec":
        """The accelerator of that number."""
        return DeviceSpec(id, "gpu")

    @staticmethod
    def cpu(id: int = -1) -> "DeviceSpec":
        """The CPU."""
        return DeviceSpec(id, "cpu")


def load_devices(device_specs: Sequence[DeviceSpec]) -> list[Device]:
    """The devices that are specified.

    Args:
        device_specs: The specs.

    Raises:
        TypeError: If one is no `DeviceSpec`.
        ValueError: If a device does not exist.

    Example:
        >>> from maxjax.driver import DeviceSpec, load_devices
        >>> load_devices([DeviceSpec.cpu()])
        [Device(type=cpu,id=0)]
    """
    return [
        Accelerator(spec.id) if spec.device_type == "gpu" else CPU()
        for spec in _specs(device_specs)
    ]


def scan_available_devices() -> list[DeviceSpec]:
    """The accelerators, or the CPU where there are none."""
    return [DeviceSpec.accelerator(i) for i in range(accelerator_count())] or [DeviceSpec.cpu()]


def devices_exist(devices: list[DeviceSpec]) -> bool:
    """Whether all of these devices exist; the CPU always does.

    Args:
        devices: The specs.

    Raises:
        TypeError: If one is no `DeviceSpec`.
    """
    wanted = [spec.id for spec in _specs(devices) if spec.device_type == "gpu"]
    return not wanted or max(wanted) < accelerator_count()


def calculate_virtual_device_count(*device_spec_lists: list[DeviceSpec]) -> int:
    """How many virtual devices a program needs: the highest number of a GPU and one, at least 1.

    Args:
        device_spec_lists: Lists of specs.

    Example:
        >>> from maxjax.driver import DeviceSpec, calculate_virtual_device_count
        >>> calculate_virtual_device_count([DeviceSpec.accelerator(3)], [DeviceSpec.cpu()])
        4
    """
    specs = [spec for specs in device_spec_lists for spec in _specs(specs)]
    return max((spec.id for spec in specs if spec.device_type == "gpu"), default=0) + 1


def calculate_virtual_device_count_from_cli(*device_inputs: str | list[int]) -> int:
    """The same for devices as they are named on a command line.

    Args:
        device_inputs: Each a list of GPU numbers, or ``"cpu"``, ``"gpu"``, ``"default"``,
            ``"gpu:0,2"`` or ``"gpu:all"`` (which stands for two).

    Raises:
        ValueError: If one is written otherwise.

    Example:
        >>> from maxjax.driver import calculate_virtual_device_count_from_cli
        >>> calculate_virtual_device_count_from_cli("gpu:0,2", "cpu")
        3
    """
    return max((_ids(given) for given in device_inputs), default=0) or 1


def _ids(given: str | list[int]) -> int:
    """One more than the highest GPU number; 0 if no GPU is named."""
    if not isinstance(given, str):
        numbers = [operator.index(number) for number in given]
    else:
        kind, _, listed = given.strip().lower().partition(":")
        if kind not in ("", "cpu", "gpu", "default"):
            raise ValueError(
                f"devices are named as 'cpu', 'gpu', 'default', 'gpu:0,2' or 'gpu:all', not "
                f"{given!r}"
            )
        if kind != "gpu":
            return 0
        if listed == "all":
            return _ALL
        try:
            numbers = [int(number) for number in listed.split(",") if number.strip()] or [0]
        except ValueError:
            raise ValueError(
                f"the numbers of GPUs are ints with commas, as in 'gpu:0,2', not {given!r}"
            ) from None
    if min(numbers, default=0) < 0:
        raise ValueError(f"the number of a GPU is 0 or more, got {given!r}")
    return max(numbers, default=-1) + 1


def _specs(specs: Iterable[DeviceSpec]) -> Iterable[DeviceSpec]:
    for spec in specs:
        if not isinstance(spec, DeviceSpec):
            raise TypeError(
                f"expected a DeviceSpec, such as DeviceSpec.cpu(), got {type(spec).__name__} "
                f"{spec!r}"
            )
        yield spec
