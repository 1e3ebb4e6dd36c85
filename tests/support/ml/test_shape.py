# SPDX-License-Identifier: Apache-2.0
"""Shapes: each has one form of 16 bytes, and text and bytes give it back."""

import copy
import itertools
import math
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxjax.support.ml import RepKind, TensorRankStyle, TensorShape, kMaxRank

EDGES = [-1, 0, 1, 127, 128, 32767, 32768, 2**31 - 1, 2**31, 2**62]
DYNAMIC = TensorShape(TensorRankStyle.kDynamicallyRanked)
dims = st.lists(st.sampled_from(EDGES), max_size=8).map(tuple)
# What neighbours on the edges are, and everything between.
any_dims = st.lists(
    st.one_of(st.sampled_from(EDGES), st.integers(-1, 200), st.integers(0, 2**63 - 1)), max_size=8
).map(tuple)


def representation(sizes):
    """What the issue says, in words of this test."""
    limits = [2**31 - 1] * 3 + [127]
    if len(sizes) <= 4 and all(d <= m for d, m in zip(sizes, limits, strict=False)):
        return RepKind.k32
    if len(sizes) <= 6 and all(d <= 32767 for d in sizes):
        return RepKind.k16
    return RepKind.kOutOfLine


def check(sizes):
    shape = TensorShape(sizes)
    assert shape.dims == sizes == tuple(shape) and shape.rank == len(shape) == len(sizes)
    assert shape.representation is representation(sizes)
    stored = shape.to_bytes()
    assert len(stored) == 16 + (8 * len(sizes) if shape.representation is RepKind.kOutOfLine else 0)
    assert stored[13:16] == bytes([len(sizes), shape.representation, 0])
    assert str(shape) == "x".join("?" if d == -1 else str(d) for d in sizes)
    for again in (
        TensorShape.parse(str(shape)),
        TensorShape.from_bytes(stored),
        pickle.loads(pickle.dumps(shape)),
        copy.deepcopy(shape),
        TensorShape([None if d == -1 else np.int64(d) for d in sizes]),
    ):
        assert again == shape and hash(again) == hash(shape) and again.to_bytes() == stored


def test_every_pair_of_edges_and_every_one_at_each_place() -> None:
    for rank in range(3):
        for sizes in itertools.product(EDGES, repeat=rank):
            check(sizes)
    for rank in range(3, 9):
        for place, size in itertools.product(range(rank), EDGES):
            check((*(1,) * place, size, *(1,) * (rank - place - 1)))


@settings(max_examples=500)
@given(dims)
def test_round_trips_on_the_edges(sizes) -> None:
    check(sizes)


@given(any_dims)
def test_round_trips_elsewhere(sizes) -> None:
    check(sizes)


@settings(max_examples=300)
@given(dims, dims)
def test_equal_iff_the_dims_are(a, b) -> None:
    left, right = TensorShape(a), TensorShape(b)
    assert (left == right) == (a == b) == (left.to_bytes() == right.to_bytes())
    assert (left != right) == (a != b)
    assert (left < right) == ((len(a), a) < (len(b), b))
    assert (left >= right) == ((len(a), a) >= (len(b), b))


def test_a_dynamic_rank() -> None:
    assert (str(DYNAMIC), DYNAMIC.rank, DYNAMIC.has_rank()) == ("*", -1, False)
    assert TensorShape.parse("*") == DYNAMIC == TensorShape.from_bytes(DYNAMIC.to_bytes())
    assert DYNAMIC.to_bytes() == bytes(13) + b"\xff\0\0"
    assert TensorShape([]) != DYNAMIC and TensorShape([]) > DYNAMIC
    assert DYNAMIC.num_elements == -1 and not DYNAMIC.is_static() and bool(DYNAMIC)
    for call in (lambda: DYNAMIC.dims, lambda: len(DYNAMIC), lambda: list(DYNAMIC)):
        with pytest.raises(ValueError, match=r"the shape \* has no known number of dims"):
            call()


def test_constants() -> None:
    assert (kMaxRank, TensorShape.kMaxRank, TensorShape.kDynamicDimensionValue) == (8, 8, -1)
    assert TensorShape.kDynamicRankValue == -1
    assert TensorRankStyle.kStaticallyRanked.value == 0
    assert TensorShape(TensorRankStyle.kStaticallyRanked) == TensorShape([])
    assert str(TensorShape([])) == "" and TensorShape.parse("") == TensorShape([])


def test_the_forms_byte_by_byte() -> None:
    k32 = TensorShape([1, -1, 2**31 - 1, 127])
    assert k32.to_bytes() == struct.pack("<iiibBBB", 1, -1, 2**31 - 1, 127, 4, 0, 0)
    k16 = TensorShape([1, 2, 3, 4, -1, 32767])
    assert k16.to_bytes() == struct.pack("<6hbBBB", 1, 2, 3, 4, -1, 32767, 0, 6, 1, 0)
    out = TensorShape([2**31, -1])
    assert out.to_bytes() == bytes(13) + b"\2\2\0" + struct.pack("<2q", 2**31, -1)


def test_the_auxiliary_byte_takes_no_part() -> None:
    for sizes in ((1, 2), (1,) * 6, (2**40,)):
        shape = TensorShape(sizes)
        other = shape.with_auxiliary(255)
        assert other == shape and hash(other) == hash(shape)
        assert other.auxiliary == 255 and other.to_bytes()[15] == 255
        assert TensorShape.from_bytes(other.to_bytes()).auxiliary == 255
    with pytest.raises(ValueError, match="is a byte, and 256 is none"):
        TensorShape([]).with_auxiliary(256)


@given(dims)
def test_number_of_elements(sizes) -> None:
    expected = 0 if 0 in sizes else -1 if -1 in sizes else math.prod(sizes)
    shape = TensorShape(sizes)
    assert shape.is_static() == (-1 not in sizes)
    if expected < 2**63:
        assert shape.num_elements == expected
    else:
        with pytest.raises(ValueError, match=f"{shape} has {expected} elements, more than 9223"):
            _ = shape.num_elements


def test_number_of_elements_at_the_limit() -> None:
    assert TensorShape([2**63 - 1]).num_elements == 2**63 - 1
    with pytest.raises(ValueError, match="has 9223372036854775808 elements"):
        _ = TensorShape([2**62, 2]).num_elements
    assert TensorShape([2**62, 2**62, 0]).num_elements == 0


# ---------------------------------------------------------------- refinement


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        ("", "", None),
        ("2x3", "2x3", None),
        ("?x3", "2x3", None),
        ("?", "0", None),
        ("*", "2x3", None),
        ("*", "", None),
        ("2x3", "3x3", "dim 0 is 2 and not 3"),
        ("2x?", "2x?", "dim 1 of the latter is not known"),
        ("2x3", "2x?", "dim 1 of the latter is not known"),
        ("*", "2x?", "dim 1 of the latter is not known"),
        ("2x3", "2", "the rank is 2 and not 1"),
        ("*", "*", "the rank of the latter is not known"),
        ("2", "*", "the rank of the latter is not known"),
    ],
)
def test_refinement(ours: str, theirs: str, reason: str | None) -> None:
    a, b = TensorShape.parse(ours), TensorShape.parse(theirs)
    assert a.is_refined_by(b) == (reason is None)
    if reason is None:
        a.check_refined_by(b)
    else:
        with pytest.raises(ValueError, match="is not refined by") as caught:
            a.check_refined_by(b)
        assert str(caught.value) == f"the shape {ours} is not refined by {theirs}: {reason}"


def test_only_shapes_refine() -> None:
    with pytest.raises(TypeError, match=r"expected a TensorShape, got \(2, 3\)"):
        TensorShape([2, 3]).is_refined_by((2, 3))  # pyright: ignore[reportArgumentType]


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("text", "piece", "coded", "at", "reason"),
    [
        ("1x2x", "", "empty", 4, "there is no dim where one is expected"),
        ("x1", "", "empty", 0, "there is no dim where one is expected"),
        ("1xx2", "", "empty", 2, "there is no dim where one is expected"),
        ("x", "", "empty", 0, "there is no dim where one is expected"),
        ("1x2y", "2y", "bytes 32 79", 2, "a dim is a number or ?"),
        ("1x-2", "-2", "bytes 2d 32", 2, "a dim is not negative; a dynamic one is written ?"),
        ("-1", "-1", "bytes 2d 31", 0, "a dim is not negative"),
        ("1x+2", "+2", "bytes 2b 32", 2, "a dim is a number or ?"),
        ("1x 2", " 2", "bytes 20 32", 2, "a dim is a number or ?"),
        ("1x2\n", "2\n", "bytes 32 0a", 2, "a dim is a number or ?"),
        ("1_0", "1_0", "bytes 31 5f 30", 0, "a dim is a number or ?"),
        ("1.5", "1.5", "bytes 31 2e 35", 0, "a dim is a number or ?"),
        ("1x*", "*", "bytes 2a", 2, "* is a dynamic rank, with no dims beside it"),
        ("1x??", "??", "bytes 3f 3f", 2, "a dim is a number or ?"),
        ("1X2", "1X2", "bytes 31 58 32", 0, "a dim is a number or ?"),
        ("٣x1", "٣", "bytes d9 a3", 0, "a dim is a number or ?"),
        ("1xéx٣", "é", "bytes c3 a9", 2, "a dim is a number or ?"),
        ("²", "²", "bytes c2 b2", 0, "a dim is a number or ?"),
        ("1x\ud800", "\ud800", "bytes ed a0 80", 2, "a dim is a number or ?"),
        ("9223372036854775808", "9223372036854775808", "bytes 39 32 32 33", 0, "a dim is at most"),
        ("1x2x3x4x5x6x7x8x9", "9", "bytes 39", 16, "dim 8 is too many, a rank is at most 8"),
    ],
)
def test_text_that_is_no_shape(text, piece, coded, at, reason) -> None:
    with pytest.raises(ValueError, match="no shape: ") as caught:
        TensorShape.parse(text)
    said = str(caught.value)
    assert f"the piece {piece!r} ({coded}" in said and f") at byte {at}: {reason}" in said


def test_numbers_may_begin_with_zeros_and_be_long() -> None:
    assert TensorShape.parse("007x0x00") == TensorShape([7, 0, 0])
    assert TensorShape.parse("0" * 5000 + "1") == TensorShape([1])
    with pytest.raises(ValueError, match="a dim is at most 9223372036854775807") as caught:
        TensorShape.parse("9" * 100_000)
    assert len(str(caught.value)) < 400


@given(st.text(alphabet="0129x?*- f", max_size=12))
def test_any_text_is_read_or_refused(text) -> None:
    try:
        shape = TensorShape.parse(text)
    except ValueError as e:
        assert "no shape: " in str(e)
    else:
        assert TensorShape.parse(str(shape)) == shape


def test_dims_that_are_none() -> None:
    for bad in (-2, -(2**63), 2**63, 2**200):
        with pytest.raises(ValueError, match=f"dim 1 of a shape is {bad}; a size is from 0"):
            TensorShape([1, bad])
    for bad in (1.0, "1", True, np.float32(1), np.bool_(True), [1]):
        with pytest.raises(TypeError, match="dim 1 of a shape is a number, or None"):
            TensorShape([1, bad])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="a shape has at most 8 dims, got 9"):
        TensorShape(range(9))
    with pytest.raises(TypeError, match=r"to read text write parse\('1x2'\)"):
        TensorShape("1x2")  # pyright: ignore[reportArgumentType]
    for bad in (None, b"1x2", 3):
        with pytest.raises(TypeError, match="the text of a shape is a string"):
            TensorShape.parse(bad)  # pyright: ignore[reportArgumentType]


def test_a_shape_does_not_change() -> None:
    shape = TensorShape([1])
    with pytest.raises(AttributeError, match="no setting of 'rank'"):
        shape.rank = 3
    with pytest.raises(AttributeError, match="no deleting of '_stored'"):
        del shape._stored
    with pytest.raises(TypeError):
        shape[0] = 3  # pyright: ignore[reportIndexIssue]
    assert shape != (1,) and shape[0] == 1 and shape[-1] == 1


# ---------------------------------------------------------------- damaged bytes


def test_bytes_that_are_no_shape() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes, not 15"):
        TensorShape.from_bytes(bytes(15))
    with pytest.raises(ValueError, match="has 16 bytes, not 17"):
        TensorShape.from_bytes(bytes(17))
    good = bytearray(TensorShape([1, 2]).to_bytes())
    for at, value, error in (
        (13, 5, "byte 13 of a stored shape, its rank, is at most 4 in the form k32, not 5"),
        (14, 3, "byte 14 of a stored shape is 0, 1 or 2, not 3"),
        (14, 1, "byte 14 of a stored shape is 0x01, and the form of '1x0' has 0x00 there"),
        (14, 2, "has 32 bytes, not 16"),
        (3, 0x80, "dim 0 of a stored shape is -2147483647; a size is not negative"),
        (8, 1, "byte 8 of a stored shape is 0x01, and the form of '1x2' has 0x00 there"),
        (12, 1, "byte 12 of a stored shape is 0x01, and the form of '1x2' has 0x00 there"),
        (13, 255, "byte 0 of a stored shape is 0x01, and the form of '\\*' has 0x00 there"),
    ):
        bad = good.copy()
        bad[at] = value
        with pytest.raises(ValueError, match=error):
            TensorShape.from_bytes(bad)
    out = TensorShape([2**40] * 3).to_bytes()
    for bad in (out[:-8], out + bytes(8), out[:1]):
        with pytest.raises(ValueError, match="bytes"):
            TensorShape.from_bytes(bad)
    with pytest.raises(ValueError, match="byte 0 of a stored shape is 0x07"):
        TensorShape.from_bytes(b"\7" + out[1:])
    with pytest.raises(ValueError, match="dim 1 of a stored shape is -9223370937343148032"):
        TensorShape.from_bytes(out[:31] + b"\x80" + out[32:])
    inline = out[:13] + b"\1\2\0" + struct.pack("<q", 5)
    with pytest.raises(ValueError, match="byte 14 of a stored shape is 0x02, and the form of '5'"):
        TensorShape.from_bytes(inline)
    with pytest.raises(TypeError):
        TensorShape.from_bytes("1x2")  # pyright: ignore[reportArgumentType]


@given(st.binary(min_size=16, max_size=80))
def test_any_bytes_are_a_shape_or_refused(data) -> None:
    try:
        shape = TensorShape.from_bytes(data)
    except ValueError:
        return
    assert shape.to_bytes() == data
