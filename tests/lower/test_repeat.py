# SPDX-License-Identifier: Apache-2.0
"""Calls of one body in a row as a loop over stacked weights."""

import jax
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.engine import InferenceSession, session
from maxjax.graph import DeviceRef, Graph, TensorType, ops
from maxjax.lower import Manner, to_jax

CPU = DeviceRef.CPU()
WIDTH = 8


def layer(x, scale):
    """A body with a weight of its own for each call, one for all, and two results."""
    own = ops.constant_external(
        "w", TensorType(DType.float32, [WIDTH, WIDTH], CPU), is_placeholder=True
    )
    shared = ops.constant_external("shared", TensorType(DType.float32, [WIDTH], CPU))
    y = ops.tanh(x @ own + shared) * scale
    return y, ops.sum(y)


def stack(layers, after=lambda x, sums: [x, sums]):
    types = [TensorType(DType.float32, ["n", WIDTH], CPU), TensorType(DType.float32, [], CPU)]
    with Graph("stack", input_types=types) as g:
        x, scale = [v.tensor for v in g.inputs]
        body = g.add_subgraph("layer", layer, types)
        sums = None
        for i in range(layers):
            x, sums = ops.call(body, x, scale, prefix=f"layers.{i}.")
        g.output(*after(x, sums))
    return g


def weights_for(layers):
    rng = np.random.default_rng(0)
    made = {
        f"layers.{i}.w": rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) for i in range(layers)
    }
    return {**made, "shared": rng.normal(size=WIDTH).astype(np.float32)}


def reference(x, scale, weights, layers):
    for i in range(layers):
        x = np.tanh(x @ weights[f"layers.{i}.w"] + weights["shared"]) * np.float32(scale)
    return x, x.sum(-1, keepdims=True)


def lowered_text(graph, weights, loop):
    fn = to_jax(graph, Manner(loop=loop))
    x, scale = np.ones((3, WIDTH), np.float32), np.float32(1)
    with jax.enable_x64(True):
        return jax.jit(fn.__call__).lower(weights, [x, scale]).as_text()


@pytest.fixture(autouse=True)
def short_loops(monkeypatch):
    monkeypatch.setattr(session, "LOOP", 8)


@pytest.mark.parametrize("layers", [7, 8, 9, 20])
def test_a_stack_of_layers_computes_what_numpy_does(layers):
    weights = weights_for(layers)
    model = InferenceSession().load(stack(layers), weights_registry=weights)
    assert bool(model.function.repeats) == (layers > 8)
    x = np.random.default_rng(1).normal(size=(3, WIDTH)).astype(np.float32)
    for made, expected in zip(
        model(x, np.float32(0.7)), reference(x, 0.7, weights, layers), strict=True
    ):
        np.testing.assert_allclose(made.to_numpy(), expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("makes_sizes", [False, True])
def test_a_weight_of_a_loop_is_there_by_itself_too(makes_sizes):
    def after(x, sums):
        first = ops.constant_external(
            "layers.0.w", TensorType(DType.float32, [WIDTH, WIDTH], CPU), is_placeholder=True
        )
        if makes_sizes:
            x = ops.gather(x, ops.squeeze(ops.nonzero(x[:, 0] > 0, "k"), 1), axis=0)
        return [x @ first]

    weights = weights_for(12)
    model = InferenceSession().load(stack(12, after), weights_registry=weights)
    assert model.function.repeats
    x = np.random.default_rng(1).normal(size=(6, WIDTH)).astype(np.float32)
    (made,) = model(x, np.float32(0.7))
    expected, _ = reference(x, 0.7, weights, 12)
    expected = expected[expected[:, 0] > 0] if makes_sizes else expected
    np.testing.assert_allclose(
        made.to_numpy(), expected @ weights["layers.0.w"], rtol=2e-5, atol=1e-5
    )


def test_weights_come_back_by_name_and_can_be_changed():
    weights = weights_for(12)
    model = InferenceSession().load(stack(12), weights_registry=weights)
    assert list(model.weights) == list(model.function.signature.weights)
    for name, array in model.weights.items():
        np.testing.assert_array_equal(array, weights[name])
    other = {name: w * 0.5 for name, w in weights.items()}
    model.reload(other)
    x = np.ones((2, WIDTH), np.float32)
    np.testing.assert_allclose(
        model(x, np.float32(1))[0].to_numpy(), reference(x, 1, other, 12)[0], rtol=2e-5, atol=1e-5
    )


def test_the_program_does_not_grow_with_the_layers():
    short, long = (lowered_text(stack(n), weights_for(n), loop=4) for n in (8, 64))
    assert "stablehlo.while" in long and long.count("func.func") == short.count("func.func")
    # The body of the loop, and the last call; what still grows is the list of weights.
    assert long.count("stablehlo.tanh") == short.count("stablehlo.tanh") == 2


def test_weights_given_one_by_one_are_stacked_in_the_program():
    weights = weights_for(10)
    fn = to_jax(stack(10), Manner(loop=4))
    x = np.ones((2, WIDTH), np.float32)
    with jax.enable_x64(True):
        (y, _), _ = jax.jit(fn.__call__)(weights, [x, np.float32(1)])
    np.testing.assert_allclose(y, reference(x, 1, weights, 10)[0], rtol=2e-5, atol=1e-5)


# ---------------------------------------------------------------- what is no loop


def chain(step, layers=12):
    t = TensorType(DType.float32, ["n", WIDTH], CPU)
    with Graph("g", input_types=[t]) as g:
        x = g.inputs[0].tensor
        body = g.add_subgraph("body", lambda v: v * 2, [t])
        g.output(step(g, body, x, layers))
    return to_jax(g, Manner(loop=4))


def test_results_that_are_used_elsewhere_are_kept():
    def step(g, body, x, layers):
        seen = []
        for _ in range(layers):
            (x,) = ops.call(body, x)
            seen.append(x)
        return ops.concat(seen)

    fn = chain(step)
    assert not fn.repeats
    with jax.enable_x64(True):
        out = fn({}, [np.ones((1, WIDTH), np.float32)])[0][0]
    np.testing.assert_array_equal(out[:, 0], 2.0 ** np.arange(1, 13))


def test_an_op_between_two_calls_ends_a_run():
    def step(g, body, x, layers):
        for i in range(layers):
            (x,) = ops.call(body, x)
            if i == 5:
                x = x + 1
        return x

    fn = chain(step)
    assert [len(r.nodes) for r in fn.repeats.values()] == [5, 5]
    with jax.enable_x64(True):
        out = fn({}, [np.ones((1, WIDTH), np.float32)])[0][0]
    np.testing.assert_array_equal(out, np.full((1, WIDTH), (2.0**6 + 1) * 2**6))


def test_two_bodies_in_turn_are_two_calls_each():
    def step(g, body, x, layers):
        other = g.add_subgraph("other", lambda v: v + 1, [x.type])
        for i in range(layers):
            (x,) = ops.call(body if i % 2 else other, x)
        return x

    assert not chain(step).repeats


def test_buffers_are_written_call_by_call():
    from maxjax.graph import BufferType

    t, state = TensorType(DType.float32, [2], CPU), BufferType(DType.float32, [2], CPU)
    with Graph("g", input_types=[t, state]) as g:
        x, b = g.inputs[0].tensor, g.inputs[1].buffer

        def body(v, s):
            s[...] = s[...] + v.tensor if hasattr(v, "tensor") else s[...] + v
            return v * 2

        sub = g.add_subgraph("body", body, [t, state])
        for _ in range(12):
            (x,) = ops.call(sub, x, b)
        g.output(x)
    assert not to_jax(g, Manner(loop=4)).repeats
