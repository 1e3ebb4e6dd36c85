# SPDX-License-Identifier: Apache-2.0
"""What is queued on a device: queues, events, flags.

JAX orders work by the data it reads and starts it at once, so a queue here has nothing to do
but to wait.
"""

import operator
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import jax

if TYPE_CHECKING:  # a device gives out its queue, so that module imports this one
    from maxjax.driver.device import Device

__all__ = ["CompletionFlag", "DeviceEvent", "DeviceQueue", "arrays_on", "need_device", "wait"]


class DeviceQueue:
    """The work of a device, in order. A device has one; all queues of a device are that one.

    >>> from maxjax.driver import CPU, DeviceQueue
    >>> DeviceQueue(CPU()) == CPU().default_queue, CPU().default_queue.device
    (True, Device(type=cpu,id=0))

    Raises:
        TypeError: If ``device`` is not a `Device`.
    """

    __slots__ = ("_device",)

    def __init__(self, device: "Device") -> None:
        need_device(device)
        self._device = device

    @property
    def device(self) -> "Device":
        """The device."""
        return self._device

    @property
    def native_stream_handle(self) -> int:
        """The address of the driver's own stream: 0 on the host, where there is none.

        Raises:
            RuntimeError: On an accelerator: XLA keeps its streams to itself.
        """
        if self._device.is_host:
            return 0
        raise RuntimeError(f"XLA does not hand out the streams of {self._device!r}")

    def record_event(self, event: "DeviceEvent | None" = None) -> "DeviceEvent":
        """Marks this point: the event is ready when all work queued so far is done.

        Args:
            event: An event to mark again; a new one if left out.
        """
        event = DeviceEvent(self._device) if event is None else event
        event._pending = arrays_on(self._device.jax)
        return event

    def synchronize(self) -> None:
        """Waits until all that is queued is done."""
        self._device.synchronize()

    def wait_for(self, stream: "DeviceQueue | Device") -> None:
        """Lets later work start only when the work so far of another queue or device is done.

        JAX orders work by the data it reads, so this simply waits for the other device.
        """
        stream.synchronize()

    def wait_for_host_value(self, flag: "CompletionFlag", value: int) -> NoReturn:
        """Cannot be done: work on JAX's devices does not wait for the host's memory.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(
            f"JAX's devices cannot wait for a value in the host's memory (here {value}); wait on "
            "the host and start the work then"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceQueue):
            return NotImplemented
        return self._device == other._device

    def __hash__(self) -> int:
        return hash((DeviceQueue, self._device))

    def __repr__(self) -> str:
        return f"DeviceQueue({self._device.label}:{self._device.id})"


class DeviceEvent:
    """A point in the work of a device; an event that was not recorded is ready.

    Args:
        device: The device.
        enable_timing: Accepted; JAX measures no times between events.

    Example:
        >>> from maxjax.driver import CPU
        >>> event = CPU().default_queue.record_event()
        >>> event.synchronize()
        >>> event.is_ready()
        True
    """

    __slots__ = ("_device", "_pending")
    _pending: list[Any]

    def __init__(self, device: "Device", enable_timing: bool = False) -> None:
        need_device(device)
        self._device = device
        self._pending = []

    def is_ready(self) -> bool:
        """Whether the work up to this point is done."""
        self._pending = [a for a in self._pending if not (a.is_deleted() or a.is_ready())]
        return not self._pending

    def synchronize(self) -> None:
        """Waits until the work up to this point is done."""
        while self._pending:
            wait(self._pending.pop())

    def elapsed_time(self, end_event: "DeviceEvent") -> NoReturn:
        """Cannot be known: JAX measures no times between events.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(
            f"JAX measures no time between events on {self._device!r}; record a profile with "
            "jax.profiler.trace, or use time.perf_counter around synchronize()"
        )

    def __repr__(self) -> str:
        return f"DeviceEvent({self._device.label}:{self._device.id})"


class CompletionFlag:
    """A number that threads of the host signal to each other, 0 at first.

    >>> from maxjax.driver import CPU, CompletionFlag
    >>> flag = CompletionFlag(CPU())
    >>> flag.signal(3)
    >>> flag.load()
    3
    """

    __slots__ = ("_device", "_lock", "_value")

    def __init__(self, device: "Device") -> None:
        need_device(device)
        self._device = device
        self._lock = threading.Lock()
        self._value = 0

    def load(self) -> int:
        """The number now."""
        with self._lock:
            return self._value

    def signal(self, value: int) -> None:
        """Sets the number."""
        with self._lock:
            self._value = operator.index(value)

    def reset(self) -> None:
        """Sets the number to 0."""
        self.signal(0)

    @property
    def device_ptr(self) -> int:
        """The address for programs on the device.

        Raises:
            RuntimeError: Always: JAX's devices cannot read the host's memory.
        """
        raise RuntimeError(f"a CompletionFlag has no address on {self._device!r} with JAX")


# ---------------------------------------------------------------- helpers


def need_device(device: object) -> None:
    """Refuses what is no device.

    Raises:
        TypeError: If ``device`` is not a `Device`.
    """
    if not hasattr(type(device), "default_queue"):
        raise TypeError(
            f"expected a Device, such as CPU() or Accelerator(0), got "
            f"{type(device).__name__} {device!r}"
        )


def arrays_on(device: Any) -> list[jax.Array]:
    """The arrays that are wholly or partly on a ``jax.Device`` and may still be computed."""
    live = jax.live_arrays(device.platform)
    return [a for a in live if not a.is_deleted() and device in a.sharding.device_set]


def wait(array: jax.Array) -> None:
    """Waits for an array; one that was donated meanwhile is part of another's work."""
    try:
        array.block_until_ready()
    except RuntimeError:
        if not array.is_deleted():
            raise
