# SPDX-License-Identifier: Apache-2.0
"""The encoder as a file: small beside its weights, which are mapped, and equal at every size."""

import pathlib

import numpy as np
import pytest

from examples.minilm import model as program
from maxjax import export
from maxjax.engine import InferenceSession
from tests.export.memory import peak_of_loading
from tests.export.other_process import OtherProcess, Question

GOLDEN = np.load(pathlib.Path(__file__).parents[2] / "golden" / "minilm.npz")
INPUTS = [GOLDEN[name] for name in ("input_ids", "attention_mask", "token_type_ids")]
SIZES = [(1, 1), (1, 12), (2, 7), (3, 20), (5, 16)]


@pytest.fixture(scope="module")
def model():
    return program.load_model(InferenceSession())


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    return export.save(model, tmp_path_factory.mktemp("minilm") / "minilm.maxjax")


def inputs(batch, length):
    return [np.resize(x, (batch, x.shape[1]))[:, :length] for x in INPUTS]


def test_sizes_from_the_file_in_another_process(model, path):
    other = OtherProcess()
    calls = [inputs(*size) for size in SIZES]
    other.send(Question(path, calls, (False,) * 3, {}))
    for call, (found,) in zip(calls, other.receive(), strict=True):
        (wanted,) = model(*call)
        np.testing.assert_allclose(found, wanted.to_numpy(), rtol=0, atol=1e-5)
    other.close()


def test_the_program_is_small_and_the_weights_are_mapped(model, path):
    sizes = export.inspect(path).sizes
    weights = sum(w.nbytes for w in model.weights.values())
    assert weights <= sizes["weights.safetensors"] < weights + 50_000
    assert sum(size for name, size in sizes.items() if name.startswith("module")) < 1_000_000
    assert weights < peak_of_loading(path) < 1.2 * weights
