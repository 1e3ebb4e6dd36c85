# SPDX-License-Identifier: Apache-2.0
"""The safetensors format: tensors read from mapped memory, headers written.

The format (https://github.com/huggingface/safetensors#format): 8 bytes give the length of a
JSON header, the header gives each tensor's element type, shape and place, and the rest of the
file is the tensors' bytes, without gaps.

The header is read here, and not with the ``safetensors`` library, for three reasons: through
NumPy the library copies every tensor, it knows no bfloat16 or 8-bit floats there, and it does
not say which tensor of a damaged file is wrong.
"""

from __future__ import annotations

import json
import math
import mmap
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maxjax.dtype import DType

__all__ = ["DTYPES", "Entry", "SafetensorsFile", "content", "laid_out"]

HEADER_LIMIT = 100_000_000
"""The longest header in bytes that the format allows."""

DTYPES = {
    "BOOL": DType.bool,
    "I8": DType.int8,
    "I16": DType.int16,
    "I32": DType.int32,
    "I64": DType.int64,
    "U8": DType.uint8,
    "U16": DType.uint16,
    "U32": DType.uint32,
    "U64": DType.uint64,
    "F16": DType.float16,
    "F32": DType.float32,
    "F64": DType.float64,
    "BF16": DType.bfloat16,
    "F4": DType.float4_e2m1fn,
    "F8_E4M3": DType.float8_e4m3fn,
    "F8_E4M3FNUZ": DType.float8_e4m3fnuz,
    "F8_E5M2": DType.float8_e5m2,
    "F8_E5M2FNUZ": DType.float8_e5m2fnuz,
    "F8_E8M0": DType.float8_e8m0fnu,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file; ``begin`` and ``end`` count bytes from the end of the header."""

    code: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """An open file, or a part of one: its tensors by name, and those in use mapped into memory.

    Args:
        path: The file.
        start: Where the part begins in it, in bytes.
        size: How many bytes the part has; all that follow by default.

    Attributes:
        entries: The tensors.
        header: The bytes before the tensors' own.

    Raises:
        ValueError: If it cannot be read or is damaged; names the file and the tensor.
    """

    def __init__(self, path: Path, start: int = 0, size: int | None = None) -> None:
        self.path = path
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as e:
            raise ValueError(f"cannot read {path}: {e.strerror or e}") from e
        # Tensors are mapped as they are used, so the file stays open for as long as this lives.
        self._closing = weakref.finalize(self, self._file.close)
        end = self._file.seek(0, 2)
        self._file.seek(start)
        size = end - start if size is None else size
        prefix = self._file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or length > min(size - 8, HEADER_LIMIT):
            raise ValueError(
                f"{path} is damaged or no safetensors file: it has {size} bytes, too few for its "
                "header; download or write it again"
            )
        self.header = prefix + self._file.read(length)
        self._start = start + 8 + length
        self.entries = _parse(path, self.header[8:], size - 8 - length)
        self._maps: dict[str, mmap.mmap] = {}

    def bytes(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor, ``(size,)``; the same memory at every call.

        The array keeps its memory alive, also after this object is gone.
        """
        entry = self.entries[name]
        size = entry.end - entry.begin
        if not size:
            return np.empty(0, np.uint8)
        skip = (self._start + entry.begin) % mmap.ALLOCATIONGRANULARITY
        if name not in self._maps:
            # Copy-on-write: buffers may be written to, the file never changes. One mapping for
            # each tensor: Linux refuses a private one of the whole file if that exceeds memory.
            try:
                self._maps[name] = mmap.mmap(
                    self._file.fileno(),
                    size + skip,
                    access=mmap.ACCESS_COPY,
                    offset=self._start + entry.begin - skip,
                )
            except (OSError, ValueError) as e:
                raise ValueError(f"{self.path}: cannot map tensor {name!r}: {e}") from e
        return np.frombuffer(self._maps[name], np.uint8, count=size, offset=skip)

    def array(self, name: str) -> npt.NDArray[Any]:
        """A tensor in NumPy's or `ml_dtypes`' element type."""
        entry, data = self.entries[name], self.bytes(name)
        dtype = self.dtype(name)
        if dtype.size_in_bits == 4:
            # Two numbers a byte, the first in the low half; in memory each takes a byte.
            data = np.stack([data & 0xF, data >> 4], axis=-1).reshape(-1)
            data = data[: math.prod(entry.shape)]
        elif (self._start + entry.begin) % dtype.align:
            # The format aligns nothing, and not everything reads misaligned arrays.
            data = data.copy()
        return data.view(dtype.np).reshape(entry.shape)

    def close(self) -> None:
        """Closes the file; arrays stay valid."""
        self._closing()

    def dtype(self, name: str) -> DType:
        """The element type of a tensor."""
        code = self.entries[name].code
        if code not in DTYPES:
            raise ValueError(
                f"{self.path}: tensor {name!r} has the element type {code}, which is not read "
                f"here; these are: {', '.join(DTYPES)}"
            )
        return DTYPES[code]


def _parse(path: Path, header: bytes, size: int) -> dict[str, Entry]:
    """The tensors that a header describes.

    Args:
        path: The file's path, for error messages.
        header: The header's bytes.
        size: The number of bytes that follow it.

    Raises:
        ValueError: If anything in it is not as the format demands; names the tensor.
    """
    try:
        # Python keeps the last of two equal names; which one was meant cannot be known.
        pairs = json.loads(header, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{path} is damaged: its header is no proper JSON: {e}") from e
    if not isinstance(pairs, dict):
        raise ValueError(f"{path} is damaged: its header is no JSON object")
    pairs.pop("__metadata__", None)
    entries = {name: _entry(path, name, fields, size) for name, fields in pairs.items()}
    at, before = 0, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != at:
            what = "overlaps" if entry.begin < at else "leaves a gap after"
            raise ValueError(
                f"{path} is damaged: tensor {name!r} begins at byte {entry.begin} of the data "
                f"and so {what} {before}, which ends at {at}"
            )
        at, before = entry.end, f"tensor {name!r}"
    if at != size:
        raise ValueError(f"{path} is damaged: its data has {size} bytes, and {before} ends at {at}")
    return entries


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def _entry(path: Path, name: str, fields: object, size: int) -> Entry:
    """One tensor, from what its part of the header says."""
    where = f"{path} is damaged: tensor {name!r}"
    match fields:
        case {"dtype": str(code), "shape": list(shape), "data_offsets": [begin, end]}:
            numbers = [*shape, begin, end]
        case _:
            raise ValueError(f"{where} has no proper dtype, shape and data_offsets: {fields!r}")
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError(
            f"{where} has a shape or data_offsets that are no sizes: {shape}, {[begin, end]}"
        )
    if begin > end or end > size:
        raise ValueError(
            f"{where} lies at bytes {begin} to {end} of {size}; if the file was cut off, "
            "download or write it again"
        )
    if code in DTYPES:
        # A type that is not read here is said so when it is asked for: others may be fine.
        need = (math.prod(shape) * DTYPES[code].size_in_bits + 7) // 8
        if end - begin != need:
            raise ValueError(
                f"{where} has {end - begin} bytes, and {code} of shape {shape} needs {need}"
            )
    return Entry(code, tuple(shape), begin, end)


def laid_out(tensors: Mapping[str, tuple[DType, tuple[int, ...]]]) -> tuple[bytes, list[str]]:
    """The header of a file with these tensors, and the order in which their bytes follow it.

    The bytes begin at a multiple of 64, and tensors of wide elements come first, so that each is
    aligned for its elements.

    Args:
        tensors: Element type and shape of each tensor.

    Raises:
        ValueError: If the format has no such element type.
    """
    codes = {dtype: code for code, dtype in DTYPES.items()}
    order = sorted(tensors, key=lambda name: (-tensors[name][0].size_in_bits, name))
    header: dict[str, Any] = {}
    at = 0
    for name in order:
        dtype, shape = tensors[name]
        if dtype not in codes:
            raise ValueError(f"{name!r} is {dtype.name}, which the safetensors format has not")
        end = at + (math.prod(shape) * dtype.size_in_bits + 7) // 8
        header[name] = {"dtype": codes[dtype], "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text, order


def content(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[np.uint8]:
    """The bytes of a tensor as the format has them, ``(size,)``; not copied where that can be."""
    if dtype.size_in_bits == 4:
        codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        codes = np.pad(codes, (0, len(codes) % 2))
        return np.bitwise_or(codes[0::2], codes[1::2] << 4, dtype=np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
