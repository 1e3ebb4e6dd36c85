# SPDX-License-Identifier: Apache-2.0
"""The plain JAX step gives the recorded scores."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.gemma3 import jax_baseline
from examples.gemma3.assets import Config

RECORDED = np.load(pathlib.Path(__file__).parents[2] / "golden" / "gemma3_270m.npz")


@pytest.fixture(autouse=True)
def ordinary_jax():
    """The baseline is written for JAX as it comes, which promotes and broadcasts."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def test_recorded_scores_and_tokens():
    config = Config()
    params, kinds = jax_baseline.load_params(config)
    step = jax_baseline.decode(config, kinds)
    caches = jax_baseline.empty_caches(config, 16)
    for place, token in enumerate(RECORDED["ids0"]):
        best, scores, caches = step(params, jnp.int32([token]), jnp.int32(place), caches)
    np.testing.assert_allclose(
        scores[0, RECORDED["logits_top_ids0"]], RECORDED["logits_top0"], rtol=2e-3
    )
    written = [int(best[0])]
    for place in range(len(RECORDED["ids0"]), len(RECORDED["ids0"]) + 3):
        best, _, caches = step(params, best, jnp.int32(place), caches)
        written.append(int(best[0]))
    assert written == RECORDED["greedy0"][:4].tolist()
