# SPDX-License-Identifier: Apache-2.0
"""The network as two graphs, a MAX program but for the name of the package it imports.

``prefill`` reads prompts and fills the caches; ``decode`` goes one token further. Both give the
scores of the next token, and a token: the likeliest, or one that was drawn. Texts of different
length are padded on the left, so that all of them end at the same place of the caches.
"""

from __future__ import annotations

from maxjax.dtype import DType
from maxjax.graph import (
    BufferValue,
    DeviceRef,
    Graph,
    Module,
    TensorType,
    TensorValue,
    ops,
)
from maxjax.graph.weights import Weights

from .assets import Config
from .layers import (
    Embedding,
    Layer,
    Norm,
    Parameter,
    Rope,
    attention_bias,
    cache_types,
    placeholders,
)
from .sampling import draw, input_types, likeliest

__all__ = ["Gemma3", "build"]


class Gemma3:
    """Token ids to the scores of the next token.

    Args:
        weights: The checkpoint; `Weights.allocated_weights` then has all of it.
        config: The sizes of the network.
        device: Where it runs.
    """

    def __init__(self, weights: Weights, config: Config, device: DeviceRef) -> None:
        self.config = config
        self.device = device
        self.embedding = Embedding(weights.token_embd.weight, device)
        norm = weights.output_norm.weight.allocate(device=device)
        self.norm = Norm(Parameter(lambda: norm, None))
        # Layers whose weights are packed in the same way are calls of one body.
        self.kinds: list[str] = []
        self.bodies: dict[str, Layer] = {}
        for i in range(config.layers):
            layer = weights.blk[i]
            kind = []
            for name, weight in weights[f"blk.{i}."].items():
                weight.allocate(device=device)
                encoding = weight.data().quantization_encoding
                if encoding is not None:
                    kind.append(f"{name.split('.')[2]}_{encoding.name}")
            self.kinds.append("_".join(["layer", *kind]))
            take = placeholders(f"{layer.name}.", device)
            self.bodies.setdefault(self.kinds[-1], Layer(layer, config, take))

    def __call__(
        self,
        tokens: TensorValue,
        starts: TensorValue,
        caches: list[BufferValue],
        place: TensorValue | None,
    ) -> TensorValue:
        """The scores of the token after the last.

        Args:
            tokens: ``(batch, seq)``.
            starts: Where in the caches each text begins, ``(batch,)``.
            caches: Keys and values of each layer, in turns.
            place: The place of the one token; None for prompts, which begin at 0.

        Returns:
            float32 of shape ``(batch, vocabulary)``.
        """
        c = self.config
        seq, context = tokens.shape[1], caches[0].shape[2]
        starts = ops.unsqueeze(starts, 1)
        keys = self._places(seq if place is None else context) - starts
        queries = keys if place is None else place.to(self.device) - starts
        ropes = [Rope.at(queries, base, c.head_dim) for base in (c.local_rope_base, c.rope_base)]
        biases = [attention_bias(queries, keys, window) for window in (c.window, None)]
        x = self.embedding(tokens)
        for i in range(c.layers):
            rope, bias = ropes[c.is_global(i)], biases[c.is_global(i)]
            operands = [x, rope.cos, rope.sin, bias, caches[2 * i], caches[2 * i + 1]]
            operands += [] if place is None else [place]
            body = self._body(self.kinds[i], [v.type for v in operands])
            (x,) = ops.call(body, *operands, prefix=f"blk.{i}.")
            x = x.tensor
        return self.embedding.scores(self._last(x))

    def _places(self, count):
        return ops.range(0, count, 1, out_dim=count, dtype=DType.int64, device=self.device)

    def _last(self, x: TensorValue) -> TensorValue:
        """The normalised vector of the last token, ``(batch, hidden)``."""
        return self.norm(x[:, -1], self.config.epsilon)

    def _body(self, kind: str, types: list) -> Graph:
        """The subgraph of a kind of layer, built at the first use in a graph."""
        graph = Graph.current
        name = f"{graph.name}_{kind}"
        known = [g for g in graph.module.subgraphs if g.name == name]
        return known[0] if known else graph.add_subgraph(name, self.bodies[kind], types)


def build(weights: Weights, config: Config, device: DeviceRef, *, draws: bool = False) -> Module:
    """The graphs ``prefill`` and ``decode``, for any number of texts and any length.

    Inputs of both are ``tokens`` and ``starts``, as `Gemma3` takes them, ``decode`` also
    ``place``, an int64 scalar; then the caches, which are written in place; and at last, where
    tokens are drawn, `Sampling.inputs`. The outputs are the scores of the next token, float32 of
    shape ``[batch, vocabulary]``, and the token, int64 of shape ``[batch, 1]``.

    Args:
        weights: The checkpoint.
        config: The sizes of the network.
        device: Where it runs.
        draws: Whether the token is drawn, and not the likeliest.
    """
    gemma = Gemma3(weights, config, device)
    module = Module()
    starts = TensorType(DType.int64, ["batch"], device)
    place = TensorType(DType.int64, [], DeviceRef.CPU())
    caches = cache_types(config, device) * config.layers
    sampling = input_types(device) if draws else []
    for name, seq, more in (("prefill", "seq", []), ("decode", 1, [place])):
        tokens = TensorType(DType.int64, ["batch", seq], device)
        types = [tokens, starts, *more, *caches, *sampling]
        with Graph(name, input_types=types, module=module) as graph:
            first, second, *rest = graph.inputs
            at = rest.pop(0).tensor if more else None
            buffers = [v.buffer for v in rest[: len(caches)]]
            scores = gemma(first.tensor, second.tensor, buffers, at)
            numbers = [v.tensor for v in rest[len(caches) :]]
            graph.output(scores, draw(scores, *numbers) if draws else likeliest(scores))
    return module
