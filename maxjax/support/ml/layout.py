# SPDX-License-Identifier: Apache-2.0
"""How a shape lies in 16 bytes, one at a time and in arrays.

======  =====================  =====================  =========================
byte    ``k32``                ``k16``                ``kOutOfLine``
======  =====================  =====================  =========================
0       dims 0, 1, 2 in        dims 0 to 5 in         a 64-bit index into the
        32 bits each           16 bits each           dims that lie elsewhere
8                                                     0
12      dim 3 in 8 bits        0                      0
13      the rank, 255 where it is dynamic
14      which of the three this is
15      auxiliary: the element type of a spec
======  =====================  =====================  =========================

All are little-endian; a dynamic dim is -1, and what is not used is 0. The representations are
tried in this order and the first that holds all dims is taken. So a shape has one form only, and
comparing the first 15 bytes compares shapes (and dims out of line, once their indices agree).
The form of a shape alone has the index 0, and its dims follow, in 64 bits each.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "AUXILIARY",
    "DYNAMIC_RANK",
    "FORM",
    "KIND",
    "MAX_DIM",
    "MAX_RANK",
    "RANK",
    "SHAPE_DTYPE",
    "RepKind",
    "decode",
    "decode_rows",
    "encode",
    "encode_rows",
]

MAX_RANK = 8
MAX_DIM = 2**63 - 1
DYNAMIC_RANK = 255
RANK, KIND, AUXILIARY = 13, 14, 15
"""The byte of the rank, of the representation, and the auxiliary one."""
FORM = 16
_LIMITS_32 = (2**31 - 1,) * 3 + (2**7 - 1,)
_LIMIT_16 = 2**15 - 1
_K32 = struct.Struct("<iiibBBB")
_K16 = struct.Struct("<hhhhhhxBBB")
_OUT_OF_LINE = struct.Struct("<q5xBBB")

SHAPE_DTYPE: np.dtype[Any] = np.dtype(
    {
        "names": ["dims32", "dim3", "dims16", "index", "rank", "kind", "auxiliary"],
        "formats": [("<i4", 3), "i1", ("<i2", 6), "<i8", "u1", "u1", "u1"],
        "offsets": [0, 12, 0, 0, RANK, KIND, AUXILIARY],
        "itemsize": FORM,
    }
)
"""A shape as an element of a NumPy array; the fields of the representations overlap."""


class RepKind(enum.IntEnum):
    """The representations of a shape, in the order in which they are tried."""

    k32 = 0
    k16 = 1
    kOutOfLine = 2


def encode(dims: Sequence[int] | None, auxiliary: int = 0) -> bytes:
    """The stored form of a shape.

    Args:
        dims: Up to 8 sizes from 0 to 2**63 - 1, -1 where dynamic; None for a dynamic rank.
        auxiliary: The last byte.

    Returns:
        16 bytes; 8 more for each dim where they are out of line.

    >>> encode([1, -1, 3]).hex(" ", 4)
    '01000000 ffffffff 03000000 00030000'
    """
    if dims is None:
        return _K32.pack(0, 0, 0, 0, DYNAMIC_RANK, RepKind.k32, auxiliary)
    rank = len(dims)
    if rank <= 4 and all(d <= limit for d, limit in zip(dims, _LIMITS_32, strict=False)):
        return _K32.pack(*dims, *(0,) * (4 - rank), rank, RepKind.k32, auxiliary)
    if rank <= 6 and all(d <= _LIMIT_16 for d in dims):
        return _K16.pack(*dims, *(0,) * (6 - rank), rank, RepKind.k16, auxiliary)
    return _OUT_OF_LINE.pack(0, rank, RepKind.kOutOfLine, auxiliary) + struct.pack(
        f"<{rank}q", *dims
    )


def decode(stored: bytes) -> tuple[int, ...] | None:
    """The dims of a stored form, None where the rank is dynamic; the inverse of `encode`.

    >>> decode(encode([1, -1, 2**40]))
    (1, -1, 1099511627776)
    """
    rank, kind = stored[RANK], stored[KIND]
    if kind == RepKind.kOutOfLine:
        return struct.unpack_from(f"<{rank}q", stored, FORM)
    if rank == DYNAMIC_RANK:
        return None
    form = _K32 if kind == RepKind.k32 else _K16
    return form.unpack_from(stored)[:rank]


def encode_rows(
    dims: npt.NDArray[np.int64], ranks: npt.NDArray[np.integer[Any]]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The stored forms of many shapes.

    Args:
        dims: Sizes of shape ``(n, 8)``, -1 where dynamic, 0 beyond the rank.
        ranks: Of shape ``(n,)``, -1 where dynamic.

    Returns:
        ``n`` elements of `SHAPE_DTYPE`, and the dims of those out of line, shape ``(m, 8)``:
        their indices count through these, in the order of the rows.
    """
    rows = np.zeros(len(dims), SHAPE_DTYPE)
    rows["rank"] = np.where(ranks < 0, DYNAMIC_RANK, ranks)
    in_32 = (ranks <= 4) & (dims[:, :4] <= _LIMITS_32).all(axis=1)
    in_16 = ~in_32 & (ranks <= 6) & (dims[:, :6] <= _LIMIT_16).all(axis=1)
    outside = ~in_32 & ~in_16
    rows["kind"] = np.where(in_32, RepKind.k32, np.where(in_16, RepKind.k16, RepKind.kOutOfLine))
    if in_32.all():
        rows["dims32"], rows["dim3"] = dims[:, :3], dims[:, 3]
    else:
        rows["dims32"][in_32], rows["dim3"][in_32] = dims[in_32, :3], dims[in_32, 3]
        rows["dims16"][in_16] = dims[in_16, :6]
        rows["index"][outside] = np.arange(np.count_nonzero(outside))
    return rows, dims[outside]


def decode_rows(
    rows: npt.NDArray[Any], outlying: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]:
    """The sizes and ranks of many shapes; the inverse of `encode_rows`."""
    dims = np.zeros((len(rows), MAX_RANK), np.int64)
    kinds = rows["kind"]
    if not kinds.any():
        dims[:, :3], dims[:, 3] = rows["dims32"], rows["dim3"]
    else:
        chosen = kinds == RepKind.k32
        dims[chosen, :3], dims[chosen, 3] = rows["dims32"][chosen], rows["dim3"][chosen]
        chosen = kinds == RepKind.k16
        dims[chosen, :6] = rows["dims16"][chosen]
        chosen = kinds == RepKind.kOutOfLine
        dims[chosen] = outlying[rows["index"][chosen]]
    return dims, rows["rank"].view(np.int8)
