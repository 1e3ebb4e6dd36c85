# SPDX-License-Identifier: Apache-2.0
"""Graphs that are called, put in the place of the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from maxjax.graph.device import DeviceRef
from maxjax.graph.graph import Graph
from maxjax.graph.ir import Block, Node
from maxjax.graph.module import Module
from maxjax.graph.op import Op
from maxjax.graph.ops.call import Call
from maxjax.graph.ops.constant import ConstantExternal
from maxjax.graph.ops.streams import Parallel
from maxjax.graph.type import Type
from maxjax.graph.value import Value, make_value

__all__ = ["inlined", "on_device", "op_on", "part"]


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


def inlined(
    graph: Graph, chosen: Callable[[Call], bool], *, regions: bool = False, parallel: bool = False
) -> Graph:
    """A graph like another, with the nodes of graphs it calls in the place of some calls.

    Args:
        graph: The other, which stays as it is.
        chosen: Whether to do it for a call; those in the graph that comes in are asked for too.
        regions: Whether to do it for calls within branches and loops as well.
        parallel: Whether ``ops.parallel`` becomes the nodes of each launch.
    """
    new = part(graph, (), (), ())
    inliner = _Inliner(new.body, chosen, regions, parallel)
    values: dict[int, Value] = {}
    new.body.arguments = inliner.fresh(graph.inputs, new.body, values)
    inliner.add(graph.body, new.body, values, "")
    new.body.nodes = [*inliner.weights.values(), *new.body.nodes]
    new.body.outputs = tuple(values[id(v)] for v in graph.outputs)
    return new


class _Inliner:
    """Copies nodes into blocks of a new graph."""

    def __init__(
        self, body: Block, chosen: Callable[[Call], bool], regions: bool, parallel: bool
    ) -> None:
        self.body = body
        self.chosen = chosen
        self.regions = regions
        self.parallel = parallel
        self.weights: dict[str, Node] = {}

    def add(self, source: Block, target: Block, values: dict[int, Value], prefix: str) -> None:
        """Copies the nodes of a block, whose arguments are among the values already."""
        for node in source.nodes:
            if isinstance(node.op, ConstantExternal):
                values[id(node.results[0])] = self.weight(node, prefix)
            elif isinstance(node.op, Call) and self.chosen(node.op):
                callee = node.op.callee
                inner = {
                    id(a): values[id(v)] for a, v in zip(callee.inputs, node.operands, strict=True)
                }
                self.add(callee.body, target, inner, prefix + node.op.prefix)
                for result, output in zip(node.results, callee.outputs, strict=True):
                    values[id(result)] = inner[id(output)]
            elif isinstance(node.op, Parallel) and self.parallel:
                self.launches(node, target, values, prefix)
            else:
                target.nodes.append(self.copy(node, target, values, prefix))

    def launches(self, node: Node, target: Block, values: dict[int, Value], prefix: str) -> None:
        """Copies the body of ``ops.parallel``, once for each launch."""
        assert isinstance(node.op, Parallel)
        n, (body,) = node.op.launches, node.regions
        first = node.operands[0].type.device
        for i in range(n):
            device = node.operands[i].type.device
            inner = dict(values)
            for a, v in zip(body.arguments, node.operands[i::n], strict=True):
                inner[id(a)] = values[id(v)]
            at = len(target.nodes)
            self.add(body, target, inner, prefix)
            for new in target.nodes[at:]:
                new.op = op_on(new.op, first, device)
                for result in new.results:
                    result._type = on_device(result._type, first, device)
            for k, output in enumerate(body.outputs or ()):
                values[id(node.results[k * n + i])] = inner[id(output)]

    def weight(self, node: Node, prefix: str) -> Value:
        """The value of a weight, declared once."""
        op = node.op
        assert isinstance(op, ConstantExternal)
        name = prefix + op.name if op.is_placeholder else op.name
        if name not in self.weights:
            full = ConstantExternal(name, op.type, op.align, op.is_placeholder)
            self.weights[name] = new = Node(full, (), node.location, node.scope)
            new.results = (make_value(op.type, self.body),)
        return self.weights[name].results[0]

    def copy(self, node: Node, target: Block, values: dict[int, Value], prefix: str) -> Node:
        regions = []
        for region in node.regions:
            block = Block(target.graph, target)
            block.arguments = self.fresh(region.arguments, block, values)
            if self.regions:
                self.add(region, block, values, prefix)
            else:
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


def on_device(field: Any, old: DeviceRef, new: DeviceRef) -> Any:
    """A field of an op, or a type, with one device in the place of another."""
    if field is old:
        return new
    if isinstance(field, Type):
        if field.device is not old:
            return field
        cls: Any = type(field)
        return cls._of(field.dtype, field.shape, new)
    if type(field) is tuple:
        return tuple(on_device(f, old, new) for f in field)
    return field


def op_on(op: Op, old: DeviceRef, new: DeviceRef) -> Op:
    """An op with one device in the place of another among its attributes."""
    if old is new:
        return op
    fields = {name: getattr(op, name) for name in op._names}
    moved = {name: on_device(field, old, new) for name, field in fields.items()}
    if all(moved[name] is field for name, field in fields.items() if type(field) is not tuple) and (
        all(moved[name] == field for name, field in fields.items() if type(field) is tuple)
    ):
        return op
    return type(op)(**moved)
