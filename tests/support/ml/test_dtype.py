# SPDX-License-Identifier: Apache-2.0
"""Element types: every one of the 256 codes, and what subclasses add."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import maxjax.dtype
from maxjax.support.ml import DType, extended

FLOATS = {
    "f4e2m1fn": 64,
    "f6e2m3fn": 65,
    "f6e3m2fn": 66,
    "f8e8m0fnu": 73,
    "f8e3m4": 74,
    "f8e4m3fn": 75,
    "f8e4m3fnuz": 76,
    "f8e5m2": 77,
    "f8e5m2fnuz": 78,
    "f16": 79,
    "bf16": 80,
    "f32": 81,
    "f64": 82,
}
INTEGERS = {
    f"{'s' if signed else 'u'}i{2**log2}": 0b1000_0000 + (log2 << 1) + signed
    for log2 in range(9)
    for signed in (0, 1)
}
WIDTHS = {
    **{name: int(name[2:]) for name in INTEGERS},
    "f4e2m1fn": 4,
    "f6e2m3fn": 6,
    "f6e3m2fn": 6,
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    **{name: 8 for name in FLOATS if name.startswith("f8")},
    "bool": 8,
}
REALS = {**INTEGERS, **FLOATS, "bool": 1}
COMPLEX = {f"complex_{name}": code | 32 for name, code in REALS.items() if WIDTHS[name] >= 8}
EXTENDED = {f"extended_{code}": code for code in range(2, 32)}
NAMED = {**REALS, **COMPLEX, **EXTENDED}
VALID = sorted(NAMED.values())
INVALID = sorted(set(range(256)) - set(VALID))


class MyDType(DType):
    kString = extended(0, "string")
    kIndex = extended(1, "index", width=64)
    kF80 = extended(2, "f80", width=80)
    kTrit = extended(29, "trit", width=2)


def test_the_codes_are_as_many_as_they_should_be() -> None:
    assert len(NAMED) == len(set(NAMED.values())) == 18 + 13 + 1 + (12 + 10 + 1) + 30
    assert len(VALID) + len(INVALID) == 256


@pytest.mark.parametrize("name", NAMED)
def test_a_valid_code_has_a_name_and_parses_back(name: str) -> None:
    dtype = DType(NAMED[name])
    assert (dtype.name, str(dtype), dtype.value, int(dtype)) == (name, name, *[NAMED[name]] * 2)
    assert DType.parse(name) is dtype is DType(NAMED[name]) is DType.of(name)
    assert pickle.loads(pickle.dumps(dtype)) is dtype is copy.deepcopy(dtype)


@pytest.mark.parametrize("code", INVALID)
def test_all_other_codes_are_refused(code: int) -> None:
    assert not DType.is_valid(code)
    with pytest.raises(ValueError, match=rf"no element type has the value {code} \(0b[01]{{8}}\)"):
        DType(code)


def test_classes_follow_the_bits() -> None:
    for name, code in NAMED.items():
        dtype = DType(code)
        is_complex = name.startswith("complex_")
        assert dtype.is_complex() == bool(code & 32) == is_complex
        assert dtype.is_integer() == (name in INTEGERS) == (bool(code & 128) and not is_complex)
        assert dtype.is_signed_integer() == (name in INTEGERS and name[0] == "s")
        assert dtype.is_unsigned_integer() == (name in INTEGERS and name[0] == "u")
        assert dtype.is_float() == (name in FLOATS) == (bool(code & 64) and not is_complex)
        assert dtype.is_bool() == (name == "bool")
        assert dtype.is_extended() == (name in EXTENDED)
        assert DType.is_valid(code)


def test_signed_and_unsigned_differ_in_the_last_bit() -> None:
    for name, code in INTEGERS.items():
        if name[0] == "s":
            assert code == DType.parse("u" + name[1:]).value | DType.mIsSigned


def test_widths_and_sizes() -> None:
    for name, width in WIDTHS.items():
        dtype = DType.parse(name)
        assert dtype.width == width
        for n in (0, 1, 2, 3, 7, 8, 9, 1000):
            assert dtype.size_in_bytes(n) == dtype.size_in_bytes_checked(n) == (n * width + 7) // 8
        if width >= 8:
            whole = DType.get_complex(dtype)
            assert whole.width == 2 * width and whole.complex_element is dtype
            assert whole.size_in_bytes(3) == 6 * dtype.size_in_bytes()
    assert max(DType(c).size_in_bytes() for c in VALID) == DType.kMaxElementSizeInBytes == 64


def test_sizes_that_are_unknown_or_too_large() -> None:
    largest = 2**63 - 1
    assert DType.ui8.size_in_bytes(largest) == DType.ui8.size_in_bytes_checked(largest) == largest
    assert DType.ui8.size_in_bytes(largest + 1) == DType.si16.size_in_bytes(2**62) == -1
    assert DType.ui1.size_in_bytes(8 * largest) == largest
    assert DType.f32.size_in_bytes(-1) == DType(2).size_in_bytes(1) == -1
    with pytest.raises(ValueError, match="4611686018427387904 elements of si16 take more than 922"):
        DType.si16.size_in_bytes_checked(2**62)
    with pytest.raises(ValueError, match=r"number of elements is not known \(-1\)"):
        DType.f32.size_in_bytes_checked(-1)
    with pytest.raises(ValueError, match="an element of extended_2 has no known size"):
        DType(2).size_in_bytes_checked(1)
    with pytest.raises(TypeError):
        DType.f32.size_in_bytes(1.5)  # pyright: ignore[reportArgumentType]


def test_a_bool_is_no_one_bit_integer() -> None:
    assert DType.kBool != DType.ui1
    assert (DType.kBool.size_in_bytes(8), DType.ui1.size_in_bytes(8)) == (8, 1)
    assert DType.get_complex(DType.kBool).value == 33
    with pytest.raises(ValueError, match="there is no complex si1: an element takes 1 bits"):
        DType.get_complex(DType.si1)


def test_complex_of_what_can_not_be() -> None:
    with pytest.raises(ValueError, match="complex_f32 is complex already"):
        DType.get_complex(DType.complex_f32)
    with pytest.raises(ValueError, match="no complex string: an element takes an unknown size"):
        MyDType.get_complex(MyDType.kString)
    with pytest.raises(ValueError, match="f32 is not complex"):
        _ = DType.f32.complex_element


def test_maxjax_shares_the_codes() -> None:
    assert maxjax.dtype.DType.float32.value == DType.f32.value == 81
    for theirs in maxjax.dtype.DType:
        ours = DType.of(theirs)
        assert (ours.value, ours.name) == (theirs.value, theirs.short)
        assert ours.to_maxjax() is theirs
        assert ours.np == theirs.np and ours.width == theirs.size_in_bits
    with pytest.raises(ValueError, match="tensors of a graph can not be of f8e3m4"):
        DType.f8e3m4.to_maxjax()


def test_against_numpy_and_ml_dtypes() -> None:
    without = {"si128", "si256", "ui128", "ui256"}
    for name in REALS:
        dtype = DType.parse(name)
        if name in without or (name in ("si1", "ui1") and not hasattr(ml_dtypes, "int1")):
            with pytest.raises(ValueError, match=f"neither NumPy nor ml_dtypes has {name}"):
                _ = dtype.np
            continue
        assert DType.of(dtype.np) is dtype is DType.of(dtype.np.type)
        if name in INTEGERS:
            signed = name[0] == "s"
            info = ml_dtypes.iinfo(dtype.np)
            assert (info.bits, info.min < 0) == (dtype.width, signed)
            assert dtype.np.name == f"{'' if signed else 'u'}int{dtype.width}"
        elif name in FLOATS:
            assert ml_dtypes.finfo(dtype.np).bits == dtype.width
        assert dtype.np.itemsize == max(1, dtype.width // 8)
    for name in ("complex_f32", "complex_f64"):
        dtype = DType.parse(name)
        assert dtype.np.itemsize == dtype.size_in_bytes() and DType.of(dtype.np) is dtype


def test_what_of_refuses() -> None:
    with pytest.raises(ValueError, match="no element type corresponds to the NumPy dtype <U3"):
        DType.of(np.dtype("U3"))
    with pytest.raises(ValueError, match="corresponds to the NumPy dtype >i4"):
        DType.of(np.dtype(">i4"))
    for other in (81, None, int, 1.5):
        with pytest.raises(TypeError, match="expected the name of an element type"):
            DType.of(other)


@pytest.mark.parametrize("text", ["", "f33", "F32", " f32", "complex_si1", "complex_complex_f32"])
def test_unknown_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"there is no element type '{text}'; there are bool, "):
        DType.parse(text)


@pytest.mark.parametrize("tail", ["1", "32", "02", "-2", "٣", "9" * 5000, ""])
def test_names_of_extended_codes_are_strict(tail: str) -> None:
    with pytest.raises(ValueError, match="there is no element type 'extended_"):
        DType.parse(f"extended_{tail}")


def test_bytes_only() -> None:
    for value in (256, -1, 2**70):
        with pytest.raises(ValueError, match=f"is a byte, and {value} is none"):
            DType(value)
    for value in (True, "f32", 81.0, None):
        with pytest.raises(TypeError, match=r"DType.of\(it\)"):
            DType(value)  # pyright: ignore[reportArgumentType]
    assert DType(np.uint8(81)) is DType.f32


def test_a_type_does_not_change() -> None:
    with pytest.raises(
        AttributeError, match=r"DType.f32 can not be changed: no setting of 'value'"
    ):
        DType.f32.value = 3
    with pytest.raises(AttributeError, match="no deleting of 'name'"):
        del DType.f32.name


# ---------------------------------------------------------------- extensions


def test_subclasses_add_types_and_share_the_others() -> None:
    assert MyDType.kString.value == DType.kFirstExtendedOption == 2
    assert MyDType.parse("string") is MyDType.kString is MyDType(2)
    assert (MyDType.kF80.width, MyDType.kF80.size_in_bytes(2)) == (80, 20)
    assert MyDType.kTrit.value == 31 and MyDType.kTrit.size_in_bytes(5) == 2
    assert MyDType(81) == DType.f32 and hash(MyDType(81)) == hash(DType.f32)
    assert MyDType.of(np.float32) == DType.f32
    assert isinstance(MyDType.f32, DType)
    assert MyDType(10).name == "extended_10"
    assert pickle.loads(pickle.dumps(MyDType.kString)) is MyDType.kString


def test_the_extensions_of_two_classes_differ() -> None:
    class Other(DType):
        kRagged = extended(0, "ragged")

    assert Other.kRagged.value == MyDType.kString.value
    assert Other.kRagged != MyDType.kString != DType(2)
    with pytest.raises(ValueError, match="there is no element type 'string'"):
        Other.parse("string")


def test_subclasses_of_subclasses_add_more() -> None:
    class More(MyDType):
        kResource = extended(7, "resource")

    assert More.parse("string").value == 2 and More.kResource.value == 9
    with pytest.raises(ValueError, match=r"More\.kAgain has the number 0 of 'string'"):
        type("More", (MyDType,), {"kAgain": extended(0, "again")})


def test_complex_of_extensions() -> None:
    whole = MyDType.get_complex(MyDType.kF80)
    assert (whole.name, whole.width, whole.value) == ("complex_f80", 160, 4 | 32)
    assert MyDType.parse("complex_f80") is whole
    assert whole.is_complex() and not whole.is_extended()
    with pytest.raises(ValueError, match="no element type has the value 36"):
        DType(36)


@pytest.mark.parametrize(
    ("offset", "name", "width", "error"),
    [
        (-1, "a", 8, "a number from 0 to 29, not -1"),
        (30, "a", 8, "a number from 0 to 29, not 30"),
        (0, "9a", 8, "'9a' is not the name of a type"),
        (0, "", 8, "'' is not the name of a type"),
        (0, "a b", 8, "'a b' is not the name"),
        (0, "ä", 8, "'ä' is not the name"),
        (0, "complex_a", 8, "begins like the names that DType itself gives"),
        (0, "a", 0, "from 1 to 256 bits wide"),
        (0, "a", 257, "from 1 to 256 bits wide"),
    ],
)
def test_bad_extensions(offset: int, name: str, width: int, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        extended(offset, name, width)


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="there is a type 'f32'"):
        type("Bad", (DType,), {"kA": extended(0, "f32")})
    with pytest.raises(ValueError, match="there is a type 'a'"):
        type("Bad", (DType,), {"kA": extended(0, "a"), "kB": extended(1, "a")})
