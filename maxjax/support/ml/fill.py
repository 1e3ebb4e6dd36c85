# SPDX-License-Identifier: Apache-2.0
"""Filling memory of any element type: with ones, with one element over and over, at random.

The memory is anything that can be written: a NumPy array, a ``bytearray``, a memory map, a
`maxjax.driver.Buffer`. It is taken as bytes; the element type says what they mean. What is
refused is refused before the first byte is written.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from maxjax.support.ml.dispatch import dispatch
from maxjax.support.ml.draws import key_of, plan
from maxjax.support.ml.dtype import DType

__all__ = ["fill_homogeneous", "fill_random", "get_scalar_negative_one", "get_scalar_one"]

# Bytes that are copied at a time: they stay in the processor's nearest cache.
_CHUNK = 65536
# Random elements that are made at a time.
_DRAWN = 16384


@runtime_checkable
class _DriverBuffer(Protocol):
    """What is used of a `maxjax.driver.Buffer`; this layer does not know the class."""

    dtype: Any

    def to_numpy(self) -> npt.NDArray[Any]: ...
    @staticmethod
    def from_numpy(arr: npt.NDArray[Any]) -> Any: ...
    def inplace_copy_from(self, src: Any) -> None: ...


def get_scalar_one(dest: Any, dtype: Any = None) -> None:
    """Writes a single 1 at the beginning of a buffer.

    A complex 1 has an imaginary part of zero bytes.

    Args:
        dest: The buffer.
        dtype: The element type, or what `DType.of` takes; left out, that of the buffer.

    Raises:
        TypeError: The type has no 1, or ``dest`` is no buffer.
        ValueError: ``dest`` is read-only or too small.

    >>> one = bytearray(2)
    >>> get_scalar_one(one, DType.bf16)
    >>> one.hex()
    '803f'
    """
    _write_scalar(dest, dtype, "get_scalar_one", 1)


def get_scalar_negative_one(dest: Any, dtype: Any = None) -> None:
    """Writes a single -1 at the beginning of a buffer; for unsigned integers, all bits.

    Args:
        dest: The buffer.
        dtype: The element type, or what `DType.of` takes; left out, that of the buffer.

    Raises:
        TypeError: The type has no -1, or ``dest`` is no buffer.
        ValueError: ``dest`` is read-only or too small.

    >>> minus_one = np.zeros(2, np.float16)
    >>> get_scalar_negative_one(minus_one)
    >>> minus_one
    array([-1.,  0.], dtype=float16)
    """
    _write_scalar(dest, dtype, "get_scalar_negative_one", -1)


def fill_homogeneous(
    dest: Any, element: Any, dtype: Any = None, *, num_elements: int | None = None
) -> None:
    """Writes one element over and over.

    Types below a byte are refused: how they are packed is not known here. Pack them yourself,
    and fill with ``ui8``.

    Args:
        dest: The buffer.
        element: The bytes of the element, of any number; or a number, where NumPy has the type.
        dtype: The element type, or what `DType.of` takes. Left out, it is that of the buffer; a
            buffer without one is filled with the bytes as they are.
        num_elements: How many; left out, as many as fill the buffer.

    Raises:
        TypeError: The type is smaller than a byte or has no size, or ``dest`` is no buffer.
        ValueError: ``dest`` is read-only, too small, or no multiple of the element; or the
            element is not one of the type.

    >>> memory = bytearray(6)
    >>> fill_homogeneous(memory, b"abc")
    >>> fill_homogeneous(memory, 1, DType.si16, num_elements=1)
    >>> memory.hex(" ")
    '01 00 63 61 62 63'
    """
    kind = _kind(dest, dtype)
    if isinstance(element, bytes | bytearray | memoryview):
        data = bytes(element)
    elif kind is None:
        raise TypeError("a buffer of bytes has no element type; give one, or the element as bytes")
    else:
        data = _number(element, kind)
    if kind is None:
        if not data:
            raise ValueError("an element has at least one byte")
        size = len(data)
    else:
        size = _size(kind)
        if len(data) != size:
            raise ValueError(f"an element of {kind.name} has {size} bytes, not {len(data)}")
        if kind.is_bool() and data[0] > 1:
            raise ValueError(f"the byte of a bool is 0 or 1, not {data[0]}")
    with _opened(dest, size, num_elements) as memory:
        if size == 1:
            memory.fill(data[0])
            return
        chunk = np.frombuffer(data * max(1, _CHUNK // size), np.uint8)
        whole = len(memory) // len(chunk) * len(chunk)
        memory[:whole].reshape(-1, len(chunk))[...] = chunk
        memory[whole:] = chunk[: len(memory) - whole]


def fill_random(
    dest: Any,
    dtype: Any = None,
    *,
    num_elements: int | None = None,
    low: float | None = None,
    high: float | None = None,
    probability: float = 0.5,
    seed: int = 0,
) -> None:
    """Writes random elements: the same ones for the same seed, here and on a device.

    Integers are uniform from ``low`` to ``high``, both included; floats uniform in
    ``[low, high)``, then rounded to their type; the parts of complex numbers are drawn alike.

    Args:
        dest: The buffer.
        dtype: The element type, or what `DType.of` takes; left out, that of the buffer.
        num_elements: How many; left out, as many as fill the buffer.
        low: By default -10 for signed integers, 0 for unsigned ones, -1 for floats.
        high: By default 10 for integers, 1 for floats.
        probability: How often a bool is true.
        seed: Any integer.

    Raises:
        TypeError: The type is none of these, or smaller than a byte; a bound is no number;
            ``dest`` is no buffer.
        ValueError: A bound is beyond the type, or there is no number between them; ``dest`` is
            read-only, too small, or no multiple of the element.

    >>> numbers = np.zeros(6, np.int8)
    >>> fill_random(numbers, low=1, high=3, seed=7)
    >>> numbers
    array([3, 2, 2, 2, 2, 1], dtype=int8)
    """
    kind = _kind(dest, dtype)
    if kind is None:
        raise TypeError("a buffer of bytes has no element type; give one")
    size = _size(kind)
    draw = plan(kind, low, high, probability)
    key = np.uint64(key_of(seed))
    with _opened(dest, size, num_elements) as memory:
        part = draw.dtype.size_in_bytes()
        for start in range(0, len(memory) // part, _DRAWN):
            count = min(_DRAWN, len(memory) // part - start)
            drawn = draw(key, np.arange(start, start + count, dtype=np.uint64))
            if part > 8:
                # Two's complement: the words above repeat the sign.
                words = np.zeros((count, part // 8), np.uint64)
                words[:, 0] = drawn
                if draw.dtype.is_signed_integer():
                    words[:, 1:] = (drawn.view(np.int64) >> 63).view(np.uint64)[:, None]
                drawn = words
            memory[start * part : (start + count) * part] = drawn.reshape(-1).view(np.uint8)


# ---------------------------------------------------------------- elements


def _kind(dest: Any, dtype: Any) -> DType | None:
    """The element type: the one that is given, or that of the buffer."""
    if dtype is not None:
        return dtype if isinstance(dtype, DType) else DType.of(dtype)
    own = getattr(dest, "dtype", None)
    return None if own is None else DType.of(own)


def _size(dtype: DType) -> int:
    """The bytes of an element.

    Raises:
        TypeError: It has none of its own.
    """
    if dtype.width < 0:
        raise TypeError(f"an element of {dtype.name} has no known size")
    if dtype.width % 8:
        raise TypeError(
            f"an element of {dtype.name} takes {dtype.width} bits, and memory is filled with whole "
            "bytes; pack some into bytes, and fill with ui8"
        )
    return dtype.width // 8


def _number(element: Any, dtype: DType) -> bytes:
    """The bytes of a number.

    Raises:
        TypeError, ValueError: It is none, or none of the type.
    """
    if isinstance(element, int) and not isinstance(element, bool) and dtype.is_integer():
        return _exact(element, dtype)  # of any width, which NumPy's are not
    given = np.asarray(element)
    if given.shape != () or given.dtype.kind in "OSUMm":
        raise TypeError(f"an element is a number or its bytes, not {element!r}")
    if dtype.is_bool() or dtype.is_integer():
        if given.dtype.kind not in "iub" or (dtype.is_integer() and given.dtype.kind == "b"):
            raise TypeError(f"{element!r} is no {dtype.name}")
        return _exact(int(given), dtype)
    if given.dtype.kind == "c" and not dtype.is_complex():
        raise TypeError(f"{element!r} is no {dtype.name}")
    if dtype.is_complex():
        part = dtype.complex_element
        value = complex(given)
        if part.is_float():
            return _number(value.real, part) + _number(value.imag, part)
        if not (value.real.is_integer() and value.imag.is_integer()):
            raise ValueError(f"{element!r} is no {dtype.name}")
        return _number(int(value.real), part) + _number(int(value.imag), part)
    return given.astype(dtype.np).tobytes()


def _exact(value: int, dtype: DType) -> bytes:
    """The bytes of an integer or a bool.

    Raises:
        TypeError, ValueError: It is beyond the type, or that is smaller than a byte.
    """
    size, signed = _size(dtype), dtype.is_signed_integer()
    highest = 1 if dtype.is_bool() else 2 ** (dtype.width - signed) - 1
    if not (-highest - 1 if signed else 0) <= value <= highest:
        raise ValueError(f"{value} is no {dtype.name}")
    return value.to_bytes(size, "little", signed=signed)


def _integer_bytes(dtype: DType, value: int) -> bytes:
    return (value & 2**dtype.width - 1).to_bytes(dtype.width // 8, "little")


def _float_bytes(dtype: DType, value: int) -> bytes:
    data = np.array(value, np.float32).astype(dtype.np)
    if float(data) != value:
        raise TypeError(f"{dtype.name} has no {value}")
    return data.tobytes()


def _bool_byte(dtype: DType, value: int) -> bytes:
    if value != 1:
        raise TypeError(f"{dtype.name} has no {value}")
    return b"\x01"


def _is_whole_integer(dtype: DType) -> bool:
    return dtype.is_integer() and dtype.width >= 8


def _is_whole_float(dtype: DType) -> bool:
    return dtype.is_float() and dtype.width >= 8


_scalar = (
    dispatch("the bytes of a scalar")
    .when(DType.kBool, _bool_byte)
    .when(DType.bf16, lambda _, value: (0x3F80 if value > 0 else 0xBF80).to_bytes(2, "little"))
    .when(DType.f16, lambda _, value: (0x3C00 if value > 0 else 0xBC00).to_bytes(2, "little"))
    .when(_is_whole_integer, _integer_bytes)
    .when(_is_whole_float, _float_bytes)
)


def _write_scalar(dest: Any, dtype: Any, what: str, value: int) -> None:
    """Writes 1 or -1 to the beginning of a buffer."""
    kind = _kind(dest, dtype)
    if kind is None:
        raise TypeError("a buffer of bytes has no element type; give one")
    real = kind.complex_element if kind.is_complex() else kind
    if kind.is_complex() and real is DType.f8e8m0fnu:
        raise TypeError(f"{what}: {kind.name} has no imaginary part of 0")
    data = _scalar(real, value)
    if kind.is_complex():
        data += bytes(len(data))
    with _opened(dest, len(data), 1) as memory:
        memory[:] = np.frombuffer(data, np.uint8)


# ---------------------------------------------------------------- memory


@contextlib.contextmanager
def _opened(dest: Any, size: int, num_elements: int | None) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of a buffer that are to be written.

    Args:
        dest: The buffer.
        size: The bytes of an element.
        num_elements: How many elements are written; None for all there are.

    Raises:
        TypeError: It is no buffer, or does not change.
        ValueError: It is read-only, not contiguous, too small, or no multiple of an element.
    """
    staged = None
    if isinstance(dest, _DriverBuffer):
        array = dest.to_numpy()
        if not array.flags.writeable:
            # On a device, or shared with a program's result: filled beside it, then copied in.
            array = staged = np.array(array, order="C")
        memory = _bytes_of(array, dest)
    else:
        memory = _bytes_of(dest, dest)
    if num_elements is None:
        if len(memory) % size:
            raise ValueError(
                f"a buffer of {len(memory)} bytes is no multiple of elements of {size} bytes; say "
                "how many with num_elements"
            )
        count = len(memory) // size
    else:
        count = operator.index(num_elements)
        if not 0 <= count * size <= len(memory):
            raise ValueError(
                f"{count} elements of {size} bytes do not fit a buffer of {len(memory)} bytes"
            )
    yield memory[: count * size]
    if staged is not None:
        dest.inplace_copy_from(type(dest).from_numpy(staged))


def _bytes_of(array: Any, dest: Any) -> npt.NDArray[np.uint8]:
    """All bytes of a buffer, for writing.

    Raises:
        TypeError: It is none.
        ValueError: It is read-only, or its bytes lie apart.
    """
    name = type(dest).__name__
    if isinstance(array, np.ndarray):
        if array.dtype.hasobject:
            raise TypeError(f"an array of {array.dtype} holds Python objects, not elements")
        if not array.dtype.isnative:
            raise ValueError(f"an array of {array.dtype} has the other byte order")
        writable, together = array.flags.writeable, array.flags.c_contiguous
    else:
        try:
            view = memoryview(array)
        except TypeError:
            raise TypeError(
                f"expected memory that can be written, a NumPy array, a bytearray or a Buffer, got "
                f"{name}; a jax.Array does not change, and fill_device gives a new one"
            ) from None
        writable, together = not view.readonly, view.c_contiguous
    if not writable:
        raise ValueError(f"the {name} is read-only")
    if not together:
        raise ValueError(f"the bytes of the {name} do not lie together; fill a contiguous copy")
    if isinstance(array, np.ndarray):
        return array.view(np.ndarray).reshape(-1).view(np.uint8)
    view = memoryview(array)
    return np.frombuffer(view.cast("B"), np.uint8) if view.nbytes else np.zeros(0, np.uint8)
