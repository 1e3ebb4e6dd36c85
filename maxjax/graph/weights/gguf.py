# SPDX-License-Identifier: Apache-2.0
"""Weights in GGUF files, mapped into memory and not copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from maxjax.driver import DLPackArray
from maxjax.graph.shape import Shape
from maxjax.graph.weights.checkpoint import Checkpoint
from maxjax.graph.weights.gguf_file import GGUFFile
from maxjax.graph.weights.weights import WeightData

if TYPE_CHECKING:
    import gguf

__all__ = ["GGUFWeights"]


class GGUFWeights(Checkpoint):
    """The weights of a GGUF file.

    The file is checked when it is opened and mapped into memory, read-only: a weight's data is
    read from disk as it is touched, and a CPU uses it where it lies. `WeightData.to_buffer` makes
    a copy, which may be written to. Quantized weights stay packed: they are ``uint8`` of shape
    ``(..., bytes)``, and their ``quantization_encoding`` says how `ops.dequantize` and
    `ops.qmatmul` are to read them.

    Args:
        source: The file, or a reader of it.
        tensors: The names to see, as a reader's tensors by name; by default all.
        prefix: The name to begin with.
        allocated: Where to keep the data of the weights in use.

    Raises:
        ValueError: If the file is missing or damaged (names the file and the tensor), or lacks a
            name asked for.

    Example:
        >>> import tempfile
        >>> import gguf
        >>> import numpy as np
        >>> from maxjax.graph.weights import GGUFWeights
        >>> folder = tempfile.TemporaryDirectory()
        >>> writer = gguf.GGUFWriter(f"{folder.name}/m.gguf", "llama")
        >>> q8_0 = gguf.GGMLQuantizationType.Q8_0
        >>> packed = gguf.quants.quantize(np.ones((3, 64), np.float32), q8_0)
        >>> writer.add_tensor("blk.0.up.weight", packed, raw_dtype=q8_0)
        >>> writer.write_header_to_file()
        >>> writer.write_kv_data_to_file()
        >>> writer.write_tensors_to_file()
        >>> writer.close()
        >>> weights = GGUFWeights(f"{folder.name}/m.gguf")
        >>> weights.blk[0].up.weight.data()
        WeightData('blk.0.up.weight', uint8, [3, 68], Q8_0)
        >>> del weights
        >>> folder.cleanup()
    """

    def __init__(
        self,
        source: PathLike[str] | str | gguf.GGUFReader,
        tensors: Mapping[str, gguf.ReaderTensor] | None = None,
        prefix: str = "",
        allocated: dict[str, DLPackArray] | None = None,
    ) -> None:
        super().__init__(prefix, allocated)
        self._file = GGUFFile(_path(source))
        self._known = frozenset(self._file.tensors if tensors is None else tensors)
        missing = sorted(self._known - self._file.tensors.keys())
        if missing:
            raise ValueError(f"{self._source()}: no weight is called {missing[0]!r}")

    def _names(self) -> Collection[str]:
        return self._known

    def _at(self, prefix: str) -> Self:
        view = type(self).__new__(type(self))
        view.__dict__.update(self.__dict__, _prefix=prefix)
        return view

    def _source(self) -> str:
        return str(self._file.path)

    def _align(self) -> int:
        return self._file.alignment

    def _read(self, name: str) -> WeightData:
        array = self._file.array(name)
        dtype, encoding = self._file.kind(name)
        return WeightData(array, name, dtype, Shape(array.shape), encoding)

    def _registered(self, data: WeightData) -> DLPackArray:
        return data.data  # a Buffer would be a copy


def _path(source: Any) -> Any:
    """The file of a path or of a reader, which maps it by that name."""
    if isinstance(source, (str, PathLike)):
        return source
    path = getattr(getattr(source, "data", None), "filename", None)
    if path is None:
        raise TypeError(
            f"source is a path or a gguf.GGUFReader of a file, not {type(source).__name__}"
        )
    return path
