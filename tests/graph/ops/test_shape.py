# SPDX-License-Identifier: Apache-2.0
"""Reshaping, axes and broadcasting, against NumPy."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops

SIZES = [0, 1, 3]


def values(*shape):
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


@pytest.fixture
def g():
    cpu = DeviceRef.CPU()
    shapes = [["b", "s", 8], [4, 6], [], ["n"], ["b", 1, 1], [0, 5]]
    types = [TensorType(DType.float32, shape, cpu) for shape in shapes]
    with Graph("g", input_types=types) as graph:
        x, m, scalar, n, one, empty = (v.tensor for v in graph.inputs)
        graph.x, graph.m, graph.scalar, graph.n, graph.one, graph.empty = (
            x,
            m,
            scalar,
            n,
            one,
            empty,
        )
        yield graph


# ---------------------------------------------------------------- reshape


@pytest.mark.parametrize("b", SIZES)
@pytest.mark.parametrize("s", [1, 2])
def test_reshape_against_numpy(run, b, s):
    x = values(b, s, 8)
    merged, divided, swapped, inferred = run(
        lambda x: [
            ops.reshape(x, [Dim("b") * Dim("s"), 8]),
            ops.reshape(x, ["b", "s", 2, 4]),
            ops.reshape(x, ["s", 4, "b", 2]),
            ops.reshape(x, ["s", -1]),
        ],
        x,
        dims=[["b", "s", 8]],
    )
    np.testing.assert_array_equal(merged, x.reshape(b * s, 8))
    np.testing.assert_array_equal(divided, x.reshape(b, s, 2, 4))
    np.testing.assert_array_equal(swapped, x.reshape(s, 4, b, 2))
    np.testing.assert_array_equal(inferred, x.reshape(s, b * 8))


def test_reshape_traced_with_symbolic_dims(run_symbolic):
    x = values(2, 3, 8)
    flat, back = run_symbolic(
        lambda x: [x.reshape([-1]), x.reshape([-1, 8]).reshape(["s", "b", 2, -1])],
        x,
        dims=[["b", "s", 8]],
    )
    np.testing.assert_array_equal(flat, x.ravel())
    np.testing.assert_array_equal(back, x.reshape(3, 2, 2, 4))


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.bool_, np.float64])
def test_reshape_keeps_the_dtype(run, dtype):
    x = np.ones((2, 3), dtype)
    (out,) = run(lambda x: ops.reshape(x, [6]), x)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, x.ravel())


def test_reshape_of_scalars_and_nothing(run, g):
    one, none = run(lambda x, e: [x.reshape([1, 1]), e.reshape([3, 0])], values(), values(0, 5))
    assert one.shape == (1, 1)
    assert none.shape == (3, 0)
    assert ops.reshape(g.empty, [5, -1]).shape == [5, 0]


def test_reshape_infers_what_divides_exactly(g):
    d = Dim("b") * Dim("s")
    assert ops.reshape(g.x, [-1, 4]).shape == [d * 2, 4]
    assert ops.reshape(g.x, ["b", -1, 2]).shape == ["b", Dim("s") * 4, 2]
    assert ops.reshape(g.m, (-1, 24)).shape == [1, 24]
    grown = ops.concat([g.n, g.n, ops.reshape(g.scalar, [1])])
    assert ops.reshape(grown, [-1, Dim("n") * 2 + 1]).shape == [1, Dim("n") * 2 + 1]


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ([-1, 16], "b \\* s \\* 8 elements do not divide by 16"),
        (["b", 8], "cannot reshape to \\[b, 8\\]: it has b \\* 8 elements, not b \\* s \\* 8"),
        (["b", "s", -1, -1], "only one dimension can be -1"),
        ([0, -1], "-1 stands for no particular size beside a dimension of 0"),
        ([-2, "b", "s"], "has the negative size -2"),
        (["b", "t", 8], "if they are always equal, say so with x.rebind"),
        ([2**40, 2**40], "beyond the int64 range"),
    ],
)
def test_reshape_refuses_what_is_not_provably_equal(g, shape, why):
    with pytest.raises(ValueError, match=f"^reshape: .*{why}.*given f32\\[b, s, 8\\]"):
        ops.reshape(g.x, shape)


def test_reshape_refuses_static_counts_without_a_hint(g):
    with pytest.raises(ValueError, match="it has 25 elements, not 24 \\(given") as e:
        g.m.reshape([5, 5])
    assert "rebind" not in str(e.value)
    assert "test_shape.py" in str(e.value)


def test_reshape_refuses_what_is_no_shape_or_tensor(g):
    with pytest.raises(TypeError, match="reshape: a shape is made from dims"):
        ops.reshape(g.m, 24)
    with pytest.raises(TypeError, match="reshape: expected a tensor value, got float"):
        ops.reshape(1.0, [1])


dims = st.sampled_from(
    [Dim(0), Dim(1), Dim(2), Dim(6), Dim("a"), Dim("b"), Dim("a") * 2, Dim("a") + 1, Dim("b") // 2]
)


def typed(*shapes):
    """A graph with an input per shape, and one that gives the names in them."""
    shapes = (*shapes, ["a", "b"])
    return Graph("g", input_types=[TensorType(DType.int8, s, DeviceRef.CPU()) for s in shapes])


@given(st.lists(dims, max_size=4), st.lists(dims, max_size=3), st.booleans())
def test_an_accepted_reshape_is_right_at_every_size(old, new, infer):
    with typed(old) as graph:
        try:
            shape = ops.reshape(graph.inputs[0].tensor, [*new, -1] if infer else new).shape
        except ValueError:
            return
    for a in range(4):
        for b in range(4):
            sizes = {"a": a, "b": b}
            before = math.prod(d.evaluate(sizes) for d in old)
            after = math.prod(d.evaluate(sizes) for d in shape)
            assert before == after


@given(st.permutations([Dim("a"), Dim("b"), Dim(4), Dim("a") + 1]), st.integers(0, 4))
def test_any_order_and_grouping_is_accepted(order, cut):
    old = [Dim("a"), Dim("b"), Dim(4), Dim("a") + 1]
    grouped = math.prod(order[:cut], start=Dim(1))
    with typed(old) as graph:
        x = graph.inputs[0].tensor
        assert ops.reshape(x, [grouped, *order[cut:]]).shape == [grouped, *order[cut:]]
        assert ops.reshape(x, [-1, *order[cut:]]).shape == [grouped, *order[cut:]]


# ---------------------------------------------------------------- flatten, squeeze, unsqueeze


@pytest.mark.parametrize("n", SIZES)
def test_flatten_against_numpy(run, n):
    x = values(n, 2, 3)
    whole, front, back, one = run(
        lambda x: [x.flatten(), x.flatten(0, 1), ops.flatten(x, -2), x.flatten(1, 1)],
        x,
        dims=[["n", 2, 3]],
    )
    np.testing.assert_array_equal(whole, x.ravel())
    np.testing.assert_array_equal(front, x.reshape(n * 2, 3))
    np.testing.assert_array_equal(back, x.reshape(n, 6))
    np.testing.assert_array_equal(one, x)


def test_flatten_of_a_scalar_is_a_vector(g):
    assert ops.flatten(g.scalar).shape == [1]
    with pytest.raises(IndexError, match="flatten: axis 1 is out of range"):
        ops.flatten(g.scalar, 1)


def test_flatten_refuses(g):
    with pytest.raises(ValueError, match="flatten: start_dim 2 comes after end_dim 1"):
        ops.flatten(g.x, 2, 1)
    with pytest.raises(IndexError, match="flatten: axis 3 is out of range for rank 3"):
        ops.flatten(g.x, 0, 3)


@pytest.mark.parametrize("n", SIZES)
def test_squeeze_and_unsqueeze_against_numpy(run, n):
    x = values(n, 1, 2)
    less, front, back, inner = run(
        lambda x: [
            ops.squeeze(x, -2),
            ops.unsqueeze(x, 0),
            ops.unsqueeze(x, -1),
            ops.unsqueeze(x, -2),
        ],
        x,
        dims=[["n", 1, 2]],
    )
    np.testing.assert_array_equal(less, x[:, 0])
    np.testing.assert_array_equal(front, x[None])
    np.testing.assert_array_equal(back, x[..., None])
    np.testing.assert_array_equal(inner, x[:, :, None])


def test_squeeze_needs_a_one(g):
    assert ops.squeeze(g.one, 1).shape == ["b", 1]
    with pytest.raises(ValueError, match="squeeze: dimension 0 is b; only a dimension of 1"):
        ops.squeeze(g.x, 0)
    with pytest.raises(IndexError, match=r"squeeze: axis 0 .*a scalar has no axis"):
        ops.squeeze(g.scalar, 0)
    with pytest.raises(TypeError, match="squeeze: axis must be an int"):
        ops.squeeze(g.one, [1])


@pytest.mark.parametrize("axis", [4, -5])
def test_unsqueeze_refuses_places_there_are_not(g, axis):
    with pytest.raises(ValueError, match=f"unsqueeze: axis {axis} is out of range for rank 3"):
        ops.unsqueeze(g.x, axis)


# ---------------------------------------------------------------- permute, transpose


@pytest.mark.parametrize("n", SIZES)
def test_permute_and_transpose_against_numpy(run, n):
    x = values(n, 2, 3)
    rotated, swapped, t = run(
        lambda x: [ops.permute(x, [-1, 0, 1]), ops.transpose(x, 0, -1), x.T],
        x,
        dims=[["n", 2, 3]],
    )
    np.testing.assert_array_equal(rotated, x.transpose(2, 0, 1))
    np.testing.assert_array_equal(swapped, x.swapaxes(0, 2))
    np.testing.assert_array_equal(t, x.swapaxes(1, 2))


@pytest.mark.parametrize("order", [[0, 1], [0, 0, 1], [0, 1, -1, 2], [0, 2, -1]])
def test_permute_needs_each_axis_once(g, order):
    with pytest.raises(ValueError, match="permute: dims must name each of the 3 axes once"):
        ops.permute(g.x, order)


def test_permute_and_transpose_refuse_axes_there_are_not(g):
    with pytest.raises(IndexError, match="permute: axis 3 is out of range"):
        ops.permute(g.x, [0, 1, 3])
    with pytest.raises(IndexError, match="transpose: axis -4 is out of range"):
        ops.transpose(g.x, -4, 0)
    with pytest.raises(IndexError, match="transpose: axis -2 is out of range"):
        g.n.T  # noqa: B018 - the property raises


def test_transpose_of_a_scalar_is_the_scalar(g):
    assert ops.transpose(g.scalar, 0, -1).shape == []


# ---------------------------------------------------------------- broadcast_to


@pytest.mark.parametrize("n", SIZES)
def test_broadcast_to_against_numpy(run, n):
    x = values(n, 1, 2)
    inner, front, nothing = run(
        lambda x: [
            ops.broadcast_to(x, ["n", 4, 2]),
            ops.broadcast_to(x, [3, "n", "n", 2]),
            x.broadcast_to(["n", 0, 2]),
        ],
        x,
        dims=[["n", 1, 2]],
    )
    np.testing.assert_array_equal(inner, np.broadcast_to(x, (n, 4, 2)))
    np.testing.assert_array_equal(front, np.broadcast_to(x, (3, n, n, 2)))
    assert nothing.shape == (n, 0, 2)


def test_broadcast_to_traced_with_symbolic_dims(run_symbolic):
    x = values(2, 1)
    out, row = run_symbolic(
        lambda x, y: [x.broadcast_to([3, "a", "b"]), ops.broadcast_to(y, ["a", "b"])],
        x,
        values(5),
        dims=[["a", 1], ["b"]],
    )
    np.testing.assert_array_equal(out, np.broadcast_to(x, (3, 2, 5)))
    np.testing.assert_array_equal(row, np.broadcast_to(values(5), (2, 5)))


def test_broadcast_then_reduce_over_another_axis(run):
    x = values(1, 4)
    (out,) = run(lambda x: ops.broadcast_to(x, [3, 4]) + ops.unsqueeze(x, 0).reshape([1, 4]), x)
    np.testing.assert_array_equal(out, np.broadcast_to(2 * x, (3, 4)))


def test_broadcast_to_a_shape_that_is_a_tensor(run):
    x = values(1, 3)
    (out,) = run(lambda x, s: ops.broadcast_to(x, s, out_dims=[2, 3]), x, np.int64([2, 3]))
    np.testing.assert_array_equal(out, np.broadcast_to(x, (2, 3)))


def test_broadcast_to_a_tensor_needs_fitting_out_dims(g):
    with pytest.raises(ValueError, match="known only when the graph runs; name it with out_dims"):
        ops.broadcast_to(g.scalar, g.n)
    with pytest.raises(ValueError, match="a shape that is a tensor is a vector of integers"):
        ops.broadcast_to(g.scalar, g.n, out_dims=[2])
    two = ops.constant([2, 3], DType.int64, DeviceRef.CPU())
    with pytest.raises(ValueError, match="the shape has 2 entries, out_dims has 3"):
        ops.broadcast_to(g.scalar, two, out_dims=[1, 2, 3])


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (["b", "s", 9], "dimension 2 is 8, neither 1 nor 9"),
        (["b", "n", 8], "dimension 1 is s, neither 1 nor n"),
        (["s", 8], "\\[s, 8\\] has fewer dimensions than the tensor"),
        (["b", "s", -1], "has the negative size -1"),
    ],
)
def test_broadcast_to_refuses(g, shape, why):
    with pytest.raises(ValueError, match=f"^broadcast_to: .*{why}"):
        ops.broadcast_to(g.x, shape)


def test_a_dimension_that_no_input_has_is_refused_when_compiled(run):
    with pytest.raises(
        ValueError, match=r"broadcast_to: dim 'z' has no size here.*use a number or a dimension"
    ) as e:
        run(lambda x: ops.broadcast_to(x, ["z", 3]), values(1, 3))
    assert "test_shape.py" in str(e.value)
