# SPDX-License-Identifier: Apache-2.0
"""Copies of many Buffers at once, and the one file format of Buffers that is not read."""

import os
from collections.abc import Sequence
from os import PathLike

from maxjax.driver.buffer import Buffer

__all__ = ["batch_inplace_copy", "copy_pinned_to_destinations", "load_max_buffer"]


def batch_inplace_copy(dsts: Sequence[Buffer], srcs: Sequence[Buffer]) -> None:
    """Writes each source to the destination at its place, as ``inplace_copy_from`` does.

    Args:
        dsts: The Buffers to write.
        srcs: As many Buffers to read.

    Raises:
        TypeError: If one is no Buffer.
        ValueError: If there are not as many of one as of the other, or a pair differs in dtype
            or number of elements. Nothing is written then.
    """
    if len(dsts) != len(srcs):
        raise ValueError(f"each destination needs a source: got {len(dsts)} and {len(srcs)}")
    for dst, src in zip(dsts, srcs, strict=True):
        dst._check_source(src)
    for dst, src in zip(dsts, srcs, strict=True):
        dst.inplace_copy_from(src)


def copy_pinned_to_destinations(source: Buffer, destinations: Sequence[Buffer]) -> None:
    """Writes one Buffer to several, as ``inplace_copy_from`` does.

    Args:
        source: The Buffer to read; it need not be pinned.
        destinations: The Buffers to write.

    Raises:
        TypeError: If one is no Buffer.
        ValueError: If a destination differs in dtype or number of elements. Nothing is written
            then.
    """
    batch_inplace_copy(destinations, [source] * len(destinations))


def load_max_buffer(path: PathLike[str]) -> Buffer:
    """Refuses: the checkpoints that MAX's debugging prints write are not read here.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If there is.
    """
    size = os.stat(path).st_size
    raise ValueError(
        f"{os.fspath(path)} ({size} bytes) is not read: only MAX reads its own checkpoints; load "
        "it there and numpy.save its to_numpy(), then Buffer.from_numpy(numpy.load(...)) here; "
        "Buffer.mmap reads a file of raw numbers"
    )
