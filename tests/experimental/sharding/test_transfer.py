# SPDX-License-Identifier: Apache-2.0
"""Transfers: their steps, run on NumPy arrays, give the parts that are asked for."""

import itertools

import numpy as np
import pytest

from maxjax.experimental.sharding import DeviceMapping, ShardingError, TensorLayout
from maxjax.experimental.sharding.per_shard_dim import PerShardDim
from maxjax.experimental.sharding.transfer import (
    scatter_mapping,
    shard_windows,
    step_bytes,
    transfer_steps,
    transition,
)
from tests.experimental.sharding.simulated import P, R, S, U, joined, layout, mesh, run, spread

line, m, uneven = mesh(2), mesh(2, 2), mesh(2, 3)
PAIRS = list(itertools.product(itertools.product((R, P, S(0), S(1)), repeat=2), repeat=2))


def steps(shape, on, source, target):
    return transfer_steps(layout(shape, on, *source), DeviceMapping(on, target))


def named(shape, on, source, target):
    return [(s.collective.value, *s[1:]) for s in steps(shape, on, source, target)]


@pytest.mark.parametrize("on", [m, uneven])
@pytest.mark.parametrize("shape", [(12, 6), (7, 11)])
def test_every_way_over_a_grid_gives_what_is_asked_for(on, shape):
    array = np.random.default_rng(0).normal(size=shape)
    for source, target in PAIRS:
        parts = spread(array, on, source)
        for step in steps(shape, on, source, target):
            parts = run(step, parts, on)
        np.testing.assert_allclose(joined(parts, on, target), array, err_msg=f"{source} {target}")
        wanted = [p.shape for p in spread(array, on, target)]
        assert [p.shape for p in parts] == wanted, (source, target)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ((R,), (R,), []),
        ((U,), (U,), []),
        ((R,), (S(1),), [("local_slice", (0,), 1, None)]),
        ((S(1),), (R,), [("allgather", (0,), 1, None)]),
        ((S(0),), (S(1),), [("all_to_all", (0,), 0, 1)]),
        ((P,), (R,), [("allreduce", (0,), None, None)]),
        ((P,), (S(0),), [("reduce_scatter", (0,), 0, None)]),
        ((R,), (P,), [("keep_one_copy", (0,), None, None)]),
        ((S(0),), (P,), [("allgather", (0,), 0, None), ("keep_one_copy", (0,), None, None)]),
    ],
)
def test_one_axis(source, target, expected):
    assert named([5, 6], line, source, target) == expected


def test_an_even_split_of_a_split_is_not_gathered():
    assert named([8, 6], m, (S(0), R), (S(0), S(0))) == [("local_slice", (1,), 0, None)]
    assert named([8, 6], m, (S(0), S(0)), (S(0), R)) == [("allgather", (1,), 0, None)]
    assert named([6, 6], m, (S(0), S(0)), (S(0), R)) == [
        ("allgather", (0, 1), 0, None),
        ("local_slice", (0,), 0, None),
    ]
    unbalanced = PerShardDim([1, 1, 7, 7], global_dim=8)
    x = layout([unbalanced, 6], m, S(0), R)
    assert len(transfer_steps(x, DeviceMapping(m, (S(0), S(0))))) == 2


def test_swapping_axes_needs_both_whole():
    assert named([8, 6], m, (S(0), S(1)), (S(1), S(0))) == [
        ("allgather", (0,), 0, None),
        ("allgather", (1,), 1, None),
        ("local_slice", (1,), 0, None),
        ("local_slice", (0,), 1, None),
    ]


def test_what_is_unknown_stays_so():
    for source, target in (((U,), (R,)), ((S(0),), (U,)), ((P,), (U,))):
        with pytest.raises(ShardingError, match="along mesh axis 'tp' a tensor placed"):
            steps([4, 6], line, source, target)


def test_other_meshes_and_axes():
    with pytest.raises(ShardingError, match=r"cannot be placed on DeviceMesh\(dp=2, tp=2\)"):
        transfer_steps(layout([4], line), DeviceMapping(m, (R, R)))
    with pytest.raises(ValueError, match="splits an axis that the tensor has not"):
        steps([4], line, (R,), (S(1),))


def test_bytes():
    x = layout([8, 6], m, P, S(1))
    total = 8 * 6 * 4
    (one, two) = transfer_steps(x, DeviceMapping(m, (R, R)))
    assert step_bytes(one, x) == total and step_bytes(two, x) == total / 2
    (cut,) = transfer_steps(layout([8, 6], m), DeviceMapping(m, (S(0), R)))
    assert step_bytes(cut, x) == total / 2 / 64


def test_transition():
    assert transition(P, R).value == "allreduce"


@pytest.mark.parametrize(
    ("shape", "placement", "result"),
    [([4], S(0), S(0)), ([3], R, R), ([4], S(5), R), ([4], S(-1), R), (["n"], S(0), S(0))],
)
def test_from_one_device(shape, placement, result):
    x = TensorLayout(layout([1], line).dtype, shape, line.devices[0])
    assert scatter_mapping(x, DeviceMapping(line, (placement,))).placements == (result,)


@pytest.mark.parametrize(
    ("placement", "error", "text"),
    [
        (S(0), ShardingError, "axis 0 has size 1 and cannot be split along mesh axis 'tp'"),
        (P, ValueError, "is no sum to be taken along mesh axis 'tp'"),
        (U, ShardingError, r"cannot be placed Unknown\(\)"),
    ],
)
def test_not_from_one_device(placement, error, text):
    x = TensorLayout(layout([1], line).dtype, [1, 4], line.devices[0])
    with pytest.raises(error, match=text):
        scatter_mapping(x, DeviceMapping(line, (placement,)))


def test_windows_follow_the_order_of_the_axes():
    windows = shard_windows(layout([10, "n"], m, S(0), S(0)))
    assert [tuple(map(str, own[0])) for own in windows] == [
        ("0", "3"), ("3", "6"), ("6", "8"), ("8", "10"),
    ]  # fmt: skip
    assert all(tuple(map(str, own[1])) == ("0", "n") for own in windows)
    symbolic = shard_windows(layout(["n"], mesh(3), S(0)))
    assert str(symbolic[2][0].start) == "n_tp_0 + n_tp_1"
