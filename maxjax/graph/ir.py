# SPDX-License-Identifier: Apache-2.0
"""The intermediate representation: nodes in blocks, and the graph being built.

A :class:`Node` applies one op to operands; a :class:`Block` is arguments and nodes in program
order, which is also the order of effects. This module knows nothing of particular ops or types.
"""

from __future__ import annotations

import dataclasses
import sys
import traceback
import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from maxjax.graph.debug import options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from maxjax.graph.graph import Graph
    from maxjax.graph.op import Op
    from maxjax.graph.value import Value

__all__ = ["CURRENT_GRAPH", "Block", "Location", "Node", "caller", "current_graph", "warn"]

CURRENT_GRAPH: ContextVar[Graph | None] = ContextVar("CURRENT_GRAPH", default=None)

_PACKAGE = __name__.partition(".")[0]
_INSIDE = _PACKAGE + "."


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """Where in the user's program an op was written.

    ``stack`` holds the whole call stack, formatted, when ``Graph.debug.source_tracebacks`` is on.
    """

    file: str
    line: int
    function: str
    stack: str = ""

    def __str__(self) -> str:
        where = "" if self.function == "<module>" else f" in {self.function}"
        return f"{self.file}:{self.line}{where}"


def _outside(frame: FrameType | None) -> FrameType | None:
    """The first frame, going outwards, whose code is not maxjax's own."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != _PACKAGE and not name.startswith(_INSIDE):
            return frame
        frame = frame.f_back
    return None


def caller() -> Location | None:
    """The user's line that is being executed, or None when all frames are maxjax's own."""
    frame = _outside(sys._getframe(1))
    if frame is None:
        return None
    code = frame.f_code
    stack = "".join(traceback.format_stack(frame)) if options.source_tracebacks else ""
    return Location(code.co_filename, frame.f_lineno, code.co_name, stack)


def warn(message: str) -> None:
    """A ``UserWarning`` that shows the user's line, however deep in maxjax it is given."""
    frame = _outside(sys._getframe(1))
    if frame is None:
        warnings.warn(message, UserWarning, stacklevel=2)
    else:
        file, line = frame.f_code.co_filename, frame.f_lineno
        warnings.warn_explicit(message, UserWarning, file, line, source=None)


class Node:
    """One op applied to operands, with its regions and results.

    Attributes:
        op: The op, an instance of an :class:`~maxjax.graph.op.Op` class; its fields are the
            attributes.
        operands: The values it reads.
        regions: The blocks it owns (branches, loop bodies).
        results: The values it makes.
        location: Where it was written, or None.
        scope: The profile scopes around it, outermost first.
    """

    __slots__ = ("location", "op", "operands", "regions", "results", "scope")

    def __init__(
        self,
        op: Op,
        operands: tuple[Value, ...],
        location: Location | None = None,
        scope: tuple[str, ...] = (),
        regions: tuple[Block, ...] = (),
    ) -> None:
        self.op = op
        self.operands = operands
        self.location = location
        self.scope = scope
        self.regions = regions
        self.results: tuple[Value, ...] = ()


class Block:
    """Arguments and nodes in program order.

    Attributes:
        graph: The graph it belongs to.
        parent: The block around it, for the regions of an op; None for a graph's body.
        arguments: The values it is given.
        nodes: What it computes.
        outputs: What it yields; None while it is still being built.
    """

    __slots__ = ("arguments", "graph", "nodes", "outputs", "parent")

    def __init__(self, graph: Graph, parent: Block | None = None) -> None:
        self.graph = graph
        self.parent = parent
        self.arguments: tuple[Value, ...] = ()
        self.nodes: list[Node] = []
        self.outputs: tuple[Value, ...] | None = None

    def sees(self, other: Block) -> bool:
        """Whether values of ``other`` may be used here: it is this block or one around it."""
        block: Block | None = self
        while block is not None:
            if block is other:
                return True
            block = block.parent
        return False

    def walk(self) -> Iterator[Node]:
        """All nodes in program order, those of the regions after the node that owns them."""
        for node in self.nodes:
            yield node
            for region in node.regions:
                yield from region.walk()


def current_graph(who: str = "") -> Any:
    """The graph being built.

    Raises:
        LookupError: If none is; ``who`` names the op that needed one.
    """
    graph = CURRENT_GRAPH.get()
    if graph is None:
        raise LookupError(
            f"{who + ': ' if who else ''}no graph is being built here; "
            "use it inside `with Graph(...):` or inside a graph's forward function"
        )
    return graph
