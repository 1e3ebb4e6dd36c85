# SPDX-License-Identifier: Apache-2.0
"""Random programs over several devices, as graphs and as what NumPy makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from maxjax.dtype import DType
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, Weight, ops

CPU = DeviceRef.CPU()
ROWS, COLUMNS = 4, 8


class Program:
    """A random program: its graph, the weights and inputs it takes, and the outputs it has.

    A row is a value on each device; the program makes rows of rows, and every row is an output.
    """

    def __init__(self, seed: int, lanes: int, steps: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.lanes = lanes
        self.devices = [DeviceRef.GPU(i) for i in range(lanes)]
        self.weights: dict[str, np.ndarray] = {}
        self.inputs: list[np.ndarray] = []
        self.expected: list[np.ndarray] = []
        self.rows: list[tuple[list[Any], list[np.ndarray]]] = []
        self.done: list[str] = []
        self.graph = self.build(steps)

    def array(self, *shape: int) -> np.ndarray:
        return self.numbers.uniform(-1, 1, shape).astype(np.float32)

    def build(self, steps: int) -> Graph:
        n = self.lanes
        tensor = [TensorType(DType.float32, [ROWS, COLUMNS], d) for d in self.devices]
        whole = TensorType(DType.float32, [ROWS, COLUMNS], CPU)
        signals = [BufferType(DType.uint8, [1], d) for d in self.devices]
        state = [BufferType(DType.float32, [ROWS, COLUMNS], d) for d in self.devices]
        self.inputs = [self.array(ROWS, COLUMNS) for _ in range(n + 1)]
        self.state = [self.array(ROWS, COLUMNS) for _ in range(n)]
        self.kept = [s.copy() for s in self.state]
        with Graph("program", input_types=[*tensor, whole, *signals, *state]) as graph:
            values = [v.tensor for v in graph.inputs[: n + 1]]
            self.signals = [v.buffer for v in graph.inputs[n + 1 : 2 * n + 1]]
            self.buffers = [v.buffer for v in graph.inputs[2 * n + 1 :]]
            self.rows.append((values[:n], list(self.inputs[:n])))
            self.rows.append(([values[n].to(d) for d in self.devices], [self.inputs[n]] * n))
            makers: list[Callable[[], tuple[list[Any], list[np.ndarray]]]] = [
                self.unary, self.binary, self.constant, self.matmul, self.apart, self.total,
                self.gathered, self.scattered, self.shifted, self.island, self.by_host,
                self.stored, self.uneven, self.handed,
            ]  # fmt: skip
            for _ in range(steps):
                make = self.random.choice(makers)
                self.done.append(make.__name__)
                self.rows.append(make())
            outputs = []
            for row, arrays in self.rows:
                outputs += row
                self.expected += arrays
            graph.output(*outputs)
        return graph

    def row(self) -> tuple[list[Any], list[np.ndarray]]:
        return self.random.choice(self.rows)

    # ---------------------------------------------------------------- steps

    def unary(self) -> Any:
        xs, arrays = self.row()
        return [ops.tanh(x) for x in xs], [np.tanh(a) for a in arrays]

    def binary(self) -> Any:
        (xs, a), (ys, b) = self.row(), self.row()
        results = [x - y * 0.5 for x, y in zip(xs, ys, strict=True)]
        return results, [x - y * np.float32(0.5) for x, y in zip(a, b, strict=True)]

    def constant(self) -> Any:
        """A number that differs from device to device."""
        xs, arrays = self.row()
        found = []
        for i, x in enumerate(xs):
            found.append(x + ops.constant(float(i), DType.float32, self.devices[i]))
        return found, [a + np.float32(i) for i, a in enumerate(arrays)]

    def matmul(self) -> Any:
        """By the device's columns of one weight, or by a weight of its own."""
        xs, arrays = self.row()
        k = len(self.weights)
        whole = self.random.random() < 0.5
        results, expected = [], []
        if whole:
            w = self.weights[f"w{k}"] = self.array(COLUMNS, COLUMNS * self.lanes)
            weight = Weight(f"w{k}", DType.float32, w.shape, CPU)
        for i, (x, a) in enumerate(zip(xs, arrays, strict=True)):
            if whole:
                part = slice(i * COLUMNS, (i + 1) * COLUMNS)
                own, array = weight[:, part].to(self.devices[i]), w[:, part]
            else:
                array = self.weights[f"w{k}.{i}"] = self.array(COLUMNS, COLUMNS)
                own = Weight(f"w{k}.{i}", DType.float32, array.shape, self.devices[i])
            results.append(ops.tanh(x @ own))
            expected.append(np.tanh(a @ array))
        return results, expected

    def apart(self) -> Any:
        """One device does something else."""
        xs, arrays = self.row()
        other = self.random.randrange(self.lanes)
        results = [ops.abs(x) if i == other else -x for i, x in enumerate(xs)]
        return results, [np.abs(a) if i == other else -a for i, a in enumerate(arrays)]

    def total(self) -> Any:
        xs, arrays = self.row()
        total = sum(arrays[1:], arrays[0]) * np.float32(1 / self.lanes)
        return [x * (1 / self.lanes) for x in ops.allreduce.sum(xs, self.signals)], [
            total
        ] * self.lanes

    def gathered(self) -> Any:
        xs, arrays = self.row()
        found = ops.allgather(xs, self.signals, axis=0)
        whole = np.concatenate(arrays)
        # A part that differs from device to device.
        cut = [slice(i, i + ROWS) for i in range(self.lanes)]
        return [f[c] for f, c in zip(found, cut, strict=True)], [whole[c] for c in cut]

    def scattered(self) -> Any:
        xs, arrays = self.row()
        found = ops.reducescatter.sum(xs, self.signals, axis=1)
        parts = np.array_split(sum(arrays[1:], arrays[0]), self.lanes, axis=1)
        results = [ops.tanh(ops.sum(f, axis=1)) + x for f, x in zip(found, xs, strict=True)]
        return results, [
            np.tanh(p.sum(axis=1, keepdims=True)) + a for p, a in zip(parts, arrays, strict=True)
        ]

    def shifted(self) -> Any:
        """What the device before has."""
        xs, arrays = self.row()
        n = self.lanes
        return [xs[i - 1].to(self.devices[i]) for i in range(n)], [arrays[i - 1] for i in range(n)]

    def island(self) -> Any:
        """One device computes, all have it."""
        xs, arrays = self.row()
        home = self.random.randrange(self.lanes)
        x, a = ops.tanh(xs[home]) * 2, np.tanh(arrays[home]) * 2
        return [x.to(d) for d in self.devices], [a] * self.lanes

    def by_host(self) -> Any:
        xs, arrays = self.row()
        home = self.random.randrange(self.lanes)
        x, a = ops.tanh(xs[home].to(CPU)), np.tanh(arrays[home])
        return [x.to(d) * 2 for d in self.devices], [a * 2] * self.lanes

    def stored(self) -> Any:
        """Kept in a buffer; what was there before."""
        xs, arrays = self.row()
        before = [ops.buffer_load(b) for b in self.buffers]
        for buffer, x in zip(self.buffers, xs, strict=True):
            ops.buffer_store(buffer, x)
        old, self.kept = self.kept, list(arrays)
        return before, old

    def uneven(self) -> Any:
        """Rows of unequal size on each device, put together on all."""
        xs, arrays = self.row()
        sizes = [1 + i % 3 for i in range(self.lanes)]
        parts = [x[:k] for x, k in zip(xs, sizes, strict=True)]
        found = ops.allgather(parts, self.signals, axis=0)
        whole = np.concatenate([a[:k] for a, k in zip(arrays, sizes, strict=True)])
        means = whole.mean(axis=0, keepdims=True)
        return [x - ops.mean(f, axis=0) for f, x in zip(found, xs, strict=True)], [
            a - means for a in arrays
        ]

    def handed(self) -> Any:
        xs, arrays = self.row()
        home = self.random.randrange(self.lanes)
        return ops.distributed_broadcast(xs[home], self.signals), [arrays[home]] * self.lanes
