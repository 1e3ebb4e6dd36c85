# SPDX-License-Identifier: Apache-2.0
"""The bytes that collectives send."""

import math

import pytest

from maxjax.driver import CPU
from maxjax.dtype import DType
from maxjax.experimental.sharding import TensorLayout
from maxjax.experimental.sharding.cost import (
    feasible_rows_at_axis,
    tensor_byte_count,
    transition_cost,
)
from maxjax.experimental.sharding.rules._registry import kept_axes
from maxjax.graph import Dim
from tests.experimental.sharding.simulated import P, R, S, U, layout, mesh

inf = math.inf


@pytest.mark.parametrize(
    ("n", "table"),
    [
        (4, [
            [0, 4, inf, 4, 4],
            [1536, 0, inf, 768, 768],
            [inf, inf, 0, inf, inf],
            [768, inf, inf, 0, 768],
            [768, inf, inf, 768, 0],
        ]),
        (1, [
            [0, 16, inf, 16, 16],
            [0, 0, inf, 0, 0],
            [inf, inf, 0, inf, inf],
            [0, inf, inf, 0, 0],
            [0, inf, inf, 0, 0],
        ]),
    ],
)  # fmt: skip
def test_costs(n, table):
    placements = (R, P, U, S(0), S(1))
    assert [
        [transition_cost(p, q, message_bytes=1024, mesh=mesh(n), axis_index=0) for q in placements]
        for p in placements
    ] == table


def test_the_axis_of_the_mesh_counts():
    one, two = (
        transition_cost(S(0), R, message_bytes=60, mesh=mesh(2, 3), axis_index=a) for a in (0, 1)
    )
    assert (one, two) == (30, 40)


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ([8, 6], DType.float32, 192),
        (["n", 6], DType.float32, 24),
        ([Dim("n") * 4, 3], DType.float32, 12),
        ([], DType.float64, 8),
        ([0, 3], DType.float32, 0),
        ([3], DType.bool, 3),
    ],
)
def test_bytes(shape, dtype, expected):
    assert tensor_byte_count(TensorLayout(dtype, shape, CPU())) == expected


def test_bytes_are_those_of_the_whole():
    assert tensor_byte_count(layout([5, 2], mesh(2), S(0))) == 40


@pytest.mark.parametrize(
    ("size", "placed", "rows"),
    [
        (8, R, [0, 1, 2, 3]),
        (8, S(0), [0, 1, 2]),
        (8, U, []),
        (3, R, [0, 2, 3]),
        (3, S(0), [0, 1, 2]),
        ("n", R, [0, 1, 2, 3]),
        (0, P, [0, 2, 3]),
    ],
)
def test_rows_that_can_be_had(size, placed, rows):
    every = kept_axes([(0, 0), (1, 1)], linear=True)
    on = mesh(4)
    found = feasible_rows_at_axis(every, [layout([size, 6], on, placed)], on, 0)
    assert [every.index(r) for r in found] == rows


def test_an_axis_that_the_tensor_has_not_is_not_split():
    on = mesh(2)
    assert len(feasible_rows_at_axis(kept_axes([(1, 1)]), [layout([4], on)], on, 0)) == 1
