# SPDX-License-Identifier: Apache-2.0
"""GGUF files: their metadata and tensors, mapped into memory and not copied.

The format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): a magic number, a version,
the number of tensors and of metadata entries; the metadata; then name, shape, type and place of
each tensor; and the tensors' bytes, aligned.

The header is read here, and not with the ``gguf`` package's ``GGUFReader``, for two reasons: that
makes an array of each string in the metadata, which takes seconds and more memory than the weights
of a small model with a large vocabulary; and it believes what the header says.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from maxjax.dtype import DType
from maxjax.graph.quantization import Encoding, GGUFEncoding, QuantizationEncoding

__all__ = ["GGUFFile", "TensorInfo"]

_VERSIONS = (2, 3)
_MOST_DIMS = 4
_DEEPEST = 8
"""How many arrays may lie inside each other; files have one."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A tensor type: its blocks' numbers and bytes, and what becomes of them here."""

    name: str
    numbers: int
    size: int
    dtype: DType | None = None
    encoding: Encoding | None = None


def _plain(name: str, dtype: DType) -> _Kind:
    return _Kind(name, 1, dtype.size_in_bytes, dtype)


def _packed(encoding: Encoding) -> _Kind:
    block = encoding.block_parameters
    return _Kind(encoding.value, block.elements_per_block, block.block_size, DType.uint8, encoding)


# By their numbers in files. Those without a dtype are known by size, so that a file that has some
# can be checked and its other tensors used.
_KINDS = {
    0: _plain("F32", DType.float32),
    1: _plain("F16", DType.float16),
    2: _packed(QuantizationEncoding.Q4_0),
    3: _Kind("Q4_1", 32, 20),
    6: _packed(GGUFEncoding.Q5_0),
    7: _Kind("Q5_1", 32, 24),
    8: _packed(GGUFEncoding.Q8_0),
    9: _Kind("Q8_1", 32, 40),
    10: _Kind("Q2_K", 256, 84),
    11: _Kind("Q3_K", 256, 110),
    12: _packed(QuantizationEncoding.Q4_K),
    13: _packed(QuantizationEncoding.Q5_K),
    14: _packed(QuantizationEncoding.Q6_K),
    15: _Kind("Q8_K", 256, 292),
    16: _Kind("IQ2_XXS", 256, 66),
    17: _Kind("IQ2_XS", 256, 74),
    18: _Kind("IQ3_XXS", 256, 98),
    19: _Kind("IQ1_S", 256, 50),
    20: _Kind("IQ4_NL", 32, 18),
    21: _Kind("IQ3_S", 256, 110),
    22: _Kind("IQ2_S", 256, 82),
    23: _Kind("IQ4_XS", 256, 136),
    24: _plain("I8", DType.int8),
    25: _plain("I16", DType.int16),
    26: _plain("I32", DType.int32),
    27: _plain("I64", DType.int64),
    28: _plain("F64", DType.float64),
    29: _Kind("IQ1_M", 256, 56),
    30: _plain("BF16", DType.bfloat16),
    34: _Kind("TQ1_0", 256, 54),
    35: _Kind("TQ2_0", 256, 66),
    39: _Kind("MXFP4", 32, 17),
    40: _Kind("NVFP4", 64, 36),
    41: _Kind("Q1_0", 128, 18),
}

# Metadata types: those of fixed size by their struct codes and NumPy types.
_SCALARS = {
    0: ("<B", "u1"),
    1: ("<b", "i1"),
    2: ("<H", "<u2"),
    3: ("<h", "<i2"),
    4: ("<I", "<u4"),
    5: ("<i", "<i4"),
    6: ("<f", "<f4"),
    7: ("<?", "?"),
    10: ("<Q", "<u8"),
    11: ("<q", "<i8"),
    12: ("<d", "<f8"),
}
_UINT32, _STRING, _ARRAY = 4, 8, 9
_LENGTH = struct.Struct("<Q").unpack_from


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What a file's header says about one tensor.

    Attributes:
        name: Its name.
        kind: The number of its type.
        shape: Its shape in numbers, the last dimension contiguous.
        begin: Where in the file its bytes begin.
        end: Where they end; ``begin`` for a type of unknown size.
    """

    name: str
    kind: int
    shape: tuple[int, ...]
    begin: int
    end: int


class GGUFFile:
    """An open GGUF file.

    Everything in the header is checked against the size of the file when it is opened, before
    memory is taken for it.

    Args:
        path: The file.

    Attributes:
        metadata: The metadata by key, decoded as it is asked for: numbers, bools, strings, and
            arrays: NumPy arrays of numbers and bools, lists of everything else.
        tensors: What the header says about the tensors, by name, in the file's order.
        alignment: What tensors' places are multiples of, in bytes.

    Raises:
        ValueError: If the file cannot be read or is damaged; names the file, and the metadata key
            or the tensor.

    Example:
        >>> import tempfile
        >>> import gguf
        >>> import numpy as np
        >>> folder = tempfile.TemporaryDirectory()
        >>> writer = gguf.GGUFWriter(f"{folder.name}/m.gguf", "llama")
        >>> writer.add_block_count(2)
        >>> writer.add_tensor("norm", np.ones(4, np.float32))
        >>> writer.write_header_to_file()
        >>> writer.write_kv_data_to_file()
        >>> writer.write_tensors_to_file()
        >>> writer.close()
        >>> file = GGUFFile(f"{folder.name}/m.gguf")
        >>> file.metadata["llama.block_count"], file.tensors["norm"].shape
        (2, (4,))
        >>> folder.cleanup()
    """

    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb", buffering=0) as file:
                size = file.seek(0, 2)
                if not size:
                    raise ValueError(f"{path} is empty; download or write it again")
                # Read-only: what nobody can write, JAX takes as it lies there.
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as e:
            raise ValueError(f"cannot read {path}: {e.strerror or e}") from e
        self.metadata, self.tensors, self.alignment = _Header(self.path, self._map, size).read()

    def kind(self, name: str) -> tuple[DType, Encoding | None]:
        """The element type of a tensor's data, and how it is packed.

        Raises:
            ValueError: If its type is not read here.
        """
        code = self.tensors[name].kind
        kind = _KINDS.get(code)
        if kind is None or kind.dtype is None:
            known = ", ".join(k.name for k in _KINDS.values() if k.dtype is not None)
            what = f"number {code}, which is unknown" if kind is None else kind.name
            raise ValueError(
                f"{self.path}: tensor {name!r} has the type {what}; read here are: {known}"
            )
        return kind.dtype, kind.encoding

    def array(self, name: str) -> npt.NDArray[Any]:
        """A tensor's data: numbers in its shape, or packed bytes, ``uint8`` of ``(..., bytes)``.

        It is the file's memory, read-only, and outlives this object.

        Raises:
            ValueError: If its type is not read here.
        """
        info, (dtype, encoding) = self.tensors[name], self.kind(name)
        data = np.frombuffer(self._map, np.uint8, info.end - info.begin, info.begin)
        if encoding is None:
            if info.begin % dtype.align:
                data = data.copy()  # not everything reads misaligned arrays
            return data.view(dtype.np).reshape(info.shape)
        *rows, last = info.shape
        block = encoding.block_parameters
        return data.reshape(*rows, last // block.elements_per_block * block.block_size)


class _Metadata(Mapping[str, Any]):
    """Metadata, decoded on demand: a vocabulary is large, and most programs need none of it."""

    def __init__(self, header: _Header, places: dict[str, tuple[int, int]]) -> None:
        self._header = header
        self._places = places
        self._decoded: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._decoded:
            self._decoded[key] = self._header.value(*self._places[key])
        return self._decoded[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"<{len(self)} entries of {self._header.path}>"


class _Header:
    """Reads a header; ``at`` is the place in the file, and ``what`` what is read, for errors."""

    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self.path = path
        self.data = data
        self.size = size
        self.at = 0
        self.what = "the header"

    def damaged(self, problem: str) -> NoReturn:
        raise ValueError(f"{self.path} is damaged: {self.what} {problem}")

    def need(self, count: int) -> None:
        """Checks that ``count`` more bytes are there."""
        if count > self.size - self.at:
            self.damaged(
                f"needs {count} bytes at byte {self.at} of {self.size}; if the file was cut off, "
                "download or write it again"
            )

    def number(self, code: str) -> Any:
        count = struct.calcsize(code)
        self.need(count)
        (value,) = struct.unpack_from(code, self.data, self.at)
        self.at += count
        return value

    def string(self) -> str:
        length = self.number("<Q")
        self.need(length)
        self.at += length
        # What is no UTF-8 is kept, in a form that gives the bytes back.
        return self.data[self.at - length : self.at].decode("utf-8", "surrogateescape")

    def read(self) -> tuple[_Metadata, dict[str, TensorInfo], int]:
        magic = self.data[:4]
        if magic != b"GGUF":
            raise ValueError(f"{self.path} is no GGUF file: it begins with {magic!r}, not b'GGUF'")
        self.at = 4
        version = self.number("<I")
        if version not in _VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS
            why = "its bytes are in big-endian order" if swapped else f"it has version {version}"
            raise ValueError(
                f"{self.path} is not read here: {why}; convert it to little-endian GGUF version "
                f"{_VERSIONS[-1]}"
            )
        tensors, entries = self.number("<Q"), self.number("<Q")
        # The least that each takes: a length, a type and a value, or a length, a rank, a type and
        # a place.
        for count, least, name in ((entries, 13, "metadata entries"), (tensors, 24, "tensors")):
            if count * least > self.size - self.at:
                self.damaged(f"counts {count} {name}, more than fit in {self.size} bytes")
        places: dict[str, tuple[int, int]] = {}
        for i in range(entries):
            self.what = f"metadata entry {i}"
            key = self.string()
            self.what = f"metadata {key!r}"
            if key in places:
                self.damaged("is there twice")
            kind = self.number("<I")
            places[key] = kind, self.at
            self.skip(kind)
        alignment = self.alignment(places)
        infos = [self.tensor(i) for i in range(tensors)]
        start = self.at + -self.at % alignment
        return _Metadata(self, places), self.placed(infos, start, alignment), alignment

    # ---------------------------------------------------------------- metadata

    def alignment(self, places: Mapping[str, tuple[int, int]]) -> int:
        self.what = "metadata 'general.alignment'"
        if "general.alignment" not in places:
            return 32
        kind, at = places["general.alignment"]
        alignment = self.value(kind, at)
        if kind != _UINT32 or alignment & (alignment - 1) or not alignment:
            self.damaged(f"is {alignment!r:.40}, and must be a power of two, a uint32")
        return alignment

    def skip(self, kind: int, depth: int = 0) -> None:
        """Moves past a value, checking that all of it is there."""
        if kind in _SCALARS:
            self.forward(struct.calcsize(_SCALARS[kind][0]))
        elif kind == _STRING:
            self.forward(self.number("<Q"))
        elif kind == _ARRAY:
            inner, count = self.number("<I"), self.number("<Q")
            if inner in _SCALARS:
                self.forward(count * struct.calcsize(_SCALARS[inner][0]))
                return
            self.need(count * 8)  # the least that a string or an array takes
            if inner == _STRING:
                # A vocabulary has hundreds of thousands, so this is as short as it can be.
                at, last = self.at, self.size - 8
                for _ in range(count):
                    if at > last:
                        self.at = min(at, self.size)
                        self.need(8)
                    at += 8 + _LENGTH(self.data, at)[0]
                self.forward(at - self.at)
                return
            if depth == _DEEPEST:
                self.damaged(f"has more than {_DEEPEST} arrays inside each other")
            for _ in range(count):
                self.skip(inner, depth + 1)
        else:
            self.damaged(f"has a value of type {kind}, which is unknown")

    def forward(self, count: int) -> None:
        self.need(count)
        self.at += count

    def value(self, kind: int, at: int) -> Any:
        """The value at ``at``, which was checked before."""
        self.at = at
        return self.decoded(kind)

    def decoded(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind][0])
        if kind == _STRING:
            return self.string()
        inner, count = self.number("<I"), self.number("<Q")
        if inner == _STRING:
            return list(self.strings(count))
        if inner not in _SCALARS:
            return [self.decoded(inner) for _ in range(count)]
        dtype = np.dtype(_SCALARS[inner][1])
        start, self.at = self.at, self.at + count * dtype.itemsize
        return np.frombuffer(self.data[start : self.at], dtype).astype(dtype.newbyteorder("="))

    def strings(self, count: int) -> Iterator[str]:
        """As :meth:`string`, of many that were checked before."""
        data = self.data
        for _ in range(count):
            start = self.at + 8
            self.at = start + _LENGTH(data, self.at)[0]
            yield data[start : self.at].decode("utf-8", "surrogateescape")

    # ---------------------------------------------------------------- tensors

    def tensor(self, i: int) -> tuple[str, int, tuple[int, ...], int]:
        """Name, type, shape and place of the next tensor."""
        self.what = f"tensor {i}"
        name = self.string()
        self.what = f"tensor {name!r}"
        rank = self.number("<I")
        if rank > _MOST_DIMS:
            self.damaged(f"has {rank} dimensions; the most that the format allows is {_MOST_DIMS}")
        # The file names the contiguous dimension first.
        shape = tuple(self.number("<Q") for _ in range(rank))[::-1]
        return name, self.number("<I"), shape, self.number("<Q")

    def placed(
        self, infos: list[tuple[str, int, tuple[int, ...], int]], start: int, alignment: int
    ) -> dict[str, TensorInfo]:
        """The tensors by name, once nothing about their sizes and places is wrong."""
        found: dict[str, TensorInfo] = {}
        for name, code, shape, offset in infos:
            self.what = f"tensor {name!r}"
            if name in found:
                self.damaged("is there twice")
            if offset % alignment:
                self.damaged(f"begins at byte {offset}, no multiple of the alignment {alignment}")
            begin, size, kind = start + offset, 0, _KINDS.get(code)
            if kind is not None:
                if (shape[-1] if shape else 1) % kind.numbers:
                    self.damaged(
                        f"has rows of {shape[-1] if shape else 1} numbers, no whole number of "
                        f"{kind.name} blocks, which hold {kind.numbers}"
                    )
                size = math.prod(shape) // kind.numbers * kind.size
            if begin + size > self.size:
                self.damaged(
                    f"of shape {list(shape)} and type {kind.name if kind else code} lies at bytes "
                    f"{begin} to {begin + size} of {self.size}; if the file was cut off, download "
                    "or write it again"
                )
            found[name] = TensorInfo(name, code, shape, begin, begin + size)
        last, before = start, ""
        for info in sorted(found.values(), key=lambda t: (t.begin, t.end)):
            if info.begin < last:
                self.what = f"tensor {info.name!r}"
                self.damaged(f"at byte {info.begin} overlaps {before}, which ends at {last}")
            last, before = info.end, f"tensor {info.name!r}"
        return found
