# SPDX-License-Identifier: Apache-2.0
"""The encoder as a graph gives the recorded embeddings, whatever the batch."""

import pathlib

import numpy as np
import pytest

from examples.minilm import model as program
from examples.minilm.assets import Config, weights_path
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, TensorType
from maxjax.graph.weights import load_weights

GOLDEN = np.load(pathlib.Path(__file__).parents[2] / "golden" / "minilm.npz")
INPUTS = [GOLDEN[name] for name in ("input_ids", "attention_mask", "token_type_ids")]


@pytest.fixture(scope="module")
def model():
    return program.load_model(InferenceSession())


def close(model, inputs, rows):
    embeddings = model.execute(*inputs)[0].to_numpy()
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, GOLDEN["embeddings"][rows], atol=2e-5, rtol=0)


def test_recorded_sentences(model):
    close(model, INPUTS, slice(None))


def test_other_sizes_and_less_padding(model):
    assert INPUTS[1][:2].sum() == 24
    close(model, [x[:2, :12] for x in INPUTS], slice(2))
    close(model, [x[:1] for x in INPUTS], slice(1))


def test_types():
    weights = load_weights([weights_path()])
    graph = program.build_graph(weights, Config())
    assert graph.output_types == [
        TensorType(DType.float32, ["batch", 384], DeviceRef.CPU()),
    ]
    # All of the checkpoint but the pooler, which sentence embeddings do not use, and a buffer.
    unused = {name for name, _ in weights.items()} - set(weights.allocated_weights)
    assert unused == {"embeddings.position_ids", "pooler.dense.bias", "pooler.dense.weight"}


def test_installed_config_is_the_default():
    assert Config.load() == Config()
