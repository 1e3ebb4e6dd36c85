# SPDX-License-Identifier: Apache-2.0
"""What XLA keeps to itself: records of launches, memory that several devices map at once.

The names are there for programs that ask whether they can use these; the answer is no, and what
would need them says so.
"""

import contextlib
import dataclasses
import enum
from collections.abc import Iterator, Sequence
from typing import NoReturn

from maxjax.driver.device import Device, accelerator_count
from maxjax.driver.virtual import is_virtual_device_mode

__all__ = [
    "HostHazardError",
    "LaunchTraceEntry",
    "SymmetricPool",
    "begin_launch_trace",
    "launch_trace",
    "take_launch_trace",
]


class HostHazardError(RuntimeError):
    """The host touched memory that a device was using.

    Never raised: what a program reads never changes here, and writes of the host are done when
    they return.
    """


class _MemcpyKind(enum.Enum):
    NONE = 0
    HTOD = 1
    DTOH = 2
    DTOD = 3


class _OperationKind(enum.Enum):
    KERNEL_LAUNCH = 0
    MEMCPY = 1
    MEMSET = 2


@dataclasses.dataclass(frozen=True)
class LaunchTraceEntry:
    """One operation that was launched on an accelerator. Sizes are in bytes."""

    kind: _OperationKind
    name: str
    stream_index: int = 0
    semantic_hash: int = 0
    grid_x: int = 0
    grid_y: int = 0
    grid_z: int = 0
    block_x: int = 0
    block_y: int = 0
    block_z: int = 0
    shared_mem_bytes: int = 0
    memcpy_kind: _MemcpyKind = _MemcpyKind.NONE
    memcpy_byte_size: int = 0
    memset_byte_size: int = 0
    memset_value: int = 0
    memset_value_size: int = 0

    MemcpyKind = _MemcpyKind
    OperationKind = _OperationKind


def begin_launch_trace() -> None:
    """Starts to record what is launched on accelerators.

    Raises:
        RuntimeError: If there are accelerators, since JAX does not tell; on CPUs nothing is
            launched.
    """
    if accelerator_count() and not is_virtual_device_mode():
        raise RuntimeError(
            "JAX does not tell what it launches on accelerators; record a profile with "
            "jax.profiler.trace"
        )


def take_launch_trace() -> list[LaunchTraceEntry]:
    """What was launched since the last call: nothing, on CPUs."""
    return []


@contextlib.contextmanager
def launch_trace() -> Iterator[list[LaunchTraceEntry]]:
    """Records what is launched on accelerators inside the ``with`` block.

    Yields:
        A list, filled when the block ends.

    Raises:
        RuntimeError: If there are accelerators, since JAX does not tell.

    Example:
        >>> from maxjax import driver
        >>> driver.set_virtual_device_count(1)
        >>> with driver.launch_trace() as launched:
        ...     pass
        >>> launched
        []
        >>> driver.set_virtual_device_count(0)
    """
    begin_launch_trace()
    launched: list[LaunchTraceEntry] = []
    yield launched
    launched += take_launch_trace()


class SymmetricPool:
    """Memory that is mapped at the same place on several accelerators: not with JAX."""

    @staticmethod
    def is_supported(devices: Sequence[Device]) -> bool:
        """Whether these devices can have a pool: no devices can.

        Args:
            devices: The devices.
        """
        return False

    @staticmethod
    def lookup(devices: Sequence[Device]) -> "SymmetricPool | None":
        """The pool of these devices: there is none.

        Args:
            devices: The devices.
        """
        return None

    @staticmethod
    def allocate(devices: Sequence[Device], byte_size: int) -> NoReturn:
        """Cannot be done.

        Args:
            devices: The devices.
            byte_size: The size.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(
            f"XLA has no memory that {len(devices)} devices map at once ({byte_size} bytes were "
            "asked for); collectives such as ops.allreduce need none"
        )
