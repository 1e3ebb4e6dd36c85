# SPDX-License-Identifier: Apache-2.0
"""Functions over graph values that ``experimental.functional`` has and ``graph.ops`` has not.

Each is made of ops; the functional module turns them into functions over tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.experimental._defaults import defaults
from maxjax.experimental.sharding import (
    BufferLayout,
    DeviceMapping,
    DeviceMesh,
    TensorLayout,
    as_device_mapping,
)
from maxjax.graph import ops
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import DimLike, StaticDim
from maxjax.graph.ir import current_graph
from maxjax.graph.op import refused
from maxjax.graph.ops._operands import is_strong
from maxjax.graph.shape import Shape, ShapeLike
from maxjax.graph.type import BufferType, TensorType
from maxjax.graph.value import (
    BufferValue,
    StrongTensorValueLike,
    TensorValue,
    TensorValueLike,
    Value,
)

__all__: list[str] = []

FILLED: dict[str, dict[str, Any]] = {"full": {}, "ones": {"value": 1}, "zeros": {"value": 0}}
"""The functions that make tensors of one number, and that number where it is fixed."""


def several(device: Any) -> DeviceMapping | None:
    """How a new tensor is spread, as asked for or by default; None on one device."""
    if device is None:
        device = defaults()[1]
    elif not isinstance(device, DeviceMesh | DeviceMapping):
        return None
    mapping = as_device_mapping(device)
    return mapping if mapping.mesh.num_devices > 1 else None


def place(device: Any) -> DeviceRef:
    """The device of a new value: as asked for, or the default one."""
    if isinstance(device, DeviceRef):
        return device
    if isinstance(device, DeviceMapping):
        device = device.mesh
    return DeviceRef.from_device(defaults(None, device)[1].devices[0])


def element_type(dtype: DType | None, device: Any) -> DType:
    """The element type of a new value: as asked for, or the default one."""
    if dtype is not None:
        return dtype
    known = device.mesh if isinstance(device, DeviceMapping) else device
    known = known.to_device() if isinstance(known, DeviceRef) else known
    return defaults(None, known)[0]


def broadcast_to(x: StrongTensorValueLike, shape: ShapeLike) -> TensorValue:
    """Repeated along dimensions of size 1 and new leading ones."""
    return ops.broadcast_to(x, shape)


def clamp(
    x: TensorValueLike, lower_bound: TensorValueLike, upper_bound: TensorValueLike
) -> TensorValue:
    """``x`` with elements below ``lower_bound`` or above ``upper_bound`` replaced by these."""
    return ops.min(ops.max(x, lower_bound), upper_bound)


def complex_mul(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The product of complex numbers, pairs of real ones in the last axis."""
    return ops.complex.mul(lhs, rhs)


def elementwise_max(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The larger of two, element by element."""
    return ops.max(lhs, rhs)


def elementwise_min(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The smaller of two, element by element."""
    return ops.min(lhs, rhs)


def _reduction(name: str, what: str) -> Callable[..., TensorValue]:
    def reduce(x: TensorValueLike, axis: int | None = -1) -> TensorValue:
        op = getattr(ops, name)
        return op(ops.reshape(x, [-1]), axis=0) if axis is None else op(x, axis=axis)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"""{what} along an axis, which is kept with size 1.

    Args:
        x: A tensor.
        axis: The axis, the last one if left out; None for all elements, with shape ``(1,)``.
    """
    return reduce


sum = _reduction("sum", "The sum")
mean = _reduction("mean", "The mean")
prod = _reduction("prod", "The product")
argmax = _reduction("argmax", "The ``int64`` index of the first largest element")
argmin = _reduction("argmin", "The ``int64`` index of the first smallest element")


def _two_in_one(name: str, what: str) -> Callable[..., TensorValue]:
    def either(
        x: TensorValueLike, y: TensorValueLike | None = None, /, axis: int | None = -1
    ) -> TensorValue:
        op = getattr(ops, name)
        if y is not None:
            return op(x, y)
        return op(ops.reshape(x, [-1]), axis=0) if axis is None else op(x, axis=axis)

    either.__name__ = either.__qualname__ = name
    either.__doc__ = f"""The {what} of two, element by element, or of one along an axis.

    Args:
        x: A tensor.
        y: Another, or a number.
        axis: Without ``y``, the axis, which is kept with size 1; None for all elements.
    """
    return either


max = _two_in_one("max", "larger")
min = _two_in_one("min", "smaller")


def split(
    x: TensorValueLike, split_size_or_sections: int | Sequence[int], axis: int = 0
) -> list[TensorValue]:
    """Consecutive parts along an axis.

    Args:
        x: A tensor.
        split_size_or_sections: The size of each part, of which the last may be smaller; or all
            the sizes.
        axis: The axis to divide; its size must be a number.
    """
    if not isinstance(split_size_or_sections, int):
        return ops.split(x, list(split_size_or_sections), axis)
    value = TensorValue(x)
    rank, size = len(value.shape), split_size_or_sections
    if not -rank <= axis < rank:
        raise refused("split", IndexError, f"axis {axis} is out of range for rank {rank}")
    whole = value.shape[axis]
    if not isinstance(whole, StaticDim):
        raise refused(
            "split", TypeError, f"dimension {axis} is {whole}; rebind it to a number first"
        )
    if size < 1:
        raise refused("split", ValueError, f"a part has at least size 1, not {size}")
    sizes = [size] * (whole.dim // size)
    if whole.dim % size:
        sizes.append(whole.dim % size)
    return ops.split(value, sizes, axis)


def stack(values: Iterable[TensorValueLike], axis: int = 0, device: Any = None) -> TensorValue:
    """The tensors one after the other along a new axis.

    Args:
        values: Tensors of one type.
        axis: Where the new axis is.
        device: Where the result is; where they are if left out.
    """
    stacked = ops.stack(values, axis)
    return stacked if device is None else ops.transfer_to(stacked, place(device))


def where(cond: TensorValueLike, x: TensorValueLike, y: TensorValueLike) -> TensorValue:
    """The elements of ``x`` where ``cond`` is True, else those of ``y``; one must be a tensor."""
    if not (is_strong(x) or is_strong(y)):
        raise refused("where", ValueError, "x or y must be a tensor, for its element type")
    return ops.where(cond, x, y)


def print(value: TensorValueLike, name: str) -> None:
    """Prints a tensor's values after a name, when they are computed."""
    ops.print(value if isinstance(value, str) else TensorValue(value), name)


# ---------------------------------------------------------------- making


def constant(value: Any, dtype: DType | None = None, device: Device | None = None) -> TensorValue:
    """A number, nested lists or an array; numbers have the default element type."""
    if hasattr(value, "dtype"):
        where = None if device is None else place(device)
        return ops.constant(value, dtype, where)
    return ops.constant(value, element_type(dtype, device), place(device))


def full(
    shape: ShapeLike, value: Any, *, dtype: DType | None = None, device: Any = None
) -> TensorValue:
    """A number in every place.

    Args:
        shape: The shape.
        value: The number.
        dtype: The element type, the default one if left out.
        device: Where, the default device if left out.
    """
    one = ops.constant(value, element_type(dtype, device), place(device))
    return ops.broadcast_to(one, shape)


def zeros(shape: ShapeLike, *, dtype: DType | None = None, device: Any = None) -> TensorValue:
    """Zeros; arguments as for :func:`full`."""
    return full(shape, 0, dtype=dtype, device=device)


def ones(shape: ShapeLike, *, dtype: DType | None = None, device: Any = None) -> TensorValue:
    """Ones; arguments as for :func:`full`."""
    return full(shape, 1, dtype=dtype, device=device)


def full_like(like: TensorValue, value: Any) -> TensorValue:
    """A number in every place of a tensor like another."""
    return full(like.shape, value, dtype=like.dtype, device=like.device)


def zeros_like(like: TensorValue) -> TensorValue:
    """Zeros in a tensor like another."""
    return full_like(like, 0)


def ones_like(like: TensorValue) -> TensorValue:
    """Ones in a tensor like another."""
    return full_like(like, 1)


def range(
    start: TensorValueLike,
    stop: TensorValueLike,
    step: TensorValueLike = 1,
    out_dim: DimLike | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
) -> TensorValue:
    """``start``, ``start + step``, ..., before ``stop``.

    Args:
        start: The first number.
        stop: Where to end.
        step: The distance.
        out_dim: How many there are, where the bounds are tensors.
        dtype: The element type, the default one if left out.
        device: Where, the default device if left out.
    """
    kind = element_type(dtype, device)
    return ops.range(start, stop, step, out_dim, dtype=kind, device=place(device))


def hann_window(
    window_length: int, *, periodic: bool = True, dtype: DType | None = None, device: Any = None
) -> TensorValue:
    """A Hann window; see ``ops.hann_window``."""
    return ops.hann_window(window_length, place(device), periodic, element_type(dtype, device))


def _drawn(shape: ShapeLike, dtype: DType | None, device: Any) -> TensorType:
    return TensorType(element_type(dtype, device), Shape(shape), place(device))


def uniform(
    shape: ShapeLike = (),
    range: tuple[float, float] = (0, 1),
    *,
    dtype: DType | None = None,
    device: Any = None,
) -> TensorValue:
    """Random numbers from ``range[0]`` to below ``range[1]``, all equally likely."""
    return ops.random.uniform(_drawn(shape, dtype, device), range=range)


def gaussian(
    shape: ShapeLike = (),
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: DType | None = None,
    device: Any = None,
) -> TensorValue:
    """Random numbers of the normal distribution."""
    return ops.random.gaussian(_drawn(shape, dtype, device), mean=mean, std=std)


def uniform_like(like: TensorValue, range: tuple[float, float] = (0, 1)) -> TensorValue:
    """Random numbers from ``range[0]`` to below ``range[1]`` in a tensor like another."""
    return uniform(like.shape, range, dtype=like.dtype, device=like.device)


def gaussian_like(like: TensorValue, mean: float = 0.0, std: float = 1.0) -> TensorValue:
    """Random numbers of the normal distribution in a tensor like another."""
    return gaussian(like.shape, mean, std, dtype=like.dtype, device=like.device)


# ---------------------------------------------------------------- kernels, weights, buffers


def _with_extensions(paths: Any) -> None:
    if paths:
        current_graph("custom").kernels.load_paths(
            [paths] if isinstance(paths, str) or hasattr(paths, "__fspath__") else list(paths)
        )


def custom(
    name: str,
    device: Any,
    values: Sequence[TensorValue],
    out_types: Sequence[Any],
    parameters: Mapping[str, Any] | None = None,
    custom_extensions: Any = None,
) -> list[Value]:
    """What a custom kernel computes; see ``ops.custom``."""
    _with_extensions(custom_extensions)
    types = [_type(t) for t in out_types]
    return ops.custom(name, place(device), list(values), types, parameters)


def inplace_custom(
    name: str,
    device: Any,
    values: Sequence[BufferValue | TensorValue],
    out_types: Sequence[Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    custom_extensions: Any = None,
) -> list[Value]:
    """What a custom kernel computes that writes its buffers; see ``ops.inplace_custom``."""
    _with_extensions(custom_extensions)
    types = None if out_types is None else [_type(t) for t in out_types]
    return ops.inplace_custom(name, place(device), list(values), types, parameters)


def _type(declared: Any) -> Any:
    return declared.local_types[0] if isinstance(declared, TensorLayout) else declared


def constant_external(
    name: str, layout: Any, align: int | None = None, is_placeholder: bool = False
) -> TensorValue:
    """A weight, whose data is bound when the graph is loaded.

    Args:
        name: Its name.
        layout: Its element type, shape and device, as a layout or a ``TensorType``.
        align: Accepted.
        is_placeholder: Whether the name is relative to the prefix of each call of a subgraph.
    """
    type_ = _type(layout)
    if isinstance(type_, BufferType) or isinstance(layout, BufferLayout):
        raise refused("constant_external", TypeError, "a weight is not written")
    return ops.constant_external(name, type_, align, is_placeholder)


def buffer_of(value: TensorValue) -> BufferValue:
    """A new buffer with a tensor's values."""
    type_ = BufferType(value.dtype, value.shape, value.device)
    made = ops.buffer_create(type_)
    ops.buffer_store(made, value)
    return made
