# SPDX-License-Identifier: Apache-2.0
"""What the ops on one operand share: their base classes, and the precision they compute in."""

from __future__ import annotations

from abc import abstractmethod

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.dtype import DType
from maxjax.graph.op import Op
from maxjax.graph.ops.cast import convert
from maxjax.graph.type import TensorType

__all__ = ["FloatFunction", "Unary", "is_float", "wide_dtype"]


def wide_dtype(dtype: np.dtype) -> np.dtype:
    """The float dtype in which functions of real numbers of ``dtype`` are computed.

    Floats narrower than 32 bits are computed in ``float32`` and rounded once, at the end, so that
    a function of several steps does not round between them. Integers go to the narrower of
    ``float32`` and ``float64`` that holds them.
    """
    if dtype == np.float64 or (dtype.kind in "iu" and dtype.itemsize > 2):
        return np.dtype(np.float64)
    return np.dtype(np.float32)


class Unary(Op, abstract=True):
    """One operand; the result has its type."""

    def infer(self, x: TensorType) -> TensorType:
        return TensorType._of(x.dtype, x.shape, x.device)


class FloatFunction(Unary, abstract=True):
    """A function of real numbers, in the dtype of its operand.

    Computed in :func:`wide_dtype`. The results for integers and bools are those of the float
    function, converted back as :func:`~maxjax.graph.ops.cast.convert` does.
    """

    def lower(self, x: jax.Array) -> jax.Array:
        wide = wide_dtype(x.dtype)
        if x.dtype == wide:
            return self.apply(x)
        return convert(self.apply(convert(x, DType.of(wide))), DType.of(x.dtype))

    @abstractmethod
    def apply(self, x: jax.Array) -> jax.Array:
        """The function on a ``float32`` or ``float64`` array."""


def is_float(x: jax.Array) -> bool:
    """Whether the elements are floats of any width."""
    return jnp.issubdtype(x.dtype, jnp.floating)
