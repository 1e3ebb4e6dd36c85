# SPDX-License-Identifier: Apache-2.0
"""Where placement rules are kept, by the names of ops, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from maxjax.experimental.sharding.action import AxisAssignment, Rule
from maxjax.experimental.sharding.per_shard_dim import global_dim
from maxjax.experimental.sharding.placements import Partial, Placement, Replicated, Sharded
from maxjax.experimental.sharding.types import TensorLayout
from maxjax.graph.shape import Shape

__all__ = [
    "Localizer",
    "axis_of",
    "kept_axes",
    "localizer_for",
    "localizes",
    "names",
    "places",
    "row",
    "rule_for",
    "whole",
]

_F = TypeVar("_F", bound=Callable[..., Any])

Localizer = Callable[..., dict[str, Any]]
"""Takes what an op takes, with the layouts its operands have been brought to; gives the arguments
that differ between devices, with ``PerShardDim`` cells where they do."""

_rules: dict[str, Rule] = {}
_localizers: dict[str, Localizer] = {}


def places(*ops: str) -> Callable[[_F], _F]:
    """Makes a function the placement rule of ops."""

    def register(rule: _F) -> _F:
        _rules.update(dict.fromkeys(ops, rule))
        return rule

    return register


def localizes(*ops: str) -> Callable[[_F], _F]:
    """Makes a function give the arguments of ops that differ between devices."""

    def register(localizer: _F) -> _F:
        _localizers.update(dict.fromkeys(ops, localizer))
        return localizer

    return register


def rule_for(name: str) -> Rule | None:
    """The placement rule of an op, which takes its parameters with layouts for tensors.

    Args:
        name: The op, as in ``maxjax.experimental.functional``.

    Returns:
        The rule; None for an op whose results have no known placement.
    """
    return _rules.get(name)


def localizer_for(name: str) -> Localizer | None:
    """What gives the arguments of an op that differ between devices; None if none do."""
    return _localizers.get(name)


def names() -> list[str]:
    """The ops that have a rule."""
    return sorted(_rules)


def whole(layout: TensorLayout) -> Shape:
    """The shape of a tensor, in dims without parts."""
    return Shape([global_dim(d) for d in layout.shape])


def axis_of(axis: int, rank: int) -> int:
    """An axis as a number from 0; one that is out of range as it is, for the op to refuse."""
    return axis + rank if -rank <= axis < 0 else axis


def row(
    needed: Sequence[int | Placement | None], *outputs: int | Placement | None
) -> AxisAssignment:
    """A row in short: None for a copy, an int for the axis that is split.

    >>> from maxjax.experimental.sharding.placements import Partial
    >>> row([1, 0], Partial())
    AxisAssignment(needed_inputs=(Sharded(axis=1), Sharded(axis=0)), outputs=(Partial(),))
    """
    return AxisAssignment(tuple(map(_placement, needed)), tuple(map(_placement, outputs)))


def _placement(short: int | Placement | None) -> Placement:
    if short is None:
        return Replicated()
    return Sharded(short) if isinstance(short, int) else short


def kept_axes(
    axes: Iterable[tuple[int, int]], *, linear: bool = False, outputs: int = 1, others: int = 0
) -> list[AxisAssignment]:
    """The rows of an op of one tensor that keeps some of its axes as they are.

    Args:
        axes: Each axis that may be split, and where it is in the results.
        linear: Whether the op of a sum is the sum of the op.
        outputs: The number of results.
        others: The number of further operands, of which each device needs a copy.
    """
    rest = [None] * others
    rows = [row([None, *rest], *[None] * outputs)]
    rows += [row([a, *rest], *[b] * outputs) for a, b in axes]
    if linear:
        rows.append(row([Partial(), *rest], *[Partial()] * outputs))
    return rows
