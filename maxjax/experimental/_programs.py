# SPDX-License-Identifier: Apache-2.0
"""Programs over distributed tensors that have values: traced once, kept for tensors like them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from maxjax.driver import CPU, Buffer
from maxjax.engine import Model
from maxjax.experimental._context import CONTEXT
from maxjax.experimental.realization_context import GraphRealizationContext, is_default
from maxjax.experimental.sharding import DeviceMapping
from maxjax.experimental.support import driver_tensor_type
from maxjax.experimental.tensor import Tensor
from maxjax.graph.graph import Graph
from maxjax.graph.ir import CURRENT_GRAPH
from maxjax.graph.value import TensorValue
from maxjax.lower import to_jax

__all__ = ["at_once", "computed"]

_KEPT = 1024
_programs: OrderedDict[Any, tuple[Model, Any]] = OrderedDict()
_lock = threading.Lock()


def at_once() -> bool:
    """Whether what is computed here is computed at once."""
    return CONTEXT.get() is None and CURRENT_GRAPH.get() is None and is_default()


def computed(key: Hashable, tensors: Sequence[Tensor], fn: Callable[[list[Tensor]], Any]) -> Any:
    """What a function gives of tensors that have values.

    Args:
        key: What the function does, apart from the element types, shapes and mappings of tensors.
        tensors: Tensors with values.
        fn: The function, over tensors; it gives a tensor, or lists and tuples of tensors.
    """
    full = key, tuple([_kind(t) for t in tensors])
    kept = _programs.get(full)
    if kept is None:
        kept = _traced(tensors, fn)
        with _lock:
            _programs[full] = kept
            while len(_programs) > _KEPT:
                _programs.popitem(last=False)
    model, form = kept
    return _rebuilt(form, model(*[b for t in tensors for b in t._storages]))


def _kind(t: Tensor) -> Any:
    """What a program depends on of a tensor."""
    first = t._storages[0]
    if t._mapping is None:
        return first.dtype, first.shape, first.device
    return first.dtype, tuple([b.shape for b in t._storages]), t._mapping


class _Parts(NamedTuple):
    """The places of a tensor's parts among the outputs of a program."""

    start: int
    stop: int
    mapping: DeviceMapping | None


def _traced(tensors: Sequence[Tensor], fn: Callable[[list[Tensor]], Any]) -> tuple[Model, Any]:
    """The program of a function, and the form of its result."""
    buffers = [b for t in tensors for b in t._storages]
    graph = Graph("main", input_types=[driver_tensor_type(b) for b in buffers])
    context = GraphRealizationContext(graph)
    outputs: list[TensorValue] = []
    with context:
        values = iter(graph.inputs)
        form = _form(
            fn(
                [
                    context.create_unrealized(
                        tuple(islice(values, len(t._storages))), mapping=t._mapping
                    )
                    for t in tensors
                ]
            ),
            outputs,
        )
        graph.output(*outputs)
    devices = {t.device for t in (*graph.input_types, *graph.output_types) if t.device.is_gpu()}
    ordered = [d.to_device() for d in sorted(devices, key=lambda d: d.id)]
    return Model(to_jax(graph), ordered or [CPU()]), form


def _form(result: Any, outputs: list[TensorValue]) -> Any:
    """A result with places in the place of each tensor."""
    if isinstance(result, Tensor):
        start = len(outputs)
        outputs += [TensorValue(part) for part in result._local()]
        return _Parts(start, len(outputs), result._mapping)
    if type(result) in (list, tuple):
        return type(result)([_form(r, outputs) for r in result])
    return result


def _rebuilt(form: Any, outputs: Sequence[Buffer]) -> Any:
    if type(form) is _Parts:
        return Tensor._of(tuple(outputs[form.start : form.stop]), form.mapping)
    if type(form) in (list, tuple):
        return type(form)([_rebuilt(f, outputs) for f in form])
    return form
