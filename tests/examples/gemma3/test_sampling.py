# SPDX-License-Identifier: Apache-2.0
"""Tokens are drawn by their probability, from as few as was asked for, the same for a seed."""

import numpy as np
import pytest

from examples.gemma3.sampling import MOST, Sampling, draw, input_types, likeliest
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, TensorType

CPU = DeviceRef.CPU()
VOCABULARY = 100


@pytest.fixture(scope="module")
def model():
    scores = TensorType(DType.float32, ["batch", VOCABULARY], CPU)
    with Graph("draw", input_types=[scores, *input_types(CPU)]) as graph:
        first, *numbers = [v.tensor for v in graph.inputs]
        graph.output(draw(first, *numbers), likeliest(first))
    return InferenceSession().load(graph)


def drawn(model, scores, count=4000, step=0, **numbers):
    """Many draws from the same scores, all in one batch."""
    rows = np.broadcast_to(np.float32(scores), (count, VOCABULARY))
    tokens, best = model(rows, *Sampling(**numbers).inputs(step))
    assert (best.to_numpy() == np.argmax(scores)).all()
    assert tokens.shape == (count, 1) and tokens.dtype is DType.int64
    return np.bincount(tokens.to_numpy()[:, 0], minlength=VOCABULARY) / count


def scores_of(probabilities):
    """Scores whose softmax is that, for tokens that are not in order of their probability."""
    scores = np.full(VOCABULARY, -30, np.float32)
    scores[7 : 7 + len(probabilities)] = np.log(probabilities)[::-1]
    return scores


P = [0.1, 0.2, 0.3, 0.4]  # of tokens 10, 9, 8 and 7


def test_probabilities(model):
    often = drawn(model, scores_of(P), top_p=1)
    np.testing.assert_allclose(often[7:11], P[::-1], atol=0.04)


def test_temperature(model):
    cold = drawn(model, scores_of(P), top_p=1, temperature=0.5)
    squares = np.square(P[::-1])
    np.testing.assert_allclose(cold[7:11], squares / squares.sum(), atol=0.04)
    assert drawn(model, scores_of(P), temperature=1e-6)[7] == 1
    hot = drawn(model, scores_of(P), temperature=1e4, top_k=4, top_p=1)
    np.testing.assert_allclose(hot[7:11], 0.25, atol=0.04)


def test_top_k(model):
    often = drawn(model, scores_of(P), top_k=2, top_p=1)
    np.testing.assert_allclose(often[7:11], [4 / 7, 3 / 7, 0, 0], atol=0.04)
    assert drawn(model, scores_of(P), top_k=1)[7] == 1
    flat = drawn(model, np.arange(VOCABULARY) / 1e4, top_p=1)
    assert (flat[: VOCABULARY - MOST] == 0).all() and (flat > 0).sum() == MOST


def test_top_p(model):
    # 0.4 and 0.3 make more than 0.6, and so are enough.
    often = drawn(model, scores_of(P), top_p=0.6)
    np.testing.assert_allclose(often[7:11], [4 / 7, 3 / 7, 0, 0], atol=0.04)
    assert drawn(model, scores_of(P), top_p=1e-6)[7] == 1


def test_the_same_seed_draws_the_same(model):
    scores = scores_of(P)
    one = drawn(model, scores, seed=3)
    assert (one == drawn(model, scores, seed=3)).all()
    assert (one != drawn(model, scores, seed=4)).any()
    assert (one != drawn(model, scores, seed=3, step=1)).any()


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ({"temperature": 0}, "temperature is a number above 0, not 0"),
        ({"temperature": float("nan")}, "temperature is a number above 0, not nan"),
        ({"top_k": 0}, "top_k is a number from 1 to 64, not 0"),
        ({"top_k": 65}, "top_k is a number from 1 to 64, not 65"),
        ({"top_p": 0}, "top_p is above 0 and at most 1, not 0"),
        ({"top_p": 1.5}, r"top_p is above 0 and at most 1, not 1\.5"),
        ({"seed": -1}, r"seed is a number from 0 to 2\*\*32 - 1, not -1"),
    ],
)
def test_refused(numbers, text):
    with pytest.raises(ValueError, match=text):
        Sampling(**numbers)
