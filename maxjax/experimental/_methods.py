# SPDX-License-Identifier: Apache-2.0
"""The methods of tensors that are calls of functions over them."""

from __future__ import annotations

from typing import Any

from maxjax.dtype import DType
from maxjax.graph.operators import TensorOperators

__all__ = ["TensorMethods"]


class TensorMethods(TensorOperators):
    """Operators and methods of a tensor, in terms of the functions of ``_ops``."""

    __slots__ = ()

    def cast(self, dtype: DType) -> Any:
        """The same values as another element type; itself if it has that."""
        x: Any = self
        return x if x.real and x.dtype is dtype else self._ops.cast(x, dtype)

    def reshape(self, shape: Any) -> Any:
        """The same elements in another shape; one dimension may be -1."""
        return self._ops.reshape(self, shape)

    def broadcast_to(self, shape: Any) -> Any:
        """Repeated along dimensions of size 1 and new leading ones."""
        return self._ops.broadcast_to(self, shape)

    def permute(self, dims: list[int]) -> Any:
        """Dimensions in another order."""
        return self._ops.permute(self, dims)

    def transpose(self, dim1: int, dim2: int) -> Any:
        """Two dimensions swapped."""
        return self._ops.transpose(self, dim1, dim2)

    def squeeze(self, axis: int) -> Any:
        """Without a dimension of size 1."""
        return self._ops.squeeze(self, axis)

    def unsqueeze(self, axis: int) -> Any:
        """With a new dimension of size 1."""
        return self._ops.unsqueeze(self, axis)

    def split(self, split_size_or_sections: Any, axis: int = 0) -> list[Any]:
        """Parts of one size, or of these sizes, along an axis."""
        return self._ops.split(self, split_size_or_sections, axis)

    def clip(self, *, min: Any = None, max: Any = None) -> Any:
        """With elements below ``min`` or above ``max`` replaced by these."""
        x: Any = self
        if min is not None:
            x = self._ops.elementwise_max(x, min)
        if max is not None:
            x = self._ops.elementwise_min(x, max)
        return x

    def sum(self, axis: int | None = -1) -> Any:
        """The sum along an axis, which is kept with size 1; None is for all elements."""
        return self._ops.sum(self, axis)

    def mean(self, axis: int | None = -1) -> Any:
        """The mean along an axis, which is kept with size 1; None is for all elements."""
        return self._ops.mean(self, axis)

    def prod(self, axis: int | None = -1) -> Any:
        """The product along an axis, which is kept with size 1; None is for all elements."""
        return self._ops.prod(self, axis)

    def max(self, axis: int | None = -1) -> Any:
        """The largest along an axis, which is kept with size 1; None is for all elements."""
        return self._ops.max(self, axis=axis)

    def min(self, axis: int | None = -1) -> Any:
        """The smallest along an axis, which is kept with size 1; None is for all elements."""
        return self._ops.min(self, axis=axis)

    def argmax(self, axis: int | None = -1) -> Any:
        """Where the largest is along an axis, which is kept with size 1; None is for all."""
        return self._ops.argmax(self, axis)
