# SPDX-License-Identifier: Apache-2.0
"""What the machine-learning support library costs: filling memory, and tables of shapes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks._measure import Result, at_most, in_turns, stopwatch
from maxjax.support.ml import ShapeTable, fill_homogeneous, fill_random

__all__ = ["results"]

RUNS = 9
MEMORY = 256 * 10**6  # bytes
WIDTHS = (1, 2, 4, 8, 10, 16)  # bytes of an element
GOALS = (1, 2, 4, 8, 16)
SHAPES = 1_000_000
SLOWER = 2.0  # at most, than the fastest way to write as much
FASTER = 50.0  # at least, than tuples


def filling() -> Iterator[Result]:
    """Writes one element over and over, against writing one byte and copying as much."""
    dest = np.zeros(MEMORY, np.uint8)
    source = np.ones(MEMORY, np.uint8)
    for width in WIDTHS:
        memory, element = memoryview(dest), bytes(range(1, width + 1))
        count = MEMORY // width

        def fill(memory: memoryview = memory, element: bytes = element, n: int = count) -> None:
            fill_homogeneous(memory, element, num_elements=n)

        ours, one_byte, copy = in_turns(
            RUNS,
            stopwatch(fill),
            stopwatch(lambda: dest.fill(7)),
            stopwatch(lambda: np.copyto(dest, source)),
        )
        held = at_most(SLOWER, ours, one_byte) and at_most(SLOWER, ours, copy)
        yield Result(
            f"fill 256 MB, {width}-byte elements",
            ours,
            {"memset": one_byte, "np.copyto": copy},
            target=f"<= {SLOWER:.0f}x both" if width in GOALS else "",
            held=held if width in GOALS else None,
        )
    numbers = np.zeros(10_000_000, np.float32)
    generator = np.random.default_rng(0)
    ours, theirs = in_turns(
        RUNS,
        stopwatch(lambda: fill_random(numbers)),
        stopwatch(lambda: generator.random(dtype=np.float32, out=numbers)),
    )
    yield Result("10 million random floats", ours, {"numpy.random": theirs})


def tables() -> Iterator[Result]:
    """Compares and sorts a million shapes of rank 1 to 6, against a list of tuples."""
    generator = np.random.default_rng(0)
    ranks = generator.integers(1, 7, SHAPES)
    dims = generator.integers(1, 4096, (SHAPES, 8))

    def tuples() -> list[tuple[int, ...]]:
        pairs = zip(dims.tolist(), ranks.tolist(), strict=True)
        return [tuple(row[:rank]) for row, rank in pairs]

    table, other = (ShapeTable.from_arrays(dims, ranks) for _ in range(2))
    rows, others = tuples(), tuples()
    assert table.equals(other) and rows == others and table[5].dims == rows[5]
    one, one_tuple = table[5], rows[5]
    for name, ours, theirs, target in (
        ("equal to another", lambda: table.equals(other), lambda: rows == others, FASTER),
        (
            "each to another's",
            lambda: table == other,
            lambda: [a == b for a, b in zip(rows, others, strict=True)],
            FASTER,
        ),
        ("each to one shape", lambda: table == one, lambda: [a == one_tuple for a in rows], None),
        ("sorted", lambda: table.sorted(), lambda: sorted(rows), None),
    ):
        runs = RUNS if target else 3
        a, b = in_turns(
            runs, stopwatch(ours, calls=20 if name != "sorted" else 1), stopwatch(theirs)
        )
        yield Result(
            f"a million shapes, {name}",
            a,
            {"list of tuples": b},
            target=f"<= 1/{target:.0f} of the list" if target else "",
            held=at_most(1 / target, a, b) if target else None,
        )


def results() -> Iterator[Result]:
    """Filling, then tables."""
    yield from filling()
    yield from tables()
