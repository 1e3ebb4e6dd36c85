# SPDX-License-Identifier: Apache-2.0
"""One decoding step in plain JAX, by hand: what the graph version is measured against.

The same weights in the same packed formats, decoded in the program; caches are donated. Of the
variants tried (values with their places first, products with ``dot_general`` and no transpose,
one array for all layers' caches) none is as fast on CPU.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.graph.weights.gguf_file import GGUFFile

from .assets import Config, model_path

__all__ = ["decode", "empty_caches", "load_params"]

Params = dict[str, Any]


def load_params(config: Config | None = None, path: Path | None = None) -> tuple[Params, Params]:
    """The weights of a GGUF file as they are stored, and how each is packed.

    Args:
        config: The sizes of the network; by default those of the 270M one.
        path: The file; by default that of the installed package.

    Raises:
        ModuleNotFoundError: If no path is given and the model's package is not installed.
    """
    file = GGUFFile(path or model_path())
    params: Params = {"layers": [{} for _ in range((config or Config()).layers)]}
    kinds: Params = {"layers": [{} for _ in params["layers"]]}
    for name in file.tensors:
        _, encoding = file.kind(name)
        *prefix, short, _ = name.split(".")
        at, kind = (
            (params, kinds)
            if not prefix
            else (
                params["layers"][int(prefix[1])],
                kinds["layers"][int(prefix[1])],
            )
        )
        at[short] = file.array(name)
        kind[short] = encoding and encoding.value
    return jax.device_put(params), kinds


def empty_caches(config: Config, context: int) -> list[tuple[jax.Array, jax.Array]]:
    """Keys ``(1, kv_heads, context, head_dim)`` and values, places last, for each layer."""
    keys = (1, config.kv_heads, context, config.head_dim)
    values = (1, config.kv_heads, config.head_dim, context)
    return [(jnp.zeros(keys), jnp.zeros(values)) for _ in range(config.layers)]


# ---------------------------------------------------------------- packed weights


def _half(b: jax.Array) -> jax.Array:
    bits = b[..., 0].astype(jnp.uint16) | (b[..., 1].astype(jnp.uint16) << 8)
    return jax.lax.bitcast_convert_type(bits, jnp.float16).astype(jnp.float32)[..., None]


def _nibbles(b: jax.Array) -> jax.Array:
    return (b[..., None, :] >> jnp.array([[0], [4]], jnp.uint8)) & 15


def _q8_0(b: jax.Array) -> jax.Array:
    return _half(b) * jax.lax.bitcast_convert_type(b[..., 2:], jnp.int8).astype(jnp.float32)


def _q5_0(b: jax.Array) -> jax.Array:
    high = (b[..., 2:6, None] >> jnp.arange(8, dtype=jnp.uint8)) & 1
    high = high.reshape(*b.shape[:-1], 2, 16)
    q = (_nibbles(b[..., 6:]) | (high << 4)).astype(jnp.float32) - 16
    return _half(b)[..., None] * q


def _q4_k(b: jax.Array) -> jax.Array:
    d, m, s = b[..., 4:8], b[..., 8:12], b[..., 12:16]
    scales = jnp.concatenate([d & 63, (s & 15) | ((d >> 2) & 48)], -1).astype(jnp.float32)
    offsets = jnp.concatenate([m & 63, (s >> 4) | ((m >> 2) & 48)], -1).astype(jnp.float32)
    q = _nibbles(b[..., 16:].reshape(*b.shape[:-1], 4, 32)).reshape(*b.shape[:-1], 8, 32)
    scales, offsets = _half(b) * scales, _half(b[..., 2:]) * offsets
    return scales[..., None] * q.astype(jnp.float32) - offsets[..., None]


def _q6_k(b: jax.Array) -> jax.Array:
    low = _nibbles(b[..., :128].reshape(*b.shape[:-1], 2, 64)).reshape(*b.shape[:-1], 8, 32)
    high = b[..., 128:192].reshape(*b.shape[:-1], 2, 1, 32)
    high = ((high >> jnp.arange(0, 8, 2, dtype=jnp.uint8)[:, None]) & 3).reshape(low.shape)
    q = ((low | (high << 4)).astype(jnp.float32) - 32).reshape(*b.shape[:-1], 16, 16)
    scales = jax.lax.bitcast_convert_type(b[..., 192:208], jnp.int8).astype(jnp.float32)
    return (_half(b[..., 208:]) * scales)[..., None] * q


_DECODERS = {"Q8_0": (_q8_0, 34), "Q5_0": (_q5_0, 22), "Q4_K": (_q4_k, 144), "Q6_K": (_q6_k, 210)}


def _unpacked(w: jax.Array, kind: str | None) -> jax.Array:
    if kind is None:
        return w
    decoder, size = _DECODERS[kind]
    return decoder(w.reshape(*w.shape[:-1], -1, size)).reshape(*w.shape[:-1], -1)


# ---------------------------------------------------------------- the network


def _norm(x: jax.Array, w: jax.Array, config: Config) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + config.epsilon) * w


def _rotated(x: jax.Array, place: jax.Array, base: float) -> jax.Array:
    half = x.shape[-1] // 2
    speeds = base ** (-np.arange(half, dtype=np.float64) / half)
    angles = place.astype(jnp.float32) * speeds.astype(np.float32)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def _layer(
    p: Params, kind: Params, x: jax.Array, cache: Any, place: jax.Array, i: int, c: Config
) -> tuple[jax.Array, Any]:
    def linear(name: str, y: jax.Array) -> jax.Array:
        return y @ _unpacked(p[name], kind[name]).T

    base = c.rope_base if c.is_global(i) else c.local_rope_base
    y = _norm(x, p["attn_norm"], c)
    q = linear("attn_q", y).reshape(1, c.kv_heads, c.heads // c.kv_heads, c.head_dim)
    k = linear("attn_k", y).reshape(1, c.kv_heads, 1, c.head_dim)
    v = linear("attn_v", y).reshape(1, c.kv_heads, c.head_dim, 1)
    q = _rotated(_norm(q, p["attn_q_norm"], c), place, base)
    k = _rotated(_norm(k, p["attn_k_norm"], c), place, base)
    keys = jax.lax.dynamic_update_slice(cache[0], k, (0, 0, place, 0))
    values = jax.lax.dynamic_update_slice(cache[1], v, (0, 0, 0, place))
    at = jnp.arange(keys.shape[2])
    seen = at <= place if c.is_global(i) else (at <= place) & (place - at < c.window)
    scores = q @ keys.swapaxes(2, 3) * c.head_dim**-0.5 + jnp.where(seen, 0.0, -1e30)
    mixed = (jax.nn.softmax(scores) @ values.swapaxes(2, 3)).reshape(1, -1)
    x = x + _norm(linear("attn_output", mixed), p["post_attention_norm"], c)
    y = _norm(x, p["ffn_norm"], c)
    y = linear("ffn_down", jax.nn.gelu(linear("ffn_gate", y)) * linear("ffn_up", y))
    return x + _norm(y, p["post_ffw_norm"], c), (keys, values)


def decode(config: Config, kinds: Params) -> Any:
    """A step: ``(params, token, place, caches)`` to the next token, scores, and caches.

    The token is int32 of shape ``(1,)``, the place an int32 scalar, the scores are float32 of
    shape ``(1, vocabulary)``. The caches are donated.

    Args:
        config: The sizes of the network.
        kinds: How the weights are packed, as `load_params` says.
    """

    @partial(jax.jit, donate_argnums=3)
    def step(params: Params, token: jax.Array, place: jax.Array, caches: Any) -> Any:
        rows = _unpacked(params["token_embd"][token], kinds["token_embd"])
        x = rows * config.hidden**0.5
        after = []
        for i, cache in enumerate(caches):
            p, kind = params["layers"][i], kinds["layers"][i]
            x, cache = _layer(p, kind, x, cache, place, i, config)
            after.append(cache)
        x = _norm(x, params["output_norm"], config)
        scores = x @ _unpacked(params["token_embd"], kinds["token_embd"]).T
        return jnp.argmax(scores, -1).astype(jnp.int32), scores, after

    return step
