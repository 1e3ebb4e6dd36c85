# SPDX-License-Identifier: Apache-2.0
"""How the command line writes sizes, times, tables and errors. It needs no JAX."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

__all__ = [
    "Misused",
    "byte_text",
    "columns",
    "counted",
    "duration",
    "one_line",
    "scaled",
    "shown",
    "tree",
]

# What the user did, or the file is: the text says all. Of others the class and place are told.
_EXPECTED = (ValueError, TypeError, OSError, RuntimeError, ImportError)


class Misused(click.ClickException):
    """A command that cannot be followed as it is written."""

    exit_code = 2


def shown(text: str) -> str:
    """Text for a terminal on one line: what could steer it is replaced."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


def one_line(error: BaseException) -> str:
    """What went wrong, on one line."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        name = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        text = name + error.strerror
    elif isinstance(error, MemoryError):
        text = f"out of memory: {text}" if text else "out of memory"
    elif not isinstance(error, _EXPECTED) or not text:
        text = f"{type(error).__name__}: {text} ({_place(error)})"
    return shown(text)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "nowhere"


def byte_text(count: int | float) -> str:
    """A number of bytes: ``749 B``, ``2.74 kB``, ``91 MB``."""
    return scaled(count, "B")


def scaled(count: float, unit: str) -> str:
    """A number of something, with three digits: ``56 FLOP``, ``1.24 MFLOP``."""
    if count < 1000:
        return f"{count:.0f} {unit}"
    for prefix in "kMGTP":
        count /= 1000
        if count < 999.5 or prefix == "P":
            break
    return f"{count:.{max(0, 2 - (count >= 9.995) - (count >= 99.95))}f} {prefix}{unit}"


def duration(seconds: float) -> str:
    """A time: ``41.2 µs``, ``12.3 ms``, ``1.23 s``, ``123 s``."""
    scale = next(((f, u) for f, u in ((1e6, "µs"), (1e3, "ms")) if seconds * f < 999.5), (1.0, "s"))
    value = seconds * scale[0]
    return f"{value:.{max(0, 2 - (value >= 9.995) - (value >= 99.95))}f} {scale[1]}"


def counted(count: int, what: str) -> str:
    """A number of things: ``1 weight``, ``1,234 weights``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def columns(rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> Iterator[str]:
    """Rows as lines, each column as wide as its widest cell.

    Args:
        rows: The cells of each row.
        right: The columns that are flush right.

    >>> list(columns([("a", "1"), ("bcd", "23")], right=[1]))
    ['  a     1', '  bcd  23']
    """
    cells = [tuple(map(shown, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (
            c.rjust(w) if i in right else c.ljust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        yield "  " + "  ".join(padded).rstrip()


def tree(sizes: Mapping[str, int]) -> Iterator[str]:
    """Paths and their sizes as a tree.

    >>> list(tree({"a": 12, "b/c": 3}))
    ['  ├── a      12 B', '  └── b', '      └── c   3 B']
    """
    rows = list(_branches(sizes, ""))
    label = max((len(text) for text, _ in rows), default=0)
    texts = [byte_text(size) if size is not None else "" for _, size in rows]
    number = max(map(len, texts), default=0)
    for (text, _), size in zip(rows, texts, strict=True):
        yield f"  {text.ljust(label)}  {size.rjust(number)}".rstrip()


def _branches(sizes: Mapping[str, int], indent: str) -> Iterator[tuple[str, int | None]]:
    children: dict[str, dict[str, int]] = {}
    for path, size in sizes.items():
        head, _, rest = path.partition("/")
        children.setdefault(head, {})[rest] = size
    for i, (name, inner) in enumerate(children.items()):
        is_last = i == len(children) - 1
        size = inner.pop("", None)
        yield f"{indent}{'└' if is_last else '├'}── {shown(name)}", size
        yield from _branches(inner, indent + ("    " if is_last else "│   "))
