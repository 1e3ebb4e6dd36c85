# SPDX-License-Identifier: Apache-2.0
"""Weights in safetensors files, mapped into memory and not copied.

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
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from maxjax.driver import Buffer, DLPackArray
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.shape import Shape
from maxjax.graph.weight import Weight
from maxjax.graph.weights.checkpoint import Checkpoint
from maxjax.graph.weights.weights import WeightData

__all__ = ["SafetensorWeights"]

_HEADER_LIMIT = 100_000_000
"""The longest header in bytes that the format allows."""

_DTYPES = {
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
class _Entry:
    """One tensor of a file; ``begin`` and ``end`` count bytes from the end of the header."""

    code: str
    shape: tuple[int, ...]
    begin: int
    end: int


class _File:
    """An open file: its tensors by name, and those in use mapped into memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as e:
            raise ValueError(f"cannot read {path}: {e.strerror or e}") from e
        # Tensors are mapped as they are used, so the file stays open for as long as this lives.
        self._closing = weakref.finalize(self, self._file.close)
        size = self._file.seek(0, 2)
        self._file.seek(0)
        prefix = self._file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or length > min(size - 8, _HEADER_LIMIT):
            raise ValueError(
                f"{path} is damaged or no safetensors file: it has {size} bytes, too few for its "
                "header; download or write it again"
            )
        self._start = 8 + length
        self.entries = _parse(path, self._file.read(length), size - self._start)
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
        if code not in _DTYPES:
            raise ValueError(
                f"{self.path}: tensor {name!r} has the element type {code}, which is not read "
                f"here; these are: {', '.join(_DTYPES)}"
            )
        return _DTYPES[code]


def _parse(path: Path, header: bytes, size: int) -> dict[str, _Entry]:
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


def _entry(path: Path, name: str, fields: object, size: int) -> _Entry:
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
    if code in _DTYPES:
        # A type that is not read here is said so when it is asked for: others may be fine.
        need = (math.prod(shape) * _DTYPES[code].size_in_bits + 7) // 8
        if end - begin != need:
            raise ValueError(
                f"{where} has {end - begin} bytes, and {code} of shape {shape} needs {need}"
            )
    return _Entry(code, tuple(shape), begin, end)


class SafetensorWeights(Checkpoint):
    """The weights of one or more safetensors files.

    The files are checked when they are opened and mapped into memory: a weight's data is read
    from disk as it is touched, and a changed buffer never changes the file.

    Args:
        filepaths: The files. Where two have a weight of one name, the later wins.
        tensors: The names to see; by default all.
        tensors_to_file_idx: For a name, the index of the file to take it from.
        prefix: The name to begin with.
        allocated: Where to keep the data of the weights in use.

    Raises:
        ValueError: If a file is missing or damaged (names the file and the tensor), or lacks a
            name asked for.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from safetensors.numpy import save_file
        >>> from maxjax.graph.weights import SafetensorWeights
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = f"{folder.name}/model.safetensors"
        >>> save_file({"up.weight": np.ones((4, 2), np.float16), "norm": np.ones(4)}, path)
        >>> weights = SafetensorWeights([path])
        >>> [name for name, _ in weights.items()], weights.up.exists()
        (['norm', 'up.weight'], False)
        >>> weights.up.weight.allocate()
        Weight('up.weight', float16, [4, 2], cpu:0)
        >>> list(weights.allocated_weights)
        ['up.weight']
        >>> weights.close()
        >>> folder.cleanup()
    """

    def __init__(
        self,
        filepaths: Sequence[PathLike[str] | str],
        *,
        tensors: AbstractSet[str] | None = None,
        tensors_to_file_idx: Mapping[str, int] | None = None,
        prefix: str = "",
        allocated: dict[str, DLPackArray] | None = None,
    ) -> None:
        super().__init__(prefix, allocated)
        self._paths = [Path(path) for path in filepaths]
        files = [_File(path) for path in self._paths]
        self._files: dict[str, _File] = {name: file for file in files for name in file.entries}
        for name, index in (tensors_to_file_idx or {}).items():
            if not 0 <= index < len(files) or name not in files[index].entries:
                raise ValueError(
                    f"tensors_to_file_idx says that weight {name!r} is in file {index}, "
                    f"and it is not there; the files are: {self._source()}"
                )
            self._files[name] = files[index]
        if tensors is not None:
            missing = sorted(tensors - self._files.keys())
            if missing:
                raise ValueError(f"{self._source()}: no weight is called {missing[0]!r}")
            self._files = {name: self._files[name] for name in self._files if name in tensors}
        self._known = frozenset(self._files)

    def _names(self) -> Collection[str]:
        return self._known

    def _at(self, prefix: str) -> Self:
        view = type(self).__new__(type(self))
        # Views share everything but the name, `close` included.
        view.__dict__.update(self.__dict__, _prefix=prefix)
        return view

    def _source(self) -> str:
        return ", ".join(map(str, self._paths)) or "no files"

    def _file(self, name: str) -> _File:
        if name not in self._files:
            raise KeyError(f"weight {name!r} is read after close(); open {self._source()} again")
        return self._files[name]

    def _read(self, name: str) -> WeightData:
        array = self._file(name).array(name)
        data = WeightData.from_numpy(array, name)
        return WeightData(data.to_buffer(), name, data.dtype, data.shape)

    def allocate_as_bytes(self, dtype: DType | None = None) -> Weight:
        """A `Weight` of the tensor's bytes as they are in the file, on the CPU.

        Args:
            dtype: Kept for programs that pass it; the result is ``uint8`` always.

        Returns:
            ``uint8`` of the tensor's shape, but that the last dim counts bytes; a scalar
            becomes one dim.

        Raises:
            KeyError: If there is no weight of this name, or the files were closed.
            ValueError: If a row is no whole number of bytes, or the element type is not read
                here.
        """
        if not self.exists():
            raise KeyError(self._missing())
        file = self._file(self.name)
        *rows, last = file.entries[self.name].shape or (1,)
        bits = last * file.dtype(self.name).size_in_bits
        if bits % 8:
            raise ValueError(
                f"weight {self.name!r}: a row of {last} numbers of {bits // last} bits is no whole "
                "number of bytes"
            )
        array = file.bytes(self.name).reshape([*rows, bits // 8])
        data = WeightData(Buffer.from_numpy(array), self.name, DType.uint8, Shape(array.shape))
        return self._allocate(data, DeviceRef.CPU())

    def close(self) -> None:
        """Lets go of the files; data read before stays valid.

        Names can still be asked for (`exists`, `items`), data no longer.
        """
        for file in self._files.values():
            file.close()
        self._files.clear()
