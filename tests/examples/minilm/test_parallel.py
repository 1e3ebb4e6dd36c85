# SPDX-License-Identifier: Apache-2.0
"""The encoder on several virtual devices gives the recorded embeddings, with two sums a layer."""

import numpy as np
import pytest

from examples.minilm import parallel
from examples.minilm.assets import Config, weights_path
from maxjax import driver
from maxjax.driver import Accelerator, Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef
from maxjax.graph.weights import load_weights
from tests.examples.minilm.test_model import INPUTS, close

CONFIG = Config()


@pytest.fixture(autouse=True, scope="module")
def eight_accelerators():
    driver.set_virtual_device_count(8)
    yield
    driver.set_virtual_device_count(0)


class WithSignals:
    """A model that gets its signal buffers here."""

    def __init__(self, model, count):
        self.model = model
        self.signals = [Buffer.zeros([1], DType.uint8, Accelerator(i)) for i in range(count)]

    def execute(self, *inputs):
        return self.model(*inputs, *self.signals)


@pytest.mark.parametrize("count", [2, 4])
def test_recorded_sentences(count):
    weights = load_weights([weights_path()])
    graph = parallel.build_graph(weights, [DeviceRef.GPU(i) for i in range(count)], CONFIG)
    session = InferenceSession([Accelerator(i) for i in range(count)])
    model = session.load(graph, weights_registry=weights.allocated_weights)
    close(WithSignals(model, count), INPUTS, slice(None))
    assert model.plan.path == "one program on all devices"
    kinds = [c.kind for c in model.plan.collectives]
    # The result goes to the CPU, which is a broadcast.
    assert kinds == ["all-reduce"] * (2 * CONFIG.layers) + ["broadcast"]
    sizes = {w.name: w.bytes["gpu:0"] for w in model.plan.weights}
    whole = {n: np.asarray(a).nbytes for n, a in model.weights.items()}
    parts = [n for n in sizes if sizes[n] < whole[n]]
    assert len(parts) == 10 * CONFIG.layers  # four biases and six matrices in each layer
    assert all(sizes[n] * count == whole[n] for n in parts)


def test_heads_that_cannot_be_shared_out():
    with pytest.raises(ValueError, match="12 heads cannot be shared out to 5 devices"):
        parallel.build_graph(
            load_weights([weights_path()]), [DeviceRef.GPU(i) for i in range(5)], CONFIG
        )
