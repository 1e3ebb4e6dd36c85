# SPDX-License-Identifier: Apache-2.0
"""The encoder on several devices, tensor-parallel (Shoeybi et al. 2019, arXiv:1909.08053).

Each device has some heads of the attention and a part of each perceptron; two sums over the
devices in each layer are all that they exchange.
"""

from __future__ import annotations

from collections.abc import Sequence

from maxjax.dtype import DType
from maxjax.graph import (
    BufferType,
    BufferValue,
    DeviceRef,
    Graph,
    ShardingStrategy,
    TensorType,
    TensorValue,
    Weight,
    ops,
)
from maxjax.graph.weights import Weights

from .assets import Config

__all__ = ["build_graph"]

_CPU = DeviceRef.CPU()


class _Parallel:
    """What the parts of the network share: the devices, and how weights are divided among them."""

    def __init__(self, devices: Sequence[DeviceRef], signals: list[BufferValue]) -> None:
        self.devices = list(devices)
        self.signals = signals

    def shards(self, weights: Weights, strategy: str) -> list[Weight]:
        """The part of a weight for each device."""
        weight = weights.allocate()
        weight.sharding_strategy = getattr(ShardingStrategy, strategy)(len(self.devices))
        return weight.shard(self.devices)

    def columns(self, weights: Weights, xs: list[TensorValue]) -> list[TensorValue]:
        """A product of which each device makes a part of the outputs."""
        parts = self.shards(weights.weight, "rowwise"), self.shards(weights.bias, "rowwise")
        return [x @ w.T + b for x, w, b in zip(xs, *parts, strict=True)]

    def rows(self, weights: Weights, xs: list[TensorValue]) -> list[TensorValue]:
        """A product of which each device has a part of the inputs, summed."""
        terms = [
            x @ w.T for x, w in zip(xs, self.shards(weights.weight, "columnwise"), strict=True)
        ]
        whole = ops.allreduce.sum(terms, self.signals)
        biases = self.shards(weights.bias, "replicate")
        return [x + b for x, b in zip(whole, biases, strict=True)]

    def norm(self, weights: Weights, xs: list[TensorValue], epsilon: float) -> list[TensorValue]:
        """Normalises the last axis, then scales and shifts it, on each device alike."""
        parts = self.shards(weights.weight, "replicate"), self.shards(weights.bias, "replicate")
        return [ops.layer_norm(x, w, b, epsilon) for x, w, b in zip(xs, *parts, strict=True)]


def _attention(
    p: _Parallel, weights: Weights, config: Config, xs: list[TensorValue], bias: list[TensorValue]
) -> list[TensorValue]:
    batch, seq, _ = xs[0].shape
    heads = config.heads // len(p.devices)

    def split(xs: list[TensorValue]) -> list[TensorValue]:
        shape = [batch, seq, heads, config.head_dim]
        return [x.reshape(shape).permute([0, 2, 1, 3]) for x in xs]

    own = weights["self"]
    queries, keys, values = (split(p.columns(own[n], xs)) for n in ("query", "key", "value"))
    mixed = []
    for q, k, v, b in zip(queries, keys, values, bias, strict=True):
        scores = q @ k.transpose(2, 3) * config.head_dim**-0.5 + b
        rows = (ops.softmax(scores) @ v).permute([0, 2, 1, 3])
        mixed.append(rows.reshape([batch, seq, heads * config.head_dim]))
    return p.rows(weights.output.dense, mixed)


def build_graph(
    weights: Weights, devices: Sequence[DeviceRef], config: Config | None = None
) -> Graph:
    """The encoder of `model.build_graph` on several devices.

    After its inputs comes a signal buffer for each device; the output is on the CPU.

    Args:
        weights: The checkpoint; `Weights.allocated_weights` then has what the graph uses, whole.
        devices: Where it runs; their number divides that of the heads.
        config: The sizes of the encoder; by default those of the installed package.

    Raises:
        ValueError: If the heads cannot be shared out to so many devices.
    """
    config = config or Config.load()
    if config.heads % len(devices):
        raise ValueError(f"{config.heads} heads cannot be shared out to {len(devices)} devices")
    tokens = TensorType(DType.int64, ["batch", "seq"], _CPU)
    signals = [BufferType(DType.uint8, [1], d) for d in devices]
    with Graph("minilm", input_types=[tokens, tokens, tokens, *signals]) as graph:
        ids, mask, types = (v.tensor for v in graph.inputs[:3])
        p = _Parallel(devices, [v.buffer for v in graph.inputs[3:]])
        table = weights.embeddings
        words = p.shards(table.word_embeddings.weight, "replicate")
        places = p.shards(table.position_embeddings.weight, "replicate")
        segments = p.shards(table.token_type_embeddings.weight, "replicate")
        seq = ids.shape[1]
        xs, masks = [], []
        for device, word, place, segment in zip(devices, words, places, segments, strict=True):
            at = ops.range(0, seq, 1, out_dim=seq, dtype=DType.int64, device=device)
            x = ops.gather(word, ids.to(device), axis=0)
            x = x + ops.gather(segment, types.to(device), axis=0)
            xs.append(x + ops.gather(place, at, axis=0))
            masks.append(mask.to(device).cast(DType.float32))
        xs = p.norm(table.LayerNorm, xs, config.epsilon)
        bias = [ops.unsqueeze(ops.unsqueeze((m - 1.0) * 1e30, 1), 1) for m in masks]
        for i in range(config.layers):
            layer = weights.encoder.layer[i]
            inner = _attention(p, layer.attention, config, xs, bias)
            xs = [x + y for x, y in zip(xs, inner, strict=True)]
            xs = p.norm(layer.attention.output.LayerNorm, xs, config.epsilon)
            inner = [ops.gelu(y) for y in p.columns(layer.intermediate.dense, xs)]
            inner = p.rows(layer.output.dense, inner)
            xs = [x + y for x, y in zip(xs, inner, strict=True)]
            xs = p.norm(layer.output.LayerNorm, xs, config.epsilon)
        weight = ops.unsqueeze(masks[0], -1)
        mean = ops.squeeze(ops.sum(xs[0] * weight, axis=1) / ops.sum(weight, axis=1), 1)
        graph.output((mean * ops.rsqrt(ops.sum(mean * mean, axis=-1))).to(_CPU))
    return graph
