# SPDX-License-Identifier: Apache-2.0
"""A module: several graphs as one unit of compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxjax.graph._printer import print_graphs

if TYPE_CHECKING:
    from maxjax.graph.graph import Graph

__all__ = ["Module"]


class Module:
    """A container of graphs that are compiled together.

    Every graph has one; graphs built with the same ``module=`` share it. ``str(module)`` is the
    text of all graphs, subgraphs included.

    >>> from maxjax.graph import Graph, Module
    >>> module = Module()
    >>> encoder, decoder = Graph("encoder", module=module), Graph("decoder", module=module)
    >>> module.top_level_graph_names()
    ['encoder', 'decoder']
    """

    def __init__(self) -> None:
        self._graphs: list[Graph] = []
        self._subgraphs: list[Graph] = []

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs that are not subgraphs, in the order they were made."""
        return tuple(self._graphs)

    @property
    def subgraphs(self) -> tuple[Graph, ...]:
        """The graphs that others call, in the order they were made."""
        return tuple(self._subgraphs)

    def top_level_graph_names(self) -> list[str]:
        """The names of the graphs that are not subgraphs, in the order they were made."""
        return [g.name for g in self._graphs]

    def _add(self, graph: Graph, *, sub: bool) -> str:
        """Takes a graph in and gives the symbol it has in this module.

        Raises:
            ValueError: If a top-level graph of that name is there already.
        """
        taken = {g.symbol for g in (*self._graphs, *self._subgraphs)}
        name, symbol, n = graph.name, graph.name, 0
        if not sub and name in self.top_level_graph_names():
            raise ValueError(
                f"the module already has a graph called {name!r}; models are told apart by name"
            )
        while symbol in taken:
            n += 1
            symbol = f"{name}_{n}"
        (self._subgraphs if sub else self._graphs).append(graph)
        return symbol

    def _demote(self, graph: Graph) -> None:
        """Makes a graph of this module a subgraph."""
        self._graphs.remove(graph)
        self._subgraphs.append(graph)

    def _drop(self, graph: Graph) -> None:
        """Forgets a subgraph of this module that nothing calls."""
        self._subgraphs.remove(graph)

    def __str__(self) -> str:
        return print_graphs((*self._subgraphs, *self._graphs))

    def __repr__(self) -> str:
        return f"Module({', '.join(self.top_level_graph_names())})"
