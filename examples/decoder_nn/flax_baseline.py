# SPDX-License-Identifier: Apache-2.0
"""The decoder with Flax's ``nnx``: what the one with ``nn`` must equal."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from .model import Config, rotary_table

__all__ = ["Decoder", "build"]


class Attention(nnx.Module):
    """Causal attention in which several heads that ask share one that answers."""

    def __init__(self, config: Config, rngs: nnx.Rngs) -> None:
        self.config = config
        heads, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = nnx.Linear(config.hidden, heads, use_bias=False, rngs=rngs)
        self.k_proj = nnx.Linear(config.hidden, kv, use_bias=False, rngs=rngs)
        self.v_proj = nnx.Linear(config.hidden, kv, use_bias=False, rngs=rngs)
        self.o_proj = nnx.Linear(heads, config.hidden, use_bias=False, rngs=rngs)
        self.q_norm = nnx.RMSNorm(config.head_dim, epsilon=config.eps, rngs=rngs)
        self.k_norm = nnx.RMSNorm(config.head_dim, epsilon=config.eps, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        batch, seq, _ = x.shape
        c = self.config
        q = self.q_proj(x).reshape(batch, seq, c.heads, c.head_dim)
        k = self.k_proj(x).reshape(batch, seq, c.kv_heads, c.head_dim)
        v = self.v_proj(x).reshape(batch, seq, c.kv_heads, c.head_dim)
        q, k = rotated(self.q_norm(q), c), rotated(self.k_norm(k), c)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.reshape(batch, seq, c.heads * c.head_dim))


class Mlp(nnx.Module):
    """The gated feed-forward network."""

    def __init__(self, config: Config, rngs: nnx.Rngs) -> None:
        self.gate_proj = nnx.Linear(config.hidden, config.mlp, use_bias=False, rngs=rngs)
        self.up_proj = nnx.Linear(config.hidden, config.mlp, use_bias=False, rngs=rngs)
        self.down_proj = nnx.Linear(config.mlp, config.hidden, use_bias=False, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.down_proj(nnx.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nnx.Module):
    """Attention and the feed-forward network, each with a norm before it."""

    def __init__(self, config: Config, rngs: nnx.Rngs) -> None:
        self.input_layernorm = nnx.RMSNorm(config.hidden, epsilon=config.eps, rngs=rngs)
        self.self_attn = Attention(config, rngs)
        self.post_attention_layernorm = nnx.RMSNorm(config.hidden, epsilon=config.eps, rngs=rngs)
        self.mlp = Mlp(config, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nnx.Module):
    """The decoder.

    Args:
        config: The sizes.
        rngs: Where Flax draws the parameters from.
    """

    def __init__(self, config: Config, rngs: nnx.Rngs) -> None:
        self.embed_tokens = nnx.Embed(config.vocab, config.hidden, rngs=rngs)
        self.layers = nnx.List([Layer(config, rngs) for _ in range(config.layers)])
        self.norm = nnx.RMSNorm(config.hidden, epsilon=config.eps, rngs=rngs)
        self.lm_head = nnx.Linear(config.hidden, config.vocab, use_bias=False, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """The logits of each next token: ``(batch, seq)`` gives ``(batch, seq, vocab)``."""
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def rotated(x: jax.Array, config: Config) -> jax.Array:
    """Heads of shape ``(batch, seq, heads, head_dim)`` with their positions in them."""
    table = rotary_table(config)[: x.shape[1], None]
    cos, sin = table[..., 0], table[..., 1]
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def build(config: Config, weights: Mapping[str, np.ndarray]) -> Decoder:
    """The decoder with the weights of the one with ``nn``, by the names these have."""
    decoder = Decoder(config, nnx.Rngs(0))
    for name, value in weights.items():
        *path, _ = name.split(".")
        part = decoder
        for step in path:
            part = part[int(step)] if step.isdigit() else getattr(part, step)
        if isinstance(part, nnx.Linear):
            part.kernel[...] = jnp.asarray(value.T)
        elif isinstance(part, nnx.Embed):
            part.embedding[...] = jnp.asarray(value)
        else:
            part.scale[...] = jnp.asarray(value)
    return decoder
