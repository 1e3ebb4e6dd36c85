# SPDX-License-Identifier: Apache-2.0
"""Products against NumPy, their precision, and what is refused."""

import jax
import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, TensorType, ops
from maxjax.lower import to_jax

CPU, GPU = DeviceRef.CPU(), DeviceRef.GPU()

SHAPES = [
    (["n", 4], [4, "m"]), (["k", "n", 4], [4, "m"]), (["n", 4], ["k", 4, "m"]),
    (["k", "n", 4], ["k", 4, "m"]), (["k", 1, "n", 4], ["m", 4, 2]), ([4], [4, "m"]),
    (["n", 4], [4]), (["k", "n", 4], [4]), ([4], ["k", 4, "m"]), ([4], [4]),
    (["n", "m"], ["m", "k"]), (["m"], ["m"]),
]  # fmt: skip


def random(rng, dims, sizes):
    return rng.normal(size=[sizes.get(d, d) for d in dims]).astype(np.float32)


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
@pytest.mark.parametrize("sizes", [(3, 2, 5), (1, 1, 1), (0, 2, 0)], ids=str)
def test_against_numpy(run, left, right, sizes):
    sizes, rng = dict(zip("nmk", sizes, strict=True)), np.random.default_rng(0)
    x, y = random(rng, left, sizes), random(rng, right, sizes)
    (got,) = run(ops.matmul, x, y, dims=[left, right])
    np.testing.assert_allclose(got, np.matmul(x, y), rtol=1e-5, atol=1e-5)
    assert got.shape == np.matmul(x, y).shape


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_traced_with_symbolic_dims(run_symbolic, left, right):
    rng = np.random.default_rng(0)
    x, y = (random(rng, d, {"n": 3, "m": 2, "k": 5}) for d in (left, right))
    (got,) = run_symbolic(ops.matmul, x, y, dims=[left, right])
    np.testing.assert_allclose(got, np.matmul(x, y), rtol=1e-5, atol=1e-5)


def test_an_inner_size_of_0_gives_zeros(run):
    got = run(
        lambda x, y, b: [x @ y, b @ b.T], np.ones((2, 0), np.float32), np.ones((0, 3), np.float32),
        np.ones((2, 0), bool), dims=[[2, "n"], ["n", 3], [2, "n"]],
    )  # fmt: skip
    np.testing.assert_array_equal(got[0], np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(got[1], np.zeros((2, 2), bool))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
def test_integers_wrap_around(run, dtype):
    info = np.iinfo(dtype)
    x = np.array([[info.max, info.max, 3], [info.min, 2, 1]], dtype)
    (got,) = run(lambda x: x @ x.T, x)
    exact = np.array(x.tolist(), object) @ np.array(x.tolist(), object).T
    bits = 2**info.bits
    want = [[int(v - info.min) % bits + info.min for v in row] for row in exact]
    assert got.dtype == dtype and got.tolist() == want


def test_bools_are_any_of_and(run):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2, (5, 3)).astype(bool), rng.integers(0, 2, (3, 4)).astype(bool)
    got, outer = run(lambda x, y: [x @ y, ops.outer(x[0], y[0])], x, y)
    np.testing.assert_array_equal(got, (x[:, :, None] & y[None]).any(1))
    np.testing.assert_array_equal(outer, x[0][:, None] & y[0])


@pytest.mark.parametrize(
    ("dtype", "unit"), [(np.float16, 2**-11), (ml_dtypes.bfloat16, 2**-8)], ids=["f16", "bf16"]
)
def test_narrow_floats_are_summed_in_float32(run, dtype, unit):
    # One large number, then 1,000 that are each below half a unit of it.
    row = np.full((1, 1001), unit / 8, dtype)
    row[0, 0] = 1
    (got,) = run(lambda x, y: x @ y, row, np.ones((1001, 1), dtype))
    assert got.dtype == dtype
    assert float(got[0, 0]) == float(np.asarray(1 + 1000 * unit / 8, dtype))


def test_float32_is_multiplied_in_float32(run):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(np.float32) for s in [(3, 8), (8, 16)])
    (got,) = run(ops.matmul, x, y)
    np.testing.assert_allclose(got, x.astype(np.float64) @ y, rtol=0, atol=1e-6)


def precision(graph):
    spec = jax.ShapeDtypeStruct((2, 2), np.float32)
    jaxpr = jax.make_jaxpr(lambda x: to_jax(graph)({}, [x]))(spec)
    (eqn,) = (e for e in jaxpr.eqns if e.primitive.name == "dot_general")
    return eqn.params["precision"]


def test_the_users_choice_of_precision_wins():
    highest, default = jax.lax.Precision.HIGHEST, jax.lax.Precision.DEFAULT
    graph = Graph("g", lambda x: x @ x, [TensorType(DType.float32, [2, 2], CPU)])
    assert precision(graph) == (highest, highest)
    with jax.default_matmul_precision("bfloat16"):
        assert precision(graph) in (None, (default, default))
    assert precision(graph) == (highest, highest)


def test_dtypes_promote(run):
    (got,) = run(lambda x, b: x @ b, np.float32([[1, 2]]), np.array([[True], [False]]))
    assert got.dtype == np.float32 and got.tolist() == [[1]]


@pytest.mark.parametrize("sizes", [(3, 2), (1, 1), (0, 4)], ids=str)
def test_outer_against_numpy(run, sizes):
    x, y = (np.arange(n, dtype=np.float32) - 1 for n in sizes)
    got, weak, squares = run(
        lambda x, y: [ops.outer(x, y), ops.outer(np.float32([1, 2]), y), ops.outer(x, x)],
        x,
        y,
        dims=[["n"], ["m"]],
    )
    np.testing.assert_array_equal(got, np.outer(x, y))
    np.testing.assert_array_equal(weak, np.outer([1, 2], y))
    np.testing.assert_array_equal(squares, np.outer(x, x))


def test_outer_traced_with_symbolic_dims(run_symbolic):
    x, y = np.arange(3, dtype=np.int8), np.arange(2, dtype=np.int8)
    (got,) = run_symbolic(ops.outer, x, y, dims=[["n"], ["m"]])
    np.testing.assert_array_equal(got, np.outer(x, y))


@pytest.fixture
def g():
    types = [
        TensorType(d, s, p)
        for d, s, p in [
            (DType.float32, ["batch", 4], CPU), (DType.float32, [3, 2], CPU),
            (DType.float32, [], CPU), (DType.float32, [4], CPU),
            (DType.int64, [4], CPU), (DType.float32, [4], GPU),
            (DType.float32, ["a", 4, 4], CPU), (DType.float32, ["b", 4, 4], CPU),
        ]
    ]  # fmt: skip
    with Graph("g", input_types=types) as graph:
        yield [v.tensor for v in graph.inputs]


def test_what_matmul_refuses(g):
    x, y, scalar, v, i, gpu, a, b = g
    with pytest.raises(
        ValueError, match=r"inner dimensions differ, 4 against 3 \(given f32\[batch, 4\], f32\[3, 2"
    ):
        x @ y
    for pair in ((scalar, y), (y, scalar)):
        with pytest.raises(ValueError, match="a scalar has no rows or columns"):
            ops.matmul(*pair)
    for other in (2.0, np.ones((4, 2), np.float32), "a"):
        with pytest.raises(TypeError, match="matmul: expected a tensor value"):
            x @ other
    with pytest.raises(TypeError, match="matmul: expected a tensor value"):
        2.0 @ x
    with pytest.raises(ValueError, match=r"matmul: .*int64.*float32|matmul: .*float32.*int64"):
        v @ i
    with pytest.raises(ValueError, match="different devices, cpu:0 and gpu:0"):
        v @ gpu
    with pytest.raises(ValueError, match=r"dimensions a and b do not broadcast; .*rebind"):
        a @ b


def test_what_outer_refuses(g):
    x, _, scalar, v, i, gpu, *_ = g
    for other in (x, scalar, 2.0):
        with pytest.raises(ValueError, match="outer: both operands must be vectors, of rank 1"):
            ops.outer(v, other)
    with pytest.raises(TypeError, match="at least one operand must be a graph value"):
        ops.outer(2.0, 2.0)
    with pytest.raises(ValueError, match="outer: "):
        ops.outer(v, i)
    with pytest.raises(ValueError, match="different devices"):
        ops.outer(v, gpu)


def test_a_thousand_products_are_as_exact_as_float32():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(1024, 1024)).astype(np.float32) for _ in range(2))
    graph = Graph("g", lambda x, y: x @ y, [TensorType(DType.float32, ["n", "n"], CPU)] * 2)
    got = InferenceSession().load(graph)(x, y)[0].to_numpy()
    exact = x.astype(np.float64) @ y.astype(np.float64)
    assert np.abs(got - exact).max() < 1e-3  # sums of 1,024 products of about 1
