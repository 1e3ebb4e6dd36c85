# SPDX-License-Identifier: Apache-2.0
"""Formats are told by suffixes alone, and errors name the file."""

from pathlib import Path

import pytest

from maxjax.graph.weights import WeightsFormat, weights_format


def test_one_format():
    assert weights_format([Path("a.safetensors"), Path("b/c.d.safetensors")]) == "safetensors"
    assert weights_format([Path("a.gguf")]) is WeightsFormat.gguf


@pytest.mark.parametrize("name", ["a.bin", "model", "a.SAFETENSORS", ".safetensors", "a.gguf.json"])
def test_unknown_suffix(name):
    with pytest.raises(ValueError, match=rf"{name} .*must end in \.gguf or \.safetensors"):
        weights_format([Path("a.safetensors"), Path(name)])


def test_mixed_formats():
    with pytest.raises(ValueError, match=r"different formats: a\.gguf and b\.safetensors"):
        weights_format([Path("a.gguf"), Path("b.safetensors")])


def test_no_files():
    with pytest.raises(ValueError, match="no weight files given"):
        weights_format([])
