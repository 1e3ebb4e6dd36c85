# SPDX-License-Identifier: Apache-2.0
"""Builds graphs with maxjax or the reference: one line of input, one graph, its seconds.

Run as ``python -m benchmarks._build_worker maxjax``, or with ``max`` under an interpreter that
has it.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

from benchmarks._measure import stopwatch

__all__ = ["COUNT", "KINDS", "builder"]

COUNT = 1000
"""Operations in one graph."""

Step = Callable[[Any, Any, Any], Any]
"""Ten operations: the ``ops`` module, ``x`` of ``[batch, 64]``, ``w`` of ``[64, 64]``."""


def elementwise(ops: Any, x: Any, w: Any) -> Any:
    for _ in range(5):
        x = ops.tanh(x) * x
    return x


def matmul(ops: Any, x: Any, w: Any) -> Any:
    for _ in range(10):
        x = x @ w
    return x


def reshape(ops: Any, x: Any, w: Any) -> Any:
    batch = x.shape[0]
    for _ in range(5):
        x = x.reshape([batch, 8, 8]).reshape([batch, 64])
    return x


def slices(ops: Any, x: Any, w: Any) -> Any:
    for i in range(10):
        _ = x[:, i : 32 + i]
    return x


def reduction(ops: Any, x: Any, w: Any) -> Any:
    for _ in range(5):
        _ = ops.sum(x, axis=-1), ops.max(x, axis=-1)
    return x


def mixed(ops: Any, x: Any, w: Any) -> Any:
    batch = x.shape[0]
    y = ops.tanh(x @ w)
    y = y.reshape([batch, 8, 8]).permute([0, 2, 1]).reshape([batch, 64])
    y = ops.concat([y[:, 32:], x[:, :32]], axis=1)
    return y / ops.sum(y, axis=-1)


KINDS: dict[str, Step] = {
    "mixed": mixed,
    "elementwise": elementwise,
    "matmul": matmul,
    "reshape": reshape,
    "slice": slices,
    "reduction": reduction,
}


def builder(root: str, kind: str) -> Callable[[], Any]:
    """A function that builds a graph of `COUNT` operations with the API of that name."""
    graph = importlib.import_module(f"{root}.graph")
    f32 = importlib.import_module(f"{root}.dtype").DType.float32
    cpu = graph.DeviceRef.CPU()
    step = KINDS[kind]
    types = [graph.TensorType(f32, ["batch", 64], cpu), graph.TensorType(f32, [64, 64], cpu)]

    def build() -> Any:
        with graph.Graph("bench", input_types=types) as g:
            x, w = (value.tensor for value in g.inputs)
            for _ in range(COUNT // 10):
                x = step(graph.ops, x, w)
            g.output(x)
        return g

    return build


def main(root: str) -> None:
    """Answers each line, the name of a kind, with the seconds that building one took."""
    builders = {kind: stopwatch(builder(root, kind)) for kind in KINDS}
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(builders[line.strip()]()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
