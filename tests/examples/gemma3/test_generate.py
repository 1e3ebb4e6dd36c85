# SPDX-License-Identifier: Apache-2.0
"""The model gives the recorded scores and writes the recorded text, in two programs."""

import json
import pathlib

import numpy as np
import pytest

from examples.gemma3.generate import Generator, Sampling

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
PROMPTS = json.loads((GOLDEN / "gemma3_270m.json").read_text())
RECORDED = np.load(GOLDEN / "gemma3_270m.npz")
# As many places as the generator takes for texts this short: sizes are compiled once.
CONTEXT = 64
IDS = [RECORDED[f"ids{i}"].tolist() for i in range(len(PROMPTS))]


@pytest.fixture(scope="module")
def generator():
    return Generator()


def prefill(generator, ids):
    """The scores after each of some texts, padded on the left."""
    longest = max(map(len, ids))
    padded = np.zeros((len(ids), longest), np.int64)
    starts = np.array([longest - len(i) for i in ids], np.int64)
    for row, start, text in zip(padded, starts, ids, strict=True):
        row[start:] = text
    scores, best = generator.models["prefill"](padded, starts, *generator.caches(len(ids), CONTEXT))
    return scores.to_numpy(), best.to_numpy()


def close(scores, i):
    top = RECORDED[f"logits_top_ids{i}"]
    np.testing.assert_allclose(scores[top], RECORDED[f"logits_top{i}"], rtol=2e-3)
    assert np.argsort(-scores)[:20].tolist() == top.tolist()
    np.testing.assert_allclose(scores[:64], RECORDED[f"logits_head{i}"], rtol=2e-3, atol=2e-3)


def test_recorded_texts_in_one_batch(generator):
    scores, best = prefill(generator, IDS)
    assert scores.shape == (5, generator.config.vocabulary) and scores.dtype == np.float32
    for i in range(5):
        close(scores[i], i)
        assert best[i, 0] == RECORDED[f"greedy{i}"][0]
    written = np.array(list(generator.tokens(IDS, 16))).T
    for i in range(5):
        assert written[i].tolist() == RECORDED[f"greedy{i}"].tolist()


def test_a_text_alone(generator):
    i = 0
    close(prefill(generator, [IDS[i]])[0][0], i)
    pieces = list(generator.text(PROMPTS[i]["prompt"], 16))
    assert "".join(pieces) == PROMPTS[i]["completion"]
    assert len(pieces) == 17


def test_decoding_is_the_same_as_reading(generator):
    """A text read at once, and the same read in two parts, go on alike."""
    ids = IDS[0]
    whole, _ = prefill(generator, [ids])
    caches = generator.caches(1, CONTEXT)
    starts = np.zeros(1, np.int64)
    generator.models["prefill"](np.array([ids[:-1]]), starts, *caches)
    last, place = np.array([ids[-1:]]), np.int64(len(ids) - 1)
    scores, _ = generator.models["decode"](last, starts, place, *caches)
    np.testing.assert_allclose(scores.to_numpy(), whole, rtol=1e-3, atol=1e-3)


def test_a_text_is_two_programs(generator):
    assert len(list(generator.ids(PROMPTS[0]["prompt"], 24))) == 24
    # Others of this module are of other texts: of five at once, and shorter ones.
    for name, tokens in (("prefill", (1, len(IDS[0]))), ("decode", (1, 1))):
        sizes = [key[0] for key in generator.models[name]._programs.compiled]
        assert sizes.count(tokens) == 1


def test_caches_are_written_in_place(generator):
    caches = generator.caches(1, CONTEXT)
    model = generator.models["decode"]
    model(np.int64([[5]]), np.zeros(1, np.int64), np.int64(0), *caches)
    assert all(np.abs(c.to_numpy()).max() > 0 for c in caches)
    program = model._programs.compiled[((1, 1), (1,), (), *(c.shape for c in caches))]
    sizes = program.memory_analysis()
    total = sum(c.num_elements * 4 for c in caches)
    assert sizes.alias_size_in_bytes == total
    # Neither the caches nor a decoded weight are ever there a second time. (A CPU's matrix product
    # takes one layer's cache transposed, into memory that all layers share.)
    assert sizes.temp_size_in_bytes < total / 10
    text = program.as_text()
    shapes = {f"f32[{','.join(map(str, c.shape))}]" for c in caches}
    main = text[text.index("ENTRY ") :].splitlines()
    assert not [x for x in main if " copy(" in x and any(f"= {s}" in x for s in shapes)]


def test_one_body_for_layers_that_are_packed_alike(generator):
    text = str(generator.models["decode"].function.graph.module)
    assert text.count("mo.call @decode_layer") == 18
    subgraphs = generator.models["decode"].function.graph.module.subgraphs
    assert len(subgraphs) == 4  # two kinds, each for a prompt and for one token


def test_refused(generator):
    with pytest.raises(ValueError, match="at least one prompt, and at least one token in each"):
        next(generator.tokens([[2], []], 1))
    with pytest.raises(ValueError, match="at least one prompt"):
        next(generator.tokens([], 1))
    with pytest.raises(
        ValueError, match="a prompt of 6 tokens and 32768 more are 32774; the model"
    ):
        next(generator.text(PROMPTS[0]["prompt"], 32768))
    assert list(generator.tokens([[2]], 0)) == []


def test_a_text_ends_at_its_end(generator, monkeypatch):
    monkeypatch.setattr(generator, "tokens", lambda prompts, count: iter([[818], [1], [818]]))
    assert list(generator.ids("x", 3)) == [818]


@pytest.mark.slow
def test_drawn_tokens():
    drawing = Generator(sampling=Sampling(temperature=1.5, top_k=1))
    assert list(drawing.ids(PROMPTS[0]["prompt"], 5)) == RECORDED["greedy0"][:5].tolist()
    free = Generator(sampling=Sampling(temperature=1.5, seed=1))
    one, two = (list(free.ids(PROMPTS[0]["prompt"], 16)) for _ in range(2))
    assert one == two != RECORDED["greedy0"].tolist()
