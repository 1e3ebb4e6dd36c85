# SPDX-License-Identifier: Apache-2.0
"""Tracing: a function over tensors as a graph, with the structure of its arguments and results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxjax import tree
from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.experimental.realization_context import GraphRealizationContext
from maxjax.experimental.sharding import BufferLayout, TensorLayout, as_layout
from maxjax.experimental.tensor import Tensor
from maxjax.graph.device import DeviceRef
from maxjax.graph.graph import Graph
from maxjax.graph.type import BufferType, TensorType
from maxjax.graph.value import BufferValue, TensorValue

if TYPE_CHECKING:
    from maxjax.experimental.compilation.callable import CompiledCallable

__all__ = ["SIGNAL_BYTES", "StagedGraph", "flat_results", "graph_name", "stage"]

_SPECS = (TensorLayout, TensorType, BufferType)

SIGNAL_BYTES = 1
"""The size of a signal buffer: XLA synchronizes devices by itself, so there is nothing in it."""


def graph_name(fn: Callable[..., Any]) -> str:
    """A function's name as that of a graph: what is no letter, digit or ``_`` becomes ``_``."""
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return re.sub(r"\W+", "_", name).strip("_") or "fn"


class StagedGraph:
    """A function that has been traced.

    Args:
        fn: The function.
        graph: The graph it is traced into, with an input for each device of each layout.
        layouts: The layout of each tensor argument.
        treedef: The structure of ``(args, kwargs)``; values that are no tensors are in it.
        signal_device_ids: The accelerators for which it has signal buffers.
        prefix: Goes before the names of weights declared in it.
        subgraph_cache: Where the bodies of subgraphs are kept; None inlines them.
        signal_buffer_index: Where among the inputs the signal buffers are; at the end if left
            out.

    Attributes:
        graph: The graph.
        in_layouts: The layout of each tensor argument.
        in_tree: The structure of ``(args, kwargs)``.
        signal_device_ids: The accelerators for which it has signal buffers.
        signal_buffer_index: Where among the inputs they are; None for the end.
        out_layouts: The layout of each tensor of the result.
        out_tree: The structure of the result.

    Raises:
        TypeError: If the function returns a graph value, needs values, or writes what it cannot.
        ValueError: As the ops in it do.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        graph: Graph,
        layouts: Sequence[TensorLayout],
        treedef: tree.TreeDef,
        signal_device_ids: tuple[int, ...] = (),
        *,
        prefix: str = "",
        subgraph_cache: dict[Any, Any] | None = None,
        signal_buffer_index: int | None = None,
    ) -> None:
        self.fn = fn
        self.graph = graph
        self.in_layouts = list(layouts)
        self.in_tree = treedef
        self.signal_device_ids = signal_device_ids
        self.signal_buffer_index = signal_buffer_index
        inputs = list(graph.inputs)
        signals = _taken_out(inputs, len(signal_device_ids), signal_buffer_index)
        context = GraphRealizationContext(graph, signals or None, prefix)
        context.subgraph_cache = subgraph_cache
        values = iter(inputs)
        with context:
            tensors = []
            for layout in layouts:
                own = tuple(next(values) for _ in layout.local_types)
                mapping = layout.mapping if len(own) > 1 else None
                tensors.append(context.create_unrealized(own, mapping=mapping))
            args, kwargs = tree.unflatten(treedef, tensors)
            results, self.out_tree = flat_results(fn(*args, **kwargs), graph.name)
            self.out_layouts = [r.layout for r in results]
            graph.output(*[v for r in results for v in _outputs(r)])

    def compile(self, weights: Mapping[str, Any] | None = None) -> CompiledCallable:
        """The function, compiled.

        Args:
            weights: An array or tensor for each weight; None to give them later.
        """
        return self._compiled(weights)

    # Set by the module that defines compiled functions, which rests on this one.
    _compiled: Any

    def __str__(self) -> str:
        return str(self.graph.module)

    __repr__ = __str__


def flat_results(result: Any, name: str) -> tuple[list[Tensor], tree.TreeDef]:
    """The tensors of a result and its structure; other values are in the structure.

    Raises:
        TypeError: If a value of a graph is among them.
    """
    kinds = (Tensor, TensorValue, BufferValue)
    found, treedef = tree.flatten(result, leaf=lambda v: isinstance(v, kinds))
    for path, value in zip(treedef.leaf_paths, found, strict=True):
        if not isinstance(value, Tensor):
            where = f"result {path}" if path else "the result"
            raise TypeError(
                f"{name}: {where} is a {type(value).__name__}; return tensors: "
                "Tensor.from_graph_value(value)"
            )
    return found, treedef


def _outputs(tensor: Tensor) -> list[TensorValue]:
    """The values of a result, in the graph being built."""
    return [TensorValue(part) for part in tensor._local()]


def _taken_out(inputs: list[Any], count: int, index: int | None) -> list[Any]:
    """Signal buffers, taken out from among the inputs."""
    start = len(inputs) - count if index is None else index
    taken = inputs[start : start + count]
    del inputs[start : start + count]
    return taken


def _signal_ids(fn: Any, layouts: Sequence[TensorLayout], asked: Iterable[Device]) -> list[int]:
    """The accelerators that exchange anything: those of tensors on several, and those asked for.

    Tensors on several devices are those of layouts, and those in ``fn`` where it is a module.
    """
    meshes = [layout.mesh for layout in layouts]
    if tree.is_node(fn):
        meshes += [t.mesh for t in tree.leaves(fn, leaf=Tensor)]
    devices = [d for mesh in meshes if mesh.num_devices > 1 for d in mesh.devices]
    found = sorted({d.id for d in (*devices, *asked) if not d.is_host})
    return found if len(found) > 1 else []


def stage(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    custom_extensions: Iterable[Path] = (),
    allow_subgraphs: bool = True,
    signal_devices: Iterable[Device] = (),
    is_device_graph: bool = False,
    signal_buffer_index: int | None = None,
) -> Callable[..., StagedGraph]:
    """Traces a function, without compiling it.

    Args:
        fn: A function over tensors.
        name: The graph's name; the function's if left out.
        custom_extensions: Paths of custom kernels.
        allow_subgraphs: Whether ``as_subgraph`` functions are bodies of their own.
        signal_devices: Accelerators that have a signal buffer among the inputs, beside those of
            tensors on several devices. XLA needs none, so nothing is in them.
        is_device_graph: Accepted: XLA records device graphs by itself.
        signal_buffer_index: Where among the inputs signal buffers are; at the end if left out.

    Returns:
        A function of the same arguments with a layout, or the type of a graph value, for each
        tensor; it gives a :class:`StagedGraph`.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental.sharding import TensorLayout
    >>> staged = stage(lambda kv, alpha: (kv["a"] + kv["b"]) * alpha)
    >>> spec = TensorLayout(DType.float32, [2], CPU())
    >>> staged = staged({"a": spec, "b": spec}, 2.0)
    >>> len(staged.graph.inputs), "mo.mul" in str(staged)
    (2, True)
    """

    def traced(*args: Any, **kwargs: Any) -> StagedGraph:
        found, treedef = tree.flatten(
            (args, kwargs), leaf=lambda v: isinstance(v, (*_SPECS, Tensor))
        )
        layouts = [
            _layout(path, spec) for path, spec in zip(treedef.leaf_paths, found, strict=True)
        ]
        types = [t for layout in layouts for t in layout.local_types]
        ids = _signal_ids(fn, layouts, signal_devices)
        if signal_buffer_index is not None and not 0 <= signal_buffer_index <= len(types):
            raise ValueError(
                f"signal_buffer_index is from 0 to the number of inputs, {len(types)}, not "
                f"{signal_buffer_index}"
            )
        at = len(types) if signal_buffer_index is None else signal_buffer_index
        types[at:at] = [BufferType(DType.uint8, [SIGNAL_BYTES], DeviceRef.GPU(i)) for i in ids]
        graph = Graph(
            name or graph_name(fn),
            input_types=types,
            custom_extensions=list(custom_extensions),
            is_device_graph=is_device_graph,
        )
        cache: dict[Any, Any] | None = {} if allow_subgraphs else None
        return StagedGraph(
            fn,
            graph,
            layouts,
            treedef,
            tuple(ids),
            subgraph_cache=cache,
            signal_buffer_index=signal_buffer_index,
        )

    return traced


def _layout(path: str, spec: Any) -> TensorLayout:
    if isinstance(spec, Tensor):
        raise TypeError(
            f"argument {path} is a live tensor, whose sizes would all be fixed; if that is meant, "
            "give its layout: tensor.layout"
        )
    return as_layout(spec)


def is_buffer(layout: TensorLayout) -> bool:
    """Whether an argument is written in place."""
    return isinstance(layout, BufferLayout)
