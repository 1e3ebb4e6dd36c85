# SPDX-License-Identifier: Apache-2.0
"""Reductions and running sums, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, TensorType, ops

CPU = DeviceRef.CPU()
NUMPY = {
    "sum": np.sum,
    "mean": np.mean,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "argmax": np.argmax,
    "argmin": np.argmin,
}
CHOOSE = ["max", "min", "argmax", "argmin"]


def values(*shape, kind=np.float32):
    rng = np.random.default_rng(len(shape))
    if np.dtype(kind).kind in "iu":
        return rng.integers(0, 4, shape).astype(kind)
    return rng.uniform(-2, 2, shape).astype(kind)


def build(axis):
    return lambda x: [getattr(ops, n)(x, axis=axis) for n in NUMPY]


def expect(outs, x, axis):
    for (name, function), out in zip(NUMPY.items(), outs, strict=True):
        expected = function(x, axis=axis, keepdims=True)
        assert out.dtype == (np.int64 if name.startswith("arg") else x.dtype), name
        if name == "mean" and x.dtype.kind == "i":
            expected = np.trunc(expected)
        np.testing.assert_allclose(out, expected, rtol=2e-6, err_msg=name)
        assert out.shape == expected.shape


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_each_axis_is_kept_with_size_1(run, run_symbolic, axis):
    for rows in (1, 4):
        x = values(rows, 3, 2)
        for runs in (run, run_symbolic):
            expect(runs(build(axis), x, dims=[["n", 3, 2]]), x, axis)


@pytest.mark.parametrize("kind", [np.float64, np.int32, np.int8])
def test_dtypes_stay(run, kind):
    x = values(3, 5, kind=kind)
    expect(run(build(0), x), x, 0)


def test_the_last_axis_is_the_default(run):
    x = values(2, 3)
    expect(run(lambda x: [getattr(ops, n)(x) for n in NUMPY], x), x, -1)


def test_methods(run):
    x = values(3, 4)
    outs = run(
        lambda x: [
            x.mean(), x.max(0), x.min(axis=0), x.argmax(0), x.var(), x.var(0), x.stdev(axis=0)
        ],
        x,
    )  # fmt: skip
    expected = [
        x.mean(1, keepdims=True),
        x.max(0, keepdims=True),
        x.min(0, keepdims=True),
        x.argmax(0, keepdims=True),
        x.var(1, keepdims=True),
        x.var(0, keepdims=True),
        x.std(0, keepdims=True),
    ]
    for out, want in zip(outs, expected, strict=True):
        np.testing.assert_allclose(out, want, rtol=2e-6)


# ---------------------------------------------------------------- integers and bools


def test_integers_wrap_around(run):
    x = np.array([[100, 100, 3]], np.int8)
    total, product, running = run(lambda x: [ops.sum(x), ops.prod(x), ops.cumsum(x)], x)
    np.testing.assert_array_equal(total, np.sum(x, 1, np.int8, keepdims=True))
    np.testing.assert_array_equal(product, np.prod(x, 1, np.int8, keepdims=True))
    np.testing.assert_array_equal(running, np.cumsum(x, 1, np.int8))


def test_an_integer_mean_is_rounded_toward_zero_and_does_not_overflow(run):
    for x in (
        np.array([[-3, -4], [7, 8], [-1, 0], [2**31 - 1, 2**31 - 1]], np.int32),
        np.array([[255, 255], [1, 2]], np.uint8),
        np.array([[2**63, 2**62]], np.uint64),
    ):
        (out,) = run(ops.mean, x)
        wide = [[sum(map(int, row)) / 2] for row in x]
        np.testing.assert_array_equal(out, np.trunc(wide).astype(x.dtype))


def test_bools(run):
    x = np.array([[True, False], [False, False], [True, True]])
    total, product, running, most, least, first = run(
        lambda x: [ops.sum(x), ops.prod(x), ops.cumsum(x), ops.max(x), ops.min(x), ops.argmax(x)], x
    )
    np.testing.assert_array_equal(total, x.any(1, keepdims=True))
    np.testing.assert_array_equal(product, x.all(1, keepdims=True))
    np.testing.assert_array_equal(running, np.logical_or.accumulate(x, 1))
    np.testing.assert_array_equal(most, total)
    np.testing.assert_array_equal(least, product)
    np.testing.assert_array_equal(first, [[0], [0], [0]])


# ---------------------------------------------------------------- narrow floats


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_narrow_floats_are_accumulated_in_float32(run, kind):
    x = np.full((1, 3000), 0.125, kind)
    total, mean, running = run(lambda x: [ops.sum(x), ops.mean(x), ops.cumsum(x)], x)
    np.testing.assert_array_equal(total.astype(float), np.full((1, 1), 375, kind).astype(float))
    np.testing.assert_array_equal(mean.astype(float), [[0.125]])
    steps = (np.arange(1, 3001) / 8).astype(kind)
    np.testing.assert_array_equal(running.astype(float), steps[None].astype(float))
    assert {total.dtype, mean.dtype, running.dtype} == {np.dtype(kind)}


def test_a_float16_mean_does_not_overflow_on_the_way(run):
    x = np.full((1, 4), 60000, np.float16)
    total, mean, product = run(lambda x: [ops.sum(x), ops.mean(x), ops.prod(x)], x)
    np.testing.assert_array_equal(total, [[np.inf]])
    np.testing.assert_array_equal(mean, [[60000]])
    np.testing.assert_array_equal(product, [[np.inf]])


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_narrow_floats_are_chosen_exactly(run, kind):
    x = values(3, 7).astype(kind)
    outs = run(lambda x: [getattr(ops, n)(x) for n in CHOOSE], x)
    for name, out in zip(CHOOSE, outs, strict=True):
        expected = NUMPY[name](x.astype(np.float32), axis=1, keepdims=True)
        np.testing.assert_array_equal(out.astype(np.float32), expected, err_msg=name)


# ---------------------------------------------------------------- ties, NaN, infinities, nothing


def test_the_first_of_equals_is_chosen(run):
    x = np.float32([[1, 3, 3, 1], [0.0, -0.0, 0, -0.0]])
    high, low = run(lambda x: [ops.argmax(x), ops.argmin(x)], x)
    np.testing.assert_array_equal(high, [[1], [0]])
    np.testing.assert_array_equal(low, [[0], [0]])


def test_nan_wins(run):
    nan, inf = np.nan, np.inf
    x = np.float32([[1, nan, 3], [nan, 1, nan], [-inf, inf, 0]])
    outs = run(lambda x: [getattr(ops, n)(x) for n in NUMPY], x)
    for (name, function), out in zip(NUMPY.items(), outs, strict=True):
        with np.errstate(invalid="ignore"):
            expected = function(x, axis=1, keepdims=True)
        np.testing.assert_array_equal(out, expected, err_msg=name)


def test_of_nothing(run):
    for shape, axis in (((0, 3), 0), ((3, 0), 1), ((0, 0), 0)):
        x = np.zeros(shape, np.float32)
        dims = [["n" if s == 0 else s for s in shape]]
        total, mean, product, running = run(
            lambda x, a=axis: [ops.sum(x, a), ops.mean(x, a), ops.prod(x, a), ops.cumsum(x, a)],
            x,
            dims=dims,
        )
        np.testing.assert_array_equal(total, np.sum(x, axis, keepdims=True))
        np.testing.assert_array_equal(product, np.prod(x, axis, keepdims=True))
        np.testing.assert_array_equal(mean, np.full(total.shape, np.nan))
        assert running.shape == shape
    (out,) = run(ops.mean, np.zeros((2, 0), np.int32))
    np.testing.assert_array_equal(out, [[0], [0]])


def test_no_slices(run):
    x = np.zeros((0, 3), np.float32)
    for out in run(lambda x: [getattr(ops, n)(x) for n in NUMPY], x, dims=[["n", 3]]):
        assert out.shape == (0, 1)


@pytest.mark.parametrize("name", CHOOSE)
def test_of_nothing_none_can_be_chosen(name):
    nothing = r"axis 0 has size 0, so there is no element to choose"
    with (
        Graph("g", input_types=[TensorType(DType.float32, [0, 3], CPU)]) as g,
        pytest.raises(ValueError, match=rf"^{name}: {nothing} \(given f32\[0, 3\]"),
    ):
        getattr(ops, name)(g.inputs[0].tensor, axis=0)
    with Graph("g", input_types=[TensorType(DType.float32, ["n", 3], CPU)]) as g:
        g.output(getattr(ops, name)(g.inputs[0].tensor, axis=0))
    model = InferenceSession().load(g)
    with pytest.raises(ValueError, match=rf"{name}: {nothing}"):
        model(np.zeros((0, 3), np.float32))
    assert model(np.zeros((1, 3), np.float32))[0].shape == (1, 3)


# ---------------------------------------------------------------- the larger of two


def test_two_operands_are_compared_element_by_element(run):
    x, y = values(3, 1), values(4)
    outs = run(lambda x, y: [ops.max(x, y), ops.min(x, y), ops.max(x, 0.5), ops.min(0.5, x)], x, y)
    for out, expected in zip(
        outs,
        [np.maximum(x, y), np.minimum(x, y), np.maximum(x, 0.5), np.minimum(x, 0.5)],
        strict=True,
    ):
        np.testing.assert_array_equal(out, expected)


# ---------------------------------------------------------------- running sums


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums(run, run_symbolic, axis, exclusive, reverse):
    for rows in (1, 4):
        x = values(rows, 3)
        ordered = np.flip(x, axis) if reverse else x
        expected = np.cumsum(ordered, axis) - (ordered if exclusive else 0)
        expected = np.flip(expected, axis) if reverse else expected
        for runs in (run, run_symbolic):
            (out,) = runs(lambda x: ops.cumsum(x, axis, exclusive, reverse), x, dims=[["n", 3]])
            np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_an_exclusive_running_sum_subtracts_nothing(run):
    x = np.float32([1e8, 1, np.inf, 2])
    (out,) = run(lambda x: ops.cumsum(x, exclusive=True), x)
    np.testing.assert_array_equal(out, np.float32([0, 1e8, 1e8 + 1, np.inf]))


# ---------------------------------------------------------------- what is refused


@pytest.fixture
def x():
    with Graph("g", input_types=[TensorType(DType.float32, ["n", 4], CPU)]) as g:
        yield g.inputs[0].tensor


@pytest.mark.parametrize("name", [*NUMPY, "cumsum"])
def test_axes_and_operands_that_are_refused(x, name):
    op = getattr(ops, name)
    for axis in (2, -3):
        with pytest.raises(ValueError, match=rf"^{name}: axis {axis} is out of range for rank 2"):
            op(x, axis=axis)
    for axis in (1.0, "a", True):
        with pytest.raises(TypeError, match=rf"^{name}: axis must be an int, got {axis!r}"):
            op(x, axis=axis)
    for value in (1.0, np.ones(2, np.float32)):
        with pytest.raises(TypeError, match=rf"^{name}: expected a tensor value, got"):
            op(value)
    scalar = ops.constant(1.0, DType.float32, CPU)
    with pytest.raises(ValueError, match=rf"^{name}: axis -1 is .* rank 0: a scalar has no axis"):
        op(scalar)


def test_an_axis_and_a_second_operand_are_refused(x):
    for name in ("max", "min"):
        with pytest.raises(ValueError, match=rf"^{name}: give an axis, or a second tensor .* not"):
            getattr(ops, name)(x, x, axis=0)


def test_the_mean_of_bools_is_refused(x):
    with pytest.raises(ValueError, match=r"^mean: bools have no mean that is a bool; cast them"):
        ops.mean(x > 0)
    for method in ("var", "stdev"):
        with pytest.raises(TypeError, match=r"^var: the variance of a bool tensor is not defined"):
            getattr(x > 0, method)()
