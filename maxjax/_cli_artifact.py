# SPDX-License-Identifier: Apache-2.0
"""The commands for artifacts: ``maxjax export``, ``inspect``, ``run``, ``bench``, ``verify``.

What a command does is in a module of its own, which is imported when the command runs: JAX takes
a second to import, and ``--help`` needs none of it.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import click

from maxjax._cli_run_script import RunCommand
from maxjax._cli_text import Misused, byte_text, counted, one_line, shown

__all__ = ["bench", "export", "inspect", "run", "verify"]


def _there(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuses files that are not there, on one line."""
    for path in (value,) if isinstance(value, str) else value:
        if not os.path.isfile(path):
            raise Misused(f"there is no file {shown(path)!r}")
    return value


_FILE = click.argument("file", callback=_there)
_INPUT = click.option(
    "-i", "--input", "inputs", multiple=True, metavar="[NAME=]VALUE",
    help="A .npy or .npz file, or a spec of random numbers such as 4x128xf32; in the inputs' "
    "order, or with the name of one: input0=x.npy.",
)  # fmt: skip
_DIM = click.option(
    "-d", "--dim", "dims", multiple=True, metavar="NAME=SIZE",
    help="The size of a named dim, such as batch=8.",
)  # fmt: skip
_WEIGHTS = click.option(
    "-w", "--weights", multiple=True, metavar="FILE", callback=_there,
    help="Weights: safetensors, GGUF or .npz; may be given several times.",
)  # fmt: skip
_SEED = click.option(
    "--seed", default=0, show_default=True, help="Of random numbers; input i has SEED + i."
)
_DEVICE = click.option(
    "--device", type=click.Choice(["cpu", "accelerator"]),
    help="Where to run; by default where the graph's types say.",
)  # fmt: skip


def _command(
    examples: str, *options: Callable[[Any], Any], cls: type[click.Command] = click.Command
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with these options, ``--json`` and ``--quiet``, whose errors are one line each."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def call(quiet: bool, **given: Any) -> None:
            # Names may hold characters that the terminal's encoding lacks.
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
            with warnings.catch_warnings():
                warnings.simplefilter("default", UserWarning)
                warnings.showwarning = lambda message, *_, **__: click.echo(
                    "" if quiet else f"Warning: {shown(str(message))}\n", nl=False, err=True
                )
                try:
                    function(quiet=quiet, **given)
                except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
                    raise
                except Exception as e:
                    raise click.ClickException(one_line(e)) from None

        decorated: Any = call
        shared = (
            click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
            click.option(
                "-q", "--quiet", is_flag=True, help="Print only errors on standard error."
            ),
        )
        for option in reversed((*options, *shared)):
            decorated = option(decorated)
        return click.command(cls=cls, epilog=f"\b\nExamples:\n{examples}")(decorated)

    return decorate


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _print_json(found: Any) -> None:
    click.echo(json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False))


# ---------------------------------------------------------------- export


@_command(
    """\
  maxjax export model.py:graph -o model.maxjax
  maxjax export package.model:build -w model.safetensors -o model.maxjax
  maxjax export model.py:graph -o model.maxjax --platforms cpu,tpu
  maxjax export model.py:graph -o model.maxjax --specialize batch=1,8
  maxjax export model.py:graph -o model.maxjax --condition "n % 4 == 0"
""",
    click.argument("graph", metavar="MODULE:GRAPH"),
    click.option(
        "-o", "--output", required=True, metavar="FILE", type=click.Path(dir_okay=False),
        help="The artifact to write.",
    ),
    _WEIGHTS,
    click.option(
        "--platforms", metavar="NAMES",
        help="Of cpu, cuda, rocm and tpu, with commas; by default all. None need be here.",
    ),
    click.option(
        "--specialize", multiple=True, metavar="DIM=SIZES",
        help="Adds programs for fixed sizes of a dim, such as batch=1,8.",
    ),
    click.option(
        "--condition", "conditions", multiple=True, metavar="TEXT",
        help='What sizes it is for, such as "n % 4 == 0".',
    ),
    click.option(
        "--bound", "bounds", multiple=True, metavar="DIM=SIZE",
        help="The most that a size which depends on values is, such as found=128.",
    ),
    click.option(
        "--bake", multiple=True, metavar="NAME",
        help="A weight that becomes a constant of the program.",
    ),
    click.option("--debug-info", is_flag=True, help="Keep the graph's files and lines."),
)  # fmt: skip
def export(graph: str, output: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Write a graph as an artifact: one file for every platform and all sizes.

    MODULE is a Python module's name or a .py file. GRAPH is the name in it of a graph, a module,
    or a function that returns one, or (graph, weights). A function with one argument is called
    with the checkpoint of --weights.
    """
    from maxjax import _cli_export, _cli_inspect, _cli_stages
    from maxjax import export as artifacts

    stages = _cli_stages.Stages(quiet)
    path, building, exporting = _cli_export.write(graph, output, stages, **options)
    found = _cli_inspect.describe(artifacts.inspect(path))
    absent = [w["name"] for w in found["weights"] if not w["stored"]]
    if absent:
        stages.say(f"The artifact lacks {counted(len(absent), 'weight')}: who loads it gives them")
    if as_json:
        _print_json(
            found | {"seconds": {"build": building.rounded(), "export": exporting.rounded()}}
        )
        return
    programs = counted(len(found["programs"]), "program")
    click.echo(
        f"{shown(str(path))}  {byte_text(found['bytes'])}, {programs} for "
        f"{', '.join(found['platforms'])}"
    )


# ---------------------------------------------------------------- inspect


@_command(
    """\
  maxjax inspect model.maxjax
  maxjax inspect --all model.maxjax
  maxjax inspect --json model.maxjax | jq .ops.counts
""",
    _FILE,
    click.option("--all", "every", is_flag=True, help="Show all weights, not the largest alone."),
)
def inspect(file: str, every: bool, as_json: bool, quiet: bool) -> None:
    """Show what is in an artifact: members, types, dims, conditions, weights, ops."""
    from maxjax import _cli_inspect
    from maxjax import export as artifacts

    artifact = artifacts.inspect(file)
    found = _cli_inspect.describe(artifact)
    problem = None
    try:
        found["ops"] = _cli_inspect.histogram(artifact)
    except ValueError as e:
        # All else of a damaged file is told first.
        found["ops"], problem = None, e
    if as_json:
        _print_json(found)
    else:
        _print(_cli_inspect.lines(found, every_weight=every))
    if problem is not None:
        raise problem


# ---------------------------------------------------------------- run


@_command(
    """\
  maxjax run model.maxjax --input x.npy
  maxjax run model.maxjax --input input1=mask.npy --input input0=4x128xf32
  maxjax run model.maxjax --input batchx128xf32 --dim batch=8 --out results
  maxjax run model.maxjax --input x.npy --out results.npz
  maxjax run script.py --its own arguments
""",
    _FILE,
    _INPUT,
    _DIM,
    _WEIGHTS,
    click.option(
        "-o", "--out", metavar="FOLDER",
        help="Where to write each output as .npy; or a .npz file for all.",
    ),
    _SEED,
    _DEVICE,
    cls=RunCommand,
)  # fmt: skip
def run(
    file: str,
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    weights: tuple[str, ...],
    out: str | None,
    seed: int,
    device: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Call an artifact with files or random numbers, and print what it gives.

    Buffers that are not given are zeros, and are printed and written as they are afterwards.

    A file whose name ends in .py is a program written for MAX: it runs with maxjax in place of max,
    and what follows its name is its own.
    """
    from maxjax import _cli_files, _cli_inputs, _cli_run, _cli_stages

    given = _cli_inputs.Given(inputs, dims, weights, seed, device or "")
    ran = _cli_run.run(file, given, _cli_stages.Stages(quiet))
    files = _cli_files.write(ran.results, out) if out is not None else {}
    if as_json:
        results = {
            name: _cli_run.described(array, files.get(name)) for name, array in ran.results.items()
        }
        _print_json(
            {"dims": dict(ran.inputs.sizes), "results": results, "seconds": ran.times.rounded()}
        )
    else:
        _print(_cli_run.lines(ran.results))
        _print(f"wrote {shown(str(path))}" for path in dict.fromkeys(files.values()))


# ---------------------------------------------------------------- bench


@_command(
    """\
  maxjax bench model.maxjax
  maxjax bench model.maxjax --dim batch=32 --dim seq=128
  maxjax bench model.maxjax --runs 1000 --warmup 10 --json
""",
    _FILE,
    _INPUT,
    _DIM,
    _WEIGHTS,
    click.option(
        "--warmup", default=3, show_default=True, type=click.IntRange(0), metavar="N",
        help="Calls before those that are measured.",
    ),
    click.option(
        "--runs", type=click.IntRange(1), metavar="N",
        help="Calls that are measured; by default as many as --seconds allow.",
    ),
    click.option(
        "--seconds", default=1.0, show_default=True, type=click.FloatRange(0), metavar="S",
        help="How long to measure.",
    ),
    _SEED,
    _DEVICE,
)  # fmt: skip
def bench(
    file: str,
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    weights: tuple[str, ...],
    warmup: int,
    runs: int | None,
    seconds: float,
    seed: int,
    device: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure an artifact: loading, compiling, running, memory, arithmetic.

    Inputs that are not given are random, and dims without a size have a small one.
    """
    from maxjax import _cli_bench, _cli_inputs, _cli_stages

    given = _cli_inputs.Given(inputs, dims, weights, seed, device or "")
    found = _cli_bench.bench(
        file, given, _cli_stages.Stages(quiet), warmup=warmup, runs=runs, seconds=seconds
    )
    if as_json:
        _print_json(found)
    else:
        _print(_cli_bench.lines(found))


# ---------------------------------------------------------------- verify


@_command(
    """\
  maxjax verify model.maxjax
  maxjax verify model.maxjax --dim batch=8 --seed 7
  maxjax verify model.maxjax --json > checks.json
""",
    _FILE,
    _INPUT,
    _DIM,
    _WEIGHTS,
    click.option(
        "--tolerance", type=click.FloatRange(0), metavar="T",
        help="How far floats may be apart, relative to 1 plus their size; by default 1e-5 for "
        "float32, more for smaller types.",
    ),
    _SEED,
    _DEVICE,
)  # fmt: skip
def verify(
    file: str,
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    weights: tuple[str, ...],
    tolerance: float | None,
    seed: int,
    device: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Check that an artifact is whole, and gives the same however it is run.

    Compares the hashes of all members, loads it, and runs it: by maxjax, by jax.export alone, each
    program of fixed sizes, and in a new process. Inputs that are not given are random. Ends with 1
    if a check fails.
    """
    from maxjax import _cli_inputs, _cli_stages, _cli_verify

    given = _cli_inputs.Given(inputs, dims, weights, seed, device or "")
    sizes, checks = _cli_verify.verify(file, given, _cli_stages.Stages(quiet), tolerance=tolerance)
    failed = [c for c in checks if not c.ok]
    if as_json:
        told = [
            {"name": c.name, "ok": c.ok, "told": c.told, "seconds": round(c.seconds, 6)}
            for c in checks
        ]
        _print_json({"ok": not failed, "dims": sizes, "checks": told})
    else:
        _print(_cli_verify.lines(checks))
    if failed:
        raise click.ClickException(f"{shown(file)}: {failed[0].name}: {failed[0].told}")
