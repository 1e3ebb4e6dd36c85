# SPDX-License-Identifier: Apache-2.0
"""Placements, and the sizes of the parts that devices get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxjax.experimental.sharding import (
    Partial,
    Placement,
    Replicated,
    Sharded,
    ShardingError,
    Unknown,
)
from maxjax.experimental.sharding.per_shard_dim import PerShardDim
from maxjax.experimental.sharding.placements import (
    even_shard_sizes,
    local_shard_shape_from_global,
    sharding_axes,
)
from maxjax.graph import Dim
from tests.experimental.sharding.simulated import P, R, S, U, mesh


def test_placements_are_values():
    assert [repr(p) for p in (R, P, U, S(1), Sharded(axis=-1))] == [
        "Replicated()", "Partial()", "Unknown()", "Sharded(axis=1)", "Sharded(axis=-1)",
    ]  # fmt: skip
    assert len({R, Replicated(), S(0), S(0), S(2), P, Partial(), U, Unknown()}) == 5
    assert all(isinstance(p, Placement) for p in (R, P, U, S(0)))
    assert [p.localized_axis() for p in (R, P, U, S(3))] == [None, None, None, 3]
    with pytest.raises(AttributeError):
        S(0).axis = 1  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError, match="the axis that is split is an int, got 'a'"):
        Sharded("a")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="abstract"):
        Placement()  # pyright: ignore[reportAbstractUsage]


def test_transitions():
    placements = (R, P, U, S(0), S(1))
    table = [[p.transition_to(q).value for q in placements] for p in placements]
    no = "infeasible"
    assert table == [
        ["noop", "keep_one_copy", no, "local_slice", "local_slice"],
        ["allreduce", "noop", no, "reduce_scatter", "reduce_scatter"],
        [no, no, "noop", no, no],
        ["allgather", no, no, "noop", "all_to_all"],
        ["allgather", no, no, "all_to_all", "noop"],
    ]


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_parts_are_as_equal_as_they_can_be(size, count):
    sizes = even_shard_sizes(size, count)
    assert sum(sizes) == size and len(sizes) == count
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1


@pytest.mark.parametrize(("size", "count"), [(3, 0), (-1, 2)])
def test_no_parts(size, count):
    with pytest.raises(ValueError, match=f"a size of {size} cannot be split into {count} parts"):
        even_shard_sizes(size, count)


@pytest.mark.parametrize(
    ("placement", "size", "axes", "text"),
    [
        (S(0), 10, 0, "5"),
        (S(0), 5, 1, "(3 | 2 | 3 | 2)"),
        (S(0), 10, (0, 1), "(3 | 3 | 2 | 2)"),
        (S(0), 10, (1, 0), "(3 | 3 | 2 | 2)"),
        (S(0), "n", 0, "(n_dp_0 | n_dp_0 | n_dp_1 | n_dp_1)"),
        (S(0), "n", (0, 1), "(n_dp_0_tp_0 | n_dp_0_tp_1 | n_dp_1_tp_0 | n_dp_1_tp_1)"),
        (R, 10, 0, "10"),
        (P, "n", 1, "n"),
        (U, "n", 1, "n"),
    ],
)
def test_the_part_of_a_dim(placement, size, axes, text):
    assert str(placement.local_dim(size, mesh(2, 2), axes)) == text


def test_a_split_dim_stays_as_it_is():
    once = S(0).local_dim(10, mesh(4), 0)
    assert S(0).local_dim(once, mesh(4), 0) is once


def test_what_cannot_be_split():
    with pytest.raises(ShardingError, match=r"n \+ 1 cannot be split over mesh axis 'tp': parts"):
        S(0).local_dim(Dim("n") + 1, mesh(2), 0)
    with pytest.raises(ShardingError, match="its parts have no names here"):
        S(0).local_dim("n", mesh(2), 0, allow_symbolic_mint=False)
    with pytest.raises(IndexError, match="has the axes 0 to 0, not 5"):
        S(0).local_dim(4, mesh(2), 5)


def test_axes_that_several_mesh_axes_split():
    assert sharding_axes((S(1), P, S(0), S(1))) == {1: (0, 3), 0: (2,)}


def test_shapes_of_parts():
    shapes = local_shard_shape_from_global([7, 8], mesh(2, 3), (S(1), S(0)))
    assert shapes == [[3, 4], [2, 4], [2, 4]] * 2
    assert not any(isinstance(d, PerShardDim) for shape in shapes for d in shape)


@pytest.mark.parametrize(
    ("placements", "text"),
    [
        ((R,), r"has 2 axes, and there are 1 placements"),
        ((S(2), R), r"Sharded\(axis=2\) splits an axis that a tensor of 2 axes has not"),
        ((S(-1), R), r"Sharded\(axis=-1\) splits"),
    ],
)
def test_no_shapes(placements, text):
    with pytest.raises(ValueError, match=text):
        local_shard_shape_from_global([4, 4], mesh(2, 2), placements)
