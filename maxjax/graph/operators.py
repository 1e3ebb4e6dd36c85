# SPDX-License-Identifier: Apache-2.0
"""The operators and methods that graph values and eager tensors share.

Each calls a function of ``_ops``, the namespace that the class using the mixin names:
``maxjax.graph.ops`` for values of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

__all__ = ["TensorOperators"]


def _binary(op: str, *, swapped: bool = False) -> Callable[[Any, Any], Any]:
    if swapped:

        def method(self: Any, other: Any) -> Any:
            return getattr(self._ops, op)(other, self)
    else:

        def method(self: Any, other: Any) -> Any:
            return getattr(self._ops, op)(self, other)

    method.__doc__ = f"``ops.{op}`` of {'the other operand' if swapped else 'this'} and the rest."
    return method


class TensorOperators:
    """Operators and methods of a tensor, in terms of the functions of ``_ops``."""

    __slots__ = ()

    _ops: ClassVar[Any]

    # An operand NumPy must not take apart: `np.float32(2) + x` is ours to answer.
    __array_priority__ = 1000
    __array_ufunc__ = None

    __add__ = _binary("add")
    __radd__ = _binary("add", swapped=True)
    __sub__ = _binary("sub")
    __rsub__ = _binary("sub", swapped=True)
    __mul__ = _binary("mul")
    __rmul__ = _binary("mul", swapped=True)
    __truediv__ = _binary("div")
    __rtruediv__ = _binary("div", swapped=True)
    __floordiv__ = _binary("floor_div")
    __rfloordiv__ = _binary("floor_div", swapped=True)
    __mod__ = _binary("mod")
    __rmod__ = _binary("mod", swapped=True)
    __pow__ = _binary("pow")
    __rpow__ = _binary("pow", swapped=True)
    __matmul__ = _binary("matmul")
    __rmatmul__ = _binary("matmul", swapped=True)
    __and__ = _binary("logical_and")
    __rand__ = _binary("logical_and", swapped=True)
    __or__ = _binary("logical_or")
    __ror__ = _binary("logical_or", swapped=True)
    __xor__ = _binary("logical_xor")
    __rxor__ = _binary("logical_xor", swapped=True)
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")

    # Element-wise, so values have no hash: see __hash__.
    __eq__ = _binary("equal")  # pyright: ignore[reportAssignmentType]
    __ne__ = _binary("not_equal")  # pyright: ignore[reportAssignmentType]
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __lt__(self, other: Any) -> Self:
        """``self < other`` element-wise."""
        return self._ops.logical_not(self._ops.greater_equal(self, other))

    def __le__(self, other: Any) -> Self:
        """``self <= other`` element-wise."""
        return self._ops.logical_not(self._ops.greater(self, other))

    def __neg__(self) -> Self:
        return self._ops.negate(self)

    def __invert__(self) -> Self:
        return self._ops.logical_not(self)

    def __round__(self) -> Self:
        return self._ops.round(self)

    def __divmod__(self, other: Any) -> tuple[Self, Self]:
        return self._ops.floor_div(self, other), self._ops.mod(self, other)

    def __rdivmod__(self, other: Any) -> tuple[Self, Self]:
        return self._ops.floor_div(other, self), self._ops.mod(other, self)

    def __getitem__(self, index: Any) -> Self:
        """A slice; see ``ops.slice_tensor`` for the forms that ``index`` can take."""
        return self._ops.slice_tensor(
            self, list(index) if isinstance(index, (tuple, list)) else [index]
        )

    def __iter__(self) -> Any:
        raise TypeError("a tensor value cannot be iterated over: its size may not be known yet")

    def __contains__(self, item: Any) -> bool:
        raise TypeError("`in` is not defined for a tensor value; compare with == instead")

    def __bool__(self) -> bool:
        raise TypeError(
            "a tensor value has no truth value while the graph is built; use ops.cond or ops.where"
        )

    @property
    def T(self) -> Self:
        """The last two dimensions swapped: ``(..., M, N)`` gives ``(..., N, M)``."""
        return self.transpose(-1, -2)

    def reshape(self, shape: Any) -> Self:
        """``ops.reshape``: the same elements in another shape; one dimension may be -1."""
        return self._ops.reshape(self, shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """``ops.flatten``: dimensions ``start_dim`` to ``end_dim`` as one."""
        return self._ops.flatten(self, start_dim, end_dim)

    def broadcast_to(self, shape: Any) -> Self:
        """``ops.broadcast_to``: repeated along dimensions of size 1 and new leading ones."""
        return self._ops.broadcast_to(self, shape)

    def permute(self, dims: Sequence[int]) -> Self:
        """``ops.permute``: dimensions in another order."""
        return self._ops.permute(self, dims)

    def transpose(self, dim_1: int, dim_2: int) -> Self:
        """``ops.transpose``: two dimensions swapped."""
        return self._ops.transpose(self, dim_1, dim_2)

    def rebind(self, shape: Any, message: str = "") -> Self:
        """``ops.rebind``: the same tensor under other dimensions, checked when it runs."""
        return self._ops.rebind(self, shape, message)

    def cast(self, dtype: Any) -> Self:
        """``ops.cast``: the same values as another dtype."""
        return self._ops.cast(self, dtype)

    def to(self, device: Any) -> Self:
        """``ops.transfer_to``: the same tensor on another device."""
        return self._ops.transfer_to(self, device)

    def argmax(self, axis: int = -1) -> Self:
        """``ops.argmax``: ``int64`` index of the first largest element along ``axis``."""
        return self._ops.argmax(self, axis)

    def max(self, axis: int = -1) -> Self:
        """``ops.max`` along ``axis``, which is kept with size 1."""
        return self._ops.max(self, axis=axis)

    def min(self, axis: int = -1) -> Self:
        """``ops.min`` along ``axis``, which is kept with size 1."""
        return self._ops.min(self, axis=axis)

    def mean(self, axis: int = -1) -> Self:
        """``ops.mean`` along ``axis``, which is kept with size 1."""
        return self._ops.mean(self, axis)

    def var(self, axis: int = -1) -> Self:
        """The population variance along ``axis``, which is kept with size 1.

        Raises:
            TypeError: For a bool tensor.
        """
        x: Any = self
        if x.dtype.name == "bool":
            raise TypeError("var: the variance of a bool tensor is not defined; cast it first")
        off = x - x.mean(axis)
        return (off * off).mean(axis)

    def stdev(self, axis: int = -1) -> Self:
        """The population standard deviation along ``axis``, which is kept with size 1.

        Raises:
            TypeError: For a bool tensor.
        """
        return self._ops.sqrt(self.var(axis))

    def print(self, label: str = "debug_tensor") -> None:
        """``ops.print``: prints the values when the graph runs."""
        self._ops.print(self, label)
