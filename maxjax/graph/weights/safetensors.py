# SPDX-License-Identifier: Apache-2.0
"""Weights in safetensors files, mapped into memory and not copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from os import PathLike
from pathlib import Path
from typing import Self

from maxjax.driver import Buffer, DLPackArray
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.shape import Shape
from maxjax.graph.weight import Weight
from maxjax.graph.weights.checkpoint import Checkpoint
from maxjax.graph.weights.safetensors_file import SafetensorsFile
from maxjax.graph.weights.weights import WeightData

__all__ = ["SafetensorWeights"]


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
        files = [SafetensorsFile(path) for path in self._paths]
        self._files: dict[str, SafetensorsFile] = {
            name: file for file in files for name in file.entries
        }
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

    def _file(self, name: str) -> SafetensorsFile:
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
