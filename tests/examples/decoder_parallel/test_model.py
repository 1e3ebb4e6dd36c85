# SPDX-License-Identifier: Apache-2.0
"""The decoder on one device and on grids of up to eight: the same scores, only its own sums."""

import re

import numpy as np
import pytest

from examples.decoder_parallel.model import Config, build, random_weights
from maxjax import driver, export
from maxjax.driver import Accelerator, Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession, Model
from maxjax.graph import DeviceRef

CONFIG = Config()
TOKENS = np.random.default_rng(1).integers(0, CONFIG.vocabulary, (4, 6))


@pytest.fixture(autouse=True, scope="module")
def eight_accelerators():
    driver.set_virtual_device_count(8)
    yield
    driver.set_virtual_device_count(0)


def load(count, replicas=1):
    graph = build(CONFIG, [DeviceRef.GPU(i) for i in range(count)], replicas)
    session = InferenceSession([Accelerator(i) for i in range(count)])
    return session.load(graph, weights_registry=random_weights(CONFIG))


def scores(model: Model, replicas: int = 1) -> np.ndarray:
    count = len(model.plan.devices)
    signals = [Buffer.zeros([1], DType.uint8, Accelerator(i)) for i in range(count)]
    outputs = model(*np.split(TOKENS, replicas), *signals)
    return np.concatenate([o.to_numpy() for o in outputs])


@pytest.fixture(scope="module")
def expected():
    return scores(load(1))


@pytest.mark.parametrize(("count", "replicas"), [(2, 1), (4, 1), (8, 1), (8, 2), (8, 4)])
def test_scores_are_those_of_one_device(count, replicas, expected):
    model = load(count, replicas)
    found = scores(model, replicas)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found.argmax(-1), expected.argmax(-1))
    shards, plan = count // replicas, model.plan
    assert plan.path == "one program on all devices"
    total = sum(w.nbytes for w in random_weights(CONFIG).values())
    assert set(plan.weight_bytes.values()) == {total // shards}
    (program,) = model._programs.compiled.values()
    text = program.args[0].as_text()
    kinds = re.findall(r"= \S+ (all-\w+|collective-\w+|reduce-scatter)\(", text)
    if shards > 1:
        assert sorted(kinds) == ["all-gather"] + ["all-reduce"] * (2 * CONFIG.layers + 1)


def test_a_file_of_it(tmp_path, expected):
    model = load(8, 2)
    path = export.save(model, tmp_path / "decoder.maxjax", platforms=["cpu", "cuda", "tpu"])
    again = export.load(path, [Accelerator(i) for i in range(8)])
    np.testing.assert_allclose(scores(again, 2), expected, rtol=1e-4, atol=1e-4)
    assert again.plan.weight_bytes == model.plan.weight_bytes
