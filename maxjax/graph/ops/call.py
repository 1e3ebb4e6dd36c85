# SPDX-License-Identifier: Apache-2.0
"""Calling subgraphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from maxjax.graph.op import RegionOp, Runner, State, refused
from maxjax.graph.operand import either
from maxjax.graph.type import Type
from maxjax.graph.value import Value

if TYPE_CHECKING:
    from maxjax.graph.graph import Graph

__all__ = ["call"]


class Call(RegionOp):
    """The outputs of another graph of the module, for these inputs."""

    callee: Graph
    prefix: str = ""

    def infer(self, *operands: Type) -> tuple[Type, ...]:
        wanted = self.callee.input_types
        if len(operands) != len(wanted):
            raise ValueError(
                f"graph {self.callee.name!r} takes {len(wanted)} inputs, got {len(operands)}"
            )
        for i, (given, want) in enumerate(zip(operands, wanted, strict=True)):
            if given != want:
                raise ValueError(
                    f"input {i} of graph {self.callee.name!r} is {want.brief()}, "
                    f"got {given.brief()}"
                )
        return tuple(self.callee.output_types)

    def lower(self, run: Runner, state: State, *operands: Any) -> tuple[Any, ...]:
        return run.graph(self.callee, operands, self.prefix)

    def with_graphs(self, replace: Callable[[Any], Any]) -> Call:
        return Call(replace(self.callee), self.prefix)


def call(graph: Graph, *args: Value, prefix: str = "") -> list[Value]:
    """Calls a subgraph.

    The subgraph is compiled once, however often it is called. Dimensions match by name: a
    subgraph over ``m`` does not take a tensor over ``n``.

    Args:
        graph: A graph made by ``Graph.add_subgraph``, with its outputs.
        args: One value per input, of exactly its type.
        prefix: Put before the names of the subgraph's placeholder weights, so that each call
            has its own.

    Returns:
        The outputs, one value each.

    Raises:
        TypeError: If the subgraph has no outputs yet.
        ValueError: If the number or types of ``args`` do not match its inputs.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> t = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    >>> with Graph("main", input_types=[t]) as g:
    ...     double = g.add_subgraph("double", lambda x: x * 2, [t])
    ...     ops.call(double, g.inputs[0])
    [TensorValue(float32, [n], cpu:0)]
    """
    operands = [either("call", a, f"argument {i}") for i, a in enumerate(args)]
    if graph.body.outputs is None:
        raise refused("call", TypeError, f"graph {graph.name!r} has no outputs yet")
    return list(Call(graph, prefix)(*operands))
