# SPDX-License-Identifier: Apache-2.0
"""Filling memory: the right bits, all of them, and never one beyond."""

import mmap
import tracemalloc

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import maxjax.dtype
from maxjax.driver import Accelerator, Buffer, set_virtual_device_count
from maxjax.support.ml import (
    DType,
    extended,
    fill_homogeneous,
    fill_random,
    get_scalar_negative_one,
    get_scalar_one,
)


class MyDType(DType):
    kString = extended(0, "string")
    kF80 = extended(1, "f80", width=80)


VALID = [DType(code) for code in range(256) if DType.is_valid(code)]
WHOLE = [t for t in VALID if t.width >= 8]
WITH_NUMPY = [t for t in WHOLE if t.value in maxjax.support.ml.codes.NUMPY]
GUARD = 0xA5


def guarded(size):
    """Memory with bytes around it that nothing may write, and a check of these."""
    whole = np.full(size + 32, GUARD, np.uint8)

    def check():
        assert (whole[:16] == GUARD).all() and (whole[size + 16 :] == GUARD).all()

    return whole[16 : size + 16], check


# ---------------------------------------------------------------- scalars


@pytest.mark.parametrize("dtype", VALID, ids=str)
@pytest.mark.parametrize(("write", "value"), [(get_scalar_one, 1), (get_scalar_negative_one, -1)])
def test_scalars_of_every_type(dtype, write, value) -> None:
    real = dtype.complex_element if dtype.is_complex() else dtype
    memory, check = guarded(80)
    refused = (
        real.width < 8
        or real.is_extended()
        or (value < 0 and (real.is_bool() or real is DType.f8e8m0fnu))
        or (dtype.is_complex() and real is DType.f8e8m0fnu)
    )
    if refused:
        with pytest.raises(TypeError, match=r"no case for|has no -1|no imaginary part"):
            write(memory, dtype)
        assert (memory == GUARD).all()
        return
    write(memory, dtype)
    check()
    size = real.size_in_bytes()
    written, imaginary = memory[:size], memory[size : dtype.size_in_bytes()]
    assert (memory[dtype.size_in_bytes() :] == GUARD).all() and not imaginary.any()
    if real.is_integer():
        expected = value % 2**real.width
        assert int.from_bytes(written.tobytes(), "little") == expected
    elif real.is_bool():
        assert written.tolist() == [1]
    else:
        assert float(written.view(real.np)[0]) == value


def test_scalars_by_their_bits() -> None:
    for dtype, one, minus_one in (
        ("bf16", 0x3F80, 0xBF80),
        ("f16", 0x3C00, 0xBC00),
        ("f32", 0x3F800000, 0xBF800000),
        ("si16", 1, 0xFFFF),
        ("ui16", 1, 0xFFFF),
        ("complex_bf16", 0x3F80, 0xBF80),
    ):
        for write, bits in ((get_scalar_one, one), (get_scalar_negative_one, minus_one)):
            memory = bytearray(DType.parse(dtype).size_in_bytes())
            write(memory, dtype)
            assert int.from_bytes(memory, "little") == bits


# ---------------------------------------------------------------- one element


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 10, 16, 24, 32, 64])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000, 70_001])
def test_elements_of_any_width(size, count) -> None:
    element = bytes(range(1, size + 1))
    memory, check = guarded(size * count)
    fill_homogeneous(memoryview(memory), element)
    check()
    assert memory.tobytes() == element * count


@given(st.binary(min_size=1, max_size=64), st.integers(0, 50), st.integers(0, 300))
def test_no_more_than_asked_for(element, count, more) -> None:
    memory = bytearray(b"\xa5" * (len(element) * count + more))
    fill_homogeneous(memory, element, num_elements=count)
    assert bytes(memory) == element * count + b"\xa5" * more


@pytest.mark.parametrize("dtype", WITH_NUMPY, ids=str)
def test_numbers_of_every_type(dtype) -> None:
    array = np.zeros(5, dtype.np)
    fill_homogeneous(array, 1)
    one = np.zeros(1, dtype.np)
    get_scalar_one(one) if dtype is not DType.f8e8m0fnu else one.view(np.uint8).fill(127)
    assert array.tobytes() == one.tobytes() * 5
    fill_homogeneous(array, one.tobytes())
    assert array.tobytes() == one.tobytes() * 5


def test_numbers_of_types_that_numpy_lacks() -> None:
    memory = bytearray(64)
    fill_homogeneous(memory, -2, "si128")
    assert bytes(memory) == ((-2) % 2**128).to_bytes(16, "little") * 4
    fill_homogeneous(memory, 2**200, "ui256")
    assert bytes(memory) == (2**200).to_bytes(32, "little") * 2
    fill_homogeneous(memory, 1 - 2j, "complex_si8")
    assert bytes(memory) == b"\x01\xfe" * 32
    fill_homogeneous(memory, 1.5 - 2j, "complex_f32")
    assert np.frombuffer(memory, np.complex64).tolist() == [1.5 - 2j] * 8
    ten = bytearray(30)
    fill_homogeneous(ten, bytes(range(10)), MyDType.kF80)
    assert bytes(ten) == bytes(range(10)) * 3


@pytest.mark.parametrize(
    ("element", "dtype", "kind", "error"),
    [
        (300, "ui8", ValueError, "300 is no ui8"),
        (-1, "ui8", ValueError, "-1 is no ui8"),
        (2**127, "si128", ValueError, "is no si128"),
        (2, "bool", ValueError, "2 is no bool"),
        (1.5, "si8", TypeError, "1.5 is no si8"),
        (True, "si8", TypeError, "True is no si8"),
        (1j, "f32", TypeError, "1j is no f32"),
        ("1", "f32", TypeError, "an element is a number or its bytes, not '1'"),
        (None, "f32", TypeError, "an element is a number or its bytes"),
        ([1, 2], "f32", TypeError, "an element is a number or its bytes"),
        (1.5 + 0j, "complex_si8", ValueError, "is no complex_si8"),
        (b"\x02", "bool", ValueError, "the byte of a bool is 0 or 1, not 2"),
        (b"abc", "f32", ValueError, "an element of f32 has 4 bytes, not 3"),
        (b"a", "si4", TypeError, "si4 takes 4 bits, and memory is filled with whole bytes"),
        (b"a", "f6e2m3fn", TypeError, "f6e2m3fn takes 6 bits"),
        (b"a", MyDType.kString, TypeError, "string has no known size"),
        (b"", None, ValueError, "an element has at least one byte"),
        (1, None, TypeError, "a buffer of bytes has no element type"),
        (b"ab", "f33", ValueError, "there is no element type 'f33'"),
    ],
)
def test_elements_that_are_none(element, dtype, kind, error) -> None:
    memory = bytearray(b"\xa5" * 64)
    with pytest.raises(kind, match=error):
        fill_homogeneous(memory, element, dtype)
    assert bytes(memory) == b"\xa5" * 64


# ---------------------------------------------------------------- memory


def fills(dest, dtype="si16", **more):
    """All four functions, each as a call."""
    return [
        lambda: fill_homogeneous(dest, 3, dtype, **more),
        lambda: fill_random(dest, dtype, **more),
        *([] if more else [lambda: get_scalar_one(dest, dtype)]),
        *([] if more else [lambda: get_scalar_negative_one(dest, dtype)]),
    ]


def test_kinds_of_memory(tmp_path) -> None:
    expected = np.full(6, 3, np.int16)
    file = tmp_path / "file"
    file.write_bytes(bytes(12))
    mapped = np.memmap(file, np.int16, "r+")
    with open(file, "r+b") as f, mmap.mmap(f.fileno(), 0) as raw:
        fill_homogeneous(raw, 2, "si16")
        fill_homogeneous(mapped, 3)
        mapped.flush()
        assert file.read_bytes() == expected.tobytes()
    for dest in (
        np.zeros(6, np.int16),
        np.zeros((2, 3), np.int16),
        np.zeros(6, np.int16)[:],
        np.zeros((8,), np.int16)[1:7],
        bytearray(12),
        memoryview(bytearray(12)),
        memoryview(np.zeros((2, 3), np.int16)),
        Buffer.from_numpy(np.zeros((2, 3), np.int16)),
    ):
        fill_homogeneous(dest, 3, "si16")
        got = dest.to_numpy() if isinstance(dest, Buffer) else dest
        assert bytes(memoryview(got).cast("B")) == expected.tobytes()
    masked = np.ma.masked_array(np.zeros(6, np.int16), [0, 1] * 3)
    fill_homogeneous(masked, 3)
    assert np.array_equal(masked.data, expected)
    scalar = np.zeros((), ml_dtypes.bfloat16)
    get_scalar_one(scalar)
    assert float(scalar) == 1
    fill_homogeneous(np.zeros(0, np.int16), 3)
    fill_random(bytearray(), "f32")
    fill_random(memoryview(np.zeros((0, 3), np.int16)), "f32")


def test_bytes_off_their_alignment() -> None:
    memory = bytearray(33)
    fill_homogeneous(memoryview(memory)[1:], 2**60, "ui64")
    assert bytes(memory) == b"\0" + (2**60).to_bytes(8, "little") * 4


def test_buffers_of_programs_and_of_devices() -> None:
    source = jax.numpy.zeros((2, 3), jax.numpy.bfloat16)
    dest = Buffer.from_jax(source)
    fill_homogeneous(dest, 1.5)
    assert dest.to_numpy().astype(np.float32).tolist() == [[1.5] * 3] * 2
    assert np.asarray(source, np.float32).tolist() == [[0] * 3] * 2
    get_scalar_one(dest)
    assert dest.to_numpy().astype(np.float32).tolist() == [[1, 1.5, 1.5], [1.5] * 3]
    fill_random(dest, seed=5)
    host = np.zeros((2, 3), ml_dtypes.bfloat16)
    fill_random(host, seed=5)
    assert dest.to_numpy().tobytes() == host.tobytes()


def test_buffers_of_accelerators() -> None:
    set_virtual_device_count(1)
    try:
        dest = Buffer.zeros([4], maxjax.dtype.DType.int32, Accelerator(0))
        fill_homogeneous(dest, 7, num_elements=3)
        assert dest.to_numpy().tolist() == [7, 7, 7, 0]
    finally:
        set_virtual_device_count(0)


def test_refused_memory_is_not_written() -> None:
    locked = np.full(6, 9, np.int16)
    locked.flags.writeable = False
    array = np.full((4, 4), 9, np.int16)
    for dest, kind, error in (
        (locked, ValueError, "the ndarray is read-only"),
        (b"0123456789", ValueError, "the bytes is read-only"),
        (memoryview(b"01234567"), ValueError, "the memoryview is read-only"),
        (array[:, 1], ValueError, "the bytes of the ndarray do not lie together"),
        (array.T, ValueError, "do not lie together"),
        (memoryview(bytearray(8))[::2], ValueError, "do not lie together"),
        (Buffer.from_numpy(array)[:, 1], ValueError, "do not lie together"),
        (np.full(3, 9, ">i2"), ValueError, "has the other byte order"),
        (np.full(3, None), TypeError, "holds Python objects"),
        ([1, 2], TypeError, "expected memory that can be written"),
        ("text", TypeError, "expected memory that can be written"),
        (None, TypeError, "expected memory that can be written"),
        (jax.numpy.zeros(3, "int16"), (TypeError, ValueError), "fill_device|read-only"),
    ):
        for call in fills(dest):
            with pytest.raises(kind, match=error):
                call()
    assert (locked == 9).all() and (array == 9).all()


def test_memory_that_is_too_small() -> None:
    memory = bytearray(b"\xa5" * 5)
    for count in (3, -1, 2**62, 2**70):
        for call in fills(memory, num_elements=count):
            with pytest.raises(
                ValueError, match=f"{count} elements of 2 bytes do not fit a buffer"
            ):
                call()
    for call in fills(memory)[:2]:
        with pytest.raises(ValueError, match="5 bytes is no multiple of elements of 2 bytes"):
            call()
    with pytest.raises(ValueError, match="1 elements of 8 bytes do not fit a buffer of 5 bytes"):
        get_scalar_one(memory, "f64")
    with pytest.raises(TypeError):
        fill_random(memory, "ui8", num_elements=1.5)  # pyright: ignore[reportArgumentType]
    assert memory == b"\xa5" * 5


def test_no_memory_besides() -> None:
    dest = np.zeros(8 << 20, np.uint8)
    tracemalloc.start()
    try:
        fill_homogeneous(memoryview(dest), b"0123456789", num_elements=len(dest) // 10)
        fill_random(dest, "f32")
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- at random

N = 40_000


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_random_numbers_of_every_type(dtype) -> None:
    real = dtype.complex_element if dtype.is_complex() else dtype
    count = N * (2 if dtype.is_complex() else 1)
    memory, check = guarded(real.size_in_bytes() * count)
    fill_random(memory, dtype, seed=1)
    check()
    if real.is_integer():
        low, high = (-10 if real.is_signed_integer() else 0), 10
        step = real.size_in_bytes()
        raw = memory.tobytes()
        few = [
            int.from_bytes(raw[i : i + step], "little", signed=low < 0)
            for i in range(0, len(raw), step)
        ]
        counts = np.bincount(np.array(few) - low)
        # Each value as often as all others, and nothing else.
        assert len(counts) == high - low + 1
        expected = count / len(counts)
        assert (abs(counts - expected) < 5 * expected**0.5).all()
    elif real.is_bool():
        assert set(memory.tolist()) == {0, 1} and abs(memory.mean() - 0.5) < 5 * 0.5 / count**0.5
    else:
        values = memory.view(real.np).astype(np.float64)
        if real is DType.f8e8m0fnu:  # powers of two from [0, 1), to which each is rounded
            assert (values < 1).all() and (values > 0).all()
            for power, share in ((0.5, 1 - 0.375), (0.25, 0.375 - 0.1875)):
                assert abs((values == power).mean() - share) < 5 * (share / count) ** 0.5
            return
        low = -1
        assert (values >= low).all() and (values < 1).all()
        middle, spread = (low + 1) / 2, (1 - low) / 12**0.5
        rounding = float(ml_dtypes.finfo(real.np).eps) / 2
        assert abs(values.mean() - middle) < 5 * spread / count**0.5 + rounding * (1 - low) / 4
        assert abs(values.std() / spread - 1) < 0.02 + rounding / 2
        # All parts of the range are reached.
        assert values.min() <= low + 0.01 + rounding and values.max() >= 1 - 0.01 - rounding
        if dtype.is_complex():
            assert abs(np.corrcoef(values[::2], values[1::2])[0, 1]) < 5 / N**0.5


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("si8", -128, 127),
        ("ui8", 0, 255),
        ("ui8", 7, 7),
        ("si64", -(2**63), 2**63 - 1),
        ("ui64", 0, 2**64 - 1),
        ("ui64", 1, 2**64 - 1),
        ("si64", -(2**40), 2**50),
        ("ui64", 5, 5 + 2**32),
        ("si32", -3, 2**31 - 1),
        ("si128", -(2**63), 5),
        ("ui256", 2**63, 2**64 - 1),
    ],
)
def test_bounds_of_integers(dtype, low, high) -> None:
    kind = DType.parse(dtype)
    memory = bytearray(kind.size_in_bytes() * N)
    fill_random(memory, kind, low=low, high=high)
    step = kind.size_in_bytes()
    numbers = [
        int.from_bytes(memory[i : i + step], "little", signed=kind.is_signed_integer())
        for i in range(0, len(memory), step)
    ]
    assert low <= min(numbers) and max(numbers) <= high
    width = high - low
    mean = sum(n - low for n in numbers) / N
    assert abs(mean - width / 2) <= 5 * (width / 12**0.5) / N**0.5 + 1e-9
    if width < 300:
        assert set(numbers) == set(range(low, high + 1))
    else:
        assert len(set(numbers)) > 0.99 * N
        # All bits move.
        changing = 0
        for n in numbers:
            changing |= (n ^ numbers[0]) % 2**64
        assert changing.bit_length() >= width.bit_length() - 1 and changing & 1


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("f32", 0.0, 1e-30),
        ("f32", 1.0, 1.0 + 2**-23),
        ("f32", -3e38, 3e38),
        ("f64", -1.7e308, 1.7e308),
        ("f64", 1e-310, 2e-310),
        ("f64", 0.1, 0.1000000001),
        ("f16", -65504, 65504),
        ("bf16", 1.0, 1.0078125),
        ("bf16", 0.1, 0.3),
        ("f8e4m3fn", 0.9, 1.1),
        ("f8e8m0fnu", 1.0, 16.0),
        ("f8e5m2fnuz", -57344, 57344),
    ],
)
def test_bounds_of_floats(dtype, low, high) -> None:
    kind = DType.parse(dtype)
    array = np.zeros(N, kind.np)
    fill_random(array, low=low, high=high)
    values = array.astype(np.float64)
    assert np.isfinite(values).all() and (values >= low).all() and (values < high).all()


def test_bools_are_true_as_often_as_asked() -> None:
    array = np.zeros(N, np.bool_)
    for probability in (0.0, 1e-3, 0.25, 1.0):
        fill_random(array, probability=probability)
        spread = (probability * (1 - probability) / N) ** 0.5
        assert abs(array.mean() - probability) <= 5 * spread


def test_seeds() -> None:
    def filled(seed, count=N):
        array = np.zeros(count, np.uint64)
        fill_random(array, low=0, high=2**64 - 1, seed=seed)
        return array

    assert np.array_equal(filled(3), filled(3))
    # The beginning is the same for any length.
    assert np.array_equal(filled(3)[:70], filled(3, 70))
    for other in (2, 4, -3, 2**64 + 4, 2**200):
        assert not np.isin(filled(3), filled(other)).any()
    for seed in (1.5, None, "1", True):
        with pytest.raises(TypeError, match="a seed is an integer"):
            fill_random(bytearray(8), "f32", seed=seed)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("dtype", "bounds", "kind", "error"),
    [
        ("ui8", {"low": -1}, ValueError, "the bounds of random ui8 are from 0 to 255"),
        ("ui8", {"high": 256}, ValueError, "not 0 and 256"),
        ("si8", {"low": 5, "high": 4}, ValueError, "the lower one first; not 5 and 4"),
        ("si8", {"low": 11}, ValueError, "not 11 and 10"),
        ("si128", {"high": 2**63}, ValueError, "the bounds of random si128 are from -92233720"),
        ("si8", {"low": 1.5}, TypeError, "the bounds of si8 are integers, not 1.5"),
        ("si8", {"high": True}, TypeError, "the bounds of si8 are integers, not True"),
        ("f32", {"low": 1.0}, ValueError, "not 1.0 and 1.0"),
        ("f32", {"low": float("nan")}, ValueError, "not nan and 1.0"),
        ("f32", {"high": float("inf")}, ValueError, "not -1.0 and inf"),
        ("f16", {"high": 70000}, ValueError, "the bounds of random f16 are from -65504.0 to 65504"),
        ("f8e8m0fnu", {"low": -1}, ValueError, "the bounds of random f8e8m0fnu are from 0.0"),
        ("bf16", {"low": 1.001, "high": 1.002}, ValueError, "there is no bf16 from 1.001 to below"),
        ("f32", {"low": "a"}, TypeError, "the bounds of f32 are numbers, not 'a' and None"),
        ("bool", {"high": 1}, ValueError, "a bool has no bounds"),
        ("bool", {"probability": 1.1}, ValueError, "a probability is from 0 to 1, not 1.1"),
        ("si4", {}, TypeError, "si4 takes 4 bits"),
        ("f4e2m1fn", {}, TypeError, "f4e2m1fn takes 4 bits"),
        (MyDType.kString, {}, TypeError, "string has no known size"),
        (MyDType.kF80, {}, TypeError, "random elements are bools, integers or floats"),
        (None, {}, TypeError, "a buffer of bytes has no element type"),
    ],
)
def test_bounds_that_are_none(dtype, bounds, kind, error) -> None:
    memory = bytearray(b"\xa5" * 80)
    with pytest.raises(kind, match=error):
        fill_random(memory, dtype, **bounds)
    assert memory == b"\xa5" * 80
