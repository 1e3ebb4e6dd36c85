# SPDX-License-Identifier: Apache-2.0
"""Models: graphs with their weights bound, ready to be called."""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from maxjax.driver import CPU, Buffer, Device
from maxjax.dtype import DType
from maxjax.engine.weights import bind, placed_weight
from maxjax.graph.dim import StaticDim, SymbolicDim
from maxjax.graph.graph import Graph
from maxjax.graph.type import BufferType, Type
from maxjax.lower import to_jax
from maxjax.lower.dims import Sizes

__all__ = ["Model", "TensorSpec"]


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """What an input or output of a model is.

    Attributes:
        shape: A size per dimension, None where it is symbolic.
        dtype: The element type.
        name: ``input0``, ``output0``, ...
    """

    shape: list[int | None]
    dtype: DType
    name: str

    @classmethod
    def of(cls, type_: Type, name: str) -> TensorSpec:
        """The spec of a graph type."""
        sizes = [d.dim if isinstance(d, StaticDim) else None for d in type_.shape]
        return cls(sizes, type_.dtype, name)


class _Input:
    """One input of a model: what is accepted, and how it becomes an array."""

    __slots__ = ("dtype", "is_buffer", "name", "np", "type")

    def __init__(self, name: str, type_: Type) -> None:
        self.name = name
        self.type = type_
        self.dtype: DType = type_.dtype
        self.np = type_.dtype.np
        self.is_buffer = isinstance(type_, BufferType)

    def array(self, value: Any) -> Any:
        """A caller's value as an array for the compiled program.

        A program may read NumPy memory after its call has returned, so it gets a copy.

        Raises:
            ValueError: If it is no array, or its dtype is another.
        """
        if isinstance(value, Buffer):
            if value.dtype is not self.dtype:
                raise self._refused(value.dtype.short, value.shape)
            return value._array()
        # NumPy's class is asked first: asking jax.Array of what it is not takes microseconds.
        if not isinstance(value, (np.ndarray, jax.Array)):
            value = self._converted(value)
        if not isinstance(value, np.ndarray):
            if value.dtype == self.np:
                return value
        elif value.dtype == self.np:
            return np.array(value, order="C")
        elif value.dtype.newbyteorder("=") == self.np:
            return value.astype(self.np)
        raise self._refused(str(value.dtype), value.shape)

    def buffer(self, value: Any) -> Buffer:
        """A caller's value for an input that is changed in place.

        Raises:
            ValueError: If it is no buffer, or its dtype is another.
        """
        if not isinstance(value, Buffer):
            raise ValueError(
                f"{self.name} is changed in place, so it must be a Buffer, got "
                f"{type(value).__name__}; use Buffer.from_numpy(array)"
            )
        if value.dtype is not self.dtype:
            raise self._refused(value.dtype.short, value.shape)
        return value

    def _converted(self, value: Any) -> Any:
        if isinstance(value, float) and not isinstance(value, np.generic):
            return np.asarray(value, np.float32)
        if isinstance(value, (int, bool, np.generic)):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        raise ValueError(f"{self.name} must be a Buffer or an array, got {type(value).__name__}")

    def _refused(self, dtype: str, shape: Iterable[int]) -> ValueError:
        return ValueError(f"{self.name} is {dtype}{list(shape)}, expected {self.type.brief()}")


class Model:
    """A compiled graph with its weights.

    XLA programs have fixed sizes: the first call with new sizes of the symbolic dimensions
    compiles, later calls with the same sizes do not. Made by ``InferenceSession.load``.

    >>> import numpy as np
    >>> from maxjax.dtype import DType
    >>> from maxjax.engine import InferenceSession
    >>> from maxjax.graph import DeviceRef, Graph, TensorType
    >>> x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    >>> model = InferenceSession().load(Graph("double", lambda x: x * 2, [x]))
    >>> model(np.float32([1, 2, 3]))[0].to_numpy().tolist()
    [2.0, 4.0, 6.0]
    """

    def __init__(
        self, graph: Graph, devices: list[Device], weights: Mapping[str, Any] | None = None
    ) -> None:
        self._graph = graph
        self._devices = devices
        self._function = to_jax(graph)
        self._inputs = [_Input(f"input{i}", t) for i, t in enumerate(graph.input_types)]
        self._has_buffers = any(i.is_buffer for i in self._inputs)
        self._names = tuple(self._function.weights)
        self._target = _target(graph, devices)
        # A buffer input that is an output is given back as the caller's own Buffer.
        inputs = [id(v) for v in graph.inputs]
        self._same = [
            inputs.index(id(v)) if isinstance(v.type, BufferType) and id(v) in inputs else None
            for v in graph.outputs
        ]
        # On an accelerator, inputs typed for the CPU are moved there, and outputs leave it.
        self._from_host = [
            not i.type.device.is_gpu() for i in self._inputs if not self._target.is_host
        ]
        self._to_host = [
            not self._target.is_host and not t.device.is_gpu() for t in graph.output_types
        ]
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._compiling = threading.Lock()
        self._weights: tuple[jax.Array, ...] | None = None
        self.reload(weights)

    # ---------------------------------------------------------------- what it is

    @property
    def name(self) -> str:
        """The graph's name."""
        return self._graph.name

    @property
    def devices(self) -> list[Device]:
        """The session's devices."""
        return list(self._devices)

    @property
    def input_metadata(self) -> list[TensorSpec]:
        """Shape, dtype and name of each input."""
        return [TensorSpec.of(i.type, i.name) for i in self._inputs]

    @property
    def output_metadata(self) -> list[TensorSpec]:
        """Shape, dtype and name of each output."""
        return [TensorSpec.of(t, f"output{i}") for i, t in enumerate(self._graph.output_types)]

    @property
    def input_devices(self) -> list[Device]:
        """The device each input is used on."""
        return [t.device.to_device() for t in self._graph.input_types]

    @property
    def output_devices(self) -> list[Device]:
        """The device each output is on."""
        return [t.device.to_device() for t in self._graph.output_types]

    @property
    def signature(self) -> inspect.Signature:
        """The call's signature: ``(input0, input1, ...)``."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(i.name, kind) for i in self._inputs])

    def __repr__(self) -> str:
        takes = ", ".join(i.type.brief() for i in self._inputs)
        gives = ", ".join(t.brief() for t in self._graph.output_types)
        return f"Model({self.name!r}, ({takes}) -> ({gives}))"

    # ---------------------------------------------------------------- weights

    def reload(self, weights_registry: Mapping[str, Any] | None) -> None:
        """Binds other weights; compiled programs stay.

        Args:
            weights_registry: An array (NumPy, JAX, ``Buffer``, DLPack) for each weight name.

        Raises:
            ValueError: If weights are missing or do not fit; the old ones stay bound.
        """
        arrays = bind(self.name, self._function.weights, weights_registry)
        with jax.enable_x64(True):
            placed = tuple(placed_weight(arrays[n], self._target.jax) for n in self._names)
        Sizes().bind_all(self._declared_weights(placed))
        self._weights = placed

    def _declared_weights(self, arrays: Iterable[Any]) -> list[tuple[str, Type, tuple[int, ...]]]:
        types = self._function.weights
        return [
            (f"weight {name!r}", types[name], array.shape)
            for name, array in zip(self._names, arrays, strict=False)
            if any(isinstance(d, SymbolicDim) for d in types[name].shape)
        ]

    def release_weights(self) -> None:
        """Drops the weights; :meth:`reload` must come before the next call."""
        self._weights = None

    # ---------------------------------------------------------------- calls

    def __call__(self, *args: Any, **kwargs: Any) -> list[Buffer]:
        """Runs the graph.

        Args:
            args: A ``Buffer`` or array (NumPy, JAX, DLPack) per input; a buffer input must be a
                ``Buffer`` and is changed in place.
            kwargs: The same, by the names ``input0``, ``input1``, ...

        Returns:
            One ``Buffer`` per output.

        Raises:
            TypeError: If the number or names of the inputs are not the graph's.
            ValueError: If a dtype, rank or size is not as declared, or one symbolic dimension
                has two sizes.
        """
        if kwargs or len(args) != len(self._inputs):
            args = self._arguments(args, kwargs)
        if self._weights is None:
            raise RuntimeError(
                f"the weights of model {self.name!r} were released; call reload(...) first"
            )
        if self._has_buffers:
            return self._run_with_buffers(args)
        arrays = [spec.array(value) for spec, value in zip(self._inputs, args, strict=True)]
        key = tuple([a.shape for a in arrays])
        with jax.enable_x64(True):
            program = self._programs.get(key) or self._compile(key)
            if self._from_host:
                arrays = self._moved(arrays)
            try:
                outputs, _ = program(self._weights, arrays, [])
            except ValueError:
                self._check_devices(arrays)
                raise
        return self._buffers(outputs)

    def _buffers(self, outputs: list[jax.Array]) -> list[Buffer]:
        if any(self._to_host):
            host = CPU().jax
            outputs = [
                jax.device_put(o, host) if moves else o
                for o, moves in zip(outputs, self._to_host, strict=True)
            ]
        return [Buffer.from_jax(o) for o in outputs]

    def execute(self, *args: Any) -> list[Buffer]:
        """The same as calling the model with positional inputs."""
        return self(*args)

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        names = [i.name for i in self._inputs]
        wanted = f"{self.name!r} takes {len(names)} inputs ({', '.join(names) or 'none'})"
        if len(args) > len(names):
            raise TypeError(f"model {wanted}, got {len(args)}")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in given:
                problem = "twice" if name in given else "but it has none of that name"
                raise TypeError(f"model {wanted}; {name!r} was given {problem}")
            given[name] = value
        missing = [n for n in names if n not in given]
        if missing:
            raise TypeError(f"model {wanted}; missing {', '.join(missing)}")
        return tuple(given[n] for n in names)

    def _run_with_buffers(self, args: tuple[Any, ...]) -> list[Buffer]:
        given = [
            spec.buffer(value) if spec.is_buffer else spec.array(value)
            for spec, value in zip(self._inputs, args, strict=True)
        ]
        key = tuple([tuple(a.shape) for a in given])
        tensors = [a for a, i in zip(given, self._inputs, strict=True) if not i.is_buffer]
        owners = [b for b, i in zip(given, self._inputs, strict=True) if i.is_buffer]
        with jax.enable_x64(True):
            program = self._programs.get(key) or self._compile(key)
            states = iter(_unaliased([b._donate() for b in owners], tensors))
            arrays = [
                next(states) if i.is_buffer else g for g, i in zip(given, self._inputs, strict=True)
            ]
            if self._from_host:
                arrays = self._moved(arrays)
            tensors = [a for a, i in zip(arrays, self._inputs, strict=True) if not i.is_buffer]
            contents = [a for a, i in zip(arrays, self._inputs, strict=True) if i.is_buffer]
            try:
                outputs, finals = program(self._weights, tensors, contents)
            except ValueError:
                self._check_devices(arrays)
                raise
        for owner, array in zip(owners, finals, strict=True):
            owner._replace(array)
        return [
            b if same is None else args[same]
            for b, same in zip(self._buffers(outputs), self._same, strict=True)
        ]

    def _moved(self, arrays: list[Any]) -> list[Any]:
        """Arrays of inputs that are declared on the host, on the accelerator that runs."""
        device = self._target.jax
        return [
            jax.device_put(a, device) if host else a
            for a, host in zip(arrays, self._from_host, strict=True)
        ]

    def _check_devices(self, arrays: list[Any]) -> None:
        """Refuses arrays that are bound to another device than the one their input is declared on.

        Raises:
            ValueError: Naming the input, both devices and the call that moves it.
        """
        for spec, array in zip(self._inputs, arrays, strict=True):
            if not isinstance(array, jax.Array) or not array.committed:
                continue
            wanted = CPU() if self._from_host and not spec.type.device.is_gpu() else self._target
            if array.sharding.device_set != {wanted.jax}:
                where = ", ".join(sorted(map(str, array.sharding.device_set)))
                raise ValueError(
                    f"{spec.name} is on {where}, but {spec.type.brief()} is declared on "
                    f"{spec.type.device}; move it there with Buffer.to(device)"
                )

    def _compile(self, key: tuple[tuple[int, ...], ...]) -> Callable[..., Any]:
        """The program for inputs of these shapes; each is compiled once, whoever asks first."""
        inputs = [(i.name, i.type, shape) for i, shape in zip(self._inputs, key, strict=True)]
        Sizes().bind_all([*inputs, *self._declared_weights(self._weights or ())])
        with self._compiling:
            program = self._programs.get(key)
            if program is None:
                program = self._programs[key] = self._program(key)
        return program

    def _program(self, key: tuple[tuple[int, ...], ...]) -> Callable[..., Any]:
        place = jax.sharding.SingleDeviceSharding(self._target.jax)
        specs = [
            jax.ShapeDtypeStruct(shape, i.np, sharding=place)
            for i, shape in zip(self._inputs, key, strict=True)
        ]
        tensors = [s for s, i in zip(specs, self._inputs, strict=True) if not i.is_buffer]
        states = [s for s, i in zip(specs, self._inputs, strict=True) if i.is_buffer]

        def run(weights: Any, tensors: Any, states: Any) -> Any:
            return self._function(dict(zip(self._names, weights, strict=True)), tensors, states)

        run.__name__ = run.__qualname__ = self.name or "graph"
        jitted = jax.jit(run, donate_argnums=(2,))
        return jitted.lower(self._weights, tensors, states).compile()


def _unaliased(states: list[Any], others: list[Any]) -> list[Any]:
    """Donated arrays that are given only once: a second mention is a copy."""
    seen = {id(a) for a in others}
    result = []
    for array in states:
        result.append(array.copy() if id(array) in seen else array)
        seen.add(id(array))
    return result


def _target(graph: Graph, devices: list[Device]) -> Device:
    """The device a graph's program runs on: its accelerator if it names one, else the CPU.

    Raises:
        ValueError: If the session has no such device, or the graph names several accelerators.
    """
    refs = {t.device for t in (*graph.input_types, *graph.output_types)}
    refs |= {r.type.device for node in graph.body.walk() for r in node.results}
    accelerators = sorted((r for r in refs if r.is_gpu()), key=lambda r: r.id)
    if len(accelerators) > 1:
        raise ValueError(
            f"graph {graph.name!r} uses {len(accelerators)} accelerators "
            f"({', '.join(map(str, accelerators))}); a model runs on one"
        )
    wanted = accelerators[0].to_device() if accelerators else None
    for device in devices:
        if device == wanted or (wanted is None and device.is_host):
            return device
    if wanted is None:
        return devices[0]
    raise ValueError(
        f"graph {graph.name!r} runs on {accelerators[0]}, which is not among the session's "
        f"devices ({', '.join(map(str, devices))})"
    )
