# SPDX-License-Identifier: Apache-2.0
"""What to tell people whose inputs are not placed as an op needs them, with the line to paste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from maxjax.experimental.sharding.action import AxisAssignment, input_placements_at_axis
from maxjax.experimental.sharding.mesh import DeviceMesh
from maxjax.experimental.sharding.placements import Placement
from maxjax.experimental.sharding.types import TensorLayout

__all__ = ["Candidate", "Decision", "no_row", "report"]

# Of rules with many rows, the best ones are enough to see.
_SHOWN = 5


class Candidate(NamedTuple):
    """A row that can be had: which operands it moves, the bytes, and whether it may."""

    row: AxisAssignment
    moved: tuple[int, ...]
    cost: float
    allowed: bool


class Decision(NamedTuple):
    """What was found along an axis of a mesh: the candidates, best first, and the one taken."""

    axis: int
    current: tuple[Placement, ...]
    candidates: list[Candidate]
    chosen: Candidate | None


def report(
    op_name: str,
    operand_names: Sequence[str],
    layouts: Sequence[TensorLayout],
    mesh: DeviceMesh,
    decisions: Sequence[Decision],
    placed: Sequence[tuple[Placement, ...]],
    allowed: frozenset[Any],
    mode: str,
) -> str:
    """What an op would have to move, what else it could, and what to write instead."""
    refused = next((d for d in decisions if d.chosen is None), None)
    takes = [d.chosen or d.candidates[0] for d in decisions]
    moved = sorted({i for c in takes for i in c.moved})
    names = [operand_names[i] for i in moved]
    if refused is not None:
        head = f"{op_name} can only move {_all(names)} in ways that auto_reshard() does not allow"
    elif mode == "raise":
        head = f"{op_name} needs {_all(names)} placed otherwise, and nothing lets it move inputs"
    else:
        head = f"{op_name} moves {_all(names)}"
    lines = [head, *_operands(operand_names, layouts)]
    for d in decisions:
        lines.append(f"  along mesh axis {mesh.axis_names[d.axis]!r}, cheapest first:")
        lines += [_line(c, d, operand_names) for c in d.candidates[:_SHOWN]]
        if len(d.candidates) > _SHOWN:
            lines.append(f"    and {len(d.candidates) - _SHOWN} more")
    final = [list(p) for p in placed]
    if refused is not None:
        for i, there in enumerate(takes[-1].row.needed_inputs):
            final[i][refused.axis] = there
    lines.append("  to move them yourself:")
    for i in moved:
        to = ", ".join(map(repr, final[i])) + ("," if len(final[i]) == 1 else "")
        name = operand_names[i]
        lines.append(f"    {name} = F.transfer_to({name}, DeviceMapping({name}.mesh, ({to})))")
    lines.append("  to let ops do it:")
    if refused is None:
        lines.append('    with auto_reshard(mode="silent"):')
    else:
        wanted = {
            (type(d.current[i]).__name__, type(c.row.needed_inputs[i]).__name__)
            for d, c in zip(decisions, takes, strict=True)
            for i in c.moved
        }
        wanted |= {(a.__name__, b.__name__) for a, b in allowed}
        pairs = ", ".join(f"({a}, {b})" for a, b in sorted(wanted))
        lines.append(f'    with auto_reshard({{{pairs}}}, mode="silent"):')
    return "\n".join(lines)


def no_row(
    op_name: str,
    operand_names: Sequence[str],
    layouts: Sequence[TensorLayout],
    mesh: DeviceMesh,
    axis: int,
    placed: Sequence[tuple[Placement, ...]],
    rows: Sequence[AxisAssignment],
) -> str:
    """That an op cannot be run with its operands, moved or not, and what it would need."""
    current = input_placements_at_axis(placed, axis)
    here = ", ".join(f"{n} {p}" for n, p in zip(operand_names, current, strict=True))
    lines = [
        f"{op_name} cannot be run with {here} along mesh axis {mesh.axis_names[axis]!r}",
        *_operands(operand_names, layouts),
        "  what it can be run with:",
    ]
    for row in rows[:_SHOWN]:
        needs = ", ".join(f"{n} {p}" for n, p in zip(operand_names, row.needed_inputs, strict=True))
        lines.append(f"    {needs}")
    lines.append(
        "  nothing turns these into it: no part may be empty, a tensor on one device is not split "
        "by an op, and Unknown() has to be given a meaning with rebind_mapping first"
    )
    return "\n".join(lines)


def _operands(names: Sequence[str], layouts: Sequence[TensorLayout]) -> list[str]:
    return [
        f"  {name}: {layout.dtype.name}{layout.shape.brief()} on {layout.mesh}, placed "
        f"{list(layout.placements)}"
        for name, layout in zip(names, layouts, strict=True)
    ]


def _line(candidate: Candidate, decision: Decision, names: Sequence[str]) -> str:
    row, moved = candidate.row, candidate.moved
    parts = []
    for i, (here, there) in enumerate(zip(decision.current, row.needed_inputs, strict=True)):
        parts.append(f"{names[i]} {here} -> {there}" if i in moved else f"{names[i]} {here}")
    collectives = [
        f"{decision.current[i].transition_to(row.needed_inputs[i]).value} of {names[i]}"
        for i in moved
    ]
    cost = f"{', '.join(collectives)}, {candidate.cost:.10g} bytes" if moved else "as they are"
    gives = f", gives {', '.join(map(repr, row.outputs))}" if row.outputs else ""
    status = "" if candidate.allowed else "; not allowed"
    if candidate is decision.chosen:
        status = "; taken" if not moved else "; the one to take"
    return f"    {', '.join(parts)}{gives} ({cost}{status})"


def _all(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
