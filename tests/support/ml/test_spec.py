# SPDX-License-Identifier: Apache-2.0
"""Specs: a shape and an element type in 16 bytes, and in one word of text."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import maxjax.dtype
from maxjax.support.ml import DType, TensorRankStyle, TensorShape, TensorSpec, extended

EDGES = [-1, 0, 1, 127, 128, 32767, 32768, 2**31 - 1, 2**31, 2**62]
CODES = [code for code in range(256) if DType.is_valid(code)]
dims = st.lists(st.sampled_from(EDGES), max_size=8).map(tuple)
dtypes = st.sampled_from(CODES).map(DType)


class MyDType(DType):
    kIndex = extended(0, "index", width=64)
    kBox = extended(1, "x1", width=8)


class MySpec(TensorSpec):
    __slots__ = ()
    kinds = MyDType


@settings(max_examples=500)
@given(dims, dtypes)
def test_round_trips(sizes, dtype) -> None:
    spec = TensorSpec(sizes, dtype)
    assert (spec.dims, spec.dtype, spec.shape) == (sizes, dtype, TensorShape(sizes))
    text = "x".join([*("?" if d == -1 else str(d) for d in sizes), dtype.name])
    assert str(spec) == text
    assert spec.to_bytes()[:15] == TensorShape(sizes).to_bytes()[:15]
    assert spec.to_bytes()[15] == spec.auxiliary == dtype.value
    for again in (
        TensorSpec.parse(text),
        TensorSpec.from_bytes(spec.to_bytes()),
        pickle.loads(pickle.dumps(spec)),
    ):
        assert again == spec and hash(again) == hash(spec)


@settings(max_examples=200)
@given(dims, dims, dtypes, dtypes)
def test_equal_iff_both_parts_are(a, b, s, t) -> None:
    assert (TensorSpec(a, s) == TensorSpec(b, t)) == (a == b and s is t)
    assert TensorSpec(a, s) == TensorSpec(a, s)
    assert (TensorSpec(a, s) < TensorSpec(b, t)) == ((len(a), a, s.value) < (len(b), b, t.value))


@pytest.mark.parametrize("code", CODES)
def test_every_type_has_a_text(code: int) -> None:
    dtype = DType(code)
    for shape in ("", "1", "?", "*", "1x2x3x4", "0x10"):
        text = f"{shape}x{dtype.name}" if shape else dtype.name
        spec = TensorSpec.parse(text)
        assert str(spec) == text and spec.dtype is dtype
        assert spec.shape == TensorShape.parse(shape)
        assert len(spec.to_bytes()) == 16


def test_what_a_type_may_be_given_as() -> None:
    spec = TensorSpec([2, 3], DType.f32)
    for dtype in ("f32", np.float32, np.dtype("float32"), maxjax.dtype.DType.float32):
        assert TensorSpec([2, 3], dtype) == spec == TensorSpec(TensorShape([2, 3]), dtype)
    assert spec.with_dtype("bf16") == TensorSpec([2, 3], "bf16")
    assert spec.with_auxiliary(80) == TensorSpec([2, 3], "bf16")
    assert TensorSpec(TensorRankStyle.kDynamicallyRanked, "f32") == TensorSpec.parse("*xf32")


def test_a_spec_is_no_shape() -> None:
    shape, spec = TensorShape([2]), TensorSpec([2], "f32")
    assert spec != shape and shape != spec and spec.shape == shape
    assert isinstance(spec, TensorShape) and type(spec.shape) is TensorShape
    assert spec.shape.to_bytes() == shape.to_bytes()
    with pytest.raises(TypeError, match="not supported"):
        _ = spec < shape
    assert shape.is_refined_by(spec) and spec.is_refined_by(shape)


def test_size_in_bytes() -> None:
    for text, size in (
        ("1x2x3x4xbf16", 48),
        ("f64", 8),
        ("9xui1", 2),
        ("3xf6e2m3fn", 3),
        ("9xbool", 9),
        ("3xcomplex_si256", 192),
        ("?x2xf32", -1),
        ("*xf32", -1),
        ("0x?xf32", 0),
        ("9223372036854775807xsi8", 2**63 - 1),
    ):
        assert TensorSpec.parse(text).size_in_bytes == size, text
    for text, error in (
        ("4611686018427387904xsi16", "elements of si16 take more than 9223372036854775807"),
        ("4611686018427387904x2xui1", "has 9223372036854775808 elements, more than"),
        ("3xextended_7", "an element of extended_7 has no known size"),
    ):
        with pytest.raises(
            ValueError, match=f"the spec {text}:? .*{error}|the spec {text} {error}"
        ):
            _ = TensorSpec.parse(text).size_in_bytes


@pytest.mark.parametrize(
    ("text", "piece", "at", "reason"),
    [
        ("", "", 0, "a spec ends in an element type, as in 4xf32"),
        ("1x2x", "", 4, "a spec ends in an element type"),
        ("1x2", "2", 2, "there is no element type '2'"),
        ("*", "*", 0, "there is no element type '*'"),
        ("4xf33", "f33", 2, "there is no element type 'f33'; there are bool, "),
        ("4xF32", "F32", 2, "there is no element type 'F32'"),
        ("4xf32 ", "f32 ", 2, "there is no element type 'f32 '"),
        ("4xf32x2", "2", 6, "there is no element type '2'"),
        ("4xcomplex_si1", "complex_si1", 2, "there is no element type 'complex_si1'"),
        ("2x4xcomplex_complex_f32", "complex_f32", 12, ""),
        ("xf32", "", 0, "there is no dim where one is expected"),
        ("1xxf32", "", 2, "there is no dim where one is expected"),
        ("-1xf32", "-1", 0, "a dim is not negative; a dynamic one is written ?"),
        ("batchxf32", "batch", 0, "a dim is a number or ?"),
        ("f32xf32", "f32", 0, "a dim is a number or ?"),
        ("1x*xf32", "*", 2, "* is a dynamic rank"),
        ("1x1x1x1x1x1x1x1x9xf32", "9", 16, "a rank is at most 8"),
        ("éxf32", "é", 0, "a dim is a number or ?"),
        ("4x99999999999999999999xf32", "99999999999999999999", 2, "a dim is at most"),
        ("4xextended_1", "extended_1", 2, "there is no element type 'extended_1'"),
    ],
)
def test_text_that_is_no_spec(text, piece, at, reason) -> None:
    with pytest.raises(ValueError, match="no spec: ") as caught:
        TensorSpec.parse(text)
    said = str(caught.value)
    assert reason in said
    if reason:
        assert f"the piece {piece!r} (" in said and f") at byte {at}: " in said


@given(st.text(alphabet="014x?*-f32complex_b", max_size=16))
def test_any_text_is_read_or_refused(text) -> None:
    try:
        spec = TensorSpec.parse(text)
    except ValueError as e:
        assert "no spec: " in str(e)
    else:
        assert TensorSpec.parse(str(spec)) == spec


def test_parts_that_are_none() -> None:
    with pytest.raises(ValueError, match="there is no element type 'f33'"):
        TensorSpec([1], "f33")
    with pytest.raises(TypeError, match="expected the name of an element type"):
        TensorSpec([1], 81)
    with pytest.raises(ValueError, match="dim 0 of a shape is -3"):
        TensorSpec([-3], "f32")
    with pytest.raises(TypeError, match="the text of a spec is a string"):
        TensorSpec.parse(None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="no element type has the value 0"):
        TensorSpec([1], "f32").with_auxiliary(0)
    with pytest.raises(ValueError, match="byte 15 of a stored spec: no element type has the value"):
        TensorSpec.from_bytes(TensorShape([1]).to_bytes())
    with pytest.raises(ValueError, match="byte 14 of a stored shape"):
        TensorSpec.from_bytes(bytes(14) + b"\7\x51")


def test_types_of_ones_own() -> None:
    spec = MySpec.parse("2xindex")
    assert (str(spec), spec.dtype, spec.size_in_bytes) == ("2xindex", MyDType.kIndex, 16)
    assert MySpec.parse("2xcomplex_index").size_in_bytes == 32
    assert MySpec.from_bytes(spec.to_bytes()) == spec
    # A name that begins like a dim: the longest name wins.
    assert str(MySpec.parse("2xx1")) == "2xx1" and MySpec.parse("x1").rank == 0
    with pytest.raises(ValueError, match="no spec: '2xindex'"):
        TensorSpec.parse("2xindex")
    assert str(TensorSpec.from_bytes(spec.to_bytes())) == "2xextended_2"


def test_all_pairs_of_edges() -> None:
    for sizes in itertools.product(EDGES, repeat=2):
        spec = TensorSpec(sizes, "complex_f32")
        assert TensorSpec.parse(str(spec)) == spec and len(spec.to_bytes()) in (16, 32)
