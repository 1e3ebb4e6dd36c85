# SPDX-License-Identifier: Apache-2.0
"""From a function over graph values to one over tensors.

Where no context is in force, a graph op runs at once: it is traced and compiled for the element
types, shapes and other arguments it is given, and the program is kept for the next call like it.
Else what it computes joins the graph of the context.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax

from maxjax.driver import CPU, Buffer, Device
from maxjax.experimental._context import CONTEXT
from maxjax.experimental._distributed import first, run_placed
from maxjax.experimental._programs import computed
from maxjax.experimental.realization_context import ensure_context, is_default
from maxjax.experimental.sharding._auto_reshard import current_policy
from maxjax.experimental.support import driver_tensor_type
from maxjax.experimental.tensor import Tensor
from maxjax.graph.graph import Graph
from maxjax.graph.ir import CURRENT_GRAPH
from maxjax.graph.value import BufferValue, TensorValue
from maxjax.lower import to_jax

__all__ = ["functional", "graph_function"]


def functional(graph_op: Callable[..., Any], rule: Any = None) -> Callable[..., Any]:
    """A function over tensors from one over graph values, or over tensors.

    Its whole body is one graph, computed at once where no context is in force. Tensors go to
    parameters whose annotation names a graph value as these, to others as they are; graph values
    that it returns, in lists and tuples too, come back as tensors.

    Args:
        graph_op: The function.
        rule: How its operands have to be placed on a mesh; see ``maxjax.experimental.sharding``.

    >>> from maxjax.experimental.tensor import Tensor
    >>> @functional
    ... def affine(x, w, b=0.5):
    ...     return x * w + b
    >>> affine(Tensor([1, 2]), Tensor([10, 10])).to_numpy()
    array([10.5, 20.5], dtype=float32)
    """
    return _wrapped(graph_op, rule, _hints(graph_op), eager=False)


def graph_function(
    graph_op: Callable[..., Any], rule: Any = None, name: str | None = None
) -> Callable[..., Any]:
    """As :func:`functional`, for a function that does nothing but make ops of graph values.

    Such a function gives the same program for like arguments, so that program is kept.
    """
    hints = _hints(graph_op)
    eager = not any(kind is BufferValue for kind in hints.values())
    names = inspect.signature(graph_op).parameters
    kinds = {n: hints.get(n, TensorValue) for n in names}
    return _wrapped(graph_op, rule, kinds, eager=eager, name=name)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """What tensors become for each parameter whose annotation names a graph value."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        text = parameter.annotation
        if not isinstance(text, str):
            text = getattr(text, "__name__", "") + repr(text)
        if "BufferValue" in text and "TensorValue" not in text:
            found[name] = BufferValue
        elif "TensorValue" in text or "Value[" in text or text == "Value":
            found[name] = TensorValue
    return found


def _wrapped(
    graph_op: Callable[..., Any],
    rule: Any,
    kinds: dict[str, Any],
    *,
    eager: bool,
    name: str | None = None,
) -> Callable[..., Any]:
    signature = inspect.signature(graph_op)
    positional = [n for n, p in signature.parameters.items() if p.kind is not p.KEYWORD_ONLY]
    by_place = [kinds.get(n) for n in positional]
    rest = next(
        (kinds.get(n) for n, p in signature.parameters.items() if p.kind is p.VAR_POSITIONAL), None
    )

    @functools.wraps(graph_op)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        own_rule = wrapper.rule  # pyright: ignore[reportAttributeAccessIssue]
        if eager and CONTEXT.get() is None and CURRENT_GRAPH.get() is None and is_default():
            done, result = _at_once(wrapper, graph_op, own_rule, args, kwargs)
            if done:
                return result
        spread = first(args)
        if spread is None and kwargs:
            spread = first(kwargs.values())
        if spread is not None:
            return run_placed(wrapper, graph_op, own_rule, spread, args, kwargs)
        with ensure_context():
            lowered = [
                _lowered(a, by_place[i] if i < len(by_place) else rest) for i, a in enumerate(args)
            ]
            named = {n: _lowered(a, kinds.get(n)) for n, a in kwargs.items()}
            return _raised(graph_op(*lowered, **named))

    wrapper.graph_op = graph_op  # pyright: ignore[reportAttributeAccessIssue]
    wrapper.rule = rule  # pyright: ignore[reportAttributeAccessIssue]
    if name is not None:
        wrapper.__name__ = wrapper.__qualname__ = name
    return wrapper


def _lowered(argument: Any, kind: Any) -> Any:
    """An argument with the tensors in it as graph values."""
    if kind is None:
        return argument
    if isinstance(argument, Tensor):
        if kind is BufferValue:
            return argument.__buffervalue__()
        return argument.__tensorvalue__()
    if type(argument) in (list, tuple):
        return type(argument)(_lowered(a, kind) for a in argument)
    return argument


def _raised(result: Any) -> Any:
    """A result with the graph values in it as tensors."""
    if isinstance(result, TensorValue | BufferValue):
        return Tensor.from_graph_value(result)
    if type(result) in (list, tuple):
        return type(result)(_raised(r) for r in result)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(_raised, result))
    return result


# ---------------------------------------------------------------- at once

_KEPT = 8192
_programs: OrderedDict[Any, tuple[Callable[..., Any], Any]] = OrderedDict()
_lock = threading.Lock()


class _Unkept(Exception):
    """An argument that no program can be kept for."""


class _Slot:
    """The place of a tensor among the arguments."""

    __slots__ = ("i",)

    def __init__(self, i: int) -> None:
        self.i = i


def _at_once(
    wrapper: Callable[..., Any],
    graph_op: Callable[..., Any],
    rule: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[bool, Any]:
    """The result of a graph op on tensors with values; False if it cannot be had so."""
    buffers: list[Any] = []
    try:
        key = (
            graph_op,
            tuple([_key(a, buffers) for a in args]),
            tuple([(n, _key(a, buffers)) for n, a in kwargs.items()]) if kwargs else None,
        )
        kept = _programs.get(key)
    except (_Unkept, TypeError):  # a TypeError: an argument without a hash
        return False, None
    if kept is None and any(type(b) is Tensor for b in buffers):
        policy = current_policy()
        if policy.mode == "warn":  # each call is to warn
            return False, None
        tensors = [b if type(b) is Tensor else Tensor._of((b,)) for b in buffers]

        def run(inside: list[Tensor]) -> Any:
            values = iter(inside)
            own = [_substituted(a, values) for a in args]
            return wrapper(*own, **{n: _substituted(a, values) for n, a in kwargs.items()})

        return True, computed((key, rule, policy), tensors, run)
    if kept is None:
        kept = _compiled(graph_op, args, kwargs, buffers)
        with _lock:
            _programs[key] = kept
            while len(_programs) > _KEPT:
                _programs.popitem(last=False)
    program, form = kept
    with jax.enable_x64(True):
        outputs = program(*[b._array() for b in buffers])
    if type(form) is _Slot:
        return True, Tensor._of((Buffer.from_jax(outputs[0]),))
    return True, _rebuilt(form, outputs)


def _key(argument: Any, buffers: list[Any]) -> Any:
    """What a program depends on of an argument; the tensors in it are collected.

    Those are buffers, or distributed tensors.
    """
    kind = type(argument)
    if kind is Tensor:
        if argument._state is not None:
            argument._compute()
        if argument._mapping is not None:
            buffers.append(argument)
            return Tensor
        (buffer,) = argument._storages
        buffers.append(buffer)
        return Tensor, buffer.dtype, buffer.shape, buffer.device
    if kind is list or kind is tuple:
        return kind, tuple([_key(a, buffers) for a in argument])
    if kind is dict or callable(argument):
        raise _Unkept
    if kind is float and not argument:
        return kind, str(argument)  # 0.0 and -0.0 are equal
    hash(argument)
    return kind, argument


def _compiled(
    graph_op: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    buffers: list[Buffer],
) -> tuple[Callable[..., Any], Any]:
    """The program of a graph op for arguments like these, and the form of its result."""
    graph = Graph("main", input_types=[driver_tensor_type(b) for b in buffers])
    inputs = iter(graph.inputs)
    with graph:
        lowered = [_substituted(a, inputs) for a in args]
        named = {n: _substituted(a, inputs) for n, a in kwargs.items()}
        outputs: list[TensorValue] = []
        form = _form(graph_op(*lowered, **named), outputs)
        graph.output(*outputs)
    function = to_jax(graph)
    device = _target(graph)
    place = jax.sharding.SingleDeviceSharding(device.jax)
    specs = [jax.ShapeDtypeStruct(b.shape, b.dtype.np, sharding=place) for b in buffers]

    def main(*arrays: Any) -> Any:
        return function({}, arrays)[0]

    with jax.enable_x64(True):
        jitted = jax.jit(main, out_shardings=place if not specs else None)
        return jitted.lower(*specs).compile(), form


def _target(graph: Graph) -> Device:
    types = [*graph.input_types, *graph.output_types]
    for t in types:
        if t.device.is_gpu():
            return t.device.to_device()
    return CPU()


def _substituted(argument: Any, values: Any) -> Any:
    if type(argument) is Tensor:
        return next(values)
    if type(argument) in (list, tuple):
        return type(argument)(_substituted(a, values) for a in argument)
    return argument


def _form(result: Any, outputs: list[TensorValue]) -> Any:
    """A result with a slot in the place of each value."""
    if isinstance(result, TensorValue):
        outputs.append(result)
        return _Slot(len(outputs) - 1)
    if type(result) in (list, tuple):
        return type(result)(_form(r, outputs) for r in result)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*[_form(r, outputs) for r in result])
    return result


def _rebuilt(form: Any, outputs: Any) -> Any:
    if type(form) is _Slot:
        return Tensor._of((Buffer.from_jax(outputs[form.i]),))
    if type(form) in (list, tuple):
        return type(form)(_rebuilt(f, outputs) for f in form)
    if isinstance(form, tuple) and hasattr(form, "_fields"):
        return type(form)(*[_rebuilt(f, outputs) for f in form])
    return form
