# SPDX-License-Identifier: Apache-2.0
"""Weights: named tensors whose data is bound when a graph is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.ir import CURRENT_GRAPH
from maxjax.graph.shape import Shape, ShapeLike
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue

if TYPE_CHECKING:
    from maxjax.graph.quantization import Encoding

__all__ = ["Weight"]


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

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, Weight
    >>> w = Weight("w", DType.float32, [3, 2], DeviceRef.CPU())
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 3], DeviceRef.CPU())]) as g:
    ...     g.inputs[0].tensor @ w
    TensorValue(float32, [n, 2], cpu:0)
    """

    __slots__ = ("_placeholder", "align", "name", "quantization_encoding")

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
        *,
        _placeholder: bool = False,
    ) -> None:
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

    def __tensorvalue__(self) -> TensorValue:
        graph = CURRENT_GRAPH.get()
        if graph is None:
            raise ValueError(
                f"weight {self.name!r} is used where no graph is being built; "
                "use it inside `with Graph(...):` or inside a graph's forward function"
            )
        return graph.add_weight(self)

    def __repr__(self) -> str:
        t = self._type
        dims = ", ".join(map(str, t.shape))
        return f"Weight({self.name!r}, {t.dtype.name}, [{dims}], {t.device})"
