# SPDX-License-Identifier: Apache-2.0
"""Graphs in parts, and as one program with bounds: structure, results, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import maxjax
from maxjax.dtype import DType
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, Weight, ops
from maxjax.lower import Manner, to_jax
from maxjax.lower.stages import bounded, new_sizes, stages

REF = DeviceRef.CPU()


def tensor(dtype, *dims):
    return TensorType(dtype, dims, REF)


def f32(*dims):
    return tensor(DType.float32, *dims)


def positive(x, name="k"):
    return ops.gather_nd(x, ops.nonzero(x > 0, name))


def graph(build, *types):
    return Graph("g", build, types)


def titles(found):
    return [[n.op.title for n in s.function.graph.body.nodes] for s in found.parts]


# ---------------------------------------------------------------- parts


def test_a_graph_without_new_sizes_has_no_parts():
    def build(x, y):
        return ops.nonzero(x, "n"), ops.nonzero(x, 4), y[(slice(1, None), "rest"),]

    assert stages(to_jax(graph(build, f32("n"), f32("m")))) is None
    assert new_sizes(graph(build, f32("n"), f32("m"))) == []


def test_sizes_that_are_ready_together_are_read_together():
    def build(x, y):
        a, b = positive(x, "a"), positive(y, "b")
        return positive(a, "c"), positive(b, "d"), ops.sum(a)

    found = stages(to_jax(graph(build, f32("n"), f32("m"))))
    assert [[m.names for m in s.made] for s in found.parts] == [
        [("a",), ("b",)],
        [("c",), ("d",)],
        [],
    ]
    assert found.names == {"a", "b", "c", "d"}


def test_nothing_is_computed_twice_and_constants_are_not_handed_over():
    w = Weight("w", DType.float32, [4, "n"], REF)

    def build(x):
        half = ops.constant(0.5, DType.float32, REF)
        turned = ops.transpose(w, 0, 1)  # used in the second part only, so it is computed there
        y = ops.tanh(x * half)
        return positive(x + half) * half, turned * ops.sum(positive(x)), y

    found = stages(to_jax(graph(build, f32("n"))))
    first, second = titles(found)
    assert [first.count(t) for t in ("tanh", "constant", "constant_external", "permute")] == [
        1, 3, 0, 0,
    ]  # fmt: skip
    assert [second.count(t) for t in ("constant", "constant_external", "permute")] == [1, 1, 1]
    both = first + second
    for title in ("tanh", "permute", "sum", "count(nonzero)", "nonzero"):
        assert both.count(title) == (1 if title in ("tanh", "permute", "sum") else 2)
    assert found.parts[1].function.signature.weights.keys() == {"w"}
    assert found.parts[0].function.signature.weights == {}


def test_boxes_are_chosen_once():
    def build(boxes, scores):
        limits = [ops.constant(n, DType.float32, REF) for n in (0.5, 0.0)]
        most = ops.constant(5, DType.int64, REF)
        return ops.non_maximum_suppression(boxes, scores, most, *limits, out_dim="left")

    found = stages(to_jax(graph(build, f32("n", "b", 4), f32("n", "c", "b"))))
    (take,) = found.parts[1].function.graph.body.nodes
    assert [v.type.shape for v in take.operands] == [["n * c * b", 3]] or len(take.operands) == 1
    assert not any("f32" in v.type.brief() for v in found.parts[1].takes)


def test_effects_stay_in_order():
    def build(b, x):
        ops.buffer_store(b, x)
        y = positive(b[...])
        ops.print(y, "between")
        ops.buffer_store(b, x * 2)  # only the print holds it back
        z = ops.exp(x)
        return y, b[...], z

    def unhindered(b, x):
        y = positive(b[...])
        ops.buffer_store(b, x * 2)
        return y, b[...]

    types = BufferType(DType.float32, ["n"], REF), f32("n")
    first, second = titles(stages(to_jax(graph(unhindered, *types))))
    assert [t for t in first if t.startswith("buffer")] == [
        "buffer_load",
        "buffer_store",
        "buffer_load",
    ]
    assert second == ["nonzero", "gather_nd"]
    found = stages(to_jax(graph(build, *types)))
    first, second = titles(found)
    assert [t for t in first if t.startswith("buffer")] == ["buffer_store", "buffer_load"]
    assert [t for t in second if t.startswith(("buffer", "print"))] == [
        "print",
        "buffer_store",
        "buffer_load",
    ]
    assert "exp" in first


def test_what_is_padded():
    """The one that is made, where nothing mixes along it; of several those that may be."""

    def build(x, y):
        return positive(x, "free") * 2, ops.sum(positive(y, "mixed"))

    found = stages(to_jax(graph(build, f32("n"), f32("n"))))
    assert found.parts[1].padding().dims == {"free": "free"}
    alone = stages(to_jax(graph(lambda x: ops.sum(positive(x)), f32("n"))))
    assert alone.parts[1].padding() is None


def test_which_ops_make_sizes():
    @maxjax.kernel("stages.rows", shape=lambda x: (jnp.argmax(x),))
    def rows(x, results):
        return jnp.zeros(results[0].shape, results[0].dtype)

    @maxjax.kernel("stages.half", shape=lambda x: (x.shape[0] // 2,))
    def half(x, results):
        return jnp.zeros(results[0].shape, results[0].dtype)

    def build(x, c, p):
        ops.nonzero(x, "a")
        ops.repeat_interleave(x, c, 0, "b")
        ops.range(0, c[0], 1, "c", dtype=DType.int64, device=REF)
        x[(slice(c[0], None), "d"),]
        ops.broadcast_to(x[0], c[:2], ["e", "f"])
        ops.custom("stages.rows", REF, [x], [f32("g")])
        ops.custom("stages.half", REF, [x], [f32("h")])
        ops.masked_scatter(x, x > 0, x, "i")
        return ops.cond(p, [f32(1)], lambda: ops.sum(positive(x, "j")), lambda: ops.sum(x))

    found = new_sizes(graph(build, f32("n"), tensor(DType.int64, "n"), tensor(DType.bool)))
    assert [(s.node.op.mnemonic, *s.names) for s in found] == [
        ("nonzero", "a"),
        ("repeat_interleave", "b"),
        ("range", "c"),
        ("slice_tensor", "d"),
        ("broadcast_to", "e", "f"),
        ("custom", "g"),
        ("nonzero", "j"),
    ]
    assert [s.inside.op.mnemonic for s in found if s.inside] == ["cond"]
    assert str(found[0]).startswith("nonzero makes the size 'a' (given f32[n])\n  at ")
    assert "test_stages.py" in found[0].location


def test_weights_that_a_loop_stacks_are_still_found_alone():
    """A weight that one part uses in a loop and another part by itself."""
    with Graph("main", input_types=[f32("n", 2)]) as g:
        layer = g.add_subgraph(
            "layer",
            lambda x: x @ Weight("w", DType.float32, [2, 2], REF, _placeholder=True),
            [f32("n", 2)],
        )
        x = g.inputs[0]
        for i in range(5):
            (x,) = ops.call(layer, x, prefix=f"{i}.")
        first = Weight("0.w", DType.float32, [2, 2], REF)
        rows = ops.squeeze(ops.nonzero(x[:, 0] > 0, "k"), 1)
        g.output(ops.gather(x, rows, axis=0) @ first)
    whole = to_jax(g, Manner(loop=2))
    found = stages(whole)
    keys = set(found.function.weight_keys)
    assert all(k in keys for s in found.parts for k in s.function.weight_keys)


# ---------------------------------------------------------------- bounds


def call(function, *arrays, buffers=()):
    with jax.enable_x64(True):
        outputs, finals = jax.jit(lambda a, b: function({}, a, b))(list(arrays), list(buffers))
    return [np.asarray(o) for o in outputs] + [np.asarray(f) for f in finals]


def one_op(op):
    """A graph of one op that makes the size k, its arguments, and its real results."""
    x, c = np.float32([3, 0, 4, 0, 5]), np.int64([1, 0, 2, 0, 0])
    if op == "nonzero":
        return lambda x, c: ops.nonzero(x, "k"), x, c, np.argwhere(x)
    if op == "repeat_interleave":
        return lambda x, c: ops.repeat_interleave(x, c, 0, "k"), x, c, np.repeat(x, c)
    if op == "range":
        return (
            lambda x, c: ops.range(0, c[2] + 1, 1, "k", dtype=DType.int64, device=REF),
            x, c, np.arange(3),
        )  # fmt: skip
    if op == "slice":
        return lambda x, c: x[(slice(c[2], None), "k"),], x, c, x[2:]
    if op == "slice back":
        return lambda x, c: x[(slice(c[2], None, -1), "k"),], x, c, x[2::-1]
    return lambda x, c: ops.broadcast_to(x[0], c[2:3] + 1, ["k"]), x, c, np.float32([3, 3, 3])


OPS = ["nonzero", "repeat_interleave", "range", "slice", "slice back", "broadcast_to"]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("bound", [1, 2, 3, 4, 5])
def test_results_are_right_up_to_the_count(op, bound):
    build, x, c, want = one_op(op)
    function = bounded(graph(build, f32("n"), tensor(DType.int64, "n")), {"k": bound})
    got, count = call(function, x, c)
    assert count == 3
    assert count.dtype == np.int64
    assert got.shape == (bound, *want.shape[1:])
    assert function.signature.outputs[0].shape == [bound, *want.shape[1:]]
    np.testing.assert_array_equal(got[:3], want[:bound])


def test_what_is_behind_the_count():
    def behind(op):
        build, x, c, _ = one_op(op)
        got, count = call(bounded(graph(build, f32(5), tensor(DType.int64, 5)), {"k": 5}), x, c)
        return got[int(count) :].tolist()

    assert behind("nonzero") == [[5], [5]]
    assert behind("repeat_interleave") == [5, 5]  # the last element, though it is repeated 0 times
    assert behind("range") == [3, 4]
    assert behind("slice") == [5, 5]


def test_boxes_with_a_bound():
    def build(boxes, scores):
        limits = [ops.constant(n, DType.float32, REF) for n in (0.5, 0.0)]
        most = ops.constant(5, DType.int64, REF)
        return ops.non_maximum_suppression(boxes, scores, most, *limits, out_dim="left")

    boxes = np.float32([[[0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 6, 6]]])
    scores = np.float32([[[0.5, 0.9, 0.4]]])
    g = graph(build, f32("n", "b", 4), f32("n", "c", "b"))
    for bound in (1, 2, 7):
        got, count = call(bounded(g, {"left": bound}), boxes, scores)
        want = np.zeros((bound, 3), np.int64)
        want[:2] = [[0, 0, 1], [0, 0, 2]][:bound]
        np.testing.assert_array_equal(got, want)
        assert count == 2


@pytest.mark.parametrize("bound", [2, 16])
def test_what_follows_may_be_elementwise(bound):
    def build(x):
        y = ops.exp(positive(x)) + 1
        rows = ops.broadcast_to(ops.unsqueeze(y, 1), ["k", 3])
        return y, rows[:, 0], ops.sum(x)

    function = bounded(graph(build, f32("n")), {"k": bound})
    scope = export.SymbolicScope()
    (n,) = export.symbolic_shape("n", scope=scope)
    with jax.enable_x64(True):
        exported = export.export(jax.jit(lambda x: function({}, [x])[0]))(
            jax.ShapeDtypeStruct((n,), np.float32)
        )
        for x in ([1, -1, 2], [3, 2, 1, -1, 5], [-1]):
            x = np.float32(x)
            y, rows, total, count = [np.asarray(o) for o in exported.call(x)]
            want = np.exp(x[x > 0]) + 1
            assert count == len(want)
            np.testing.assert_allclose(y[: len(want)], want[:bound], rtol=1e-6)
            np.testing.assert_allclose(rows[: len(want)], want[:bound], rtol=1e-6)
            np.testing.assert_allclose(total, [x.sum()], rtol=1e-6)


def test_several_bounds_counts_in_their_order():
    def build(x, y):
        return positive(x, "a"), positive(y, "b"), x

    function = bounded(graph(build, f32("n"), f32("m")), {"b": 4, "a": 2})
    a, b, x, nb, na = call(function, np.float32([1, -1]), np.float32([4, 5, 6]))
    assert (a.shape, b.shape, x.shape, int(na), int(nb)) == ((2,), (4,), (2,), 1, 3)
    assert function.signature.outputs[0].shape == [2]


def test_what_is_lowered_again_is_the_same_program():
    """As when it is written to a file: from the graph of the function."""
    function = bounded(to_jax(graph(positive, f32("n"))), {"k": 4})
    again = to_jax(function.graph, Manner(prints=False, locations=True))
    assert again.signature == function.signature
    x = np.float32([1, -1, 2])
    for a, b in zip(call(function, x), call(again, x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bounds_in_a_graph_that_is_called():
    with Graph("main", input_types=[f32("n")]) as g:
        sub = g.add_subgraph("sub", lambda x: positive(x), [f32("n")])
        g.output(*ops.call(sub, g.inputs[0]))
    y, count = call(bounded(g, {"k": 3}), np.float32([-1, 4]))
    assert (y[0], y.shape, int(count)) == (4, (3,), 1)


def test_buffers_beside_a_bound():
    def build(b, x):
        ops.buffer_store(b, b[...] + 1)
        y = ops.gather_nd(b[...], ops.nonzero(x > 0, "k"))
        ops.buffer_store(b, b[...] * 2)
        return y

    g = graph(build, BufferType(DType.float32, [3], REF), f32(3))
    y, count, b = call(
        bounded(g, {"k": 3}), np.float32([1, -1, 1]), buffers=[np.float32([0, 1, 2])]
    )
    assert (y[:2].tolist(), int(count), b.tolist()) == ([1, 3], 2, [2, 4, 6])


def sums(x):
    return ops.sum(positive(x))


def again(x):
    y = positive(x)
    return ops.nonzero(y, "j")


def by_a_sum(x):
    y = positive(x)
    return ops.repeat_interleave(x, ops.cast(ops.sum(y), DType.int64), 0, "j")


def stored(x):
    b = ops.buffer_create(BufferType(DType.float32, [4], REF))
    b[0] = ops.sum(positive(x))[0]
    return b


@pytest.mark.parametrize(
    ("build", "op", "bounds"),
    [
        (sums, "sum", {"k": 4}),
        (lambda x: ops.softmax(positive(x)), "softmax", {"k": 4}),
        (lambda x: ops.concat([positive(x), x]), "concat", {"k": 4}),
        (lambda x: ops.argsort(positive(x)), "argsort", {"k": 4}),
        (lambda x: positive(x)[(slice(None, None, -1), "k"),], "slice_tensor", {"k": 4}),
        (lambda x: positive(x).rebind(["n"]), "nonzero", {"k": 4}),
        (again, "nonzero", {"k": 4, "j": 4}),
        (by_a_sum, "sum", {"k": 4, "j": 4}),
        (stored, "sum", {"k": 4}),
        (lambda x: ops.shape_to_tensor(positive(x).shape), "shape_to_tensor", {"k": 4}),
    ],
)
def test_what_would_use_what_is_behind_is_refused(build, op, bounds):
    with pytest.raises(ValueError, match=rf"(?s)^{op}: .*test_stages.py.*padded to a bound"):
        bounded(graph(build, f32("n")), bounds)


@pytest.mark.parametrize(
    ("build", "needs"),
    [
        (lambda x: positive(x)[2], "k >= 3"),
        (lambda x: positive(x)[:2], "k >= 2"),
        (lambda x: positive(x)[1:-1], "k >= 2"),
    ],
)
def test_what_a_graph_needs_of_a_size_is_not_left_unchecked(build, needs):
    with pytest.raises(ValueError, match=rf"(?s)^nonzero: the graph needs {needs} of the size 'k'"):
        bounded(graph(build, f32("n")), {"k": 4})


def test_a_size_that_must_be_another_is_refused():
    g = graph(lambda x: positive(x).rebind([4]), f32("n"))
    with pytest.raises(ValueError, match="'k' is always 4 in this graph\nin one program"):
        bounded(g, {"k": 4})


def test_an_op_that_makes_a_size_may_take_what_is_padded_along_another():
    def along(axis):
        def build(x, c):
            y = ops.gather(x, ops.squeeze(ops.nonzero(x[:, 0] > 0, "k"), 1), axis=0)
            index = [(slice(0, c), "j")]
            return y[index] if axis == 0 else y[:, index[0]]

        return graph(build, f32("n", 4), tensor(DType.int64))

    x = np.float32([[1, 2, 3, 4], [-1, 0, 0, 0], [5, 6, 7, 8]])
    got, k, j = call(bounded(along(1), {"k": 3, "j": 4}), x, np.int64(2))
    assert (got[:2, :2].tolist(), int(k), int(j)) == ([[1, 2], [5, 6]], 2, 2)
    with pytest.raises(ValueError, match="slice_tensor: "):
        bounded(along(0), {"k": 3, "j": 4})


def test_bounds_that_are_none():
    g = graph(lambda x: [positive(x, "a"), positive(x, "b")], f32("n"))
    message = (
        r"nonzero: the size 'b' of its result depends on values, and one program has fixed sizes: "
        r"give bounds=\{'b': N\}, .* \(given bool\[n\]\)\n  at .*test_stages.py:\d+ in positive"
    )
    with pytest.raises(ValueError, match=message):
        bounded(g, {"a": 4})
    with pytest.raises(
        ValueError, match="makes no size 'c' from values; those it makes are 'a', 'b'"
    ):
        bounded(g, {"a": 4, "b": 4, "c": 1})
    with pytest.raises(ValueError, match="makes no size 'c' from values; those it makes are none"):
        bounded(graph(lambda x: x, f32("n")), {"c": 1})
    with pytest.raises(TypeError, match=r"the bound of 'a' is an int, not 1\.5"):
        bounded(g, {"a": 1.5})
    with pytest.raises(ValueError, match="the bound of 'a' is a number from 1 up, not 0"):
        bounded(g, {"a": 0})
    with pytest.raises(TypeError, match=r'bounds are a mapping such as \{"found": 128\}, not 4'):
        bounded(g, 4)
    twice = graph(lambda x: [positive(x, "a"), positive(x, "a")], f32("n"))
    with pytest.raises(ValueError, match="nonzero: the size 'a' is made twice"):
        bounded(twice, {"a": 4})
    assert bounded(graph(lambda x: x, f32("n")), {}).signature.outputs == (f32("n"),)
