# SPDX-License-Identifier: Apache-2.0
"""``Tensor``: an array with operators, computed at once, later, or in a compiled graph."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from maxjax.driver import CPU, Buffer, Device
from maxjax.driver.memory import snapshot
from maxjax.dtype import DType
from maxjax.experimental._construct import buffer_of, is_array, numbers
from maxjax.experimental._context import CONTEXT, RealizationContext, RealizationState
from maxjax.experimental._defaults import (
    as_mesh,
    default_device,
    default_dtype,
    defaults,
    defaults_like,
)
from maxjax.experimental._factories import TensorFactories
from maxjax.experimental._methods import TensorMethods
from maxjax.experimental._properties import TensorProperties
from maxjax.experimental._shards import as_array, from_array, spread
from maxjax.experimental._show import show
from maxjax.experimental.sharding import (
    DeviceMapping,
    DeviceMesh,
)
from maxjax.experimental.sharding.types import fold_shape
from maxjax.experimental.support import contextvar_context
from maxjax.graph.dim import Dim, StaticDim
from maxjax.graph.ir import CURRENT_GRAPH
from maxjax.graph.shape import Shape
from maxjax.graph.value import BufferValue, TensorValue, Value

if TYPE_CHECKING:
    import contextlib

__all__ = [
    "RealizationContext",
    "RealizationState",
    "Tensor",
    "default_device",
    "default_dtype",
    "defaults",
    "defaults_like",
    "external_shard_names",
    "realization_context",
]


def realization_context(
    ctx: RealizationContext,
) -> contextlib.AbstractContextManager[RealizationContext]:
    """Puts a context in force, without opening it, while the block lasts."""
    return contextvar_context(CONTEXT, ctx)  # pyright: ignore[reportArgumentType, reportReturnType]


def external_shard_names(name: str, num_shards: int) -> list[str]:
    """The names of a weight's shards.

    >>> external_shard_names("w", 2)
    ['w._shard.0', 'w._shard.1']
    """
    return [f"{name}._shard.{i}" for i in range(num_shards)]


class Tensor(TensorFactories, TensorProperties, TensorMethods):
    """An array on a device, or spread over a mesh of devices.

    Numbers and lists become the default element type, ``float32`` on a CPU; arrays keep theirs.
    Operators and methods are those of graph values, with the same rules for element types and
    shapes. Outside of a compiled function they compute at once; inside ``F.lazy()``, when values
    are needed.

    Args:
        data: A number, nested lists of numbers, or an array (NumPy, JAX, ``Buffer``, DLPack).
        dtype: The element type; for an array it must be the one it has.
        device: Where: a device, or a mesh, of which each device then has a copy.
        storage: A ``Buffer`` to be a tensor of, in place of ``data``.
        state: For tensors without values; not for callers.

    Raises:
        TypeError: If there is nothing to make it of, or two things.
        ValueError: If lists of one depth differ in length, a number cannot be an element, or an
            array has another element type.

    >>> x = Tensor([[1, 2], [3, 4]])
    >>> (x @ x.T + 1).to_numpy().tolist()
    [[6.0, 12.0], [12.0, 26.0]]
    """

    __slots__ = ("__weakref__", "_external", "_mapping", "_parts", "_state", "_storages")

    _storages: tuple[Buffer, ...]
    _state: RealizationState | None
    _mapping: DeviceMapping | None
    _external: str | None
    # The tensors of its parts, once they are asked for.
    _parts: tuple[Tensor, ...] | None

    def __init__(
        self,
        data: Any = None,
        *,
        dtype: DType | None = None,
        device: Device | DeviceMesh | None = None,
        storage: Buffer | None = None,
        state: RealizationState | None = None,
    ) -> None:
        given = [v is not None for v in (data, storage, state)]
        if sum(given) != 1:
            raise TypeError(
                "a tensor is made of one thing: data, as in Tensor([1, 2]), or storage=a Buffer"
            )
        self._state, self._mapping, self._external = state, None, None
        self._storages, self._parts = (), None
        if data is not None:
            self._storages, self._mapping = _made(data, dtype, device)
        elif storage is not None:
            self._storages = (storage,)

    @classmethod
    def _of(cls, storages: tuple[Buffer, ...], mapping: DeviceMapping | None = None) -> Tensor:
        """A tensor of buffers, one for each device of a mapping."""
        self = object.__new__(cls)
        self._storages, self._state = storages, None
        self._mapping, self._external, self._parts = mapping, None, None
        return self

    @classmethod
    def _unrealized(
        cls,
        state: RealizationState,
        mapping: DeviceMapping | None = None,
        external: str | None = None,
    ) -> Tensor:
        """A tensor of values of a graph."""
        self = object.__new__(cls)
        self._storages, self._state = (), state
        self._mapping, self._external, self._parts = mapping, external, None
        return self

    def _realized(self, storages: tuple[Buffer, ...]) -> None:
        """Gives it its values."""
        self._storages, self._state, self._parts = storages, None, None

    # ---------------------------------------------------------------- making

    @classmethod
    def from_dlpack(cls, array: Any) -> Tensor:
        """An array of any library, in its memory where that can be; a tensor as it is.

        Raises:
            AttributeError: If it is no array.
        """
        if isinstance(array, Tensor):
            return array
        if not is_array(array):
            raise AttributeError(
                f"expected an array that exports DLPack, got {type(array).__name__}"
            )
        return cls._of((buffer_of(array),))

    @classmethod
    def from_jax(cls, array: jax.Array) -> Tensor:
        """A ``jax.Array``, without a copy.

        One over a ``jax.sharding.Mesh`` gives a tensor over a mesh like it.

        Raises:
            ValueError: If it is over several devices, and not by a ``NamedSharding`` whose axes
                are in the order of the mesh.
        """
        if len(array.sharding.device_set) > 1:
            return cls._of(*from_array(array))
        return cls._of((Buffer.from_jax(array),))

    @classmethod
    def from_dim(cls, dim: Any) -> Tensor:
        """A dimension as a number: ``int64`` of shape ``()``, on the CPU.

        Raises:
            ValueError: If it has a name in it, and no graph is being built.
        """
        dim = Dim(dim)
        if isinstance(dim, StaticDim):
            return cls._of((Buffer.scalar(dim.dim, DType.int64),))
        if CURRENT_GRAPH.get() is None:
            raise ValueError(f"the dimension {dim} has a size only in a graph that is being built")
        return cls.from_graph_value(TensorValue(dim))

    @classmethod
    def from_graph_value(cls, value: Value) -> Tensor:
        """A value of the graph being built as a tensor.

        Raises:
            TypeError: If it is none.
            LookupError: If no context is in force.
        """
        if not isinstance(value, TensorValue | BufferValue) or isinstance(value, Tensor):
            raise TypeError(f"expected a value of a graph, got {type(value).__name__}")
        return _context().create_unrealized((value,))

    @classmethod
    def from_shard_values(
        cls, shard_values: Sequence[Any], mapping: DeviceMapping | None = None
    ) -> Tensor:
        """A tensor of a part for each device: values of a graph, or tensors.

        Args:
            shard_values: The parts, in the order of the mesh's devices.
            mapping: How they make up the whole; left out for one part.

        Raises:
            ValueError: If there is not a part for each device, or there are several without a
                mapping.
            ShardingError: If the parts do not make up one tensor: copies differ in size.
        """
        parts = list(shard_values)
        count = 1 if mapping is None else mapping.mesh.num_devices
        if mapping is None and len(parts) > 1:
            raise ValueError(f"a mapping says how {len(parts)} parts make up a tensor; give one")
        if len(parts) != count:
            raise ValueError(f"{count} devices need as many parts, got {len(parts)}")
        if mapping is not None:
            fold_shape([Shape(p.shape) for p in parts], mapping)
        if mapping is not None and count == 1:
            mapping = None
        if all(isinstance(p, Tensor) and p.real for p in parts):
            return cls._of(tuple(p.storage for p in parts), mapping)
        values = [p if isinstance(p, Value) else TensorValue(p) for p in parts]
        return _context().create_unrealized(tuple(values), mapping=mapping)

    # ---------------------------------------------------------------- values

    @property
    def realize(self) -> Tensor:
        """To be awaited: ``await x.realize`` computes it."""
        return self

    def __await__(self) -> Generator[Any, None, Tensor]:
        self._compute()
        yield from ()
        return self

    def _compute(self) -> None:
        """Computes it, with all that is lazy beside it.

        Raises:
            TypeError: If it is in a graph, or in the block of its own context.
        """
        if self._state is not None:
            self._state.ctx.realize_all()

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The contents on each device.

        Raises:
            TypeError: If it has no values yet.
        """
        if self._state is not None:
            raise TypeError("the tensor has no values yet; await it, or use to_numpy()")
        return self._storages

    @property
    def storage(self) -> Buffer:
        """The contents.

        Raises:
            TypeError: If it has no values yet.
            ValueError: If it is spread over several devices.
        """
        self._one("storage")
        return self.buffers[0]

    driver_tensor = storage

    @property
    def graph_values(self) -> tuple[Any, ...]:
        """The values of the graph that it is while it has no values.

        Raises:
            TypeError: If it has values.
        """
        if self._state is None:
            raise TypeError("the tensor has values, and is none of a graph; see its buffers")
        if self._external is not None:
            return self._weight_values(self._external)
        return self._state.values

    @property
    def local_shards(self) -> tuple[Tensor, ...]:
        """Its part on each device, as tensors; what is written to a part, it has."""
        if self._mapping is None:
            return (self,)
        state = self._state
        if state is None:
            if self._parts is None:
                self._parts = tuple(Tensor._of((b,)) for b in self._storages)
            return self._parts
        if self._external is None:
            return tuple(state.ctx.create_unrealized((v,)) for v in state.values)
        values = self._weight_values(self._external)
        return tuple(_context().create_unrealized((v,)) for v in values)

    def _local(self) -> tuple[Tensor, ...]:
        """Its parts, for use in the graph being built; what is lazy elsewhere is computed."""
        state = self._state
        if state is not None and self._external is None:
            graph = CURRENT_GRAPH.get()
            if (
                graph is not None
                and state.ctx.graph is not graph
                and state.ctx is not CONTEXT.get()
            ):
                self._compute()
        return self.local_shards

    def to_numpy(self) -> np.ndarray:
        """Its values, computed if need be.

        Raises:
            TypeError: If it is in a graph.
        """
        self._compute()
        return self.materialize()._storages[0].to_numpy()

    def jax(self) -> jax.Array:
        """Its values as a ``jax.Array``, without a copy.

        A distributed tensor is an array over a ``jax.sharding.Mesh`` where JAX has such arrays;
        sums, parts of different sizes and meshes of one device repeated are gathered on the CPU.
        """
        self._compute()
        if self._mapping is not None:
            array = as_array(self._storages, self.layout)
            if array is not None:
                return array
        return self.materialize()._storages[0].jax()

    def __dlpack__(self, stream: int | None = None, **kwargs: Any) -> Any:
        self._one("memory")
        self._compute()
        return self._storages[0].__dlpack__(stream=stream, **kwargs)

    def __dlpack_device__(self) -> Any:
        self._compute()
        return self.storage.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.to_numpy()
        return array.astype(dtype) if dtype is not None else array.copy() if copy else array

    def item(self) -> Any:
        """The only element, as a Python number.

        Raises:
            TypeError: If there are several, or it is in a graph.
            ValueError: If it is spread over several devices that have no copy of it each.
        """
        if self._mapping is not None and not self._mapping.is_fully_replicated:
            raise ValueError(
                f"item() is for a tensor on one device or copied to each, and this is placed "
                f"{list(self._mapping.placements)}; place it Replicated() first"
            )
        self._compute()
        if self.num_elements() != 1:
            raise TypeError(f"item() is for one element, and the tensor has {self.num_elements()}")
        return self.materialize()._storages[0].to_numpy().item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def materialize(self) -> Tensor:
        """The whole, on one device; itself if it is on one."""
        return self if self._mapping is None else self._ops.materialize(self)

    # ---------------------------------------------------------------- in graphs

    def __tensorvalue__(self) -> TensorValue:
        value = self._graph_value()
        return value[...] if isinstance(value, BufferValue) else value

    def __buffervalue__(self) -> BufferValue:
        state = self._state
        if state is None:
            (value,) = _context().add_mutable_source(self).values
            return value
        if self._external is not None:
            raise TypeError(
                f"the weight {self._external!r} cannot be written: a compiled module only reads "
                "its weights; make what is written an argument declared with a BufferLayout"
            )
        value = self._graph_value()
        if isinstance(value, BufferValue):
            return value
        graph = CURRENT_GRAPH.get()
        if graph is not None and any(value is v for v in graph.inputs):
            raise TypeError(
                "an argument declared with a TensorLayout cannot be written; declare it with a "
                "BufferLayout, or layout.as_buffer()"
            )
        # A computed value is written in a copy of its own.
        from_value = self._ops.buffer_of(value)
        self._state = RealizationState((from_value,), state.ctx)
        return from_value

    def _graph_value(self) -> Any:
        """What it is in the graph being built."""
        self._one("value")
        state = self._state
        if state is not None and self._external is not None:
            (value,) = self._weight_values(self._external)
            return value
        if state is not None:
            graph = CURRENT_GRAPH.get()
            if graph is None or state.ctx.graph is graph:
                return state.value
            ctx = CONTEXT.get()
            if state.ctx is ctx:
                return state.value
            self._compute()
        (value,) = _context().add_source(self).values
        return value

    def _weight_values(self, name: str) -> tuple[TensorValue, ...]:
        """What the weight it stands for is in the graph being built, on each device."""
        add = getattr(CONTEXT.get(), "add_weight", None)
        if add is None:
            raise TypeError(
                f"the weight {name!r} has no values while its module is traced, and belongs to "
                "that trace: in F.lazy() or after it, use the module's own tensor"
            )
        return add(self)

    # ---------------------------------------------------------------- reading and writing parts

    def __setitem__(self, idx: Any, val: Any) -> None:
        """Writes a tensor over a slice, in place.

        Raises:
            TypeError: If the value is no tensor, or this one cannot be written.
            ValueError: If the value's shape is not that of the slice.
        """
        if not isinstance(val, Tensor | TensorValue):
            raise TypeError(
                f"a tensor is written with a tensor, not with {type(val).__name__}; "
                "write Tensor(...)"
            )
        indices = list(idx) if isinstance(idx, tuple | list) else [idx]
        self._ops.buffer_store_slice(self, val, indices)

    def __getitem__(self, idx: Any) -> Tensor:
        """A slice, by ints, slices, None, one Ellipsis and integer scalars.

        Raises:
            TypeError, ValueError: If the index is none of these, or out of range.
        """
        if isinstance(idx, bool):
            raise ValueError("a tensor is not indexed by a bool; use F.where or F.masked_scatter")
        return super().__getitem__(idx)

    def __iter__(self) -> Iterator[Tensor]:
        i = 0
        while True:
            yield self[i]
            i += 1

    # ---------------------------------------------------------------- identity

    def __abs__(self) -> Tensor:
        return self._ops.abs(self)

    __hash__ = object.__hash__

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self

    def __repr__(self) -> str:
        return show(self)

    # ---------------------------------------------------------------- methods

    def to(self, target: Any) -> Tensor:
        """The same tensor elsewhere; itself if it is there.

        Args:
            target: A device; a mesh, over which it keeps how it is spread; or a mapping.

        Raises:
            TypeError: If it is none of these.
        """
        if not isinstance(target, Device | DeviceMesh | DeviceMapping):
            raise TypeError(
                f"expected a Device, DeviceMesh or DeviceMapping, got {type(target).__name__}; "
                "for another element type use cast()"
            )
        return self._ops.transfer_to(self, target)

    def rebind_mapping(self, mapping: DeviceMapping) -> Tensor:
        """The same parts, said to be spread otherwise.

        Raises:
            ValueError: If the mapping is of another mesh.
        """
        if mapping.mesh != self.mesh:
            raise ValueError(
                f"the tensor is on {self.mesh}, and the mapping is of {mapping.mesh}; use to()"
            )
        if self._mapping is None:
            return self
        if self._state is None:
            return Tensor._of(self._storages, mapping)
        return self._state.ctx.create_unrealized(self._state.values, mapping=mapping)


def _context() -> RealizationContext:
    """The context in force.

    Raises:
        LookupError: If there is none.
    """
    ctx = CONTEXT.get()
    if ctx is None:
        raise LookupError(
            "no context for tensors is in force here; use F.ensure_context() inside a graph"
        )
    return ctx


def _made(
    data: Any, dtype: DType | None, device: Any
) -> tuple[tuple[Buffer, ...], DeviceMapping | None]:
    """The contents of a new tensor, and how they are spread over several devices.

    Raises:
        TypeError, ValueError: As for :class:`Tensor`.
    """
    if isinstance(data, Tensor):
        data._compute()
        data = data.storage
    if is_array(data):
        buffer = buffer_of(data)
        if dtype is not None and buffer.dtype is not dtype:
            raise ValueError(
                f"the array is {buffer.dtype.name}, not {dtype.name}; cast it: Tensor(x).cast(...)"
            )
        mesh = DeviceMesh.single(buffer.device) if device is None else as_mesh(device)
    else:
        dtype, mesh = defaults(dtype, device)
        # Nobody else sees this memory, so programs can have it without a copy.
        buffer = Buffer._hold(snapshot(numbers(data, dtype)), CPU(), shared=False)
    if mesh.num_devices > 1:
        return spread(buffer, DeviceMapping.replicated(mesh))
    return (buffer.to(mesh.devices[0]),), None
