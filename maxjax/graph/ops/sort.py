# SPDX-License-Identifier: Apache-2.0
"""Elements in the order of their size, and the largest and smallest of them.

The order is the same on every device: equal elements keep theirs (-0 equals 0), and NaN counts as
larger than everything. ``top_k`` gives what comes first in the descending order, ``bottom_k`` what
comes first in the ascending one.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from maxjax.dtype import DType
from maxjax.graph.dim import StaticDim
from maxjax.graph.op import Op, refused
from maxjax.graph.ops._operands import axis_of, int_of, tensor, with_dim
from maxjax.graph.ops._unary import is_float
from maxjax.graph.ops._window import holds
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["argsort", "bottom_k", "top_k"]


def _keys(x: jax.Array) -> jax.Array:
    """Numbers in the same order that have no special cases; ``float64`` stays as it is."""
    if not (x.dtype.itemsize <= 2 or x.dtype == jnp.float32):
        return x
    # Exact in float32. Integers from here on: XLA may take subnormal floats for 0.
    bits = lax.bitcast_convert_type(lax.convert_element_type(x, jnp.float32), jnp.int32)
    magnitude = bits & _LARGEST
    keys = jnp.where(magnitude == jnp.int32(0), jnp.int32(0), _flip_negative(bits))
    return jnp.where(magnitude > _INFINITY, _LARGEST, keys)


_LARGEST, _INFINITY = np.int32(0x7FFFFFFF), np.int32(0x7F800000)


def _flip_negative(bits: jax.Array) -> jax.Array:
    """From the bits of floats to integers in the order of IEEE 754, and back."""
    return jnp.where(bits < jnp.int32(0), bits ^ _LARGEST, bits)


def _first(x: jax.Array, k: int, axis: int, *, descending: bool) -> jax.Array:
    """The positions of the ``k`` elements that come first."""
    keys = _keys(x)
    if is_float(keys):
        order = jnp.argsort(keys, axis, stable=True, descending=descending)
        return lax.slice_in_dim(order, 0, k, axis=axis)
    if not descending:
        keys = ~keys
    if keys.dtype != jnp.int32 or x.dtype == jnp.int32:
        return lax.top_k(keys, k, axis=axis)[1]

    def of_floats(keys: jax.Array) -> jax.Array:
        floats = lax.bitcast_convert_type(_flip_negative(keys), jnp.float32)
        return lax.top_k(floats, k, axis=axis)[1]

    # On CPUs XLA has a fast algorithm for floats alone, and there it keeps to the order of
    # IEEE 754; on GPUs it does not where there are NaNs.
    return lax.platform_dependent(
        keys, cpu=of_floats, default=lambda keys: lax.top_k(keys, k, axis=axis)[1]
    )


class _FirstK(Op, abstract=True):
    """The elements that come first along an axis, and their ``int64`` indices."""

    k: int
    axis: int

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        size = x.shape[self.axis]
        if isinstance(size, StaticDim) and self.k > size.dim:
            raise ValueError(self._too_many(size))
        shape = with_dim(x.shape, self.axis, StaticDim(self.k))
        return (
            TensorType._of(x.dtype, shape, x.device),
            TensorType._of(DType.int64, shape, x.device),
        )

    def lower(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        k, axis = self.k, self.axis
        holds(lambda: k <= x.shape[axis], self._too_many(x.shape[axis]))
        if k == 0:
            empty = lax.slice_in_dim(x, 0, 0, axis=axis)
            return empty, jnp.zeros(empty.shape, jnp.int64)
        at = _first(x, k, axis, descending=isinstance(self, TopK))
        return jnp.take_along_axis(x, at, axis, mode="clip"), at.astype(jnp.int64)

    def _too_many(self, size: object) -> str:
        return f"k is {self.k}, but axis {self.axis} has size {size}"


class TopK(_FirstK):
    """The ``k`` largest elements along an axis, the largest first, and their indices."""


class BottomK(_FirstK):
    """The ``k`` smallest elements along an axis, the smallest first, and their indices."""


class Argsort(Op):
    """The ``int64`` indices that put a vector in order."""

    ascending: bool = True

    def infer(self, x: TensorType) -> TensorType:
        if len(x.shape) != 1:
            raise ValueError(
                f"only a vector, of rank 1, can be sorted, not rank {len(x.shape)}; "
                "reshape it, or use top_k along an axis"
            )
        return TensorType._of(DType.int64, x.shape, x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        order = jnp.argsort(_keys(x), stable=True, descending=not self.ascending)
        return order.astype(jnp.int64)


# ---------------------------------------------------------------- functions


def _first_k(op: type[_FirstK], x: TensorValueLike, k: int, axis: int):
    who = op.mnemonic
    x = tensor(who, x)
    axis = axis_of(who, axis, len(x._type.shape), ValueError)
    k = int_of(who, "k", k, x._type)
    if k < 0:
        raise refused(who, TypeError, f"k is negative: {k}", x._type)
    values, indices = op(k, axis)(x)
    return values, indices


def top_k(input: TensorValueLike, k: int, axis: int = -1) -> tuple[TensorValue, TensorValue]:
    """The ``k`` largest elements along ``axis``, the largest first, and where they are.

    Of equal elements the one with the lower index comes first; NaN counts as the largest.

    Args:
        input: A tensor of shape ``(..., N, ...)``.
        k: From 0 to N.
        axis: The axis of length N; negative counts from the end.

    Returns:
        The elements, a tensor of the dtype of ``input``, and their indices along ``axis``, an
        ``int64`` tensor, both of shape ``(..., k, ...)``.

    Raises:
        TypeError: If ``input`` is not a graph value, ``k`` or ``axis`` not an int, or ``k``
            negative.
        ValueError: If there is no such axis, or ``k`` is larger than N; for an N that is known only
            then, when the graph runs.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 9], DeviceRef.CPU())]) as g:
    ...     ops.top_k(g.inputs[0].tensor, 2)
    (TensorValue(float32, [n, 2], cpu:0), TensorValue(int64, [n, 2], cpu:0))
    """
    return _first_k(TopK, input, k, axis)


def bottom_k(input: TensorValueLike, k: int, axis: int = -1) -> tuple[TensorValue, TensorValue]:
    """The ``k`` smallest elements along ``axis``, the smallest first, and where they are.

    Of equal elements the one with the lower index comes first; NaN counts as the largest.

    Args, results and errors as for :func:`top_k`.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", 9], DeviceRef.CPU())]) as g:
    ...     ops.bottom_k(g.inputs[0].tensor, 2)
    (TensorValue(float32, [n, 2], cpu:0), TensorValue(int64, [n, 2], cpu:0))
    """
    return _first_k(BottomK, input, k, axis)


def argsort(x: TensorValueLike, ascending: bool = True) -> TensorValue:
    """The indices that put the elements of a vector in order.

    Equal elements keep their order; NaN counts as the largest, so it is last when ascending and
    first when descending.

    Args:
        x: A tensor of shape ``(N,)``.
        ascending: Whether the smallest comes first.

    Returns:
        An ``int64`` tensor of shape ``(N,)``.

    Raises:
        TypeError: If ``x`` is not a graph value.
        ValueError: If ``x`` is not of rank 1.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as g:
    ...     ops.argsort(g.inputs[0].tensor, ascending=False)
    TensorValue(int64, [n], cpu:0)
    """
    return Argsort(bool(ascending))(tensor("argsort", x))
