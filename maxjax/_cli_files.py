# SPDX-License-Identifier: Apache-2.0
"""Arrays and weights in files, as the command line reads and writes them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from maxjax._cli_text import Misused, one_line
from maxjax.dtype import DType
from maxjax.graph.weights import Weights, load_weights

__all__ = ["checkpoint", "read", "typed", "weights_of", "write"]

_Array: TypeAlias = npt.NDArray[Any]


def read(path: str, key: str | None, dtype: DType) -> _Array:
    """An array of a file.

    Raises:
        Misused: If there is no such file, it has several and none is named, or none of that name.
        OSError, ValueError: If it cannot be read.
    """
    if not os.path.isfile(path):
        raise Misused(f"--input: there is no file {path!r}")
    arrays = _arrays(path)
    if key is None and len(arrays) == 1:
        (array,) = arrays.values()
    elif key in arrays:
        array = arrays[key]
    else:
        there = ", ".join(arrays) or "none"
        asked = f"no array {key!r}" if key else f"{len(arrays)} arrays"
        raise Misused(f"--input: {path} has {asked}; write {path}:NAME with one of {there:.300}")
    return typed(array, dtype)


def typed(array: _Array, dtype: DType) -> _Array:
    """An array whose file says only how large its elements are, as of bfloat16, with a type."""
    is_bytes = array.dtype.kind == "V" and array.dtype.names is None
    if is_bytes and array.dtype.itemsize == dtype.np.itemsize:
        return np.ascontiguousarray(array).view(dtype.np)
    return array


def _arrays(path: str) -> dict[str, _Array]:
    """The arrays of a ``.npz`` file by name; that of a ``.npy`` file has none."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError) as e:
        raise ValueError(f"{path} cannot be read as arrays: {one_line(e)}") from None


def checkpoint(files: Sequence[str]) -> Weights:
    """A checkpoint, as functions take it that build a graph of one.

    Raises:
        ValueError: If it cannot be read.
    """
    return load_weights([Path(f) for f in files])


def weights_of(files: Sequence[str]) -> dict[str, Any]:
    """The weights of files by name; of a name that several have, the last one's.

    Args:
        files: Checkpoints, or ``.npz`` files.

    Raises:
        OSError, ValueError: If one cannot be read.
    """
    plain = [f for f in files if f.endswith(".npz")]
    others = [f for f in files if not f.endswith(".npz")]
    found: dict[str, Any] = dict(checkpoint(others).items()) if others else {}
    for file in plain:
        found |= _arrays(file)
    return found


def write(results: Mapping[str, _Array], where: str) -> dict[str, Path]:
    """Writes arrays: one ``.npz`` file if that is its name, else ``.npy`` files in a folder.

    Each file is written beside, and put in its place once it is whole.

    Returns:
        The file of each.

    Raises:
        OSError: If one cannot be written.
    """
    target = Path(where)
    if target.suffix == ".npz":
        target.parent.mkdir(parents=True, exist_ok=True)
        with _replacing(target) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in results.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        return dict.fromkeys(results, target)
    target.mkdir(parents=True, exist_ok=True)
    files = {name: target / f"{name}.npy" for name in results}
    for name, array in results.items():
        with _replacing(files[name]) as file:
            np.lib.format.write_array(file, array, allow_pickle=False)
    return files


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``path`` when all went well."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with open(handle, "w+b") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
