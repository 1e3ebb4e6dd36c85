# SPDX-License-Identifier: Apache-2.0
"""Writes ``docs/exportable-ops.md``: what of the ops an artifact can hold, and what it cannot.

Every use of every op in ``tests/test_every_op.py`` is saved, and so are the uses below, which no
file can hold; the page has what saving found or said. ``python -m tools.exportable`` writes it
anew; with ``--check`` it says whether it is as it would be written.
"""

from __future__ import annotations

import pathlib
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import maxjax
from maxjax import export
from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops
from tests.test_every_op import SAMPLES, Sample, graph_of

__all__ = ["REFUSED", "main", "refusals", "written"]

PATH = pathlib.Path(__file__).parent.parent / "docs" / "exportable-ops.md"
CPU = DeviceRef.CPU()

HEAD = """<!-- Written by `python -m tools.exportable`; do not edit. -->

# Which ops an artifact can hold

`maxjax.export.save` writes {saved} of the {ops} ops for all sizes and for {platforms}, which is
tried with {uses} uses of them. `tests/export/test_both_routes.py` runs these from their files in
another process and compares them with the graphs.

## What no file can hold

Saving is refused, and says where the op was written. A size that depends on values can have a
bound: see [Artifacts](artifacts.md).

| op | use | what saving says |
|---|---|---|
"""
NEEDED = """
## What an op asks of sizes

All sizes from 1 up are allowed where nothing else is said. These uses need more, which saving finds
and the manifest says; a call with other sizes is a `ValueError` that names the condition.

| op | inputs | sizes |
|---|---|---|
"""
LEFT = """
## What is left out

| op | what happens |
|---|---|
"""


class Refused(NamedTuple):
    """A use of an op that no file can hold."""

    op: str
    use: str
    build: Callable[..., Any]
    types: tuple[TensorType, ...]


@maxjax.kernel("exportable.callback")
def _callback(x: Any) -> Any:
    return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@maxjax.kernel("exportable.foreign")
def _foreign(x: Any) -> Any:
    return jax.ffi.ffi_call("my_kernel", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@maxjax.kernel("exportable.up_to", shape=lambda x: (x[0],))
def _up_to(x: Any, results: Any) -> Any:
    return jnp.arange(results[0].shape[0], dtype=results[0].dtype)


def _type(dtype: DType, *dims: Any) -> TensorType:
    return TensorType(dtype, list(dims), CPU)


_X, _ONE = _type(DType.float32, "n"), _type(DType.int64)
REFUSED = (
    Refused(
        "custom",
        "a kernel that calls back into Python",
        lambda x: ops.custom("exportable.callback", CPU, [x], [x.type])[0],
        (_X,),
    ),
    Refused(
        "custom",
        "a kernel that is a foreign call, without `custom_calls`",
        lambda x: ops.custom("exportable.foreign", CPU, [x], [x.type])[0],
        (_X,),
    ),
    Refused(
        "custom",
        "a kernel whose shape function reads values",
        lambda x: ops.custom("exportable.up_to", CPU, [x], [_type(DType.int64, "count")])[0],
        (_type(DType.int64, "n"),),
    ),
    Refused("nonzero", "a size that depends on values", lambda x: ops.nonzero(x, "found"), (_X,)),
    Refused(
        "range",
        "a size that depends on values",
        lambda stop: ops.range(0, stop, 1, out_dim="count", dtype=DType.int64, device=CPU),
        (_ONE,),
    ),
    Refused(
        "repeat_interleave",
        "a size that depends on values",
        lambda x, r: ops.repeat_interleave(x, r, axis=0, out_dim="all"),
        (_X, _type(DType.int64, "n")),
    ),
    Refused(
        "non_maximum_suppression",
        "a size that depends on values",
        lambda boxes, scores, most, least: ops.non_maximum_suppression(
            boxes, scores, most, least, least, "kept"
        ),
        (
            _type(DType.float32, "k", "n", 4),
            _type(DType.float32, "k", "m", "n"),
            _ONE,
            _type(DType.float32),
        ),
    ),
    Refused(
        "broadcast_to",
        "a size that depends on values",
        lambda x, shape: ops.broadcast_to(x, shape, ["rows", "n"]),
        (_X, _type(DType.int64, 2)),
    ),
    Refused(
        "slice_tensor",
        "a size that depends on values",
        lambda x, stop: x[(slice(0, stop), "taken"),],
        (_X, _ONE),
    ),
)


def _saved(graph: Graph, folder: str) -> export.Manifest:
    path = pathlib.Path(folder) / "op.maxjax"
    return export.inspect(export.save(graph, path)).manifest


def _said(error: ValueError) -> str:
    """The first line of a message, without places."""
    return re.sub(r" at [^\s;]+:\d+( in [^\s;]+)?", "", str(error).partition("\n")[0])


def refusals(folder: str) -> Iterator[str]:
    """The rows of the table of what is refused."""
    for each in REFUSED:
        try:
            _saved(Graph("g", each.build, list(each.types)), folder)
        except ValueError as e:
            yield f"| `{each.op}` | {each.use} | {_said(e)} |"


class _Findings:
    """What saving the samples finds: rows of the tables, and the ops that can be saved."""

    def __init__(self, folder: str) -> None:
        self.refused: list[str] = []
        self.needs: list[str] = []
        self.left_out: list[str] = []
        self.ops: set[str] = set()
        for name, samples in SAMPLES.items():
            for sample in samples:
                self._add(folder, name, sample)

    def _add(self, folder: str, name: str, sample: Sample) -> None:
        types = ", ".join(f"`{t}`" for t in sample.types)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                conditions = _saved(graph_of(sample), folder).conditions
            except ValueError as e:
                self.refused.append(f"| `{name}` | {types} | {_said(e)} |")
                return
        self.ops.add(name)
        more = [f"`{c}`" for c in conditions if not str(c).endswith(">= 1")]
        if more:
            self.needs.append(f"| `{name}` | {types} | {', '.join(more)} |")
        for each in said:
            text = re.sub(r" \(at .*\)", "", str(each.message))
            self.left_out.append(f"| `{name}` | a warning: {text} |")


def written() -> str:
    """The text of the page."""
    with tempfile.TemporaryDirectory() as folder:
        found = _Findings(folder)
        refused = [*refusals(folder), *found.refused]
    head = HEAD.format(
        saved=len(found.ops),
        ops=len(SAMPLES),
        platforms=", ".join(export.PLATFORMS),
        uses=sum(map(len, SAMPLES.values())),
    )
    parts = [head, *_lines(refused), NEEDED, *_lines(found.needs), LEFT, *_lines(found.left_out)]
    return "".join(parts)


def _lines(rows: Iterable[str]) -> Iterator[str]:
    yield from (f"{row}\n" for row in dict.fromkeys(rows))


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` compares it; returns 1 if it is another."""
    text = written()
    if "--check" not in arguments:
        PATH.write_text(text)
        return 0
    if PATH.read_text() == text:
        return 0
    print(f"{PATH.name} is out of date: run python -m tools.exportable", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
