# SPDX-License-Identifier: Apache-2.0
"""`load_weights` opens what it can read, and says what it cannot."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxjax.graph.weights import SafetensorWeights, Weights, load_weights


def test_safetensors(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"w": np.ones(3, np.float32)}, path)
    weights = load_weights([path])
    assert isinstance(weights, SafetensorWeights)
    assert isinstance(weights, Weights)
    assert weights.w.exists()


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"no such weight file: .*a\.safetensors, .*b\.gguf"):
        load_weights([tmp_path / "a.safetensors", tmp_path / "b.gguf"])


def test_a_single_path(tmp_path):
    with pytest.raises(TypeError, match=r"takes a list of paths: write load_weights\(\['m'\]\)"):
        load_weights("m")  # pyright: ignore[reportArgumentType]


def test_no_paths():
    with pytest.raises(ValueError, match="no weight files given"):
        load_weights([])
