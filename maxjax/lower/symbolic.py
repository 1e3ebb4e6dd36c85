# SPDX-License-Identifier: Apache-2.0
"""A graph's symbolic dimensions as those of JAX, with what its ops need of them.

JAX takes every symbolic dimension to be 1 or more. What else is needed, such as two elements for
``x[1:-1]``, is collected from the types in the graph; what no type says, such as that a size is a
multiple of 4, the user says as a condition.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
from jax import export

from maxjax.graph.dim import AlgebraicDim, Dim, StaticDim, SymbolicDim, UnboundDimError, parse_dim
from maxjax.graph.graph import Graph, callees
from maxjax.graph.ops.rebind import Rebind
from maxjax.lower.condition import Condition
from maxjax.lower.function import LoweredFunction
from maxjax.lower.signature import Signature

__all__ = ["Symbols", "asked", "needed", "specs", "symbols"]


@dataclasses.dataclass(frozen=True)
class Symbols:
    """JAX's dimensions for a signature's names.

    Attributes:
        sizes: A symbolic dimension of JAX for each name; a number for a name that can only be that,
            and the same one for two names that can only be equal.
        conditions: What holds for every set of sizes that the program is for.
    """

    sizes: Mapping[str, Any]
    conditions: tuple[Condition, ...]


def symbols(signature: Signature, conditions: Iterable[Condition] = ()) -> Symbols:
    """JAX's dimensions for the names in the types of inputs and weights.

    Args:
        signature: The types.
        conditions: What the program is to rely on. Equations between a name and a name or number
            are put in.

    Raises:
        ValueError: If a condition is about another name, or they contradict each other.
    """
    names = _names(signature)
    conditions = tuple(conditions)
    for condition in conditions:
        unknown = condition.names - set(names)
        if unknown:
            raise ValueError(
                f"the condition {str(condition)!r} is about {', '.join(sorted(unknown))}, but the "
                f"dimensions of inputs and weights are {', '.join(names) or 'all numbers'}"
            )
    same = _equal_names(conditions)
    free = [n for n in names if n not in same]
    plain = _of_jax(free, ())
    plain |= _resolved(same, plain)
    facts = []
    for condition in conditions:
        if _is_put_in(condition, same):
            continue
        if all(isinstance(plain[n], int) for n in condition.names):
            if not condition.holds(plain):
                raise ValueError(f"the condition {str(condition)!r} contradicts the others")
            continue
        facts.append(condition.of_jax(plain))
    sizes = _of_jax(free, facts)
    known = {**sizes, **_resolved(same, sizes)}
    lowest = tuple(Condition(Dim(n), ">=", Dim(1)) for n in free if not _is_above(n, 1, conditions))
    return Symbols({n: known[n] for n in names}, (*lowest, *conditions))


def _of_jax(names: list[str], facts: Iterable[str]) -> dict[str, Any]:
    if not names:
        return {}
    # JAX's own words ("mod", "max", ...) are no names there.
    safe = [f"{n}_" if n in ("floordiv", "max", "min", "mod", "non_negative") else n for n in names]
    try:
        dims = export.symbolic_shape(", ".join(safe), constraints=tuple(facts))
        _ = dims[0] >= 1  # the first question is when JAX sees whether they can all be met
    except ValueError as e:
        told = str(e).partition("\n")[0]
        raise ValueError(f"the conditions {'; '.join(facts)} cannot be met: {told}") from None
    return dict(zip(names, dims, strict=True))


def _equal_names(conditions: Iterable[Condition]) -> dict[str, Dim]:
    """What each name is that an equation determines."""
    same: dict[str, Dim] = {}
    for condition in conditions:
        if condition.relation != "==" or condition.divisor:
            continue
        left, right = condition.left.substitute(same), condition.right.substitute(same)
        if left == right:
            continue
        if not isinstance(left, SymbolicDim):
            left, right = right, left
        if isinstance(left, SymbolicDim) and left not in right.parameters:
            same = {n: d.substitute({left.name: right}) for n, d in same.items()}
            same[left.name] = right
    return same


def _is_put_in(condition: Condition, same: Mapping[str, Dim]) -> bool:
    return (
        condition.relation == "=="
        and not condition.divisor
        and condition.left.substitute(same) == condition.right.substitute(same)
    )


def _resolved(same: Mapping[str, Dim], sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: dim.evaluate(sizes) for name, dim in same.items()}


def _is_above(name: str, least: int, conditions: Iterable[Condition]) -> bool:
    """Whether a condition already says that ``name`` is at least ``least``."""
    return any(
        c.relation == ">=" and c.left == name and isinstance(c.right, StaticDim)
        for c in conditions
        if not c.divisor and isinstance(c.right, StaticDim) and c.right.dim >= least
    )


def needed(function: LoweredFunction) -> list[Condition]:
    """What the types in a graph need of the sizes of its inputs and weights.

    A dimension such as ``n - 2`` is never negative; where ``rebind`` says that two dimensions are
    equal, they are.
    """
    names = _names(function.signature)
    found: dict[str, Condition] = {}
    for condition in _needs(function.graph):
        if condition.names and condition.names <= set(names):
            found.setdefault(str(condition), condition)
    return list(found.values())


def _names(signature: Signature) -> list[str]:
    types = (*signature.inputs, *signature.weights.values())
    return list(dict.fromkeys(p.name for t in types for p in t.parameters))


def _needs(graph: Graph) -> Iterator[Condition]:
    for each in (*callees(graph), graph):
        for node in each.body.walk():
            if isinstance(node.op, Rebind):
                old, new = node.operands[0].type.shape, node.op.shape
                for a, b in zip(old, new, strict=True):
                    if a != b:
                        yield Condition(a, "==", b)
            for result in node.results:
                for dim in result.type.shape:
                    if isinstance(dim, AlgebraicDim):
                        yield from _not_negative(dim)


def _not_negative(dim: AlgebraicDim) -> Iterator[Condition]:
    """That ``dim`` is 0 or more, where it could be less for sizes from 1 up."""
    names = [p.name for p in dim.parameters]
    try:
        if dim.evaluate(_of_jax(names, ())) >= 0:
            return
    except jax.errors.InconclusiveDimensionOperation:
        pass
    except (UnboundDimError, ZeroDivisionError):
        return
    if len(names) == 1:
        rest = dim - names[0]
        if isinstance(rest, StaticDim):
            yield Condition(Dim(names[0]), ">=", Dim(-rest.dim))
            return
    yield Condition(dim, ">=", Dim(0))


# What JAX says of a size that may be too small, in the message of an op that refuses those.
_TOO_SMALL = re.compile(
    r"comparison '(?P<left>[^']+)' (?P<relation>>=|>|<=|<) '(?P<right>[^']+)' is inconclusive.*"
    r"excludes them",
    re.DOTALL,
)


def asked(error: ValueError, signature: Signature) -> Condition | None:
    """What an op needs of the sizes, from its refusal of those that have not got it; or None."""
    match = _TOO_SMALL.search(str(error))
    if match is None:
        return None
    try:
        left, right = parse_dim(match["left"]), parse_dim(match["right"])
    except ValueError:
        return None  # JAX writes quotients otherwise
    if match["relation"] == ">":
        right = right + 1
    elif match["relation"] == "<":
        right = right - 1
    condition = Condition(left, match["relation"][0] + "=", right)
    types = (*signature.inputs, *signature.weights.values())
    names = {p.name for t in types for p in t.parameters}
    return condition if condition.names <= names else None


def specs(types: Iterable[Any], sizes: Mapping[str, Any]) -> list[jax.ShapeDtypeStruct]:
    """Shape and dtype of an array for each type, with these sizes."""
    return [jax.ShapeDtypeStruct(t.shape.evaluate(sizes), t.dtype.np) for t in types]
