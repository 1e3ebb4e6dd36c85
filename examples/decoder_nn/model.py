# SPDX-License-Identifier: Apache-2.0
"""The decoder with ``maxjax.experimental.nn``.

Parameters have the names of the checkpoints of such models. All layers are one body of the graph,
called once for each with its own weights.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from maxjax.driver import CPU
from maxjax.dtype import DType
from maxjax.experimental import functional as F
from maxjax.experimental import nn
from maxjax.experimental.sharding import TensorLayout
from maxjax.experimental.tensor import Tensor

__all__ = ["TOKENS", "Config", "Decoder", "build", "random_weights", "rotary_table"]

TOKENS = TensorLayout(DType.int64, ["batch", "seq"], CPU())
"""The layout of the argument."""


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes of the decoder.

    Attributes:
        vocab: How many tokens there are.
        hidden: The size of the residual stream.
        layers: How many layers there are.
        heads: How many heads ask.
        kv_heads: How many heads answer; it divides ``heads``.
        head_dim: The size of a head.
        mlp: The size of the middle of the feed-forward network.
        positions: How many positions there are.
        theta: The base of the rotary embedding's wavelengths.
        eps: Added to mean squares by the norms.
    """

    vocab: int = 512
    hidden: int = 64
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    mlp: int = 160
    positions: int = 128
    theta: float = 1e6
    eps: float = 1e-6


class Attention(nn.Module[[Tensor, nn.RotaryEmbedding], Tensor]):
    """Causal attention in which several heads that ask share one that answers.

    Args:
        config: The sizes.
    """

    def __init__(self, config: Config) -> None:
        heads, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.q_proj = nn.Linear(config.hidden, heads, bias=False)
        self.k_proj = nn.Linear(config.hidden, kv, bias=False)
        self.v_proj = nn.Linear(config.hidden, kv, bias=False)
        self.o_proj = nn.Linear(heads, config.hidden, bias=False)
        self.q_norm = nn.RMSNorm(config.head_dim, config.eps)
        self.k_norm = nn.RMSNorm(config.head_dim, config.eps)

    def forward(self, x: Tensor, rope: nn.RotaryEmbedding) -> Tensor:
        """Attention over ``(batch, seq, hidden)``."""
        batch, seq, _ = x.shape
        size, answering = self.head_dim, self.kv_heads
        asking = self.heads // answering
        q = self.q_proj(x).reshape([batch, seq, self.heads, size])
        k = self.k_proj(x).reshape([batch, seq, answering, size])
        v = self.v_proj(x).reshape([batch, seq, answering, size])
        q, k = rope(self.q_norm(q)), rope(self.k_norm(k))
        # The heads that share an answering one lie one after the other along its rows.
        q = q.permute([0, 2, 1, 3]).reshape([batch, answering, asking * seq, size])
        k, v = k.permute([0, 2, 3, 1]), v.permute([0, 2, 1, 3])
        scores = (q @ k * size**-0.5).reshape([batch, answering, asking, seq, seq])
        at = F.range(0, seq, 1, seq, dtype=DType.int64, device=x.device)
        scores = F.where(at.unsqueeze(1) >= at, scores, float("-inf"))
        mixed = F.softmax(scores).reshape([batch, answering, asking * seq, seq]) @ v
        mixed = mixed.reshape([batch, self.heads, seq, size]).permute([0, 2, 1, 3])
        return self.o_proj(mixed.reshape([batch, seq, self.heads * size]))


class Mlp(nn.Module[[Tensor], Tensor]):
    """The gated feed-forward network.

    Args:
        config: The sizes.
    """

    def __init__(self, config: Config) -> None:
        self.gate_proj = nn.Linear(config.hidden, config.mlp, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.mlp, bias=False)
        self.down_proj = nn.Linear(config.mlp, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """What is added to ``(batch, seq, hidden)``."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module[[Tensor, nn.RotaryEmbedding], Tensor]):
    """Attention and the feed-forward network, each with a norm before it.

    Args:
        config: The sizes.
    """

    def __init__(self, config: Config) -> None:
        self.input_layernorm = nn.RMSNorm(config.hidden, config.eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.eps)
        self.mlp = Mlp(config)

    def forward(self, x: Tensor, rope: nn.RotaryEmbedding) -> Tensor:
        """The next ``(batch, seq, hidden)``."""
        x = x + self.self_attn(self.input_layernorm(x), rope)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module[[Tensor], Tensor]):
    """The decoder.

    Args:
        config: The sizes.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab, dim=config.hidden)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.norm = nn.RMSNorm(config.hidden, config.eps)
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of each next token: ``(batch, seq)`` gives ``(batch, seq, vocab)``."""
        # The table follows from the sizes: made here, it is a constant and not a parameter.
        rope = nn.TransposedRotaryEmbedding(Tensor(rotary_table(self.config)))
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            # Bodies belong to graphs: where tensors are computed at once there is none.
            step = nn.as_subgraph(layer, name="layer") if F.in_graph_context() else layer
            x = step(x, rope)
        return self.lm_head(self.norm(x))


def build(config: Config) -> Decoder:
    """The decoder with parameters that are drawn only if they are asked for."""
    with F.lazy():
        return Decoder(config)


def rotary_table(config: Config) -> np.ndarray:
    """Cosines and sines by position: ``float32`` of shape ``(positions, head_dim / 2, 2)``."""
    rates = config.theta ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
    angles = np.outer(np.arange(config.positions), rates)
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def random_weights(decoder: Decoder, seed: int = 0) -> dict[str, np.ndarray]:
    """Random values for the parameters, which leave the size of what passes about the same."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, parameter in decoder.parameters:
        shape = [int(d) for d in parameter.shape]
        draw = rng.normal(size=shape)
        value = 1 + draw / 10 if len(shape) == 1 else draw / shape[-1] ** 0.5
        weights[name] = value.astype(np.float32)
    return weights
