# SPDX-License-Identifier: Apache-2.0
"""Graphs as text: what is written, that it reads back, and what is said when it does not."""

import numpy as np
import pytest

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Graph, Module, TensorType, Weight, ops, text

CPU = DeviceRef.CPU()


def f32(*dims):
    return TensorType(DType.float32, dims, CPU)


def linear():
    w = Weight("W", DType.float32, [3, 2], CPU)
    return Graph("linear", lambda x: x @ w + 1, [f32("batch", 3)])


# ruff: noqa: E501 - the text is as wide as it is
LINEAR = """\
mo.graph @linear<batch>(%arg0: !mo.tensor<[batch, 3], f32>) -> !mo.tensor<[batch, 2], f32> {
  %0 = mo.constant_external() {name = "W", type = !mo.tensor<[3, 2], f32>} : () -> !mo.tensor<[3, 2], f32>
  %1 = mo.matmul(%arg0, %0) : (!mo.tensor<[batch, 3], f32>, !mo.tensor<[3, 2], f32>) -> !mo.tensor<[batch, 2], f32>
  %2 = mo.constant() {value = dense<[], f32, [1.0]>} : () -> !mo.tensor<[], f32>
  %3 = mo.add(%1, %2) : (!mo.tensor<[batch, 2], f32>, !mo.tensor<[], f32>) -> !mo.tensor<[batch, 2], f32>
  mo.output %3 : !mo.tensor<[batch, 2], f32>
}"""


def test_a_graph_prints_as_mlir_like_text():
    assert str(linear()) == LINEAR


def test_a_graph_without_outputs_prints():
    with Graph("g", input_types=[f32(2)]) as g:
        ops.exp(g.inputs[0])
    assert "-> (...) {" in str(g) and "mo.exp" in str(g)


def test_text_reads_back():
    module = text.parse(LINEAR)
    assert text.dump(module) == LINEAR
    (graph,) = module.graphs
    model = InferenceSession().load(graph, weights_registry={"W": np.ones((3, 2), np.float32)})
    assert model(np.ones((1, 3), np.float32))[0].to_numpy().tolist() == [[4, 4]]


def everything():
    """A graph with subgraphs, buffers, scopes, odd names, and constants of every kind."""
    module = Module()
    buffer = BufferType(DType.float32, [2], CPU)
    types = [f32("n", 2), buffer]
    with Graph('odd "name"/with dots.', input_types=types, module=module) as g:
        x, state = g.inputs[0].tensor, g.inputs[1].buffer
        s = g.add_subgraph("body", lambda v: (v + 1, v.shape), [f32("n", 2)])
        y, shape = ops.call(s, x, prefix="layers.0.")
        with g.profile_scope("outer"), g.profile_scope('in"ner'):
            y = y.tensor * state[...]
        state[...] = state[...] + 1
        y = y[1:]
        big = ops.constant(np.arange(1000, dtype=np.float64).reshape(10, 100))
        mid = ops.constant(np.arange(40, dtype=np.int16).reshape(20, 2))
        odd = ops.constant(np.array([np.inf, -np.inf, np.nan, -0.0, 1e-45, 0.1], np.float32))
        bf = ops.constant([[1.5, -2.0]], DType.bfloat16, CPU)
        flags = ops.constant(np.array([True, False]))
        g.output(y, shape, big, mid, odd, bf.cast(DType.float32), flags, state)
    return g


def test_every_kind_of_attribute_reads_back():
    g = everything()
    written = text.dump(g)
    module = text.parse(written)
    assert text.dump(module) == written
    assert "{-#" in written
    inputs = np.float32([[1, 2], [3, 4]]), np.float32([10, 100])
    results = []
    for graph in (g, module.graphs[0]):
        state = Buffer.from_numpy(inputs[1].copy())
        out = InferenceSession().load(graph)(inputs[0], state)
        results.append([np.array(o.to_numpy()) for o in out])
    for a, b in zip(*results, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert results[0][-1].tolist() == [11, 101]


def test_nan_payloads_survive():
    array = np.array([0x7FC00001, 0xFFC00002], np.uint32).view(np.float32)
    with Graph("g") as g:
        g.output(ops.constant(array))
    module = text.parse(text.dump(g))
    assert module.graphs[0].body.nodes[0].op.value.tobytes() == array.tobytes()


def test_locations_are_written_when_asked_for():
    g = linear()
    written = text.dump(g, locations=True)
    assert f'loc("{__file__}":' in written
    assert text.dump(text.parse(written), locations=True) == written
    assert "loc(" not in text.dump(g)


def test_save_and_path(tmp_path):
    path = tmp_path / "g.mo"
    text.save(everything(), path)
    g = Graph("renamed", path=path)
    assert g.name == "renamed" and [s.name for s in g.module.subgraphs] == ["body"]
    assert [p.name for p in tmp_path.iterdir()] == ["g.mo"]
    with Graph("main", input_types=[f32("batch", 3)]) as main:
        text.save(linear(), path)
        sub = main.add_subgraph("linear", path=path)
        main.output(*ops.call(sub, main.inputs[0]))
    assert main.module.top_level_graph_names() == ["main"]
    model = InferenceSession().load(main, weights_registry={"W": np.ones((3, 2), np.float32)})
    assert model(np.ones((1, 3), np.float32))[0].to_numpy().tolist() == [[4, 4]]


def test_a_file_without_a_graph_is_refused(tmp_path):
    path = tmp_path / "g.mo"
    path.write_text("// nothing\n")
    with pytest.raises(ValueError, match=r"g\.mo: line 2, column 1: expected a graph"):
        Graph("g", path=path)


# What is wrong: (what to replace in LINEAR, by what, the message)
WRONG = {
    "not a graph": ("mo.graph", "mo.grph", "line 1, column 1: expected 'mo.graph', found 'mo.grph"),
    "unknown op": ("mo.add", "mo.plus", r"line 5, column 8: there is no op mo\.plus"),
    "undefined value": ("%0) :", "%9) :", "line 3, column 25: %9 is not defined before this"),
    "defined twice": ("%3 =", "%1 =", "line 5, column 8: %1 is defined twice"),
    "wrong operand type": (
        "(%1, %2) : (!mo.tensor<[batch, 2], f32>",
        "(%1, %2) : (!mo.tensor<[batch, 3], f32>",
        r"line 5, column 8: the operands of mo\.add are not of these types",
    ),
    "wrong result type": (
        "-> !mo.tensor<[], f32>",
        "-> !mo.tensor<[1], f32>",
        r"line 4, column 8: the results of mo\.constant are !mo\.tensor<\[\], f32>",
    ),
    "type rule refuses": (
        "(%arg0, %0) : (!mo.tensor<[batch, 3], f32>, !mo.tensor<[3, 2], f32>)",
        "(%0, %0) : (!mo.tensor<[3, 2], f32>, !mo.tensor<[3, 2], f32>)",
        r"line 3, column 8: matmul: inner dimensions differ, 2 against 3",
    ),
    "bad dtype": ("[], f32, [1.0]", "[], f31, [1.0]", "line 4, column .*f31"),
    "bad shape": ("dense<[], f32", "dense<[2], f32", "line 4.*1 elements do not fill the shape"),
    "unknown attribute": (
        "{name =",
        "{nome =",
        "line 2.*constant_external has no attribute 'nome'",
    ),
    "bad string": ('"W"', '"\\W"', "line 2, column .*malformed string"),
    "bad type": ("[3, 2], f32>}", "[3, 2] f32>}", "line 2, column .*!mo.tensor"),
    "output type": ("mo.output %3", "mo.output %2", "line 6.*the values are not of these types"),
    "cut off": (
        "  mo.output %3 : !mo.tensor<[batch, 2], f32>\n}",
        "",
        "line 6, column 1: expected",
    ),
    "two of one name": ("\n}", "\n}\n" + LINEAR, "graph @linear is defined twice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_text_that_does_not_parse_says_where(case):
    old, new, message = WRONG[case]
    assert LINEAR.count(old) >= 1
    with pytest.raises(ValueError, match=message):
        text.parse(LINEAR.replace(old, new, 1))


def test_a_call_needs_a_graph_above_it():
    with Graph("main", input_types=[f32(2)]) as g:
        s = g.add_subgraph("s", lambda x: x, [f32(2)])
        g.output(*ops.call(s, g.inputs[0]))
    with pytest.raises(ValueError, match="line 2, column 15: graph @s is not defined before"):
        text.parse(str(g))
