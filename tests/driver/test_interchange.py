# SPDX-License-Identifier: Apache-2.0
"""DLPack in and out, and files mapped into memory."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from maxjax.driver import CPU, Buffer, DLPackArray
from maxjax.dtype import DType

D = DType


class Foreign:
    """An array of a library that knows nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


# ---------------------------------------------------------------- in


def test_a_buffer_is_given_back():
    b = Buffer.zeros([2], D.int8)
    assert Buffer.from_dlpack(b) is b
    assert Buffer.from_dlpack(b, copy=True) is not b


@pytest.mark.parametrize("wrap", [lambda a: a, Foreign])
def test_host_memory_is_shared(wrap):
    a = np.float32([1, 2])
    shared, asked = Buffer.from_dlpack(wrap(a)), Buffer.from_dlpack(wrap(a), copy=False)
    copied = Buffer.from_dlpack(wrap(a), copy=True)
    a[0] = 9
    shared[1] = 8
    assert [b.to_numpy().tolist() for b in (shared, asked, copied)] == [[9, 8], [9, 8], [1, 2]]


@pytest.mark.parametrize("wrap", [lambda a: a, Foreign])
@pytest.mark.parametrize("cut", [np.s_[:, ::2], np.s_[::-1]])
def test_memory_with_gaps_is_copied_on_request_alone(wrap, cut):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)[cut]
    for copy in (None, False):
        with pytest.raises(ValueError, match=r"not contiguous, .* pass copy=True"):
            Buffer.from_dlpack(wrap(a), copy=copy)
    assert Buffer.from_dlpack(wrap(a), copy=True).to_numpy().tolist() == a.tolist()


def test_memory_that_cannot_be_written_is_copied():
    a = np.float32([1, 2])
    a.flags.writeable = False
    for array in (a, Foreign(a)):
        b = Buffer.from_dlpack(array)
        b[0] = 5
        assert a.tolist() == [1, 2]
        with pytest.raises(BufferError, match=r"read-?only"):
            Buffer.from_dlpack(array, copy=False)


def test_the_other_byte_order_is_converted():
    a = np.array([1, 2], ">i4")
    assert Buffer.from_dlpack(a).to_numpy().tolist() == [1, 2]
    with pytest.raises(BufferError, match="not in this machine's byte order"):
        Buffer.from_dlpack(a, copy=False)
    odd = np.frombuffer(bytearray(9), np.uint8)[1:].view(np.int32)
    with pytest.raises(BufferError, match="not aligned"):
        Buffer.from_dlpack(odd, copy=False)


def test_a_jax_array_is_shared():
    array = jnp.arange(3)
    assert Buffer.from_dlpack(array).jax() is array
    assert Buffer.from_dlpack(array, copy=False).jax() is array
    copied = Buffer.from_dlpack(array, copy=True)
    assert copied.jax().unsafe_buffer_pointer() != array.unsafe_buffer_pointer()
    b = Buffer.from_dlpack(array)
    b[0] = 7
    assert array.tolist() == [0, 1, 2]


def test_types_that_numpy_lacks_come_by_way_of_jax():
    array = jnp.arange(3, dtype=jnp.bfloat16)
    b = Buffer.from_dlpack(Foreign(array))
    assert (b.dtype, b.to_numpy().tolist()) == (D.bfloat16, [0, 1, 2])
    assert b.jax().unsafe_buffer_pointer() != array.unsafe_buffer_pointer()
    with pytest.raises((BufferError, RuntimeError)):
        Buffer.from_dlpack(Foreign(array), copy=False)
    assert Buffer.from_dlpack(np.ones(2, ml_dtypes.float8_e5m2)).dtype is D.float8_e5m2


@pytest.mark.parametrize("value", [3.0, [1, 2], np.float32(1), np.ndarray, None])
def test_what_exports_nothing(value):
    with pytest.raises(TypeError, match=r"exports DLPack, got \w+; use np\.asarray"):
        Buffer.from_dlpack(value)


@pytest.mark.parametrize("value", [np.array([1j]), jnp.array([1j]), Foreign(jnp.array([1j]))])
def test_complex_numbers_are_refused(value):
    with pytest.raises(TypeError, match=r"cannot hold these elements: .*complex"):
        Buffer.from_dlpack(value)


# ---------------------------------------------------------------- out


def test_what_exports_dlpack():
    assert isinstance(Buffer.zeros([1], D.int8), DLPackArray)
    assert isinstance(np.zeros(1), DLPackArray)
    assert not isinstance([1], DLPackArray)


def test_host_memory_is_exported():
    b = Buffer.from_numpy(np.float32([[1, 2], [3, 4]]))
    assert b.__dlpack_device__() == (1, 0)
    out, column = np.from_dlpack(b), np.from_dlpack(b[:, 1])
    b[0, 1] = 9
    assert out[0, 1] == column[0] == 9
    assert column.tolist() == [9, 4]
    own = Buffer.zeros([2], D.int32)
    out = np.from_dlpack(own)
    own[0] = 3
    assert out.tolist() == [3, 0]


def test_results_are_exported_without_a_copy():
    array = jnp.arange(3)
    b = Buffer.from_jax(array)
    assert np.from_dlpack(b).ctypes.data == array.unsafe_buffer_pointer()
    assert jax.dlpack.from_dlpack(b).unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
    assert np.from_dlpack(b[1:]).tolist() == [1, 2]


def test_types_that_numpy_lacks_are_exported():
    b = Buffer.from_numpy(np.arange(3).astype(ml_dtypes.bfloat16))
    assert jax.dlpack.from_dlpack(b).tolist() == [0, 1, 2]


def test_accelerators_export(gpus):
    b = Buffer.from_numpy(np.arange(3, dtype=np.int32)).to(gpus[0])
    assert jax.dlpack.from_dlpack(b).tolist() == [0, 1, 2]


# ---------------------------------------------------------------- files


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "raw.bin"
    path.write_bytes(np.arange(64, dtype=np.int16).tobytes())
    return path


def test_a_file_is_mapped(file):
    assert Buffer.mmap(file, D.int16, (2, 32))[1, 0].item() == 32
    assert Buffer.mmap(str(file), D.int16, 3, offset=4).to_numpy().tolist() == [2, 3, 4]
    assert Buffer.mmap(file, D.bfloat16, [4]).dtype is D.bfloat16
    assert Buffer.mmap(file, D.int16, [0, 2]).shape == (0, 2)
    assert Buffer.mmap(file, D.int32, 2, offset=1).copy().jax().tolist() == [
        int.from_bytes(file.read_bytes()[i : i + 4], "little") for i in (1, 5)
    ]


def test_writes_stay_in_memory_unless_they_are_to_go_to_the_file(file):
    for mode in ("copyonwrite", "c"):
        b = Buffer.mmap(file, D.int16, 4, mode)
        b[0] = 7
        assert b[0].item() == 7
        assert file.read_bytes()[0] == 0
    for mode in ("readonly", "r"):
        b = Buffer.mmap(file, D.int16, 4, mode)
        with pytest.raises(ValueError, match=r"maps a file for reading; .*mode='copyonwrite'"):
            b[0] = 7
        assert not b.to_numpy().flags.writeable
        assert np.from_dlpack(b).tolist() == [0, 1, 2, 3]
    b = Buffer.mmap(file, D.int16, 4, "readwrite")
    b.jax()
    b[0] = 7
    b._replace(b._donate() * np.int16(2))
    assert file.read_bytes()[0] == 14


@pytest.mark.parametrize("mode", ["readonly", "copyonwrite"])
def test_mapped_weights_go_to_jax_without_a_copy(file, mode):
    b = Buffer.mmap(file, D.int16, 64, mode)
    mapped = b._ndarray().ctypes.data
    assert b.jax().unsafe_buffer_pointer() == mapped
    assert np.asarray(b._array()).ctypes.data == mapped
    b._replace(b._donate() + np.int16(1))
    assert b[0].item() == 1
    assert file.read_bytes()[0] == 0


def test_files_that_do_not_fit(file, tmp_path):
    with pytest.raises(ValueError, match=r"raw\.bin has 128 bytes, and int16\[9, 9\] from byte 0"):
        Buffer.mmap(file, D.int16, (9, 9), mode="r")
    with pytest.raises(ValueError, match="from byte 120 takes 136"):
        Buffer.mmap(file, D.int64, 2, offset=120)
    with pytest.raises(FileNotFoundError):
        Buffer.mmap(tmp_path / "none", D.int8, 1)
    with pytest.raises(TypeError, match="a dtype is a DType"):
        Buffer.mmap(file, "int8", 1)
    assert Buffer.mmap(file, D.int8, 1).device == CPU()
