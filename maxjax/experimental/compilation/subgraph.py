# SPDX-License-Identifier: Apache-2.0
"""Functions as bodies of a graph: traced once, called wherever they are used."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from maxjax import tree
from maxjax.experimental._context import CONTEXT
from maxjax.experimental.compilation.staged import flat_results, graph_name
from maxjax.experimental.realization_context import GraphRealizationContext
from maxjax.experimental.sharding import DeviceMapping
from maxjax.experimental.tensor import Tensor
from maxjax.graph import ops, text
from maxjax.graph.graph import Graph
from maxjax.graph.value import BufferValue, TensorValue

__all__ = ["as_subgraph"]

_INFER = inspect.Parameter.empty


def as_subgraph(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    prefix: str | None = "",
    key: Any = _INFER,
) -> Callable[..., Any]:
    """Makes a function one body of the graph that is traced, called at each use.

    A body is shared by uses with the same structure of arguments, the same values of those that
    are no tensors, and the same types of those that are. Inside a body other such functions are
    part of it.

    Args:
        fn: A function over tensors.
        name: The body's name; the function's if left out.
        prefix: Goes, at each use, before the names of the weights that the body declares as
            placeholders; weights of a module that is traced whose names begin with it are such.
            Left out, it is the position of ``fn`` in its model if ``fn`` is a module or a method
            of one.
        key: What tells the body from those of other functions: a string; None to compare what was
            traced. Left out, it is the function itself where that is safe; what a closure, a bound
            method or a function with defaults computes may depend on more, so what was traced is
            compared; modules without a ``name`` are each compared with themselves only.

    Returns:
        A function of the same arguments, for use while a function is traced, or in ``F.lazy()``.

    Raises:
        TypeError: When it is called anywhere else: call ``fn`` itself there.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental import compilation
    >>> from maxjax.experimental.sharding import TensorLayout
    >>> @as_subgraph
    ... def block(x):
    ...     return x * 2
    >>> spec = TensorLayout(DType.float32, [4], CPU())
    >>> staged = compilation.stage(lambda x: block(block(block(x))))(spec)
    >>> str(staged).count("mo.graph @block"), str(staged).count("mo.call @block")
    (1, 3)
    """
    symbol = name or graph_name(fn)
    identity = _inferred(fn) if key is _INFER else key
    alone = id(fn) if key is _INFER and name is None and tree.is_node(fn) else None

    @functools.wraps(fn, updated=())
    def use(*args: Any, **kwargs: Any) -> Any:
        context: Any = CONTEXT.get()
        if context is None:
            raise TypeError(
                f"{symbol}: a subgraph is used while a function is traced, by compile() or "
                "stage(), or in F.lazy(); elsewhere call the function itself"
            )
        bodies = getattr(context, "subgraph_cache", None)
        if bodies is None:
            return fn(*args, **kwargs)
        found, treedef = tree.flatten((args, kwargs), leaf=Tensor)
        operands = [o for t in found for o in _operands(t)]
        where = prefix or _position(fn)
        types = (
            *(o.type for o in operands),
            *(t.mapping if t.is_distributed else None for t in found),
        )
        structure = (identity, symbol, treedef, types, bool(where))
        body = None if identity is None else bodies.get(structure)
        if body is None:
            body = _body(context.graph, fn, symbol, found, operands, treedef, where)
            same = bodies.setdefault((alone, symbol, treedef, *structure[3:]), [])
            body = _shared(same, body, compare=identity is None)
            if identity is not None:
                bodies[structure] = body
        results = iter(ops.call(body.graph, *operands, prefix=where))
        tensors = [_next(context, results, mapping) for mapping in body.mappings]
        return tree.unflatten(body.out_tree, tensors)

    return use


def _inferred(fn: Callable[..., Any]) -> Any:
    """What a function is known by; None where what it computes may depend on more."""
    plain = inspect.isfunction(fn)
    if not plain or fn.__closure__ or fn.__defaults__ or fn.__kwdefaults__:
        return None
    return fn


def _position(fn: Callable[..., Any]) -> str:
    """What goes before the names of a module's own tensors in its model; else nothing."""
    module = fn if tree.is_node(fn) else getattr(fn, "__self__", None)
    if not tree.is_node(module):
        return ""
    for path, tensor in tree.paths(module, leaf=Tensor).items():
        name = tensor.external_name
        if name is not None and name.endswith(path):
            prefix = name.removesuffix(path)
            return prefix if prefix.endswith(".") else ""
    return ""


class _Body(NamedTuple):
    """A graph, the structure of its result, and how each tensor of that is spread, if it is."""

    graph: Graph
    out_tree: tree.TreeDef
    mappings: tuple[DeviceMapping | None, ...]


def _operands(tensor: Tensor) -> list[Any]:
    """A tensor as operands of a call, one for each device: as buffers where it is one."""
    values = [part._graph_value() for part in tensor._local()]
    return [v if isinstance(v, BufferValue) else TensorValue(v) for v in values]


def _next(context: Any, values: Iterator[Any], mapping: DeviceMapping | None) -> Tensor:
    """A tensor of the next values, one for each of its devices."""
    count = 1 if mapping is None else mapping.mesh.num_devices
    return context.create_unrealized(tuple(islice(values, count)), mapping=mapping)


def _body(
    parent: Graph,
    fn: Callable[..., Any],
    symbol: str,
    tensors: list[Tensor],
    operands: list[Any],
    treedef: tree.TreeDef,
    prefix: str,
) -> _Body:
    """The body of a function for operands of these types."""
    sub = parent.add_subgraph(symbol, input_types=[o.type for o in operands])
    context = GraphRealizationContext(sub, prefix=prefix)
    try:
        with context:
            values = iter(sub.inputs)
            inside = [
                _next(context, values, t.mapping if t.is_distributed else None) for t in tensors
            ]
            args, kwargs = tree.unflatten(treedef, inside)
            results, out_tree = flat_results(fn(*args, **kwargs), symbol)
            sub.output(*[TensorValue(part) for r in results for part in r._local()])
    except BaseException:
        parent.module._drop(sub)
        raise
    mappings = tuple(r.mapping if r.is_distributed else None for r in results)
    return _Body(sub, out_tree, mappings)


def _shared(known: list[_Body], new: _Body, *, compare: bool) -> _Body:
    """A body like a new one if there is one among those known, else the new one."""
    if compare:
        written = _written(new.graph)
        for body in known:
            if body[1:] == new[1:] and _written(body.graph) == written:
                new.graph.module._drop(new.graph)
                return body
    known.append(new)
    return new


def _written(graph: Graph) -> str:
    """The ops and outputs of a body as text; its first line has its name."""
    return text.dump(graph).partition("\n")[2]
