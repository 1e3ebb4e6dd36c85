# SPDX-License-Identifier: Apache-2.0
"""Copies of many Buffers at once, and the file format that is refused."""

import numpy as np
import pytest

from maxjax.driver import (
    Buffer,
    batch_inplace_copy,
    copy_pinned_to_destinations,
    load_max_buffer,
)
from maxjax.dtype import DType


def test_many_are_copied_at_once(gpus):
    x, y = Buffer.zeros([2], DType.int32), Buffer.zeros([1], DType.float32, gpus[1])
    batch_inplace_copy([x, y], [Buffer.from_numpy(v) for v in (np.int32([4, 5]), np.float32([6]))])
    assert [x.to_numpy().tolist(), y.to_numpy().tolist()] == [[4, 5], [6]]
    batch_inplace_copy([], [])


def test_nothing_is_copied_if_one_does_not_fit():
    x, y = Buffer.zeros([2], DType.int32), Buffer.zeros([2], DType.int32)
    source = Buffer.from_numpy(np.int32([4, 5]))
    with pytest.raises(ValueError, match="needs a source: got 2 and 1"):
        batch_inplace_copy([x, y], [source])
    with pytest.raises(ValueError, match="must be equal"):
        batch_inplace_copy([x, y], [source, source[:1]])
    with pytest.raises(TypeError, match="expected a Buffer, got ndarray"):
        batch_inplace_copy([x, y], [source, np.int32([4, 5])])
    assert x.to_numpy().tolist() == [0, 0]


def test_one_is_copied_to_many(gpus):
    source = Buffer.from_numpy(np.arange(3))
    targets = [Buffer.zeros([3], DType.int64, gpus[1]), Buffer.zeros([3, 1], DType.int64)]
    copy_pinned_to_destinations(source, targets)
    assert [t.to_numpy().ravel().tolist() for t in targets] == [[0, 1, 2]] * 2


def test_checkpoints_of_max_are_refused(tmp_path):
    path = tmp_path / "x.max"
    with pytest.raises(FileNotFoundError):
        load_max_buffer(path)
    path.write_bytes(b"12345")
    with pytest.raises(ValueError, match=r"x\.max \(5 bytes\) is not read: .* numpy\.save"):
        load_max_buffer(path)
