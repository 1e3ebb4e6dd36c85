# SPDX-License-Identifier: Apache-2.0
"""The network on several devices, tensor-parallel (Shoeybi et al. 2019, arXiv:1909.08053).

Each device has some heads of the queries, a part of each perceptron and a part of the vocabulary.
Two sums over the devices in each layer, one after the embedding, and the scores put together at
the end are all that they exchange. Keys and values are one head here, which every device has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from maxjax.dtype import DType
from maxjax.graph import (
    BufferType,
    BufferValue,
    DeviceRef,
    Graph,
    Module,
    ShardingStrategy,
    TensorType,
    TensorValue,
    ops,
)
from maxjax.graph.weights import Weights

from .assets import Config
from .layers import Layer, Norm, Parameter, Rope, Take, attention_bias, cache_types
from .sampling import draw, input_types, likeliest

__all__ = ["ParallelGemma3", "build"]

_CPU = DeviceRef.CPU()


class ParallelGemma3:
    """Token ids to the scores of the next token, on several devices.

    Args:
        weights: The checkpoint; `Weights.allocated_weights` then has all of it, undivided.
        config: The sizes of the network.
        devices: Where it runs; their number divides that of the query heads.

    Raises:
        ValueError: If it does not.
    """

    def __init__(self, weights: Weights, config: Config, devices: Sequence[DeviceRef]) -> None:
        n = len(devices)
        if config.heads % n:
            raise ValueError(
                f"{config.heads} query heads cannot be shared out to {n} devices; the number of "
                "devices must divide that of the heads"
            )
        self.config = config
        self.devices = list(devices)
        own = dataclasses.replace(config, heads=config.heads // n)
        takes = [self._take(i) for i in range(n)]
        self._parts: dict[str, list[Parameter]] = {}
        self.layers = [
            [Layer(weights.blk[k], own, take) for take in takes] for k in range(config.layers)
        ]
        self.norms = [Norm(take(weights.output_norm.weight, "all")) for take in takes]
        self.tokens = [take(weights.token_embd.weight, "outputs") for take in takes]

    def _take(self, i: int) -> Take:
        """Takes the part of a weight that device ``i`` has."""

        def take(weights: Weights, part: str) -> Parameter:
            name, n = weights.name, len(self.devices)
            if name not in self._parts:
                whole = weights.allocate(device=_CPU)
                whole.sharding_strategy = {
                    "outputs": ShardingStrategy.rowwise(n),
                    # Blocks of packed numbers lie along this axis, and are not cut.
                    "inputs": ShardingStrategy.columnwise(n),
                    "all": ShardingStrategy.replicate(n),
                }[part]
                encoding = whole.quantization_encoding
                self._parts[name] = [
                    Parameter(lambda w=w: w, encoding) for w in whole.shard(self.devices)
                ]
            return self._parts[name][i]

        return take

    def __call__(
        self,
        tokens: TensorValue,
        starts: TensorValue,
        caches: list[list[BufferValue]],
        signals: list[BufferValue],
        place: TensorValue | None,
    ) -> TensorValue:
        """The scores of the token after the last, on the first device.

        Args:
            tokens: ``(batch, seq)``, on the CPU.
            starts: Where in the caches each text begins, ``(batch,)``, on the CPU.
            caches: For each device the keys and values of each layer, in turns.
            signals: A buffer for each device, for its collectives.
            place: The place of the one token; None for prompts, which begin at 0.

        Returns:
            float32 of shape ``(batch, vocabulary)``.
        """
        c = self.config
        seq, context = tokens.shape[1], caches[0][0].shape[2]
        ropes, biases = [], []
        for device in self.devices:
            begin = ops.unsqueeze(starts.to(device), 1)
            count = seq if place is None else context
            keys = ops.range(0, count, 1, out_dim=count, dtype=DType.int64, device=device) - begin
            queries = keys if place is None else place.to(device) - begin
            bases = (c.local_rope_base, c.rope_base)
            ropes.append([Rope.at(queries, base, c.head_dim) for base in bases])
            biases.append([attention_bias(queries, keys, w) for w in (c.window, None)])
        xs = self._embedded(tokens, signals)
        for k, layers in enumerate(self.layers):
            kind = c.is_global(k)
            parts = [
                layer.attend(x, rope[kind], bias[kind], own[2 * k], own[2 * k + 1], place)
                for layer, x, rope, bias, own in zip(layers, xs, ropes, biases, caches, strict=True)
            ]
            whole = ops.allreduce.sum(parts, signals)
            xs = [y.attended(x, w) for y, x, w in zip(layers, xs, whole, strict=True)]
            whole = ops.allreduce.sum(
                [y.think(x) for y, x in zip(layers, xs, strict=True)], signals
            )
            xs = [y.thought(x, w) for y, x, w in zip(layers, xs, whole, strict=True)]
        return self._scores(xs, signals)

    def _embedded(self, tokens: TensorValue, signals: list[BufferValue]) -> list[TensorValue]:
        """``(batch, seq, hidden)`` on each device: every token's vector is on one, and summed."""
        parts, first = [], 0
        for device, weight in zip(self.devices, self.tokens, strict=True):
            table = weight.use()
            count = int(table.shape[0])
            at = tokens.to(device) - ops.constant(first, DType.int64, device)
            here = (at >= 0) & (at < count)
            rows = ops.gather(table, ops.where(here, at, 0), axis=0)
            if weight.encoding is not None:
                rows = ops.dequantize(weight.encoding, rows)
            parts.append(ops.where(ops.unsqueeze(here, 2), rows, 0.0))
            first += count
        whole = ops.allreduce.sum(parts, signals)
        return [x * self.config.hidden**0.5 for x in whole]

    def _scores(self, xs: list[TensorValue], signals: list[BufferValue]) -> TensorValue:
        parts = []
        for x, norm, weight in zip(xs, self.norms, self.tokens, strict=True):
            last = norm(x[:, -1], self.config.epsilon)
            if weight.encoding is None:
                parts.append(last @ weight.use().T)
            else:
                parts.append(ops.qmatmul(weight.encoding, None, last, weight.use()))
        return ops.allgather(parts, signals, axis=1)[0]


def build(
    weights: Weights, config: Config, devices: Sequence[DeviceRef], *, draws: bool = False
) -> Module:
    """The graphs ``prefill`` and ``decode`` of `model.build`, on several devices.

    Tokens, starts and numbers come from the CPU; the caches are those of the first device, then of
    the second, and so on; a signal buffer for each device comes last. The outputs are on the first
    device.

    Args:
        weights: The checkpoint.
        config: The sizes of the network.
        devices: Where it runs.
        draws: Whether the token is drawn, and not the likeliest.
    """
    gemma = ParallelGemma3(weights, config, devices)
    module = Module()
    starts = TensorType(DType.int64, ["batch"], _CPU)
    place = TensorType(DType.int64, [], _CPU)
    each = 2 * config.layers
    caches = [t for d in devices for t in cache_types(config, d) * config.layers]
    signals = [BufferType(DType.uint8, [1], d) for d in devices]
    sampling = input_types(devices[0]) if draws else []
    for name, seq, more in (("prefill", "seq", []), ("decode", 1, [place])):
        tokens = TensorType(DType.int64, ["batch", seq], _CPU)
        types = [tokens, starts, *more, *caches, *sampling, *signals]
        with Graph(name, input_types=types, module=module) as graph:
            first, second, *rest = graph.inputs
            at = rest.pop(0).tensor if more else None
            buffers = [v.buffer for v in rest[: len(caches)]]
            own = [buffers[i : i + each] for i in range(0, len(buffers), each)]
            kept = [v.buffer for v in rest[len(rest) - len(devices) :]]
            numbers = [v.tensor for v in rest[len(caches) : len(rest) - len(devices)]]
            scores = gemma(first.tensor, second.tensor, own, kept, at)
            graph.output(scores, draw(scores, *numbers) if draws else likeliest(scores))
    return module
