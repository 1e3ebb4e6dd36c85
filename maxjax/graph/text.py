# SPDX-License-Identifier: Apache-2.0
"""Graphs as text, and back.

``str(graph)`` is one graph's text. :func:`dump` adds the graphs it calls, so that :func:`parse`
gives an equal graph, and :func:`save` writes it where ``Graph(name, path=...)`` reads it.
"""

from __future__ import annotations

import os
from pathlib import Path

from maxjax.graph._parser import parse_graphs
from maxjax.graph._printer import print_graphs
from maxjax.graph.graph import Graph, callees, graph_factory
from maxjax.graph.module import Module

__all__ = ["dump", "parse", "read", "save"]


def dump(graph: Graph | Module, *, locations: bool = False) -> str:
    """The text of a graph and the graphs it calls, or of a whole module.

    Args:
        graph: What to write.
        locations: Whether each op says where in the user's program it was written.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType
    >>> x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    >>> print(dump(Graph("negative", lambda x: -x, [x])))
    mo.graph @negative<n>(%arg0: !mo.tensor<[n], f32>) -> !mo.tensor<[n], f32> {
      %0 = mo.negate(%arg0) : (!mo.tensor<[n], f32>) -> !mo.tensor<[n], f32>
      mo.output %0 : !mo.tensor<[n], f32>
    }
    """
    if isinstance(graph, Module):
        return print_graphs((*graph.subgraphs, *graph.graphs), locations=locations)
    return print_graphs((*callees(graph), graph), locations=locations)


def parse(text: str) -> Module:
    """Reads graphs from the text that :func:`dump` writes.

    Returns:
        A module with the graphs.

    Raises:
        ValueError: If the text is malformed or does not type-check; names line and column.

    >>> module = parse(
    ...     "mo.graph @same(%arg0: !mo.tensor<[2], f32>) -> !mo.tensor<[2], f32> "
    ...     "{ mo.output %arg0 : !mo.tensor<[2], f32> }"
    ... )
    >>> module.top_level_graph_names()
    ['same']
    """
    module = Module()
    parse_graphs(text, graph_factory(module))
    return module


def read(path: str | os.PathLike[str]) -> Module:
    """Reads a file that :func:`save` wrote.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If its text is malformed or does not type-check; names file, line and column.
    """
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except ValueError as e:
        raise ValueError(f"{path}: {e}") from None


def save(graph: Graph | Module, path: str | os.PathLike[str], *, locations: bool = False) -> None:
    """Writes :func:`dump` to a file, all of it or nothing.

    Args:
        graph: What to write.
        path: Where; a file that is there is replaced.
        locations: As for :func:`dump`.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(dump(graph, locations=locations) + "\n", encoding="utf-8")
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
