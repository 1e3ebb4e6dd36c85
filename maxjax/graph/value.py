# SPDX-License-Identifier: Apache-2.0
"""Values: the edges of a graph. A value is the result of an op or the argument of a block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from maxjax.driver import DLPackArray
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import Dim
from maxjax.graph.operators import TensorOperators
from maxjax.graph.shape import Shape
from maxjax.graph.type import BufferType, TensorType, Type

if TYPE_CHECKING:
    from maxjax.graph.ir import Block

__all__ = [
    "BufferValue",
    "BufferValueLike",
    "HasBufferValue",
    "HasTensorValue",
    "StrongTensorValueLike",
    "TensorValue",
    "TensorValueLike",
    "Value",
    "as_outputs",
    "has_buffer_value",
    "has_tensor_value",
    "make_value",
]


class Value:
    """A symbolic value of a graph; identity is by object.

    Values are made by graph inputs and ops, never directly.

    Raises:
        NotImplementedError: On construction.
    """

    __slots__ = ("__weakref__", "_block", "_type")

    _type: Type
    _block: Block

    def __new__(cls, *args: Any) -> Any:
        """Refuses: see the class."""
        if cls is Value:
            raise NotImplementedError("a Value is made by an op or a graph input, not by itself")
        return super().__new__(cls)

    @property
    def type(self) -> Any:
        """The value's type: a :class:`TensorType` or a :class:`BufferType`."""
        return self._type

    @property
    def tensor(self) -> TensorValue:
        """This value as a tensor.

        Raises:
            TypeError: If it is a buffer.
        """
        if isinstance(self, TensorValue):
            return self
        raise TypeError(f"expected a tensor, but this value is a {self._type.brief()} buffer")

    @property
    def buffer(self) -> BufferValue:
        """This value as a buffer.

        Raises:
            TypeError: If it is a tensor.
        """
        if isinstance(self, BufferValue):
            return self
        raise TypeError(f"expected a buffer, but this value is a {self._type.brief()} tensor")

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._type.dtype

    @property
    def shape(self) -> Shape:
        """The shape; a copy, so that changing it does not change the value."""
        return Shape(self._type.shape)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self._type.shape)

    @property
    def device(self) -> DeviceRef:
        """The device the value lives on."""
        return self._type.device

    def __repr__(self) -> str:
        t = self._type
        dims = ", ".join(map(str, t.shape))
        return f"{type(self).__name__}({t.dtype.name}, [{dims}], {t.device})"


@runtime_checkable
class HasTensorValue(Protocol):
    """An object that can stand for a tensor value, such as a ``Weight``."""

    def __tensorvalue__(self) -> TensorValue:
        """The tensor value it stands for, in the graph being built."""
        ...


@runtime_checkable
class HasBufferValue(Protocol):
    """An object that can stand for a buffer value."""

    def __buffervalue__(self) -> BufferValue:
        """The buffer value it stands for, in the graph being built."""
        ...


def has_tensor_value(x: Any) -> bool:
    """``isinstance(x, HasTensorValue)``, ten times as fast: building a graph asks it often."""
    return hasattr(type(x), "__tensorvalue__")


def has_buffer_value(x: Any) -> bool:
    """``isinstance(x, HasBufferValue)``, ten times as fast."""
    return hasattr(type(x), "__buffervalue__")


class TensorValue(TensorOperators, Value):
    """A tensor in a graph, with value semantics: every op makes a new one.

    ``TensorValue(x)`` turns what can stand for a tensor into one: a tensor value, a
    ``Weight`` or another object with ``__tensorvalue__``, a ``Dim`` (an ``int64`` scalar) or a
    ``Shape`` (an ``int64`` vector).

    Args:
        value: What to turn into a tensor value.

    Raises:
        TypeError: If ``value`` cannot stand for a tensor (numbers and arrays need
            ``ops.constant``).

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 3], DeviceRef.CPU())]) as g:
    ...     y = g.inputs[0].tensor @ g.inputs[0].tensor.T
    ...     y
    TensorValue(float32, [n, n], cpu:0)
    """

    __slots__ = ()

    _type: TensorType

    # The namespace whose functions the operators call: `maxjax.graph.ops`, which sets it.
    _ops: ClassVar[Any]

    def __new__(cls, value: Any) -> TensorValue:
        """The tensor value that ``value`` is or stands for."""
        if type(value) is TensorValue:
            return value
        if has_tensor_value(value):
            return value.__tensorvalue__()
        if isinstance(value, Dim):
            return cls._ops.reshape(cls._ops.shape_to_tensor([value]), [])
        if isinstance(value, Shape):
            return cls._ops.shape_to_tensor(value)
        raise TypeError(
            f"expected a tensor value, got {_what(value)}; "
            "numbers and arrays become tensors through ops.constant"
        )

    def __tensorvalue__(self) -> TensorValue:
        return self


class BufferValue(Value):
    """A mutable tensor in a graph: memory that ops read and write in program order.

    Args:
        value: A buffer value or an object with ``__buffervalue__``.

    Raises:
        TypeError: If ``value`` cannot stand for a buffer.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph
    >>> with Graph("g", input_types=[BufferType(DType.float32, [4], DeviceRef.CPU())]) as g:
    ...     state = g.inputs[0].buffer
    ...     state[...] = state[...] + 1
    ...     g.output(state[0])
    """

    __slots__ = ()

    _type: BufferType

    def __new__(cls, value: Any) -> BufferValue:
        """The buffer value that ``value`` is or stands for."""
        if has_buffer_value(value):
            return value.__buffervalue__()
        raise TypeError(f"expected a buffer value, got {_what(value)}")

    def __buffervalue__(self) -> BufferValue:
        return self

    def __getitem__(self, index: Any) -> TensorValue:
        """The current contents, or a slice of them, as a tensor; see ``ops.slice_tensor``."""
        ops = TensorValue._ops
        whole = ops.buffer_load(self)
        return whole if index is ... else whole[index]

    def __setitem__(self, index: Any, val: TensorValue) -> None:
        """Writes ``val`` over the contents, or over a slice; see ``ops.buffer_store_slice``."""
        ops = TensorValue._ops
        if index is ...:
            ops.buffer_store(self, val)
        else:
            ops.buffer_store_slice(
                self, val, index if isinstance(index, (tuple, list)) else [index]
            )

    def print(self, label: str = "debug_buffer") -> None:
        """Prints the contents when the graph runs."""
        TensorValue._ops.print(self[...], label)


def _what(value: Any) -> str:
    if isinstance(value, Value):
        return f"a buffer ({value.type.brief()})"
    return f"{type(value).__name__} {value!r:.60}" if value is not None else "None"


def make_value(type_: Type, block: Block) -> Value:
    """A fresh value of that type, defined in ``block``."""
    value: Any = object.__new__(BufferValue if isinstance(type_, BufferType) else TensorValue)
    value._type = type_
    value._block = block
    return value


def as_outputs(result: Any) -> tuple[Any, ...]:
    """What a function that builds returned, as a tuple: None, one value, or several.

    Raises:
        TypeError: For a dict or a string, which are iterable by accident.
    """
    if result is None:
        return ()
    if isinstance(result, (Value, Dim, Shape)) or not isinstance(result, Iterable):
        return (result,)
    if isinstance(result, (str, dict)):
        raise TypeError(
            f"values must be returned, got a {type(result).__name__}; "
            "return one value, or a list or tuple of them"
        )
    return tuple(result)


StrongTensorValueLike: TypeAlias = TensorValue | HasTensorValue | Shape | Dim
TensorValueLike: TypeAlias = (
    StrongTensorValueLike | int | float | np.integer[Any] | np.floating[Any] | DLPackArray
)
BufferValueLike: TypeAlias = BufferValue | HasBufferValue
