# SPDX-License-Identifier: Apache-2.0
"""Runs of calls of one body, each fed by the one before: the layers of a model.

Such a run becomes one loop over stacked weights, so that it is compiled once, however long it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from maxjax.graph.ir import Block, Node
from maxjax.graph.ops.call import Call
from maxjax.graph.ops.constant import ConstantExternal
from maxjax.graph.ops.debug import Print
from maxjax.graph.value import BufferValue

__all__ = ["Repeat", "lower_repeat", "repeats"]


@dataclasses.dataclass(frozen=True)
class Repeat:
    """Calls of one body in a row, to be run as a loop.

    Attributes:
        nodes: The calls.
        fed: For each operand the number of the result of the call before that it is; None where
            all calls have the same operand.
        names: The placeholder weights of the body, by their names in it.
        stacks: For each of these the full names of the weights, one for each call.
    """

    nodes: tuple[Node, ...]
    fed: tuple[int | None, ...]
    names: tuple[str, ...]
    stacks: tuple[tuple[str, ...], ...]


def repeats(
    block: Block,
    least: int,
    weights_of: Callable[[Any], Mapping[str, ConstantExternal]],
) -> dict[int, Repeat]:
    """The runs in a block, by the identity of their first node.

    The last call of a run is not part of it: what it gives besides what feeds the next is wanted.

    Args:
        block: Where to look.
        least: The fewest calls that are worth a loop.
        weights_of: Gives the weights that a graph needs.
    """
    users = _users(block)
    found: dict[int, Repeat] = {}
    run: list[Node] = []
    fed: tuple[int | None, ...] | None = None
    for node in [*block.nodes, None]:
        link = _link(run[-1], node, users) if run and node is not None else None
        if link is not None and fed in (None, link):
            fed = link
            run.append(node)  # pyright: ignore[reportArgumentType]
            continue
        if fed is not None and len(run) > least:
            repeat = _repeat(run[:-1], fed, weights_of)
            if repeat is not None:
                found[id(run[0])] = repeat
        run, fed = ([node] if node is not None and isinstance(node.op, Call) else []), None
    return found


def _users(block: Block) -> dict[int, list[Any]]:
    """The nodes that use each value; None stands for the outputs of a block."""
    users: dict[int, list[Any]] = {}
    for node in block.walk():
        for value in node.operands:
            users.setdefault(id(value), []).append(node)
        for region in node.regions:
            for value in region.outputs or ():
                users.setdefault(id(value), []).append(None)
    for value in block.outputs or ():
        users.setdefault(id(value), []).append(None)
    return users


def _link(
    before: Node, after: Node, users: Mapping[int, list[Any]]
) -> tuple[int | None, ...] | None:
    """How a call is fed by the call before it; None if the two are no run."""
    if not isinstance(after.op, Call) or not isinstance(before.op, Call):
        return None
    if after.op.callee is not before.op.callee or after.scope != before.scope:
        return None
    if any(isinstance(v, BufferValue) for v in after.operands):
        return None
    if any(user is not after for r in before.results for user in users.get(id(r), ())):
        return None
    results = {id(r): k for k, r in enumerate(before.results)}
    fed: list[int | None] = []
    for old, new in zip(before.operands, after.operands, strict=True):
        k = results.get(id(new))
        if k is None and new is not old:
            return None
        if k is not None and new.type != old.type:
            return None
        fed.append(k)
    return tuple(fed) if any(k is not None for k in fed) else None


def _repeat(
    run: Sequence[Node],
    fed: tuple[int | None, ...],
    weights_of: Callable[[Any], Mapping[str, ConstantExternal]],
) -> Repeat | None:
    callee = run[0].op.callee  # pyright: ignore[reportAttributeAccessIssue]
    if any(isinstance(n.op, Print) for n in callee.body.walk()):
        return None
    needed = weights_of(callee)
    names = tuple(n for n, op in needed.items() if op.is_placeholder)
    prefixes = [n.op.prefix for n in run]  # pyright: ignore[reportAttributeAccessIssue]
    return Repeat(tuple(run), fed, names, tuple(tuple(p + n for p in prefixes) for n in names))


def lower_repeat(
    repeat: Repeat,
    body: Callable[[Mapping[str, Any], Sequence[Any]], tuple[list[Any], list[Any]]],
    weights: Mapping[Any, Any],
    shared: Mapping[str, Any],
    operands: Sequence[Any],
) -> list[Any]:
    """The operands of the call after a run.

    Args:
        repeat: The run.
        body: The lowered body, from weights and operands to results and buffers.
        weights: All weights, by name; stacked ones by the tuple of their names.
        shared: The weights of the body that all calls have in common, by their names in it.
        operands: Those of the first call.
    """
    stacked = {
        name: weights[full] if full in weights else jnp.stack([weights[n] for n in full])
        for name, full in zip(repeat.names, repeat.stacks, strict=True)
    }
    places = [p for p, k in enumerate(repeat.fed) if k is not None]

    def step(carry: tuple[Any, ...], own: Mapping[str, Any]) -> tuple[tuple[Any, ...], None]:
        arguments = list(operands)
        for p, value in zip(places, carry, strict=True):
            arguments[p] = value
        results, _ = body({**shared, **own}, arguments)
        return tuple(results[k] for k in repeat.fed if k is not None), None

    start = tuple(operands[p] for p in places)
    last, _ = jax.lax.scan(step, start, stacked, length=len(repeat.nodes))
    final = list(operands)
    for p, value in zip(places, last, strict=True):
        final[p] = value
    return final
