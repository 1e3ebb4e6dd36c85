# SPDX-License-Identifier: Apache-2.0
"""Graphs: contexts, inputs, outputs, weights, subgraphs, modules, copies."""

import concurrent.futures
import threading

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Dim, Graph, Module, TensorType, Weight, ops, text

CPU = DeviceRef.CPU()


def f32(*dims):
    return TensorType(DType.float32, dims, CPU)


def test_an_input_type_must_be_a_type():
    with pytest.raises(TypeError, match="input type 1 of graph 'g' must be a TensorType"):
        Graph("g", input_types=[f32(2), (DType.float32, [2])])


def test_an_input_expression_needs_its_names_elsewhere():
    Graph("g", input_types=[f32("n"), f32(Dim("n") + 1)])
    with pytest.raises(ValueError, match=r"input 0 of graph 'g' has the dimension n \+ 1, but no"):
        Graph("g", input_types=[f32(Dim("n") + 1)])


def test_an_input_expression_is_checked_at_a_call():
    g = Graph("g", lambda x, y: y, [f32("n"), f32(Dim("n") + 1)])
    model = InferenceSession().load(g)
    assert model(np.zeros(3, np.float32), np.ones(4, np.float32))[0].shape == (4,)
    with pytest.raises(ValueError, match=r"input1 has shape \[5\].*n \+ 1 is 4 here"):
        model(np.zeros(3, np.float32), np.ones(5, np.float32))


def test_a_generator_of_input_types_is_read_once():
    assert len(Graph("g", input_types=(f32(n) for n in (1, 2))).inputs) == 2


def test_outputs_come_once():
    with Graph("g", input_types=[f32(2)]) as g:
        g.output(g.inputs[0])
        with pytest.raises(ValueError, match="output: graph 'g' has its outputs already"):
            g.output(g.inputs[0])


def test_output_types_need_outputs():
    with pytest.raises(TypeError, match="graph 'g' has no outputs yet"):
        Graph("g", input_types=[f32(2)]).output_types  # noqa: B018


def test_an_op_after_the_outputs_changes_nothing():
    with Graph("g", input_types=[f32(2)]) as g:
        g.output(g.inputs[0])
        ops.exp(g.inputs[0])
    assert g.output_types == [f32(2)]


def test_an_output_must_be_a_value_of_the_graph():
    with Graph("a", input_types=[f32(2)]) as a, Graph("b") as b:
        with pytest.raises(ValueError, match="output 0 does not belong to graph 'b'"):
            b.output(a.inputs[0])
        with pytest.raises(TypeError, match="output 1 of graph 'b': expected a tensor value"):
            b.output(Dim(3), "x")


def test_forward_must_not_return_a_dict():
    with pytest.raises(TypeError, match="got a dict"):
        Graph("g", lambda x: {"y": x}, [f32(2)])


def test_forward_returning_a_shape_is_one_output():
    g = Graph("g", lambda x: x.shape, [f32("n", 3)])
    out = InferenceSession().load(g)(np.zeros((5, 3), np.float32))
    assert [o.to_numpy().tolist() for o in out] == [[5, 3]]


def test_an_exception_leaves_no_graph_open():
    with pytest.raises(ZeroDivisionError), Graph("g", input_types=[f32(2)]):
        1 / 0  # noqa: B018
    with pytest.raises(LookupError):
        Graph.current  # noqa: B018
    with pytest.raises(RuntimeError, match="stop"), Graph("outer"):
        try:
            Graph("inner", lambda: 1 / 0)
        except ZeroDivisionError:
            assert Graph.current.name == "outer"
        raise RuntimeError("stop")
    g = Graph("next", lambda x: x + 1, [f32(2)])
    assert InferenceSession().load(g)(np.float32([1, 2]))[0].to_numpy().tolist() == [2, 3]


def test_weights_of_one_name_clash_but_one_weight_may_be_used_often():
    w, other = (Weight("w", DType.float32, [2], CPU) for _ in range(2))
    with Graph("g", input_types=[f32(2)]) as g:
        y = g.inputs[0].tensor + w + w
        with pytest.raises(ValueError, match="already has another weight called 'w'"):
            y + other
        g.output(y)
    model = InferenceSession().load(g, weights_registry={"w": np.float32([1, 10])})
    assert model(np.float32([0, 0]))[0].to_numpy().tolist() == [2, 20]


def test_a_weight_first_used_late_stands_at_the_head():
    with Graph("g", input_types=[f32(2)]) as g:
        x = ops.exp(g.inputs[0])
        x + Weight("w", DType.float32, [2], CPU)
    assert [n.op.mnemonic for n in g.body.nodes] == ["constant_external", "exp", "add"]


def test_top_level_names_are_unique_in_a_module():
    module = Module()
    Graph("same", module=module)
    with pytest.raises(ValueError, match="already has a graph called 'same'"):
        Graph("same", module=module)


def test_subgraphs_of_one_name_get_symbols_of_their_own():
    with Graph("main", input_types=[f32(2)]) as g:
        first = g.add_subgraph("body", lambda x: x + 1, [f32(2)])
        second = g.add_subgraph("body", lambda x: x * 3, [f32(2)])
        (x,) = ops.call(first, g.inputs[0])
        g.output(*ops.call(second, x))
    assert (first.symbol, second.symbol) == ("body", "body_1")
    assert InferenceSession().load(g)(np.float32([1, 2]))[0].to_numpy().tolist() == [6, 9]


def test_call_says_what_does_not_fit():
    with Graph("main", input_types=[f32("n")]) as g:
        s = g.add_subgraph("s", lambda x: x, [f32("m")])
        with pytest.raises(ValueError, match=r"input 0 of graph 's' is f32\[m\], got f32\[n\]"):
            ops.call(s, g.inputs[0])
        with pytest.raises(ValueError, match="graph 's' takes 1 inputs, got 0"):
            ops.call(s)


def test_a_prefix_names_the_placeholder_weights_of_a_call():
    w = TensorType(DType.float32, [2], CPU)

    def body(x):
        scale = ops.constant_external("scale", w, is_placeholder=True)
        return x * scale + ops.constant_external("shared", w)

    with Graph("main", input_types=[f32(2)]) as g:
        s = g.add_subgraph("layer", body, [f32(2)])
        (x,) = ops.call(s, g.inputs[0], prefix="layers.0.")
        g.output(*ops.call(s, x, prefix="layers.1."))
    weights = {
        "layers.0.scale": np.float32([2, 3]),
        "layers.1.scale": np.float32([10, 100]),
        "shared": np.float32([1, 1]),
    }
    model = InferenceSession().load(g, weights_registry=weights)
    assert model(np.float32([1, 1]))[0].to_numpy().tolist() == [31, 401]


def test_prefixes_of_nested_calls_add_up():
    w = TensorType(DType.float32, [1], CPU)
    with Graph("main", input_types=[f32(1)]) as g:
        inner = g.add_subgraph(
            "inner", lambda x: x * ops.constant_external("w", w, is_placeholder=True), [f32(1)]
        )
        outer = g.add_subgraph("outer", lambda x: ops.call(inner, x, prefix="in."), [f32(1)])
        g.output(*ops.call(outer, g.inputs[0], prefix="out."))
    model = InferenceSession().load(g, weights_registry={"out.in.w": np.float32([5])})
    assert model(np.float32([2]))[0].to_numpy().tolist() == [10]


def test_a_subgraph_changes_the_buffer_it_is_given():
    buffer = BufferType(DType.float32, [2], CPU)
    with Graph("main", input_types=[f32(2)]) as g:
        s = g.add_subgraph("bump", lambda b: b.__setitem__(..., b[...] + 1), [buffer])
        state = ops.buffer_create(buffer)
        ops.buffer_store(state, g.inputs[0])
        ops.call(s, state)
        ops.call(s, state)
        g.output(state[...])
    assert InferenceSession().load(g)(np.float32([1, 5]))[0].to_numpy().tolist() == [3, 7]


def test_a_copy_is_independent_and_computes_the_same():
    with Graph("main", input_types=[f32("n")]) as g:
        s = g.add_subgraph("double", lambda x: x * 2, [f32("n")])
        (y,) = ops.call(s, g.inputs[0])
        g.output(y + Weight("w", DType.float32, [1], CPU))
    before = text.dump(g)
    c = g.copy()
    assert text.dump(c) == before
    assert c.module is not g.module and c.module.subgraphs[0] is not s
    with g:
        ops.exp(g.inputs[0])
    assert text.dump(c) == before
    weights = {"w": np.float32([0.5])}
    for graph in (g, c):
        model = InferenceSession().load(graph, weights_registry=weights)
        assert model(np.float32([1, 2, 3]))[0].to_numpy().tolist() == [2.5, 4.5, 6.5]


def test_profile_scopes_nest_and_end():
    with Graph("g", input_types=[f32(2)]) as g:
        with g.profile_scope("layer"), g.profile_scope("attention"):
            x = ops.exp(g.inputs[0])
        with pytest.raises(KeyError), g.profile_scope("gone"):
            raise KeyError
        g.output(ops.log(x))
    assert [n.scope for n in g.body.nodes] == [("layer", "attention"), ()]


def test_a_tensor_value_has_no_truth():
    with (
        Graph("g", input_types=[f32(2)]) as g,
        pytest.raises(TypeError, match="no truth value"),
    ):
        bool(g.inputs[0] > 0)


def test_changing_a_shape_that_was_read_changes_no_value():
    with Graph("g", input_types=[f32(2, 3)]) as g:
        x = g.inputs[0].tensor
        x.shape.pop()
        y = x + 1
        y.shape[0] = Dim(9)
        assert x.shape == [2, 3] and y.shape == [2, 3]


def test_eight_threads_build_and_run_at_once():
    start = threading.Barrier(8)

    def work(i):
        start.wait()
        rows = []
        for k in range(3):
            w = Weight("w", DType.float32, [2], CPU)
            g = Graph(f"g{i}", lambda x, k=k, w=w: (x + i) * w - k, [f32("n", 2)])
            model = InferenceSession().load(g, weights_registry={"w": np.float32([1, 2])})
            rows.append(model(np.full((k + 1, 2), 1, np.float32))[0].to_numpy())
        return rows

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    for i, rows in enumerate(results):
        for k, row in enumerate(rows):
            np.testing.assert_array_equal(row, [[1 + i - k, 2 * (1 + i) - k]] * (k + 1))


def test_eight_threads_call_one_model():
    g = Graph("g", lambda x: ops.exp(x) * 2, [f32("n")])
    model = InferenceSession().load(g)
    start = threading.Barrier(8)

    def work(i):
        start.wait()
        return [model(np.full(n, i, np.float32))[0].to_numpy() for n in (1, 2, 3)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for i, rows in enumerate(pool.map(work, range(8))):
            for n, row in zip((1, 2, 3), rows, strict=True):
                np.testing.assert_allclose(row, np.full(n, 2 * np.exp(np.float32(i))), rtol=1e-6)
    assert len(model._programs.compiled) == 3
