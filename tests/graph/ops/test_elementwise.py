# SPDX-License-Identifier: Apache-2.0
"""Arithmetic, comparison and logic of two operands, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, Weight, ops

CPU = DeviceRef.CPU()
NUMPY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floor_div": lambda x, y: np.floor(x / y) if x.dtype.kind == "f" else x // y,
    "mod": np.mod,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
LOGIC = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


@pytest.fixture
def g():
    types = {
        "x": TensorType(DType.float32, ["n", 4], CPU),
        "m": TensorType(DType.float32, ["m", 4], CPU),
        "three": TensorType(DType.float32, [3], CPU),
        "i": TensorType(DType.int32, ["n", 4], CPU),
        "b": TensorType(DType.bool, ["n"], CPU),
        "far": TensorType(DType.float32, [4], DeviceRef.GPU()),
    }
    with Graph("g", input_types=types.values()) as graph:
        graph.named = dict(zip(types, (v.tensor for v in graph.inputs), strict=True))
        yield graph


def operands(kind, rows):
    rng = np.random.default_rng(rows)
    shapes = (rows, 4), (rows, 1)
    if kind.startswith("float"):
        return [rng.uniform(0.5, 3, s).astype(kind) for s in shapes]
    low = 1 if kind.startswith("u") else -4
    return [
        rng.integers(low, 5, shapes[0]).astype(kind),
        rng.integers(1, 5, shapes[1]).astype(kind),
    ]


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "uint8"])
def test_every_op_equals_numpy(run, kind):
    names = [n for n in NUMPY if kind[0] == "f" or n != "div"]
    for rows in (0, 1, 3):
        x, y = operands(kind, rows)
        outs = run(
            lambda x, y: [getattr(ops, n)(x, y) for n in names],
            x,
            y,
            dims=[["n", 4], ["n", 1]],
        )
        for name, out in zip(names, outs, strict=True):
            expected = NUMPY[name](x, y)
            assert out.shape == expected.shape, name
            assert out.dtype == expected.dtype, name
            np.testing.assert_allclose(out, expected, rtol=1e-6, err_msg=name)


def test_traced_once_for_all_sizes(run_symbolic):
    for rows in (1, 2, 5):
        x, y = operands("float32", rows)
        outs = run_symbolic(
            lambda x, y: [getattr(ops, n)(x, y) for n in NUMPY], x, y, dims=[["n", 4], ["n", 1]]
        )
        for name, out in zip(NUMPY, outs, strict=True):
            np.testing.assert_allclose(out, NUMPY[name](x, y), rtol=1e-6, err_msg=name)


def test_logic_and_what_arithmetic_means_for_bools(run):
    x, y = np.array([[True], [False]]), np.array([True, False])
    outs = run(lambda x, y: [getattr(ops, n)(x, y) for n in LOGIC], x, y)
    for name, out in zip(LOGIC, outs, strict=True):
        np.testing.assert_array_equal(out, LOGIC[name](x, y), err_msg=name)
    add, sub, mul, floor_div, div = run(
        lambda x, y: [x + y, x - y, x * y, x // y, ops.div(x, y)], x, y
    )
    np.testing.assert_array_equal(add, x | y)
    np.testing.assert_array_equal(sub, x ^ y)
    for out in (mul, floor_div, div):
        np.testing.assert_array_equal(out, x & y)


# ---------------------------------------------------------------- the edges


def test_an_integer_divided_by_zero_is_zero(run):
    for kind in ("int8", "int64", "uint32"):
        x = np.array([7, 0, 120], kind)
        quotient, rest, whole = run(
            lambda x, y: [x // y, x % y, ops.add(x // y * y, x % y)], x, np.array([0, 0, 7], kind)
        )
        np.testing.assert_array_equal(quotient, [0, 0, 17])
        np.testing.assert_array_equal(rest, [0, 0, 1])
        np.testing.assert_array_equal(whole, [0, 0, 120])


def test_the_most_negative_integer_divided_by_minus_one_wraps(run):
    x = np.array([-(2**31), -128], np.int32)
    quotient, rest = run(lambda x: [x // -1, x % -1], x)
    np.testing.assert_array_equal(quotient, [-(2**31), 128])
    np.testing.assert_array_equal(rest, [0, 0])


def test_floor_division_rounds_down_and_the_remainder_has_the_divisors_sign(run):
    x, y = np.array([7, -7, 7, -7], np.int64), np.array([2, 2, -2, -2], np.int64)
    for a, b in ((x, y), (x / 2, y / 2)):
        quotient, rest = run(lambda x, y: divmod(x, y), a, b)
        np.testing.assert_array_equal(quotient, a // b)
        np.testing.assert_array_equal(rest, a % b)


def test_integers_wrap_around(run):
    big = np.array([127, -128], np.int8)
    added, subtracted, multiplied = run(lambda x: [x + 1, x - 1, x * 2], big)
    np.testing.assert_array_equal(added, np.int8([-128, -127]))
    np.testing.assert_array_equal(subtracted, np.int8([126, 127]))
    np.testing.assert_array_equal(multiplied, np.int8([-2, 0]))


def test_integer_powers(run):
    base = np.array([2, -2, 1, -1, -1, 0, 3], np.int32)
    power = np.array([-1, -3, -5, -3, -2, 0, 4], np.int32)
    (out,) = run(ops.pow, base, power)
    np.testing.assert_array_equal(out, [0, 0, 1, -1, 1, 1, 81])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_integer_powers_wrap_around_for_large_exponents(run, dtype):
    base = np.array([2, 3, 3, 5, 2, 1], dtype)
    exponents = [64, 65, 100, 127, 63, 64]
    if np.iinfo(dtype).bits == 64:
        exponents[2:4] = [1345485433, 2**63 - 1]
    (out,) = run(ops.pow, base, np.array(exponents, dtype))
    # In Python's integers, cut off at the end.
    bits = 2 ** np.iinfo(dtype).bits
    exact = [pow(int(b), e, bits) for b, e in zip(base, exponents, strict=True)]
    np.testing.assert_array_equal(out, np.array(exact, np.uint64).astype(dtype))


def test_a_float_divided_by_zero(run):
    (out,) = run(lambda x: x / 0.0, np.float32([1, -1, 0]))
    np.testing.assert_array_equal(out, np.float32([np.inf, -np.inf, np.nan]))


def test_nan_wins_in_max_and_min_and_equals_nothing(run):
    x, y = np.float32([np.nan, 1, np.nan]), np.float32([1, np.nan, np.nan])
    high, low, same, other, more = run(
        lambda x, y: [ops.max(x, y), ops.min(x, y), x == y, x != y, x >= y], x, y
    )
    assert np.isnan(high).all() and np.isnan(low).all()
    assert not same.any() and other.all() and not more.any()


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn])
def test_narrow_floats_are_rounded_once(run, kind):
    x = np.array([1.5, 7, 3.25, 0.5], kind)
    y = np.array([0.375, 3, 1.5, 2], kind)
    names = ["add", "mul", "div", "floor_div", "mod", "pow", "max", "greater"]
    outs = run(lambda x, y: [getattr(ops, n)(x, y) for n in names], x, y)
    for name, out in zip(names, outs, strict=True):
        exact = NUMPY[name](x.astype(np.float32), y.astype(np.float32))
        assert out.dtype == (bool if name == "greater" else kind)
        np.testing.assert_array_equal(
            out.astype(np.float32), exact.astype(out.dtype).astype(np.float32), err_msg=name
        )


# ---------------------------------------------------------------- dtypes


@pytest.mark.parametrize(
    ("x", "y", "result"),
    [
        ("int8", "uint8", "float64"),
        ("int32", "int64", "float64"),
        ("uint16", "uint16", "float64"),
        ("bool", "int32", "int32"),
        ("bool", "bool", "bool"),
        ("int8", "float16", "float16"),
    ],
)
def test_the_dtype_of_a_quotient(run, x, y, result):
    a, b = np.array([1, 1, 0]).astype(x), np.array([4, 0, 2]).astype(y)
    if result == "float64":
        b = np.array([4, 3, 2]).astype(y)
    (out,) = run(ops.div, a, b)
    assert out.dtype == result
    if result == "float64":
        np.testing.assert_array_equal(out, a / b)


def test_a_quotient_of_integers_beside_numbers_arrays_and_dims(run):
    x = np.array([1, 2, 3], np.uint8)
    outs = run(lambda x: [x / 2, 6 / x, x / np.array([1, 2, 4], np.int64), x / Dim(3), x / True], x)
    for out, expected in zip(
        outs, [x / 2, 6 / x, x / np.array([1, 2, 4]), x / 3, x / 1], strict=True
    ):
        assert out.dtype == np.float64
        np.testing.assert_array_equal(out, expected)


def test_a_quotient_takes_a_weight():
    with Graph("g", input_types=[TensorType(DType.uint8, [2], CPU)]) as g:
        w = Weight("w", DType.int8, [2], CPU)
        assert ops.div(g.inputs[0].tensor, w).dtype is DType.float64


def test_a_bool_quotient_of_integers_by_zero(run):
    (out,) = run(ops.div, np.array([5, 5], np.int32), np.array([True, False]))
    np.testing.assert_array_equal(out, [5, 0])


@pytest.mark.parametrize(
    ("expression", "error", "message"),
    [
        ("x + i", ValueError, r"^add: neither of float32 and int32 holds every value"),
        ("i + 0.5", ValueError, r"^add: the float 0.5 beside a value of int32"),
        ("x + m", ValueError, r"^add: dimensions n and m do not broadcast; .*rebind"),
        ("x + three", ValueError, r"^add: dimensions 4 and 3 do not broadcast \(given f32\[n, 4\]"),
        ("x * far", ValueError, r"^mul: operands are on different devices, cpu:0 and gpu:0; move"),
        ("ops.sub(1, 2)", TypeError, r"^sub: at least one operand must be a graph value, got int"),
        ("x / 'a'", TypeError, r"^div: expected a graph value, .* got str"),
        ("ops.logical_and(x, x)", ValueError, r"^logical_and: operands must be bool; compare"),
        ("b & 2", ValueError, r"^logical_and: 2 does not fit bool"),
        ("i / 0.5", ValueError, r"^div: the float 0.5 beside a value of int32"),
        ("i / x", ValueError, r"^div: neither of int32 and float32"),
    ],
)
def test_what_is_refused(g, expression, error, message):
    with pytest.raises(error, match=message) as refusal:
        eval(expression, {"ops": ops, **g.named})
    assert "\n  at <string>:1" in str(refusal.value)
