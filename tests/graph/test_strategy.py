# SPDX-License-Identifier: Apache-2.0
"""Which elements each device gets of a weight, and what happens where it cannot be divided."""

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, ShardingStrategy, Weight, ops
from maxjax.graph.quantization import QuantizationEncoding
from maxjax.graph.weight import Segment

CPU = DeviceRef.CPU()
S = ShardingStrategy


def weight(dims, strategy, dtype=DType.float32, **kwargs):
    w = Weight("w", dtype, dims, CPU, **kwargs)
    w.sharding_strategy = strategy
    return w


def parts(array, strategy):
    """What each device has, of a weight with these values."""
    w = weight(array.shape, strategy)
    with Graph("g") as graph:
        graph.output(*w.shard([CPU] * strategy.num_devices))
    model = InferenceSession().load(graph, weights_registry={"w": array})
    return [b.to_numpy() for b in model()]


def numbers(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def take(array, axis, *ranges):
    return np.concatenate([np.take(array, range(*r), axis) for r in ranges], axis)


QKV, GATES, ROWS = numbers(24, 2), numbers(12, 2), numbers(7, 4)
HEADS = numbers(2, 12)

CASES = [
    (S.replicate(2), ROWS, [ROWS, ROWS]),
    (S.rowwise(3), ROWS, [ROWS[:3], ROWS[3:5], ROWS[5:]]),
    (S.columnwise(2), ROWS, [ROWS[:, :2], ROWS[:, 2:]]),
    (S.axiswise(-1, 3), ROWS, [ROWS[:, :2], ROWS[:, 2:3], ROWS[:, 3:]]),
    # Heads 0 and 1, then 2 and 3, of queries, keys and values, each of 4 heads of 2.
    (
        S.stacked_qkv(2, 4, 2),
        QKV,
        [take(QKV, 0, (0, 4), (8, 12), (16, 20)), take(QKV, 0, (4, 8), (12, 16), (20, 24))],
    ),
    (S.head_aware_columnwise(2, 3, 4), HEADS, [HEADS[:, :8], HEADS[:, 8:]]),
    # The same heads where two numbers are packed in one.
    (S.head_aware_columnwise(2, 3, 8), HEADS, [HEADS[:, :8], HEADS[:, 8:]]),
    (
        S.gate_up(4, axis=0),
        GATES,
        [take(GATES, 0, r, (r[0] + 6, r[1] + 6)) for r in [(0, 2), (2, 4), (4, 5), (5, 6)]],
    ),
    (
        S.segmented(2, 0, [Segment.head_aware(3, 2), Segment.even(6)]),
        GATES,
        [take(GATES, 0, (0, 4), (6, 9)), take(GATES, 0, (4, 6), (9, 12))],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "array", "expected"), CASES)
def test_the_part_of_each_device(strategy, array, expected):
    for part, want in zip(parts(array, strategy), expected, strict=True):
        np.testing.assert_array_equal(part, want)


def test_a_part_is_cut_out_once():
    w = weight([4, 2], S.rowwise(2))
    with Graph("g") as graph:
        first, second = w.shard([CPU, CPU])
        flag = ops.constant(True, DType.bool, CPU)
        type_ = first.type
        # Within a branch too: the other one and what follows use the same.
        (x,) = ops.cond(flag, [type_], lambda: second + 1, lambda: second * 2)
        graph.output(first + first, x + second, w.shard([CPU])[0] + 1)
    kinds = [type(n.op).__name__ for n in graph.body.walk()]
    assert kinds.count("SliceTensor") == 2
    assert kinds.count("ConstantExternal") == 1
    array = numbers(4, 2)
    a, b, c = InferenceSession().load(graph, weights_registry={"w": array})()
    np.testing.assert_array_equal(a.to_numpy(), 2 * array[:2])
    np.testing.assert_array_equal(b.to_numpy(), 2 * array[2:] + 1)
    np.testing.assert_array_equal(c.to_numpy(), array[:2] + 1)


def test_a_part_says_what_it_is():
    w = weight([8, 18], S.rowwise(2), DType.uint8, align=32,
               quantization_encoding=QuantizationEncoding.Q4_0)  # fmt: skip
    part = w.shard([CPU, DeviceRef.GPU(1)])[1]
    assert (part.name, part.shard_idx, part.device) == ("w[1]", 1, DeviceRef.GPU(1))
    assert (part.align, part.quantization_encoding) == (32, QuantizationEncoding.Q4_0)
    assert repr(part) == "Weight('w[1]', uint8, a part, gpu:1)"
    with pytest.raises(ValueError, match=r"weight 'w\[1\]' is a part already; shard 'w'"):
        part.shard([CPU])
    with pytest.raises(ValueError, match="is used where no graph is being built"):
        _ = part.shape


@pytest.mark.parametrize(
    ("dims", "strategy", "error", "message"),
    [
        ([6], S.columnwise(2), IndexError, "of rank 1 has no axis 1"),
        (["n", 6], S.rowwise(2), TypeError, "dimension 0 of weight 'w' is n; only numbers are div"),
        ([24, 8], S.stacked_qkv(2, 5, 2), ValueError, "has 24 rows; .* 5 heads of 2 are 30"),
        ([13, 4], S.gate_up(2, axis=0), ValueError, "axis 0 of weight 'w' has the odd size 13"),
        ([10, 3], S.segmented(2, 0, [Segment.even(8)]), ValueError, "does not hold 8 elements"),
        ([8, 6], S.tensor_parallel(2), NotImplementedError, "how a layer is divided, not a weight"),
        ([8, 6], S.expert_parallel(2), NotImplementedError, "'w' a strategy of its own"),
    ],
)
def test_what_cannot_be_divided(dims, strategy, error, message):
    with Graph("g"), pytest.raises(error, match=message):
        ops.tanh(weight(dims, strategy).shard([CPU])[0])


def test_no_strategy_and_too_many_devices():
    with pytest.raises(ValueError, match=r"has no strategy; set one"):
        Weight("w", DType.float32, [2], CPU).shard([CPU])
    with pytest.raises(ValueError, match="weight 'w' is divided into 2 parts, for 3 devices"):
        weight([4], S.rowwise(2)).shard([CPU] * 3)
