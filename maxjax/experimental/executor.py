# SPDX-License-Identifier: Apache-2.0
"""What runs the graphs that eager and lazy tensors build.

All of them compile with XLA and keep the program for the next graph like it; the names are those
of the reference, where they differ in speed.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from maxjax.driver import CPU, Buffer
from maxjax.engine import Model
from maxjax.experimental.support import SetterContext
from maxjax.graph import text
from maxjax.graph.graph import Graph
from maxjax.lower import to_jax

__all__ = [
    "CompilingExecutor",
    "CompositeExecutor",
    "Executor",
    "InterpreterExecutor",
    "JitExecutor",
    "UnsupportedGraphError",
    "default_executor",
    "set_default_executor",
]

# How many compiled graphs are kept for graphs like them.
_KEPT = 1024


class UnsupportedGraphError(RuntimeError):
    """An executor cannot run a graph: it has more ops than it may."""


@runtime_checkable
class Executor(Protocol):
    """Runs a graph on buffers."""

    def execute(self, graph: Graph, inputs: Sequence[Buffer]) -> Sequence[Buffer | None]:
        """The outputs of a finished graph; inputs that are buffers of the graph are changed."""
        ...


class _Models:
    """The models of graphs, by their text, the latest used ones."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, graph: Graph) -> Model:
        key = text.dump(graph)
        with self._lock:
            model = self._models.get(key)
            if model is not None:
                self._models.move_to_end(key)
                return model
        devices = {t.device for t in (*graph.input_types, *graph.output_types)}
        gpus = sorted((d for d in devices if d.is_gpu()), key=lambda d: d.id)
        model = Model(to_jax(graph), [d.to_device() for d in gpus] or [CPU()])
        with self._lock:
            self._models[key] = model
            while len(self._models) > _KEPT:
                self._models.popitem(last=False)
        return model


_MODELS = _Models()


class CompilingExecutor:
    """Compiles each graph, and keeps the program for graphs like it."""

    def execute(self, graph: Graph, inputs: Sequence[Buffer]) -> Sequence[Buffer | None]:
        """The outputs of a finished graph; inputs that are buffers of the graph are changed."""
        return _MODELS.find(graph)(*inputs)


class InterpreterExecutor(CompilingExecutor):
    """The same as :class:`CompilingExecutor`, for graphs that are not too long.

    Args:
        max_ops: The most ops that a graph may have; None for any number.
    """

    def __init__(self, max_ops: int | None = None) -> None:
        self.max_ops = max_ops

    def execute(self, graph: Graph, inputs: Sequence[Buffer]) -> Sequence[Buffer | None]:
        """The outputs of a finished graph.

        Raises:
            UnsupportedGraphError: If it has more than ``max_ops`` ops.
        """
        count = sum(1 for _ in graph.body.walk())
        if self.max_ops is not None and count > self.max_ops:
            raise UnsupportedGraphError(
                f"graph {graph.name!r} has {count} ops, and this executor runs {self.max_ops}"
            )
        return super().execute(graph, inputs)


class CompositeExecutor(CompilingExecutor):
    """An executor for short graphs, and compiled programs for the others.

    Args:
        interpreter: What runs a graph if it can.
        sync_on_interpreter_fallback: Accepted: a graph that it cannot run is compiled at once.
    """

    def __init__(self, *, interpreter: Executor, sync_on_interpreter_fallback: bool = True) -> None:
        self.interpreter = interpreter
        self.sync_on_interpreter_fallback = sync_on_interpreter_fallback

    def compile(self, graph: Graph) -> concurrent.futures.Future[Model]:
        """The model of a finished graph, ready already."""
        future: concurrent.futures.Future[Model] = concurrent.futures.Future()
        future.set_result(_MODELS.find(graph))
        return future

    def execute(self, graph: Graph, inputs: Sequence[Buffer]) -> Sequence[Buffer | None]:
        """The outputs of a finished graph."""
        try:
            return self.interpreter.execute(graph, inputs)
        except UnsupportedGraphError:
            return super().execute(graph, inputs)


class JitExecutor(CompositeExecutor):
    """The same as :class:`CompositeExecutor`."""


_default: list[Executor] = [CompilingExecutor()]


def default_executor() -> Executor:
    """What runs the graphs of eager and lazy tensors."""
    return _default[0]


def set_default_executor(executor: Executor) -> SetterContext[Executor]:
    """Sets what runs the graphs of eager and lazy tensors; in a ``with`` block, for its length.

    >>> with set_default_executor(InterpreterExecutor(max_ops=10)):
    ...     default_executor().max_ops
    10
    """
    previous = _default[0]

    def restore(value: Executor) -> None:
        _default[0] = value

    restore(executor)
    return SetterContext(executor, previous, restore)
