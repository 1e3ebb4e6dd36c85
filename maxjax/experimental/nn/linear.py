# SPDX-License-Identifier: Apache-2.0
"""``Linear`` and ``Embedding``: products with a matrix, and rows of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from maxjax.experimental import functional as F
from maxjax.experimental import random
from maxjax.experimental.nn.module import Module
from maxjax.experimental.tensor import Tensor
from maxjax.graph.dim import Dim, DimLike
from maxjax.graph.shape import ShapeLike

__all__ = ["Embedding", "Linear"]


class Linear(Module[[Tensor], Tensor]):
    """``x @ weight.T + bias``, with parameters drawn from the normal distribution.

    Args:
        in_dim: The size of the last axis of ``x``.
        out_dim: That of the result.
        bias: Whether there is a bias.
        quant_config: None: for quantized weights see ``F.qmatmul``.

    Attributes:
        weight: A tensor of shape ``(out_dim, in_dim)``.
        bias: A tensor of shape ``(out_dim,)``, or 0.

    Raises:
        TypeError: If ``quant_config`` is given.

    >>> import numpy as np
    >>> layer = Linear(3, 2, bias=False)
    >>> layer.load_state_dict({"weight": np.float32([[1, 0, 0], [0, 1, 1]])})
    >>> layer(Tensor([[1, 2, 3]])).to_numpy().tolist()
    [[1.0, 5.0]]
    """

    weight: Tensor
    bias: Tensor | Literal[0]

    def __init__(
        self, in_dim: DimLike, out_dim: DimLike, *, bias: bool = True, quant_config: Any = None
    ) -> None:
        if quant_config is not None:
            raise TypeError(
                "Linear takes no quant_config: its weight is of floats; F.qmatmul and "
                "F.dequantize compute with quantized ones"
            )
        self.quant_config = None
        self.weight = random.normal([out_dim, in_dim])
        self.bias = random.normal([out_dim]) if bias else 0

    @property
    def in_dim(self) -> Dim:
        """The size of the last axis of its argument."""
        return self.weight.shape[1]

    @property
    def out_dim(self) -> Dim:
        """The size of the last axis of its result."""
        return self.weight.shape[0]

    def __rich_repr__(self) -> Iterator[Any]:
        yield "in_dim", self.in_dim
        yield "out_dim", self.out_dim
        yield "bias", isinstance(self.bias, Tensor), True

    def forward(self, x: Tensor) -> Tensor:
        """The product of a tensor of shape ``(..., in_dim)``: of shape ``(..., out_dim)``.

        Raises:
            ValueError: If ``x`` has another last dimension, or an element type that does not go
                with that of the weight.
        """
        y = x @ self.weight.T
        return y + self.bias if isinstance(self.bias, Tensor) else y


class Embedding(Module[[Tensor], Tensor]):
    """Rows of a table by their numbers, drawn from the normal distribution.

    Args:
        vocab_size: How many rows there are.
        dim: The size of a row.
        dims: The shape of a row, in place of ``dim``.

    Attributes:
        weight: A tensor of shape ``(vocab_size, *dims)``.

    Raises:
        TypeError: If both ``dim`` and ``dims`` are given, or none.

    >>> from maxjax.dtype import DType
    >>> table = Embedding(10, dim=4)
    >>> table(Tensor([1, 5, 1], dtype=DType.int32)).shape
    [Dim(3), Dim(4)]
    """

    weight: Tensor

    def __init__(
        self, vocab_size: DimLike, *, dim: DimLike | None = None, dims: ShapeLike | None = None
    ) -> None:
        if (dim is None) == (dims is None):
            raise TypeError("give either dim, the size of a row, or dims, its shape")
        row: list[Any] = [dim] if dims is None else list(dims)
        self.weight = random.normal([vocab_size, *row])

    @property
    def vocab_size(self) -> Dim:
        """How many rows there are."""
        return self.weight.shape[0]

    @property
    def dim(self) -> Dim:
        """The size of a row.

        Raises:
            TypeError: If rows have several dimensions.
        """
        dims = self.dims
        if len(dims) != 1:
            raise TypeError(f"rows have the shape {[*map(str, dims)]}: see dims")
        return dims[0]

    @property
    def dims(self) -> list[Dim]:
        """The shape of a row."""
        return list(self.weight.shape[1:])

    def __rich_repr__(self) -> Iterator[Any]:
        yield "vocab_size", self.vocab_size
        yield ("dim", self.dim) if len(self.dims) == 1 else ("dims", self.dims)

    def forward(self, indices: Tensor) -> Tensor:
        """The rows at integers of any shape: of shape ``(*indices.shape, *dims)``.

        Raises:
            ValueError: If the indices are no integers.
        """
        return F.gather(self.weight, indices, axis=0)
