# SPDX-License-Identifier: Apache-2.0
"""Graphs with sizes that depend on values as one program, where each is a fixed size instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from maxjax.graph.dim import Dim, StaticDim
from maxjax.graph.graph import Graph
from maxjax.graph.ir import Node
from maxjax.graph.ops.rebind import Rebind
from maxjax.graph.shape import Shape
from maxjax.graph.type import BufferType
from maxjax.graph.value import Value, make_value
from maxjax.lower.function import LoweredFunction, to_jax
from maxjax.lower.inline import part
from maxjax.lower.made import (
    Made,
    Names,
    Witness,
    check_rest,
    given_names,
    listed,
    new_node,
    splittable,
    unique,
    witness_type,
)
from maxjax.lower.padding import padding
from maxjax.lower.signature import Function

__all__ = ["bounded"]


def bounded(function: Function | Graph, bounds: Mapping[str, int]) -> LoweredFunction:
    """A graph as one program, in which each size that depends on values is a fixed one.

    Results with such a dimension have the bound in its place. Their elements are right as far as
    the real size goes; behind are those that the op gives beyond it (``nonzero``: rows that hold
    the shape; ``non_maximum_suppression``: zeros; ``repeat_interleave``: the last element; a slice:
    an element of the axis; ``range``: the next numbers), or what was computed from them. A size
    above its bound cuts results off, and can be told by the count.

    Args:
        function: A graph, or what was lowered from one.
        bounds: A number for the name of each size.

    Returns:
        A function of the same inputs. Its outputs are those of the graph, then the real size of
        each name in ``bounds``, an ``int64`` scalar each, in that order.

    Raises:
        TypeError: If it is no graph, or a bound no int.
        ValueError: If a size has no bound or a bound no size; if a size is made twice, or inside a
            branch or loop; if an op mixes along such a dimension, and so would use what is behind
            the real elements; or if the graph is not for all sizes. The op is named, with its
            place.

    >>> import jax, numpy as np
    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    >>> fn = bounded(Graph("g", lambda x: ops.nonzero(x, "found"), [x]), {"found": 4})
    >>> fn.signature.outputs
    (TensorType(int64, [4, 1], cpu:0), TensorType(int64, [], cpu:0))
    >>> with jax.enable_x64(True):
    ...     outputs, _ = fn({}, [np.float32([0, 7, 8])])
    >>> [o.tolist() for o in outputs]
    [[[1], [2], [3], [3]], 2]
    """
    lowered = to_jax(function) if isinstance(function, Graph) else function
    if not isinstance(lowered, LoweredFunction):
        raise TypeError(
            f"bounds are for a graph, and {type(function).__name__} is compiled already: "
            "give them when its graph is saved"
        )
    sizes = _checked_bounds(bounds)
    split = splittable(lowered)
    made = list(_made(split.graph)) if split is not None else []
    _check_names(lowered.graph, made, sizes)
    assert split is not None or not made
    graph = (split or lowered).graph
    _check_harmless(graph, made, sizes)
    return to_jax(_bounded_graph(graph, made, sizes), lowered.manner)


def _checked_bounds(bounds: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(bounds, Mapping):
        raise TypeError(f'bounds are a mapping such as {{"found": 128}}, not {bounds!r:.60}')
    for name, bound in bounds.items():
        if not isinstance(bound, int) or isinstance(bound, bool):
            raise TypeError(f"the bound of {name!r} is an int, not {bound!r:.60}")
        if bound < 1:
            raise ValueError(f"the bound of {name!r} is a number from 1 up, not {bound}")
    return dict(bounds)


def _made(graph: Graph) -> Iterator[Made]:
    names = Names(given_names(graph))
    for node in graph.body.nodes:
        counted = names.counted(node, graph)
        if counted is not None:
            yield Made.of(node, counted)


def _check_names(graph: Graph, made: Sequence[Made], bounds: Mapping[str, int]) -> None:
    makers: dict[str, Made] = {}
    for each in made:
        for name in each.names:
            if name not in bounds:
                raise each.wrong(
                    f"the size {name!r} of its result depends on values, and one program has fixed "
                    f"sizes: give bounds={{{name!r}: N}}, where N is large enough for all values, "
                    "or give out_dim a number or a dimension of an input"
                )
            if makers.setdefault(name, each) is not each or each.names.count(name) > 1:
                raise each.wrong(
                    f"the size {name!r} is made twice, so a bound of it has no one count; call "
                    "one of them otherwise"
                )
    unknown = [n for n in bounds if n not in makers]
    if unknown:
        raise ValueError(
            f"graph {graph.name!r} makes no size {listed(unknown)} from values; those it makes "
            f"are {listed(makers) or 'none'}"
        )


def _check_harmless(graph: Graph, made: Sequence[Made], bounds: Mapping[str, int]) -> None:
    """Refuses ops that mix along bounded dimensions."""
    if not made:
        return
    nodes = _replaced(graph, made, rests=False)
    results = [r for m in made for r in m.rest.results]
    witnesses = [make_value(witness_type(Dim(n)), graph.body) for n in bounds]
    wanted = [v for m in made for v in (*m.first.results, *m.rest.operands)]
    wanted = [v for v in unique(wanted) if not isinstance(v.type, BufferType)]
    cut = part(graph, [*graph.inputs, *results, *witnesses], nodes, [*graph.outputs, *wanted])
    try:
        proof = padding(to_jax(cut), list(bounds))
        for each in made:
            check_rest(graph, each, list(bounds))
    except ValueError as e:
        told = str(e).partition("\nleave ")[0]
        told = re.sub("; leave (it|'[^']*') out of buckets", "", told)
        raise ValueError(
            f"{told}\nin one program {listed(bounds)} is padded to a bound: leave this op to who "
            "runs the program, with the count, or mask what is behind it by a size that is known"
        ) from e
    for condition in proof.conditions:
        for each in made:
            for name in condition.names.intersection(each.names):
                if str(condition) != f"{name} >= 1":
                    raise each.wrong(
                        f"the graph needs {condition} of the size {name!r} that it makes from "
                        "values, which one program with a bound does not check: do without, or "
                        "leave that part to who runs the program, with the count"
                    )


def _replaced(graph: Graph, made: Sequence[Made], rests: bool = True) -> list[Node]:
    """The nodes of a graph with those that make sizes in two parts, or only the first of them."""
    parts = {id(m.node): m for m in made}
    nodes: list[Node] = []
    for node in graph.body.nodes:
        found = parts.get(id(node))
        nodes += [node] if found is None else [found.first, found.rest][: 1 + rests]
    return nodes


def _bounded_graph(graph: Graph, made: Sequence[Made], bounds: Mapping[str, int]) -> Graph:
    block = graph.body
    nodes = _replaced(graph, made)
    # An empty array of the bound's size, typed with the name, says what the name is here.
    heads = []
    for name, bound in bounds.items():
        head = Node(Witness(StaticDim(bound)), ())
        head.results = (make_value(witness_type(Dim(name)), block),)
        heads.append(head)
    outputs: list[Value] = []
    tails: list[Node] = []
    for value in graph.outputs:
        shape = Shape([d.substitute(bounds) for d in value.type.shape])
        if shape != value.type.shape:
            tails.append(new_node(Rebind(shape, "", None), [value], None, block))
            value = tails[-1].results[0]
        outputs.append(value)
    counts = {n: c for m in made for n, c in zip(m.names, m.counts, strict=True)}
    return part(
        graph, graph.inputs, [*heads, *nodes, *tails], [*outputs, *(counts[n] for n in bounds)]
    )
