# SPDX-License-Identifier: Apache-2.0
"""``maxjax export``: finds a graph in the user's Python, and writes it as an artifact."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from maxjax import export
from maxjax._cli_files import checkpoint, weights_of
from maxjax._cli_stages import Stages, Times
from maxjax._cli_text import Misused, shown
from maxjax.engine import Model
from maxjax.graph import Graph, Module
from maxjax.lower.condition import Condition

__all__ = ["found", "write"]

_EXPECTED = "a Graph, a Module, or a function that returns one, or (graph, weights)"
_TARGET = re.compile(r"(?P<module>.+):(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)")


def write(
    target: str,
    path: str,
    stages: Stages,
    *,
    weights: Sequence[str],
    platforms: str | None,
    specialize: Sequence[str],
    conditions: Sequence[str],
    bounds: Sequence[str],
    bake: Sequence[str],
    debug_info: bool,
) -> tuple[Path, Times, Times]:
    """Writes the artifact; the arguments are those of the command line.

    Returns:
        Its path, and how long building and writing took.

    Raises:
        Misused: If an argument is none.
        ClickException: If the user's program fails.
        ValueError, TypeError, OSError: As for :func:`maxjax.export.save`.
    """
    where = export.PLATFORMS if platforms is None else _platforms(platforms)
    sizes = _sizes(specialize)
    for text in conditions:
        try:
            Condition.parse(text)
        except ValueError as e:
            raise Misused(f"--condition: {e}") from None
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise Misused(f"--output: there is no folder {folder!r}")
    with (
        found(target, weights, stages) as (model, registry, building),
        stages.step("Exporting") as t,
    ):
        written = export.save(
            model,
            path,
            weights_registry=registry or None,
            platforms=where,
            specialize=sizes,
            conditions=conditions,
            bounds=_bounds(bounds),
            bake=bake,
            debug_info=debug_info,
        )
    return written, building, t


def _platforms(text: str) -> list[str]:
    names = [p.strip() for p in text.split(",")]
    for name in names:
        if name not in export.PLATFORMS:
            raise Misused(
                f"--platforms: {name!r} is none; they are {', '.join(export.PLATFORMS)}, with "
                "commas between them"
            )
    return names


def _sizes(texts: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for text in texts:
        name, _, numbers = text.partition("=")
        if not re.fullmatch(r"\s*[^\W\d]\w*\s*", name) or not re.fullmatch(
            r"\s*\d{1,18}\s*(,\s*\d{1,18}\s*)*", numbers, re.A
        ):
            raise Misused(f"--specialize is such as batch=1,8, not {text!r}")
        known = found.setdefault(name.strip(), [])
        known += [n for n in map(int, numbers.split(",")) if n not in known]
    return found


def _bounds(texts: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        match = re.fullmatch(r"\s*([^\W\d]\w*)\s*=\s*([0-9]{1,18})\s*", text)
        if match is None:
            raise Misused(f"--bound is such as found=128, not {text!r}")
        found[match[1]] = int(match[2])
    return found


# ---------------------------------------------------------------- the user's program


@contextlib.contextmanager
def found(
    target: str, files: Sequence[str], stages: Stages
) -> Iterator[tuple[Graph | Module | Model, dict[str, Any], Times]]:
    """The graph that ``MODULE:GRAPH`` names, its weights, and how long building it took.

    While it lasts the user's modules can be imported: those beside a file, or those of the
    current folder. What they print goes to standard error.

    Args:
        target: A module's dotted name or a file, a colon, and a name in it.
        files: Weights.
        stages: Where to tell.

    Raises:
        Misused: If there is no such module, name or file, or it is no graph.
        ClickException: If the user's program fails.
    """
    match = _TARGET.fullmatch(target)
    if match is None:
        raise Misused(
            f"{target!r} names no graph: write MODULE:GRAPH, such as model.py:build or "
            "package.model:graph"
        )
    source = match["module"]
    is_file = source.endswith(".py")
    if is_file and not os.path.isfile(source):
        raise Misused(f"there is no file {source!r}")
    folder = os.path.dirname(os.path.abspath(source)) if is_file else os.getcwd()
    sys.path.insert(0, folder)
    try:
        with stages.step("Building") as times, contextlib.redirect_stdout(sys.stderr):
            module = _guarded(target, _file if is_file else _module, source)
            model, registry = _graph(target, _named(module, match["name"], source), files)
        yield model, registry, times
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
        if is_file:
            sys.modules.pop(_name(source), None)


def _guarded(target: str, call: Any, *args: Any) -> Any:
    """What the user's program gives.

    Raises:
        ClickException: If it fails; with its place.
    """
    try:
        return call(*args)
    except click.ClickException:
        raise
    except (Exception, SystemExit) as e:
        frames = traceback.extract_tb(e.__traceback__)
        own = os.path.dirname(__file__) + os.sep
        users = [
            f
            for f in frames
            if not f.filename.startswith((own, "<frozen")) and "site-packages" not in f.filename
        ]
        place = f" ({users[-1].filename}, line {users[-1].lineno})" if users else ""
        raise click.ClickException(
            shown(f"{target} failed: {type(e).__name__}: {str(e).strip()}{place}")
        ) from None


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        # One that the module itself imports is its own error.
        if e.name is None or not (name == e.name or name.startswith(f"{e.name}.")):
            raise
        hint = "; a file's name ends in .py" if os.sep in name or "/" in name else ""
        raise Misused(f"there is no module {name!r}{hint}") from None
    except (ImportError, TypeError, ValueError) as e:
        if name.startswith("."):
            raise Misused(f"{name!r} is relative: write the whole name of the module") from e
        raise


def _file(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_name(path), path)
    if spec is None or spec.loader is None:
        raise Misused(f"{path!r} is no Python file")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _name(path: str) -> str:
    """What a file is called among the modules: its own name may be another module's."""
    return f"_exported_{Path(path).stem}"


def _named(module: ModuleType, name: str, source: str) -> Any:
    value: Any = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            graphs = [n for n, v in vars(module).items() if isinstance(v, Graph | Module)]
            here = [
                n
                for n, v in vars(module).items()
                if inspect.isfunction(v) and v.__module__ == module.__name__ and n[0] != "_"
            ]
            there = ", ".join([*graphs, *here]) or "neither graphs nor functions"
            raise Misused(f"{source} has no {name!r}; it has {there:.300}") from None
    return value


def _graph(
    target: str, value: Any, files: Sequence[str]
) -> tuple[Graph | Module | Model, dict[str, Any]]:
    """A graph and its weights, of what the user's name stands for.

    Raises:
        Misused: If it is none.
    """
    registry: dict[str, Any] = {}
    own = weights_of(files)
    is_called = not isinstance(value, Graph | Module | Model | tuple) and callable(value)
    if is_called:
        wanted = _required(value)
        if not wanted:
            value = _guarded(target, value)
        elif len(wanted) == 1 and files:
            # As `build(weights)` is written for a checkpoint: it takes those it needs.
            weights = checkpoint(files)
            value = _guarded(target, value, weights)
            own |= weights.allocated_weights
        else:
            names = ", ".join(wanted)
            raise Misused(
                f"{target} takes arguments ({names}); it has to be {_EXPECTED}, without arguments, "
                "or with one, which the --weights are given to"
            )
    if isinstance(value, tuple) and len(value) == 2:
        value, given = value
        given = getattr(given, "allocated_weights", given)
        if given is not None and not isinstance(given, Mapping):
            raise Misused(
                f"{target}: the weights beside the graph are a {type(given).__name__}; give a "
                "mapping from names to arrays"
            )
        registry |= given or {}
    if not isinstance(value, Graph | Module | Model):
        verb = "returns" if is_called else "is"
        raise Misused(f"{target} {verb} a {type(value).__name__}; it has to be {_EXPECTED}")
    return value, registry | own


def _required(function: Any) -> list[str]:
    """The names of the arguments that a call cannot do without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    variable = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
