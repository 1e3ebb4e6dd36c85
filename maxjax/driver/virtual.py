# SPDX-License-Identifier: Apache-2.0
"""Virtual devices: CPU devices of JAX that act as accelerators, to develop without any.

``set_virtual_device_count`` is the one function of maxjax whose purpose is to change the
process: it asks JAX for that many CPU devices, which JAX grants until its first backend starts.
"""

import operator
import os
import re
import threading

import jax

__all__ = [
    "get_virtual_cpu_target",
    "get_virtual_device_api",
    "get_virtual_device_count",
    "get_virtual_device_target_arch",
    "is_virtual_device_mode",
    "set_virtual_cpu_target",
    "set_virtual_device_api",
    "set_virtual_device_count",
    "set_virtual_device_target_arch",
]

_OPTION = "jax_num_cpu_devices"
_FLAG = "--xla_force_host_platform_device_count"


class _State:
    """What the process asked for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.api = ""
        self.arch = ""
        self.cpu_target = ""
        # JAX's option before the first change of ours, to be put back.
        self.option: int | None = None


_state = _State()


def set_virtual_device_count(count: int) -> None:
    """Makes ``count`` CPU devices act as ``Accelerator(0)`` to ``Accelerator(count - 1)``.

    Call it before JAX starts a backend (before the first array): afterwards the number of CPU
    devices is fixed. With an API named by ``set_virtual_device_api`` the devices may also exist
    without CPU devices behind them; graphs can then be built for them, but not run.

    Args:
        count: How many; 0 leaves the mode.

    Raises:
        TypeError: If ``count`` is not an int.
        ValueError: If ``count`` is negative.
        RuntimeError: If JAX has started with fewer CPU devices and no API is named.

    Example:
        >>> from maxjax import driver
        >>> driver.set_virtual_device_count(1)
        >>> driver.is_virtual_device_mode(), driver.accelerator_count(), driver.Accelerator()
        (True, 1, Device(type=gpu,id=0))
        >>> driver.set_virtual_device_count(0)
        >>> driver.is_virtual_device_mode()
        False
    """
    count = operator.index(count)
    if count < 0:
        raise ValueError(f"the number of virtual devices is 0 or more, not {count}")
    with _state.lock:
        if count:
            _ask_jax_for(count)
        elif _state.option is not None and _update(_state.option):
            _state.option = None
        _state.count = count


def _ask_jax_for(count: int) -> None:
    """Sees to it that JAX has ``count`` CPU devices or more."""
    option: int = getattr(jax.config, _OPTION)
    forced = re.search(rf"{_FLAG}=(\d+)", os.environ.get("XLA_FLAGS", ""))
    # The option wins over the flag where both are set.
    expected = option if option > 0 else int(forced[1]) if forced else 1
    if expected >= count:
        return
    if _update(count):
        if _state.option is None:
            _state.option = option
        return
    present = len(jax.devices("cpu"))
    if present < count and not _state.api:
        raise RuntimeError(
            f"{count} virtual devices need {count} CPU devices, and JAX has already started with "
            f"{present}; call set_virtual_device_count({count}) before anything that makes an "
            f"array, or start Python with XLA_FLAGS={_FLAG}={count}"
        )


def _update(count: int) -> bool:
    """Sets JAX's number of CPU devices; False if its backend has started already."""
    try:
        jax.config.update(_OPTION, count)
    except RuntimeError:
        return False
    return True


def get_virtual_device_count() -> int:
    """How many virtual devices there are; 0 outside of virtual device mode."""
    return _state.count


def is_virtual_device_mode() -> bool:
    """Whether CPU devices act as accelerators."""
    return _state.count > 0


def set_virtual_device_api(api: str) -> None:
    """Names the API that virtual devices report, such as ``"cuda"``, ``"hip"`` or ``"tpu"``.

    Naming one also allows virtual devices without CPU devices behind them: for building graphs
    on a machine that will not run them.

    Args:
        api: The name; ``""`` takes it back.
    """
    _state.api = str(api)


def get_virtual_device_api() -> str:
    """The API that virtual devices report; ``""`` if none is named."""
    return _state.api


def set_virtual_device_target_arch(arch: str) -> None:
    """Names the architecture that virtual devices report, such as ``"sm_90a"``.

    Args:
        arch: The name; ``""`` takes it back.
    """
    _state.arch = str(arch)


def get_virtual_device_target_arch() -> str:
    """The architecture that virtual devices report; ``""`` if none is named."""
    return _state.arch


def set_virtual_cpu_target(cpu: str) -> None:
    """Names the processor that ``CPU().architecture_name`` reports in virtual device mode.

    Args:
        cpu: The name; ``""`` takes it back.
    """
    _state.cpu_target = str(cpu)


def get_virtual_cpu_target() -> str:
    """The processor reported in virtual device mode; ``""`` if none is named."""
    return _state.cpu_target
