# SPDX-License-Identifier: Apache-2.0
"""The encoder as a graph: a MAX program, but for the name of the package it imports."""

from __future__ import annotations

from pathlib import Path

from maxjax.dtype import DType
from maxjax.engine import InferenceSession, Model
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, TensorValue, Weight, ops
from maxjax.graph.weights import Weights, load_weights

from .assets import Config, weights_path

__all__ = ["Encoder", "build_graph", "load_model"]

CPU = DeviceRef.CPU()


class Linear:
    """``x @ weight.T + bias``; the weight has shape ``(out, in)``."""

    def __init__(self, weights: Weights) -> None:
        self.weight: Weight = weights.weight.allocate()
        self.bias: Weight = weights.bias.allocate()

    def __call__(self, x: TensorValue) -> TensorValue:
        return x @ self.weight.T + self.bias


class LayerNorm:
    """Normalises the last axis, then scales and shifts it."""

    def __init__(self, weights: Weights, epsilon: float) -> None:
        self.weight: Weight = weights.weight.allocate()
        self.bias: Weight = weights.bias.allocate()
        self.epsilon = epsilon

    def __call__(self, x: TensorValue) -> TensorValue:
        return ops.layer_norm(x, self.weight, self.bias, self.epsilon)


class Embeddings:
    """The sum of word, position and segment embeddings, normalised."""

    def __init__(self, weights: Weights, config: Config) -> None:
        self.words: Weight = weights.word_embeddings.weight.allocate()
        self.positions: Weight = weights.position_embeddings.weight.allocate()
        self.types: Weight = weights.token_type_embeddings.weight.allocate()
        self.norm = LayerNorm(weights.LayerNorm, config.epsilon)

    def __call__(self, input_ids: TensorValue, token_type_ids: TensorValue) -> TensorValue:
        seq = input_ids.shape[1]
        positions = ops.range(0, seq, 1, out_dim=seq, dtype=DType.int64, device=CPU)
        x = ops.gather(self.words, input_ids, axis=0)
        x = x + ops.gather(self.types, token_type_ids, axis=0)
        return self.norm(x + ops.gather(self.positions, positions, axis=0))


class Attention:
    """Multi-head self-attention over all tokens that the mask allows."""

    def __init__(self, weights: Weights, config: Config) -> None:
        attention = weights["self"]
        self.query = Linear(attention.query)
        self.key = Linear(attention.key)
        self.value = Linear(attention.value)
        self.out = Linear(weights.output.dense)
        self.config = config

    def _heads(self, x: TensorValue, batch: Dim, seq: Dim) -> TensorValue:
        x = x.reshape([batch, seq, self.config.heads, self.config.head_dim])
        return x.permute([0, 2, 1, 3])

    def __call__(self, x: TensorValue, bias: TensorValue) -> TensorValue:
        batch, seq, hidden = x.shape
        q = self._heads(self.query(x), batch, seq)
        k = self._heads(self.key(x), batch, seq)
        v = self._heads(self.value(x), batch, seq)
        scores = q @ k.transpose(2, 3) * self.config.head_dim**-0.5 + bias
        mixed = ops.softmax(scores) @ v
        return self.out(mixed.permute([0, 2, 1, 3]).reshape([batch, seq, hidden]))


class Layer:
    """Attention and a two-layer perceptron, each added to its input and normalised."""

    def __init__(self, weights: Weights, config: Config) -> None:
        self.attention = Attention(weights.attention, config)
        self.attention_norm = LayerNorm(weights.attention.output.LayerNorm, config.epsilon)
        self.up = Linear(weights.intermediate.dense)
        self.down = Linear(weights.output.dense)
        self.norm = LayerNorm(weights.output.LayerNorm, config.epsilon)

    def __call__(self, x: TensorValue, bias: TensorValue) -> TensorValue:
        x = self.attention_norm(x + self.attention(x, bias))
        return self.norm(x + self.down(ops.gelu(self.up(x))))


class Encoder:
    """Token ids to one embedding of length 1 per sentence."""

    def __init__(self, weights: Weights, config: Config) -> None:
        self.embeddings = Embeddings(weights.embeddings, config)
        self.layers = [Layer(weights.encoder.layer[i], config) for i in range(config.layers)]

    def __call__(
        self, input_ids: TensorValue, attention_mask: TensorValue, token_type_ids: TensorValue
    ) -> TensorValue:
        """Three ``(batch, seq)`` values to one of ``(batch, hidden)``."""
        mask = attention_mask.cast(DType.float32)
        # Added to the scores: 0 for a token, and for padding a number that softmax turns into 0.
        bias = ops.unsqueeze(ops.unsqueeze((mask - 1.0) * 1e30, 1), 1)
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.layers:
            x = layer(x, bias)
        # Reductions keep their axis, as size 1.
        mask = ops.unsqueeze(mask, -1)
        mean = ops.sum(x * mask, axis=1) / ops.sum(mask, axis=1)
        mean = ops.squeeze(mean, 1)
        return mean * ops.rsqrt(ops.sum(mean * mean, axis=-1))


def build_graph(weights: Weights, config: Config | None = None) -> Graph:
    """The encoder for any number of sentences of any length up to 512 tokens.

    Inputs are ``input_ids``, ``attention_mask`` and ``token_type_ids``, int64 of shape
    ``[batch, seq]``; the output is float32 of shape ``[batch, 384]``.

    Args:
        weights: The checkpoint; `Weights.allocated_weights` then has what the graph uses.
        config: The sizes of the encoder; by default those of the installed package.
    """
    encoder = Encoder(weights, config or Config.load())
    tokens = TensorType(DType.int64, ["batch", "seq"], CPU)
    with Graph("minilm", input_types=[tokens, tokens, tokens]) as graph:
        graph.output(encoder(*(value.tensor for value in graph.inputs)))
    return graph


def load_model(
    session: InferenceSession, path: Path | None = None, config: Config | None = None
) -> Model:
    """Builds the graph with the weights of a safetensors file, and compiles it.

    Args:
        session: Where to compile and run.
        path: The checkpoint; by default that of the installed package.
        config: The sizes of the encoder; by default those of the installed package.

    Raises:
        ModuleNotFoundError: If no path is given and the model's package is not installed.
    """
    weights = load_weights([path or weights_path()])
    graph = build_graph(weights, config)
    return session.load(graph, weights_registry=weights.allocated_weights)
