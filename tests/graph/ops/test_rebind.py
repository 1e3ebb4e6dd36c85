# SPDX-License-Identifier: Apache-2.0
"""Rebinding: names for sizes, and the check that they are what was declared."""

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops
from maxjax.graph.type import FilterLayout

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def g():
    types = [TensorType(DType.float32, s, DeviceRef.CPU()) for s in (["n", "m"], [4, 6], [])]
    with Graph("g", input_types=types) as graph:
        graph.x, graph.m, graph.scalar = (v.tensor for v in graph.inputs)
        yield graph


def test_rebind_gives_other_dims(g):
    assert ops.rebind(g.x, ["k", 4]).type.brief() == "f32[k, 4]"
    assert g.x.rebind(["n", Dim("m") * 2]).shape == ["n", Dim("m") * 2]
    assert g.m.rebind(["rows", 6]).shape == ["rows", 6]
    assert ops.rebind(g.scalar, []).shape == []


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_new_name_takes_the_size(run, n):
    x = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
    doubled, flat = run(
        lambda x: [x.rebind(["k", 3]) * 2, x.rebind(["k", 3]).reshape([Dim("k") * 3])],
        x,
        dims=[["n", 3]],
    )
    np.testing.assert_array_equal(doubled, x * 2)
    np.testing.assert_array_equal(flat, x.ravel())


def test_two_symbols_meet_after_a_rebind(run):
    def build(x, y):
        return x + y.rebind(["a"], "x and y go together")

    x = np.float32([1, 2, 3])
    (out,) = run(build, x, x, dims=[["a"], ["b"]])
    np.testing.assert_array_equal(out, x + x)
    with pytest.raises(
        ValueError,
        match="rebind: dimension 0 is 2, not a, which is 3: x and y go together "
        r"\(given f32\[b\]\)\n  at .*test_rebind.py:\d+ in build",
    ):
        run(build, x, x[:2], dims=[["a"], ["b"]])


@pytest.mark.parametrize("size", [1, 3])
def test_size_one_does_not_stretch(run, size):
    with pytest.raises(ValueError, match=f"rebind: dimension 0 is {size}, not 2"):
        run(lambda x: x.rebind([2]), np.ones(size, np.float32), dims=[["n"]])


def test_expressions_are_checked_and_may_hold_new_names(run):
    (out,) = run(lambda x: x.rebind(["k", Dim("k") + 1]), X, dims=[["n", "m"]])
    np.testing.assert_array_equal(out, X)
    (out,) = run(lambda x: x.rebind([Dim("k") - 1, "k"]) + 0, X, dims=[["n", "m"]])
    np.testing.assert_array_equal(out, X)
    with pytest.raises(ValueError, match=r"dimension 1 is 3, not k \* 2, which is 4"):
        run(lambda x: x.rebind(["k", Dim("k") * 2]), X, dims=[["n", "m"]])
    with pytest.raises(ValueError, match="dimension 1 is 3, not k, which is 2"):
        run(lambda x: x.rebind(["k", "k"]), X, dims=[["n", "m"]])


def test_an_expression_alone_does_not_bind_its_names(run):
    with pytest.raises(ValueError, match=r"dimension 0 is to be k \* 2: dim 'k' has no size"):
        run(lambda x: x.rebind([Dim("k") * 2, 3]), X, dims=[["n", "m"]])


def test_a_failed_check_leaves_other_sizes_working():
    x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    model = InferenceSession().load(Graph("g", lambda x: x.rebind([2]) + 1, [x]))
    for _ in range(2):
        with pytest.raises(ValueError, match="rebind: dimension 0 is 3, not 2"):
            model(np.ones(3, np.float32))
    np.testing.assert_array_equal(model(np.ones(2, np.float32))[0].to_numpy(), [2, 2])


def test_traced_with_symbolic_dims(run_symbolic):
    same, twice = run_symbolic(
        lambda x: [
            x.rebind(["k", 3]) + x.rebind(["k", 3]),
            ops.concat([x, x]).rebind([Dim("n") * 2, 3]),
        ],
        X,
        dims=[["n", 3]],
    )
    np.testing.assert_array_equal(same, X + X)
    np.testing.assert_array_equal(twice, np.concatenate([X, X]))


@pytest.mark.parametrize("shape", [["m", "n"], [2, "m"], ["k", Dim("k") + 1]])
def test_symbolic_dims_that_may_differ_are_refused(run_symbolic, shape):
    with pytest.raises(
        ValueError, match=r"rebind: .*cannot be decided for sizes that are symbolic.*: why\b"
    ):
        run_symbolic(lambda x: x.rebind(shape, "why"), X, dims=[["n", "m"]])


def test_rebind_refuses_at_build(g):
    with pytest.raises(ValueError, match=r"rebind: rank 2 cannot become \[n\] of rank 1"):
        ops.rebind(g.x, ["n"])
    with pytest.raises(ValueError, match="rebind: dimension 0 is 4, which is never 5"):
        ops.rebind(g.m, [5, 6])
    with pytest.raises(ValueError, match=r"rebind: .*'a b' is not the name of a dim"):
        ops.rebind(g.x, ["a b", "m"])
    with pytest.raises(ValueError, match="negative size -1"):
        ops.rebind(g.x, [-1, "m"])
    with pytest.raises(TypeError, match="rebind: expected a tensor value, got float"):
        ops.rebind(1.0, [])


def test_rebound_names_do_not_broadcast_with_the_old(g):
    with pytest.raises(ValueError, match="dimensions k and n do not broadcast"):
        g.x.rebind(["k", "m"]) + g.x


def test_rebind_can_say_a_filters_layout(run):
    def build(w):
        bound = ops.rebind(w, [3, 3, "i", "o"], layout=FilterLayout.RSCF)
        assert bound.type == TensorType(
            DType.float32, [3, 3, "i", "o"], DeviceRef.CPU(), FilterLayout.RSCF
        )
        return bound

    w = np.ones((3, 3, 2, 4), np.float32)
    np.testing.assert_array_equal(run(build, w, dims=[[3, 3, "c", "f"]])[0], w)
