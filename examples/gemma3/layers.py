# SPDX-License-Identifier: Apache-2.0
"""The parts of a Gemma 3 network, as classes that are called with graph values.

Shapes: ``batch`` texts, ``seq`` tokens of each that go in, ``context`` places in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from maxjax.dtype import DType
from maxjax.graph import BufferType, BufferValue, DeviceRef, Dim, TensorType, TensorValue, ops
from maxjax.graph.quantization import QuantizationEncoding
from maxjax.graph.weights import Weights

from .assets import Config

__all__ = [
    "Embedding",
    "Layer",
    "Norm",
    "Parameter",
    "Rope",
    "Take",
    "attention_bias",
    "cache_types",
    "placeholders",
]


@dataclass
class Parameter:
    """A weight of a layer.

    Attributes:
        use: Gives its value in the graph that is being built, as it is stored.
        encoding: How its bytes encode numbers, if they are packed.
    """

    use: Callable[[], TensorValue]
    encoding: QuantizationEncoding | None


Take = Callable[[Weights, str], Parameter]
"""Takes a weight of a checkpoint. If several devices share it, each takes a part, and the text
says of what: of the ``"outputs"`` of a product, of its ``"inputs"``, or ``"all"`` of it."""


def placeholders(prefix: str, device: DeviceRef) -> Take:
    """Weights of whichever layer the shared body is called for; others' are of the same type.

    Args:
        prefix: What layers' names differ in.
        device: Where they are used.
    """

    def take(weights: Weights, part: str) -> Parameter:
        data = weights.data()
        name = weights.name.removeprefix(prefix)
        type_ = TensorType(data.dtype, data.shape, device)
        return Parameter(
            lambda: ops.constant_external(name, type_, is_placeholder=True),
            data.quantization_encoding,
        )

    return take


@dataclass
class Linear:
    """``x @ weight.T``; the weight has shape ``(out, in)``, packed or not."""

    weight: Parameter

    def __call__(self, x: TensorValue) -> TensorValue:
        if self.weight.encoding is None:
            return x @ self.weight.use().T
        return ops.qmatmul(self.weight.encoding, None, x, self.weight.use())


@dataclass
class Norm:
    """Scales the last axis to mean square 1, then by the weight.

    Gemma multiplies by 1 plus a weight; in GGUF files the 1 is already added.
    """

    weight: Parameter

    def __call__(self, x: TensorValue, epsilon: float) -> TensorValue:
        """Normalises ``(..., size)``."""
        return ops.rms_norm(x, self.weight.use(), epsilon)


class Embedding:
    """Token ids to vectors, and vectors to a score for each token.

    Args:
        weights: A matrix of shape ``(vocabulary, hidden)``, packed or not.
        device: Where it is used.
    """

    def __init__(self, weights: Weights, device: DeviceRef) -> None:
        self.weight = weights.allocate(device=device)

    def __call__(self, tokens: TensorValue) -> TensorValue:
        """``(batch, seq)`` ids to ``(batch, seq, hidden)``."""
        rows = ops.gather(self.weight, tokens, axis=0)
        encoding = self.weight.quantization_encoding
        x = rows if encoding is None else ops.dequantize(encoding, rows)
        return x * int(x.shape[-1]) ** 0.5

    def scores(self, x: TensorValue) -> TensorValue:
        """``(batch, hidden)`` to ``(batch, vocabulary)``."""
        encoding = self.weight.quantization_encoding
        if encoding is None:
            return x @ self.weight.T
        return ops.qmatmul(encoding, None, x, self.weight)


@dataclass
class Rope:
    """Rotary position embeddings (Su et al. 2021, arXiv:2104.09864), of halves of a head.

    Attributes:
        cos: ``(batch, seq, 1, head_dim / 2)``.
        sin: The same.
    """

    cos: TensorValue
    sin: TensorValue

    @classmethod
    def at(cls, positions: TensorValue, base: float, head_dim: int) -> Rope:
        """The rotations for positions, ``(batch, seq)``."""
        speeds = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
        speeds = ops.constant(speeds.astype(np.float32), device=positions.device)
        angles = positions.cast(DType.float32).reshape([*positions.shape, 1, 1]) * speeds
        return cls(ops.cos(angles), ops.sin(angles))

    def __call__(self, x: TensorValue) -> TensorValue:
        """Rotates ``(batch, seq, heads, head_dim)``."""
        half = self.cos.shape[-1]
        a, b = ops.split(x, [half, half], axis=-1)
        return ops.concat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], axis=-1)


def attention_bias(queries: TensorValue, keys: TensorValue, window: int | None) -> TensorValue:
    """What is added to attention scores: 0 where a query may look at a key, else very little.

    Args:
        queries: The position of each query in its text, ``(batch, seq)``.
        keys: The position of each key in its text, negative before it, ``(batch, keys)``.
        window: How far a query looks back, itself included; None for no limit.

    Returns:
        float32 of shape ``(batch, 1, 1, seq, keys)``.
    """
    q, k = ops.unsqueeze(queries, 2), ops.unsqueeze(keys, 1)
    seen = (k <= q) & (k >= 0)
    if window is not None:
        seen = seen & (q - k < window)
    zero = ops.constant(0.0, DType.float32, queries.device)
    return ops.unsqueeze(ops.unsqueeze(ops.where(seen, zero, -1e30), 1), 1)


class Attention:
    """Attention to all that the bias allows, with the keys and values of earlier tokens."""

    def __init__(self, weights: Weights, config: Config, take: Take) -> None:
        # Heads of queries are shared out; fewer heads of keys and values than devices are not.
        self.query = Linear(take(weights.attn_q.weight, "outputs"))
        self.key = Linear(take(weights.attn_k.weight, "all"))
        self.value = Linear(take(weights.attn_v.weight, "all"))
        self.out = Linear(take(weights.attn_output.weight, "inputs"))
        self.query_norm = Norm(take(weights.attn_q_norm.weight, "all"))
        self.key_norm = Norm(take(weights.attn_k_norm.weight, "all"))
        self.config = config

    def __call__(
        self,
        x: TensorValue,
        rope: Rope,
        bias: TensorValue,
        keys: BufferValue,
        values: BufferValue,
        place: TensorValue | None,
    ) -> TensorValue:
        c = self.config
        batch, seq, _ = x.shape

        def heads(y: TensorValue, count: int) -> TensorValue:
            return y.reshape([batch, seq, count, c.head_dim])

        q = rope(self.query_norm(heads(self.query(x), c.heads), c.epsilon))
        k = rope(self.key_norm(heads(self.key(x), c.kv_heads), c.epsilon))
        v = heads(self.value(x), c.kv_heads)
        k, v = k.permute([0, 2, 1, 3]), v.permute([0, 2, 3, 1])
        # A prompt fills the cache from its beginning and looks only at itself; a single token goes
        # to its place and looks at all of the cache.
        at = slice(0, seq) if place is None else (slice(place, place + 1), 1)
        keys[:, :, at] = k
        values[:, :, :, at] = v
        if place is not None:
            k, v = keys[...], values[...]
        group, seen = c.heads // c.kv_heads, k.shape[2]
        q = q.reshape([batch, seq, c.kv_heads, group, c.head_dim]).permute([0, 2, 3, 1, 4])
        q = q.reshape([batch, c.kv_heads, seq * group, c.head_dim])
        scores = (q @ k.transpose(2, 3)) * c.head_dim**-0.5
        scores = scores.reshape([batch, c.kv_heads, group, seq, seen]) + bias
        weights = ops.softmax(scores).reshape([batch, c.kv_heads, seq * group, seen])
        mixed = (weights @ v.transpose(2, 3)).reshape([batch, c.kv_heads, group, seq, c.head_dim])
        mixed = mixed.permute([0, 3, 1, 2, 4]).reshape([batch, seq, c.heads * c.head_dim])
        return self.out(mixed)


class Mlp:
    """A gated two-layer perceptron (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, weights: Weights, take: Take) -> None:
        self.gate = Linear(take(weights.ffn_gate.weight, "outputs"))
        self.up = Linear(take(weights.ffn_up.weight, "outputs"))
        self.down = Linear(take(weights.ffn_down.weight, "inputs"))

    def __call__(self, x: TensorValue) -> TensorValue:
        return self.down(ops.gelu(self.gate(x), "tanh") * self.up(x))


class Layer:
    """Attention and a perceptron, normalised before and after, each added to its input.

    Args:
        weights: The weights of the layer, or of one of those that share this body.
        config: The sizes of the network; of heads those that are here.
        take: Takes weights.
    """

    def __init__(self, weights: Weights, config: Config, take: Take) -> None:
        self.attention = Attention(weights, config, take)
        self.mlp = Mlp(weights, take)
        self.before_attention = Norm(take(weights.attn_norm.weight, "all"))
        self.after_attention = Norm(take(weights.post_attention_norm.weight, "all"))
        self.before_mlp = Norm(take(weights.ffn_norm.weight, "all"))
        self.after_mlp = Norm(take(weights.post_ffw_norm.weight, "all"))
        self.epsilon = config.epsilon

    def __call__(
        self,
        x: TensorValue,
        cos: TensorValue,
        sin: TensorValue,
        bias: TensorValue,
        keys: BufferValue,
        values: BufferValue,
        place: TensorValue | None = None,
    ) -> TensorValue:
        """One layer's step.

        Args:
            x: ``(batch, seq, hidden)``.
            cos: As in `Rope`.
            sin: As in `Rope`.
            bias: As from `attention_bias`.
            keys: The layer's cache, ``(batch, kv_heads, context, head_dim)``; written.
            values: The same for values, ``(batch, kv_heads, head_dim, context)``.
            place: Where in the cache the one token goes; None for a prompt, which fills it from
                its beginning.
        """
        x = self.attended(x, self.attend(x, Rope(cos, sin), bias, keys, values, place))
        return self.thought(x, self.think(x))

    def attend(
        self,
        x: TensorValue,
        rope: Rope,
        bias: TensorValue,
        keys: BufferValue,
        values: BufferValue,
        place: TensorValue | None,
    ) -> TensorValue:
        """What attention makes of ``x``; of several devices the sum of what each makes."""
        inner = self.before_attention(x, self.epsilon)
        return self.attention(inner, rope, bias, keys, values, place)

    def attended(self, x: TensorValue, inner: TensorValue) -> TensorValue:
        """``x`` with that added."""
        return x + self.after_attention(inner, self.epsilon)

    def think(self, x: TensorValue) -> TensorValue:
        """What the perceptron makes of ``x``; of several devices the sum of what each makes."""
        return self.mlp(self.before_mlp(x, self.epsilon))

    def thought(self, x: TensorValue, inner: TensorValue) -> TensorValue:
        """``x`` with that added."""
        return x + self.after_mlp(inner, self.epsilon)


def cache_types(config: Config, device: DeviceRef) -> list[BufferType]:
    """The types of a layer's caches of keys and of values.

    Values are stored with their places last: what is multiplied is then contiguous in both, and
    XLA writes both in place.
    """
    batch, context = Dim("batch"), Dim("context")
    keys = [batch, config.kv_heads, context, config.head_dim]
    values = [batch, config.kv_heads, config.head_dim, context]
    return [BufferType(DType.float32, shape, device) for shape in (keys, values)]
