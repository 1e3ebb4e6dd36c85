# SPDX-License-Identifier: Apache-2.0
"""Models: graphs with their weights bound, ready to be called."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from maxjax.driver import CPU, Buffer, Device
from maxjax.dtype import DType
from maxjax.engine.buckets import Bucket, Buckets, Plan
from maxjax.engine.inputs import Input, unaliased
from maxjax.engine.plan import ExecutionPlan
from maxjax.engine.programs import CompileStats, Programs, Recompile, Shapes
from maxjax.engine.stages import programs
from maxjax.engine.weights import bind
from maxjax.graph.dim import StaticDim
from maxjax.graph.type import Type
from maxjax.lower import Function, Signature
from maxjax.support.ml import NamedSpec

__all__ = ["Model", "TensorSpec"]


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """What an input or output of a model is.

    Attributes:
        shape: A size per dimension, None where it is symbolic.
        dtype: The element type.
        name: ``input0``, ``output0``, ...

    It prints as a spec is written on a command line, and symbolic dims keep their names there:
    ``input0=batchx128xf32``.
    """

    shape: list[int | None]
    dtype: DType
    name: str
    _spec: NamedSpec | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def spec(self) -> NamedSpec:
        """The shape, with the names of its symbolic dims, and the element type."""
        return self._spec or NamedSpec(self.shape, self.dtype)

    def __str__(self) -> str:
        return f"{self.name}={self.spec}"

    @classmethod
    def of(cls, type_: Type, name: str) -> TensorSpec:
        """The spec of a graph type."""
        sizes = [d.dim if isinstance(d, StaticDim) else None for d in type_.shape]
        named = [d.dim if isinstance(d, StaticDim) else str(d) for d in type_.shape]
        return cls(sizes, type_.dtype, name, NamedSpec(named, type_.dtype))


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
        self,
        function: Function,
        devices: list[Device],
        weights: Mapping[str, Any] | None = None,
        *,
        recompile: Recompile = "allow",
        buckets: Mapping[str, Bucket] | None = None,
    ) -> None:
        signature = function.signature
        self._signature = signature
        self._devices = devices
        self._inputs = [Input(f"input{i}", t) for i, t in enumerate(signature.inputs)]
        self._has_buffers = any(i.is_buffer for i in self._inputs)
        self._targets = _targets(signature, devices)
        self._target = self._targets[0]
        many = len(self._targets) > 1
        # On an accelerator, inputs typed for the CPU are moved there, and outputs leave it.
        self._from_host = [
            not i.type.device.is_gpu()
            for i in self._inputs
            if not self._target.is_host and not many
        ]
        self._leaves = [self._home(t) for t in signature.outputs]
        self._to_host = [not self._target.is_host and d.is_host for d in self._leaves]
        self._some_leave = any(self._to_host)
        self._programs = programs(function, self._targets, recompile)
        self._buckets = None if buckets is None else Buckets(function, buckets)
        # Whether compiled programs take the inputs as they are: none is padded or moved, and JAX
        # would not narrow one that is a NumPy array.
        self._simple = (
            type(self._programs) is Programs
            and self._buckets is None
            and not any(self._from_host)
            and all(i.type.dtype.size_in_bits < 64 for i in self._inputs)
        )
        self._weights: tuple[jax.Array, ...] | None = None
        self.reload(weights)

    # ---------------------------------------------------------------- what it is

    @property
    def name(self) -> str:
        """The graph's name."""
        return self._signature.name

    @property
    def devices(self) -> list[Device]:
        """The session's devices."""
        return list(self._devices)

    @property
    def function(self) -> Function:
        """What it runs."""
        return self._programs.function

    @property
    def exported(self) -> Function:
        """What an artifact of it holds; ``maxjax.export.save`` writes one.

        Raises:
            ValueError: If it runs as a program for each of several devices.
        """
        return self._programs.exported

    @property
    def target(self) -> Device:
        """The device that it runs on; of several the first."""
        return self._target

    @property
    def plan(self) -> ExecutionPlan:
        """How it runs: on which devices, in one program or several, and what they exchange."""
        return self._programs.plan()

    def _home(self, type_: Any) -> Device:
        """The device where a value of a type is."""
        if self._target.is_host:
            return self._target
        if not type_.device.is_gpu():
            return CPU()
        return type_.device.to_device() if len(self._targets) > 1 else self._target

    @property
    def weights(self) -> dict[str, jax.Array]:
        """The weights by name, where they are used.

        Raises:
            RuntimeError: If they were released.
        """
        if self._weights is None:
            raise self._released()
        return self._programs.weights(self._weights)

    @property
    def input_metadata(self) -> list[TensorSpec]:
        """Shape, dtype and name of each input."""
        return [TensorSpec.of(i.type, i.name) for i in self._inputs]

    @property
    def output_metadata(self) -> list[TensorSpec]:
        """Shape, dtype and name of each output."""
        return [TensorSpec.of(t, f"output{i}") for i, t in enumerate(self._signature.outputs)]

    @property
    def input_devices(self) -> list[Device]:
        """The device each input is used on."""
        return [t.device.to_device() for t in self._signature.inputs]

    @property
    def output_devices(self) -> list[Device]:
        """The device each output is on."""
        return [t.device.to_device() for t in self._signature.outputs]

    @property
    def signature(self) -> inspect.Signature:
        """The call's signature: ``(input0, input1, ...)``."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(i.name, kind) for i in self._inputs])

    def __repr__(self) -> str:
        takes = ", ".join(i.type.brief() for i in self._inputs)
        gives = ", ".join(t.brief() for t in self._signature.outputs)
        return f"Model({self.name!r}, ({takes}) -> ({gives}))"

    # ---------------------------------------------------------------- weights

    def reload(self, weights_registry: Mapping[str, Any] | None) -> None:
        """Binds other weights; compiled programs stay.

        Args:
            weights_registry: An array (NumPy, JAX, ``Buffer``, DLPack) for each weight name.

        Raises:
            ValueError: If weights are missing or do not fit; the old ones stay bound.
        """
        arrays = bind(self.name, self._signature.weights, weights_registry)
        with jax.enable_x64(True):
            self._weights = self._programs.place(arrays)
        if self._buckets:
            self._buckets.forget()

    def release_weights(self) -> None:
        """Drops the weights; :meth:`reload` must come before the next call."""
        self._weights = None

    # ---------------------------------------------------------------- compiling

    def warmup(self, sizes: Mapping[str, Sequence[int]]) -> None:
        """Compiles for sizes that will come, so that calls with them need not.

        Args:
            sizes: For each symbolic dimension of the inputs the sizes to compile for; each
                combination of them is compiled, or the buckets they are padded to.

        Raises:
            ValueError: If a dimension is unknown or one is missing, or a size is no number.

        >>> from maxjax.dtype import DType
        >>> from maxjax.engine import InferenceSession
        >>> from maxjax.graph import DeviceRef, Graph, TensorType
        >>> x = TensorType(DType.float32, ["batch"], DeviceRef.CPU())
        >>> model = InferenceSession().load(Graph("double", lambda x: x * 2, [x]))
        >>> model.warmup({"batch": [1, 8]})
        >>> model.stats.compiles
        2
        """
        if self._weights is None:
            raise self._released()
        with jax.enable_x64(True):
            for shapes in self._programs.shapes(sizes):
                plan = self._plan(shapes)
                self._programs.compile(plan.shapes if plan else shapes, self._weights)

    @property
    def stats(self) -> CompileStats:
        """What was compiled, for which sizes, in how much time, and how many calls hit it."""
        return self._programs.stats

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
            raise self._released()
        if self._has_buffers:
            return self._run_with_buffers(args)
        arrays = [spec.array(value) for spec, value in zip(self._inputs, args, strict=True)]
        return self._run(arrays)

    def _run(self, arrays: list[Any]) -> list[Buffer]:
        """Runs a graph without buffers on arrays whose dtypes are as declared."""
        key = tuple([a.shape for a in arrays])
        if self._simple and (program := self._programs.known(key)) is not None:
            try:
                outputs, _ = program(self._weights, arrays, [])
            except ValueError:
                self._check_devices(arrays)
                raise
            return self._buffers(outputs)
        with jax.enable_x64(True):
            plan = None
            if self._buckets and (plan := self._plan(key)):
                self._check_devices(arrays)
                key, arrays = plan.shapes, plan.pad(arrays, self._target.is_host)
            program = self._programs.find(key, self._weights)
            if self._from_host:
                arrays = self._moved(arrays)
            try:
                outputs, _ = program(self._weights, arrays, [])
            except ValueError:
                self._check_devices(arrays)
                raise
            if plan:
                outputs = plan.cut(outputs, self._target.is_host)
        return self._buffers(outputs)

    def _plan(self, shapes: Shapes) -> Plan | None:
        """How a call with these shapes is padded, if it is."""
        return self._buckets.plan(shapes, self._programs) if self._buckets else None

    def _released(self) -> RuntimeError:
        return RuntimeError(
            f"the weights of model {self.name!r} were released; call reload(...) first"
        )

    def _buffers(self, outputs: list[Any]) -> list[Buffer]:
        if self._some_leave:
            host = CPU().jax
            outputs = [
                jax.device_put(o, host) if moves else o
                for o, moves in zip(outputs, self._to_host, strict=True)
            ]
        return [
            Buffer.from_numpy(o) if type(o) is np.ndarray else Buffer.from_jax(o, device=d)
            for o, d in zip(outputs, self._leaves, strict=True)
        ]

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
            plan = self._plan(key)
            if plan:
                self._check_devices(given)
                key, given = plan.shapes, plan.pad(given, self._target.is_host)
                tensors = [a for a, i in zip(given, self._inputs, strict=True) if not i.is_buffer]
            program = self._programs.find(key, self._weights)
            states = iter(unaliased([b._donate() for b in owners], tensors))
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
                _keep(owners, contents)
                self._check_devices(arrays)
                raise
            except BaseException:
                _keep(owners, contents)
                raise
            if plan:
                outputs = plan.cut(outputs, self._target.is_host)
        for owner, array in zip(owners, finals, strict=True):
            owner._replace(array)
        return [
            b if same is None else args[same]
            for b, same in zip(self._buffers(outputs), self._signature.returned, strict=True)
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
            wanted = self._home(spec.type)
            if array.sharding.device_set != {wanted.jax}:
                where = ", ".join(sorted(map(str, array.sharding.device_set)))
                raise ValueError(
                    f"{spec.name} is on {where}, but {spec.type.brief()} is declared on "
                    f"{spec.type.device}; move it there with Buffer.to(device)"
                )


def _keep(owners: Sequence[Any], contents: Sequence[Any]) -> None:
    """Gives buffers what a program that failed made of them, where it runs in parts."""
    for owner, array in zip(owners, contents, strict=True):
        if not array.is_deleted():
            owner._replace(array)


def _targets(signature: Signature, devices: list[Device]) -> list[Device]:
    """The devices a program runs on: the accelerators it names, else the CPU.

    Raises:
        ValueError: If the session has no such device.
    """
    accelerators = sorted((r for r in signature.devices if r.is_gpu()), key=lambda r: r.id)
    if not accelerators:
        return [next((d for d in devices if d.is_host), devices[0])]
    found, missing = [], []
    for ref in accelerators:
        # By label and number: the session's devices are there, and this one may not be.
        device = next((d for d in devices if not d.is_host and d.id == ref.id), None)
        if device is None:
            missing.append(str(ref))
        else:
            found.append(device)
    if missing:
        several = len(accelerators) > 1
        which = f"of these {', '.join(missing)}" if several else "which"
        verb = "are" if len(missing) > 1 else "is"
        raise ValueError(
            f"graph {signature.name!r} runs on {', '.join(map(str, accelerators))}, {which} {verb} "
            f"not among the session's devices ({', '.join(map(str, devices))})"
        )
    return found
