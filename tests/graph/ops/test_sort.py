# SPDX-License-Identifier: Apache-2.0
"""Sorting against NumPy, the order of what is special, and what is refused."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from jax import lax

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops

CPU = DeviceRef.CPU()
NAN, INF = np.nan, np.inf
SPECIAL = np.array([2, NAN, -0.0, 0.0, INF, -INF, -NAN, 0.0, 1e-40, 2], np.float32)
DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
    "float32", "float64",
)  # fmt: skip


def order(x, descending=False):
    """The stable order of a vector: NaN is the largest, -0 equals 0."""
    keys = [(bool(v != v), 0 if v != v else v) for v in x.tolist()]
    at = sorted(range(len(keys)), key=keys.__getitem__)
    if descending:
        at = sorted(range(len(keys)), key=lambda i: keys[i], reverse=True)
    return np.array(at, np.int64)


def first(x, k, axis, descending):
    """The k first along an axis, and where they are."""
    at = np.apply_along_axis(lambda row: order(row, descending)[:k], axis, x)
    return np.take_along_axis(x, at, axis), at


@pytest.fixture(params=["this platform", "other platforms"])
def platform(request, monkeypatch):
    """What runs on a CPU, and what runs elsewhere."""
    if request.param == "other platforms":
        monkeypatch.setattr(lax, "platform_dependent", lambda *a, cpu, default: default(*a))


def same(got, want):
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(run, platform, dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (3, 9)).astype(dtype)
    top, top_at, low, low_at, up, down = run(
        lambda x: [
            *ops.top_k(x, 4),
            *ops.bottom_k(x, 4, axis=1),
            ops.argsort(x[0]),
            ops.argsort(x[0], ascending=False),
        ],
        x,
    )
    for got, at, descending in ((top, top_at, True), (low, low_at, False)):
        want, want_at = first(x, 4, 1, descending)
        same(got, want)
        same(at, want_at)
    same(up, order(x[0]))
    same(down, order(x[0], descending=True))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e5m2"])
def test_nan_zeros_and_infinities(run, platform, dtype):
    own = DType.of(np.dtype(getattr(ml_dtypes, dtype, None) or dtype))
    x = SPECIAL.astype(own.np)
    n = len(x)
    top_at, low_at, up, down, values = run(
        lambda x: [
            ops.top_k(x, n)[1],
            ops.bottom_k(x, n)[1],
            ops.argsort(x),
            ops.argsort(x, ascending=False),
            ops.top_k(x, n)[0],
        ],
        x,
    )
    wide = x.astype(np.float64)
    same(up, order(wide))
    same(down, order(wide, descending=True))
    same(low_at, up)
    same(top_at, down)
    values = values.astype(np.float64)
    np.testing.assert_array_equal(values, wide[down])
    # Each zero comes with its own sign.
    assert np.signbit(values).tolist()[2:] == np.signbit(wide[down]).tolist()[2:]


@pytest.mark.parametrize(("dtype", "ends"), [("int64", (-(2**63), 2**63 - 1)), ("uint64", None)])
def test_the_largest_integers(run, dtype, ends):
    low, high = ends or (0, 2**64 - 1)
    x = np.array([low + 1, high - 1, low, high, 5], dtype)
    top, low_k = run(lambda x: [ops.top_k(x, 3)[0], ops.bottom_k(x, 3)[0]], x)
    assert top.tolist() == [high, high - 1, 5]
    assert low_k.tolist() == [low, low + 1, 5]


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_axes(run, axis):
    x = np.random.default_rng(1).integers(0, 3, (3, 4, 5)).astype(np.float32)
    top, at = run(lambda x: list(ops.top_k(x, 2, axis)), x)
    want, want_at = first(x, 2, axis, descending=True)
    same(top, want)
    same(at, want_at)


@pytest.mark.parametrize("n", range(1, 10))
def test_symbolic_lengths(run, run_symbolic, n):
    x = np.random.default_rng(n).integers(0, 4, n).astype(np.float32)
    for runner in (run, run_symbolic):
        up, down, top, low = runner(
            lambda x: [
                ops.argsort(x),
                ops.argsort(x, ascending=False),
                ops.top_k(x, 1)[1],
                ops.bottom_k(x, 1)[1],
            ],
            x,
            dims=[["n"]],
        )
        same(up, order(x))
        same(down, order(x, descending=True))
        same(top, down[:1])
        same(low, up[:1])


def test_k_and_a_symbolic_length(run, run_symbolic):
    x = np.arange(4.0)
    for op, k in itertools.product((ops.top_k, ops.bottom_k), (4, 5)):
        if k == 4:
            (_, at) = run(lambda x, op=op: list(op(x, 4)), x, dims=[["n"]])
            assert sorted(at.tolist()) == [0, 1, 2, 3]
            continue
        with pytest.raises(ValueError, match=f"{op.__name__}: k is 5, but axis 0 has size 4"):
            run(lambda x, op=op: list(op(x, 5)), x, dims=[["n"]])
        with pytest.raises(ValueError, match=r"k is 5, but axis 0 has size n for some sizes"):
            run_symbolic(lambda x, op=op: list(op(x, 5)), x, dims=[["n"]])


def test_nothing_of_something_and_of_nothing(run):
    values, at, none, order_of_none = run(
        lambda x, e: [*ops.top_k(x, 0, axis=0), ops.bottom_k(e, 1)[0], ops.argsort(e[:, 0])],
        np.ones((3, 2), np.int32),
        np.ones((0, 4), np.float32),
    )
    assert values.shape == at.shape == (0, 2)
    assert (values.dtype, at.dtype) == (np.int32, np.int64)
    assert none.shape == (0, 1)
    assert order_of_none.shape == (0,)


def test_what_is_refused():
    with Graph("g", input_types=[TensorType(DType.float32, s, CPU) for s in ([4, 6], [])]) as g:
        x, scalar = (v.tensor for v in g.inputs)
        for op in (ops.top_k, ops.bottom_k):
            name = op.__name__
            with pytest.raises(ValueError, match=f"{name}: k is 7, but axis 1 has size 6"):
                op(x, 7)
            with pytest.raises(ValueError, match=f"{name}: axis 2 is out of range for rank 2"):
                op(x, 2, axis=2)
            with pytest.raises(ValueError, match=f"{name}: axis -3 is out of range"):
                op(x, 2, axis=-3)
            with pytest.raises(ValueError, match="a scalar has no axis"):
                op(scalar, 1)
            with pytest.raises(TypeError, match=f"{name}: k is negative: -1"):
                op(x, -1)
            for wrong in (2.0, True, Dim("n")):
                with pytest.raises(TypeError, match=f"{name}: k must be an int, got "):
                    op(x, wrong)
            assert op(x, Dim(2))[0].shape == [4, 2]
            with pytest.raises(TypeError, match=f"{name}: expected a tensor value"):
                op(np.ones(3, np.float32), 1)
        for wrong in (x, scalar):
            with pytest.raises(
                ValueError, match="argsort: only a vector, of rank 1, can be sorted"
            ):
                ops.argsort(wrong)
        with pytest.raises(TypeError, match="argsort: expected a tensor value"):
            ops.argsort(np.ones(3, np.float32))
