# SPDX-License-Identifier: Apache-2.0
"""Which token comes next: the likeliest, or one drawn by its probability.

What is drawn from is narrowed as usual: to the ``top_k`` likeliest tokens, and of these to the
fewest whose probabilities add up to ``top_p`` (Holtzman et al. 2019, arXiv:1904.09751).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, TensorType, TensorValue, ops

__all__ = ["MOST", "Sampling", "draw", "input_types", "likeliest"]

MOST = 64
"""The most tokens that are ever drawn from; those less likely are not worth sorting."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        temperature: What scores are divided by: above 1 what is less likely comes more often,
            towards 0 only the likeliest does. More than 0.
        top_k: From how many of the likeliest tokens, at most 64.
        top_p: From the fewest whose probabilities add up to this. More than 0.
        seed: The same seed draws the same tokens.

    Raises:
        ValueError: If one of these is out of its range.
    """

    temperature: float = 1.0
    top_k: int = MOST
    top_p: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature is a number above 0, not {self.temperature}")
        if not 1 <= self.top_k <= MOST:
            raise ValueError(f"top_k is a number from 1 to {MOST}, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is above 0 and at most 1, not {self.top_p}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is a number from 0 to 2**32 - 1, not {self.seed}")

    def inputs(self, step: int) -> tuple[np.generic, ...]:
        """What a graph that draws takes for its step ``step``, after its other inputs."""
        seed = np.int64(self.seed << 31 | step)
        return np.float32(self.temperature), np.int64(self.top_k), np.float32(self.top_p), seed


def input_types(device: DeviceRef) -> list[TensorType]:
    """The types of `Sampling.inputs`."""
    dtypes = (DType.float32, DType.int64, DType.float32, DType.int64)
    return [TensorType(dtype, [], device) for dtype in dtypes]


def likeliest(scores: TensorValue) -> TensorValue:
    """The token that scores highest: ``(batch, vocabulary)`` to int64 ``(batch, 1)``."""
    return ops.argmax(scores, axis=-1)


def draw(
    scores: TensorValue,
    temperature: TensorValue,
    top_k: TensorValue,
    top_p: TensorValue,
    seed: TensorValue,
) -> TensorValue:
    """A token drawn by its probability: ``(batch, vocabulary)`` to int64 ``(batch, 1)``.

    Args:
        scores: float32 of shape ``(batch, vocabulary)``.
        temperature: As in `Sampling`, a float32 scalar.
        top_k: As in `Sampling`, an int64 scalar.
        top_p: As in `Sampling`, a float32 scalar.
        seed: An int64 scalar, another one in each step.
    """
    batch, device = scores.shape[0], scores.device
    best, tokens = ops.top_k(scores, MOST)
    highest = best[:, 0:1]
    total = ops.sum(ops.exp((scores - highest) / temperature), axis=-1)
    p = ops.exp((best - highest) / temperature) / total
    rank = ops.range(0, MOST, 1, dtype=DType.int64, device=device)
    # The token that carries the sum past top_p still counts, so at least one always does.
    kept = (rank < top_k) & (ops.cumsum(p, exclusive=True) < top_p)
    p = ops.where(kept, p, 0.0)
    upto = ops.cumsum(p)
    ops.random.set_seed(seed)
    at = ops.random.uniform(TensorType(DType.float32, [batch, 1], device)) * upto[:, MOST - 1 :]
    # The first whose sum is above the number drawn; rounding may leave none, hence the limit.
    index = ops.sum((upto <= at).cast(DType.int64), axis=-1)
    last = ops.sum(kept.cast(DType.int64), axis=-1) - 1
    index = ops.min(index, last)
    return ops.sum(ops.where(rank == index, tokens, 0), axis=-1)
