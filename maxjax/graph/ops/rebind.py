# SPDX-License-Identifier: Apache-2.0
"""The op that says what sizes are: other dimensions for a tensor, checked when they are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from maxjax.graph.dim import Dim, StaticDim, SymbolicDim, UnboundDimError
from maxjax.graph.op import Op, SizeError
from maxjax.graph.ops._operands import not_negative, shape_of, tensor
from maxjax.graph.shape import Shape, ShapeLike
from maxjax.graph.type import FilterLayout, TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["rebind"]


class Rebind(Op):
    """The same tensor under other dimensions, which are checked when sizes are known."""

    shape: Shape
    message: str
    layout: FilterLayout | None

    def infer(self, x: TensorType) -> TensorType:
        new = self.shape
        not_negative(new)
        if len(new) != len(x.shape):
            raise ValueError(f"rank {len(x.shape)} cannot become {new.brief()} of rank {len(new)}")
        for i, (a, b) in enumerate(zip(x.shape, new, strict=True)):
            if type(a) is StaticDim and type(b) is StaticDim and a.dim != b.dim:
                raise ValueError(f"dimension {i} is {a}, which is never {b}")
        if self.layout is not None:
            return TensorType(x.dtype, new, x.device, self.layout)
        return TensorType._of(x.dtype, new, x.device)

    def at(self, dims: Mapping[str, Any]) -> Rebind:
        return _Check(self.shape, self.message, self.layout, dims)

    def lower(self, x: jax.Array) -> jax.Array:
        return self.at({}).lower(x)


class _Check(Rebind, abstract=True):
    """A rebind at known sizes: names that have none are new, and take the operand's."""

    dims: Mapping[str, Any]

    def lower(self, x: jax.Array) -> jax.Array:
        sizes = dict(self.dims)
        for dim, size in zip(self.shape, x.shape, strict=True):
            if isinstance(dim, SymbolicDim):
                sizes.setdefault(dim.name, size)
        for i, (dim, size) in enumerate(zip(self.shape, x.shape, strict=True)):
            try:
                declared = dim.evaluate(sizes)
            except UnboundDimError as e:
                raise SizeError(f"dimension {i} is to be {dim}: {e}") from None
            if declared != size:
                raise SizeError(self._problem(i, dim, declared, size))
        return x

    def _problem(self, i: int, dim: Dim, declared: Any, size: Any) -> str:
        named = f"{dim}" if isinstance(dim, StaticDim) else f"{dim}, which is {declared}"
        note = f": {self.message}" if self.message else ""
        if isinstance(declared, int) and isinstance(size, int):
            return f"dimension {i} is {size}, not {named}{note}"
        return (
            f"dimension {i} is {size}; whether it equals {named}, cannot be decided for sizes that "
            f"are symbolic: give both one name, or numbers{note}"
        )


def rebind(
    x: TensorValueLike, shape: ShapeLike, message: str = "", layout: FilterLayout | None = None
) -> TensorValue:
    """The same tensor under other dimensions, which are checked when its sizes are known.

    A name that is new in the graph gets the dimension's size; a number, a known name or an
    expression must equal it.

    Args:
        x: A tensor of rank R.
        shape: R dims.
        message: Shown when a size is not as declared.
        layout: How a convolution filter lays out its axes, when the tensor is one.

    Raises:
        TypeError: If ``x`` is not a graph value or ``shape`` not dims.
        ValueError: If the rank differs or two numbers do; when it runs, if a size is not as
            declared.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, ["n", "m"], DeviceRef.CPU())]) as g:
    ...     ops.rebind(g.inputs[0].tensor, ["k", 4])
    TensorValue(float32, [k, 4], cpu:0)
    """
    x = tensor("rebind", x)
    return Rebind(shape_of("rebind", shape, x._type), message, layout)(x)
