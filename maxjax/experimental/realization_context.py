# SPDX-License-Identifier: Apache-2.0
"""When what tensors compute is computed: at once, when it is needed, or in a compiled graph."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from maxjax.driver import CPU, Buffer
from maxjax.experimental._context import (
    CONTEXT,
    RealizationContext,
    RealizationState,
    in_graph_context,
)
from maxjax.experimental._shards import spread_value
from maxjax.experimental.executor import Executor, default_executor
from maxjax.experimental.sharding import DeviceMapping, DeviceMesh
from maxjax.experimental.sharding.per_shard_dim import global_shape
from maxjax.experimental.support import SetterContext, contextvar_context, driver_tensor_type
from maxjax.experimental.tensor import Tensor
from maxjax.graph import ops
from maxjax.graph.device import DeviceRef
from maxjax.graph.graph import Graph
from maxjax.graph.ir import CURRENT_GRAPH
from maxjax.graph.type import BufferType, TensorType
from maxjax.graph.value import BufferValue, TensorValue, make_value

__all__ = [
    "EagerRealizationContext",
    "GraphRealizationContext",
    "LazyRealizationContext",
    "default_realization_context",
    "ensure_context",
    "in_graph_context",
    "lazy",
    "seed",
    "set_default_realization_context",
    "set_seed",
]


class _Context:
    """What all contexts do: be in force inside a ``with`` block, own a graph."""

    graph: Graph

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._stack: list[contextlib.ExitStack] = []

    def __enter__(self) -> Any:
        stack = contextlib.ExitStack()
        if CURRENT_GRAPH.get() is not self.graph:
            stack.enter_context(self.graph)
        stack.enter_context(contextvar_context(CONTEXT, self))  # pyright: ignore[reportArgumentType]
        self._stack.append(stack)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stack.pop().__exit__(*exc)

    def create_unrealized(
        self, values: tuple[Any, ...], *, mapping: DeviceMapping | None = None
    ) -> Tensor:
        """A tensor of values of the context's graph.

        Args:
            values: A value for each device.
            mapping: Where they are, for several.
        """
        return Tensor._unrealized(RealizationState(tuple(values), self), mapping)  # pyright: ignore[reportArgumentType]


class EagerRealizationContext(_Context):
    """Computes what is still in use of it when its block ends.

    Args:
        executor: What runs the graph; the default one if left out.
        use_interpreter: Accepted; every executor compiles.
    """

    def __init__(
        self, executor: Executor | None = None, *, use_interpreter: bool | None = None
    ) -> None:
        super().__init__(Graph("main"))
        self._executor = executor
        self._sources: dict[int, tuple[Tensor, RealizationState]] = {}
        self._buffers: list[Buffer] = []
        self._made: list[weakref.ref[Tensor]] = []
        self._draws = False
        self.subgraph_cache: dict[Any, Any] = {}

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        if exc[0] is None and not self._stack:
            self.realize_all()

    def add_source(self, tensor: Tensor) -> RealizationState:
        """A tensor that has values, as inputs of the graph; the same again for the same tensor."""
        known = self._sources.get(id(tensor))
        if known is not None:
            return known[1]
        return self._add(tensor, mutable=False)

    def add_mutable_source(self, tensor: Tensor) -> RealizationState:
        """A tensor that has values, as inputs that the graph changes in place."""
        known = self._sources.get(id(tensor))
        if known is not None and isinstance(known[1].values[0], BufferValue):
            return known[1]
        return self._add(tensor, mutable=True)

    def _add(self, tensor: Tensor, *, mutable: bool) -> RealizationState:
        values = []
        for buffer in tensor.buffers:
            type_: Any = driver_tensor_type(buffer)
            if mutable:
                type_ = BufferType(type_.dtype, type_.shape, type_.device)
            value = make_value(type_, self.graph.body)
            self.graph.body.arguments = (*self.graph.body.arguments, value)
            self._buffers.append(buffer)
            values.append(value)
        state = RealizationState(tuple(values), self)  # pyright: ignore[reportArgumentType]
        self._sources[id(tensor)] = tensor, state
        return state

    def create_unrealized(
        self, values: tuple[Any, ...], *, mapping: DeviceMapping | None = None
    ) -> Tensor:
        """A tensor of values of the context's graph, realized with it if it is still in use."""
        tensor = super().create_unrealized(values, mapping=mapping)
        self._made.append(weakref.ref(tensor))
        return tensor

    def ensure_signal_buffers(self, mesh: DeviceMesh) -> list[BufferValue] | None:
        """None: XLA needs no signal buffers."""
        return None

    def ensure_seed(self) -> None:
        """Gives the graph the random state of eager tensors, on the first draw."""
        if not self._draws:
            self._draws = True
            (state,) = self.add_source(seed()).values
            ops.random.set_seed(state)

    def finalize_graph(self) -> tuple[list[Tensor], Graph]:
        """The tensors that are still in use, and the graph with these as outputs."""
        tensors = [t for t in (ref() for ref in self._made) if t is not None and self._is_own(t)]
        values = [v for t in tensors for v in t._state.values]  # pyright: ignore[reportOptionalMemberAccess]
        with self.graph:
            self.graph.output(*[v[...] if isinstance(v, BufferValue) else v for v in values])
        return tensors, self.graph

    def _is_own(self, t: Tensor) -> bool:
        """Whether it is still to be computed; what is inside a branch or loop has no values."""
        return t._state is not None and t._state.values[0]._block is self.graph.body

    def realize_all(self) -> list[Tensor]:
        """Runs the graph, and gives values to all tensors of it that are still in use.

        Raises:
            TypeError: Inside the context's own block.
        """
        if self._stack:
            raise TypeError(
                "a tensor has no values inside the block that computes it; use them after it"
            )
        if self.graph.body.outputs is not None:
            return []
        tensors, graph = self.finalize_graph()
        if tensors or any(isinstance(v, BufferValue) for v in graph.inputs):
            executor = self._executor or default_executor()
            results = iter(executor.execute(_trimmed(graph), self._buffers))
            for t in tensors:
                count = len(t._state.values)  # pyright: ignore[reportOptionalMemberAccess]
                t._realized(tuple(next(results) for _ in range(count)))  # pyright: ignore[reportArgumentType]
        if self._draws:
            _advance()
        self._sources.clear()
        return tensors


def _trimmed(graph: Graph) -> Graph:
    """The graph without what nothing in it needs."""
    needed = {id(v) for v in graph.outputs}
    kept = []
    for node in reversed(graph.body.nodes):
        has_effect = (
            not node.results
            or node.regions
            or any(isinstance(v, BufferValue) for v in (*node.operands, *node.results))
        )
        if has_effect or any(id(r) in needed for r in node.results):
            kept.append(node)
            needed |= {id(v) for v in node.operands}
            for region in node.regions:
                needed |= {id(v) for inner in region.walk() for v in inner.operands}
                needed |= {id(v) for v in region.outputs or ()}
    graph.body.nodes = kept[::-1]
    return graph


class LazyRealizationContext(EagerRealizationContext):
    """Computes all that is in use of it together, when values are first needed after its block.

    Attributes:
        subgraph_cache: The bodies of the subgraphs that are used in it.
    """

    subgraph_cache: dict[Any, Any]

    def __exit__(self, *exc: Any) -> None:
        _Context.__exit__(self, *exc)


class GraphRealizationContext(_Context):
    """Puts what tensors compute into a graph, and never has values.

    Args:
        graph: The graph being built.
        signal_buffers: Accepted: XLA needs none.
        prefix: Goes before the names of the weights declared in it.
    """

    def __init__(
        self,
        graph: Graph,
        signal_buffers: list[BufferValue] | None = None,
        prefix: str = "",
    ) -> None:
        super().__init__(graph)
        self.signal_buffers = signal_buffers
        self.prefix = prefix
        self.subgraph_cache: dict[Any, Any] | None = None
        self._constants: dict[int, tuple[Tensor, RealizationState]] = {}
        self._weights: dict[str, tuple[TensorValue, ...]] = {}

    def weight(self, name: str, like: Tensor) -> Tensor:
        """A tensor that stands for a weight: declared in each graph that uses it, once.

        Args:
            name: The weight's name.
            like: A tensor of its type, on its device or spread over its devices.
        """
        layout = like.layout.as_tensor()
        values = tuple(make_value(t, self.graph.body) for t in layout.local_types)
        state = RealizationState(values, self)  # pyright: ignore[reportArgumentType]
        mapping = like.mapping if like.is_distributed else None
        return Tensor._unrealized(state, mapping, external=name)

    def add_weight(self, tensor: Tensor) -> tuple[TensorValue, ...]:
        """A weight as values of the graph; below the graph's prefix, it is a placeholder.

        One that is spread over several devices is declared whole, on the CPU, and cut there.
        """
        name = tensor.external_name
        assert name is not None
        values = self._weights.get(name)
        if values is None:
            own = bool(self.prefix) and name.startswith(self.prefix)
            short = name.removeprefix(self.prefix) if own else name
            mapping = tensor.mapping
            device = CPU() if tensor.is_distributed else tensor.device
            shape = global_shape(tensor.shape)
            type_ = TensorType(tensor.dtype, shape, DeviceRef.from_device(device))
            value = ops.constant_external(short, type_, is_placeholder=own)
            values = tuple(spread_value(value, mapping)) if tensor.is_distributed else (value,)
            self._weights[name] = values
        return values

    def add_source(self, tensor: Tensor) -> RealizationState:
        """A tensor that has values, as constants of the graph."""
        known = self._constants.get(id(tensor))
        if known is None:
            values = tuple(
                ops.constant(np.array(b.to_numpy()), b.dtype, driver_tensor_type(b).device)
                for b in tensor.buffers
            )
            state = RealizationState(values, self)  # pyright: ignore[reportArgumentType]
            if self.graph.block is not self.graph.body:
                return state  # made inside a branch or loop: not to be seen outside
            known = self._constants[id(tensor)] = tensor, state
        return known[1]

    def add_mutable_source(self, tensor: Tensor) -> RealizationState:
        """Refuses: a graph cannot write a tensor of the program around it.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "a compiled function cannot write a tensor that it closes over; make it an argument "
            "declared with a BufferLayout"
        )

    def realize_all(self) -> list[Tensor]:
        """Refuses: there are no values while a graph is built.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "a tensor has no values while a function is traced: item(), to_numpy(), bool() and "
            "branches on values are for eager tensors; use F.cond, F.while_loop or F.where"
        )


# ---------------------------------------------------------------- the context in force

_factory: list[Callable[[], Any]] = [EagerRealizationContext]


def default_realization_context() -> Any:
    """A new context of the kind that functions open where none is in force."""
    return _factory[0]()


def set_default_realization_context(
    fn: Callable[[], RealizationContext],
) -> SetterContext[Callable[[], Any]]:
    """Sets what context functions open where none is in force; in a ``with`` block, for its length.

    >>> with set_default_realization_context(LazyRealizationContext):
    ...     (Tensor([1.0]) + 1).real
    False
    """
    previous = _factory[0]

    def restore(value: Callable[[], Any]) -> None:
        _factory[0] = value

    restore(fn)
    return SetterContext(fn, previous, restore)


def is_default() -> bool:
    """Whether functions compute at once where no context is in force."""
    return _factory[0] is EagerRealizationContext


@contextlib.contextmanager
def ensure_context() -> Iterator[None]:
    """Opens a context unless one is in force: of the graph being built, or a default one."""
    if CONTEXT.get() is not None:
        yield
        return
    graph = CURRENT_GRAPH.get()
    context = default_realization_context() if graph is None else GraphRealizationContext(graph)
    with context:
        yield


@contextlib.contextmanager
def lazy() -> Iterator[None]:
    """Computes nothing in the block; all of it together when a value is first needed after it.

    >>> with lazy():
    ...     x = Tensor.ones([2]) + 1
    >>> x.real, x.to_numpy().tolist(), x.real
    (False, [2.0, 2.0], True)
    """
    with LazyRealizationContext():
        yield


# ---------------------------------------------------------------- the random state of eager tensors

_MASK = 2**64 - 1
_seed: list[Any] = [0, None]


def seed() -> Tensor:
    """The random state of eager tensors: ``uint64`` of shape ``(1,)``."""
    if _seed[1] is None:
        _seed[1] = Tensor._of((Buffer.from_numpy(np.array([_seed[0]], np.uint64)),))
    return _seed[1]


def set_seed(value: int) -> None:
    """Sets the random state of eager tensors.

    Args:
        value: A number from 0 to ``2**64 - 1``.

    Raises:
        TypeError, ValueError: If it is none.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise TypeError(f"a seed is an int, not {value!r:.60}")
    if not 0 <= value <= _MASK:
        raise ValueError(f"a seed is from 0 to 2**64 - 1, not {value}")
    _seed[:] = int(value), None


def _advance() -> None:
    """Another state, from which streams of numbers have nothing to do with those of this one.

    SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    """
    z = (_seed[0] + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    _seed[:] = z ^ (z >> 31), None


# What a bare value of a graph is to the functions that take tensors.
GraphValue = TensorValue | BufferValue
