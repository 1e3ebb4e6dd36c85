# SPDX-License-Identifier: Apache-2.0
"""Texts become the recorded ids, and ids the recorded texts."""

import json
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.gemma3.assets import model_path
from examples.gemma3.tokenizer import Decoder, Tokenizer
from maxjax.graph.weights.gguf_file import GGUFFile

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
PROMPTS = json.loads((GOLDEN / "gemma3_270m.json").read_text())
RECORDED = np.load(GOLDEN / "gemma3_270m.npz")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(GGUFFile(model_path()).metadata)


@pytest.mark.parametrize("i", range(len(PROMPTS)))
def test_recorded_prompts(tokenizer, i):
    assert tokenizer.encode(PROMPTS[i]["prompt"]) == RECORDED[f"ids{i}"].tolist()
    assert tokenizer.decode(RECORDED[f"greedy{i}"]) == PROMPTS[i]["completion"]


def test_an_empty_text_is_its_beginning(tokenizer):
    assert tokenizer.encode("") == [tokenizer.bos] == [2]
    assert tokenizer.stops == {1}


# The vocabulary writes a space as "▁", which therefore comes back as a space.
@given(st.text().filter(lambda text: "▁" not in text))
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_runs_of_newlines_and_spaces_are_whole(tokenizer):
    def pieces(text):
        return [tokenizer.piece(i).decode() for i in tokenizer.encode(text)[1:]]

    assert pieces("a\n\n\nb") == ["a", "\n\n\n", "b"]
    assert pieces("a    b") == ["a", "    ", "b"]
    assert pieces("<b>x</b>") == ["<b>", "x", "</b>"]


def test_names_of_control_tokens_are_only_text(tokenizer):
    ids = tokenizer.encode("<eos>")
    assert 1 not in ids and tokenizer.decode(ids) == "<eos>"
    assert tokenizer.decode([2, 1]) == ""


def test_characters_come_out_whole(tokenizer):
    ids = tokenizer.encode("\u0378")  # unassigned, so no token: its two bytes
    assert [tokenizer.piece(i) for i in ids[1:]] == [b"\xcd", b"\xb8"]
    decoder = Decoder(tokenizer)
    assert [decoder.feed(i) for i in ids] == ["", "", "\u0378"]
    assert decoder.end() == ""
    decoder.feed(ids[1])
    assert decoder.end() == "\ufffd"


def test_half_of_a_surrogate_pair(tokenizer):
    assert tokenizer.decode(tokenizer.encode("a\ud83d")) == "a?"


def test_the_best_pair_goes_first_and_the_leftmost_of_equals():
    tokens = ["<bos>", "▁", "a", "b", "c", "ab", "bc", "aa", "<0x64>"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.float32([0, 0, 0, 0, 0, -2, -1, -3, 0]),
        "tokenizer.ggml.token_type": np.int32([3, 1, 1, 1, 1, 1, 1, 1, 6]),
        "tokenizer.ggml.bos_token_id": 0,
    }
    tokenizer = Tokenizer(metadata)
    assert tokenizer.encode("abc") == [0, 2, 6]  # bc before ab
    assert tokenizer.encode("aaa") == [0, 7, 2]
    assert tokenizer.encode("d ") == [0, 8, 1]
    with pytest.raises(ValueError, match="tokenizer is of kind 'gpt2'; read here is 'llama'"):
        Tokenizer({**metadata, "tokenizer.ggml.model": "gpt2"})
