# SPDX-License-Identifier: Apache-2.0
"""A tensor-parallel network on eight virtual devices, by maxjax and by hand; prints JSON.

A process of its own: the number of CPU devices is fixed when JAX starts.
"""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks._measure import in_turns, stopwatch
from maxjax import driver
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, Weight, ops
from maxjax.lower import to_jax
from maxjax.lower.fold import fold

LAYERS, WIDTH, ROWS = 8, 512, 256
F32 = DType.float32
CPU = DeviceRef.CPU()


def network(lanes: int, layers: int, width: int, rows: int) -> Graph:
    """Layers of two matrices: the first split by columns, the second by rows, then one sum."""
    devices = [DeviceRef.GPU(i) for i in range(lanes)]
    signals = [BufferType(DType.uint8, [1], d) for d in devices]
    with Graph("network", input_types=[TensorType(F32, [rows, width], CPU), *signals]) as graph:
        first, *rest = graph.inputs
        kept = [b.buffer for b in rest]
        xs = [first.tensor.to(d) for d in devices]
        step = 4 * width // lanes
        for k in range(layers):
            up = Weight(f"{k}.up", F32, [width, 4 * width], CPU)
            down = Weight(f"{k}.down", F32, [4 * width, width], CPU)
            parts = []
            for i, device in enumerate(devices):
                own = slice(i * step, (i + 1) * step)
                inner = ops.relu(xs[i] @ up[:, own].to(device))
                parts.append(inner @ down[own].to(device))
            xs = [x + y for x, y in zip(xs, ops.allreduce.sum(parts, kept), strict=True)]
        graph.output(xs[0].to(CPU))
    return graph


def by_hand(weights: dict[str, np.ndarray], lanes: int) -> Any:
    """The same with ``jax.shard_map``."""
    mesh = Mesh(np.array(jax.devices()[:lanes]), ("lanes",))
    columns, rows = PartitionSpec(None, "lanes"), PartitionSpec("lanes", None)

    def body(x: jax.Array, pairs: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
        for up, down in pairs:
            inner = jax.nn.relu(jnp.matmul(x, up, precision="highest"))
            x = x + jax.lax.psum(jnp.matmul(inner, down, precision="highest"), "lanes")
        return x

    pairs = [
        (
            jax.device_put(weights[f"{k}.up"], NamedSharding(mesh, columns)),
            jax.device_put(weights[f"{k}.down"], NamedSharding(mesh, rows)),
        )
        for k in range(LAYERS)
    ]
    specs = [(columns, rows)] * LAYERS
    run = jax.jit(
        jax.shard_map(body, mesh=mesh, in_specs=(PartitionSpec(), specs), out_specs=PartitionSpec())
    )
    everywhere = NamedSharding(mesh, PartitionSpec())
    return lambda x: np.asarray(run(jax.device_put(x, everywhere), pairs))


def program_text(lanes: int) -> str:
    """The StableHLO of a small network, but for the lists of devices."""
    folded = fold(network(lanes, 2, 64 * 8, 4))
    function = to_jax(folded.graph)
    weights = {n: np.zeros([int(d) for d in s.type.shape], np.float32)
               for n, s in folded.weights.items()}  # fmt: skip
    shapes = [np.zeros([int(d) for d in v.type.shape], v.type.dtype.np)
              for v in folded.graph.inputs]  # fmt: skip
    mesh = jax.sharding.AbstractMesh((lanes,), ("lanes",))
    given, kept = shapes[:1], shapes[1:]
    body = jax.shard_map(
        lambda w, g, k: function(w, g, k), mesh=mesh,
        in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False,
    )  # fmt: skip
    lowered = jax.jit(body).trace(weights, given, kept).lower(lowering_platforms=("cpu",))
    return re.sub(r"replica_groups = dense<[^>]*>", "", lowered.as_text())


def main(runs: int) -> None:
    """Measures, and prints what was measured."""
    lanes = 8
    driver.set_virtual_device_count(lanes)
    rng = np.random.default_rng(0)
    weights = {}
    for k in range(LAYERS):
        weights[f"{k}.up"] = rng.normal(0, 0.02, (WIDTH, 4 * WIDTH)).astype(np.float32)
        weights[f"{k}.down"] = rng.normal(0, 0.02, (4 * WIDTH, WIDTH)).astype(np.float32)
    devices = [driver.Accelerator(i) for i in range(lanes)]
    model = InferenceSession(devices).load(
        network(lanes, LAYERS, WIDTH, ROWS), weights_registry=weights
    )
    signals = [driver.Buffer.zeros([1], DType.uint8, d) for d in devices]
    x = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    hand = by_hand(weights, lanes)
    np.testing.assert_allclose(model(x, *signals)[0].to_numpy(), hand(x), atol=1e-4)
    ours, theirs = in_turns(
        runs, stopwatch(lambda: model(x, *signals)[0].to_numpy()), stopwatch(lambda: hand(x))
    )
    fold_seconds = {}
    for count in (2, 64):
        graph = network(count, LAYERS, WIDTH, ROWS)
        start = time.perf_counter()
        fold(graph)
        fold_seconds[count] = time.perf_counter() - start
    print(
        json.dumps(
            {
                "ours": ours.samples,
                "theirs": theirs.samples,
                "characters": {n: len(program_text(n)) for n in (8, 64)},
                "fold": fold_seconds,
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
