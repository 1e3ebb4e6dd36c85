# SPDX-License-Identifier: Apache-2.0
"""The types of a graph's values: `TensorType` for values, `BufferType` for mutable state.

A type is a dtype, a shape and a device. ``str(type)`` is MLIR-like text that `parse_type`
reads back, ``type.brief()`` the short form used in error messages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, Self, TypeVar

from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.graph.device import DeviceKind, DeviceRef
from maxjax.graph.dim import StaticDim, SymbolicDim
from maxjax.graph.shape import Shape, ShapeLike, parse_shape

__all__ = [
    "BufferType",
    "ConvInputLayout",
    "DeviceKind",
    "DeviceRef",
    "FilterLayout",
    "TensorType",
    "Type",
    "parse_type",
]

_T = TypeVar("_T")
_HOST = DeviceRef.CPU()


class FilterLayout(Enum):
    """The order of a convolution filter's axes.

    R and S are the filter's height and width, Q its depth, C its input channels and F its
    output channels.
    """

    RSCF = "RSCF"
    QRSCF = "QRSCF"
    FCRS = "FCRS"
    FCQRS = "FCQRS"
    CFRS = "CFRS"


class ConvInputLayout(Enum):
    """The order of a convolution input's axes: batch N, height H, width W, channels C."""

    NHWC = "NHWC"
    NCHW = "NCHW"


class Type(Generic[_T]):
    """The type of a value in a graph: a `TensorType` or a `BufferType`."""

    __slots__ = ()

    dtype: DType
    shape: Shape
    device: DeviceRef

    def brief(self) -> str:
        """The type as short text: ``f32[batch, 3]``, and the device unless it is cpu:0."""
        device = "" if self.device is _HOST else f" {self.device}"
        return f"{self.dtype.short}{self.shape.brief()}{device}"


@dataclass(init=False, eq=False, repr=False)
class _TensorTypeBase(Type[Any]):
    __slots__ = ("_layout", "device", "dtype", "shape")
    _mnemonic: ClassVar[str]

    dtype: DType
    shape: Shape
    device: DeviceRef

    def __init__(
        self,
        dtype: DType,
        shape: ShapeLike,
        device: Device | DeviceRef,
        _layout: FilterLayout | None = None,
    ) -> None:
        if not isinstance(dtype, DType):
            raise TypeError(
                f"the dtype of a type is a DType, such as DType.float32, not "
                f"{type(dtype).__name__} {dtype!r}"
            )
        self.dtype = dtype
        self.shape = Shape(shape)
        self.device = DeviceRef.from_device(device)
        self._layout = _layout
        for dim in self.shape:
            if isinstance(dim, StaticDim) and dim.dim < 0:
                raise TypeError(f"shape {self.shape.brief()} has the negative size {dim}")

    @classmethod
    def _of(cls, dtype: DType, shape: Shape, device: DeviceRef) -> Self:
        """A type of parts known to be right, without a check or a copy."""
        self = object.__new__(cls)
        self.dtype = dtype
        self.shape = shape
        self.device = device
        self._layout = None
        return self

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def parameters(self) -> Iterable[SymbolicDim]:
        """The symbolic dims in the shape, in order."""
        return self.shape.parameters

    def num_elements(self) -> int:
        """The number of elements.

        Raises:
            RuntimeError: If a dim is not static.
        """
        if not Shape.is_static(self.shape):
            raise RuntimeError(
                f"{self.brief()} has no number of elements before the graph runs: "
                "its shape is not static"
            )
        return math.prod(int(dim) for dim in self.shape)

    def cast(self, dtype: DType) -> Self:
        """The type with the same shape and device and another dtype."""
        return type(self)(dtype, self.shape, self.device)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self):
            return NotImplemented
        return (
            self.dtype is other.dtype
            and self.device is other.device
            and self.shape == other.shape
            and self._layout is other._layout
        )

    def __hash__(self) -> int:
        return hash((type(self), self.dtype, tuple(self.shape), self.device))

    def __str__(self) -> str:
        device = "" if self.device is _HOST else f", {self.device}"
        layout = "" if self._layout is None else f", {self._layout.value}"
        return f"!mo.{self._mnemonic}<{self.shape.brief()}, {self.dtype.short}{device}{layout}>"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype.name}, {self.shape.brief()}, {self.device})"


@dataclass(init=False, eq=False, repr=False)
class TensorType(_TensorTypeBase):
    """The type of a tensor: its dtype, shape and device.

    Two types are equal when all three are. The shape is a list and can be changed; it is a
    copy of the one given.

    Args:
        dtype: The type of the elements.
        shape: Dims: ints, names and `Dim`s.
        device: A `DeviceRef`, or a driver's device.

    Raises:
        TypeError: If a part is of another type, or a static dim is negative.
        ValueError: If the name of a dim is malformed.

    Example:
        >>> from maxjax.dtype import DType
        >>> from maxjax.graph.type import DeviceRef, TensorType
        >>> type = TensorType(DType.float32, ["batch", 3], DeviceRef.GPU())
        >>> type
        TensorType(float32, [batch, 3], gpu:0)
        >>> str(type), type.brief()
        ('!mo.tensor<[batch, 3], f32, gpu:0>', 'f32[batch, 3] gpu:0')
    """

    __slots__ = ()
    _mnemonic: ClassVar[str] = "tensor"

    # How a convolution filter lays out its axes, when the type is that of one.
    _layout: FilterLayout | None

    def as_buffer(self) -> BufferType:
        """The type of a buffer of such a tensor."""
        return BufferType(self.dtype, self.shape, self.device)


@dataclass(init=False, eq=False, repr=False)
class BufferType(_TensorTypeBase):
    """The type of a buffer, a tensor that ops can write to.

    Args:
        dtype: The type of the elements.
        shape: Dims: ints, names and `Dim`s.
        device: A `DeviceRef`, or a driver's device.

    Raises:
        TypeError: If a part is of another type, or a static dim is negative.
        ValueError: If the name of a dim is malformed.

    Example:
        >>> from maxjax.dtype import DType
        >>> from maxjax.graph.type import BufferType, DeviceRef
        >>> str(BufferType(DType.int64, [2, 3], DeviceRef.CPU()))
        '!mo.buffer<[2, 3], si64>'
    """

    __slots__ = ()
    _mnemonic: ClassVar[str] = "buffer"

    def __init__(self, dtype: DType, shape: ShapeLike, device: Device | DeviceRef) -> None:
        super().__init__(dtype, shape, device)

    def as_tensor(self) -> TensorType:
        """The type of the tensor that reading such a buffer gives."""
        return TensorType(self.dtype, self.shape, self.device)


_HEAD = re.compile(r"\s*!mo\.(tensor|buffer)<\s*")
_FIELD = re.compile(r"\s*,\s*([^\s,>]*)")
_TAIL = re.compile(r"\s*>\s*")


def parse_type(text: str, *, column: int = 1) -> TensorType | BufferType:
    """Reads a type from the text that ``str(type)`` writes.

    Args:
        text: ``!mo.tensor<[dims], dtype>`` or ``!mo.buffer<[dims], dtype>``; after the dtype
            may come a device other than cpu:0, and a filter layout.
        column: The column of the text's first character, for error messages.

    Raises:
        ValueError: If the text is no type; names the column.

    Example:
        >>> from maxjax.graph.type import parse_type
        >>> parse_type("!mo.tensor<[batch, n + 1], bf16, gpu:1>")
        TensorType(bfloat16, [batch, n + 1], gpu:1)
    """

    def fail(problem: str, position: int) -> ValueError:
        return ValueError(f"cannot read type {text!r}: {problem} at column {column + position}")

    head = _HEAD.match(text)
    if head is None:
        position = len(text) - len(text.lstrip())
        raise fail("expected '!mo.tensor<' or '!mo.buffer<'", position)
    start = head.end()
    end = text.find("]", start) + 1
    if not end:
        raise fail("expected a shape in brackets", start)
    shape = parse_shape(text[start:end], column=column + start)

    fields = []
    while field := _FIELD.match(text, end):
        fields.append((field[1], field.start(1)))
        end = field.end()
    if not _TAIL.fullmatch(text, end):
        raise fail("expected ',' or a final '>'", end)
    if not fields:
        raise fail("expected ',' and a dtype", end)
    short, position = fields.pop(0)
    try:
        dtype = DType.from_short(short)
    except KeyError as error:
        raise fail(error.args[0], position) from None

    device, layout = _HOST, None
    if fields and (named := re.fullmatch(r"(cpu|gpu):([0-9]{1,9})", fields[0][0])):
        device = DeviceRef(named[1], int(named[2]))
        fields.pop(0)
    if fields and head[1] == "tensor" and fields[0][0] in FilterLayout.__members__:
        layout = FilterLayout[fields.pop(0)[0]]
    if fields:
        raise fail(f"unexpected {fields[0][0]!r}", fields[0][1])
    try:
        if head[1] == "buffer":
            return BufferType(dtype, shape, device)
        return TensorType(dtype, shape, device, layout)
    except TypeError as error:
        raise fail(str(error), start) from None
