# SPDX-License-Identifier: Apache-2.0
"""Tensors over several devices: made, moved, read, and used by functions on each device."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maxjax.driver import CPU, Buffer
from maxjax.dtype import DType
from maxjax.experimental import functional as F
from maxjax.experimental import random
from maxjax.experimental.sharding import (
    AxisAssignment,
    DeviceMapping,
    DeviceMesh,
    NamedMapping,
    Placement,
    ShardingError,
    auto_reshard,
)
from maxjax.experimental.sharding.action import PerShard
from maxjax.experimental.tensor import Tensor, default_device
from tests.experimental.spread import P, R, S, U, mesh, spread

X = np.arange(20, dtype=np.float32).reshape(5, 4)


def parts(t: Tensor) -> list[np.ndarray]:
    return [b.to_numpy() for b in t.buffers]


def on(mesh_: DeviceMesh, *placements: Placement) -> DeviceMapping:
    return DeviceMapping(mesh_, placements)


# ---------------------------------------------------------------- moving


@st.composite
def moves(draw: st.DrawFn) -> tuple[np.ndarray, DeviceMesh, tuple, tuple]:
    """An array, a mesh, and two ways to place the array on it."""
    grid = mesh(*draw(st.sampled_from([(2,), (3,), (4,), (2, 2), (2, 3), (2, 2, 2)])))
    shape = draw(st.lists(st.integers(2, 7), min_size=1, max_size=3))
    array = draw(hnp.arrays(np.int32, shape, elements=st.integers(-9, 9)))
    one = st.one_of(st.just(R), st.just(P), st.integers(0, len(shape) - 1).map(S))
    ways = st.tuples(*[one] * grid.ndim)
    return array, grid, draw(ways), draw(ways)


@given(moves())
def test_a_tensor_placed_otherwise_is_the_same_tensor(
    case: tuple[np.ndarray, DeviceMesh, tuple, tuple],
) -> None:
    array, grid, before, after = case
    t = spread(array, grid, *before)
    moved = t.to(on(grid, *after))
    assert moved.placements == after
    assert list(map(int, moved.shape)) == list(array.shape)
    np.testing.assert_array_equal(t.to_numpy(), array)
    np.testing.assert_array_equal(moved.to_numpy(), array)


@pytest.mark.parametrize("shape", [(5, 4), (4, 4), (7, 2)])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_sum_is_scattered_and_gathered(shape: tuple[int, int], axis: int) -> None:
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    t = F.reduce_scatter(spread(array, mesh(2), P), axis)
    assert t.placements == (S(axis),)
    assert [p.shape[axis] for p in parts(t)] == [-(-shape[axis] // 2), shape[axis] // 2]
    whole = F.allgather(t, axis)
    assert whole.placements == (R,)
    for part in parts(whole):
        np.testing.assert_allclose(part, array, rtol=1e-6)


def test_parts_are_as_equal_as_they_can_be_the_larger_first() -> None:
    grid = mesh(2, 2)
    t = Tensor.from_dlpack(np.arange(6)).to(on(grid, S(0), S(0)))
    assert [p.tolist() for p in parts(t)] == [[0, 1], [2, 3], [4], [5]]
    nested = Tensor.from_dlpack(np.arange(6)).to(on(grid, S(0), R)).to(on(grid, S(0), S(0)))
    assert [p.tolist() for p in parts(nested)] == [[0, 1], [2, 3], [4], [5]]


def test_the_first_device_keeps_a_copy_as_a_term_of_a_sum() -> None:
    t = spread(X, mesh(2), R).to(on(mesh(2), P))
    assert (parts(t)[0] == X).all() and (parts(t)[1] == 0).all()


def test_to_a_mesh_keeps_placements_and_to_a_device_gathers() -> None:
    t = spread(X, mesh(2), P)
    assert t.to(mesh(2)) is t
    assert t.to(mesh(2, names=("other",))).placements == (P,)
    whole = t.to(CPU())
    assert not whole.is_distributed and (whole.to_numpy() == X).all()
    assert whole.to(CPU()) is whole


def test_meshes_of_other_shapes_get_the_whole() -> None:
    t = spread(X, mesh(2), S(0)).to(on(mesh(3), S(1)))
    assert [p.shape for p in parts(t)] == [(5, 2), (5, 1), (5, 1)]
    assert (t.to_numpy() == X).all()
    with pytest.raises(ValueError, match="needs a placement for each"):
        spread(X, mesh(2), S(0)).to(mesh(2, 2))


def test_parts_are_memory_of_their_own() -> None:
    array = np.ones((4, 2), np.float32)
    t = Tensor.from_dlpack(array).to(mesh(2))
    t[0] = Tensor.zeros([2]).to(mesh(2))
    assert (array == 1).all()
    assert (t.to_numpy()[0] == 0).all()


def test_what_is_written_to_a_part_the_tensor_has() -> None:
    t = spread(X, mesh(2), S(0))
    F.buffer_store(t.local_shards[1], Tensor.zeros([2, 4]))
    assert (t.to_numpy()[3:] == 0).all() and (t.to_numpy()[:3] == X[:3]).all()


# ---------------------------------------------------------------- what it says of itself


def test_text_says_how_it_is_placed_and_computes_nothing() -> None:
    with F.lazy():
        t = spread(X, mesh(2), S(0)) + 1
    assert repr(t) == (
        "Tensor(shape=[5, 4], dtype=DType.float32, "
        "mapping=DeviceMapping(DeviceMesh(tp=2), [Sharded(axis=0)]))"
    )
    assert not t.real
    assert (t.to_numpy() == X + 1).all() and t.real


def test_it_has_no_single_value_or_device() -> None:
    t = spread(X, mesh(2), S(0))
    for read in ("device", "storage", "state", "driver_tensor"):
        with pytest.raises(ValueError, match="local_shards"):
            getattr(t, read)
    with pytest.raises(TypeError, match="see its layout"):
        _ = t.type
    with pytest.raises(ValueError, match=r"placed \[Sharded\(axis=0\)\]; place it Replicated"):
        t.item()
    with pytest.raises(ShardingError, match="what the devices hold has no known meaning"):
        t.rebind_mapping(on(mesh(2), U)).to_numpy()
    with pytest.raises(ValueError, match=r"the mapping is of DeviceMesh\(tp=3\); use to\(\)"):
        t.rebind_mapping(on(mesh(3), S(0)))
    assert spread(np.float32([3]), mesh(2), R).item() == 3


def test_parts_need_a_mapping_that_fits() -> None:
    shards = spread(X, mesh(2), S(0)).local_shards
    with pytest.raises(ValueError, match="how 2 parts make up a tensor"):
        Tensor.from_shard_values(shards)
    with pytest.raises(ValueError, match="3 devices need as many parts, got 2"):
        Tensor.from_shard_values(shards, on(mesh(3), S(0)))
    with pytest.raises(ShardingError, match="axis 0 is 3 on one device and 2 on another"):
        Tensor.from_shard_values(shards, on(mesh(2), R))
    again = Tensor.from_shard_values(shards, on(mesh(2), S(0)))
    assert (again.to_numpy() == X).all()


# ---------------------------------------------------------------- making


def test_numbers_are_made_on_each_device() -> None:
    rows = on(mesh(2), S(0))
    assert [p.shape for p in parts(Tensor.ones([5, 2], device=rows))] == [(3, 2), (2, 2)]
    summed = Tensor.full([2], 3, device=on(mesh(2), P))
    assert [p.tolist() for p in parts(summed)] == [[3, 3], [0, 0]]
    alike = Tensor.zeros_like(Tensor.ones([5, 2], dtype=DType.int8, device=rows))
    assert (alike.dtype, alike.placements, list(map(int, alike.shape))) == (
        DType.int8,
        (S(0),),
        [5, 2],
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda device: F.range(0, 6, device=device),
        lambda device: F.hann_window(6, device=device),
        lambda device: F.constant([1, 2, 3, 4, 5, 6], device=device),
        lambda device: F.constant(np.arange(6), device=device),
        lambda device: F.stack([Tensor([i]) for i in range(6)], device=device),
    ],
)
def test_what_is_made_on_a_mesh_is_what_is_made_on_one_device(make) -> None:
    want = make(CPU()).to_numpy()
    for placement in (R, S(0)):
        made = make(on(mesh(2), placement))
        assert made.placements == (placement,)
        np.testing.assert_array_equal(made.to_numpy(), want)
    with pytest.raises(ValueError, match="no sum to be taken"):
        make(on(mesh(2), P))


def test_random_numbers_do_not_depend_on_the_mesh() -> None:
    found = []
    for device in (CPU(), mesh(2), on(mesh(2), S(0)), on(mesh(3), S(1))):
        random.set_seed(5)
        found.append(random.uniform([4, 3], device=device).to_numpy())
    for array in found[1:]:
        np.testing.assert_array_equal(array, found[0])


def test_rows_of_a_range_like_a_split_tensor() -> None:
    t = Tensor.range_like(spread(X, mesh(2), S(1)))
    assert t.placements == (S(1),)
    np.testing.assert_array_equal(t.to_numpy(), np.broadcast_to(np.arange(4.0), (5, 4)))


def test_the_default_mesh_has_copies() -> None:
    with default_device(mesh(2)):
        made = [Tensor([1, 2]), Tensor.ones([2]), random.gaussian([2])]
        assert NamedMapping(None, ("tp",)).placements == (S(0),)
    assert all(t.placements == (R,) and t.num_shards == 2 for t in made)


# ---------------------------------------------------------------- ops


def test_a_number_is_added_to_a_sum_once() -> None:
    t = spread(X, mesh(2, 2), P, P)
    for got, want in ((t + 1, X + 1), (1 - t, 1 - X), (t - np.float32(2), X - 2), (t * 3, X * 3)):
        assert got.placements == (P, P)
        np.testing.assert_array_equal(got.to_numpy(), want)


def test_arrays_are_operands() -> None:
    row = np.float32([1, 2, 3, 4])
    t = spread(X, mesh(2), S(0))
    assert (t * row).placements == (S(0),)
    np.testing.assert_array_equal((t * row).to_numpy(), X * row)


def test_an_error_says_which_operand_moves_and_how_to_move_it() -> None:
    x, w = spread(X, mesh(2), S(1)), spread(X.T.copy(), mesh(2), R)
    with pytest.raises(ShardingError) as refused:
        x @ w
    text = str(refused.value)
    assert text.startswith("matmul needs rhs placed otherwise") or "matmul needs lhs" in text
    (line,) = [s.strip() for s in text.splitlines() if "F.transfer_to" in s]
    scope = {"F": F, "DeviceMapping": DeviceMapping, "Sharded": S, "Replicated": type(R)}
    scope |= {"lhs": x, "rhs": w}
    exec(line, scope)
    np.testing.assert_allclose((scope["lhs"] @ scope["rhs"]).to_numpy(), X @ X.T)


def test_moves_are_warned_of_once_for_each_op() -> None:
    t = spread(X, mesh(2), P)
    with warnings.catch_warnings(record=True) as caught, auto_reshard(mode="warn"):
        warnings.simplefilter("always")
        F.relu(F.relu(t))
    assert [w.category for w in caught] == [UserWarning]
    assert "relu moves x" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_operands_on_different_meshes_do_not_go_together() -> None:
    x = spread(X, mesh(2), S(0))
    with pytest.raises(ShardingError, match=r"one operand is on DeviceMesh\(tp=2\) and another"):
        x + spread(X, mesh(2, names=("other",)), S(0))


def test_writes_must_be_placed_as_the_tensor_is() -> None:
    t = spread(X, mesh(2), S(0))
    t[:, 1:2] = spread(np.zeros((5, 1), np.float32), mesh(2), S(0))
    assert (t.to_numpy()[:, 1] == 0).all() and (t.to_numpy()[:, 2] == X[:, 2]).all()
    with pytest.raises(ShardingError, match="place them alike with transfer_to"):
        t[:, 1:2] = spread(np.zeros((5, 1), np.float32), mesh(2), R)


def test_a_user_function_runs_on_each_device() -> None:
    @F.functional
    def doubled(x):
        return x + x

    got = doubled(spread(X, mesh(2), S(0)))
    assert got.placements == (U,)
    with pytest.raises(ShardingError, match="no known meaning"):
        got.to_numpy()
    named = got.rebind_mapping(on(mesh(2), S(0)))
    np.testing.assert_array_equal(named.to_numpy(), 2 * X)
    doubled.rule = lambda x: [AxisAssignment((S(0),), (S(0),))]
    assert doubled(spread(X, mesh(2), S(0))).placements == (S(0),)
    with pytest.raises(ShardingError, match="doubled needs x placed otherwise"):
        doubled(spread(X, mesh(2), S(1)))
    doubled.rule = lambda x: []
    with pytest.raises(ShardingError, match="gives no way to run it"):
        doubled(spread(X, mesh(2), S(0)))


# ---------------------------------------------------------------- collectives and call_on_mesh


@pytest.mark.parametrize("collective", [F.allreduce_sum, F.allgather, F.reduce_scatter])
def test_collectives_name_an_axis_of_the_mesh(collective) -> None:
    t = spread(X, mesh(2), R)
    with pytest.raises(ValueError, match=r"DeviceMesh\(tp=2\) has no axis 'dp'"):
        collective(t, mesh_axis="dp")
    with pytest.raises(IndexError, match="has the axes 0 to 0, not 1"):
        collective(t, mesh_axis=1)
    one = Tensor([1])
    assert collective(one) is one


def test_collectives_name_an_axis_of_the_tensor() -> None:
    t = spread(X, mesh(2), R)
    with pytest.raises(IndexError, match="axis 2 is out of range for rank 2"):
        F.allgather(t, 2)
    with pytest.raises(IndexError, match="axis 2 is out of range for rank 2"):
        F.reduce_scatter(t, 2)
    with pytest.raises(ValueError, match="counted from 0, got -1"):
        F.reduce_scatter(t, -1)
    with pytest.raises(ValueError, match="inputs of a group differ in shape"):
        F.allreduce_sum(spread(X, mesh(2), S(0)))
    with pytest.raises(RuntimeError, match="copies a tensor from one device"):
        F.distributed_broadcast(t, mesh(2))


def test_collectives_along_one_axis_of_a_grid() -> None:
    grid = mesh(2, 2)
    t = spread(X[:4], grid, S(0), P)
    summed = F.allreduce_sum(t, "tp")
    assert summed.placements == (S(0), R)
    np.testing.assert_array_equal(summed.to_numpy(), X[:4])
    whole = F.allgather(summed, 0, "dp")
    assert whole.placements == (R, R)
    np.testing.assert_array_equal(parts(whole)[3], X[:4])


def test_a_function_is_called_for_each_device_with_its_values() -> None:
    seen = []

    def local(x, k, shape, *, y):
        seen.append((list(map(int, shape)), k, y.is_distributed))
        return {"sum": x + k, "y": [y]}

    x = spread(X, mesh(2), S(0))
    run = F.call_on_mesh(local, mesh(2), out_specs=[on(mesh(2), S(0)), on(mesh(2), R)])
    got = run(x, PerShard([10, 20]), x.shape, y=Tensor([1]))
    assert seen == [([3, 4], 10, False), ([2, 4], 20, False)]
    np.testing.assert_array_equal(got["sum"].to_numpy(), X + np.float32([[10]] * 3 + [[20]] * 2))
    assert got["y"][0].placements == (R,)


def test_a_function_is_called_for_each_group_with_lists() -> None:
    grid = mesh(2, 2)

    def local(shards, k):
        total = shards[0] + shards[1]
        return [total * k[0], total * k[1]]

    run = F.call_on_mesh(local, grid, "tp", out_specs=on(grid, R, U))
    got = run(spread(X, grid, R, R), PerShard([1, 2, 3, 4]))
    assert [float(p[0, 1]) for p in parts(got)] == [2, 4, 6, 8]


def test_what_call_on_mesh_refuses() -> None:
    x = spread(X, mesh(2), S(0))
    with pytest.raises(ShardingError, match="has 2 devices, and a PerShard has 3 values"):
        F.call_on_mesh(lambda s, k: s, mesh(2))(x, PerShard([1, 2, 3]))
    with pytest.raises(ShardingError, match=r"DeviceMesh\(tp=2\) of cpu:0, and is to be used on"):
        F.call_on_mesh(lambda s: s, mesh(3))(x)
    with pytest.raises(ShardingError, match="a list of a result for each of them"):
        F.call_on_mesh(lambda s: [s[0]], mesh(2), "tp")(x)
    with pytest.raises(ShardingError, match="gives 2 tensors, and there are placements for 1"):
        F.call_on_mesh(lambda s: (s, s), mesh(2), out_specs=[on(mesh(2), R)])(x)
    with pytest.raises(ShardingError, match="as many tensors on each device, got 0, 1"):
        results = iter(([], [Tensor([1])]))
        F.call_on_mesh(lambda s: next(results), mesh(2))(x)
    with pytest.raises(ValueError, match="has no axis 'pp'"):
        F.call_on_mesh(lambda s: s, mesh(2), "pp")


def test_writes_to_parts_reach_the_tensor() -> None:
    t = spread(X, mesh(2), S(0))
    F.call_on_mesh(lambda s: F.buffer_store(s, s * 2), mesh(2))(t)
    np.testing.assert_array_equal(t.to_numpy(), X * 2)


# ---------------------------------------------------------------- control flow


def test_branches_give_distributed_tensors() -> None:
    t = spread(X, mesh(2), S(0))
    for flag in (True, False):
        pred = Tensor.from_dlpack(np.array(flag))
        for p in (pred, pred.to(mesh(2))):
            (got,) = F.cond(p, [t.layout], lambda: t + 1, lambda: t * 2)
            assert got.placements == (S(0),)
            np.testing.assert_array_equal(got.to_numpy(), X + 1 if flag else X * 2)
    bad = Tensor.from_dlpack(np.array(True)).to(mesh(2)).rebind_mapping(on(mesh(2), U))
    with pytest.raises(ShardingError, match=r"it is placed \[Unknown\(\)\]"):
        F.cond(bad, [t.layout], lambda: t, lambda: t)


def test_each_device_runs_its_loop() -> None:
    t = Tensor.zeros([2], device=mesh(2))
    (got,) = F.while_loop(t, lambda v: v[0] < 5, lambda v: v + 2)
    assert got.placements == (R,)
    np.testing.assert_array_equal(got.to_numpy(), [6, 6])
    with pytest.raises(ShardingError, match=r"while_loop needs initial_values\[0\] placed"):
        F.while_loop(spread(X, mesh(2), S(0)), lambda v: v[0, 0] < 5, lambda v: v + 2)


def test_side_streams_keep_placements() -> None:
    t = spread(X, mesh(2), S(0))
    (got,) = F.side_stream([t], lambda v: v + 1)
    assert got.placements == (S(0),)
    np.testing.assert_array_equal(got.to_numpy(), X + 1)
    layout = F.concat([t, t], 1).layout
    (wide,) = F.side_stream([t], lambda v: F.concat([v, v], 1), result_types=[layout])
    np.testing.assert_array_equal(wide.to_numpy(), np.concatenate([X, X], 1))


def test_buffers_are_one_for_each_device() -> None:
    t = spread(X, mesh(2), S(0))
    assert all(isinstance(b, Buffer) for b in t.buffers)
    assert t.num_elements() == 20 and t.rank == 2 and t.mesh == mesh(2)
