# SPDX-License-Identifier: Apache-2.0
"""The encoder in plain JAX, by hand: what the graph version is measured against.

Weights keep the checkpoint's ``(out, in)`` layout and layers are unrolled: of the usual
variants (transposed weights, one fused QKV matmul, ``lax.scan`` over layers,
``jax.nn.dot_product_attention``) none is faster than this on CPU beyond the noise.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from .assets import Config, weights_path

__all__ = ["embed", "encode", "load_params"]

Params = dict[str, Any]


class Affine(NamedTuple):
    """The two parameters of a linear layer or of a layer norm."""

    weight: jax.Array
    bias: jax.Array


def load_params(config: Config | None = None, path: Path | None = None) -> Params:
    """Reads the checkpoint into a pytree of float32 arrays on the default device.

    Args:
        config: The sizes of the encoder; by default those of the installed package.
        path: The checkpoint; by default that of the installed package.

    Raises:
        ModuleNotFoundError: If either is left out and the model's package is not installed.
    """
    config = config or Config.load()
    tensors = load_file(path or weights_path())

    def affine(name: str) -> Affine:
        return Affine(tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def layer(prefix: str) -> Params:
        return {
            "query": affine(f"{prefix}.attention.self.query"),
            "key": affine(f"{prefix}.attention.self.key"),
            "value": affine(f"{prefix}.attention.self.value"),
            "out": affine(f"{prefix}.attention.output.dense"),
            "attention_norm": affine(f"{prefix}.attention.output.LayerNorm"),
            "up": affine(f"{prefix}.intermediate.dense"),
            "down": affine(f"{prefix}.output.dense"),
            "norm": affine(f"{prefix}.output.LayerNorm"),
        }

    params = {
        "words": tensors["embeddings.word_embeddings.weight"],
        "positions": tensors["embeddings.position_embeddings.weight"],
        "types": tensors["embeddings.token_type_embeddings.weight"],
        "norm": affine("embeddings.LayerNorm"),
        "layers": [layer(f"encoder.layer.{i}") for i in range(config.layers)],
    }
    return jax.device_put(params)


def _linear(p: Affine, x: jax.Array) -> jax.Array:
    return x @ p.weight.T + p.bias


def _layer_norm(p: Affine, x: jax.Array, epsilon: float) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon) * p.weight + p.bias


def _attention(p: Params, x: jax.Array, bias: jax.Array, config: Config) -> jax.Array:
    def heads(y: jax.Array) -> jax.Array:
        return y.reshape(*y.shape[:2], config.heads, config.head_dim)

    q, k, v = (heads(_linear(p[name], x)) for name in ("query", "key", "value"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * config.head_dim**-0.5 + bias
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return _linear(p["out"], mixed.reshape(x.shape))


def _layer(p: Params, x: jax.Array, bias: jax.Array, config: Config) -> jax.Array:
    x = _layer_norm(p["attention_norm"], x + _attention(p, x, bias, config), config.epsilon)
    inner = jax.nn.gelu(_linear(p["up"], x), approximate=False)
    return _layer_norm(p["norm"], x + _linear(p["down"], inner), config.epsilon)


def encode(
    params: Params,
    input_ids: jax.Array,
    attention_mask: jax.Array,
    token_type_ids: jax.Array,
    config: Config,
) -> jax.Array:
    """The token embeddings after the last layer, ``(batch, seq, hidden)``."""
    x = params["words"][input_ids] + params["types"][token_type_ids]
    x = x + params["positions"][: input_ids.shape[1]]
    x = _layer_norm(params["norm"], x, config.epsilon)
    bias = jnp.where(attention_mask == 1, 0.0, jnp.finfo(x.dtype).min)[:, None, None, :]
    for p in params["layers"]:
        x = _layer(p, x, bias, config)
    return x


@partial(jax.jit, static_argnames="config")
def embed(
    params: Params,
    input_ids: jax.Array | np.ndarray,
    attention_mask: jax.Array | np.ndarray,
    token_type_ids: jax.Array | np.ndarray,
    config: Config,
) -> jax.Array:
    """Sentence embeddings of length 1: the mean over each sentence's tokens.

    Args:
        params: What `load_params` gave.
        input_ids: Token ids, integers, ``(batch, seq)``.
        attention_mask: 1 for a token and 0 for padding, ``(batch, seq)``.
        token_type_ids: Segment ids, ``(batch, seq)``.
        config: The sizes of the encoder.

    Returns:
        float32 of shape ``(batch, hidden)``.
    """
    hidden = encode(params, input_ids, attention_mask, token_type_ids, config)
    mask = attention_mask[..., None].astype(hidden.dtype)
    mean = (hidden * mask).sum(1) / jnp.maximum(mask.sum(1), 1e-9)
    return mean / jnp.maximum(jnp.linalg.norm(mean, axis=-1, keepdims=True), 1e-12)
