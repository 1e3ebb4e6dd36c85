# SPDX-License-Identifier: Apache-2.0
"""How many elements a range has."""

from __future__ import annotations

import numbers
import operator
from typing import Any

__all__ = ["range_num_elements"]

_LARGEST = 2**63 - 1


def range_num_elements(start: Any, limit: Any, step: Any = 1) -> Any:
    """How many elements there are from ``start`` on, ``step`` apart, before ``limit``.

    Args:
        start: The first, an integer or a symbolic dim.
        limit: Where to end, itself not included; likewise.
        step: The difference between neighbours, negative to go down; likewise.

    Returns:
        The number, 0 where ``limit`` is not ahead. Where a bound is symbolic (a dim of a graph,
        or of ``jax.export``) a dim, which is right as long as ``limit`` is not behind ``start``,
        and as long as a symbolic step is positive.

    Raises:
        TypeError: A bound is no integer and no dim.
        ValueError: The step is 0, or the number is above 2**63 - 1.

    >>> range_num_elements(0, 10, 3), range_num_elements(10, 0, -3), range_num_elements(3, 3)
    (4, 4, 0)
    >>> range_num_elements(0, 10, 0)
    Traceback (most recent call last):
    ValueError: a range from 0 to 10 has no step of 0
    """
    start, limit, step = (
        _bound(name, bound) for name, bound in (("start", start), ("limit", limit), ("step", step))
    )
    if isinstance(step, int) and step == 0:
        raise ValueError(f"a range from {start} to {limit} has no step of 0")
    if isinstance(step, int) and step < 0:
        start, limit, step = limit, start, -step
    distance = limit - start
    if isinstance(distance, int) and isinstance(step, int):
        count = max(0, -(-distance // step))
        if count > _LARGEST:
            raise ValueError(
                f"a range from {start} to {limit} by {step} has {count} elements, more than "
                f"{_LARGEST}"
            )
        return count
    # A distance that the step divides stays as simple as it is written.
    exact = distance // step
    return exact if exact * step == distance else (distance + (step - 1)) // step


def _bound(name: str, bound: Any) -> Any:
    """A bound as an integer, or as the dim it is.

    Raises:
        TypeError: It is neither.
    """
    if not isinstance(bound, bool):
        try:
            # A static dim of a graph is no integer by itself; it has one.
            return operator.index(getattr(bound, "dim", bound))
        except TypeError:
            pass
        if not isinstance(bound, numbers.Number | str | bytes) and hasattr(bound, "__floordiv__"):
            return bound
    raise TypeError(f"the {name} of a range is an integer or a dim, not {bound!r}")
