# SPDX-License-Identifier: Apache-2.0
"""Windows that slide along axes: their numbers, and how many there are.

Convolutions, pools and folds share them. A window of ``size`` elements that are ``dilation``
apart reaches over ``dilation * (size - 1) + 1`` elements; windows start ``stride`` apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from maxjax.graph.dim import Dim, StaticDim
from maxjax.graph.op import refused
from maxjax.graph.ops._operands import int_of
from maxjax.graph.ops._window import holds
from maxjax.graph.type import Type

__all__ = ["check_fit", "count", "numbers", "reach"]


def numbers(
    who: str, what: str, given: Any, n: int, least: int, *types: Type, spread: bool = False
) -> tuple[int, ...]:
    """``given`` as a tuple of ``n`` ints.

    Args:
        who: The op, for the message.
        what: What they are, for the message.
        given: A sequence of ints; with ``spread`` also one int, which stands for all.
        n: How many.
        least: The smallest that is allowed.
        types: The operands' types, for the message.
        spread: Whether one int will do.

    Raises:
        TypeError: If it is no sequence of ints.
        ValueError: If there are not ``n``, or one is below ``least``.
    """
    if spread and isinstance(given, (int, np.integer, StaticDim)) and not isinstance(given, bool):
        given = (given,) * n
    if not isinstance(given, Sequence) or isinstance(given, str):
        one = "one int or " if spread else ""
        raise refused(who, TypeError, f"{what} must be {one}{n} ints, got {given!r:.60}", *types)
    found = tuple([int_of(who, f"each number of {what}", v, *types) for v in given])
    if len(found) != n:
        raise refused(who, ValueError, f"{what} must have {n} ints, got {list(found)}", *types)
    if min(found) < least:
        raise refused(
            who, ValueError, f"{what} must be at least {least}, got {list(found)}", *types
        )
    return found


def reach(size: Any, dilation: int) -> Any:
    """How many elements a window spans: a dim for a dim, else a number or symbolic dim."""
    return (size - 1) * dilation + 1


def count(
    what: str, size: Dim, window: Dim, stride: int, dilation: int, padding: int, ceil: bool = False
) -> Dim:
    """How many windows there are along an axis.

    Args:
        what: The axis, for the message.
        size: The axis's size.
        window: How many elements a window has.
        stride: How far apart windows start.
        dilation: How far apart the elements of a window are.
        padding: How much is added to the axis, on both sides together.
        ceil: Whether a last window that leaves the padded axis counts.

    Raises:
        ValueError: If not one window fits.
    """
    room = size + padding - reach(window, dilation)
    if isinstance(room, StaticDim) and room.dim < 0:
        raise ValueError(_too_large(what, size, reach(window, dilation), padding))
    return (room + (stride - 1 if ceil else 0)) // stride + 1


def check_fit(what: str, size: Any, window: Any, dilation: int, padding: int) -> None:
    """Refuses a size, known only now, that is too small for a window.

    Raises:
        SizeError: If it is, or may be for some symbolic sizes.
    """
    span = reach(window, dilation)
    holds(lambda: size + padding >= span, _too_large(what, size, span, padding))


def _too_large(what: str, size: Any, span: Any, padding: int) -> str:
    padded = f" and {padding} of padding" if padding else ""
    return f"a window spans {span} elements, but the {what} is {size}{padded}"
