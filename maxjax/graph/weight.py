# SPDX-License-Identifier: Apache-2.0
"""Weights: named tensors whose data is bound when a graph is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.ir import CURRENT_GRAPH
from maxjax.graph.ops.cast import TransferTo
from maxjax.graph.shape import Shape, ShapeLike
from maxjax.graph.strategy import Segment, ShardingStrategy, check_count
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue

if TYPE_CHECKING:
    from maxjax.graph.quantization import Encoding

__all__ = ["Segment", "ShardingStrategy", "Weight"]


class Weight(TensorValue):
    """A named tensor whose data comes from outside the graph.

    Used like a tensor value; the first use inside a graph declares it there. One weight may be
    used in several graphs.

    Args:
        name: The key of its data in the weights registry.
        dtype: The element type.
        shape: The shape.
        device: The device it is used on.
        quantization_encoding: How packed bytes encode numbers, for quantized weights.
        align: The alignment of its data in bytes; kept, and not needed here.
        sharding_strategy: How :meth:`shard` divides it among devices.

    Attributes:
        shard_idx: Which part of another weight it is; None for a whole one.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, Weight
    >>> w = Weight("w", DType.float32, [3, 2], DeviceRef.CPU())
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 3], DeviceRef.CPU())]) as g:
    ...     g.inputs[0].tensor @ w
    TensorValue(float32, [n, 2], cpu:0)
    """

    __slots__ = (
        "_placeholder",
        "_strategy",
        "_whole",
        "align",
        "name",
        "quantization_encoding",
        "shard_idx",
    )

    def __new__(cls, *args: Any, **kwargs: Any) -> Weight:
        """A weight is made, unlike the values of a graph."""
        return object.__new__(cls)

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: ShapeLike,
        device: Device | DeviceRef,
        quantization_encoding: Encoding | None = None,
        align: int | None = None,
        sharding_strategy: ShardingStrategy | None = None,
        *,
        _placeholder: bool = False,
    ) -> None:
        self._strategy = sharding_strategy
        self._whole: Weight | None = None
        self.shard_idx: int | None = None
        self.name = name
        self.align = align
        self.quantization_encoding = quantization_encoding
        self._placeholder = _placeholder
        self._type = TensorType(dtype, Shape(shape), DeviceRef.from_device(device))

    @property
    def type(self) -> TensorType:
        """The type of the value that it is in the graph being built.

        Raises:
            ValueError: If no graph is being built; ``dtype``, ``shape`` and ``device`` are always
                there.
        """
        return self.__tensorvalue__()._type

    @property
    def original_dtype_and_shape(self) -> tuple[DType, Shape]:
        """Element type and shape as given."""
        return self.dtype, self.shape

    @property
    def shape(self) -> Shape:
        """The shape; of a part, what the strategy makes it in the graph being built.

        Raises:
            ValueError: For a part, if no graph is being built.
        """
        return Shape(self._type.shape) if self._whole is None else self.__tensorvalue__().shape

    @property
    def sharding_strategy(self) -> ShardingStrategy | None:
        """How :meth:`shard` divides it among devices.

        One that is set makes the CPU its device: only parts of it go to others.
        """
        return self._strategy

    @sharding_strategy.setter
    def sharding_strategy(self, strategy: ShardingStrategy | None) -> None:
        self._strategy = strategy
        t = self._type
        self._type = TensorType(t.dtype, t.shape, DeviceRef.CPU())

    def shard(self, devices: Iterable[DeviceRef]) -> list[Weight]:
        """Its part for each device.

        The parts are weights themselves, named ``w[0]``, ``w[1]`` and so on; the registry that a
        graph is loaded with has the whole one, and each device gets its part of that.

        Raises:
            ValueError: If it has no strategy, is a part already, or has fewer parts than there are
                devices.

        >>> from maxjax.dtype import DType
        >>> from maxjax.graph import DeviceRef, Graph, ShardingStrategy, TensorType, Weight
        >>> gpus = [DeviceRef.GPU(0), DeviceRef.GPU(1)]
        >>> w = Weight("w", DType.float32, [8, 6], DeviceRef.CPU())
        >>> w.sharding_strategy = ShardingStrategy.columnwise(2)
        >>> rows = [TensorType(DType.float32, ["n", 8], gpu) for gpu in gpus]
        >>> with Graph("g", input_types=rows) as g:
        ...     [x.tensor @ part for x, part in zip(g.inputs, w.shard(gpus))]
        [TensorValue(float32, [n, 3], gpu:0), TensorValue(float32, [n, 3], gpu:1)]
        """
        if self._whole is not None:
            raise ValueError(f"weight {self.name!r} is a part already; shard {self._whole.name!r}")
        strategy, places = self._strategy, [DeviceRef.from_device(d) for d in devices]
        if strategy is None:
            raise ValueError(
                f"weight {self.name!r} has no strategy; set one, as in "
                "w.sharding_strategy = ShardingStrategy.rowwise(2)"
            )
        check_count(strategy, len(places), self.name)
        parts = []
        for i, device in enumerate(places):
            part = Weight(
                f"{self.name}[{i}]",
                self.dtype,
                self._type.shape,
                device,
                self.quantization_encoding,
                self.align,
                strategy,
            )
            part._whole, part.shard_idx = self, i
            parts.append(part)
        return parts

    def __tensorvalue__(self) -> TensorValue:
        graph = CURRENT_GRAPH.get()
        if graph is None:
            raise ValueError(
                f"weight {self.name!r} is used where no graph is being built; "
                "use it inside `with Graph(...):` or inside a graph's forward function"
            )
        return graph.add_weight(self)

    def _cut_out(self) -> TensorValue:
        """A part, as a value of the graph being built."""
        whole, i, strategy = self._whole, self.shard_idx, self._strategy
        assert whole is not None and i is not None and strategy is not None
        return TransferTo(self._type.device)(strategy(whole, i))

    def __repr__(self) -> str:
        t = self._type
        if self._whole is not None:
            return f"Weight({self.name!r}, {t.dtype.name}, a part, {t.device})"
        dims = ", ".join(map(str, t.shape))
        return f"Weight({self.name!r}, {t.dtype.name}, [{dims}], {t.device})"
