# SPDX-License-Identifier: Apache-2.0
"""``HyperConnection``: several residual streams, mixed around a layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from maxjax.dtype import DType
from maxjax.experimental import functional as F
from maxjax.experimental import random
from maxjax.experimental.nn.module import Module
from maxjax.experimental.tensor import Tensor

__all__ = ["HyperConnection"]


class HyperConnection(Module[[Tensor], tuple[Tensor, Tensor, Tensor]]):
    """Gates for residual streams around a layer, with a mixing matrix that conserves them.

    Manifold-constrained hyper-connections (Xie et al. 2025, arXiv:2512.24880): of ``hc_mult``
    streams, ``pre`` makes the layer's input, ``post`` gives its output to each stream, and
    ``comb``, nearly doubly stochastic by Sinkhorn's iterations, mixes the streams themselves.
    After the layer, stream ``j`` is ``post[j] * y + sum(comb[i, j] * stream[i])`` over ``i``.

    Args:
        hidden_size: The size of a stream.
        hc_mult: How many streams there are.
        hc_sinkhorn_iters: How often rows and columns are normalized.
        hc_eps: Added to what is divided by, and to ``pre`` and ``comb``.
        rms_norm_eps: Added to the mean square of the streams.

    Attributes:
        hc_fn: A tensor of shape ``((2 + hc_mult) * hc_mult, hc_mult * hidden_size)``.
        hc_base: What is added to the gates before they are squashed; zeros.
        hc_scale: What ``pre``, ``post`` and ``comb`` are multiplied by before it; ones.

    >>> gates = HyperConnection(8, 2)
    >>> post, comb, x = gates(Tensor.ones([3, 2, 8]))
    >>> post.shape, comb.shape, x.shape
    ([Dim(3), Dim(2)], [Dim(3), Dim(2), Dim(2)], [Dim(3), Dim(8)])
    """

    def __init__(
        self,
        hidden_size: int,
        hc_mult: int,
        *,
        hc_sinkhorn_iters: int = 20,
        hc_eps: float = 1e-6,
        rms_norm_eps: float = 1e-6,
    ) -> None:
        self.hidden_size = hidden_size
        self.hc_mult = hc_mult
        self.hc_sinkhorn_iters = hc_sinkhorn_iters
        self.hc_eps = hc_eps
        self.rms_norm_eps = rms_norm_eps
        gates = (2 + hc_mult) * hc_mult
        self.hc_fn = random.normal([gates, hc_mult * hidden_size], dtype=DType.float32)
        self.hc_base = Tensor.zeros([gates], dtype=DType.float32)
        self.hc_scale = Tensor.ones([3], dtype=DType.float32)

    def __rich_repr__(self) -> Iterator[Any]:
        yield "hidden_size", self.hidden_size
        yield "hc_mult", self.hc_mult
        yield "hc_sinkhorn_iters", self.hc_sinkhorn_iters, 20
        yield "hc_eps", self.hc_eps, 1e-6
        yield "rms_norm_eps", self.rms_norm_eps, 1e-6

    def forward(self, hidden_streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gates for streams, and the layer's input.

        Args:
            hidden_streams: A tensor of shape ``(rows, hc_mult, hidden_size)``.

        Returns:
            ``post`` of shape ``(rows, hc_mult)`` and ``comb`` of shape
            ``(rows, hc_mult, hc_mult)``, both ``float32``, and the input of the layer, of shape
            ``(rows, hidden_size)`` and the type of the streams.

        Raises:
            ValueError: If the streams have another shape.
        """
        mult, size = self.hc_mult, self.hidden_size
        shape = hidden_streams.shape
        if len(shape) != 3 or list(shape[1:]) != [mult, size]:
            raise ValueError(
                f"expected streams of shape (rows, {mult}, {size}), got {shape.brief()}"
            )
        streams = hidden_streams.cast(DType.float32)
        flat = streams.reshape([shape[0], mult * size])
        norm = F.rsqrt((flat * flat).mean(-1) + self.rms_norm_eps)
        mixes = (flat @ self.hc_fn.T) * norm
        pre, post, comb = self._gates(mixes)
        x = (pre.unsqueeze(2) * streams).sum(1).squeeze(1)
        return post, comb, x.cast(hidden_streams.dtype)

    def _gates(self, mixes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``pre``, ``post`` and ``comb`` from what they are before they are squashed."""
        mult, eps = self.hc_mult, self.hc_eps
        parts = zip(
            mixes.split([mult, mult, mult * mult], axis=1),
            self.hc_base.split([mult, mult, mult * mult]),
            (self.hc_scale[i] for i in range(3)),
            strict=True,
        )
        pre, post, comb = (mix * scale + base for mix, base, scale in parts)
        comb = F.softmax(comb.reshape([comb.shape[0], mult, mult])) + eps
        comb = comb / (comb.sum(1) + eps)
        for _ in range(self.hc_sinkhorn_iters - 1):
            comb = comb / (comb.sum(2) + eps)
            comb = comb / (comb.sum(1) + eps)
        return F.sigmoid(pre) + eps, F.sigmoid(post) * 2, comb
