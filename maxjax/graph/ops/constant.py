# SPDX-License-Identifier: Apache-2.0
"""Constants: arrays in the program, weights from outside it, and shapes as tensors."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.driver import Buffer, Device, DLPackArray
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import DimLike
from maxjax.graph.ir import current_graph
from maxjax.graph.op import Op, refused
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue

__all__ = ["constant", "constant_external", "shape_to_tensor"]

_CPU = DeviceRef.CPU()


class Constant(Op):
    """An array that is part of the program. The array is never written to."""

    value: np.ndarray
    device: DeviceRef = _CPU

    def _key(self) -> tuple[Any, ...]:
        return self.value.dtype, self.value.shape, self.value.tobytes(), self.device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def infer(self) -> TensorType:
        return TensorType._of(DType.of(self.value.dtype), Shape(self.value.shape), self.device)

    def lower(self) -> jax.Array:
        return jnp.asarray(self.value, dtype=self.value.dtype)


class ConstantExternal(Op):
    """A weight: data that is bound by name when the graph is loaded."""

    name: str
    type: TensorType
    align: int | None = None
    is_placeholder: bool = False

    def infer(self) -> TensorType:
        return self.type

    def lower(self) -> jax.Array:
        raise AssertionError("weights are arguments of the lowered function")


class ShapeToTensor(Op):
    """Dimensions as an ``int64`` vector."""

    shape: Shape

    def infer(self) -> TensorType:
        return TensorType._of(DType.int64, Shape([len(self.shape)]), _CPU)

    def lower(self) -> jax.Array:
        sizes = tuple(self.shape)
        if all(isinstance(d, int) for d in sizes):
            return jnp.asarray(np.asarray(sizes, np.int64))
        return jnp.stack([jnp.asarray(d, dtype=jnp.int64) for d in sizes])


@functools.lru_cache(maxsize=1024)
def _scalar(value: Any, kind: type, dtype: DType, device: DeviceRef) -> Constant:
    """A rank-0 constant; ``kind`` keeps 1, 1.0 and True apart in the cache."""
    return Constant(_frozen(_nearest(np.asarray(value), dtype)), device)


def literal(value: Any, dtype: DType, device: DeviceRef) -> TensorValue:
    """A constant of ``dtype`` from a number or array that is known to fit it."""
    kind = type(value)
    if kind is int or kind is bool or (kind is float and value != 0):
        return _scalar(value, kind, dtype, device)()
    if isinstance(value, (int, float, np.number)):
        # 0.0 and -0.0 would share an entry of the cache
        return Constant(_frozen(_nearest(np.asarray(value), dtype)), device)()
    array = value.to_numpy() if isinstance(value, Buffer) else np.asarray(value)
    with np.errstate(over="ignore"):
        return Constant(_frozen(array.astype(dtype.np)), device)()


def _nearest(numbers: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers as ``dtype``, rounded to the nearest; floats too large for it become infinite."""
    with np.errstate(over="ignore"):
        return numbers.astype(dtype.np)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _device(who: str, device: Device | DeviceRef) -> DeviceRef:
    if not isinstance(device, (Device, DeviceRef)):
        raise refused(who, TypeError, f"device must be a Device or DeviceRef, got {device!r}")
    return DeviceRef.from_device(device)


def constant(
    value: DLPackArray | Sequence[Any] | float | np.number[Any],
    dtype: DType | None = None,
    device: Device | DeviceRef | None = None,
) -> TensorValue:
    """A tensor that is part of the program.

    Args:
        value: A number or nested lists of numbers, which need ``dtype`` and ``device``; or an
            array (NumPy, JAX, ``Buffer``, DLPack), which keeps its dtype and is copied.
        dtype: The element type; for an array it must be the array's own.
        device: Where the tensor lives; an array without one goes to the CPU.

    Raises:
        TypeError: If a number comes without dtype or device, or for an element type below a byte.
        ValueError: If a number is outside the range of an integer ``dtype`` or not whole, lists
            are ragged, or an array has another dtype.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, ops
    >>> with Graph("g") as g:
    ...     ops.constant([[1, 2], [3, 4]], DType.int32, DeviceRef.CPU())
    TensorValue(int32, [2, 2], cpu:0)
    """
    if dtype is not None and not isinstance(dtype, DType):
        raise refused("constant", TypeError, f"dtype must be a DType, got {dtype!r}")
    if isinstance(value, (int, float, np.number)) or _is_list(value):
        if dtype is None or device is None:
            lacks = "dtype" if dtype is None else "device"
            raise refused("constant", TypeError, f"a number or a list needs a {lacks} as well")
        array = _from_numbers(value, dtype)
    else:
        array = _from_array(value, dtype)
    ref = _CPU if device is None else _device("constant", device)
    return Constant(_frozen(array), ref)()


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _from_array(value: Any, dtype: DType | None) -> np.ndarray:
    if isinstance(value, Buffer):
        array = np.array(value.to_numpy())
    elif isinstance(value, (np.ndarray, jax.Array)):
        array = np.array(value)
    elif hasattr(value, "__dlpack__"):
        array = np.array(np.from_dlpack(value))
    else:
        what = type(value).__name__
        raise refused(
            "constant", TypeError, f"value must be a number, a list or an array, got {what}"
        )
    if array.dtype.kind not in "biufV":
        raise refused(
            "constant", TypeError, f"no DType holds the elements of a {array.dtype} array"
        )
    try:
        own = DType.of(array.dtype)
    except (TypeError, ValueError) as e:
        raise refused("constant", type(e), str(e)) from None
    if dtype is not None and dtype is not own:
        raise refused(
            "constant",
            ValueError,
            f"the array is {own.name}, not {dtype.name}; convert it first, or leave dtype out and "
            "use ops.cast",
        )
    return array


def _from_numbers(value: Any, dtype: DType) -> np.ndarray:
    """A number or nested lists of them as an array of ``dtype``."""
    if dtype.size_in_bits < 8 and dtype is not DType.bool:
        narrow = f"{dtype.name} is narrower than a byte; make a wider constant and cast it"
        raise refused("constant", TypeError, narrow)
    try:
        numbers = np.asarray(value)
    except ValueError:
        ragged = "the lists at each level must be of equal length"
        raise refused("constant", ValueError, ragged) from None
    if not numbers.size:
        return numbers.astype(dtype.np)
    if numbers.dtype.kind == "O" or (numbers.dtype.kind == "f" and not dtype.is_float()):
        # Integers beyond 64 bits, or floats for an integer dtype (NumPy makes floats of lists with
        # integers beyond 63 bits, too): look at the numbers themselves.
        numbers = np.array(value, dtype=object)
        for v in numbers.flat:
            if not isinstance(v, (int, float, np.number)):
                raise _not_a_number(v)
    elif numbers.dtype.kind not in "biuf":
        raise _not_a_number(numbers.flat[0])
    if not dtype.is_float():
        return _in_range(_whole(numbers, dtype), dtype)
    try:
        return _nearest(numbers.astype(np.float64), dtype)
    except OverflowError:
        large = "an integer is too large for a float; give math.inf if that is meant"
        raise refused("constant", ValueError, large) from None


def _whole(numbers: np.ndarray, dtype: DType) -> np.ndarray:
    """An array of numbers as one of ints."""
    if numbers.dtype.kind != "O":
        return numbers
    ints = np.empty(numbers.shape, object)
    for i, v in enumerate(numbers.flat):
        if isinstance(v, (float, np.floating)) and not float(v).is_integer():
            whole = f"{v} is not a whole number, and {dtype.name} holds only those"
            raise refused("constant", ValueError, whole)
        ints.flat[i] = int(v)
    return ints


def _in_range(ints: np.ndarray, dtype: DType) -> np.ndarray:
    """Integers as the integer or bool ``dtype``, none of them changed by it."""
    low, high = (0, 1) if dtype is DType.bool else (np.iinfo(dtype.np).min, np.iinfo(dtype.np).max)
    for v in (int(ints.min()), int(ints.max())):
        if not low <= v <= high:
            outside = f"{v} is outside {dtype.name}, which holds {low} to {high}"
            raise refused("constant", ValueError, outside)
    return ints.astype(dtype.np)


def _not_a_number(value: Any) -> Exception:
    return refused(
        "constant", TypeError, f"expected numbers, got {type(value).__name__} {value!r:.60}"
    )


def constant_external(
    name: str, type: TensorType, align: int | None = None, is_placeholder: bool = False
) -> TensorValue:
    """A weight of the graph: data bound by ``name`` when the graph is loaded.

    Args:
        name: The key in the weights registry.
        type: The weight's type.
        align: The alignment of its data in bytes; kept, and not needed here.
        is_placeholder: Whether calls of the subgraph that declares it prepend their prefix to
            ``name``.

    Raises:
        ValueError: If the graph has another weight of that name.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g") as g:
    ...     ops.constant_external("w", TensorType(DType.float32, [2, 2], DeviceRef.CPU()))
    TensorValue(float32, [2, 2], cpu:0)
    """
    if not isinstance(type, TensorType):
        raise refused("constant_external", TypeError, f"type must be a TensorType, got {type!r}")
    graph = current_graph("constant_external")
    return graph.declare_weight(ConstantExternal(name, type, align, is_placeholder))


def shape_to_tensor(shape: Iterable[DimLike]) -> TensorValue:
    """A shape as an ``int64`` vector of its sizes, on the CPU.

    Args:
        shape: Dimensions: ints, names or ``Dim`` objects.

    Returns:
        A tensor of shape ``(rank,)``.

    Raises:
        TypeError: If ``shape`` is not iterable, or an element cannot be a dimension.
        ValueError: If a name is malformed.

    >>> from maxjax.graph import Graph, ops
    >>> with Graph("g") as g:
    ...     ops.shape_to_tensor([2, 3])
    TensorValue(int64, [2], cpu:0)
    """
    try:
        dims = Shape(shape)
    except (TypeError, ValueError) as e:
        raise refused("shape_to_tensor", type(e), str(e)) from None
    return ShapeToTensor(dims)()
