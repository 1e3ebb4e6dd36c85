# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings of positions (Su et al. 2021, arXiv:2104.09864)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from maxjax.experimental import functional as F
from maxjax.experimental.nn.module import Module, module_dataclass
from maxjax.experimental.tensor import Tensor
from maxjax.graph.dim import Dim, DimLike, StaticDim

__all__ = ["RotaryEmbedding", "TransposedRotaryEmbedding"]


@module_dataclass
class RotaryEmbedding(Module[..., Tensor]):
    """Turns pairs of neighbours by angles that grow with their position.

    Args:
        weight: Cosines and sines, of shape ``(max_sequence_length, dim / 2, 2)``.

    >>> import numpy as np
    >>> angles = np.arange(16) * np.pi / 2
    >>> table = np.stack([np.cos(angles), np.sin(angles)], axis=-1)[:, None]
    >>> rope = RotaryEmbedding(Tensor(table.astype(np.float32)))
    >>> rope
    RotaryEmbedding(dim=2, max_sequence_length=16)
    >>> rope(Tensor([[[[1, 2]], [[1, 2]]]])).to_numpy().round().tolist()
    [[[[1.0, 2.0]], [[-2.0, 1.0]]]]
    """

    weight: Tensor

    @property
    def dim(self) -> int:
        """The size of the last axis of its argument."""
        return 2 * _static(self.weight.shape[1])

    @property
    def max_sequence_length(self) -> int:
        """How many positions there are."""
        return _static(self.weight.shape[0])

    def __rich_repr__(self) -> Iterator[Any]:
        yield "dim", self.dim
        yield "max_sequence_length", self.max_sequence_length

    def forward(self, x: Tensor, start_pos: DimLike = 0) -> Tensor:
        """Heads with their positions in them.

        Args:
            x: A tensor of shape ``(..., seq, heads, dim)``.
            start_pos: The position of the first along ``seq``: a number or a dimension.

        Returns:
            A tensor of the type of ``x``.

        Raises:
            ValueError: If ``x`` has another rank or last dimension, or positions beyond the table.
        """
        if x.rank < 3 or x.shape[-1] != self.dim:
            raise ValueError(
                f"expected a tensor of shape (..., seq, heads, {self.dim}), got {x.shape.brief()}"
            )
        start, seq = Dim(start_pos), x.shape[-3]
        # A table of a wider element type than that of the heads does not widen these.
        turns = self.weight[start : start + seq].unsqueeze(1).cast(x.dtype)
        return self._flat(F.complex_mul(self._paired(x), turns), x)

    def _paired(self, x: Tensor) -> Tensor:
        """The pairs to turn, in a last axis of size 2."""
        return F.as_interleaved_complex(x)

    def _flat(self, pairs: Tensor, like: Tensor) -> Tensor:
        """Pairs in the places where they were taken."""
        return pairs.reshape(like.shape)


class TransposedRotaryEmbedding(RotaryEmbedding):
    """As :class:`RotaryEmbedding`, with pairs of an element and the one half a row further.

    Args:
        weight: Cosines and sines, of shape ``(max_sequence_length, dim / 2, 2)``.

    >>> import numpy as np
    >>> table = np.zeros((8, 2, 2), np.float32)
    >>> table[..., 1] = 1
    >>> rope = TransposedRotaryEmbedding(Tensor(table))
    >>> rope(Tensor([[[1, 2, 3, 4]]])).to_numpy().tolist()
    [[[-3.0, -4.0, 1.0, 2.0]]]
    """

    def _paired(self, x: Tensor) -> Tensor:
        *outer, last = x.shape
        return x.reshape([*outer, 2, last // 2]).transpose(-2, -1)

    def _flat(self, pairs: Tensor, like: Tensor) -> Tensor:
        return pairs.transpose(-2, -1).reshape(like.shape)


def _static(dim: Dim) -> int:
    if not isinstance(dim, StaticDim):
        raise ValueError(f"the table of a rotary embedding has fixed sizes, not {dim}")
    return dim.dim
