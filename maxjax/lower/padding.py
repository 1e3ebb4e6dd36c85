# SPDX-License-Identifier: Apache-2.0
"""Whether a graph may be given inputs that are padded along some of its dimensions.

The graph is traced once with symbolic dimensions, and each equation of that program is checked by
the rule for its primitive: see :mod:`maxjax.lower.padding_rules` for what is proven.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
from jax import export
from jax.extend.core import Jaxpr, JaxprEqn, Var

from maxjax.graph.ir import Node
from maxjax.graph.op import describe
from maxjax.graph.type import BufferType
from maxjax.lower.condition import Condition
from maxjax.lower.function import LoweredFunction, Manner, to_jax
from maxjax.lower.padding_rules import SIZE, Equation, Mixed, inner, rule_for
from maxjax.lower.symbolic import Symbols, asked, needed, specs, symbols

__all__ = ["Padding", "Size", "padding"]

# How much the sizes of a graph are tried with, to find those that shrink as a dimension grows.
_TRIED = range(16, 33)


class Size:
    """A size that is computed from symbolic dimensions, by JAX's names.

    Args:
        dim: JAX's.

    Attributes:
        text: As JAX writes it.
        names: The names in it.
    """

    def __init__(self, dim: Any) -> None:
        self.text = str(dim)
        self._tree = ast.parse(self.text.replace("^", "**"), mode="eval").body
        self.names = frozenset(_names(self._tree))

    def at(self, sizes: Mapping[str, int]) -> int:
        """Its value for these sizes of the names."""
        return _value(self._tree, sizes)

    def __repr__(self) -> str:
        return f"Size({self.text})"


_CALLS: dict[str, Any] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}
_OPERATORS: dict[type[ast.AST], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def _value(tree: ast.AST, sizes: Mapping[str, int]) -> int:
    match tree:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return sizes[name]
        case ast.UnaryOp(op=op, operand=x):
            return _OPERATORS[type(op)](_value(x, sizes))
        case ast.BinOp(left=x, op=op, right=y):
            return _OPERATORS[type(op)](_value(x, sizes), _value(y, sizes))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _CALLS[name](*[_value(a, sizes) for a in args])
    raise AssertionError(f"JAX wrote a size as {ast.unparse(tree)}")


def _names(tree: ast.AST) -> Iterator[str]:
    functions = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    for n in ast.walk(tree):
        if isinstance(n, ast.Name) and id(n) not in functions:
            yield n.id


@functools.lru_cache(maxsize=4096)
def _size(dim: Any) -> Size:
    return Size(dim)


Shape: TypeAlias = tuple[Size, ...]


@dataclasses.dataclass(frozen=True)
class Padding:
    """What is known of a graph that may be padded.

    Attributes:
        dims: For each name of a dimension that may be padded the name of JAX's that it is. Two
            names that the graph needs to be equal are one for JAX.
        sizes: The size of each name in the types of inputs and weights.
        conditions: What holds for every set of sizes that was looked at.
        outputs: The shape of each output.
        padded: All the sizes of padded axes in the program.
    """

    dims: Mapping[str, str]
    sizes: Mapping[str, Size]
    conditions: tuple[Condition, ...]
    outputs: tuple[Shape, ...]
    padded: tuple[Size, ...]

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes of names in types are among those that were looked at."""
        return all(c.holds(sizes) for c in self.conditions)

    def may_become(self, real: Mapping[str, int], padded: Mapping[str, int]) -> bool:
        """Whether no axis is shorter with padding, for these sizes of JAX's names."""
        return all(0 <= s.at(real) <= s.at(padded) for s in self.padded)


def padding(function: LoweredFunction, names: Iterable[str]) -> Padding:
    """Proves that padding these dimensions at their end leaves the real part of outputs as it is.

    Args:
        function: The graph.
        names: Of dimensions of its inputs.

    Raises:
        ValueError: If it cannot be proven: the first op that mixes along them is named, with its
            place; or if a name is unknown, or of a weight or a buffer, or the graph cannot be
            followed with sizes that are not known.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n", 4], DeviceRef.CPU())
    >>> proof = padding(to_jax(Graph("rows", lambda x: ops.softmax(x), [x])), ["n"])
    >>> proof.outputs
    ((Size(n), Size(4)),)
    """
    names = tuple(dict.fromkeys(names))
    _check(function, names)
    marks = _Marks()
    found, dims, jaxpr = _followed(function, to_jax(function.graph, Manner(mark=marks)), names)
    analysis = _Analysis(dims, marks)
    analysis.run(jaxpr)
    return Padding(
        dims,
        {n: _size(d) for n, d in found.sizes.items()},
        found.conditions,
        tuple(
            tuple(map(_size, v.aval.shape))  # pyright: ignore[reportAttributeAccessIssue]
            for v in jaxpr.outvars[: len(function.signature.outputs)]
        ),
        tuple(analysis.padded.values()),
    )


def _check(function: LoweredFunction, names: Sequence[str]) -> None:
    """Refuses names of which no input is, or whose size is not the caller's to choose."""
    signature = function.signature
    inputs = [(f"input{i}", t) for i, t in enumerate(signature.inputs)]
    known = {p.name for _, t in inputs for p in t.parameters}
    for name in names:
        fixed = [f"weight {w!r}" for w, t in signature.weights.items() if _has(t, name)]
        fixed += [f"buffer {i}" for i, t in inputs if isinstance(t, BufferType) and _has(t, name)]
        if fixed:
            raise ValueError(
                f"dimension {name!r} of graph {signature.name!r} cannot be padded: {fixed[0]} has "
                f"it, whose size is its owner's; leave {name!r} out of buckets"
            )
        if name not in known:
            raise ValueError(
                f"graph {signature.name!r} has no dimension {name!r}; the dimensions of its inputs "
                f"are {', '.join(sorted(known)) or 'all numbers'}"
            )


def _has(type_: Any, name: str) -> bool:
    return any(p.name == name for p in type_.parameters)


def _variables(found: Symbols, names: Sequence[str]) -> dict[str, str]:
    """JAX's name for each name, which must be one of its own and not computed from others."""
    dims = {}
    for name in names:
        size = found.sizes[name]
        if not (export.is_symbolic_dim(size) and str(size).isidentifier()):
            raise ValueError(
                f"dimension {name!r} is always {size} in this graph; leave {name!r} out of buckets"
            )
        dims[name] = str(size)
    return dims


def _followed(
    function: LoweredFunction, marked: LoweredFunction, names: Sequence[str]
) -> tuple[Symbols, dict[str, str], Jaxpr]:
    """The sizes that the graph can be followed with, JAX's name for each name, and the program."""
    conditions = needed(function)
    while True:
        try:
            found = symbols(function.signature, conditions)
        except ValueError as e:
            raise _unfollowed(function, names, e) from e
        dims = _variables(found, names)
        try:
            return found, dims, _traced(marked, found)
        except Exception as e:
            # Whatever an op or a kernel raises when it is given a size that is not known.
            more = asked(e, function.signature) if isinstance(e, ValueError) else None
            if more is None or more in conditions:
                raise _unfollowed(function, names, e) from e
            conditions.append(more)


def _traced(function: LoweredFunction, found: Symbols) -> Jaxpr:
    signature = function.signature
    given = specs(signature.inputs, found.sizes)
    weights = dict(
        zip(signature.weights, specs(signature.weights.values(), found.sizes), strict=True)
    )
    tensors = [s for s, b in zip(given, signature.is_buffer, strict=True) if not b]
    states = [s for s, b in zip(given, signature.is_buffer, strict=True) if b]

    def run(weights: Any, tensors: Any, states: Any) -> Any:
        return function(weights, tensors, states)

    with jax.enable_x64(True):
        return jax.jit(run).trace(weights, tensors, states).jaxpr.jaxpr


def _unfollowed(function: LoweredFunction, names: Sequence[str], e: Exception) -> ValueError:
    told = str(e).strip().partition("\n\n")[0]
    return ValueError(
        f"graph {function.signature.name!r} cannot be followed while the size of "
        f"{_listed(names)} is unknown; leave it out of buckets: {told or type(e).__name__}"
    )


class _Marks:
    """Numbers for nodes, which are found again in the names of equations."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[int, int] = {}

    def __call__(self, node: Node) -> str:
        number = self._numbers.setdefault(id(node), len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return f"#maxjax{number}"

    def of(self, eqn: JaxprEqn) -> Node | None:
        """The node that an equation is part of."""
        found = re.findall(r"#maxjax(\d+)", str(eqn.source_info.name_stack))
        return self.nodes[int(found[-1])] if found else None


class _Analysis:
    """Checks the equations of jaxprs, for some padded dimensions.

    Attributes:
        padded: The sizes of padded axes by their texts.
    """

    def __init__(self, dims: Mapping[str, str], marks: _Marks) -> None:
        self._names: dict[str, list[str]] = {}
        for name, dim in dims.items():
            self._names.setdefault(dim, []).append(name)
        self._marks = marks
        self.padded: dict[str, Size] = {}

    def is_padded(self, size: Any) -> bool:
        if not export.is_symbolic_dim(size) or self._names.keys().isdisjoint(_size(size).names):
            return False
        self._keep(_size(size))
        return True

    def _keep(self, size: Size) -> None:
        if size.text in self.padded:
            return
        self.padded[size.text] = size
        for name in size.names & self._names.keys():
            sizes = dict.fromkeys(size.names, max(_TRIED))
            steps = [size.at({**sizes, name: n}) for n in _TRIED]
            if steps != sorted(steps):
                raise Mixed([size.text], f"has a size {size.text}, which shrinks with {{dims}}")

    def run(self, jaxpr: Jaxpr) -> None:
        """Refuses what mixes, of the equations that anything depends on.

        Raises:
            ValueError: About the first op that does. Of its equations one that mixes says more than
                one that computes with a size, such as the divisor of a mean.
        """
        first = None
        for eqn, node in self._equations(jaxpr, None):
            if first is not None and node is not first[1]:
                break
            try:
                equation = Equation(eqn, self.is_padded)
                for shape in (*equation.operands, *equation.results):
                    for size in shape:
                        self.is_padded(size)
                rule_for(equation)(equation)
            except Mixed as e:
                if first is None or e.how != SIZE:
                    first = e, node, eqn
                if e.how != SIZE:
                    break
        if first is not None:
            raise self._refusal(*first)

    def _equations(self, jaxpr: Jaxpr, node: Node | None) -> Iterator[tuple[JaxprEqn, Node | None]]:
        """Equations, those of inner programs behind the one that runs them, and their nodes."""
        for eqn in _needed_equations(jaxpr):
            here = self._marks.of(eqn) or node
            yield eqn, here
            for each in inner(eqn):
                yield from self._equations(each, here)

    def _refusal(self, mixed: Mixed, node: Node | None, eqn: JaxprEqn) -> ValueError:
        found = {v for s in mixed.sizes for v in _size(s).names if v in self._names}
        names = _listed(sorted(n for v in found for n in self._names[v]))
        who, given = eqn.primitive.name, ""
        if node is not None:
            who = node.op.mnemonic
            given = f" (given {describe(v.type for v in node.operands)})" if node.operands else ""
            given += f"\n  at {node.location}" if node.location else ""
        return ValueError(
            f"{who}: {mixed.how.format(dims=names)}, so its result would change with padding"
            f"{given}\nleave {names} out of buckets"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _needed_equations(jaxpr: Jaxpr) -> list[JaxprEqn]:
    """The equations that a result or an effect depends on, in order."""
    live = {v for v in jaxpr.outvars if isinstance(v, Var)}
    found = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not live.isdisjoint(eqn.outvars):
            found.append(eqn)
            live.update(v for v in eqn.invars if isinstance(v, Var))
    return found[::-1]
