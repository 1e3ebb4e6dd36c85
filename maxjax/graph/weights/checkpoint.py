# SPDX-License-Identifier: Apache-2.0
"""What is the same for every file format: names, checks, and which weights are in use."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Collection, Iterator
from typing import Self

from maxjax.driver import DLPackArray
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.quantization import Encoding
from maxjax.graph.shape import Shape, ShapeLike
from maxjax.graph.weight import Weight
from maxjax.graph.weights.weights import WeightData, Weights

__all__ = ["Checkpoint"]

_CPU = DeviceRef.CPU()


class Checkpoint(Weights):
    """`Weights` of one kind of file.

    A format's class says which names there are, how one is read, and how to make another view
    of itself; everything else is here.

    Args:
        prefix: The name spelled so far.
        allocated: The data of the weights in use, shared by all views of a checkpoint.
    """

    def __init__(self, prefix: str, allocated: dict[str, DLPackArray] | None) -> None:
        self._prefix = prefix
        self._allocated = {} if allocated is None else allocated

    @abstractmethod
    def _names(self) -> Collection[str]:
        """The full names of all weights."""

    @abstractmethod
    def _read(self, name: str) -> WeightData:
        """The data of a weight that exists."""

    @abstractmethod
    def _at(self, prefix: str) -> Self:
        """Another view of the same files and the same weights in use."""

    @abstractmethod
    def _source(self) -> str:
        """The files' names, for error messages."""

    def _align(self) -> int:
        """What the places of data in the file are multiples of, in bytes."""
        return 1

    def _registered(self, data: WeightData) -> DLPackArray:
        """What `allocated_weights` has of a weight."""
        return data.to_buffer()

    @property
    def name(self) -> str:
        """The name spelled so far; empty at first."""
        return self._prefix

    def __getattr__(self, attr: str) -> Self:
        # Python looks for protocols under such names (copying, arrays): none of them is a weight.
        if attr.startswith("__") and attr.endswith("__"):
            raise AttributeError(f"{type(self).__name__} has no {attr}")
        return self[attr]

    def __getitem__(self, idx: int | str) -> Self:
        return self._at(f"{self._prefix}.{idx}" if self._prefix else str(idx))

    def items(self) -> Iterator[tuple[str, Self]]:
        """The full names of the weights that begin with this name, sorted, each with itself.

        As with text, ``layers.10`` begins with ``layers.1``.
        """
        for name in sorted(self._names()):
            if name.startswith(self._prefix):
                yield name, self._at(name)

    def exists(self) -> bool:
        """Whether there is a weight of just this name."""
        return self._prefix in self._names()

    def data(self) -> WeightData:
        """The weight's data, not copied where the file allows.

        Raises:
            KeyError: If there is no weight of this name, or the files were closed.
            ValueError: If its element type is not read here.
        """
        if not self.exists():
            raise KeyError(self._missing())
        return self._read(self._prefix)

    def allocate(
        self,
        dtype: DType | None = None,
        shape: ShapeLike | None = None,
        quantization_encoding: Encoding | None = None,
        device: DeviceRef = _CPU,
    ) -> Weight:
        """A `Weight` to use in graphs, whose data is this; `allocated_weights` then has it.

        Args:
            dtype: The element type it must have, if given.
            shape: The shape it must have, if given; of quantized data in numbers, not bytes.
            quantization_encoding: The encoding it must have, if given.
            device: Where the graph uses it.

        Raises:
            KeyError: If there is no weight of this name.
            ValueError: If it is not what was asked for.
        """
        data = self.data()
        found = data.quantization_encoding
        if quantization_encoding is not None and quantization_encoding is not found:
            state = "not quantized" if found is None else f"quantized as {found.value}"
            raise ValueError(
                f"weight {self._prefix!r} is {state}, not as {quantization_encoding.value}; "
                "leave out quantization_encoding to take it as it is"
            )
        if dtype is not None and dtype is not data.dtype:
            raise ValueError(
                f"weight {self._prefix!r} is {data.dtype!r}, not {dtype!r}; leave out dtype, "
                "and cast the weight in the graph"
            )
        own = _shape_in_numbers(data)
        if shape is not None and Shape(shape) != own:
            raise ValueError(
                f"weight {self._prefix!r} has the shape {own.brief()}, not "
                f"{Shape(shape).brief()}; leave out shape, and reshape the weight in the graph"
            )
        return self._allocate(data, device)

    def _allocate(self, data: WeightData, device: DeviceRef) -> Weight:
        # Registered first: a weight is never without its data.
        self._allocated[data.name] = self._registered(data)
        return Weight(
            data.name,
            data.dtype,
            data.shape,
            device,
            quantization_encoding=data.quantization_encoding,
            align=self._align(),
        )

    @property
    def allocated_weights(self) -> dict[str, DLPackArray]:
        """The data of every weight allocated so far, through this name or any other."""
        return self._allocated

    def _missing(self) -> str:
        """What to say where there is no weight of this name."""
        prefix, names = self._prefix, self._names()
        text = f"{self._source()}: no weight is called {prefix!r}"
        longer = sorted(name for name in names if name.startswith(f"{prefix}." if prefix else ""))
        if longer:
            more = "" if len(longer) == 1 else f" and {len(longer) - 1} more"
            return f"{text}; it is the beginning of {longer[0]!r}{more}"
        close = difflib.get_close_matches(prefix, names, n=3)
        return f"{text}; close to it: {', '.join(map(repr, close))}" if close else text

    def __repr__(self) -> str:
        count = sum(name.startswith(self._prefix) for name in self._names())
        return f"{type(self).__name__}({self._prefix!r}, {count} weights of {self._source()})"


def _shape_in_numbers(data: WeightData) -> Shape:
    """The shape of what packed bytes stand for; of other data its own."""
    if data.quantization_encoding is None:
        return data.shape
    block = data.quantization_encoding.block_parameters
    *rows, last = data.shape
    return Shape([*rows, last // block.block_size * block.elements_per_block])
