# SPDX-License-Identifier: Apache-2.0
"""Specs with names: what is written is read back as the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxjax.graph import Dim
from maxjax.graph.dim import parse_dim
from maxjax.support.ml import DType, NamedSpec, TensorRankStyle, TensorSpec

CODES = [code for code in range(256) if DType.is_valid(code)]
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
tricky = st.sampled_from(
    ["x", "xx", "comple", "complex", "_f32", "f32", "max", "extended_3", "bool"]
)
names = names | tricky
expressions = st.builds(
    lambda a, op, b, n: f"({a} {op} {n}) * {b}",
    names,
    st.sampled_from("+-*/%"),
    names,
    st.integers(0),
)
dims = st.lists(st.one_of(st.integers(-1, 2**63 - 1), names, expressions), max_size=10)
dtypes = st.sampled_from(CODES).map(DType)


@settings(max_examples=500)
@given(dims, dtypes)
def test_round_trips(given_dims, dtype) -> None:
    spec = NamedSpec(given_dims, dtype)
    assert (spec.dims, spec.dtype, spec.rank) == (tuple(given_dims), dtype, len(given_dims))
    again = NamedSpec.parse(str(spec))
    assert again == spec and hash(again) == hash(spec) and str(again) == str(spec)


@given(st.lists(st.integers(-1, 300), max_size=8), dtypes)
def test_numbers_alone_are_written_as_a_spec_is(sizes, dtype) -> None:
    named, spec = NamedSpec(sizes, dtype), TensorSpec(sizes, dtype)
    assert str(named) == str(spec) and named.to_spec() == spec
    assert named.is_static() == spec.is_static()


@pytest.mark.parametrize(
    ("text", "dims", "printed"),
    [
        ("batchx128xf32", ("batch", 128), None),
        ("f32", (), None),
        ("?x4xf32", (-1, 4), None),
        ("(2*batch + 1)x128xf32", ("2*batch + 1", 128), None),
        ("(maxlen)x128xf32", ("maxlen", 128), None),
        ("(batch)x128xf32", ("batch", 128), "batchx128xf32"),
        ("(( batch ))x128xf32", ("batch", 128), "batchx128xf32"),
        ("(128)xf32", (128,), "128xf32"),
        ("((a) * (b))xf32", ("(a) * (b)",), None),
        ("((batch * 2) + 1)xf32", ("(batch * 2) + 1",), None),
        ("maxlenx128xf32", ("ma", "len", 128), "maxlenx128xf32"),
        ("f32xf32", ("f32",), None),
        ("complex_f32xf32", ("comple", "_f32"), None),
        ("complex_f32", (), None),
        ("nxcomplex_f32", ("n",), None),
        ("(x)x(x)xf32", ("x", "x"), None),
        ("ax1x2x3x4x5x6x7x8x9xf32", ("a", *range(1, 10)), None),
    ],
)
def test_texts(text, dims, printed) -> None:
    spec = NamedSpec.parse(text)
    assert spec.dims == dims and str(spec) == (printed or text)


def test_the_dims_of_graphs_fit() -> None:
    batch, maxlen = Dim("batch"), Dim("maxlen")
    for dim in (batch, maxlen, 2 * batch + 1, (batch + 1) * (maxlen - 3), batch // 2, -batch):
        spec = NamedSpec([str(dim), 4], "f32")
        (kept, _) = NamedSpec.parse(str(spec)).dims
        assert parse_dim(str(kept)) == dim
    spec = NamedSpec([str(2 * batch + 1), "batch"], "f32")
    assert spec.to_spec(lambda d: parse_dim(d).evaluate({"batch": 8})) == TensorSpec([17, 8], "f32")


def test_sizes_for_names() -> None:
    spec = NamedSpec.parse("batchx(max)x4xbf16")
    assert spec.names == ("batch", "max") and not spec.is_static()
    assert spec.to_spec() == TensorSpec.parse("?x?x4xbf16")
    assert spec.to_spec({"batch": 2}) == TensorSpec.parse("2x?x4xbf16")
    assert NamedSpec.parse("(a*b)x(b + c2)xf32").names == ("a", "b", "c2")
    with pytest.raises(ValueError, match="dim 0 of a shape is -5"):
        spec.to_spec({"batch": -5})
    with pytest.raises(ValueError, match="at most 8 dims, got 9"):
        NamedSpec(["a"] * 9, "f32").to_spec()


def test_a_dynamic_rank() -> None:
    spec = NamedSpec(TensorRankStyle.kDynamicallyRanked, "f32")
    assert str(spec) == "*xf32" and NamedSpec.parse("*xf32") == spec and spec.rank == -1
    assert spec.to_spec() == TensorSpec.parse("*xf32") and spec.names == ()
    with pytest.raises(ValueError, match=r"the spec \*xf32 has no known number of dims"):
        _ = spec.dims
    assert NamedSpec(TensorRankStyle.kStaticallyRanked, "f32") == NamedSpec([], "f32")


@pytest.mark.parametrize(
    ("text", "piece", "at", "reason"),
    [
        ("batchx", "", 6, "a spec ends in an element type"),
        ("batch", "batch", 0, "there is no element type 'batch'"),
        ("batchxxf32", "", 6, "there is no dim where one is expected"),
        ("xf32", "", 0, "there is no dim where one is expected"),
        ("2ax4xf32", "2a", 0, "a dim is a number or ?"),
        ("a-1xf32", "a-1", 0, "a dim is a number or ?"),
        ("-1xf32", "-1", 0, "a dim is not negative"),
        ("ax*xf32", "*", 2, "* is a dynamic rank, with no dims beside it"),
        ("4x(n + 1xf32", "(n + 1xf32", 2, "a parenthesis is not closed"),
        ("(n))xf32", "(n))", 0, "its parentheses do not fit together"),
        ("(a)bxf32", "(a)b", 0, "its parentheses do not fit together"),
        ("()xf32", "()", 0, "expected a name, or an expression"),
        ("(a$)xf32", "(a$)", 0, "expected a name, or an expression"),
        ("éx4xf32", "é", 0, "a dim is a number or ?"),
        ("(99999999999999999999)xf32", "(99999999999999999999)", 0, "a size is from 0"),
    ],
)
def test_text_that_is_no_spec(text, piece, at, reason) -> None:
    with pytest.raises(ValueError, match="no spec: ") as caught:
        NamedSpec.parse(text)
    said = str(caught.value)
    assert reason in said and f"the piece {piece!r} (" in said and f" at byte {at}: " in said


@given(st.text(alphabet="01x?*()nf32 ", max_size=16))
def test_any_text_is_read_or_refused(text) -> None:
    try:
        spec = NamedSpec.parse(text)
    except ValueError as e:
        assert "no spec: " in str(e)
    else:
        assert NamedSpec.parse(str(spec)) == spec


def test_parts_that_are_none() -> None:
    for bad in (1.5, True, b"a", ["a"]):
        with pytest.raises(TypeError, match="dim 1 of a spec is a number, a name or None, not"):
            NamedSpec([1, bad], "f32")  # pyright: ignore[reportArgumentType]
    for bad in (-2, 2**63, "9" * 40):
        with pytest.raises(ValueError, match=r"dim 1 of a spec is .* a size is from 0"):
            NamedSpec([1, bad], "f32")
    for bad in ("", " ", "?", "(", "a)(b", "a\nb", "é", "1 + 2", "a: b", "a#b"):
        with pytest.raises(ValueError, match=r"dim 1 of a spec is .*; expected a name"):
            NamedSpec([1, bad], "f32")
    with pytest.raises(TypeError, match="to read text write parse"):
        NamedSpec("ab", "f32")
    with pytest.raises(TypeError, match="the text of a spec is a string"):
        NamedSpec.parse(3)  # pyright: ignore[reportArgumentType]
