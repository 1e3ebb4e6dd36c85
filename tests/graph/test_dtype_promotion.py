# SPDX-License-Identifier: Apache-2.0
"""`promote` and `weak_dtype` against tables of recorded answers, and against arithmetic."""

import enum
import fractions
import itertools
import re
import timeit

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType, finfo
from maxjax.graph.dtype_promotion import promote, weak_dtype

# Recorded from MAX 26.7.0, row beside column; '.' is a ValueError.
NAMES = [
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
]
PAIRS = """
      b  u8 u16 u32 u64  i8 i16 i32 i64 f16  bf f32 f64
     u8  u8 u16 u32 u64   . i16 i32 i64 f16  bf f32 f64
    u16 u16 u16 u32 u64   .   . i32 i64   .   . f32 f64
    u32 u32 u32 u32 u64   .   .   . i64   .   .   . f64
    u64 u64 u64 u64 u64   .   .   .   .   .   .   .   .
     i8   .   .   .   .  i8 i16 i32 i64 f16  bf f32 f64
    i16 i16   .   .   . i16 i16 i32 i64   .   . f32 f64
    i32 i32 i32   .   . i32 i32 i32 i64   .   .   . f64
    i64 i64 i64 i64   . i64 i64 i64 i64   .   .   .   .
    f16 f16   .   .   . f16   .   .   . f16   . f32 f64
     bf  bf   .   .   .  bf   .   .   .   .  bf f32 f64
    f32 f32 f32   .   . f32 f32   .   . f32 f32 f32 f64
    f64 f64 f64 f64   . f64 f64 f64   . f64 f64 f64 f64
"""
CODES = PAIRS.split()[: len(NAMES)]
SMALL = [d for d in DType if d.is_float() and d.size_in_bits <= 8]
WIDE = [DType.float16, DType.bfloat16, DType.float32, DType.float64]
# float8_e8m0fnu has no zero, and reaches 2**127; promoting these is recorded all the same.
RECORDED_LOSSES = [(DType.bool, DType.float8_e8m0fnu), (DType.float8_e8m0fnu, DType.float16)]

# The integers that were tried, and the least and greatest of them that were taken.
INTS = [
    *(0, 1, -1, 2, 127, 128, -128, -129, 255, 256, 257, 300, -256, -257, 448, 449, 2048, 2049),
    *(-2049, 32767, 32768, -32769, 65535, 65536, 2**24, 2**24 + 1, -(2**24) - 1, 2**31 - 1),
    *(2**31, -(2**31) - 1, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63),
    *(-(2**63) - 1, 2**64 - 1, 2**64),
]
TAKEN = {
    "bool": (0, 1),
    "uint8": (0, 255),
    "uint16": (0, 65535),
    "uint32": (0, 4294967295),
    "uint64": (0, 18446744073709551615),
    "int8": (-128, 127),
    "int16": (-2049, 32767),
    "int32": (-16777217, 2147483647),
    "int64": (-2147483649, 9223372036854775807),
    "float16": (-257, 2048),
    "bfloat16": (-256, 256),
    "float32": (-32769, 16777216),
    "float64": (-2147483649, 9007199254740992),
    "float8_e4m3fn": (-257, 448),
    "float8_e5m2": (-32769, 65536),
}

# 'x' was taken, '.' was a ValueError; '-' was not recorded (see the last test of arrays).
SCALARS = [
    *(np.int8(1), np.int8(-1), np.int64(3), np.int64(2**40), np.uint8(200), np.uint64(2**63)),
    *(np.float32(1.5), np.float64(0.1), np.float16(2.0)),
]
ARRAYS = [
    np.array([1, 2], np.int8),
    np.array([1, -2], np.int64),
    np.array([1, 2**33], np.int64),
    np.array([200, 2], np.uint8),
    np.array([1.5, 2.0], np.float32),
    np.array([1.0, 2.0], np.float64),
    np.array([0.5, 1.0], np.float16),
    np.array([1, 300], np.int32),
]
NUMPY = {
    "bool": ("x........", "....---."),
    "uint8": ("x.x.x....", "x..x...."),
    "uint16": ("x.x.x....", "x..x...x"),
    "uint32": ("x.x.x....", "x..x...x"),
    "uint64": ("x.xxxx...", "x.xx...x"),
    "int8": ("xxx......", "xx......"),
    "int16": ("xxx.x....", "xx.x...x"),
    "int32": ("xxx.x....", "xx.x...x"),
    "int64": ("xxxxx....", "xxxx...x"),
    "float16": ("xxx.x.xxx", "xx.xxxxx"),
    "bfloat16": ("xxx.x.xxx", "xx.xxxx."),
    "float32": ("xxx.x.xxx", "xx.xxxxx"),
    "float64": ("xxxxx.xxx", "xxxxxxxx"),
}


def refused(*args):
    with pytest.raises(ValueError, match="cast"):
        promote(*args) if isinstance(args[0], DType) else weak_dtype(*args)


@pytest.mark.parametrize("row", range(len(NAMES)), ids=NAMES)
def test_pairs_as_recorded(row):
    answers = PAIRS.split("\n")[1:-1][row].split()
    for answer, other in zip(answers, NAMES, strict=True):
        a, b = DType[NAMES[row]], DType[other]
        if answer == ".":
            refused(a, b)
        else:
            assert promote(a, b) is promote(b, a) is DType[NAMES[CODES.index(answer)]]


@pytest.mark.parametrize("small", SMALL, ids=repr)
def test_small_floats_go_into_wider_ones_and_nothing_else(small):
    assert promote(small, small) is promote(DType.bool, small) is small
    for wide in WIDE:
        assert promote(small, wide) is promote(wide, small) is wide
    for other in DType:
        if other is not small and other is not DType.bool and other not in WIDE:
            refused(small, other)
            refused(other, small)


@pytest.mark.parametrize("a", DType, ids=repr)
def test_a_promotion_loses_no_value(a):
    """Every value of a dtype of at most 16 bits comes back from the dtype it is promoted to."""
    if a.size_in_bytes > 2:
        return
    bits = np.arange(2**a.size_in_bits, dtype=f"u{a.size_in_bytes}")
    values = np.array([False, True]) if a is DType.bool else bits.view(a.np)
    for b in DType:
        try:
            wide = promote(a, b)
        except ValueError:
            continue
        if (a, wide) in RECORDED_LOSSES:
            continue
        with np.errstate(all="ignore"):
            back, values64 = values.astype(wide.np).astype(a.np), values.astype(np.float64)
            np.testing.assert_array_equal(back.astype(np.float64), values64)


def test_the_message_of_a_refused_pair_names_both_and_a_cast():
    for a, b, target in [
        (DType.int32, DType.float32, "float32"),
        (DType.uint8, DType.int8, "int8"),
        (DType.bfloat16, DType.float64, None),
        (DType.int64, DType.uint64, "int64"),
    ]:
        if target:
            text = (
                f"neither of {a!r} and {b!r} holds every value of the other; "
                rf"cast one first, such as x\.cast\(DType\.{target}\)"
            )
            with pytest.raises(ValueError, match=text):
                promote(a, b)
        else:
            assert promote(a, b) is b


@pytest.mark.parametrize("name", TAKEN)
def test_ints_as_recorded(name):
    least, most = TAKEN[name]
    for value in INTS:
        if least <= value <= most:
            assert weak_dtype(value, DType[name]) is DType[name]
        else:
            refused(value, DType[name])


@pytest.mark.parametrize(
    ("strong", "least", "most"),
    [
        (DType.float16, -(2**11), 2**11),
        (DType.bfloat16, -(2**8), 2**8),
        (DType.float32, -(2**24), 2**24),
        (DType.float64, -(2**53), 2**53),
        (DType.int64, -(2**63), 2**63 - 1),
        (DType.float4_e2m1fn, -6, 6),
        (DType.float6_e2m3fn, -7, 7),
        (DType.float6_e3m2fn, -28, 28),
        (DType.float8_e4m3fnuz, -240, 240),
        (DType.float8_e5m2fnuz, -57344, 57344),
        (DType.float8_e8m0fnu, 1, 2**127),
    ],
    ids=repr,
)
def test_the_edges_of_the_integers_each_dtype_takes(strong, least, most):
    for value in (least, most):
        assert weak_dtype(value, strong) is strong
    for value in (least - 1, most + 1):
        text = f"{value} does not fit {strong!r}, .* from {least} to {most}; cast"
        with pytest.raises(ValueError, match=text):
            weak_dtype(value, strong)


@pytest.mark.parametrize("strong", DType, ids=repr)
def test_python_floats_and_bools(strong):
    for value in (0.0, 1.0, 0.5, 0.1, -2.75, 1e3, 1e300, float("inf"), float("nan")):
        if strong.is_float():
            assert weak_dtype(value, strong) is strong
        else:
            with pytest.raises(ValueError, match=rf"the float {re.escape(repr(value))} .*lose its"):
                weak_dtype(value, strong)
    assert weak_dtype(True, strong) is weak_dtype(False, strong) is strong


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_scalars_and_arrays_as_recorded(name):
    strong = DType[name]
    for operands, answers in zip((SCALARS, ARRAYS), NUMPY[name], strict=True):
        for operand, answer in zip(operands, answers, strict=True):
            if answer == "x":
                assert weak_dtype(operand, strong) is strong
            elif answer == ".":
                refused(operand, strong)


def test_a_float_array_beside_a_bool_or_an_integer_value():
    for strong in (DType.bool, DType.int8, DType.uint64):
        for array in (np.array([1.5]), np.array(1.0, np.float16), jnp.ones(2, jnp.bfloat16)):
            with pytest.raises(ValueError, match=f"an array of b?float.*{strong!r} would lose"):
                weak_dtype(array, strong)


def test_integer_arrays_are_looked_at_value_by_value():
    assert weak_dtype(np.array([0, 1]), DType.bool) is DType.bool
    assert weak_dtype(np.array([[2**11], [-(2**11)]]), DType.float16) is DType.float16
    assert weak_dtype(np.zeros((0, 3), np.int64), DType.uint8) is DType.uint8
    assert weak_dtype(np.array(5), DType.uint8) is DType.uint8
    assert weak_dtype(np.array([-6, 6], np.int8), DType.float4_e2m1fn) is DType.float4_e2m1fn
    assert weak_dtype(np.arange(300)[::128], DType.int16) is DType.int16
    with pytest.raises(ValueError, match="-7 of the array of int8 does not fit float4_e2m1fn"):
        weak_dtype(np.array([-7, 6], np.int8), DType.float4_e2m1fn)
    with pytest.raises(ValueError, match=f"{2**63} of the array of uint64 does not fit int64"):
        weak_dtype(np.array([2**63, 1], np.uint64), DType.int64)
    with pytest.raises(ValueError, match="2 of the array of int64 does not fit bool"):
        weak_dtype(np.array([0, 2]), DType.bool)


def test_subclasses_and_odd_scalars():
    class Three(enum.IntEnum):
        THREE = 3

    assert weak_dtype(Three.THREE, DType.uint8) is DType.uint8
    refused(Three.THREE, DType.bool)
    assert weak_dtype(np.longdouble(1.5), DType.float16) is DType.float16
    assert weak_dtype(ml_dtypes.bfloat16(1.5), DType.float16) is DType.float16
    refused(ml_dtypes.bfloat16(1.5), DType.int32)


class OnlyDLPack:
    """An array of some other library: no dtype, nothing but the protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OwnDType:
    """An array whose dtype is a `DType`, as a buffer's is."""

    def __init__(self, array):
        self.array, self.dtype = array, DType.of(array)

    def to_numpy(self):
        return self.array


@pytest.mark.parametrize("wrap", [OnlyDLPack, OwnDType, jnp.asarray])
def test_arrays_of_other_kinds(wrap):
    ints, floats, bools = (
        wrap(np.array([1, 300], np.int32)),
        wrap(np.array([1.5, 300], np.float32)),
        wrap(np.array([True, False])),
    )
    for strong in (DType.int64, DType.int16, DType.float16, DType.float32):
        assert weak_dtype(ints, strong) is strong
    refused(ints, DType.uint8)
    refused(ints, DType.bfloat16)
    assert weak_dtype(floats, DType.bfloat16) is DType.bfloat16
    refused(floats, DType.int64)
    for strong in DType:
        assert weak_dtype(bools, strong) is strong


@pytest.mark.parametrize(
    "operand",
    [
        *("a", b"x", None, [1, 2], (1, 2), {}, range(2), 1j, fractions.Fraction(1, 2)),
        *(np.complex64(1), np.array([1j, 2]), np.array(["a"]), np.array([1], object)),
        *(np.array([0], "M8[s]"), np.ones(1, np.longdouble), np.float32, DType.int8),
        *(np.dtype("f4"), np.ones(1, ml_dtypes.int4), object()),
    ],
    ids=lambda v: re.sub(r" at 0x\w+", "", repr(v)),
)
def test_what_is_no_operand(operand):
    for strong in (DType.float32, DType.int32, DType.bool):
        with pytest.raises(TypeError, match="expected a graph value, a Python or NumPy number"):
            weak_dtype(operand, strong)


def test_a_numpy_bool_is_no_operand():
    with pytest.raises(TypeError, match=r"numpy.bool_ is not an operand; give .*, here True"):
        weak_dtype(np.bool_(True), DType.float32)


def test_the_other_byte_order_is_refused_with_its_conversion():
    swapped = np.array([1, 2], np.dtype("int32").newbyteorder())
    with pytest.raises(ValueError, match=r"array\.astype\('int32'\)"):
        weak_dtype(swapped, DType.int64)


def test_promotion_is_an_upper_bound_where_it_answers():
    """Associative as far as it is defined, so the order of operands never changes a dtype."""

    def fold(*dtypes):
        out = dtypes[0]
        for d in dtypes[1:]:
            out = promote(out, d)
        return out

    for triple in itertools.combinations(DType, 3):
        answers = set()
        for order in itertools.permutations(triple):
            try:
                answers.add(fold(*order))
            except ValueError:
                continue
        assert len(answers) <= 1, triple


def test_both_are_fast():
    """Graph building calls them for every operand; the bounds are ten times what is usual."""

    def cost(fn, *args):
        return min(timeit.repeat(lambda: fn(*args), number=2000, repeat=7)) / 2000

    assert cost(promote, DType.int8, DType.float32) < 3e-6
    assert cost(weak_dtype, 3, DType.float32) < 10e-6
    assert cost(weak_dtype, 3.5, DType.float32) < 10e-6


def test_int_ranges_of_wide_floats_are_where_integers_stop_being_exact():
    for d in WIDE:
        limit = int(2 / finfo(d).eps)
        exact, beyond = np.array([limit, limit + 1], np.int64).astype(d.np).astype(np.float64)
        assert (exact, beyond) == (limit, limit)
        refused(limit + 1, d)
