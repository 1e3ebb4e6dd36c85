# SPDX-License-Identifier: Apache-2.0
"""What every kind of checkpoint offers: `Weights`, names into it, and `WeightData`, one tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from maxjax.driver import CPU, Buffer, DLPackArray
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.quantization import Encoding
from maxjax.graph.shape import Shape, ShapeLike
from maxjax.graph.weight import Weight

__all__ = ["WeightData", "Weights", "WeightsAdapter"]


# Compared by identity: comparing by value would compare arrays, whose `==` gives no bool.
@dataclass(eq=False, repr=False)
class WeightData:
    """The data of one weight, with what a checkpoint says about it.

    Attributes:
        data: The array: a `Buffer`, or anything that exports DLPack.
        name: The weight's full name.
        dtype: The element type; ``uint8`` where the bytes are quantized.
        shape: The shape of ``data``.
        quantization_encoding: How the bytes encode numbers, or None where they don't.

    Example:
        >>> import numpy as np
        >>> from maxjax.dtype import DType
        >>> from maxjax.graph.weights import WeightData
        >>> data = WeightData.from_numpy(np.ones((2, 3), np.float32), "w")
        >>> data.astype(DType.bfloat16)
        WeightData('w', bfloat16, [2, 3])
    """

    data: DLPackArray
    name: str
    dtype: DType
    shape: Shape
    quantization_encoding: Encoding | None = None

    @classmethod
    def from_numpy(cls, arr: npt.NDArray[Any], name: str) -> WeightData:
        """Wraps an array, without copying it.

        Args:
            arr: The array, of NumPy's or `ml_dtypes`' element types.
            name: The weight's full name.

        Raises:
            ValueError: If no `DType` corresponds to the array's (complex numbers, strings).
        """
        return cls(arr, name, DType.from_numpy(arr.dtype), Shape(arr.shape))

    def to_buffer(self) -> Buffer:
        """The data as a `Buffer`; the same one at every call, sharing memory where it can."""
        if not isinstance(self.data, Buffer):
            # The one copies strided arrays where it must; the other takes every library's.
            if isinstance(self.data, np.ndarray):
                self.data = Buffer.from_numpy(self.data)
            else:
                self.data = Buffer.from_dlpack(self.data)
        return self.data

    def astype(self, dtype: DType) -> WeightData:
        """The same numbers in another element type; itself where that is the type already.

        Args:
            dtype: The element type wanted. Floats round to nearest, ties to even; going to
                integers cuts off the fraction, going to bool tells zero from the rest.

        Raises:
            ValueError: If the data is quantized: its bytes are not its numbers.
        """
        if dtype is self.dtype:
            return self
        if self.quantization_encoding is not None:
            raise ValueError(
                f"weight {self.name!r} is quantized as {self.quantization_encoding.value}: its "
                f"bytes are not numbers that could be cast to {dtype!r}; dequantize it in the "
                "graph, with ops.dequantize"
            )
        array = _numpy(self.to_buffer().to(CPU())).astype(dtype.np)
        return WeightData(Buffer.from_numpy(array), self.name, dtype, self.shape)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        return self.to_buffer().__dlpack__(stream=stream, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.to_buffer().__dlpack_device__()

    def __repr__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        encoding = self.quantization_encoding
        suffix = "" if encoding is None else f", {encoding.value}"
        return f"WeightData({self.name!r}, {self.dtype!r}, [{dims}]{suffix})"


def _numpy(buffer: Buffer) -> npt.NDArray[Any]:
    """The numbers of a buffer on the host, in NumPy's or `ml_dtypes`' element type."""
    bits = DType.of(np.dtype(f"u{buffer.dtype.size_in_bytes}"))
    return buffer.view(bits).to_numpy().view(buffer.dtype.np)


@runtime_checkable
class Weights(Protocol):
    """A name in a checkpoint: of a weight, or of the beginning of some.

    Attributes and indices spell longer names: ``weights.layers[0].weight`` is the one called
    ``layers.0.weight``, whether it exists or not. Where a part of a name is also a method
    here (``data``, ``items``, ``name``, ...), the index spells it: ``weights["data"]``.

    The names in use are kept: `allocated_weights` is what `InferenceSession.load` needs as
    ``weights_registry``.
    """

    @property
    def name(self) -> str:
        """The name spelled so far; empty at first."""
        ...

    def items(self) -> Iterator[tuple[str, Self]]:
        """The full names of the weights that begin with this name, sorted, each with itself."""
        ...

    def __getattr__(self, attr: str) -> Self: ...

    def __getitem__(self, idx: int | str) -> Self: ...

    def exists(self) -> bool:
        """Whether there is a weight of just this name."""
        ...

    def data(self) -> WeightData:
        """The weight's data.

        Raises:
            KeyError: If there is no weight of this name.
        """
        ...

    def allocate(
        self,
        dtype: DType | None = None,
        shape: ShapeLike | None = None,
        quantization_encoding: Encoding | None = None,
        device: DeviceRef = ...,
    ) -> Weight:
        """A `Weight` to use in graphs, whose data is this; `allocated_weights` then has it.

        Args:
            dtype: The element type it must have, if given.
            shape: The shape it must have, if given.
            quantization_encoding: The encoding it must have, if given.
            device: Where the graph uses it.

        Raises:
            KeyError: If there is no weight of this name.
            ValueError: If it is not what was asked for.
        """
        ...

    @property
    def allocated_weights(self) -> dict[str, DLPackArray]:
        """The data of every weight allocated so far, through this name or any other."""
        ...


WeightsAdapter: TypeAlias = Callable[..., dict[str, WeightData]]
"""A function that renames or converts a checkpoint's weights for a model."""
