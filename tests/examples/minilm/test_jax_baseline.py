# SPDX-License-Identifier: Apache-2.0
"""The plain JAX encoder gives the recorded embeddings."""

import pathlib

import jax
import numpy as np
import pytest

from examples.minilm import jax_baseline
from examples.minilm.assets import Config

GOLDEN = np.load(pathlib.Path(__file__).parents[2] / "golden" / "minilm.npz")
INPUTS = [GOLDEN[name] for name in ("input_ids", "attention_mask", "token_type_ids")]


@pytest.fixture(autouse=True)
def ordinary_jax():
    """The baseline is written for JAX as it comes, which broadcasts."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def params():
    return jax_baseline.load_params()


def test_embeddings(params):
    embeddings = jax_baseline.embed(params, *INPUTS, config=Config.load())
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, GOLDEN["embeddings"], atol=2e-5, rtol=0)


def test_hidden_states_of_the_first_sentence(params):
    inputs = [x[:1] for x in INPUTS]
    hidden = jax_baseline.encode(params, *inputs, config=Config.load())
    np.testing.assert_allclose(hidden[0], GOLDEN["hidden0"], atol=1e-4, rtol=0)


def test_padding_changes_nothing(params):
    short = [x[:1, :12] for x in INPUTS]
    assert INPUTS[1][0].sum() == 12
    embeddings = jax_baseline.embed(params, *short, config=Config.load())
    np.testing.assert_allclose(embeddings, GOLDEN["embeddings"][:1], atol=2e-5, rtol=0)
