# SPDX-License-Identifier: Apache-2.0
"""What is known of a tensor whether it has values or not: type, shape, where it is."""

from __future__ import annotations

import math
from typing import Any

from maxjax.driver import Buffer, Device
from maxjax.dtype import DType
from maxjax.experimental._context import RealizationState
from maxjax.experimental.sharding import (
    BufferLayout,
    DeviceMapping,
    DeviceMesh,
    Replicated,
    TensorLayout,
)
from maxjax.experimental.sharding.per_shard_dim import global_shape
from maxjax.experimental.support import driver_tensor_type
from maxjax.graph.dim import StaticDim
from maxjax.graph.shape import Shape
from maxjax.graph.type import BufferType, TensorType
from maxjax.graph.value import BufferValue

__all__ = ["TensorProperties"]


class TensorProperties:
    """Properties of a tensor, from its buffers or from the graph values that it is."""

    __slots__ = ()

    _storages: tuple[Buffer, ...]
    _state: RealizationState | None
    _mapping: DeviceMapping | None
    _external: str | None

    @property
    def real(self) -> bool:
        """Whether it has values."""
        return self._state is None

    @property
    def state(self) -> RealizationState | None:
        """What it is while it has no values.

        Raises:
            ValueError: If it is spread over several devices.
        """
        self._one("state")
        return self._state

    @property
    def external_name(self) -> str | None:
        """The name of the weight that it stands for, in a module that is traced."""
        return self._external

    @property
    def num_shards(self) -> int:
        """On how many devices it is."""
        return 1 if self._mapping is None else self._mapping.mesh.num_devices

    @property
    def is_distributed(self) -> bool:
        """Whether it is on several devices."""
        return self._mapping is not None

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._storages[0].dtype if self._state is None else self._state.values[0].dtype

    @property
    def shape(self) -> Shape:
        """The shape of the whole."""
        if self._mapping is not None:
            return self.layout.shape
        return self._local_shape(0)

    def _local_shape(self, i: int) -> Shape:
        if self._state is None:
            return Shape(self._storages[i].shape)
        return Shape(self._state.values[i].shape)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self._storages[0].shape if self._state is None else self._state.values[0].shape)

    def num_elements(self) -> int:
        """The number of elements.

        Raises:
            ValueError: If a dimension is symbolic.
        """
        dims = global_shape(self.shape)
        if not all(isinstance(d, StaticDim) for d in dims):
            raise ValueError(
                f"a tensor of shape {self.shape.brief()} has no known number of elements"
            )
        return math.prod(map(int, dims))

    @property
    def type(self) -> Any:
        """The type of the value that it is in a graph.

        Raises:
            TypeError: If it is spread over several devices: then it has a ``layout``.
        """
        if self._mapping is not None:
            raise TypeError("a tensor on several devices has a type on each: see its layout")
        if self._state is None:
            return driver_tensor_type(self._storages[0])
        t = self._state.value.type
        return TensorType(t.dtype, t.shape, t.device) if isinstance(t, BufferType) else t

    @property
    def device(self) -> Device:
        """Where it is.

        Raises:
            ValueError: If it is spread over several devices: see ``mesh``.
        """
        self._one("device")
        if self._state is None:
            return self._storages[0].device
        return self._state.value.device.to_device()

    @property
    def mapping(self) -> DeviceMapping:
        """How it is spread over devices."""
        if self._mapping is not None:
            return self._mapping
        return DeviceMapping(DeviceMesh.single(self.device), (Replicated(),))

    @property
    def mesh(self) -> DeviceMesh:
        """The devices it is on."""
        return self.mapping.mesh

    @property
    def placements(self) -> tuple[Any, ...]:
        """For each axis of the mesh, how it is spread along it."""
        return self.mapping.placements

    @property
    def layout(self) -> TensorLayout:
        """Element type, shape and mapping, as a compiled function's argument is declared."""
        is_buffer = self._state is not None and isinstance(self._state.values[0], BufferValue)
        cls = BufferLayout if is_buffer else TensorLayout
        if self._mapping is None:
            return cls(self.dtype, self._local_shape(0), self.device)
        shapes = [self._local_shape(i) for i in range(self.num_shards)]
        return cls.of_shards(self.dtype, shapes, self._mapping)  # pyright: ignore[reportAttributeAccessIssue]

    def _where(self) -> Any:
        """What to pass as ``device`` to make another where this is."""
        return self.device if self._mapping is None else self._mapping

    def _one(self, what: str) -> None:
        if self._mapping is not None:
            raise ValueError(
                f"a tensor on {self.num_shards} devices has no {what} of its own; its "
                "local_shards have"
            )
