# SPDX-License-Identifier: Apache-2.0
"""The weights of an artifact: a safetensors file inside it, mapped into memory as it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from maxjax.artifact.archive import Member
from maxjax.dtype import DType
from maxjax.graph.type import TensorType
from maxjax.graph.weights.safetensors_file import DTYPES, SafetensorsFile, content, laid_out

__all__ = ["WeightsFile", "written"]

_KNOWN = frozenset(DTYPES.values())


def _stored(dtype: DType) -> DType:
    """How numbers are in the file: as bytes where the format has no such element type."""
    return dtype if dtype in _KNOWN else DType.uint8


def written(
    arrays: Mapping[str, npt.NDArray[Any]],
) -> tuple[bytes, dict[str, str], int, Iterator[Any]]:
    """A weights file.

    Args:
        arrays: The weights.

    Returns:
        Its header, the hash of each weight's bytes, the number of bytes in all, and these in
        pieces.

    """
    dtypes = {name: DType.of(a.dtype) for name, a in arrays.items()}
    header, order = laid_out({n: (_stored(dtypes[n]), a.shape) for n, a in arrays.items()})

    def pieces() -> Iterator[Any]:
        yield header
        for name in order:
            yield content(arrays[name], dtypes[name]).data

    hashes, size = {}, len(header)
    for name in order:
        data = content(arrays[name], dtypes[name])
        hashes[name] = hashlib.sha256(data.data).hexdigest()
        size += data.nbytes
    return header, hashes, size, pieces()


class WeightsFile:
    """A weights file inside an artifact.

    Args:
        path: The artifact.
        member: Where in it the file is.

    Attributes:
        names: The names of its weights.
        header_sha256: The hash of its header.

    Raises:
        ValueError: If it is damaged; names the weight.
    """

    def __init__(self, path: Path, member: Member) -> None:
        self._path = path
        self._file = SafetensorsFile(path, member.start, member.size)
        self.names = frozenset(self._file.entries)
        self.header_sha256 = hashlib.sha256(self._file.header).hexdigest()

    def read(self, name: str, type_: TensorType, sha256: str) -> npt.NDArray[Any]:
        """A weight, read-only; its memory is the file's.

        Args:
            name: Its name.
            type_: The type that it must have.
            sha256: The hash that its bytes must have; empty not to look.

        Raises:
            ValueError: If its type or hash is another.
        """
        if sha256 and hashlib.sha256(self._file.bytes(name).data).hexdigest() != sha256:
            raise ValueError(
                f"{self._path} is damaged: the bytes of weight {name!r} do not have their hash"
            )
        array = self._file.array(name)
        dtype = _stored(type_.dtype)
        if DType.of(array.dtype) is not dtype:
            raise ValueError(
                f"{self._path} is damaged: weight {name!r} is {array.dtype}{list(array.shape)} in "
                f"the weights file, and {type_.brief()} in the manifest"
            )
        if dtype is not type_.dtype:
            array = array.view(type_.dtype.np)
        array = array.view()
        array.flags.writeable = False
        return array

    def close(self) -> None:
        """Closes the file; arrays stay valid."""
        self._file.close()
