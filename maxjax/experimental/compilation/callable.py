# SPDX-License-Identifier: Apache-2.0
"""Compiled functions over tensors."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from maxjax import tree
from maxjax.driver import Accelerator, Buffer, Device
from maxjax.dtype import DType
from maxjax.engine import CompiledModel, InferenceSession, Model
from maxjax.engine.session import LOOP
from maxjax.engine.weights import bind
from maxjax.experimental.compilation.staged import SIGNAL_BYTES, StagedGraph, is_buffer, stage
from maxjax.experimental.sharding import TensorLayout
from maxjax.experimental.tensor import Tensor
from maxjax.graph.dim import StaticDim
from maxjax.lower import Manner, to_jax

__all__ = ["CompiledCallable", "compile"]


class CompiledCallable:
    """A compiled function, called as the one it was traced from.

    Arguments that are no tensors must be those of the trace, given in the same way. XLA compiles
    at the first call with new sizes of symbolic dimensions.

    Args:
        staged: The traced function.
        weights: An array or tensor for each weight; None to give none, or to export before there
            are any.
        session: The session it runs in; by default one of the devices it names.

    Raises:
        ValueError: If weights are given, and some are missing or do not fit.
    """

    def __init__(
        self,
        staged: StagedGraph,
        weights: Mapping[str, Any] | None = None,
        *,
        session: InferenceSession | None = None,
    ) -> None:
        self._staged = staged
        self._function = to_jax(staged.graph, Manner(loop=LOOP))
        self._weights = {n: _array(w) for n, w in (weights or {}).items()}
        self._session = session
        if weights is not None:
            bind(staged.graph.name, self._function.weights, self._weights)
        self._slots = [
            _Slot(path, layout)
            for path, layout in zip(staged.in_tree.leaf_paths, staged.in_layouts, strict=True)
        ]
        self._counts = [len(layout.local_types) for layout in staged.out_layouts]
        self._plain = all(c == 1 for c in self._counts)
        self._writes = any(slot.is_buffer for slot in self._slots)
        self._writes |= bool(staged.signal_device_ids)
        self._quick = (
            self._plain
            and not self._writes
            and not staged.signal_device_ids
            and all(s.count == 1 for s in self._slots)
        )
        self._keywords = set(staged.in_tree.children[1].keys)
        # Whether the arguments are the places of tensors, one by one.
        self._flat_as_given = not self._keywords and all(
            child.kind == "leaf" for child in staged.in_tree.children[0].children
        )
        self._rebuild = _builder(staged.out_tree)
        functools.update_wrapper(self, staged.fn, updated=())

    # ---------------------------------------------------------------- what it is

    @property
    def in_layouts(self) -> list[TensorLayout]:
        """The layout of each tensor argument."""
        return self._staged.in_layouts

    @property
    def in_tree(self) -> tree.TreeDef:
        """The structure of ``(args, kwargs)``."""
        return self._staged.in_tree

    @property
    def out_layouts(self) -> list[TensorLayout]:
        """The layout of each tensor of the result."""
        return self._staged.out_layouts

    @property
    def out_tree(self) -> tree.TreeDef:
        """The structure of the result."""
        return self._staged.out_tree

    @property
    def graph(self) -> Any:
        """The graph."""
        return self._staged.graph

    @property
    def weights(self) -> Mapping[str, Any]:
        """The weights by name, read-only."""
        return MappingProxyType(self._weights)

    @functools.cached_property
    def signal_buffers(self) -> list[Buffer]:
        """The buffer for each accelerator of several, which calls add to the inputs."""
        ids = self._staged.signal_device_ids
        return [Buffer.zeros([SIGNAL_BYTES], DType.uint8, Accelerator(i)) for i in ids]

    @functools.cached_property
    def engine_model(self) -> Model:
        """What runs it; weights are bound when it is first asked for.

        Raises:
            ValueError: If weights are missing or do not fit.
        """
        signature = self._function.signature
        if self._session is None:
            gpus = sorted({d.id for d in signature.devices if d.is_gpu()})
            devices = [d.to_device() for d in signature.devices if d.is_gpu() and d.id in gpus]
            self._session = InferenceSession(devices)
        compiled = CompiledModel({signature.name: self._function})
        known = {n: w for n, w in self._weights.items() if n in signature.weights}
        return self._session.init(compiled, weights_registry=known)

    def __repr__(self) -> str:
        takes = ", ".join(map(repr, self.in_layouts))
        return f"CompiledCallable({self.graph.name!r}, {takes})"

    # ---------------------------------------------------------------- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function.

        Args:
            args: A tensor, or a ``Buffer``, for each layout of the trace; the rest as traced.
            kwargs: Likewise.

        Raises:
            TypeError: If the place of a tensor has something else.
            ValueError: If the structure or a value is not that of the trace, or an element type,
                shape or device is not as declared.
        """
        slots = self._slots
        plain = self._flat_as_given and not kwargs and len(args) == len(slots)
        if plain and self._quick:
            # What is usual needs no look at how else it could be.
            arrays = []
            for slot, value in zip(slots, args, strict=True):
                array = slot.array(value)
                if array is None:
                    break
                arrays.append(array)
            else:
                model = self.engine_model
                if model._weights is not None:
                    return self._rebuild(iter([Tensor._of((b,)) for b in model._run(arrays)]))
        buffers = []
        for slot, value in zip(slots, args if plain else self._flat(args, kwargs), strict=True):
            buffers += slot.buffers(value)
        if self._staged.signal_device_ids:
            self._add_signals(buffers)
        model = self.engine_model
        if self._writes or model._weights is None:
            results = model(*buffers)
        else:
            results = model._run([b._array() for b in buffers])
        if self._plain:
            tensors = [Tensor._of((b,)) for b in results]
        else:
            parts = iter(results)
            tensors = [
                Tensor._of(tuple(next(parts) for _ in range(n)), layout.mapping if n > 1 else None)
                for n, layout in zip(self._counts, self.out_layouts, strict=True)
            ]
        return self._rebuild(iter(tensors))

    def _flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The values in the places of tensors, as ``in_tree.flatten_up_to`` gives them."""
        ordered, named = self.in_tree.children
        if len(args) != len(ordered.children) or kwargs.keys() != self._keywords:
            return self.in_tree.flatten_up_to((args, kwargs))  # which says what is wrong
        found: list[Any] = []
        for i, (child, value) in enumerate(zip(ordered.children, args, strict=True)):
            if child.kind == "leaf":
                found.append(value)
            else:
                found += child.flatten_up_to(value, f"0.{i}")
        if kwargs:
            found += named.flatten_up_to(kwargs, "1")
        return found

    def execute_raw(self, *buffers: Buffer) -> list[Buffer]:
        """Runs the function on buffers, in the order of the graph's inputs, without checks.

        Signal buffers may be left out.
        """
        given = list(buffers)
        if len(given) + len(self._staged.signal_device_ids) == len(self.graph.inputs):
            self._add_signals(given)
        return self.engine_model(*given)

    def _add_signals(self, buffers: list[Buffer]) -> None:
        at = self._staged.signal_buffer_index
        at = len(buffers) if at is None else at
        buffers[at:at] = self.signal_buffers

    def export_mef(self, path: str | Path) -> None:
        """Writes it as an artifact, which ``maxjax.engine.read`` reads; weights need not be there.

        For platforms, sizes and weights in the file see :func:`maxjax.export.save`.

        Raises:
            ValueError: If an op cannot be exported.
            OSError: If the file cannot be written.
        """
        CompiledModel({self.graph.name: self._function}).export_mef(path)


class _Slot:
    """The place of a tensor among the arguments."""

    __slots__ = (
        "count",
        "device",
        "dtype",
        "fixed",
        "is_buffer",
        "layout",
        "path",
        "shape",
        "shapes",
    )

    def __init__(self, path: str, layout: TensorLayout) -> None:
        self.path = path
        self.layout = layout
        self.dtype = layout.dtype
        self.is_buffer = is_buffer(layout)
        types = layout.local_types
        self.count = len(types)
        # For each device a size for each dimension, None where it is symbolic.
        self.shapes = [
            [d.dim if isinstance(d, StaticDim) else None for d in t.shape] for t in types
        ]
        self.shape = self.shapes[0]
        self.fixed = None if None in self.shape else tuple(self.shape)
        self.device = types[0].device.to_device()

    def buffers(self, value: Any) -> tuple[Buffer, ...]:
        """The contents of an argument.

        Raises:
            TypeError: If it is no tensor.
            ValueError: If it is not as declared.
        """
        if type(value) is Tensor:
            if value._state is not None:
                value._compute()
            found = value._storages
        elif isinstance(value, Buffer):
            found = (value,)
        else:
            raise TypeError(
                f"argument {self.path}: expected a tensor or a Buffer for {self.layout!r}, got "
                f"{type(value).__name__}"
            )
        if len(found) != self.count:
            raise self._refused(f"is on {len(found)} devices instead of {self.count}")
        buffer = found[0]
        if buffer.dtype is not self.dtype:
            raise self._refused(f"is {buffer.dtype.name}")
        if self.count == 1 and not self.is_buffer:
            shape = buffer.shape
            if shape != self.fixed and not self.fits(shape):
                raise self._refused(f"has shape {list(shape)}")
            device = buffer.device
            if device is not self.device and device != self.device:
                raise self._refused(f"is on {device}")
        elif not self.is_buffer:
            self._check_parts(value, found)
        return found

    def _check_parts(self, tensor: Any, found: tuple[Buffer, ...]) -> None:
        """Refuses a tensor on several devices that is placed otherwise than declared."""
        mesh, declared = tensor.mesh, self.layout.mesh
        if mesh.devices != declared.devices:
            raise self._refused(f"is on {', '.join(map(str, mesh.devices))}")
        if tensor.placements != self.layout.placements:
            raise self._refused(f"is placed {list(tensor.placements)}")
        for i, buffer in enumerate(found):
            if not _fits(buffer.shape, self.shapes[i]):
                raise self._refused(f"has shape {list(buffer.shape)} on {declared.devices[i]}")

    def array(self, value: Any) -> Any:
        """The contents of an argument that is just as declared, in an array; else None."""
        if type(value) is not Tensor or value._state is not None or len(value._storages) != 1:
            return None
        buffer = value._storages[0]
        array = buffer._store
        if array is None or array.is_deleted() or buffer.dtype is not self.dtype:
            return None
        if array.shape != self.fixed and not self.fits(array.shape):
            return None
        device = buffer._device
        if device is not self.device and buffer.device != self.device:
            return None
        return array

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a shape is as declared, symbolic dimensions apart."""
        return _fits(shape, self.shape)

    def _refused(self, what: str) -> ValueError:
        return ValueError(f"argument {self.path}: it {what}; declared is {self.layout!r}")


def _fits(shape: tuple[int, ...], declared: list[int | None]) -> bool:
    return len(shape) == len(declared) and all(
        want is None or want == size for want, size in zip(declared, shape, strict=True)
    )


def _builder(treedef: tree.TreeDef) -> Callable[[Iterator[Any]], Any]:
    """``tree.unflatten`` for one structure, its common nodes without a look at what they are."""
    kind, meta = treedef.kind, treedef.meta
    if kind == "leaf":
        return next
    if kind == "static":
        return lambda leaves: meta
    children = [_builder(child) for child in treedef.children]
    if kind == "list":
        return lambda leaves: [build(leaves) for build in children]
    if kind == "tuple":
        return lambda leaves: tuple([build(leaves) for build in children])
    if kind == "dict" and meta is None:
        items = list(zip(treedef.keys, children, strict=True))
        return lambda leaves: {key: build(leaves) for key, build in items}
    count = treedef.num_leaves
    return lambda leaves: tree.unflatten(treedef, list(itertools.islice(leaves, count)))


def _array(weight: Any) -> Any:
    """A weight as the engine takes it."""
    if isinstance(weight, Tensor):
        weight._compute()
        return weight.materialize().storage
    return weight


def compile(
    fn: Callable[..., Any],
    *,
    weights: Mapping[str, Any] | None = None,
    name: str | None = None,
    custom_extensions: Iterable[Path] = (),
    allow_subgraphs: bool = True,
    signal_devices: Iterable[Device] = (),
    is_device_graph: bool = False,
    session: InferenceSession | None = None,
    signal_buffer_index: int | None = None,
) -> Callable[..., CompiledCallable]:
    """Traces a function and compiles it.

    Args:
        fn: A function over tensors.
        weights: An array or tensor for each weight that it declares.
        name: The graph's name; the function's if left out.
        custom_extensions: Paths of custom kernels.
        allow_subgraphs: Whether ``as_subgraph`` functions are bodies of their own.
        signal_devices: Accelerators that have a signal buffer, beside those of tensors on several
            devices. XLA needs none, so nothing is in them.
        is_device_graph: Accepted: XLA records device graphs by itself.
        session: The session it runs in.
        signal_buffer_index: Where among the inputs signal buffers are; at the end if left out.

    Returns:
        A function of the same arguments with a layout, or the type of a graph value, for each
        tensor; it gives a :class:`CompiledCallable`.
    """
    traced = stage(
        fn,
        name=name,
        custom_extensions=custom_extensions,
        allow_subgraphs=allow_subgraphs,
        signal_devices=signal_devices,
        is_device_graph=is_device_graph,
        signal_buffer_index=signal_buffer_index,
    )

    def compiled(*args: Any, **kwargs: Any) -> CompiledCallable:
        return CompiledCallable(traced(*args, **kwargs), weights, session=session)

    return compiled


StagedGraph._compiled = lambda self, weights: CompiledCallable(self, weights)
