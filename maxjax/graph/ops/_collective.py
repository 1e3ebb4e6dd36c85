# SPDX-License-Identifier: Apache-2.0
"""What ops over several devices share: a value for each device, groups of devices, signals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from maxjax.graph.op import refused
from maxjax.graph.operand import buffer, tensor
from maxjax.graph.type import TensorType
from maxjax.graph.value import BufferValue, TensorValue

__all__ = ["equal_shapes", "groups", "lanes", "one_dtype", "signal_devices"]


def lanes(
    who: str, inputs: Iterable[Any], signal_buffers: Iterable[Any], group_size: int | None
) -> tuple[list[TensorValue], int]:
    """The inputs of a collective, one for each device, and how many devices are in a group.

    Args:
        who: The op, for the message.
        inputs: A tensor for each device.
        signal_buffers: A buffer for each device. Programs for MAX have them; XLA needs none, and
            nothing is done with them.
        group_size: Of how many neighbours a group consists; all are one group by default.

    Raises:
        TypeError: If an input is no tensor or a signal no buffer.
        ValueError: If there is no input, the signals are not one for each, the groups do not come
            out even, or two inputs are on one device.
    """
    values = [tensor(who, x, f"input {i}") for i, x in enumerate(inputs)]
    signals = [buffer(who, b, f"signal buffer {i}") for i, b in enumerate(signal_buffers)]
    if len(values) != len(signals):
        raise refused(
            who,
            ValueError,
            f"there must be a signal buffer for each input, got {len(values)} inputs and "
            f"{len(signals)} signal buffers",
        )
    types = [v._type for v in values]
    size = len(values) if group_size is None else group_size
    if not isinstance(size, int) or isinstance(size, bool):
        raise refused(who, TypeError, f"group_size is an int, not {size!r:.60}")
    if not values or size < 1 or len(values) % size:
        raise refused(
            who,
            ValueError,
            f"{len(values)} inputs do not make groups of {size}"
            if values
            else "at least one input is needed, got none",
            *types,
        )
    devices = [t.device for t in types]
    if len(set(devices)) != len(devices):
        raise refused(
            who,
            ValueError,
            f"each input must be on a device of its own, got {', '.join(map(str, devices))}",
        )
    return values, size


def signal_devices(who: str, signal_buffers: Iterable[Any]) -> list[BufferValue]:
    """The signal buffers of an op whose results are where these are.

    Raises:
        TypeError: If one is no buffer.
        ValueError: If there is none, or two are on one device.
    """
    signals = [buffer(who, b, f"signal buffer {i}") for i, b in enumerate(signal_buffers)]
    devices = [b.device for b in signals]
    if not devices:
        raise refused(who, ValueError, "at least one signal buffer is needed, got none")
    if len(set(devices)) != len(devices):
        raise refused(
            who,
            ValueError,
            "each signal buffer must be on a device of its own, got "
            f"{', '.join(map(str, devices))}",
        )
    return signals


def groups(values: tuple[Any, ...], size: int) -> list[tuple[Any, ...]]:
    """The values in runs of ``size``."""
    return [values[i : i + size] for i in range(0, len(values), size)]


def one_dtype(types: Iterable[TensorType]) -> None:
    """Refuses inputs of several dtypes.

    Raises:
        ValueError: If dtypes differ.
    """
    first, *rest = types
    for t in rest:
        if t.dtype is not first.dtype:
            raise ValueError(
                f"inputs differ in dtype, {first.dtype.name} on {first.device} and "
                f"{t.dtype.name} on {t.device}"
            )


def equal_shapes(group: tuple[TensorType, ...], *, but: int | None = None) -> None:
    """Refuses a group whose shapes differ, in an axis other than ``but``.

    Raises:
        ValueError: If ranks or dims differ.
    """
    first, *rest = group
    for t in rest:
        same = len(t.shape) == len(first.shape) and all(
            i == but or a == b for i, (a, b) in enumerate(zip(first.shape, t.shape, strict=True))
        )
        if not same:
            only = "" if but is None else f"; only dimension {but} may differ"
            raise ValueError(
                f"inputs of a group differ in shape, {first.shape.brief()} on {first.device} and "
                f"{t.shape.brief()} on {t.device}{only}"
            )
