# SPDX-License-Identifier: Apache-2.0
"""Which way of running an op is taken, and when its inputs may be moved for it."""

import warnings

import pytest

from maxjax.experimental.sharding import (
    ALL_TRANSITIONS,
    DEFAULT_TRANSITIONS,
    AxisAssignment,
    DeviceMapping,
    Partial,
    Placement,
    Replicated,
    Sharded,
    ShardingError,
    TensorLayout,
    auto_reshard,
)
from maxjax.experimental.sharding._auto_reshard import (
    moved_input_slots,
    pick_reshard_action,
    row_transitions,
)
from maxjax.experimental.sharding.rules._registry import kept_axes, row
from tests.experimental.sharding.simulated import P, R, S, U, layout, mesh, short

line, m, four = mesh(2), mesh(2, 2), mesh(4)
UNARY = kept_axes([(0, 0), (1, 1)])


def pick(rows, *layouts):
    action = pick_reshard_action(
        rows, layouts, op_name="op", operand_names=["x", "y"][: len(layouts)]
    )
    ways = (*action.inputs, *action.outputs)
    return " ".join("".join(map(short, mapping.placements)) for mapping in ways)


def one(*placements, rows=UNARY, shape=(8, 6)):
    on = line if len(placements) == 1 else m
    return pick(rows, layout(shape, on, *placements))


def test_what_is_placed_right_is_not_moved():
    assert [one(p) for p in (R, S(0), S(1))] == ["R R", "S0 S0", "S1 S1"]
    assert one(S(0), S(1)) == "S0S1 S0S1" and one(S(0), S(0)) == "S0S0 S0S0"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with auto_reshard(mode="warn"):
            assert one(S(0)) == "S0 S0"


def test_outside_nothing_is_moved():
    with pytest.raises(ShardingError, match="op needs x placed otherwise"):
        one(P)


def test_modes():
    with auto_reshard(mode="silent"):
        assert one(P) == "R R"
    with auto_reshard(mode="warn"), pytest.warns(UserWarning, match="op moves x") as caught:
        assert one(P, P) == "RR RR"
    assert len(caught) == 1 and caught[0].filename.endswith("test_auto_reshard.py")
    with auto_reshard(mode="raise"), pytest.raises(ShardingError):
        one(P)


@pytest.mark.parametrize(
    ("allowed", "partial", "along"),
    [
        (DEFAULT_TRANSITIONS, "R R", "R R"),
        (ALL_TRANSITIONS, "S0 S0", "R R"),
        ([(Partial, Sharded)], "S0 S0", None),
        ({(Partial, Replicated)}, "R R", None),
        ({(Sharded, Replicated)}, None, "R R"),
        (set(), None, None),
    ],
)
def test_allowed_transitions(allowed, partial, along):
    softmax = kept_axes([(0, 0)])
    for placed, rows, expected in ((P, UNARY, partial), (S(1), softmax, along)):
        with auto_reshard(allowed, mode="silent"):
            if expected is None:
                with pytest.raises(ShardingError, match=r"that auto_reshard\(\) does not allow"):
                    one(placed, rows=rows)
            else:
                assert one(placed, rows=rows) == expected


def test_a_block_inherits_from_the_one_around_it():
    def moves():
        try:
            return one(P) != ""
        except ShardingError:
            return False

    seen = []
    with auto_reshard(mode="silent"):
        seen.append(moves())
        with auto_reshard(set()):
            seen.append(moves())
        with auto_reshard(mode="raise"):
            seen.append(moves())
            with auto_reshard(ALL_TRANSITIONS):
                seen.append(moves())
        seen.append(moves())
    assert [*seen, moves()] == [True, False, False, False, True, False]


def test_as_a_decorator_it_holds_for_each_call():
    @auto_reshard(mode="silent")
    def run():
        return one(P)

    assert run() == run() == "R R"
    with pytest.raises(ShardingError):
        one(P)


def test_a_block_ends_with_an_error_too():
    with pytest.raises(KeyError), auto_reshard(mode="silent"):
        raise KeyError
    with pytest.raises(ShardingError):
        one(P)


@pytest.mark.parametrize(
    "transitions",
    [{Partial}, {(P, R)}, [("a", "b")], {(Partial, Partial, Partial)}, {(int, str)}, ["ab"], 3],
)
def test_no_transitions(transitions):
    with pytest.raises(TypeError), auto_reshard(transitions):
        pass


def test_other_classes_of_placements_are_transitions():
    with auto_reshard({(Placement, Replicated), (Replicated, Partial)}, mode="silent"):
        assert one(R, rows=[row([P], P)]) == "P P"
    with auto_reshard(ALL_TRANSITIONS, mode="silent"), pytest.raises(ShardingError):
        one(R, rows=[row([P], P)])


def test_no_mode():
    block = auto_reshard(mode="loud")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="'silent', 'warn' or 'raise', got 'loud'"), block:
        pass


MATMUL = [
    row([None, None], None),
    row([0, None], 0),
    row([None, 1], 1),
    row([1, 0], P),
    row([P, None], P),
    row([None, P], P),
]


@pytest.mark.parametrize(
    ("x", "w", "result"),
    [
        (([4, 64], S(1)), ([64, 256], S(1)), "R S1 S1"),
        (([256, 64], S(0)), ([64, 4], S(0)), "S0 R S0"),
        (([8, 8], S(1)), ([8, 8], R), "S1 S0 P"),
    ],
)
def test_the_cheapest_is_taken(x, w, result):
    for allowed in (DEFAULT_TRANSITIONS, ALL_TRANSITIONS):
        with auto_reshard(allowed, mode="silent"):
            assert pick(MATMUL, layout(x[0], four, x[1]), layout(w[0], four, w[1])) == result


def test_the_first_of_equals_is_taken_and_the_fewest_moves():
    with auto_reshard(mode="silent"):
        assert one(S(0), rows=[row([1], 1), row([None], None)]) == "S1 S1"
        both = [row([None, 1], None), row([1, 0], 1), row([None, None], None)]
        small = layout([1, 8], line, R), layout([1, 8], line, R)
        assert pick(both, *small) == "R R R"


def test_axes_are_decided_in_order():
    with auto_reshard(mode="silent"):
        assert one(P, S(1)) == "RS1 RS1"
        split = [row([0], 0)]
        assert one(R, R, rows=split, shape=(4, 6)) == "S0S0 S0S0"
        with pytest.raises(ShardingError, match="along mesh axis 'tp'"):
            one(R, R, rows=split, shape=(3, 6))
        with pytest.raises(ShardingError, match="along mesh axis 'dp'"):
            one(R, R, rows=split, shape=(1, 6))
        assert one(R, R, rows=split, shape=("n", 6)) == "S0S0 S0S0"


def test_parts_that_are_empty_already_may_stay():
    assert pick([row([0], 0)], layout([3, 6], four, S(0))) == "S0 S0"


def test_an_operand_on_one_device_counts_as_copies():
    x, w = (
        layout([8, 6], line, S(0)),
        TensorLayout(layout([1], line).dtype, [6, 4], line.devices[0]),
    )
    action = pick_reshard_action(MATMUL, [x, w], op_name="op", operand_names=["x", "w"])
    assert action.inputs == (x.mapping, w.mapping)
    assert action.outputs == (DeviceMapping(line, (S(0),)),)
    with auto_reshard(mode="silent"):
        with pytest.raises(ShardingError, match="op cannot be run with"):
            pick([row([0, 0], 0)], x, w)
        assert (
            pick([row([P, P], P), row([None, None], None)], layout([8, 6], line, P), w) == "R R R"
        )
    assert pick(MATMUL, w, w) == "R R R"


def test_what_is_unknown_cannot_be_used():
    with auto_reshard(mode="silent"):
        with pytest.raises(
            ShardingError, match=r"cannot be run with x Unknown\(\) along mesh axis"
        ):
            one(U)
        assert one(U, rows=[row([U], U)]) == "U U"


def test_no_rows():
    with pytest.raises(ShardingError, match="op: its placement rule gives no way to run it"):
        one(R, rows=[])
    with pytest.raises(ShardingError, match="is for 1 tensors, and it has 2"):
        pick(UNARY, layout([4, 4], line), layout([4, 4], line))


def test_different_meshes():
    other = layout([4, 4], mesh(2, names=("other",)))
    with pytest.raises(
        ShardingError, match=r"on DeviceMesh\(tp=2\) and another on DeviceMesh\(oth"
    ):
        pick(MATMUL, layout([4, 4], line), other)


def test_the_report_says_what_to_write():
    with pytest.raises(ShardingError) as raised:
        one(P)
    assert str(raised.value).split("\n") == [
        "op needs x placed otherwise, and nothing lets it move inputs",
        "  x: float32[8, 6] on DeviceMesh(tp=2), placed [Partial()]",
        "  along mesh axis 'tp', cheapest first:",
        "    x Partial() -> Sharded(axis=0), gives Sharded(axis=0) "
        "(reduce_scatter of x, 96 bytes; not allowed)",
        "    x Partial() -> Sharded(axis=1), gives Sharded(axis=1) "
        "(reduce_scatter of x, 96 bytes; not allowed)",
        "    x Partial() -> Replicated(), gives Replicated() "
        "(allreduce of x, 192 bytes; the one to take)",
        "  to move them yourself:",
        "    x = F.transfer_to(x, DeviceMapping(x.mesh, (Replicated(),)))",
        "  to let ops do it:",
        '    with auto_reshard(mode="silent"):',
    ]


def test_the_report_of_what_is_not_allowed():
    x, w = layout([8, 6], m, R, P), layout([6, 4], m, P, S(0))
    allowed = auto_reshard({(Sharded, Sharded)}, mode="silent")
    with pytest.raises(ShardingError) as raised, allowed:
        pick(MATMUL, x, w)
    text = str(raised.value)
    print(text)
    assert text.startswith("op can only move y in ways that auto_reshard() does not allow")
    assert "along mesh axis 'dp', cheapest first:\n    x Replicated(), y Partial(), gives" in text
    assert "(as they are; taken)" in text and "    and 1 more\n" in text
    assert "y = F.transfer_to(y, DeviceMapping(y.mesh, (Partial(), Replicated())))" in text
    wanted = 'auto_reshard({(Sharded, Replicated), (Sharded, Sharded)}, mode="silent"):'
    assert text.endswith(f"with {wanted}")


def test_slots_and_transitions():
    needs = AxisAssignment((R, R, S(1), R), (R,))
    assert moved_input_slots([R, P, S(0), R], needs) == [1, 2]
    assert row_transitions([R, P, S(0), R], needs) == {(Partial, Replicated), (Sharded, Sharded)}
    assert ALL_TRANSITIONS - {(Partial, Sharded)} == DEFAULT_TRANSITIONS
    assert isinstance(ALL_TRANSITIONS, frozenset) and len(ALL_TRANSITIONS) == 5
