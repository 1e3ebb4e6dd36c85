# SPDX-License-Identifier: Apache-2.0
"""Graphs with sizes that depend on values, as parts that can each be compiled.

An op such as ``nonzero`` has a result as long as its operand's values say, and a program has fixed
sizes. So a graph is split at such ops: a part computes their operands and counts, somebody reads
the counts, and the next part is for these sizes. :func:`bounded` is the other way out, for a graph
that must be one program: each such size becomes a fixed one that is large enough.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from maxjax.graph.dim import Dim
from maxjax.graph.graph import Graph
from maxjax.graph.ir import Node
from maxjax.graph.op import StateOp
from maxjax.graph.ops.call import Call
from maxjax.graph.ops.constant import Constant, ConstantExternal, ShapeToTensor
from maxjax.graph.type import BufferType
from maxjax.graph.value import Value, make_value
from maxjax.lower.bounds import bounded
from maxjax.lower.function import LoweredFunction, external_weights, to_jax
from maxjax.lower.inline import part
from maxjax.lower.made import (
    Made,
    Names,
    NewSize,
    Witness,
    check_rest,
    given_names,
    names_of,
    new_node,
    new_sizes,
    plain_names,
    result_names,
    splittable,
    unique,
    witness_type,
)
from maxjax.lower.padding import Padding, padding
from maxjax.lower.signature import Signature

__all__ = ["Made", "NewSize", "Stage", "Stages", "bounded", "new_sizes", "stages"]


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of a graph, up to where sizes are read.

    As a function its inputs are ``takes``, then an empty array of shape ``(size, 0)`` for each of
    ``names``, then ``buffers``; its outputs are ``gives``, then the counts of ``made``.

    Attributes:
        function: What it computes.
        takes: The tensors it uses that are inputs of the graph or given by earlier parts.
        names: The dimensions whose sizes it must be told.
        buffers: The buffers it reads or writes that were there before.
        gives: What is used later, or an output of the graph; of a buffer it creates the contents.
        made: The sizes that are to be read after it.
        rests: The ops of which the part before has counted the sizes.
        last: The tensors of ``takes`` that no later part uses, and that are no outputs.
    """

    function: LoweredFunction
    takes: tuple[Value, ...]
    names: tuple[str, ...]
    buffers: tuple[Value, ...]
    gives: tuple[Value, ...]
    made: tuple[Made, ...]
    rests: tuple[Made, ...]
    last: frozenset[int]

    def padding(self) -> Padding | None:
        """What is known of this part if its new sizes may be larger than what was counted.

        This is the one place that says which sizes are padded: of those that were made from values,
        as many as can be proven harmless.
        """
        made = {n for m in self.rests for n in m.names}
        opaque = {n for m in self.rests if m.is_opaque for n in m.names}
        kept: Padding | None = None
        names: list[str] = []
        for name in sorted(made - opaque):
            try:
                kept = _proof(self, [*names, name])
                names.append(name)
            except ValueError:
                continue
        return kept


def _proof(stage: Stage, names: Sequence[str]) -> Padding:
    """Proves that these sizes may be larger in a part.

    Raises:
        ValueError: If not.
    """
    graph = stage.function.graph
    rests = {id(m.rest) for m in stage.rests}
    results = [r for m in stage.rests for r in m.rest.results]
    nodes = [n for n in graph.body.nodes if id(n) not in rests]
    without = part(graph, [*graph.inputs, *results], nodes, graph.outputs)
    proof = padding(to_jax(without, stage.function.manner), names)
    for made in stage.rests:
        check_rest(graph, made, names)
    return proof


@dataclasses.dataclass(frozen=True)
class Stages:
    """A graph in parts.

    Attributes:
        function: The graph as a whole. Graphs that it called and that make sizes are part of it.
        parts: In the order in which they run.
    """

    function: LoweredFunction
    parts: tuple[Stage, ...]

    @property
    def names(self) -> frozenset[str]:
        """The sizes that are read on the way."""
        return frozenset(n for s in self.parts for m in s.made for n in m.names)


def stages(function: LoweredFunction) -> Stages | None:
    """A graph in parts that can be compiled one after the other; None if it is one part.

    Every op is in the first part that has its operands, and is computed once; constants and weights
    are in each part that uses them. Effects keep their order.

    Raises:
        ValueError: If a size is made inside a branch or a loop; says which and where.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> def select(x):
    ...     return ops.gather_nd(x, ops.nonzero(x > 0, "found"))
    >>> x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    >>> found = stages(to_jax(Graph("positive", select, [x])))
    >>> [[n.op.title for n in s.function.graph.body.nodes] for s in found.parts]
    [['constant', 'greater', 'count(nonzero)'], ['nonzero', 'gather_nd']]
    """
    split = splittable(function)
    return None if split is None else _Splitter(split).split()


def _used(node: Node) -> list[Value]:
    """The values of the block around it that a node uses, in its regions too."""
    found = list(node.operands)
    for region in node.regions:
        inside = {id(a) for a in region.arguments}
        for inner in region.nodes:
            found += [v for v in _used(inner) if id(v) not in inside]
            inside.update(id(r) for r in inner.results)
        found += [v for v in region.outputs or () if id(v) not in inside]
    return list({id(v): v for v in found}.values())


def _has_effect(node: Node) -> bool:
    if isinstance(node.op, StateOp) or any(isinstance(v.type, BufferType) for v in _used(node)):
        return True
    blocks = [*node.regions]
    if isinstance(node.op, Call):
        blocks.append(node.op.callee.body)
    return any(_has_effect(inner) for block in blocks for inner in block.nodes)


# These cost nothing, so each part has its own.
_COPIED = (Constant, ConstantExternal, ShapeToTensor)


class _Splitter:
    """Says in which part each node of a graph is."""

    def __init__(self, function: LoweredFunction) -> None:
        self.function = function
        self.graph = function.graph
        # The part that computes a value, or binds a name; those given with the graph are not here.
        self.level: dict[int, int] = {}
        self.name_level: dict[str, int] = {}
        self.nodes: list[list[Node]] = []
        self.made: list[list[Made]] = []

    def split(self) -> Stages:
        placed = self.place()
        count = len(self.made)
        self.sink(placed, count)
        order = {id(node): i for i, (node, _) in enumerate(placed)}
        parts: list[list[Node]] = [[] for _ in range(count)]
        for node, level in placed:
            if level is not None:
                parts[level].append(node)
        for node, levels in self.free:
            for level in levels:
                parts[level].append(node)
        for nodes in parts:
            nodes.sort(key=lambda n: order[id(n)])
        return Stages(self.function, self.link(parts))

    # ---------------------------------------------------------------- levels

    def place(self) -> list[tuple[Node, int | None]]:
        """Each node with its part; None for what only depends on weights and constants."""
        names = Names(given_names(self.graph))
        placed: list[tuple[Node, int | None]] = []
        free: set[int] = set()
        effects = last = 0
        makes: list[tuple[Made, int]] = []
        for node in self.graph.body.nodes:
            given = names.known | names.made
            counted = names.counted(node, self.graph)
            has_effect = _has_effect(node)
            used = _used(node)
            mentioned = names_of(node) & given
            if counted is None and not has_effect:
                late = any(n in self.name_level for n in mentioned)
                binds = result_names(node) - given
                if not late and not binds and all(id(v) in free for v in used):
                    free.update(id(r) for r in node.results)
                    placed.append((node, None))
                    continue
            if counted is not None:
                mentioned -= {*counted.names}
            level = max(
                [self.level.get(id(v), 0) for v in used]
                + [self.name_level.get(n, 0) for n in mentioned]
                + ([effects] if has_effect else []),
                default=0,
            )
            if counted is not None:
                made = Made.of(node, counted)
                makes.append((made, level))
                placed.append((made.first, level))
                self.level.update({id(r): level for r in made.first.results})
                level += 1
                for name in counted.names:
                    self.name_level.setdefault(name, level)
                node = made.rest
            for name in result_names(node) - given:
                self.name_level.setdefault(name, level)
            self.level.update({id(r): level for r in node.results})
            placed.append((node, level))
            if has_effect:
                effects = level
            last = max(last, level)
        self.made = [[m for m, at in makes if at == level] for level in range(last + 1)]
        return placed

    def sink(self, placed: list[tuple[Node, int | None]], count: int) -> None:
        """Puts what depends on weights and constants only where it is used first."""
        users: dict[int, set[int]] = {id(v): {count - 1} for v in self.graph.outputs}
        self.free: list[tuple[Node, list[int]]] = []
        for node, level in reversed(placed):
            levels = {level} if level is not None else set()
            if level is None:
                for r in node.results:
                    levels |= users.get(id(r), set())
                if not levels:
                    continue
                if not isinstance(node.op, _COPIED):
                    levels = {min(levels)}
                    self.level.update({id(r): min(levels) for r in node.results})
                self.free.append((node, sorted(levels)))
            for v in _used(node):
                users.setdefault(id(v), set()).update(levels)

    # ---------------------------------------------------------------- what goes between

    def link(self, parts: list[list[Node]]) -> tuple[Stage, ...]:
        defined = [{id(r) for n in nodes for r in n.results} for nodes in parts]
        used = [unique(v for n in nodes for v in _used(n)) for nodes in parts]
        taken = [
            [v for v in values if id(v) not in own]
            for values, own in zip(used, defined, strict=True)
        ]
        names, told = self.witnesses(parts, taken)
        for k, values in enumerate(told):
            defined[k] |= {id(r) for n in values for r in n.results}
        outputs = {id(v) for v in self.graph.outputs}
        found = []
        for k, nodes in enumerate(parts):
            later = {id(v) for values in taken[k + 1 :] for v in values}
            wanted = later | outputs
            results = [r for n in (*nodes, *told[k]) for r in n.results]
            gives = [r for r in results if id(r) in wanted]
            takes = [v for v in taken[k] if not isinstance(v.type, BufferType)]
            buffers = [v for v in taken[k] if isinstance(v.type, BufferType)]
            made = self.made[k]
            counts = [c for m in made for c in m.counts]
            witnesses = [make_value(witness_type(Dim(n)), self.graph.body) for n in names[k]]
            graph = part(
                self.graph,
                [*takes, *witnesses, *buffers],
                [*nodes, *told[k]],
                [*gives, *counts],
            )
            given = {id(v) for v in self.graph.inputs}
            found.append(
                Stage(
                    self.lowered(graph),
                    tuple(takes),
                    tuple(names[k]),
                    tuple(buffers),
                    tuple(gives),
                    tuple(made),
                    tuple(self.made[k - 1]) if k else (),
                    frozenset(id(v) for v in takes) - later - outputs - given,
                )
            )
        return tuple(found)

    def witnesses(
        self, parts: list[list[Node]], taken: list[list[Value]]
    ) -> tuple[list[list[str]], list[list[Node]]]:
        """For each part the names it must be told the sizes of, and the sizes it tells others.

        What an earlier part found out besides the counts becomes a value among ``taken``.
        """
        made = {n for ms in self.made for m in ms for n in m.names}
        given = given_names(self.graph)
        told: list[list[Node]] = [[] for _ in parts]
        telling: dict[str, Value] = {}
        names: list[list[str]] = []
        for k, nodes in enumerate(parts):
            seen = plain_names(
                [v.type for v in taken[k]]
                + [n.op.type for n in nodes if isinstance(n.op, ConstantExternal)]
            )
            ask = []
            for name in sorted({n for node in nodes for n in names_of(node)} - seen):
                level = self.name_level.get(name)
                if name in made and level is not None and level <= k:
                    ask.append(name)
                elif name in made:
                    continue  # counted here, for the next part
                elif level is None:
                    # What is no input's is bound in a region, or a mistake that the op tells of.
                    if name in given:
                        ask.append(name)
                elif level < k:
                    if name not in telling:
                        node = new_node(Witness(Dim(name)), (), None, self.graph.body)
                        told[level].append(node)
                        telling[name] = node.results[0]
                    taken[k].append(telling[name])
            names.append(ask)
        return names, told

    def lowered(self, graph: Graph) -> LoweredFunction:
        whole = self.function
        nodes = {id(n) for n in graph.body.nodes}
        repeats = {i: r for i, r in whole.repeats.items() if i in nodes}
        weights = {name: op.type for name, op in external_weights(graph).items()}
        return LoweredFunction(graph, Signature.of(graph, weights), whole.manner, repeats)
