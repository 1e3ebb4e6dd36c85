# SPDX-License-Identifier: Apache-2.0
"""A multilayer perceptron learns which of three spiral arms a point lies on.

Written only against ``max``: the forward pass, the gradients and the step of gradient descent are
one graph, whose buffers hold the parameters.
"""

import sys

import numpy as np
from max.driver import CPU, Buffer
from max.dtype import DType
from max.engine import InferenceSession
from max.graph import BufferType, DeviceRef, Graph, TensorType, TensorValue, ops

ARMS, POINTS, HIDDEN = 3, 40, 24
RATE, STEPS = 0.5, 120
CPU_REF = DeviceRef.CPU()

SHAPES = {"w1": [2, HIDDEN], "b1": [HIDDEN], "w2": [HIDDEN, ARMS], "b2": [ARMS]}


def spirals(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points ``(n, 2)`` and the arm that each lies on, ``(n, ARMS)`` with a 1 in its column."""
    rng = np.random.default_rng(seed)
    radius = np.tile(np.linspace(0.1, 1, POINTS), ARMS)
    arm = np.repeat(np.arange(ARMS), POINTS)
    angle = 3 * radius + arm * 2 * np.pi / ARMS + rng.normal(0, 0.05, arm.size)
    points = 2 * np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points.astype(np.float32), np.eye(ARMS, dtype=np.float32)[arm]


def logits(x: TensorValue, p: dict[str, TensorValue]) -> tuple[TensorValue, TensorValue]:
    """The hidden layer ``(n, HIDDEN)`` and the scores ``(n, ARMS)``."""
    hidden = ops.tanh(x @ p["w1"] + p["b1"])
    return hidden, hidden @ p["w2"] + p["b2"]


def parameter_types() -> list[BufferType]:
    """Of the buffers that hold the parameters, in the order of ``SHAPES``."""
    return [BufferType(DType.float32, shape, CPU_REF) for shape in SHAPES.values()]


def load_parameters(graph: Graph) -> dict[str, TensorValue]:
    """What the graph's buffers hold; they are its last inputs."""
    buffers = [value.buffer for value in graph.inputs[-len(SHAPES) :]]
    return dict(zip(SHAPES, map(ops.buffer_load, buffers), strict=True))


def training_step() -> Graph:
    """One step of gradient descent; its output is the loss before it, the mean cross-entropy."""
    x_type = TensorType(DType.float32, ["n", 2], CPU_REF)
    y_type = TensorType(DType.float32, ["n", ARMS], CPU_REF)
    with Graph("step", input_types=[x_type, y_type, *parameter_types()]) as graph:
        x, y = graph.inputs[0].tensor, graph.inputs[1].tensor
        p = load_parameters(graph)
        hidden, scores = logits(x, p)
        log_probabilities = ops.logsoftmax(scores)
        count = float(ARMS * POINTS)
        loss = -ops.sum(ops.sum(log_probabilities * y, axis=1), axis=0) / count

        d_scores = (ops.exp(log_probabilities) - y) / count
        d_hidden = (d_scores @ ops.transpose(p["w2"], 0, 1)) * (1.0 - hidden * hidden)
        gradients = {
            "w1": ops.transpose(x, 0, 1) @ d_hidden,
            "b1": ops.squeeze(ops.sum(d_hidden, axis=0), 0),
            "w2": ops.transpose(hidden, 0, 1) @ d_scores,
            "b2": ops.squeeze(ops.sum(d_scores, axis=0), 0),
        }
        buffers = [value.buffer for value in graph.inputs[-len(SHAPES) :]]
        for name, buffer in zip(SHAPES, buffers, strict=True):
            ops.buffer_store(buffer, p[name] - gradients[name] * RATE)
        graph.output(loss)
    return graph


def prediction() -> Graph:
    """The probability of each arm for a batch of points, and the likeliest arm."""
    x_type = TensorType(DType.float32, ["m", 2], CPU_REF)
    with Graph("predict", input_types=[x_type, *parameter_types()]) as graph:
        _, scores = logits(graph.inputs[0].tensor, load_parameters(graph))
        graph.output(ops.softmax(scores), ops.argmax(scores, axis=-1))
    return graph


def main(steps: int) -> None:
    """Trains, then says how well and what three new points are taken for."""
    rng = np.random.default_rng(0)
    parameters = [
        Buffer.from_numpy(rng.normal(0, 0.5, shape).astype(np.float32)) for shape in SHAPES.values()
    ]
    session = InferenceSession(devices=[CPU()])
    step, predict = session.load(training_step()), session.load(prediction())
    x, y = spirals(seed=1)
    for i in range(steps):
        (loss,) = step.execute(Buffer.from_numpy(x), Buffer.from_numpy(y), *parameters)
        if i % 20 == 0:
            print(f"step {i:3d}: loss {loss.to_numpy().item():.6f}")

    _, arms = predict.execute(Buffer.from_numpy(x), *parameters)
    right = int((arms.to_numpy().reshape(-1) == y.argmax(1)).sum())
    print(f"{right} of {len(x)} points are on the arm that they are taken for")
    new = np.float32([[1, 1], [-1.5, 0.5], [0, -0.5]])
    probabilities, arms = predict.execute(Buffer.from_numpy(new), *parameters)
    for point, row, arm in zip(
        new, probabilities.to_numpy(), arms.to_numpy().reshape(-1), strict=True
    ):
        print(f"{point[0]:g}, {point[1]:g}: arm {arm} of {', '.join(f'{v:.6f}' for v in row)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
