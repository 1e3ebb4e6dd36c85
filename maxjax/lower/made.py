# SPDX-License-Identifier: Apache-2.0
"""Ops whose results have sizes that depend on values, and what a graph needs around them."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import Dim, StaticDim, SymbolicDim
from maxjax.graph.graph import Graph
from maxjax.graph.ir import Block, Node
from maxjax.graph.op import Counted, Op, describe
from maxjax.graph.ops.call import Call
from maxjax.graph.ops.constant import ConstantExternal
from maxjax.graph.shape import Shape
from maxjax.graph.type import BufferType, TensorType, Type
from maxjax.graph.value import Value, make_value
from maxjax.lower.function import LoweredFunction, to_jax
from maxjax.lower.inline import inlined, part
from maxjax.lower.padding import padding

__all__ = [
    "Made",
    "Names",
    "NewSize",
    "Witness",
    "check_rest",
    "given_names",
    "listed",
    "names_of",
    "new_node",
    "new_sizes",
    "plain_names",
    "result_names",
    "splittable",
    "unique",
    "witness_type",
]


# ---------------------------------------------------------------- which they are


@dataclasses.dataclass(frozen=True)
class NewSize:
    """An op with results whose sizes depend on values.

    Attributes:
        names: The names of these sizes.
        node: The op, where it is.
        inside: The op whose branch, loop or body it is in; None where the graph can be split.
    """

    names: tuple[str, ...]
    node: Node
    inside: Node | None = None

    @property
    def location(self) -> str:
        """The user's file and line, as far as they are known."""
        return str(self.node.location or "")

    def __str__(self) -> str:
        where = f"\n  at {self.node.location}" if self.node.location else ""
        given = describe(v.type for v in self.node.operands)
        return f"{self.node.op.mnemonic} makes the size {listed(self.names)} (given {given}){where}"


def new_sizes(graph: Graph) -> list[NewSize]:
    """The ops whose results have sizes that depend on values, in program order.

    Those in graphs that are called, in branches and in loops are among them.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    >>> g = Graph("g", lambda x: ops.nonzero(x, "found"), [x])
    >>> [(s.node.op.mnemonic, s.names, s.inside) for s in new_sizes(g)]
    [('nonzero', ('found',), None)]
    """
    return list(_new_sizes(graph.body, Names(given_names(graph)), None))


class Names:
    """The names of dimensions that have a size at a point of a graph.

    A name that an op makes from values is none of them: another op may make it too, and then both
    must make the same size.
    """

    def __init__(self, known: Iterable[str], made: Iterable[str] = ()) -> None:
        self.known = set(known)
        self.made = set(made)

    def counted(self, node: Node, graph: Graph) -> Counted | None:
        """How a node's new sizes are found, if it makes any; then its names are known."""
        found = _counted(node, self.known, graph)
        if found is not None:
            self.made.update(found.names)
        self.known.update(result_names(node) - self.made)
        return found

    def copy(self) -> Names:
        """The same names, to go another way from here."""
        return Names(self.known, self.made)


def _counted(node: Node, known: Container[str], graph: Graph) -> Counted | None:
    def kernel(name: str) -> Any:
        return graph.kernels.find(name)

    try:
        return node.op.counted(known, [v.type for v in node.operands], kernel)
    except ValueError:
        return None  # no such kernel: the lowering says so


def given_names(graph: Graph) -> set[str]:
    """The names in the types of a graph's inputs and of the weights it declares."""
    types = [v.type for v in graph.inputs]
    types += [n.op.type for n in graph.body.nodes if isinstance(n.op, ConstantExternal)]
    return plain_names(types)


def plain_names(types: Iterable[Type]) -> set[str]:
    """The names that are dimensions by themselves: arrays of these types tell their sizes."""
    return {d.name for t in types for d in t.shape if isinstance(d, SymbolicDim)}


def result_names(node: Node) -> set[str]:
    """The names in the types of a node's results."""
    return {p.name for r in node.results for p in r.type.parameters}


def _new_sizes(block: Block, names: Names, inside: Node | None) -> Iterator[NewSize]:
    for node in block.nodes:
        if isinstance(node.op, Call):
            callee = node.op.callee
            yield from _new_sizes(callee.body, Names(given_names(callee)), inside)
        for region in node.regions:
            inner = names.copy()
            inner.known |= inner.made  # in there they are sizes like others
            inner.known |= plain_names(a.type for a in region.arguments)
            yield from _new_sizes(region, inner, inside or node)
        found = names.counted(node, block.graph)
        if found is not None:
            yield NewSize(found.names, node, inside)


def listed(names: Iterable[str]) -> str:
    """Names as they are shown in messages."""
    return ", ".join(map(repr, names))


def splittable(function: LoweredFunction) -> LoweredFunction | None:
    """The function with all new sizes at the top level of its graph; None if there are none.

    Raises:
        ValueError: If one is made inside a branch or a loop.
    """
    found = new_sizes(function.graph)
    for size in found:
        if size.inside is not None:
            op = size.node.op.mnemonic
            where = f"\n  at {size.node.location}" if size.node.location else ""
            raise ValueError(
                f"{op}: the size {listed(size.names)} of its result depends on values, which a "
                f"graph can have at its top level and not inside {size.inside.op.mnemonic}: move "
                "the op out of there, or give out_dim a number or a dimension of an input (given "
                f"{describe(v.type for v in size.node.operands)}){where}"
            )
    if not found:
        return None
    if any(isinstance(n.op, Call) and new_sizes(n.op.callee) for n in function.graph.body.nodes):
        graph = inlined(function.graph, lambda call: bool(new_sizes(call.callee)))
        return to_jax(graph, function.manner)
    return function


# ---------------------------------------------------------------- what names are mentioned


def _names_in(field: Any) -> Iterator[str]:
    """The names of dimensions in a field of an op."""
    if isinstance(field, (Dim, TensorType, BufferType)):
        yield from (p.name for p in field.parameters)
    elif isinstance(field, (tuple, list)):
        for each in field:
            yield from _names_in(each)
    elif isinstance(field, slice):
        yield from _names_in((field.start, field.stop, field.step))
    elif isinstance(field, Mapping):
        yield from _names_in(list(field.values()))
    elif isinstance(field, Op):
        yield from _names_in([getattr(field, name) for name in field._names])


def names_of(node: Node) -> set[str]:
    """The names of dimensions that a node mentions, those in its regions included."""
    found = set(_names_in(node.op)) | result_names(node)
    found.update(p.name for v in node.operands for p in v.type.parameters)
    for region in node.regions:
        found.update(p.name for a in region.arguments for p in a.type.parameters)
        for inner in region.nodes:
            found |= names_of(inner)
    return found


# ---------------------------------------------------------------- in two parts


class Witness(Op, abstract=True):
    """An empty array whose first dimension is a size, by which others learn the size."""

    mnemonic = "size"
    dim: Dim

    def infer(self) -> TensorType:
        """``bool[dim, 0]``."""
        return witness_type(self.dim)

    def lower(self) -> jax.Array:
        """Nothing, in that many rows."""
        size: Any = self.dim
        return jnp.zeros((size, 0), jnp.bool_)


def witness_type(dim: Dim) -> TensorType:
    """The type of an empty array whose first dimension is ``dim``."""
    return TensorType._of(DType.bool, Shape([dim, StaticDim(0)]), DeviceRef.CPU())


def new_node(op: Op, operands: Sequence[Value], like: Node | None, block: Block) -> Node:
    """A node beside those that the user made."""
    node = Node(op, tuple(operands), like.location if like else None, like.scope if like else ())
    types = op.infer(*[v.type for v in operands])
    several = types if isinstance(types, tuple) else (types,)
    node.results = tuple(make_value(t, block) for t in several)
    return node


@dataclasses.dataclass(frozen=True)
class Made:
    """Sizes that an op makes.

    Attributes:
        names: Their names.
        node: The op, as the user made it.
        first: The op that counts.
        rest: The op that gives the results.
        is_opaque: Whether it may be given other sizes than it counted only if its author says so.
    """

    names: tuple[str, ...]
    node: Node
    first: Node
    rest: Node
    is_opaque: bool

    @classmethod
    def of(cls, node: Node, counted: Counted) -> Made:
        """The two parts of a node."""
        block = node.results[0]._block
        first = new_node(counted.first, node.operands, node, block)
        carried = first.results[len(counted.names) :] or node.operands
        rest = Node(counted.rest, tuple(carried), node.location, node.scope, node.regions)
        rest.results = node.results
        return cls(counted.names, node, first, rest, counted.is_opaque)

    @property
    def counts(self) -> tuple[Value, ...]:
        """The sizes, as values."""
        return self.first.results[: len(self.names)]

    def wrong(self, sentence: str) -> ValueError:
        """The error for counts that cannot be sizes."""
        where = f"\n  at {self.node.location}" if self.node.location else ""
        given = describe(v.type for v in self.node.operands)
        return ValueError(f"{self.node.op.mnemonic}: {sentence} (given {given}){where}")


def check_rest(graph: Graph, made: Made, names: Sequence[str]) -> None:
    """Proves that an op may be given operands that are padded along other sizes than its own.

    Raises:
        ValueError: If it cannot be proven.
    """
    operands = list({id(v): v for v in made.rest.operands}.values())
    mixed = {p.name for v in operands for p in v.type.parameters} & {*names} - {*made.names}
    if mixed:
        unknown = sorted(names_of(made.rest) - plain_names(v.type for v in operands))
        witnesses = [make_value(witness_type(Dim(n)), graph.body) for n in unknown]
        alone = part(graph, [*operands, *witnesses], [made.rest], made.rest.results)
        padding(to_jax(alone), sorted(mixed))


def unique(values: Iterable[Value]) -> list[Value]:
    """Each value once."""
    return list({id(v): v for v in values}.values())
