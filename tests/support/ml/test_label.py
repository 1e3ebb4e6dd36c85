# SPDX-License-Identifier: Apache-2.0
"""Framework labels are read back as written."""

import jax
import pytest

from maxjax.support.ml import CompiledFrameworkLabel, Framework


@pytest.mark.parametrize("framework", Framework)
@pytest.mark.parametrize("version", ["", "1", "0.10.2", "26.7.0rc1+cpu"])
def test_round_trips(framework, version) -> None:
    label = CompiledFrameworkLabel(framework, version)
    text = f"{framework.value}@{version}" if version else framework.value
    assert str(label) == text and CompiledFrameworkLabel.parse(text) == label


def test_what_is_installed() -> None:
    assert CompiledFrameworkLabel.installed(Framework.kJAX).version == jax.__version__
    assert str(CompiledFrameworkLabel.installed(Framework.kTensorFlow)) == "tensorflow"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no label: '': there is no framework ''; there are max, maxjax, jax"),
        ("JAX", "there is no framework 'JAX'"),
        ("jax ", "there is no framework 'jax '"),
        ("jax@", "there is no release after the @"),
        ("jax@1 2", "'1 2' is not the name of a release"),
        ("jax@1@2", "'1@2' is not the name of a release"),
        ("@1", "there is no framework ''"),
    ],
)
def test_text_that_is_no_label(text, error) -> None:
    with pytest.raises(ValueError, match=error):
        CompiledFrameworkLabel.parse(text)


def test_parts_that_are_none() -> None:
    with pytest.raises(TypeError, match="expected a Framework, got 'jax'"):
        CompiledFrameworkLabel("jax")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="the text of a label is a string, not None"):
        CompiledFrameworkLabel.parse(None)  # pyright: ignore[reportArgumentType]
