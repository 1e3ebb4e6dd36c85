# SPDX-License-Identifier: Apache-2.0
"""A decoder over ``replicas * shards`` devices, a MAX program but for the package it imports.

Each replica reads its part of the batch. Within one, the heads and the perceptron's inner vector
are shared out, and so is the vocabulary: two sums over its devices in each layer, one for the
embedding, and the scores put together at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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

__all__ = ["Config", "build", "random_weights"]

F32 = DType.float32
CPU = DeviceRef.CPU()


@dataclass(frozen=True)
class Config:
    """The sizes of the network.

    Attributes:
        layers: How many layers there are.
        heads: Heads of the attention.
        head_dim: The size of a head; the network is ``heads * head_dim`` wide.
        inner: The size of the perceptron's inner vector.
        vocabulary: How many tokens there are.
    """

    layers: int = 4
    heads: int = 16
    head_dim: int = 8
    inner: int = 512
    vocabulary: int = 256

    @property
    def width(self) -> int:
        """The size of a token's vector."""
        return self.heads * self.head_dim


def _shapes(c: Config) -> dict[str, tuple[int, int]]:
    found = {"tokens": (c.vocabulary, c.width)}
    for k in range(c.layers):
        found |= {
            f"{k}.qkv": (3 * c.width, c.width),
            f"{k}.out": (c.width, c.width),
            f"{k}.gate_up": (2 * c.inner, c.width),
            f"{k}.down": (c.width, c.inner),
        }
    return found


def random_weights(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights by name, of shape ``(out, in)``."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.normal(size=shape) / shape[1] ** 0.5).astype(np.float32)
        for name, shape in _shapes(config).items()
    }


class _Weights:
    """The parts of each weight, one for each device."""

    def __init__(self, config: Config, devices: Sequence[DeviceRef], replicas: int) -> None:
        n = len(devices) // replicas
        strategies = {
            "tokens": ShardingStrategy.rowwise(n),
            "qkv": ShardingStrategy.stacked_qkv(n, config.heads, config.head_dim),
            "out": ShardingStrategy.columnwise(n),
            "gate_up": ShardingStrategy.gate_up(n, axis=0),
            "down": ShardingStrategy.columnwise(n),
        }
        self.parts: dict[str, list[Weight]] = {}
        for name, shape in _shapes(config).items():
            weight = Weight(name, F32, shape, CPU)
            weight.sharding_strategy = strategies[name.rpartition(".")[2]]
            rows = [devices[r * n : (r + 1) * n] for r in range(replicas)]
            self.parts[name] = [part for row in rows for part in weight.shard(row)]

    def __getitem__(self, name: str) -> list[Weight]:
        return self.parts[name]


def _normalized(x: TensorValue) -> TensorValue:
    return x * ops.rsqrt(ops.mean(x * x, axis=-1) + 1e-6)


def _attention(x: TensorValue, qkv: Weight, out: Weight, config: Config) -> TensorValue:
    """``(batch, seq, width)``; of the heads those whose weights these are."""
    batch, seq, _ = x.shape
    heads = int(qkv.shape[0]) // 3 // config.head_dim
    split = (_normalized(x) @ qkv.T).reshape([batch, seq, 3, heads, config.head_dim])
    q, k, v = (ops.squeeze(p, 2).permute([0, 2, 1, 3]) for p in ops.split(split, [1, 1, 1], 2))
    place = ops.range(0, seq, 1, out_dim=seq, dtype=DType.int64, device=x.device)
    seen = ops.unsqueeze(place, 1) >= ops.unsqueeze(place, 0)
    scores = ops.where(seen, (q @ k.transpose(2, 3)) * config.head_dim**-0.5, -1e30)
    mixed = (ops.softmax(scores) @ v).permute([0, 2, 1, 3])
    return mixed.reshape([batch, seq, heads * config.head_dim]) @ out.T


def _perceptron(x: TensorValue, gate_up: Weight, down: Weight) -> TensorValue:
    size = int(gate_up.shape[0]) // 2
    gate, up = ops.split(_normalized(x) @ gate_up.T, [size, size], axis=-1)
    return (ops.silu(gate) * up) @ down.T


def build(config: Config, devices: Sequence[DeviceRef], replicas: int = 1) -> Graph:
    """The graph: tokens to the scores of what follows each.

    Inputs are ``tokens``, int64 of shape ``(batch, seq)`` on the CPU, for each replica, and a
    signal buffer for each device. Outputs are, for each replica, the scores on its first device:
    float32 of shape ``(batch, seq, vocabulary)``.

    Args:
        config: The sizes of the network.
        devices: Where it runs, replica after replica.
        replicas: How many parts of the batch there are.
    """
    n = len(devices) // replicas
    weights = _Weights(config, devices, replicas)
    tokens = TensorType(DType.int64, ["batch", "seq"], CPU)
    signals = [BufferType(DType.uint8, [1], d) for d in devices]

    def total(parts: list[TensorValue], kept: list[BufferValue]) -> list[TensorValue]:
        return ops.allreduce.sum(parts, kept, group_size=n)

    def forward(*inputs: TensorValue | BufferValue) -> list[TensorValue]:
        kept = [b.buffer for b in inputs[replicas:]]
        parts = []
        for i, (device, table) in enumerate(zip(devices, weights["tokens"], strict=True)):
            count = int(table.shape[0])
            at = inputs[i // n].tensor.to(device)
            at = at - ops.constant(i % n * count, DType.int64, device)
            here = (at >= 0) & (at < count)
            rows = ops.gather(table, ops.where(here, at, 0), axis=0)
            parts.append(ops.where(ops.unsqueeze(here, 2), rows, 0.0))
        xs = total(parts, kept)
        for k in range(config.layers):
            pairs = zip(xs, weights[f"{k}.qkv"], weights[f"{k}.out"], strict=True)
            whole = total([_attention(x, a, b, config) for x, a, b in pairs], kept)
            xs = [x + y for x, y in zip(xs, whole, strict=True)]
            pairs = zip(xs, weights[f"{k}.gate_up"], weights[f"{k}.down"], strict=True)
            whole = total([_perceptron(x, a, b) for x, a, b in pairs], kept)
            xs = [x + y for x, y in zip(xs, whole, strict=True)]
        pairs = zip(xs, weights["tokens"], strict=True)
        scores = ops.allgather([_normalized(x) @ w.T for x, w in pairs], kept, 2, group_size=n)
        return scores[::n]

    return Graph("decoder", forward, [*[tokens] * replicas, *signals])
