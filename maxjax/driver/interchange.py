# SPDX-License-Identifier: Apache-2.0
"""Memory that comes from elsewhere: other libraries' arrays, and files."""

import math
import os
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from maxjax.driver.memory import allocate, duplicate, native, snapshot
from maxjax.dtype import DType

__all__ = ["DLPackArray", "map_file", "read_dlpack"]

_READ_ONLY = ("r", "readonly")
_COPY_ON_WRITE = ("c", "copyonwrite")
# DLPack's number for the host.
_HOST = 1


@runtime_checkable
class DLPackArray(Protocol):
    """Anything that exports its memory by DLPack: NumPy, JAX and PyTorch arrays, `Buffer`."""

    def __dlpack__(self, *, stream: None = None) -> Any:
        """The memory as a DLPack capsule."""


def read_dlpack(array: Any, *, copy: bool | None) -> tuple[np.ndarray | jax.Array, bool]:
    """The contents of an array of any library, and whether others hold them too.

    Raises:
        TypeError: If it does not export DLPack, or no `DType` stands for its elements.
        ValueError: If it is not contiguous, unless ``copy`` is True.
        BufferError: If ``copy`` is False and a copy is needed.
    """
    if isinstance(array, np.ndarray):
        return _host(array, copy)
    if isinstance(array, jax.Array):
        _known(array)
        if not copy:
            return array, True
        return duplicate(array, next(iter(array.sharding.device_set))), False
    # Classes export DLPack as well, to no use.
    if isinstance(array, type) or not hasattr(array, "__dlpack__"):
        raise TypeError(
            f"expected an array that exports DLPack, got {type(array).__name__}; use np.asarray"
        )
    where = getattr(array, "__dlpack_device__", None)
    if where is None or where()[0] == _HOST:
        try:
            return _host(np.from_dlpack(array), copy)
        except (RuntimeError, BufferError):
            if copy is False:
                raise
            # An element type that NumPy lacks, or memory that cannot be shared with it.
    elif copy is False:
        raise BufferError(
            "an array on an accelerator may be changed by its owner, and a Buffer's may not; "
            "leave out copy=False"
        )
    with jax.enable_x64(True):
        theirs = jax.dlpack.from_dlpack(array)
    _known(theirs)
    return duplicate(theirs, next(iter(theirs.sharding.device_set))), False


def _host(array: np.ndarray, copy: bool | None) -> tuple[np.ndarray, bool]:
    plain, _ = native(array)
    if copy:
        return snapshot(plain), False
    if not array.flags.c_contiguous:
        raise ValueError(
            f"the array with shape {list(array.shape)} and strides {list(array.strides)} is not "
            "contiguous, so its memory cannot be shared; pass copy=True, or "
            "np.ascontiguousarray(array)"
        )
    flags = array.flags
    if array.dtype.isnative and flags.writeable and flags.aligned:
        return plain, True
    if copy is False:
        reason = "read-only" if not flags.writeable else "not in this machine's byte order"
        reason = reason if flags.aligned else "not aligned"
        raise BufferError(
            f"the memory of a Buffer can be written, and the array is {reason}; "
            "leave out copy=False"
        )
    return snapshot(plain), False


def _known(array: jax.Array) -> None:
    try:
        DType.of(array.dtype)
    except ValueError as error:
        raise TypeError(f"a Buffer cannot hold these elements: {error}") from None


def map_file(
    filename: os.PathLike[str] | str,
    dtype: DType,
    shape: tuple[int, ...],
    mode: Any,
    offset: int,
) -> tuple[np.ndarray, bool]:
    """Part of a file as an array, and whether writes to it go to the file.

    Raises:
        OSError: If the file cannot be opened.
        TypeError: If ``dtype`` is no `DType`.
        ValueError: If the file is too short.
    """
    if not isinstance(dtype, DType):
        raise TypeError(f"a dtype is a DType, such as DType.float32, not {dtype!r}")
    if mode in _READ_ONLY or mode in _COPY_ON_WRITE:
        size = os.stat(filename).st_size
        needed = offset + math.prod(shape) * dtype.size_in_bytes
        if size < needed:
            raise ValueError(
                f"{os.fspath(filename)} has {size} bytes, and {dtype!r}{list(shape)} from byte "
                f"{offset} takes {needed}"
            )
        if not math.prod(shape):
            return allocate(shape, dtype.np), False
    mapped = np.memmap(filename, dtype=dtype.np, mode=mode, offset=offset, shape=shape)
    return mapped.view(np.ndarray), mode not in _READ_ONLY and mode not in _COPY_ON_WRITE
