# SPDX-License-Identifier: Apache-2.0
"""Printing arrays, shapes and specs for people."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from maxjax.support.ml.dtype import DType
from maxjax.support.ml.named import NamedSpec
from maxjax.support.ml.shape import TensorShape
from maxjax.support.ml.spec import TensorSpec
from maxjax.support.ml.table import ShapeTable

__all__ = ["debug_print", "debug_string"]

# Arrays with more elements than this are shown by their corners.
_SHOWN = 200
_EDGE = 3


def debug_print(value: Any, label: str = "", *, file: TextIO | None = None) -> None:
    """Prints an array, a shape, a spec or a collection of them; see `debug_string`.

    Args:
        value: What to print.
        label: What to call it.
        file: Where to; ``sys.stderr`` if left out, where it does not mix with results.

    >>> debug_print(TensorShape([1, None]), "x", file=sys.stdout)
    x: shape 1x? (rank 2)
    """
    print(debug_string(value, label), file=sys.stderr if file is None else file)


def debug_string(value: Any, label: str = "") -> str:
    """What an array, a shape or a spec is, for people.

    Of an array it tells the spec, the size, where it is, and the elements; large ones are shown
    by their corners, and only these are brought from a device.

    Args:
        value: A NumPy or JAX array, a `driver.Buffer`, a shape, a spec, a table, a type; or a
            list, tuple or mapping of these. Of all else, its ``repr``.
        label: What to call it.

    >>> print(debug_string({"a": np.float32([[1, 2]]), "b": TensorSpec([2, 3], "bf16")}, "args"))
    args.a: array 1x2xf32 (8 bytes)
      [[1. 2.]]
    args.b: spec 2x3xbf16 (12 bytes)
    """
    if isinstance(value, Mapping):
        dot = "." if label else ""
        parts = [debug_string(v, f"{label}{dot}{k}") for k, v in value.items()]
        return "\n".join(parts) or debug_string("empty mapping", label)
    if isinstance(value, list | tuple) and value and not all(np.isscalar(v) for v in value):
        return "\n".join(debug_string(v, f"{label}[{i}]") for i, v in enumerate(value))
    return f"{label}: {_told(value)}" if label else _told(value)


def _told(value: Any) -> str:
    """What one value is."""
    if isinstance(value, TensorSpec):
        return f"spec {value} ({_size(lambda: value.size_in_bytes)})"
    if isinstance(value, NamedSpec):
        return f"spec {value}"
    if isinstance(value, TensorShape):
        return f"shape {value} (rank {value.rank})" if value.has_rank() else "shape * (any rank)"
    if isinstance(value, DType):
        bits = "unknown width" if value.width < 0 else f"{value.width} bits"
        return f"type {value} ({bits}, code {value.value:#010b})"
    if isinstance(value, ShapeTable):
        noun = value.element.__name__
        return f"table of {len(value)} {noun} (16 bytes each)\n  {value!r}"
    if hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, np.dtype):
        return _array(value)
    return value if isinstance(value, str) else repr(value)


def _size(size: Any) -> str:
    try:
        size = size()
    except ValueError:
        return "no size"
    return "size not known" if size < 0 else f"{size} byte{'s' * (size != 1)}"


def _array(value: Any) -> str:
    """What an array is, and its elements."""
    try:
        dtype = DType.of(value.dtype).name
    except (TypeError, ValueError):
        dtype = str(value.dtype)
    each = getattr(value.dtype, "itemsize", None) or getattr(value.dtype, "size_in_bytes", 0)
    size = math.prod(value.shape) * each
    told = f"array {'x'.join([*map(str, value.shape), dtype])} ({_size(lambda: size)})"
    if getattr(value, "is_deleted", bool)():
        return f"{told}\n  deleted, or given to a program"
    where = _place(value)
    told += f" on {where}" if where else ""
    if not getattr(value, "is_fully_addressable", True):
        return f"{told}\n  ..., parts of it are on other hosts"
    shown, is_part = _corners(value if hasattr(value, "take") else value.to_numpy())
    text = np.array2string(shown, threshold=0 if is_part else _SHOWN, edgeitems=_EDGE)
    return "\n  ".join([told, *text.splitlines()])


def _place(value: Any) -> str:
    """Where an array is, if it says so: ``cpu:0``."""
    devices = getattr(value, "devices", None)
    if callable(devices):
        found: Any = list(devices())  # pyright: ignore[reportArgumentType]
        return f"{found[0].platform}:{found[0].id}" if len(found) == 1 else f"{len(found)} devices"
    device = getattr(value, "device", None)
    label = getattr(device, "label", None)
    return f"{label}:{device.id}" if label and device is not None else ""


def _corners(array: Any) -> tuple[npt.NDArray[Any], bool]:
    """What is shown of an array, and whether that is less than all.

    Of a large one, some elements at both ends of each axis and one between: NumPy prints "..."
    for that, and the rest is not brought here.
    """
    if array.size <= _SHOWN:
        return np.asarray(array), False
    chosen = [
        np.arange(size) if size <= 2 * _EDGE + 1 else np.r_[: _EDGE + 1, size - _EDGE : size]
        for size in array.shape
    ]
    # Shard by shard: an array that is spread over devices is not to be moved for being printed.
    shards = getattr(array, "addressable_shards", None)
    if shards is None:
        return np.asarray(_taken(array, chosen)), True
    shown = np.empty([len(c) for c in chosen], array.dtype)
    for shard in shards:
        bounds = [s.indices(size) for s, size in zip(shard.index, array.shape, strict=True)]
        inside = [(c >= b[0]) & (c < b[1]) for c, b in zip(chosen, bounds, strict=True)]
        local = [c[i] - b[0] for c, i, b in zip(chosen, inside, bounds, strict=True)]
        if all(map(len, local)):
            places = np.ix_(*(np.flatnonzero(i) for i in inside))
            shown[places] = np.asarray(_taken(shard.data, local))
    return shown, True


def _taken(array: Any, chosen: list[npt.NDArray[Any]]) -> Any:
    """The elements at some places along each axis."""
    for axis, places in enumerate(chosen):
        if len(places) < array.shape[axis]:
            array = array.take(places, axis=axis)
    return array
