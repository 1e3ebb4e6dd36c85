# SPDX-License-Identifier: Apache-2.0
"""Graphs that are called, put in the place of the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from maxjax.graph.graph import Graph
from maxjax.graph.ir import Block, Node
from maxjax.graph.module import Module
from maxjax.graph.ops.call import Call
from maxjax.graph.ops.constant import ConstantExternal
from maxjax.graph.value import Value, make_value

__all__ = ["inlined", "part"]


def part(
    graph: Graph, arguments: Iterable[Value], nodes: Iterable[Node], outputs: Iterable[Value]
) -> Graph:
    """A graph of some nodes of another, which it shares with it.

    Args:
        graph: The other.
        arguments: Values that become its inputs.
        nodes: In an order in which they can run. Weights are put at the head.
        outputs: Values that become its outputs.
    """
    new = Graph.__new__(Graph)
    new._start(graph.name, (), Module(), kernels=graph.kernels)
    new.body.arguments = tuple(arguments)
    weights: list[Node] = []
    others: list[Node] = []
    for node in nodes:
        (weights if isinstance(node.op, ConstantExternal) else others).append(node)
    new.body.nodes = [*weights, *others]
    new.body.outputs = tuple(outputs)
    return new


def inlined(graph: Graph, chosen: Callable[[Call], bool]) -> Graph:
    """A graph like another, with the nodes of graphs it calls in the place of some calls.

    Args:
        graph: The other, which stays as it is; calls within branches and loops are left.
        chosen: Whether to do it for a call; those in the graph that comes in are asked for too.
    """
    new = part(graph, (), (), ())
    inliner = _Inliner(new.body, chosen)
    values: dict[int, Value] = {}
    new.body.arguments = inliner.fresh(graph.inputs, new.body, values)
    inliner.add(graph.body, values, "")
    new.body.nodes = [*inliner.weights.values(), *new.body.nodes]
    new.body.outputs = tuple(values[id(v)] for v in graph.outputs)
    return new


class _Inliner:
    """Copies nodes into a block."""

    def __init__(self, target: Block, chosen: Callable[[Call], bool]) -> None:
        self.target = target
        self.chosen = chosen
        self.weights: dict[str, Node] = {}

    def add(self, source: Block, values: dict[int, Value], prefix: str) -> None:
        """Copies the nodes of a graph, whose arguments are among the values already."""
        for node in source.nodes:
            if isinstance(node.op, ConstantExternal):
                values[id(node.results[0])] = self.weight(node, prefix)
            elif isinstance(node.op, Call) and self.chosen(node.op):
                callee = node.op.callee
                inner = {
                    id(a): values[id(v)] for a, v in zip(callee.inputs, node.operands, strict=True)
                }
                self.add(callee.body, inner, prefix + node.op.prefix)
                for result, output in zip(node.results, callee.outputs, strict=True):
                    values[id(result)] = inner[id(output)]
            else:
                self.target.nodes.append(self.copy(node, self.target, values, prefix))

    def weight(self, node: Node, prefix: str) -> Value:
        """The value of a weight, declared once."""
        op = node.op
        assert isinstance(op, ConstantExternal)
        name = prefix + op.name if op.is_placeholder else op.name
        if name not in self.weights:
            full = ConstantExternal(name, op.type, op.align, op.is_placeholder)
            self.weights[name] = new = Node(full, (), node.location, node.scope)
            new.results = (make_value(op.type, self.target),)
        return self.weights[name].results[0]

    def copy(self, node: Node, target: Block, values: dict[int, Value], prefix: str) -> Node:
        regions = []
        for region in node.regions:
            block = Block(target.graph, target)
            block.arguments = self.fresh(region.arguments, block, values)
            block.nodes = [self.copy(n, block, values, prefix) for n in region.nodes]
            block.outputs = tuple(values[id(v)] for v in region.outputs or ())
            regions.append(block)
        op: Any = node.op
        if isinstance(op, Call):
            op = Call(op.callee, prefix + op.prefix)
        operands = tuple(values[id(v)] for v in node.operands)
        new = Node(op, operands, node.location, node.scope, tuple(regions))
        new.results = self.fresh(node.results, target, values)
        return new

    @staticmethod
    def fresh(old: Iterable[Value], block: Block, values: dict[int, Value]) -> tuple[Value, ...]:
        made = []
        for value in old:
            values[id(value)] = new = make_value(value.type, block)
            made.append(new)
        return tuple(made)
