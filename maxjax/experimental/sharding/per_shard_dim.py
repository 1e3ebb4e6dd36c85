# SPDX-License-Identifier: Apache-2.0
"""``PerShardDim``: a dimension that has a size of its own on each device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from maxjax.graph.dim import Dim, DimLike, StaticDim, SymbolicDim
from maxjax.graph.shape import Shape

__all__ = [
    "PerShardDim",
    "global_dim",
    "global_shape",
    "is_one",
    "is_per_shard_dim",
    "is_static",
    "is_symbolic",
    "local_dim_at",
    "local_shape_at",
    "make_per_shard_dim",
]

_set = object.__setattr__


class PerShardDim(Dim):
    """A dimension that has a size of its own on each device, and a size as a whole.

    It is what a split axis of a tensor has in its shape. As text, as a number and when compared
    with other dims it is the whole. Arithmetic works on every device's size and on the whole, as
    in ``shape[0] * 2``.

    Args:
        per_shard: The size on each device of the mesh.
        global_dim: The size of the whole, if the tensor has one.

    Raises:
        ValueError: If there are no sizes.

    >>> rows = PerShardDim([3, 2], global_dim=5)
    >>> print(rows, int(rows) == 5, rows * 2)
    5 True 10
    >>> rows.per_shard
    (Dim(3), Dim(2))
    """

    __slots__ = ("_global", "per_shard")
    per_shard: tuple[Dim, ...]
    _global: Dim | None

    def __new__(
        cls, per_shard: Iterable[DimLike] | PerShardDim, *, global_dim: DimLike | None = None
    ) -> PerShardDim:
        """The dim of a size for each device; such a dim as it is."""
        if isinstance(per_shard, PerShardDim):
            return per_shard
        self = object.__new__(cls)
        _set(self, "per_shard", tuple(Dim(d) for d in per_shard))
        _set(self, "_global", None if global_dim is None else Dim(global_dim))
        if not self.per_shard:
            raise ValueError("a dim with a size for each device needs at least one size")
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.per_shard, self._global)

    @property
    def parameters(self) -> Iterable[SymbolicDim]:
        """The symbolic dims in the sizes of the devices, each once."""
        return iter(dict.fromkeys(p for d in self.per_shard for p in d.parameters))

    @property
    def is_static(self) -> bool:
        """Whether all sizes are numbers."""
        return all(isinstance(d, StaticDim) for d in self.per_shard)

    @property
    def is_symbolic(self) -> bool:
        """Whether the whole is a name."""
        return isinstance(self._global, SymbolicDim)

    def substitute(self, mapping: Mapping[str, DimLike]) -> Dim:
        """Replaces names by dims, in the sizes and in the whole."""
        whole = None if self._global is None else self._global.substitute(mapping)
        return PerShardDim([d.substitute(mapping) for d in self.per_shard], global_dim=whole)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """The size of the whole when the names in it have the given sizes."""
        return global_dim(self).evaluate(env)

    def __str__(self) -> str:
        if self._global is not None:
            return str(self._global)
        return f"({' | '.join(map(str, self.per_shard))})"

    def __repr__(self) -> str:
        whole = "" if self._global is None else f", global={self._global!r}"
        return f"PerShardDim({self.per_shard!r}{whole})"

    def __int__(self) -> int:
        if self._global is None:
            raise TypeError(
                f"{self} has a size on each device and none as a whole; take one of .per_shard"
            )
        return int(self._global)

    def __index__(self) -> int:
        return int(self)

    def __hash__(self) -> int:
        return hash(global_dim(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PerShardDim):
            return self.per_shard == other.per_shard and global_dim(self) == global_dim(other)
        if self._global is None:
            return False if isinstance(other, Dim | int | str) else NotImplemented
        return self._global == other

    def __add__(self, other: DimLike) -> Dim:
        return _combined(operator.add, self, other)

    def __radd__(self, other: DimLike) -> Dim:
        return _combined(operator.add, other, self)

    def __sub__(self, other: DimLike) -> Dim:
        return _combined(operator.sub, self, other)

    def __rsub__(self, other: DimLike) -> Dim:
        return _combined(operator.sub, other, self)

    def __mul__(self, other: DimLike) -> Dim:
        return _combined(operator.mul, self, other)

    def __rmul__(self, other: DimLike) -> Dim:
        return _combined(operator.mul, other, self)

    def __floordiv__(self, other: DimLike) -> Dim:
        return _combined(operator.floordiv, self, other)

    def __rfloordiv__(self, other: DimLike) -> Dim:
        return _combined(operator.floordiv, other, self)

    def __neg__(self) -> Dim:
        return _combined(operator.sub, 0, self)


def _restored(per_shard: tuple[Dim, ...], whole: Dim | None) -> PerShardDim:
    return PerShardDim(per_shard, global_dim=whole)


def _combined(op: Callable[[Any, Any], Any], left: Any, right: Any) -> Dim:
    """An operation on the sizes of each device, and on the whole.

    Raises:
        ValueError: If the two are of meshes with different numbers of devices.
    """
    try:
        left, right = Dim(left), Dim(right)
    except TypeError:
        return NotImplemented
    counts = {len(d.per_shard) for d in (left, right) if isinstance(d, PerShardDim)}
    if len(counts) > 1:
        raise ValueError(
            f"{left!r} and {right!r} are of meshes with different numbers of devices: "
            f"{', '.join(map(str, sorted(counts)))}"
        )
    (count,) = counts
    sizes = [op(local_dim_at(left, i), local_dim_at(right, i)) for i in range(count)]
    has_whole = all(not isinstance(d, PerShardDim) or d._global is not None for d in (left, right))
    whole = op(global_dim(left), global_dim(right)) if has_whole else None
    return PerShardDim(sizes, global_dim=whole)


def make_per_shard_dim(
    per_shard: Sequence[Dim], *, global_dim: Dim | None = None, force_wrap: bool = False
) -> Dim:
    """A dim of a size for each device; the size itself if it is the same everywhere.

    Args:
        per_shard: The size on each device.
        global_dim: The size of the whole; with one, the result is always a ``PerShardDim``.
        force_wrap: Makes one in any case.

    Raises:
        ValueError: If there are no sizes.

    >>> make_per_shard_dim([Dim(3), Dim(3)]), make_per_shard_dim([Dim(3), Dim(2)])
    (Dim(3), PerShardDim((Dim(3), Dim(2))))
    """
    sizes = [local_dim_at(d, i) for i, d in enumerate(per_shard)]
    if global_dim is None and not force_wrap and sizes and all(d == sizes[0] for d in sizes):
        return sizes[0]
    return PerShardDim(sizes, global_dim=global_dim)


def is_per_shard_dim(d: object) -> TypeGuard[PerShardDim]:
    """Whether a dim has a size of its own on each device."""
    return isinstance(d, PerShardDim)


def global_dim(d: Dim) -> Dim:
    """The size of the whole: what it is said to be, else the sum of the parts.

    >>> global_dim(PerShardDim(["a", "b"])), global_dim(Dim(3))
    (Dim('a') + Dim('b'), Dim(3))
    """
    if not isinstance(d, PerShardDim):
        return d
    if d._global is not None:
        return d._global
    total = d.per_shard[0]
    for size in d.per_shard[1:]:
        total = total + size
    return total


def is_one(d: DimLike) -> bool:
    """Whether a dim, as a whole, is the number 1."""
    whole = global_dim(Dim(d))
    return isinstance(whole, StaticDim) and whole.dim == 1


def is_static(d: Dim) -> bool:
    """Whether a dim is a number, on each device."""
    return d.is_static if isinstance(d, PerShardDim) else isinstance(d, StaticDim)


def is_symbolic(d: Dim) -> bool:
    """Whether a dim, as a whole, is a name."""
    return d.is_symbolic if isinstance(d, PerShardDim) else isinstance(d, SymbolicDim)


def local_dim_at(d: Dim, shard: int) -> Dim:
    """The size on a device.

    Raises:
        IndexError: If there is no such device.
    """
    return d.per_shard[shard] if isinstance(d, PerShardDim) else d


def local_shape_at(shape: Sequence[DimLike], shard: int) -> Shape:
    """The shape of the part on a device.

    >>> local_shape_at([PerShardDim([3, 2], global_dim=5), Dim("n")], 1)
    [Dim(2), Dim('n')]
    """
    return Shape([local_dim_at(Dim(d), shard) for d in shape])


def global_shape(shape: Sequence[DimLike]) -> Shape:
    """The shape of the whole, in dims without parts.

    >>> global_shape([PerShardDim([3, 2], global_dim=5), Dim("n")])
    [Dim(5), Dim('n')]
    """
    return Shape([global_dim(Dim(d)) for d in shape])
