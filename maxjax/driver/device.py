# SPDX-License-Identifier: Apache-2.0
"""Devices: the host and the accelerators.

A device is a name until its ``jax`` property is read; only then does JAX start a backend.
"""

import operator
import os
import platform
from typing import Any, SupportsIndex, TypeAlias

import jax

from maxjax.driver import virtual
from maxjax.driver.queue import DeviceQueue, arrays_on, need_device, wait

__all__ = [
    "CPU",
    "Accelerator",
    "Device",
    "accelerator_api",
    "accelerator_architecture_name",
    "accelerator_count",
    "device_of",
    "enable_all_peer_access",
]

# JAX's own name, `jax.Device`, is a variable in the eyes of type checkers.
JaxDevice: TypeAlias = Any

# What MAX calls the platforms of XLA.
_APIS = {"gpu": "cuda", "rocm": "hip"}


class Device:
    """A place where arrays live and programs run; made as ``CPU()`` or ``Accelerator(i)``.

    Devices of the same kind and number are equal and hash alike.

    >>> from maxjax.driver import CPU, Device
    >>> CPU() == Device.cpu(), isinstance(CPU(), Device), CPU().label, CPU().id
    (True, True, 'cpu', 0)
    """

    __slots__ = ("_id", "_jax")
    _id: int
    _jax: JaxDevice | None

    def __new__(cls, id: SupportsIndex = 0) -> "Device":
        """Refuses: subclasses make devices."""
        raise TypeError(f"{cls.__name__}() makes no device; use CPU() or Accelerator(id)")

    @staticmethod
    def cpu(id: int = 0) -> "CPU":
        """The host, the same as ``CPU(id)``."""
        return CPU(id)

    def _find(self) -> JaxDevice:
        """Looks the JAX device up."""
        raise AssertionError("CPU and Accelerator say how")

    @property
    def jax(self) -> JaxDevice:
        """The JAX device; reading it starts JAX's backend.

        Raises:
            RuntimeError: If JAX has no such device.
        """
        if self._jax is None:
            self._jax = self._find()
        return self._jax

    @property
    def id(self) -> int:
        """The number among devices of its kind."""
        return self._id

    @property
    def label(self) -> str:
        """``"cpu"`` or ``"gpu"``; every accelerator, a TPU too, is a ``"gpu"``."""
        return "cpu" if self.is_host else "gpu"

    @property
    def is_host(self) -> bool:
        """Whether it is the CPU that runs this program."""
        return True

    @property
    def is_host_unified(self) -> bool:
        """Whether its memory is the host's memory."""
        return self.is_host

    @property
    def is_compatible(self) -> bool:
        """Whether programs can be compiled for it: XLA can for every device that JAX lists."""
        return True

    @property
    def api(self) -> str:
        """The interface it is programmed by: ``"cpu"``, ``"cuda"``, ``"hip"``, ``"tpu"``."""
        return "cpu"

    @property
    def architecture_name(self) -> str:
        """The hardware architecture, such as ``"x86_64"``, ``"sm_90"`` or ``"TPU v5"``."""
        return virtual.get_virtual_cpu_target() or platform.machine()

    @property
    def model_name(self) -> str:
        """The product's name, as far as JAX knows it."""
        return "cpu"

    @property
    def stats(self) -> dict[str, int]:
        """Memory in bytes: ``free_memory``, ``total_memory``, ``graph_mem_reserved`` and ``_used``.

        Compiled programs have no memory set apart, so the last two are 0.
        """
        page = os.sysconf("SC_PAGE_SIZE")
        free, total = os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
        return _stats(free, total)

    @property
    def max_single_alloc_size(self) -> int:
        """The size of the largest array that could fit, in bytes."""
        return self.stats["total_memory"]

    @property
    def default_queue(self) -> DeviceQueue:
        """The queue that everything on this device goes through."""
        return DeviceQueue(self)

    def can_access(self, other: "Device") -> bool:
        """Whether it reaches ``other``'s memory without going through the host."""
        need_device(other)
        return self.is_host == other.is_host and self.api == other.api

    def synchronize(self) -> None:
        """Waits until all that is being computed on this device is there."""
        for array in arrays_on(self.jax):
            wait(array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return self is other or (self._id == other._id and self.label == other.label)

    def __hash__(self) -> int:
        return hash((self.label, self._id))

    def __repr__(self) -> str:
        return f"Device(type={self.label},id={self._id})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._id,)


_host: "CPU | None" = None


class CPU(Device):
    """The host. There is one, so every ``id`` names it.

    >>> from maxjax.driver import CPU
    >>> CPU(), CPU(3) == CPU()
    (Device(type=cpu,id=0), True)

    Raises:
        TypeError: If ``id`` is not an int.
    """

    __slots__ = ()

    def __new__(cls, id: SupportsIndex = 0) -> "CPU":
        """The host; always the same object, so that comparing two is quick."""
        global _host
        _number(id)
        if _host is None or cls is not CPU:
            self = object.__new__(cls)
            self._id = 0
            self._jax = None
            if cls is not CPU:
                return self
            _host = self
        return _host

    def _find(self) -> JaxDevice:
        try:
            return jax.local_devices(backend="cpu")[0]
        except RuntimeError as error:
            raise RuntimeError(
                "JAX has no CPU devices here; JAX_PLATFORMS must name cpu too, for example "
                "JAX_PLATFORMS=cuda,cpu"
            ) from error


class Accelerator(Device):
    """An accelerator: the ``id``-th device of JAX that is not a CPU.

    In virtual device mode (``set_virtual_device_count``) it is the ``id``-th CPU device of JAX.

    Args:
        id: The number; negative ones count as 0.

    Raises:
        TypeError: If ``id`` is not an int.
        ValueError: If there are not that many accelerators.

    Example:
        >>> from maxjax import driver
        >>> driver.set_virtual_device_count(1)
        >>> gpu = driver.Accelerator(0)
        >>> gpu.label, gpu.is_host, driver.accelerator_count()
        ('gpu', False, 1)
        >>> driver.set_virtual_device_count(0)
    """

    __slots__ = ("_virtual",)
    _virtual: bool

    def __new__(cls, id: SupportsIndex = 0) -> "Accelerator":
        """The accelerator of that number."""
        number = _number(id)
        count = accelerator_count()
        if number >= count:
            there = f"there are {count}" if count else "there is none"
            raise ValueError(
                f"no Accelerator({number}): {there}; use CPU(), or call "
                f"set_virtual_device_count({number + 1}) at the start to let CPU devices act as "
                "accelerators"
            )
        self = object.__new__(cls)
        self._id = number
        self._jax = None
        self._virtual = virtual.is_virtual_device_mode()
        return self

    def _find(self) -> JaxDevice:
        if not self._virtual:
            return _accelerators()[self._id]
        devices = jax.devices("cpu")
        if self._id >= len(devices):
            raise RuntimeError(
                f"virtual Accelerator({self._id}) has no CPU device behind it, since JAX started "
                f"with {len(devices)}: graphs can be built for it, not run; call "
                "set_virtual_device_count before anything that makes an array"
            )
        return devices[self._id]

    @property
    def is_host(self) -> bool:
        """Whether it is the CPU that runs this program: False, a virtual device's too."""
        return False

    @property
    def api(self) -> str:
        """The interface it is programmed by: ``"cuda"``, ``"hip"``, ``"tpu"``.

        A virtual device has the one named by ``set_virtual_device_api``, else ``"cpu"``.
        """
        if self._virtual:
            return virtual.get_virtual_device_api() or "cpu"
        name: str = self.jax.client.platform
        return _APIS.get(name, name)

    @property
    def architecture_name(self) -> str:
        """The hardware architecture, such as ``"sm_90"``, ``"gfx942"`` or ``"TPU v5"``."""
        if self._virtual:
            return virtual.get_virtual_device_target_arch() or platform.machine()
        capability = getattr(self.jax, "compute_capability", None)
        if capability is None:
            return self.jax.device_kind
        return "sm_" + capability.replace(".", "") if self.api == "cuda" else capability

    @property
    def model_name(self) -> str:
        """The product's name, as far as JAX knows it."""
        return "cpu" if self._virtual else self.jax.device_kind

    @property
    def stats(self) -> dict[str, int]:
        """Memory in bytes: ``free_memory``, ``total_memory``, ``graph_mem_reserved`` and ``_used``.

        Compiled programs have no memory set apart, so the last two are 0.

        Raises:
            RuntimeError: If JAX does not report the memory of this device.
        """
        if self._virtual:
            return super().stats
        reported = self.jax.memory_stats()
        if not reported or "bytes_limit" not in reported:
            raise RuntimeError(f"JAX does not report the memory of {self!r}")
        total = reported["bytes_limit"]
        return _stats(total - reported.get("bytes_in_use", 0), total)


# ---------------------------------------------------------------- what there is


def _accelerators() -> list[JaxDevice]:
    return [d for d in jax.devices() if d.platform != "cpu"]


def accelerator_count() -> int:
    """How many accelerators there are; starts JAX's backend unless they are virtual.

    >>> from maxjax.driver import accelerator_count
    >>> accelerator_count() >= 0
    True
    """
    return virtual.get_virtual_device_count() or len(_accelerators())


def accelerator_api() -> str:
    """The API of the accelerators (``"cuda"``, ``"hip"``, ``"tpu"``); ``"cpu"`` without any."""
    return Accelerator(0).api if accelerator_count() else "cpu"


def accelerator_architecture_name() -> str:
    """The architecture of the first accelerator, such as ``"sm_90"``.

    Raises:
        ValueError: If there is no accelerator.
    """
    return Accelerator(0).architecture_name


def enable_all_peer_access() -> None:
    """Does nothing: XLA sets up the access among accelerators by itself."""


def device_of(device: JaxDevice) -> Device:
    """The `Device` of a JAX device.

    In virtual device mode the first CPU device is both the host and ``Accelerator(0)``; here it
    is the host.
    """
    if device.platform != "cpu":
        return Accelerator(_accelerators().index(device))
    if 0 < device.id < virtual.get_virtual_device_count():
        return Accelerator(jax.devices("cpu").index(device))
    return CPU()


# ---------------------------------------------------------------- helpers


def _number(id: SupportsIndex) -> int:
    try:
        return max(operator.index(id), 0)
    except TypeError:
        raise TypeError(
            f"the number of a device is an int, not {type(id).__name__} {id!r}"
        ) from None


def _stats(free: int, total: int) -> dict[str, int]:
    return {
        "free_memory": free,
        "total_memory": total,
        "graph_mem_reserved": 0,
        "graph_mem_used": 0,
    }
