# SPDX-License-Identifier: Apache-2.0
"""Rows, and rules made of them."""

import pytest

from maxjax.driver import CPU
from maxjax.dtype import DType
from maxjax.experimental.sharding import (
    AxisAssignment,
    ShardingError,
    TensorLayout,
    match_operand_placement,
    replicated_rows,
)
from maxjax.experimental.sharding.action import (
    PerShard,
    input_placements_at_axis,
    pass_through_rows,
    tensor_layouts_in,
)
from maxjax.graph import ops
from tests.experimental.sharding.simulated import P, R, S, U, layout, mesh

line, m = mesh(2), mesh(2, 2)
x, y = layout([2, 3], m, S(0), P), layout([2, 3], m)


def test_a_row_is_a_pair():
    needed, outputs = AxisAssignment((R,), (P,))
    assert (needed, outputs) == ((R,), (P,)) and hash(AxisAssignment((R,), (P,)))


def test_values_per_device():
    p = PerShard([3, 4])
    assert len(p) == 2 and p[1] == 4 and list(p) == [3, 4] and repr(p) == "PerShard((3, 4))"
    assert p == PerShard((3, 4)) and p != (3, 4) and hash(p) == hash(PerShard([3, 4]))


def test_layouts_are_found_at_any_depth():
    assert tensor_layouts_in((x, 3, [y, {"a": x}], None, "s")) == (x, y, x)


def test_replicated():
    rows = replicated_rows(x, 5, [y], output_count=2)
    assert rows == [AxisAssignment((R, R), (R, R))]
    with pytest.raises(ValueError, match="no layout of a tensor among the arguments"):
        replicated_rows(3)


def test_placements_along_an_axis():
    assert input_placements_at_axis([(R, P), (S(0), U)], 1) == (P, U)


def test_what_passes_through():
    first = pass_through_rows([x, y], lambda given: given[:1])
    assert first == [AxisAssignment((S(0), R), (S(0),)), AxisAssignment((P, R), (P,))]
    assert len(pass_through_rows([y, y], lambda given: given[:1])) == 1
    on_one = TensorLayout(DType.int8, [2], CPU())
    assert pass_through_rows([x, on_one], lambda g: ())[0].needed_inputs == (S(0), R)
    with pytest.raises(ShardingError, match=r"along mesh axis 'tp' do not go together"):
        pass_through_rows([x, y], lambda given: None if P in given else given)


def test_results_placed_as_an_operand():
    rule = match_operand_placement(ops.relu, "x")
    for p in (R, S(1), P, U):
        assert rule(layout([2, 3], line, p)) == [AxisAssignment((p,), (p,))]
    assert rule(x=x) == rule(x)
    second = match_operand_placement(ops.add, "rhs", output_count=2)
    assert second(y, x)[0] == AxisAssignment((R, S(0)), (S(0), S(0)))
    with pytest.raises(ValueError, match="relu has no parameter 'nope'; it has x"):
        match_operand_placement(ops.relu, "nope")
    with pytest.raises(ShardingError, match="placed as 'rhs', which is 3 and no tensor"):
        second(x, 3)
