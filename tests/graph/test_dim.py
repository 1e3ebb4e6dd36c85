# SPDX-License-Identifier: Apache-2.0
"""Dims: construction, arithmetic against Python's ints, evaluation, and text."""

import copy
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxjax.graph.dim import (
    AlgebraicDim,
    Dim,
    StaticDim,
    SymbolicDim,
    UnboundDimError,
    parse_dim,
)

x, y, z = Dim("x"), Dim("y"), Dim("z")
MAX, MIN = 2**63 - 1, -(2**63)

# ---- random expressions: built as dims, and computed with Python's ints

NAMES = ("x", "y", "z")
expressions = st.recursive(
    st.one_of(st.sampled_from(NAMES), st.integers(-6, 6)),
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*", "//"]), inner, inner),
    max_leaves=9,
)
envs = st.fixed_dictionaries({name: st.integers(-30, 30) for name in NAMES})


def compute(expression, leaf):
    if not isinstance(expression, tuple):
        return leaf(expression)
    op, left, right = expression
    a, b = compute(left, leaf), compute(right, leaf)
    return a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a // b


def dim_of(expression):
    """The expression as a dim; None if it divides by zero whatever the sizes."""
    try:
        return compute(expression, Dim)
    except ZeroDivisionError:
        return None


def number_of(expression, env):
    """The expression with Python's ints; None if it divides by zero."""
    try:
        return compute(expression, lambda leaf: env.get(leaf, leaf))
    except ZeroDivisionError:
        return None


@settings(max_examples=600, deadline=None)
@given(expressions, envs)
def test_normal_form_computes_like_python_ints(expression, env):
    dim, number = dim_of(expression), number_of(expression, env)
    if dim is None:
        assert number is None
    elif number is not None:
        assert dim.evaluate(env) == number
        assert dim.substitute(env) == number
        assert type(dim.evaluate(env)) is int


@settings(max_examples=300, deadline=None)
@given(expressions, expressions, envs)
def test_equal_dims_have_equal_sizes(left, right, env):
    a, b = dim_of(left), dim_of(right)
    if a is None or b is None:
        return
    numbers = number_of(left, env), number_of(right, env)
    if a == b:
        assert hash(a) == hash(b)
        if None not in numbers:
            assert numbers[0] == numbers[1]
    # The other way round: polynomials are told apart by the normal form alone.
    assert (a - b == 0) == (a == b)


@settings(max_examples=300, deadline=None)
@given(expressions)
def test_text_reads_back(expression):
    dim = dim_of(expression)
    if dim is not None:
        assert parse_dim(str(dim)) == dim
        assert str(parse_dim(str(dim))) == str(dim)
        assert eval(repr(dim), {"Dim": Dim}) == dim
        assert pickle.loads(pickle.dumps(dim)) == dim
        assert type(copy.deepcopy(dim)) is type(dim)


@settings(max_examples=300, deadline=None)
@given(expressions, expressions, envs)
def test_substituting_a_dim_is_computing_with_it(expression, inner, env):
    dim, replacement = dim_of(expression), dim_of(inner)
    size = None if replacement is None else number_of(inner, env)
    if dim is None or replacement is None or size is None:
        return
    number = number_of(expression, {**env, "x": size})
    if number is not None:
        assert dim.substitute({"x": replacement}).evaluate(env) == number


SYMBOLIC_CASES = [
    *["x + 1", "x * y", "(x + 7) // 8", "((x + 7) // 8) * 8", "x * x * y - y * 3 + 2"],
    *["(x - 9) // 2", "7 // x", "(x // 2) // y", "(0 - x) // 4", "x * y // (x + y)", "5", "y"],
]


def test_evaluation_with_jax_symbolic_dims():
    """Sizes known to jax.export by name become the numbers that plain ints give."""
    dims = [parse_dim(case) for case in SYMBOLIC_CASES]
    n, m = jax.export.symbolic_shape("n, m")

    def sizes(array):
        env = dict(zip(("x", "y"), array.shape, strict=True))
        return tuple(jnp.asarray(dim.evaluate(env)) for dim in dims)

    exported = jax.export.export(jax.jit(sizes))(jax.ShapeDtypeStruct((n, m), jnp.float32))
    for shape in ((1, 1), (5, 3), (16, 7)):
        env = dict(zip(("x", "y"), shape, strict=True))
        answers = exported.call(np.zeros(shape, np.float32))
        assert [int(a) for a in answers] == [dim.evaluate(env) for dim in dims]


def test_symbolic_dims_of_jax_stay_symbolic():
    (n,) = jax.export.symbolic_shape("n")
    assert ((x + 1) * 2).evaluate({"x": n}) == n * 2 + 2
    assert (x * 2 - x).evaluate({"x": n}) is n


# ---- construction


def test_a_dim_is_made_by_what_it_is_given():
    assert type(Dim(3)) is type(Dim(np.int32(3))) is type(Dim(np.uint64(3))) is StaticDim
    assert type(Dim(np.int64(3)).dim) is int  # type: ignore[attr-defined]
    assert type(Dim("n")) is SymbolicDim and type(x + 1) is AlgebraicDim
    assert Dim(x) is x and Dim(MAX) + 0 == MAX and Dim(MIN) == MIN


@pytest.mark.parametrize("value", [True, np.True_, 2.0, np.float32(2), None, b"x", [1], (1,)])
def test_other_values_are_no_dims(value):
    with pytest.raises(TypeError, match=r"made from an int, a name or a Dim, not from \w+ "):
        Dim(value)


@pytest.mark.parametrize("name", ["", "2x", "a b", "a-b", "x\n", "\nx", "x + 1", "é", "1"])
def test_malformed_names(name):
    with pytest.raises(ValueError, match="is not the name of a dim: expected a letter"):
        Dim(name)


@pytest.mark.parametrize("number", [MAX + 1, MIN - 1, np.uint64(2**63)])
def test_numbers_beyond_int64(number):
    with pytest.raises(ValueError, match=r"dim -?9\d+ is beyond the int64 range"):
        Dim(number)


def test_classes_refuse_what_is_not_theirs():
    with pytest.raises(TypeError, match="static dim is made from an int, not from SymbolicDim"):
        StaticDim(x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="static dim is made from an int, not from bool True"):
        StaticDim(True)
    with pytest.raises(TypeError, match="symbolic dim is made from a name, not from int 3"):
        SymbolicDim(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="made by arithmetic, like"):
        AlgebraicDim("x")  # type: ignore[arg-type]


def test_dims_are_immutable():
    for dim, name in ((Dim(3), "dim"), (x, "name"), (x + 1, "_terms"), (x, "other")):
        with pytest.raises(AttributeError, match=f"immutable: make a new one .*'{name}'"):
            setattr(dim, name, 4)
    with pytest.raises(AttributeError, match="cannot delete 'name'"):
        del x.name  # type: ignore[attr-defined]
    assert x.name == "x"  # type: ignore[attr-defined]


def test_more_distinct_dims_than_are_kept():
    first, last = Dim(10_000_000), Dim(10_100_000)
    for number in range(10_000_000, 10_100_001):
        Dim(number)
    assert Dim(10_000_000) == first and Dim(10_100_000) == last and first + 100_000 == last


# ---- arithmetic


def test_like_terms_are_collected_where_no_coefficient_is_written():
    assert x + x == x * 2 and str(x + x) == "x * 2"
    assert (x + x) // 2 == x
    assert x * y + y * x == 2 * x * y
    assert (x // 2) + (x // 2) == (x // 2) * 2
    assert (x + 1) * (x + 1) == x * x + 2 * x + 1
    assert -Dim("x") - 4 == -(Dim("x") + 4)


def test_division_floors_and_has_a_reflection():
    assert Dim(-7) // 2 == -4 and Dim(7) // -2 == -4 and -7 // Dim(2) == -4
    assert (x // 2).substitute({"x": -3}) == -2
    assert 7 // x == Dim(7) // x and 0 // x == 0 and 4 // Dim(2) == 2
    assert str(7 // x) == "7 // x" and "y" // x == y // x


def test_factors_common_to_both_sides_of_a_division_are_cancelled():
    assert x // -1 == -x and (x * 2) // -2 == -x
    assert (-x) // (-y) == x // y
    assert x // -2 == (-x) // 2 and x // (y - z) == (-x) // (z - y)
    assert (x * 4 + 4) // 8 == (x + 1) // 2
    assert (x * y + y) // (y * z) == (x + 1) // z
    assert (x * 2 + 2) // (y * 2 + 2) == (x + 1) // (y + 1)
    assert str((x + 1) // (x + 1)) == "(x + 1) // (x + 1)"


def test_numpy_integers_take_part():
    for three in (np.int8(3), np.int64(3), np.uint32(3)):
        assert x + three == three + x == x + 3
        assert x * three == three * x == x * 3
        assert x - three == x - 3 and three - x == 3 - x
        assert three // x == 3 // x and x // three == x // 3
        assert Dim(3) == three


@pytest.mark.parametrize("operand", [True, np.True_, 1.5, np.float64(1), None, [1], b"x", 1j])
def test_other_operands_are_refused(operand):
    for dim in (x, Dim(3), x + 1):
        for op in ("__add__", "__sub__", "__mul__", "__floordiv__"):
            assert getattr(dim, op)(operand) is NotImplemented
        with pytest.raises(TypeError, match=r"unsupported operand|does not support ufuncs"):
            dim - operand
        with pytest.raises(TypeError, match=r"unsupported operand|does not support ufuncs"):
            operand // dim


def test_another_class_may_answer_for_a_dim():
    class Value:
        def __radd__(self, other):
            return "added", other

    assert x + Value() == ("added", x)  # type: ignore[operator]


@pytest.mark.parametrize(
    "overflow",
    [
        lambda: Dim(MAX) + 1,
        lambda: Dim(2**62) * 4,
        lambda: Dim(MIN) - 1,
        lambda: -Dim(MIN),
        lambda: Dim(MIN) // -1,
        lambda: x * 2**62 * 2,
        lambda: (x + MAX) + 1,
        lambda: (x * 4).substitute({"x": 2**62}),
    ],
)
def test_overflow_is_an_error(overflow):
    with pytest.raises(OverflowError, match=r"gave -?\d+, which is beyond the int64 range"):
        overflow()


@pytest.mark.parametrize("dividend", [x, Dim(5), x + 1, Dim(0)])
def test_division_by_zero(dividend):
    for divisor in (0, Dim(0), np.int32(0), x - x):
        with pytest.raises(ZeroDivisionError, match=r"cannot divide dim .* by zero"):
            dividend // divisor


def test_truth_is_being_other_than_zero():
    assert not Dim(0) and Dim(-1) and x and x + 1


def test_only_static_dims_are_ordered():
    assert Dim(2) < 3 <= Dim(3) < np.int64(4) and Dim(3) > 2.5 and max(Dim(2), Dim(5)) == 5
    for compare in (lambda: x < 3, lambda: x >= 3, lambda: Dim(3) > x, lambda: x + 1 <= y):
        with pytest.raises(TypeError, match="have no order before the graph runs"):
            compare()


def test_numbers_of_dims():
    assert int(Dim(-7)) == -7
    with pytest.raises(TypeError, match="dim x has no size before the graph runs"):
        int(x)
    for dim in (x, Dim(1), x + 1):
        with pytest.raises(TypeError, match=r"is not an index; write int\(dim\)"):
            [1, 2][dim]  # type: ignore[call-overload]


# ---- equality


def test_equality_and_hash():
    assert x == "x" and x != "y" and Dim(1) == 1.0 and x + 1 != "x + 1"
    assert hash(Dim(3)) == hash(3) and hash(x) != hash("x")
    assert len({x + y, y + x, x * y, y * x, Dim("x"), x, Dim(2), Dim(1) + 1}) == 4


def test_hash_of_an_expression_is_the_same_in_every_order_of_building():
    a = (x + 1) // y + x * y * z - 4
    b = -4 + z * y * x + (1 + x) // y
    assert a == b and hash(a) == hash(b) and str(a) == str(b)


# ---- evaluation


def test_unbound_names():
    with pytest.raises(UnboundDimError, match=r"dim 'y' has no size .*known: x, n\)") as caught:
        (x * y).evaluate({"x": 1, "n": 2})
    assert isinstance(caught.value, KeyError)
    with pytest.raises(KeyError, match=r"dim 'x' has no size here .*known: none"):
        x.evaluate({})
    assert (x - x + y).evaluate({"y": 4}) == 4


def test_evaluation_by_zero():
    with pytest.raises(ZeroDivisionError, match=r"dim 7 // \(y \+ -1\) divides by zero: y \+ -1"):
        (x + 7 // (y - 1)).evaluate({"x": 2, "y": 1})


@pytest.mark.parametrize("size", [True, 2.0, "n", None, np.float32(1)])
def test_sizes_are_integers(size):
    for dim in (x, x + 1):
        with pytest.raises(TypeError, match=r"dim 'x' is given the size .*: expected an int"):
            dim.evaluate({"x": size})


def test_sizes_may_be_numpy_integers():
    assert type((x * 2).evaluate({"x": np.int8(100)})) is int
    assert (x * 2).evaluate({"x": np.int8(100)}) == 200


def test_substitution_is_simultaneous():
    assert (x - y).substitute({"x": "y", "y": "x"}) == y - x
    assert (x // y).substitute({"x": y * y}) == y
    assert (x + 1).substitute({"n": 3}) == x + 1
    with pytest.raises(TypeError, match="made from an int, a name or a Dim, not from float"):
        x.substitute({"x": 1.5})  # type: ignore[dict-item]


def test_parameters_are_given_once():
    assert [p.name for p in ((x + 1) // z + z * x * x).parameters] == ["x", "z"]
    assert list(x.parameters) == [x] and list(Dim(3).parameters) == []


# ---- text


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (x - 1, "x + -1"),
        (10 - x, "(x * -1) + 10"),
        (x * y + x + y + 1, "(x * y) + x + y + 1"),
        (2 * x * y + 3, "(x * y * 2) + 3"),
        (y - x, "(x * -1) + y"),
        ((x // 2) * (y // 3), "(x // 2) * (y // 3)"),
        (y * (x // 2), "(x // 2) * y"),
        (x // (y // z), "x // (y // z)"),
        ((x + y) // (z + 1) * 3 - x, "(((x + y) // (z + 1)) * 3) + (x * -1)"),
        (x * x * x * 2 + x * x + x + 1, "(x * x * x * 2) + (x * x) + x + 1"),
        (x // 2 + x // 2 * y, "(x // 2) + ((x // 2) * y)"),
    ],
)
def test_text(dim, text):
    assert str(dim) == f"{dim}" == text
    assert parse_dim(text) == dim


@pytest.mark.parametrize(
    ("text", "problem", "column"),
    [
        ("", "expected a name, a number or '\\(', found the end", 1),
        ("x +", "expected a name, a number or '\\(', found the end", 4),
        ("x y", "expected an operator or the end, found 'y'", 3),
        ("2x", "expected an operator or the end, found 'x'", 2),
        ("x / y", "unexpected '/'", 3),
        ("(x + 1", "expected '\\)', found the end", 7),
        ("x + $", "unexpected '\\$'", 5),
        ("x ** 2", "expected a name, a number or '\\(', found '\\*'", 4),
        ("x + 1)", "expected an operator or the end, found '\\)'", 6),
        ("x // (y - y)", "cannot divide dim x by zero", 3),
        ("9223372036854775808", "beyond the int64 range", 1),
        ("x + " + "9" * 5000, "a number beyond the int64 range", 5),
        ("(" * 101 + "x" + ")" * 101, "more than 100 nested parentheses", 101),
        ("x.y", "unexpected '\\.'", 2),
    ],
)
def test_bad_text(text, problem, column):
    with pytest.raises(ValueError, match=f"cannot read dim .*: .*{problem}.* at column {column}$"):
        parse_dim(text)
    with pytest.raises(ValueError, match=f"at column {column + 10}$"):
        parse_dim(text, column=11)


def test_text_that_a_person_writes():
    assert parse_dim(" 2*x - (y-1)//--3 ") == 2 * x - (y - 1) // 3
    assert parse_dim("-9223372036854775808") == MIN
    assert parse_dim("class + None") == Dim("class") + Dim("None")
    assert parse_dim("-x // 2") == (-x) // 2


def test_importing_starts_no_backend():
    program = (
        "import sys, maxjax.graph.dim, jax; from jax._src import xla_bridge; "
        "sys.exit(bool(xla_bridge._backends) or jax.config.jax_enable_x64)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
