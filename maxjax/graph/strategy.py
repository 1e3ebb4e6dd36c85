# SPDX-License-Identifier: Apache-2.0
"""How weights are divided among devices: strategies, which cut the part of each device out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from maxjax.graph.dim import StaticDim

if TYPE_CHECKING:
    from maxjax.graph.value import TensorValue
    from maxjax.graph.weight import Weight

__all__ = ["Segment", "ShardingStrategy"]


def _bounds(size: int, i: int, n: int) -> tuple[int, int]:
    """The part of ``size`` that is number ``i`` of ``n``; the first ones are larger by one."""
    each, more = divmod(size, n)
    start = i * each + min(i, more)
    return start, start + each + (i < more)


def _length(weight: Weight, axis: int) -> int:
    """The size of a dimension.

    Raises:
        IndexError: If there is no such axis.
        TypeError: If it is symbolic: how it would be divided is not known.
    """
    dims = weight.shape
    if not -len(dims) <= axis < len(dims):
        raise IndexError(f"weight {weight.name!r} of rank {len(dims)} has no axis {axis}")
    dim = dims[axis]
    if not isinstance(dim, StaticDim):
        raise TypeError(
            f"dimension {axis} of weight {weight.name!r} is {dim}; only numbers are divided"
        )
    return dim.dim


def _cut(weight: Weight, axis: int, start: int, stop: int) -> TensorValue:
    at = axis % len(weight.shape)
    return weight[(*[slice(None)] * at, slice(start, stop))]


def _together(weight: Weight, axis: int, ranges: Iterable[tuple[int, int]]) -> TensorValue:
    """Ranges along an axis, one after the other."""
    from maxjax.graph.ops.join import concat  # ops are built on weights' module

    parts = [_cut(weight, axis, start, stop) for start, stop in ranges]
    return parts[0] if len(parts) == 1 else concat(parts, axis % len(weight.shape))


class Segment(NamedTuple):
    """A run of elements along the axis that is divided, for :meth:`ShardingStrategy.segmented`.

    Attributes:
        size: How many elements.
        num_heads: The number of heads, which stay whole; None where any element can be cut from
            the next.

    >>> from maxjax.graph.weight import Segment
    >>> Segment.even(7).shard_range(0, 3), Segment.head_aware(5, 2).shard_range(1, 2)
    ((0, 3), (6, 10))
    """

    size: int
    num_heads: int | None = None

    @staticmethod
    def even(size: int) -> Segment:
        """Elements that are divided one by one."""
        return Segment(size)

    @staticmethod
    def head_aware(num_heads: int, head_dim: int) -> Segment:
        """Heads of ``head_dim`` elements, which are divided head by head."""
        return Segment(num_heads * head_dim, num_heads)

    def shard_range(self, i: int, num_devices: int) -> tuple[int, int]:
        """The first element of a device's part, and the one after its last."""
        if self.num_heads is None:
            return _bounds(self.size, i, num_devices)
        start, stop = _bounds(self.num_heads, i, num_devices)
        each = self.size // self.num_heads if self.num_heads else 0
        return start * each, stop * each


# What a strategy does, from a weight, the number of the device and how many there are.


@dataclasses.dataclass(frozen=True)
class _Replicate:
    def __call__(self, weight: Weight, i: int, n: int) -> TensorValue:
        return weight.__tensorvalue__()


@dataclasses.dataclass(frozen=True)
class _Axis:
    axis: int
    name: str

    def __call__(self, weight: Weight, i: int, n: int) -> TensorValue:
        return _cut(weight, self.axis, *_bounds(_length(weight, self.axis), i, n))


@dataclasses.dataclass(frozen=True)
class _StackedQkv:
    heads: int
    head_dim: int

    def __call__(self, weight: Weight, i: int, n: int) -> TensorValue:
        rows, each = _length(weight, 0), self.heads * self.head_dim
        if rows != 3 * each:
            raise ValueError(
                f"weight {weight.name!r} has {rows} rows; queries, keys and values of "
                f"{self.heads} heads of {self.head_dim} are {3 * each}"
            )
        start, stop = (h * self.head_dim for h in _bounds(self.heads, i, n))
        return _together(weight, 0, [(k * each + start, k * each + stop) for k in range(3)])


@dataclasses.dataclass(frozen=True)
class _Segments:
    axis: int
    segments: tuple[Segment, ...]

    def __call__(self, weight: Weight, i: int, n: int) -> TensorValue:
        size, total = _length(weight, self.axis), sum(s.size for s in self.segments)
        # Packed elements: an axis that is shorter by a factor, as for two numbers in a byte.
        ranges, at = [], 0
        for segment in self.segments:
            start, stop = segment.shard_range(i, n)
            ranges.append(tuple(_packed(weight, b, size, total) for b in (at + start, at + stop)))
            at += segment.size
        return _together(weight, self.axis, ranges)  # pyright: ignore[reportArgumentType]


def _packed(weight: Weight, element: int, size: int, total: int) -> int:
    """Where an element is along an axis that holds ``total`` elements packed in ``size``."""
    place, rest = divmod(element * size, total) if total else (0, size)
    if rest or size > total:
        raise ValueError(
            f"the axis of weight {weight.name!r} that is divided has size {size}, and does not "
            f"hold {total} elements that can be cut apart at {element}"
        )
    return place


@dataclasses.dataclass(frozen=True)
class _HeadAware:
    heads: int
    head_dim: int

    def __call__(self, weight: Weight, i: int, n: int) -> TensorValue:
        return _Segments(1, (Segment.head_aware(self.heads, self.head_dim),))(weight, i, n)


@dataclasses.dataclass(frozen=True)
class _GateUp:
    axis: int

    def __call__(self, weight: Weight, i: int, n: int) -> TensorValue:
        size = _length(weight, self.axis)
        if size % 2:
            raise ValueError(
                f"axis {self.axis} of weight {weight.name!r} has the odd size {size}; gate and up "
                "are halves of it"
            )
        start, stop = _bounds(size // 2, i, n)
        return _together(weight, self.axis, [(start, stop), (size // 2 + start, size // 2 + stop)])


@dataclasses.dataclass(frozen=True)
class _ByLayer:
    name: str

    def __call__(self, weight: Weight, i: int, n: int) -> TensorValue:
        raise NotImplementedError(
            f"{self.name} says how a layer is divided, not a weight; give weight "
            f"{weight.name!r} a strategy of its own, such as ShardingStrategy.rowwise"
        )


@dataclasses.dataclass(frozen=True)
class ShardingStrategy:
    """How a weight is divided among devices.

    Where parts cannot be equal, the first devices have one more.

    Args:
        num_devices: How many parts there are.
        shard: Gives, of a weight, the number of a part and ``num_devices``, the part.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, ShardingStrategy, Weight
    >>> w = Weight("w", DType.float32, [7, 4], DeviceRef.CPU())
    >>> w.sharding_strategy = ShardingStrategy.rowwise(2)
    >>> with Graph("g"):
    ...     [(s.name, s.shape, s.device) for s in w.shard([DeviceRef.GPU(0), DeviceRef.GPU(1)])]
    [('w[0]', [Dim(4), Dim(4)], gpu:0), ('w[1]', [Dim(3), Dim(4)], gpu:1)]
    """

    num_devices: int
    shard: Callable[[Weight, int, int], TensorValue]

    def __call__(self, weight: Weight, i: int) -> TensorValue:
        """Part ``i`` of a weight, as a value of the graph being built, on the weight's device.

        Raises:
            IndexError: If the weight has not the axis that is divided.
            TypeError: If that dimension is symbolic.
            ValueError: If the weight cannot be divided so.
            NotImplementedError: For the strategies of whole layers.
        """
        return self.shard(weight, i, self.num_devices)

    # ---------------------------------------------------------------- strategies

    @staticmethod
    def replicate(num_devices: int) -> ShardingStrategy:
        """All of it on every device."""
        return ShardingStrategy(num_devices, _Replicate())

    @staticmethod
    def rowwise(num_devices: int) -> ShardingStrategy:
        """Parts of axis 0."""
        return ShardingStrategy(num_devices, _Axis(0, "rowwise"))

    @staticmethod
    def columnwise(num_devices: int) -> ShardingStrategy:
        """Parts of axis 1."""
        return ShardingStrategy(num_devices, _Axis(1, "columnwise"))

    @staticmethod
    def axiswise(axis: int, num_devices: int) -> ShardingStrategy:
        """Parts of any axis; negative counts from the end."""
        return ShardingStrategy(num_devices, _Axis(axis, "axiswise"))

    @staticmethod
    def stacked_qkv(num_devices: int, num_heads: int, head_dim: int) -> ShardingStrategy:
        """Heads of queries, keys and values, which are stacked along axis 0 in this order."""
        return ShardingStrategy(num_devices, _StackedQkv(num_heads, head_dim))

    @staticmethod
    def head_aware_columnwise(num_devices: int, num_heads: int, head_dim: int) -> ShardingStrategy:
        """Parts of axis 1 that are whole heads; of packed elements too."""
        return ShardingStrategy(num_devices, _HeadAware(num_heads, head_dim))

    @staticmethod
    def gate_up(num_devices: int, axis: int = 2) -> ShardingStrategy:
        """Of both halves of an axis, the gate's and the other one, a part each."""
        return ShardingStrategy(num_devices, _GateUp(axis))

    @staticmethod
    def segmented(num_devices: int, axis: int, segments: Sequence[Segment]) -> ShardingStrategy:
        """Of each of several runs of elements along an axis a part; of packed elements too."""
        return ShardingStrategy(num_devices, _Segments(axis, tuple(segments)))

    @staticmethod
    def tensor_parallel(num_devices: int) -> ShardingStrategy:
        """For a whole layer, whose weights each have a strategy of their own."""
        return ShardingStrategy(num_devices, _ByLayer("tensor_parallel"))

    @staticmethod
    def expert_parallel(num_devices: int) -> ShardingStrategy:
        """For a layer of experts, of which each device has some."""
        return ShardingStrategy(num_devices, _ByLayer("expert_parallel"))

    # ---------------------------------------------------------------- what it is

    def _is(self, kind: type, **fields: Any) -> bool:
        shard: Any = self.shard
        return isinstance(shard, kind) and all(getattr(shard, k) == v for k, v in fields.items())

    @property
    def is_replicate(self) -> bool:
        """Whether every device has all of it."""
        return self._is(_Replicate)

    @property
    def is_rowwise(self) -> bool:
        """Whether it was made by :meth:`rowwise`."""
        return self._is(_Axis, name="rowwise")

    @property
    def is_colwise(self) -> bool:
        """Whether it was made by :meth:`columnwise`."""
        return self._is(_Axis, name="columnwise")

    @property
    def is_axiswise(self) -> bool:
        """Whether it was made by :meth:`axiswise`."""
        return self._is(_Axis, name="axiswise")

    @property
    def is_stacked_qkv(self) -> bool:
        """Whether it was made by :meth:`stacked_qkv`."""
        return self._is(_StackedQkv)

    @property
    def is_head_aware_colwise(self) -> bool:
        """Whether it was made by :meth:`head_aware_columnwise`."""
        return self._is(_HeadAware)

    @property
    def is_gate_up(self) -> bool:
        """Whether it was made by :meth:`gate_up`."""
        return self._is(_GateUp)

    @property
    def is_segmented(self) -> bool:
        """Whether it was made by :meth:`segmented`."""
        return self._is(_Segments)

    @property
    def is_tensor_parallel(self) -> bool:
        """Whether it was made by :meth:`tensor_parallel`."""
        return self._is(_ByLayer, name="tensor_parallel")

    @property
    def is_expert_parallel(self) -> bool:
        """Whether it was made by :meth:`expert_parallel`."""
        return self._is(_ByLayer, name="expert_parallel")

    @property
    def sharded_axis(self) -> int | None:
        """The axis that is divided, as it was given; None where there is none."""
        shard = self.shard
        if isinstance(shard, (_Axis, _GateUp, _Segments)):
            return shard.axis
        if isinstance(shard, _StackedQkv):
            return 0
        return 1 if isinstance(shard, _HeadAware) else None


def check_count(strategy: ShardingStrategy, count: int, name: str) -> None:
    """Refuses more devices than a strategy has parts.

    Raises:
        ValueError: If there are more.
    """
    if count > strategy.num_devices:
        raise ValueError(
            f"weight {name!r} is divided into {strategy.num_devices} parts, for {count} devices"
        )
