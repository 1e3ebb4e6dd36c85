# SPDX-License-Identifier: Apache-2.0
"""The base class of ops: what it demands of a subclass, and the messages it makes."""

import re

import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, Shape, TensorType, ops
from maxjax.graph.op import OPS, Op

CPU = DeviceRef.CPU()


def f32(*dims):
    return TensorType(DType.float32, dims, CPU)


def test_an_op_needs_a_type_rule_and_a_meaning():
    class Half(Op, abstract=True):
        def infer(self, x):
            return x

    with pytest.raises(TypeError, match="lower"):
        Half()


def test_two_ops_cannot_share_a_name():
    with pytest.raises(TypeError, match="two ops are called exp"):

        class Exp(Op):
            def infer(self, x):
                return x

            def lower(self, x):
                return x

    assert OPS["exp"].__module__ == "maxjax.graph.ops.transcendental"


def test_names_come_from_class_names():
    assert OPS["logical_and"].__name__ == "LogicalAnd"
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in OPS)


def test_dimensions_among_the_fields_are_evaluated():
    class Probe(Op, abstract=True):
        dim: Dim
        shape: Shape
        pair: tuple
        cut: slice
        plain: int

        def infer(self):
            return f32()

        def lower(self):
            return None

    n = Dim("n")
    probe = Probe(n + 1, Shape([n, 3]), (n, (2, n)), slice(None, n - 1), 7)
    at = probe.at({"n": 4})
    assert (at.dim, at.shape, at.pair, at.cut) == (5, (4, 3), (4, (2, 4)), slice(None, 3))
    assert probe.dim == n + 1
    plain = OPS["cast"](DType.int8)
    assert plain.at({"n": 4}) is plain


def test_a_refusal_names_op_reason_operands_and_line():
    with Graph("g", input_types=[f32("batch", 4), f32(3, 2)]) as g:
        x, y = (v.tensor for v in g.inputs)
        with pytest.raises(ValueError) as e:
            x @ y
    lines = str(e.value).splitlines()
    assert lines[0] == (
        "matmul: inner dimensions differ, 4 against 3 (given f32[batch, 4], f32[3, 2])"
    )
    assert re.fullmatch(r"  at .*test_op\.py:\d+ in test_a_refusal_names.*", lines[1])
    assert e.value.__cause__ is None and e.value.__suppress_context__


def test_a_refused_op_leaves_no_node():
    with Graph("g", input_types=[f32(2), f32(3)]) as g:
        with pytest.raises(ValueError):
            ops.add(*g.inputs)
        assert g.body.nodes == []


def test_an_op_outside_a_graph_says_so():
    with Graph("g", input_types=[f32(2)]) as g:
        x = g.inputs[0].tensor
    with pytest.raises(LookupError, match=r"exp: no graph is being built here"):
        ops.exp(x)


def test_values_of_another_graph_are_refused():
    with Graph("first", input_types=[f32("n")]) as a:
        x = a.inputs[0].tensor
    with (
        Graph("second", input_types=[f32("n")]) as b,
        pytest.raises(ValueError, match="operand 0 belongs to graph 'first', not to 'second'"),
    ):
        x + b.inputs[0].tensor


def test_every_node_knows_its_line():
    with Graph("g", input_types=[f32(2)]) as g:
        g.inputs[0].tensor + 1
    location = g.body.nodes[-1].location
    assert location.file == __file__
    assert location.function == "test_every_node_knows_its_line"
    assert location.stack == ""


def test_source_tracebacks_keep_the_whole_stack():
    Graph.debug.source_tracebacks = True
    try:
        with Graph("g", input_types=[f32(2)]) as g:
            ops.exp(g.inputs[0])
    finally:
        Graph.debug.source_tracebacks = False
    assert "ops.exp(g.inputs[0])" in g.body.nodes[-1].location.stack
