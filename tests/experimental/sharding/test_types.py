# SPDX-License-Identifier: Apache-2.0
"""Layouts: what each device has of a tensor, and the whole that parts make up."""

import pickle
from types import SimpleNamespace

import pytest

from maxjax.driver import CPU
from maxjax.dtype import DType
from maxjax.experimental.sharding import (
    BufferLayout,
    DeviceMapping,
    NamedMapping,
    ShardingError,
    TensorLayout,
    as_layout,
)
from maxjax.experimental.sharding.per_shard_dim import PerShardDim
from maxjax.experimental.sharding.types import fold_shape
from maxjax.graph import BufferType, DeviceRef, Dim, Shape, TensorType
from tests.experimental.sharding.simulated import P, R, S, U, layout, mesh

m, line, four = mesh(2, 2), mesh(2), mesh(4)
cpu = DeviceRef.CPU()
f32 = DType.float32


def local(x: TensorLayout) -> list[list[str]]:
    return [[str(d) for d in t.shape] for t in x.local_types]


def test_on_one_device():
    x = TensorLayout(f32, ["n", 4, 2], CPU())
    assert repr(x) == (
        "TensorLayout(DType.float32, [n, 4, 2], DeviceMapping(DeviceMesh(_=1), [Replicated()]))"
    )
    assert x.rank == 3 and x.device == CPU() and x.placements == (R,)
    assert x.local_types == [TensorType(f32, ["n", 4, 2], cpu)]
    assert x.as_buffer().local_types == [BufferType(f32, ["n", 4, 2], cpu)]
    with pytest.raises(AttributeError, match="layouts are immutable"):
        x.dtype = DType.int32


@pytest.mark.parametrize(
    ("shape", "on", "placements", "shapes"),
    [
        ([8, 3], line, (S(0),), [["4", "3"], ["4", "3"]]),
        ([10], four, (S(0),), [["3"], ["3"], ["2"], ["2"]]),
        ([3], four, (S(0),), [["1"], ["1"], ["1"], ["0"]]),
        ([0, 2], line, (S(0),), [["0", "2"], ["0", "2"]]),
        ([5, 5], m, (P, S(1)), [["5", "3"], ["5", "2"], ["5", "3"], ["5", "2"]]),
        ([10, 2], m, (S(0), S(0)), [["3", "2"], ["3", "2"], ["2", "2"], ["2", "2"]]),
        ([5], line, (U,), [["5"], ["5"]]),
        ([], line, (R,), [[], []]),
        (["n", 4], line, (S(0),), [["n_tp_0", "4"], ["n_tp_1", "4"]]),
        (["n", 4], line, (S(1),), [["n", "2"], ["n", "2"]]),
        (["n", "k"], m, (S(1), S(0)), [
            ["n_tp_0", "k_dp_0"], ["n_tp_1", "k_dp_0"], ["n_tp_0", "k_dp_1"], ["n_tp_1", "k_dp_1"],
        ]),
        (["n"], m, (S(0), S(0)), [[f"n_dp_{i}_tp_{j}"] for i in (0, 1) for j in (0, 1)]),
        ([Dim("n") + 1], line, (R,), [["n + 1"], ["n + 1"]]),
    ],
)  # fmt: skip
def test_what_each_device_has(shape, on, placements, shapes):
    assert local(layout(shape, on, *placements)) == shapes


@pytest.mark.parametrize("axis", [2, -1])
def test_a_split_axis_must_be_there(axis):
    with pytest.raises(ValueError, match=rf"Sharded\(axis={axis}\) on mesh axis 'tp' splits"):
        layout([2, 2], line, S(axis))


def test_an_expression_is_not_split():
    x = layout([Dim("n") * 2], line, S(0))
    with pytest.raises(ShardingError, match="cannot be split over mesh axis 'tp'"):
        _ = x.local_types


def test_bad_parts():
    with pytest.raises(TypeError, match="got str 'cpu'"):
        TensorLayout(f32, [2], "cpu")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="the dtype of a layout is a DType"):
        TensorLayout("f32", [2], CPU())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="over 2 devices has no single device"):
        _ = layout([2], line).device


def test_equality():
    x = layout([2, "n"], line)
    assert x == layout([2, "n"], line, R) and hash(x) == hash(layout((2, "n"), line))
    assert x != layout([2, "k"], line) and x != layout([2], line) and x != layout([2, "n"], m)
    assert x != TensorLayout(DType.int8, [2, "n"], line)
    assert layout([4], line, S(0)) != TensorLayout(f32, [4], NamedMapping(line, ("tp",)))
    assert pickle.loads(pickle.dumps(x)) == x


def test_a_buffer_is_another_kind_of_layout():
    x = layout(["n", 2], line, S(1))
    b = x.as_buffer()
    assert isinstance(b, BufferLayout) and b != x and b.as_tensor() == x and b.as_buffer() == b
    assert type(b.as_tensor()) is TensorLayout and repr(b).startswith("BufferLayout(")


def test_as_layout():
    x = layout([2], line)
    assert as_layout(x) is x
    assert as_layout(TensorType(f32, [2], cpu)) == TensorLayout(f32, [2], CPU())
    assert as_layout(BufferType(f32, [2], cpu)) == BufferLayout(f32, [2], CPU())
    with pytest.raises(TypeError, match="got a live SimpleNamespace, whose sizes"):
        as_layout(SimpleNamespace(layout=x))
    with pytest.raises(TypeError, match="a TensorType or a BufferType, got int 3"):
        as_layout(3)


def test_parts_make_up_a_whole():
    x = TensorLayout.of_shards(f32, [[3, 2], [2, 2]], DeviceMapping(line, (S(0),)))
    assert [str(d) for d in x.shape] == ["5", "2"] and local(x) == [["3", "2"], ["2", "2"]]
    assert x == layout([5, 2], line, S(0)) and layout([5, 2], line, S(0)) == x
    assert hash(x) == hash(layout([5, 2], line, S(0)))
    assert repr(x.as_buffer()).startswith("BufferLayout(DType.float32, [5, 2], ")


def test_parts_need_not_be_balanced():
    x = TensorLayout.of_shards(f32, [[1, 2], [7, 2]], DeviceMapping(line, (S(0),)))
    assert local(x) == [["1", "2"], ["7", "2"]] and int(x.shape[0]) == 8
    assert pickle.loads(pickle.dumps(x)).shape[0].per_shard == (1, 7)


def test_sums_of_names():
    shapes = [Shape([f"b_dp_{d}", 4]) for d in (0, 0, 1, 1)]
    whole = fold_shape(shapes, DeviceMapping(m, (S(0), R)))
    assert str(whole[0]) == "b_dp_0 + b_dp_1" and whole[1] is Dim(4)


def test_copies_must_agree():
    with pytest.raises(ShardingError, match="axis 0 is 3 on one device and 2 on another"):
        fold_shape([Shape([3]), Shape([2])], DeviceMapping(line, (R,)))
    with pytest.raises(ShardingError, match="needs a part for each of its 2 devices"):
        fold_shape([Shape([3])], DeviceMapping(line, (R,)))
    with pytest.raises(ShardingError, match="all with as many axes"):
        fold_shape([Shape([3]), Shape([3, 1])], DeviceMapping(line, (R,)))


def test_what_is_unknown_may_differ():
    whole = fold_shape([Shape([4]), Shape([1])], DeviceMapping(line, (U,)))
    assert repr(whole[0]) == "PerShardDim((Dim(4), Dim(1)))"
    assert fold_shape([Shape([4]), Shape([4])], DeviceMapping(line, (U,))) == [4]


def test_a_shape_with_parts_under_another_mapping():
    rows = layout([5], line, S(0)).shape
    split = TensorLayout.of_shards(f32, [[3], [2]], DeviceMapping(line, (S(0),))).shape
    for shape in (rows, split):
        assert local(layout(shape, line)) == [["5"], ["5"]]
        assert local(layout(shape, four, S(0))) == [["2"], ["1"], ["1"], ["1"]]
    by_tp = TensorLayout.of_shards(f32, [[3], [2]] * 2, DeviceMapping(m, (R, S(0)))).shape
    assert local(layout(by_tp, m, S(0), R)) == [["3"], ["3"], ["2"], ["2"]]
    with pytest.raises(ShardingError, match=r"axis 0 has the parts \(3 \| 2\), which are not"):
        layout([PerShardDim([3, 2])], line, R)
