# SPDX-License-Identifier: Apache-2.0
"""Blocks that are filled before the op that owns them is made: branches and loop bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from maxjax.graph.ir import Block, current_graph
from maxjax.graph.op import refused
from maxjax.graph.operand import either
from maxjax.graph.type import Type
from maxjax.graph.value import Value, as_outputs, make_value

__all__ = ["GraphBlock", "filled"]


class GraphBlock:
    """A block of the graph being built, to be handed to an op that owns blocks.

    Ops called in its ``with`` block go into it.

    Args:
        arg_types: The types of the block's arguments.

    Raises:
        LookupError: If no graph is being built.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, GraphBlock, TensorType
    >>> x = TensorType(DType.float32, [2], DeviceRef.CPU())
    >>> with Graph("g"):
    ...     with GraphBlock([x]) as block:
    ...         block.output(block.arguments[0] + 1)
    ...     block.output_types
    [TensorType(float32, [2], cpu:0)]
    """

    def __init__(self, arg_types: Sequence[Type] = ()) -> None:
        graph = current_graph("GraphBlock")
        self.block = Block(graph, graph.block)
        self.block.arguments = tuple(make_value(t, self.block) for t in arg_types)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The values the block is given."""
        return self.block.arguments

    def __enter__(self) -> GraphBlock:
        self.block.graph.block = self.block
        return self

    def __exit__(self, *exc: object) -> None:
        assert self.block.parent is not None
        self.block.graph.block = self.block.parent

    def output(self, *values: Any, terminator: object = None) -> None:
        """Ends the block with these values.

        Args:
            values: Values, dimensions or shapes.
            terminator: Accepted; the op that takes the block decides what its end means.

        Raises:
            TypeError: If a value is none of these.
            ValueError: If the block has its outputs already, or a value may not be used in it.
        """
        if self.block.outputs is not None:
            raise refused("GraphBlock", ValueError, "the block has its outputs already")
        outputs = []
        for i, value in enumerate(values):
            made = either("GraphBlock", value, f"output {i}")
            if not self.block.sees(made._block):
                raise refused("GraphBlock", ValueError, f"output {i} is not defined in the block")
            outputs.append(made)
        self.block.outputs = tuple(outputs)

    @property
    def output_types(self) -> list[Type]:
        """The outputs' types.

        Raises:
            RuntimeError: Before :meth:`output`.
        """
        if self.block.outputs is None:
            raise RuntimeError("the block has no outputs yet; call block.output(...) first")
        return [v.type for v in self.block.outputs]


def filled(
    arg_types: Sequence[Type], fn: Callable[..., Value | Iterable[Any] | None]
) -> GraphBlock:
    """A block filled by a function of its arguments, which returns its outputs."""
    with GraphBlock(arg_types) as block:
        result = fn(*block.arguments)
        block.output(*as_outputs(result))
    return block
