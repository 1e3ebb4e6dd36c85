# SPDX-License-Identifier: Apache-2.0
"""Host memory that XLA takes over, and numbers as elements."""

import jax
import numpy as np
import pytest

from maxjax.driver.memory import allocate, duplicate, number, place, snapshot
from maxjax.dtype import DType

CPU0 = jax.devices("cpu")[0]


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 7)])
def test_memory_is_aligned(dtype, shape):
    memory = allocate(shape, dtype.np, zeros=True)
    assert (memory.shape, memory.dtype) == (shape, dtype.np)
    assert memory.size == 0 or memory.ctypes.data % 64 == 0
    assert not memory.view(np.uint8).any() if shape else True


def test_a_snapshot_is_packed():
    a = np.arange(12).reshape(3, 4)[::-1, ::2]
    copy = snapshot(a)
    assert copy.flags.c_contiguous and copy.tolist() == a.tolist()
    assert not np.shares_memory(copy, a)


def test_memory_is_shared_with_jax_only_if_it_is_ours():
    a = allocate((100,), np.dtype(np.int64), zeros=True)
    assert place(a, CPU0, ours=True).unsafe_buffer_pointer() == a.ctypes.data
    apart = place(a, CPU0, ours=False)
    a[0] = 1
    assert np.asarray(apart)[0] == 0


def test_a_duplicate_is_elsewhere_even_on_the_same_device():
    array = place(np.array([2**63 - 1]), CPU0, ours=False)
    for device in jax.devices("cpu")[:2]:
        twin = duplicate(array, device)
        assert twin.devices() == {device}
        assert twin.unsafe_buffer_pointer() != array.unsafe_buffer_pointer()
        assert int(np.asarray(twin)[0]) == 2**63 - 1


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_integral()])
def test_the_whole_range_of_an_integer_type(dtype):
    limits = np.iinfo(dtype.np)
    for value in (int(limits.min), int(limits.max)):
        assert int(number(value, dtype)) == value
        assert number(value, dtype).dtype == dtype.np
    for value in (int(limits.min) - 1, int(limits.max) + 1):
        with pytest.raises(ValueError, match=f"{value} is out of the range of {dtype!r}"):
            number(value, dtype)


def test_numbers_of_numpy():
    assert number(np.bool_(True), DType.int8) == 1
    assert number(np.int64(3), DType.float16) == 3
    assert number(DType.bfloat16.np.type(1.5), DType.float32) == 1.5
    assert number(0.0, DType.bool) == np.False_
    with pytest.raises(TypeError, match="a number, not datetime64"):
        number(np.datetime64("2020-01-01"), DType.int64)
