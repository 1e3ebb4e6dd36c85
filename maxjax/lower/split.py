# SPDX-License-Identifier: Apache-2.0
"""Graphs over several devices as parts, each for one device, with transfers between.

This is for graphs that are no single program (:mod:`maxjax.lower.fold`): stages of a pipeline on
devices of their own, shards of different sizes. The nodes of a device between two points where
it needs something of another are one part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import Dim
from maxjax.graph.graph import Graph
from maxjax.graph.ir import Block, Node
from maxjax.graph.ops.constant import ConstantExternal
from maxjax.graph.type import BufferType, Type
from maxjax.graph.value import Value, make_value
from maxjax.lower.function import LoweredFunction, Manner, to_jax
from maxjax.lower.inline import inlined, part
from maxjax.lower.made import names_of, plain_names, unique, witness_type
from maxjax.lower.pieces import Piece, Pieces

__all__ = ["Island", "Split", "split"]


@dataclasses.dataclass(frozen=True)
class Island:
    """A part of a graph that one device runs.

    As a function its inputs are ``takes``, then an empty array of shape ``(size, 0)`` for each of
    ``names``, then ``buffers``; its outputs are ``gives``.

    Attributes:
        function: What it computes.
        device: Where.
        takes: The tensors that come from elsewhere.
        names: The dimensions whose sizes it must be told.
        buffers: The buffers of this device that were there before.
        gives: What is used later, or an output of the graph; of a buffer it creates the contents.
        weights: What its weights are, by their names in it: the piece and its type.
        last: The tensors of ``takes`` that no later part uses.
    """

    function: LoweredFunction
    device: DeviceRef
    takes: tuple[Value, ...]
    names: tuple[str, ...]
    buffers: tuple[Value, ...]
    gives: tuple[Value, ...]
    weights: dict[str, tuple[Piece, Type]]
    last: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Split:
    """A graph in parts, in an order in which they can run.

    Attributes:
        graph: The graph, without calls of others.
        islands: The parts.
    """

    graph: Graph
    islands: tuple[Island, ...]


def split(graph: Graph, manner: Manner) -> Split:
    """Takes a graph apart.

    Args:
        graph: A finished graph.
        manner: How the parts are lowered.
    """
    whole = inlined(graph, lambda call: True, regions=True, parallel=True)
    pieces = Pieces()
    groups = list(_groups(whole, pieces))
    uses: dict[int, int] = {}
    for k, (_, nodes) in enumerate(groups):
        for value in _taken(nodes):
            uses[id(value)] = k
    outputs = {id(v) for v in whole.outputs}
    islands = [
        _island(whole, device, nodes, k, uses, outputs, pieces, manner)
        for k, (device, nodes) in enumerate(groups)
    ]
    return Split(whole, tuple(islands))


def _groups(graph: Graph, pieces: Pieces) -> Iterator[tuple[DeviceRef, list[Node]]]:
    """The nodes of each part, and its device."""
    started: dict[DeviceRef, list[Node]] = {}
    home: dict[int, DeviceRef] = {}  # of what nodes of parts that are not ended make
    needed: dict[int, Node] = {}  # views of weights

    def ended(device: DeviceRef) -> Iterator[tuple[DeviceRef, list[Node]]]:
        nodes = started.pop(device, [])
        for node in nodes:
            for result in node.results:
                home.pop(id(result), None)
        if nodes:
            yield device, nodes

    for node in graph.body.nodes:
        if pieces.note(node):
            for result in node.results:
                needed[id(result)] = node
            continue
        devices = _devices(node)
        device = devices[0]
        used = list(_taken([node]))
        others = {home[id(v)] for v in used if id(v) in home} - {device}
        if len(devices) > 1:
            others |= set(started)
        for other in sorted(others, key=str):
            yield from ended(other)
        nodes = started.setdefault(device, [])
        for view in _views(used, needed, pieces):
            nodes.append(view)
        nodes.append(node)
        for result in node.results:
            home[id(result)] = device
        if len(devices) > 1:
            yield from ended(device)
    for value in graph.outputs:
        value = pieces.same(value)
        if value in pieces and pieces.cut(value) is None:
            views = list(_views([value], needed, pieces))
            if views:
                started.setdefault(value.type.device, []).extend(views)
    for device in list(started):
        yield from ended(device)


def _views(values: Iterable[Value], needed: dict[int, Node], pieces: Pieces) -> Iterator[Node]:
    """The nodes that look at weights in another way for these values, each once."""
    for value in values:
        if value in pieces and pieces.cut(value) is None and id(value) in needed:
            node = needed.pop(id(value))
            yield from _views(node.operands, needed, pieces)
            yield node


def _devices(node: Node) -> list[DeviceRef]:
    """The devices of what a node makes, or if that is nothing of what it takes."""
    values = [*node.results] or [*node.operands]
    buffers = [v for v in node.operands if isinstance(v.type, BufferType)]
    for region in node.regions:
        buffers += [v for n in region.walk() for v in n.operands if isinstance(v.type, BufferType)]
        if not values:
            values = [r for n in region.walk() for r in n.results]
    found = list(dict.fromkeys(v.type.device for v in [*values, *buffers]))
    return found or [DeviceRef.CPU()]


def _taken(nodes: Sequence[Node]) -> list[Value]:
    """The values that nodes use and do not make, those in their regions included."""
    made: set[int] = set()
    found: list[Value] = []

    def visit(node: Node) -> None:
        found.extend(v for v in node.operands if id(v) not in made)
        for region in node.regions:
            made.update(id(a) for a in region.arguments)
            inside(region)
        made.update(id(r) for r in node.results)

    def inside(block: Block) -> None:
        for node in block.nodes:
            visit(node)
        found.extend(v for v in block.outputs or () if id(v) not in made)

    for node in nodes:
        visit(node)
    return unique(found)


def _island(
    graph: Graph,
    device: DeviceRef,
    nodes: list[Node],
    number: int,
    uses: dict[int, int],
    outputs: set[int],
    pieces: Pieces,
    manner: Manner,
) -> Island:
    taken = _taken(nodes)
    weights: dict[str, tuple[Piece, Type]] = {}
    declared: list[Node] = []
    for value in [v for v in taken if v in pieces]:
        piece = pieces.cut(value)
        assert piece is not None
        name = _named(piece, weights)
        weights[name] = piece, value.type
        node = Node(ConstantExternal(name, value.type), ())
        node.results = (value,)
        declared.append(node)
    rest = [v for v in taken if v not in pieces]
    takes = [v for v in rest if not isinstance(v.type, BufferType)]
    buffers = [v for v in rest if isinstance(v.type, BufferType)]
    made = [r for n in nodes for r in n.results]
    gives = [r for r in made if id(r) in outputs or uses.get(id(r), -1) > number]
    types = [v.type for v in (*takes, *buffers)]
    mentioned = {name for n in nodes for name in names_of(n)}
    mentioned |= {p.name for t in types for p in t.parameters}
    own = {name for n in nodes for r in n.results for name in plain_names([r.type])}
    names = sorted(mentioned - plain_names(types))
    known = tuple(n for n in names if n not in own or n in _names_before(graph, nodes))
    witnesses = [make_value(witness_type(Dim(n)), graph.body) for n in known]
    function = to_jax(
        part(graph, [*takes, *witnesses, *buffers], [*declared, *nodes], gives), manner
    )
    last = frozenset(id(v) for v in takes if uses.get(id(v), -1) <= number and id(v) not in outputs)
    return Island(
        function, device, tuple(takes), known, tuple(buffers), tuple(gives), weights, last
    )


def _names_before(graph: Graph, nodes: Sequence[Node]) -> set[str]:
    """The names that have a size before some nodes run."""
    first = id(nodes[0])
    found = plain_names(v.type for v in graph.inputs)
    for node in graph.body.nodes:
        if id(node) == first:
            break
        found |= plain_names(r.type for r in node.results)
    return found


def _named(piece: Piece, known: dict[str, Any]) -> str:
    name = base = next(piece.names)
    k = 1
    while name in known:
        k += 1
        name = f"{base}#{k}"
    return name
