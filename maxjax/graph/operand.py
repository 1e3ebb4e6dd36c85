# SPDX-License-Identifier: Apache-2.0
"""What a caller gives as a value, turned into one, or refused in the name of the op."""

from __future__ import annotations

from typing import Any

from maxjax.graph.op import refused
from maxjax.graph.value import BufferValue, TensorValue, Value, has_buffer_value

__all__ = ["buffer", "either", "tensor"]


def tensor(who: str, x: Any, role: str = "") -> TensorValue:
    """``x`` as a tensor value.

    Args:
        who: The op, for the message.
        x: A tensor value, or what stands for one.
        role: What ``x`` is to the op, for the message: ``"argument 2"``.

    Raises:
        TypeError: If it cannot stand for one (a number, an array, a buffer, a string).
    """
    if type(x) is TensorValue:
        return x
    try:
        return TensorValue(x)
    except TypeError as e:
        raise _refused(who, e, role) from None


def buffer(who: str, x: Any, role: str = "") -> BufferValue:
    """``x`` as a buffer value; arguments as for :func:`tensor`.

    Raises:
        TypeError: If it cannot stand for one.
    """
    if type(x) is BufferValue:
        return x
    try:
        return BufferValue(x)
    except TypeError as e:
        raise _refused(who, e, role) from None


def either(who: str, x: Any, role: str = "") -> Value:
    """``x`` as a buffer value if it stands for one, else as a tensor value.

    Raises:
        TypeError: If it can stand for neither.
    """
    return buffer(who, x, role) if has_buffer_value(x) else tensor(who, x, role)


def _refused(who: str, error: TypeError, role: str) -> Exception:
    return refused(who, TypeError, f"{role}: {error}" if role else str(error))
