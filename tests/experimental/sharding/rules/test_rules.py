# SPDX-License-Identifier: Apache-2.0
"""What ops make of placements: the tables that MAX gives, and what rules refuse."""

import pytest

from maxjax.dtype import DType
from maxjax.experimental.sharding import (
    AxisAssignment,
    DeviceMapping,
    ShardingError,
    TensorLayout,
    auto_reshard,
)
from maxjax.experimental.sharding._auto_reshard import pick_reshard_action
from maxjax.experimental.sharding.action import tensor_layouts_in
from maxjax.experimental.sharding.rules import localizer_for, names, rule_for
from maxjax.experimental.sharding.rules.reshape import (
    localize_broadcast_target,
    localize_reshape_target,
    localize_same_shape_target,
)
from maxjax.experimental.sharding.types import fold_shape
from maxjax.graph import Dim, Shape
from maxjax.graph.type import ConvInputLayout, FilterLayout
from tests.experimental.sharding.simulated import P, R, S, U, layout, mesh, short

line, m = mesh(2), mesh(2, 2)


def rows(op, *args, **kwargs):
    """The rows of a rule, such as ``R,R>R S0,R>S0``."""
    rule = rule_for(op)
    assert rule is not None
    return " ".join(
        ",".join(map(short, r.needed_inputs)) + ">" + ",".join(map(short, r.outputs))
        for r in rule(*args, **kwargs)
    )


def result(op, *args, **kwargs):
    """How the first result is placed, or that inputs would have to move."""
    rule = rule_for(op)
    assert rule is not None
    layouts = tensor_layouts_in((args, kwargs))
    try:
        action = pick_reshard_action(
            rule(*args, **kwargs),
            layouts,
            op_name=op,
            operand_names=[f"x{i}" for i in range(len(layouts))],
        )
    except ShardingError:
        return "-"
    return "".join(map(short, action.outputs[0].placements))


def table(op, *args, shape=(4, 6), **kwargs):
    placements = (R, S(0), S(1), P, U)
    return " ".join(result(op, layout(shape, line, p), *args, **kwargs) for p in placements)


@pytest.mark.parametrize(
    ("op", "arguments", "expected"),
    [
        ("relu", (), "R S0 S1 - -"),
        ("negate", (), "R S0 S1 P -"),
        ("cast", (DType.int32,), "R S0 S1 - -"),
        ("cast", (DType.float32,), "R S0 S1 P -"),
        ("softmax", (), "R S0 - - -"),
        ("cumsum", (), "R S0 - - -"),
        ("sum", (0,), "R P S1 P -"),
        ("sum", (1,), "R S0 P P -"),
        ("sum", (None,), "R P P P -"),
        ("mean", (0,), "R - S1 - -"),
        ("max", (), "R S0 - - -"),
        ("argmax", (1,), "R S0 - - -"),
        ("transpose", (0, 1), "R S1 S0 P -"),
        ("unsqueeze", (0,), "R S1 S2 P -"),
        ("permute", ([1, 0],), "R S1 S0 P -"),
        ("reshape", ([4, 2, 3],), "R S0 S1 P U"),
        ("reshape", ([24],), "R S0 - P U"),
        ("reshape", ([-1, 2],), "R S0 - P U"),
        ("flatten", (), "R - - P -"),
        ("broadcast_to", ([2, 4, 6],), "R S1 S2 P U"),
        ("rebind", ([4, 6],), "R S0 S1 P U"),
        ("split", ([2, 2], 0), "R S0 S1 P -"),
        ("split", ([1, 3], 0), "R - S1 P -"),
        ("chunk", (2, 1), "R S0 - P -"),
        ("slice_tensor", ([0],), "R - S0 P -"),
        ("slice_tensor", ([slice(None), slice(1, 3)],), "R S0 - P -"),
        ("pad", ([1, 0, 0, 0],), "R - S1 P -"),
        ("tile", ([2, 1],), "R - S1 P -"),
        ("top_k", (2, 1), "R S0 - - -"),
        ("argsort", (), "R - - - -"),
        ("group_norm", (layout([6], line), layout([6], line), 2, 1e-5), "R S0 - - -"),
    ],
)
def test_of_one_tensor(op, arguments, expected):
    assert table(op, *arguments) == expected


PAIRS = [R, S(0), S(1), P]


def pairs(op):
    return [
        " ".join(result(op, layout([4, 4], line, p), layout([4, 4], line, q)) for q in PAIRS)
        for p in PAIRS
    ]


def test_of_two_tensors():
    assert pairs("add") == ["R - - -", "- S0 - -", "- - S1 -", "- - - P"]
    assert pairs("mul") == ["R - - P", "- S0 - -", "- - S1 -", "P - - -"]
    assert pairs("div") == ["R - - -", "- S0 - -", "- - S1 -", "P - - -"]
    assert pairs("pow") == pairs("max") == ["R - - -", "- S0 - -", "- - S1 -", "- - - -"]
    assert pairs("matmul") == ["R - S1 P", "S0 - - -", "- P - -", "P - - -"]


def test_of_two_tensors_that_may_be_moved():
    with auto_reshard(mode="silent"):
        assert pairs("add") == ["R S0 S1 R", "S0 S0 S0 R", "S1 S0 S1 R", "R R R P"]
        assert pairs("mul") == ["R S0 S1 P", "S0 S0 S0 P", "S1 S0 S1 P", "P P P P"]
        assert pairs("matmul") == ["R P S1 P", "S0 S0 S0 P", "P P S1 P", "P P P P"]


@pytest.mark.parametrize(
    ("x", "w", "expected"),
    [
        ((S(0), R), (R, S(1)), "S0S1"),
        ((S(0), S(1)), (R, S(0)), "S0P"),
        ((S(0), R), (R, R), "S0R"),
        ((S(0), S(1)), (R, R), "-"),
    ],
)
def test_products_on_a_grid(x, w, expected):
    assert result("matmul", layout(["b", 8], m, *x), layout([8, 4], m, *w)) == expected


def test_tables_and_norms():
    def look_up(p, q):
        return result("gather", layout([8, 4], line, p), layout(["n"], line, q), 0)

    ways = ((S(1), R), (R, S(0)), (S(0), R), (P, R))
    assert [look_up(*w) for w in ways] == ["S1", "S0", "-", "P"]
    weight = layout([6], line)
    assert table("rms_norm", weight, 1e-6) == "R S0 - - -"
    assert table("layer_norm", weight, weight, 1e-6) == "R S0 - - -"


def test_shapes_that_are_joined_must_be_placed_alike():
    for op in ("concat", "stack"):
        ways = [
            result(op, [layout([4, 6], line, p), layout([4, 6], line, q)])
            for p, q in ((R, R), (S(0), S(0)), (S(1), S(1)), (P, P), (R, S(0)), (P, R))
        ]
        moved = {"concat": ["S0", "S1"], "stack": ["S1", "S2"]}[op]
        assert ways == ["R", *moved, "P", "-", "-"]
        with pytest.raises(ValueError, match=f"{op} of no tensors has no placement"):
            rows(op, [])


def test_a_split_along_the_split_axis_cuts_each_part():
    localizer = localizer_for("split")
    assert localizer is not None
    x = layout([6, 4], line, S(0))
    (two, four) = localizer(x, [2, 4])["split_size_or_sections"]
    assert two.per_shard == (1, 1) and four.per_shard == (2, 2) and int(four) == 4
    assert localizer(x, [1, 3], 1) == {}
    assert rows("split", layout(["n"], line, S(0)), [2, Dim("n") - 2]).split()[0] == "R>R,R"


def test_indices_that_are_tensors_are_operands():
    x, i = layout([4, 6], line), layout([], line)
    assert rows("slice_tensor", x, [i]) == "R,R>R S1,R>S0 P,R>P"
    assert rows("slice_tensor", x, [layout([3], line)]) == "R,R>R S1,R>S1 P,R>P"
    assert rows("slice_tensor", x, (..., i)) == "R,R>R S0,R>S0 P,R>P"
    assert rows("pad", x, [1, 0, 0, 0], "constant", i) == "R,R>R S1,R>S1"
    assert rows("repeat_interleave", x, layout([4], line), 0, "k") == "R,R>R S1,R>S1 P,R>P"
    assert rows("repeat_interleave", x, 2) == "R>R"


def test_convolutions_of_other_layouts():
    image, planes = layout([2, 8, 8, 4], line), layout([2, 4, 8, 8], line)
    plain = rows("conv2d", image, layout([3, 3, 4, 6], line))
    assert plain == "R,R>R S0,R>S0 R,S3>S3 S3,S2>P P,R>P R,P>P"
    nchw = {"input_layout": ConvInputLayout.NCHW, "filter_layout": FilterLayout.FCRS}
    assert rows("conv2d", planes, layout([6, 4, 3, 3], line), **nchw) == (
        "R,R>R S0,R>S0 R,S0>S1 S1,S1>P P,R>P R,P>P"
    )
    bias = rows("conv2d", image, layout([3, 3, 4, 6], line), bias=layout([6], line))
    assert bias == "R,R,R>R S0,R,R>S0 R,S3,S0>S3"
    assert rows("conv2d", image, layout([3, 3, 2, 6], line), groups=2) == (
        "R,R>R S0,R>S0 P,R>P R,P>P"
    )
    volume = layout([2, 8, 8, 8, 4], line)
    assert rows("conv3d", volume, layout([3, 3, 3, 4, 6], line)).split()[2] == "R,S4>S4"


def test_buffers_are_written_with_what_is_placed_alike():
    def store(p, q, op="buffer_store", *rest):
        rule = rule_for(op)
        assert rule is not None
        try:
            return rule(layout([4, 6], line, p), layout([4, 6], line, q), *rest)
        except ShardingError as e:
            assert "do not go together, and this op moves none" in str(e)
            return None

    assert store(S(0), S(0)) == [AxisAssignment((S(0), S(0)), ())]
    assert store(P, P) and store(U, S(0)) and store(R, R)
    assert store(S(0), R) is None and store(R, S(0)) is None
    part = ("buffer_store_slice", [slice(0, 2)])
    assert store(S(1), S(1), *part) and store(R, R, *part) and store(P, P, *part)
    assert store(S(0), S(0), *part) is None and store(S(1), R, *part) is None
    number = ("buffer_store_slice", [layout([], line)])
    assert store(S(1), S(0), *number) and store(S(1), S(1), *number) is None
    with pytest.raises(ShardingError):
        rows("buffer_store_slice", layout([4], line), layout([], line), [layout([3], line, S(0))])


def test_branches_and_loops_take_copies():
    x = layout([4], line, S(0))
    assert rows("cond", layout([], line), [None, None], None, None) == "R>R,R"
    assert rows("cond", layout([], line), None, None, None) == "R>"
    assert rows("while_loop", [x, x], None, None) == "R,R>R,R"
    assert rows("while_loop", x, None, None) == "R>R"


def test_ops_that_split_nothing():
    x = layout([4, 6], line)
    for op, args in (
        ("masked_scatter", (x, x, x, "k")),
        ("scatter_nd_add", (x, x, x)),
        ("qmatmul", (None, None, x, x, x)),
    ):
        assert rows(op, *args) == "R,R,R>R"
    assert rows("nonzero", x, "k") == "R>R"
    assert rows("scatter", layout([4, 6], line), layout([2, 6], line), layout([2, 6], line), 1) == (
        "R,R,R>R"
    )


def test_names():
    assert rule_for("no_such_op") is None and localizer_for("relu") is None
    assert len(names()) > 90 and names() == sorted(names())


def test_reshapes_of_names():
    x = layout(["n", 2, 6], line, S(0))
    assert rows("reshape", x, ["n", 12]) == "R>R S0>S0 P>P U>U"
    cells = localize_reshape_target(x, ["n", -1])
    assert cells is not None
    assert cells[0].per_shard == ("n_tp_0", "n_tp_1") and cells == ["n", 12]
    (merged,) = localize_reshape_target(x, [Dim("n") * 12]) or []
    assert merged.per_shard == (Dim("n_tp_0") * 12, Dim("n_tp_1") * 12)
    grid = layout([8, 6], m, S(0), S(0))
    assert localize_reshape_target(grid, [2, 4, 6]) is None
    (first, *_) = localize_reshape_target(grid, [4, 2, 6]) or []
    assert first.per_shard == (1, 1, 1, 1) and first == 4


def test_what_was_split_may_be_reshaped_by_its_own_dims():
    mapping = DeviceMapping(line, (S(0),))
    x = TensorLayout.of_shards(DType.float32, [["a", 4], ["b", 4]], mapping)
    assert localize_reshape_target(x, [x.shape[0], 2, 2]) == [x.shape[0], 2, 2]
    (flat,) = localize_reshape_target(x, [x.shape[0] * 4]) or []
    assert flat.per_shard == (Dim("a") * 4, Dim("b") * 4)
    uneven = fold_shape([Shape([7]), Shape([1])], mapping)
    assert localize_reshape_target(TensorLayout(DType.float32, uneven, mapping), [4, 2]) is None


def test_broadcasts_and_other_names():
    x = layout([4, 1], line, S(0))
    cells = localize_broadcast_target(x, [3, 4, 6])
    assert cells == [3, 4, 6] and cells[1].per_shard == (2, 2)
    wrong = localize_broadcast_target(x, [3, 5, 6])
    assert wrong == [3, 5, 6] and wrong[1] is Dim(5)
    named = localize_same_shape_target(layout(["n", 6], line, S(0)), ["k", 6])
    assert named[0].per_shard == ("k_tp_0", "k_tp_1")
    same = localize_same_shape_target(layout(["n", 6], line, S(0)), ["n", 6])
    assert same[0].per_shard == ("n_tp_0", "n_tp_1")
