# SPDX-License-Identifier: Apache-2.0
"""The graph: inputs, ops in program order, outputs."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterable, Iterator
from contextvars import Token
from pathlib import Path
from typing import Any, ClassVar

from maxjax.graph._parser import parse_graphs
from maxjax.graph._printer import print_graphs
from maxjax.graph.debug import GraphDebugConfig, ProfileScopeColor
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import AlgebraicDim
from maxjax.graph.ir import CURRENT_GRAPH, Block, Node, caller, current_graph
from maxjax.graph.kernels import CustomExtensions, KernelLibrary, default_custom_extensions
from maxjax.graph.module import Module
from maxjax.graph.op import refused
from maxjax.graph.operand import either
from maxjax.graph.ops.call import Call
from maxjax.graph.ops.constant import ConstantExternal
from maxjax.graph.type import Type
from maxjax.graph.value import TensorValue, Value, as_outputs, make_value
from maxjax.graph.weight import Weight

__all__ = ["DevicePlacementPolicy", "Graph", "callees", "graph_factory"]


class DevicePlacementPolicy(enum.Enum):
    """What to say when an op has to move an operand to the CPU by itself.

    XLA runs every op on every device, so maxjax moves nothing by itself: the policy is kept
    with the graph and has nothing to report.
    """

    Ignore = "ignore"
    Warn = "warn"
    Error = "error"


class _Current:
    """``Graph.current``: the graph being built, read from the class."""

    def __get__(self, instance: Any, owner: type[Graph]) -> Graph:
        return current_graph()


class Graph:
    """A dataflow graph from inputs to outputs.

    It is built in a ``with`` block, by using its inputs and calling ``output``, or from a
    function that is given the inputs and returns the outputs.

    Args:
        name: The graph's name.
        forward: A function (or object with ``__call__``) from the input values, then ``args``
            and ``kwargs``, to one value, several, or None.
        input_types: One type per input; a ``BufferType`` makes an input that is changed in place.
        path: A file with a graph's text (see :mod:`maxjax.graph.text`), to read it back.
        args: Passed to ``forward`` after the inputs.
        custom_extensions: Paths of custom kernels; see :class:`~maxjax.graph.KernelLibrary`.
        kernel_library: The library to load them into, with what it has already; a new one when
            left out.
        module: A module to join, so that its graphs are compiled together.
        strict_device_placement: See :class:`DevicePlacementPolicy`.
        is_device_graph: Kept with the graph; XLA records device graphs by itself.
        kwargs: Passed to ``forward``.

    Raises:
        TypeError: If an input type is not a type, or ``forward`` returns what is not a value.
        ValueError: If an input dimension is an expression of names no other input has, or custom
            kernels cannot be loaded.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x_type = TensorType(DType.float32, ["batch", 3], DeviceRef.CPU())
    >>> with Graph("double", input_types=[x_type]) as g:
    ...     g.output(g.inputs[0].tensor * 2)
    >>> same = Graph("double", lambda x: x * 2, input_types=[x_type])
    >>> same.output_types
    [TensorType(float32, [batch, 3], cpu:0)]
    """

    current: ClassVar[Any] = _Current()
    debug: ClassVar[GraphDebugConfig] = GraphDebugConfig()

    def __init__(
        self,
        name: str,
        forward: Callable[..., Value | Iterable[Value] | None] | None = None,
        input_types: Iterable[Type] = (),
        path: Path | None = None,
        *args: Any,
        custom_extensions: CustomExtensions = (),
        kernel_library: KernelLibrary | None = None,
        module: Module | None = None,
        strict_device_placement: DevicePlacementPolicy = DevicePlacementPolicy.Warn,
        is_device_graph: bool = False,
        **kwargs: Any,
    ) -> None:
        module = Module() if module is None else module
        kernels = _extended(kernel_library, custom_extensions)
        if path is not None:
            _read(self, name, path, module, kernels)
            return
        self._start(name, input_types, module, strict_device_placement, is_device_graph, kernels)
        if forward is not None:
            with self:
                result = forward(*self.inputs, *args, **kwargs)
                self.output(*as_outputs(result))

    def _start(
        self,
        name: str,
        input_types: Iterable[Type],
        module: Module,
        policy: DevicePlacementPolicy = DevicePlacementPolicy.Warn,
        is_device_graph: bool = False,
        kernels: KernelLibrary | None = None,
        *,
        sub: bool = False,
    ) -> None:
        types = list(input_types)
        for i, t in enumerate(types):
            if not isinstance(t, Type):
                raise TypeError(
                    f"input type {i} of graph {name!r} must be a TensorType or BufferType, "
                    f"got {t!r}"
                )
        _check_dims(name, types)
        self.name = name
        self.strict_device_placement = policy
        self.is_device_graph = is_device_graph
        self.kernels = KernelLibrary() if kernels is None else kernels
        self.body = self.block = Block(self)
        self.scope: tuple[str, ...] = ()
        self.body.arguments = tuple(make_value(t, self.body) for t in types)
        self._weights: dict[str, tuple[object, TensorValue]] = {}
        # By the identity of the whole one, which the part keeps alive.
        self._parts: dict[Any, tuple[Weight, TensorValue]] = {}
        self._tokens: list[Token[Graph | None]] = []
        self._module = module
        self.symbol = self._module._add(self, sub=sub)

    # ---------------------------------------------------------------- context

    def __enter__(self) -> Graph:
        self._tokens.append(CURRENT_GRAPH.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        CURRENT_GRAPH.reset(self._tokens.pop())

    @property
    def module(self) -> Module:
        """The module the graph belongs to."""
        return self._module

    @property
    def kernel_libraries_paths(self) -> list[Path]:
        """The paths of the custom kernels the graph can use."""
        return self.kernels.library_paths()

    @contextlib.contextmanager
    def profile_scope(self, name: str, color: ProfileScopeColor | None = None) -> Iterator[None]:
        """Names the ops made inside, in profiles and HLO dumps; scopes nest.

        Args:
            name: The scope's name.
            color: Accepted for tools that draw ranges in colour; XLA's do not.

        >>> from maxjax.graph import Graph
        >>> with Graph("g") as g, g.profile_scope("attention"):
        ...     pass
        """
        outer = self.scope
        self.scope = (*outer, name)
        try:
            yield
        finally:
            self.scope = outer

    # ---------------------------------------------------------------- inputs and outputs

    def output(self, *outputs: Any) -> None:
        """Ends the graph with these outputs.

        Args:
            outputs: Values of this graph, weights, dimensions or shapes (as ``int64`` tensors).

        Raises:
            TypeError: If an output is not one of these.
            ValueError: If the graph has its outputs already, or a value is of another graph.
        """
        if self.body.outputs is not None:
            raise refused("output", ValueError, f"graph {self.name!r} has its outputs already")
        with self:
            values = tuple(
                either("output", o, f"output {i} of graph {self.name!r}")
                for i, o in enumerate(outputs)
            )
        for i, v in enumerate(values):
            if v._block is not self.body:
                raise refused(
                    "output",
                    ValueError,
                    f"output {i} does not belong to graph {self.name!r}",
                    v.type,
                )
        self.body.outputs = values

    @property
    def output_types(self) -> list[Type]:
        """The outputs' types.

        Raises:
            TypeError: Before :meth:`output`.
        """
        return [v.type for v in self.outputs]

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The output values.

        Raises:
            TypeError: Before :meth:`output`.
        """
        if self.body.outputs is None:
            raise TypeError(f"graph {self.name!r} has no outputs yet; call graph.output(...) first")
        return self.body.outputs

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The input values, one per input type."""
        return self.body.arguments

    @property
    def input_types(self) -> list[Type]:
        """The inputs' types."""
        return [v.type for v in self.inputs]

    # ---------------------------------------------------------------- weights

    def add_weight(self, weight: Weight, force_initial_weight_on_host: bool = True) -> TensorValue:
        """Declares a weight in this graph; the same weight again gives the same value.

        Args:
            weight: The weight.
            force_initial_weight_on_host: Accepted; weights go straight to the device they are
                used on.

        Raises:
            LookupError: If this graph is not being built.
            ValueError: If it has another weight of that name.
        """
        current_graph("add_weight")
        if weight._whole is not None:
            return self._part(weight)
        op = ConstantExternal(weight.name, weight._type, weight.align, weight._placeholder)
        return self.declare_weight(op, weight)

    def _part(self, weight: Weight) -> TensorValue:
        """A part of a weight, cut out once, outside of branches and loops."""
        key = id(weight._whole), weight.shard_idx, weight.device
        known = self._parts.get(key)
        if known is None:
            inner, self.block = self.block, self.body
            try:
                value = weight._cut_out()
            finally:
                self.block = inner
            known = self._parts[key] = weight, value
        return known[1]

    def declare_weight(self, op: ConstantExternal, owner: object = None) -> TensorValue:
        """Puts an external constant at the head of the graph.

        Raises:
            ValueError: If another owner declared that name.
        """
        known = self._weights.get(op.name)
        if known is not None:
            if owner is None or known[0] is not owner:
                raise refused(
                    "add_weight",
                    ValueError,
                    f"graph {self.name!r} already has another weight called {op.name!r}",
                    known[1].type,
                    op.type,
                )
            return known[1]
        node = Node(op, (), caller())
        value = make_value(op.type, self.body)
        node.results = (value,)
        self.body.nodes.insert(len(self._weights), node)
        assert isinstance(value, TensorValue)
        self._weights[op.name] = (owner if owner is not None else op, value)
        return value

    # ---------------------------------------------------------------- subgraphs and copies

    def add_subgraph(
        self,
        name: str,
        forward: Callable[..., Value | Iterable[Value] | None] | None = None,
        input_types: Iterable[Type] = (),
        path: Path | None = None,
        custom_extensions: CustomExtensions = (),
        devices: Iterable[DeviceRef] = (),
        is_device_graph: bool = False,
    ) -> Graph:
        """A graph in the same module, to be called by ``ops.call``.

        It is compiled once, however often it is called.

        Args:
            name: The subgraph's name.
            forward: As for :class:`Graph`; without it, build the result in a ``with`` block.
            input_types: One type per input.
            path: A file with the subgraph's text.
            custom_extensions: Paths of custom kernels, loaded into this graph's library, which
                the subgraph shares.
            devices: Accepted; program order is effect order on every device.
            is_device_graph: As for :class:`Graph`.

        Raises:
            ValueError: If ``forward`` uses values of this graph: pass them as inputs.
        """
        sub = Graph.__new__(Graph)
        kernels = _extended(self.kernels, custom_extensions)
        if path is not None:
            _read(sub, name, path, self._module, kernels, sub=True)
            return sub
        sub._start(
            name,
            input_types,
            self._module,
            self.strict_device_placement,
            is_device_graph,
            kernels,
            sub=True,
        )
        if forward is not None:
            with sub:
                sub.output(*as_outputs(forward(*sub.inputs)))
        return sub

    def copy(self) -> Graph:
        """An independent graph with the same contents, in a module of its own.

        The copy shares no nodes with the original, so it can be compiled in another thread while
        the original is built on.
        """
        return _copy(self, Module(), {}, sub=False)

    def __str__(self) -> str:
        return print_graphs([self])

    def __repr__(self) -> str:
        types = ", ".join(t.brief() for t in self.input_types)
        outs = (
            "..." if self.body.outputs is None else ", ".join(t.brief() for t in self.output_types)
        )
        return f"Graph({self.name!r}, ({types}) -> ({outs}), {len(self.body.nodes)} ops)"


def callees(graph: Graph) -> list[Graph]:
    """The graphs that a graph calls, directly or not, each after those it calls itself."""
    found: list[Graph] = []
    for node in graph.body.walk():
        if isinstance(node.op, Call):
            for callee in (*callees(node.op.callee), node.op.callee):
                if callee not in found:
                    found.append(callee)
    return found


def _extended(library: KernelLibrary | None, paths: CustomExtensions) -> KernelLibrary:
    """A graph's kernels: a library, with its own paths and the default ones loaded into it."""
    library = KernelLibrary() if library is None else library
    library.load_paths(default_custom_extensions())
    library.load_paths(paths)
    return library


def graph_factory(
    module: Module,
    main: Graph | None = None,
    name: str | None = None,
    kernels: KernelLibrary | None = None,
) -> Any:
    """How the text parser makes graphs: in ``module``; the top-level one as ``main``.

    Each has ``kernels``, if given, besides those of the paths that the text names.
    """

    def make(text_name: str, symbol: str, types: list[Type], attributes: dict[str, Any]) -> Graph:
        sub = attributes.pop("subgraph", False)
        policy = DevicePlacementPolicy(attributes.pop("strict_device_placement", "warn"))
        device_graph = attributes.pop("is_device_graph", False)
        paths = attributes.pop("custom_extensions", ())
        if not isinstance(paths, tuple) or not all(isinstance(p, str) for p in paths):
            raise ValueError(f"custom_extensions are paths in a tuple, not {paths!r:.60}")
        # Reading text runs nothing: what it names is loaded when a kernel is wanted.
        library = KernelLibrary() if kernels is None else kernels
        library.defer_paths(paths)
        if attributes:
            raise ValueError(f"a graph has no attribute {next(iter(attributes))!r}")
        if sub or main is None:
            graph = Graph.__new__(Graph)
            graph._start(text_name, types, module, policy, device_graph, library, sub=sub)
            if main is None:
                graph.symbol = symbol
            return graph
        if main.__dict__:
            raise ValueError("the file has several graphs that are no subgraphs")
        main._start(name or text_name, types, module, policy, device_graph, library)
        return main

    return make


def _read(
    graph: Graph,
    name: str,
    path: Path,
    module: Module,
    kernels: KernelLibrary,
    *,
    sub: bool = False,
) -> None:
    """Fills ``graph`` from a file of text.

    Raises:
        ValueError: If the file's text is malformed, or has no or several top-level graphs.
    """
    factory = graph_factory(module, graph, name, kernels)
    try:
        parse_graphs(Path(path).read_text(encoding="utf-8"), factory)
        if not graph.__dict__:
            raise ValueError("the file has no graph that is not a subgraph")
    except ValueError as e:
        raise ValueError(f"{path}: {e}") from None
    if sub:
        module._demote(graph)


def _check_dims(name: str, types: list[Type]) -> None:
    """Every name in an expression must be an input dimension by itself, to be known at a call."""
    bound = {d for t in types for d in t.shape if not isinstance(d, AlgebraicDim)}
    for i, t in enumerate(types):
        for d in t.shape:
            if isinstance(d, AlgebraicDim):
                for p in d.parameters:
                    if p not in bound:
                        raise ValueError(
                            f"input {i} of graph {name!r} has the dimension {d}, but no input has "
                            f"{p} as a dimension by itself, so its size cannot be known; "
                            "give the dimension a name of its own"
                        )


def _copy(graph: Graph, module: Module, done: dict[int, Graph], *, sub: bool) -> Graph:
    if id(graph) in done:
        return done[id(graph)]
    new = Graph.__new__(Graph)
    new._start(
        graph.name,
        graph.input_types,
        module,
        graph.strict_device_placement,
        graph.is_device_graph,
        graph.kernels,
        sub=sub,
    )
    done[id(graph)] = new
    values: dict[int, Value] = {id(a): b for a, b in zip(graph.inputs, new.inputs, strict=True)}
    _copy_nodes(graph.body, new.body, values, module, done)
    for key, (owner, value) in graph._weights.items():
        copied = values[id(value)]
        assert isinstance(copied, TensorValue)
        new._weights[key] = (owner, copied)
    if graph.body.outputs is not None:
        new.body.outputs = tuple(values[id(v)] for v in graph.body.outputs)
    return new


def _copy_nodes(
    source: Block, target: Block, values: dict[int, Value], module: Module, done: dict[int, Graph]
) -> None:
    for node in source.nodes:
        regions = []
        for region in node.regions:
            block = Block(target.graph, target)
            block.arguments = tuple(make_value(a.type, block) for a in region.arguments)
            values.update(
                {id(a): b for a, b in zip(region.arguments, block.arguments, strict=True)}
            )
            _copy_nodes(region, block, values, module, done)
            block.outputs = tuple(values[id(v)] for v in region.outputs or ())
            regions.append(block)
        op = node.op.with_graphs(lambda g: _copy(g, module, done, sub=True))
        operands = tuple(values[id(v)] for v in node.operands)
        new = Node(op, operands, node.location, node.scope, tuple(regions))
        new.results = tuple(make_value(r.type, target) for r in node.results)
        values.update({id(a): b for a, b in zip(node.results, new.results, strict=True)})
        target.nodes.append(new)
