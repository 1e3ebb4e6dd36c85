# SPDX-License-Identifier: Apache-2.0
"""``auto_reshard``: whether ops may move their inputs, and which way of running an op they take."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from maxjax.experimental.sharding._report import Candidate, Decision, no_row, report
from maxjax.experimental.sharding.action import (
    Action,
    AxisAssignment,
    common_mesh,
    input_placements_at_axis,
    placements_on,
    stays,
)
from maxjax.experimental.sharding.cost import (
    feasible_rows_at_axis,
    tensor_byte_count,
    transition_cost,
)
from maxjax.experimental.sharding.mappings import DeviceMapping
from maxjax.experimental.sharding.mesh import DeviceMesh
from maxjax.experimental.sharding.placements import (
    Partial,
    Placement,
    Replicated,
    Sharded,
    ShardingError,
)
from maxjax.experimental.sharding.types import TensorLayout

__all__ = [
    "ALL_TRANSITIONS",
    "DEFAULT_TRANSITIONS",
    "Mode",
    "Transition",
    "auto_reshard",
    "current_policy",
    "moved_input_slots",
    "pick_reshard_action",
    "row_transitions",
]

Transition: TypeAlias = tuple[type[Placement], type[Placement]]
"""Two classes of placements: from which to which."""

Mode: TypeAlias = Literal["silent", "warn", "raise"]

ALL_TRANSITIONS: frozenset[Transition] = frozenset(
    {
        (Sharded, Replicated),
        (Sharded, Sharded),
        (Replicated, Sharded),
        (Partial, Replicated),
        (Partial, Sharded),
    }
)
"""What inputs may be moved for, at most."""

DEFAULT_TRANSITIONS: frozenset[Transition] = ALL_TRANSITIONS - {(Partial, Sharded)}
"""What inputs may be moved for where nothing else is said: sums are not scattered unasked."""


@dataclass(frozen=True)
class _Policy:
    allowed: frozenset[Transition] = DEFAULT_TRANSITIONS
    mode: Mode = "raise"


_OUTSIDE = _Policy()
_POLICY: ContextVar[_Policy] = ContextVar("_POLICY", default=_OUTSIDE)


def current_policy() -> _Policy:
    """What ops may move here; equal policies make ops do the same."""
    return _POLICY.get()


@contextlib.contextmanager
def auto_reshard(
    allowed_transitions: Iterable[Transition] | None = None, *, mode: Mode | None = None
) -> Iterator[None]:
    """Lets ops move inputs that are not placed as they need them; a block or a decorator.

    Outside of such a block, an op whose inputs would have to move raises a ``ShardingError`` that
    says which and where to.

    Args:
        allowed_transitions: From which class of placement to which inputs may be moved, in pairs;
            ``DEFAULT_TRANSITIONS`` or ``ALL_TRANSITIONS``, for example. What the block around
            this one allows if left out.
        mode: ``"silent"`` to move them, ``"warn"`` to warn of it, once for each op, ``"raise"``
            to refuse. That of the block around this one if left out.

    Raises:
        TypeError: If a transition is no pair of classes of placements.
        ValueError: If there is no such mode.

    >>> with auto_reshard({(Sharded, Replicated)}, mode="silent"):
    ...     pass
    """
    around = _POLICY.get()
    if mode is not None and mode not in get_args(Mode):
        raise ValueError(f"the mode is 'silent', 'warn' or 'raise', got {mode!r}")
    allowed = around.allowed
    if allowed_transitions is not None:
        allowed = frozenset(map(_pair, allowed_transitions))
    token = _POLICY.set(_Policy(allowed, mode or around.mode))
    try:
        yield
    finally:
        _POLICY.reset(token)


def _pair(transition: object) -> Transition:
    if isinstance(transition, tuple) and len(transition) == 2:
        source, dest = transition
        if all(isinstance(p, type) and issubclass(p, Placement) for p in (source, dest)):
            return source, dest
    raise TypeError(
        "a transition is a pair of classes of placements, such as (Sharded, Replicated), got "
        f"{transition!r:.80}"
    )


def moved_input_slots(current: Sequence[Placement], row: AxisAssignment) -> list[int]:
    """Which operands a row needs to be placed otherwise than they are."""
    pairs = zip(current, row.needed_inputs, strict=True)
    return [i for i, (here, there) in enumerate(pairs) if here != there]


def row_transitions(current: Sequence[Placement], row: AxisAssignment) -> set[Transition]:
    """From which class of placement to which a row moves operands."""
    moved = moved_input_slots(current, row)
    return {(type(current[i]), type(row.needed_inputs[i])) for i in moved}


def pick_reshard_action(
    rows: Sequence[AxisAssignment],
    layouts: Sequence[TensorLayout],
    *,
    op_name: str,
    operand_names: Sequence[str],
) -> Action:
    """How to run an op: for each axis of the mesh, the cheapest row that may be taken.

    Axes are decided in their order. Along each, rows are compared by the bytes that their
    collectives send, then by how many operands move, then by their order; the first whose
    transitions are allowed is taken.

    Args:
        rows: What the op's rule gives.
        layouts: The operands.
        op_name: The op, for messages.
        operand_names: The operands, for messages.

    Raises:
        ShardingError: If no row can be taken, if inputs would have to move where they may not,
            if operands are on different meshes, or a row does not place each operand.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> x = TensorLayout(DType.int8, [4], DeviceMapping(mesh, (Sharded(0),)))
    >>> rows = [AxisAssignment((p,), (p,)) for p in (Replicated(), Sharded(0))]
    >>> pick_reshard_action(rows, [x], op_name="relu", operand_names=["x"]).outputs
    (DeviceMapping(DeviceMesh(tp=2), [Sharded(axis=0)]),)
    """
    if not rows:
        raise ShardingError(f"{op_name}: its placement rule gives no way to run it")
    if any(len(r.needed_inputs) != len(layouts) for r in rows):
        raise ShardingError(
            f"{op_name}: its placement rule is for {len(rows[0].needed_inputs)} tensors, and it "
            f"has {len(layouts)}"
        )
    mesh = common_mesh(layouts)
    policy = _POLICY.get()
    placed = [placements_on(layout, mesh) for layout in layouts]
    outputs: list[tuple[Placement, ...]] = []
    decisions: list[Decision] = []
    for axis in range(mesh.ndim):
        decision = _decide(rows, layouts, mesh, axis, placed, policy.allowed)
        decisions.append(decision)
        if not decision.candidates:
            raise ShardingError(no_row(op_name, operand_names, layouts, mesh, axis, placed, rows))
        chosen = decision.chosen
        if chosen is None:
            break
        placed = [
            (*p[:axis], there, *p[axis + 1 :])
            for p, there in zip(placed, chosen.row.needed_inputs, strict=True)
        ]
        outputs.append(chosen.row.outputs)
    refused = any(d.chosen is None for d in decisions)
    moves = any(d.chosen is not None and d.chosen.moved for d in decisions)
    if refused or (moves and policy.mode != "silent"):
        text = report(
            op_name, operand_names, layouts, mesh, decisions, placed, policy.allowed, policy.mode
        )
        if refused or policy.mode == "raise":
            raise ShardingError(text)
        warnings.warn(text, UserWarning, stacklevel=_callers_level())
    return Action(
        tuple(_mapping(layout, mesh, p) for layout, p in zip(layouts, placed, strict=True)),
        tuple(DeviceMapping(mesh, p) for p in zip(*outputs, strict=True)),
    )


def _decide(
    rows: Sequence[AxisAssignment],
    layouts: Sequence[TensorLayout],
    mesh: DeviceMesh,
    axis: int,
    placed: Sequence[tuple[Placement, ...]],
    allowed: frozenset[Transition],
) -> Decision:
    """The rows that can be had along an axis, the best first, and which of them to take."""
    current = input_placements_at_axis(placed, axis)
    candidates = []
    for row in feasible_rows_at_axis(rows, layouts, mesh, axis, placed):
        moved = moved_input_slots(current, row)
        cost = sum(
            transition_cost(
                current[i],
                row.needed_inputs[i],
                message_bytes=tensor_byte_count(layouts[i]),
                mesh=mesh,
                axis_index=axis,
            )
            for i in moved
        )
        fits = row_transitions(current, row) <= allowed
        candidates.append(Candidate(row, tuple(moved), cost, fits))
    candidates.sort(key=lambda c: (c.cost, len(c.moved)))
    return Decision(axis, current, candidates, next((c for c in candidates if c.allowed), None))


def _mapping(
    layout: TensorLayout, mesh: DeviceMesh, placements: tuple[Placement, ...]
) -> DeviceMapping:
    """Where an operand has to be; one on a single device stays there."""
    if stays(layout, mesh):
        return layout.mapping
    return DeviceMapping(layout.mesh, placements)


_PACKAGE = str(Path(__file__).parents[2])


def _callers_level() -> int:
    """How far up the stack, from the function that asks, the code outside of this package is."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
