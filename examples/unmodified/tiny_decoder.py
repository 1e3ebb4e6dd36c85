# SPDX-License-Identifier: Apache-2.0
"""A small decoder with attention continues a sequence of tokens, greedily.

Written only against ``max``: weights by name, keys and values of the tokens so far in buffers, a
symbolic number of new tokens. The same graph takes the whole prompt first and then token by token.
"""

import sys

import numpy as np
from max.driver import CPU, Buffer
from max.dtype import DType
from max.engine import InferenceSession
from max.graph import (
    BufferType,
    BufferValue,
    DeviceRef,
    Dim,
    Graph,
    TensorType,
    TensorValue,
    Weight,
    ops,
)

VOCAB, WIDTH, HEADS, LAYERS, LENGTH = 50, 32, 4, 2, 32
HEAD = WIDTH // HEADS
CPU_REF = DeviceRef.CPU()
CACHE = BufferType(DType.float32, [LENGTH, HEADS, HEAD], CPU_REF)


def weights() -> dict[str, np.ndarray]:
    """Random weights by name."""
    rng = np.random.default_rng(7)
    shapes = {"embedding": (VOCAB, WIDTH), "positions": (LENGTH, WIDTH), "head": (WIDTH, VOCAB)}
    for i in range(LAYERS):
        shapes |= {
            f"layers.{i}.qkv": (WIDTH, 3 * WIDTH),
            f"layers.{i}.out": (WIDTH, WIDTH),
            f"layers.{i}.up": (WIDTH, 4 * WIDTH),
            f"layers.{i}.down": (4 * WIDTH, WIDTH),
        }
    scales = {"embedding": 1.0, "positions": 1.0, "head": 0.5}
    return {
        name: rng.normal(0, scales.get(name, shape[0] ** -0.5), shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def normalized(x: TensorValue) -> TensorValue:
    """``x`` over the root of its mean square, along the last axis."""
    return x * ops.rsqrt(ops.mean(x * x, axis=-1) + 1e-5)


def attention(
    x: TensorValue, start: TensorValue, keys: BufferValue, values: BufferValue,
    visible: TensorValue, registered: dict[str, Weight], layer: str,
) -> TensorValue:  # fmt: skip
    """Attends to the tokens so far; ``x`` is ``(n, WIDTH)``, ``visible`` ``(n, LENGTH)``."""
    count = x.shape[0]
    qkv = ops.reshape(normalized(x) @ registered[f"{layer}.qkv"], [count, 3, HEADS, HEAD])
    query, key, value = (ops.squeeze(part, 1) for part in ops.split(qkv, [1, 1, 1], axis=1))
    end = start + ops.shape_to_tensor(x.shape)[0]
    for buffer, new in ((keys, key), (values, value)):
        buffer[(slice(start, end), count), ...] = new
    # (HEADS, n, LENGTH): what each new token makes of each place in the cache.
    scores = ops.permute(query, [1, 0, 2]) @ ops.permute(ops.buffer_load(keys), [1, 2, 0])
    scores = ops.where(visible, scores * HEAD**-0.5, ops.constant(-1e9, DType.float32, CPU_REF))
    # Written out: the reference's softmax of masked scores is wrong where the mask is computed.
    raised = ops.exp(scores - ops.max(scores, axis=-1))
    mixed = (raised / ops.sum(raised, axis=-1)) @ ops.permute(ops.buffer_load(values), [1, 0, 2])
    joined = ops.reshape(ops.permute(mixed, [1, 0, 2]), [count, WIDTH])
    return joined @ registered[f"{layer}.out"]


def decoder(arrays: dict[str, np.ndarray]) -> Graph:
    """New tokens ``(n,)``, the number of those before them, and caches to scores ``(n, VOCAB)``."""
    tokens_type = TensorType(DType.int64, ["n"], CPU_REF)
    start_type = TensorType(DType.int64, [], CPU_REF)
    types = [tokens_type, start_type, *[CACHE] * (2 * LAYERS)]
    with Graph("decoder", input_types=types) as graph:
        tokens, start = graph.inputs[0].tensor, graph.inputs[1].tensor
        caches = [value.buffer for value in graph.inputs[2:]]
        registered = {
            name: graph.add_weight(Weight(name, DType.float32, list(array.shape), CPU_REF))
            for name, array in arrays.items()
        }
        place = ops.range(
            0, ops.shape_to_tensor(tokens.shape)[0], 1,
            out_dim=Dim("n"), dtype=DType.int64, device=CPU_REF,
        ) + start  # fmt: skip
        x = ops.gather(registered["embedding"], tokens, axis=0)
        x = x + ops.gather(registered["positions"], place, axis=0)
        everywhere = ops.range(0, LENGTH, 1, dtype=DType.int64, device=CPU_REF)
        visible = ops.unsqueeze(place, 1) >= ops.unsqueeze(everywhere, 0)
        for i in range(LAYERS):
            layer, (keys, values) = f"layers.{i}", caches[2 * i : 2 * i + 2]
            x = x + attention(x, start, keys, values, visible, registered, layer)
            wide = ops.gelu(normalized(x) @ registered[f"{layer}.up"])
            x = x + wide @ registered[f"{layer}.down"]
        graph.output(normalized(x) @ registered["head"])
    return graph


def main(count: int) -> None:
    """Continues a prompt and prints each token with the logarithm of its probability."""
    arrays = weights()
    session = InferenceSession(devices=[CPU()])
    model = session.load(decoder(arrays), weights_registry=arrays)
    shape = (LENGTH, HEADS, HEAD)
    caches = [Buffer.from_numpy(np.zeros(shape, np.float32)) for _ in range(2 * LAYERS)]

    tokens, start, total = [3, 14, 15, 9, 2], 0, 0.0
    print("prompt:", *tokens)
    for _ in range(count):
        (scores,) = model.execute(
            Buffer.from_numpy(np.array(tokens, np.int64)),
            Buffer.from_numpy(np.array(start, np.int64)),
            *caches,
        )
        scores = scores.to_numpy()[-1].astype(np.float64)
        chances = scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max()
        start += len(tokens)
        tokens = [int(chances.argmax())]
        total += chances.max()
        print(f"{tokens[0]:3d}  {chances.max():.6f}")
    print(f"all of it: {total:.6f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
