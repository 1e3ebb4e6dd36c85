# SPDX-License-Identifier: Apache-2.0
"""Buffers and JAX: what is shared, what is copied, who sees a write."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxjax.driver import CPU, Accelerator, Buffer
from maxjax.dtype import DType

D = DType
CPU0 = jax.devices("cpu")[0]


def result(values=(1, 2, 3), dtype=np.float32) -> jax.Array:
    """An array such as a program gives."""
    with jax.enable_x64(True):
        return jax.device_put(np.array(values, dtype), CPU0)


def address(x) -> int:
    return x.unsafe_buffer_pointer() if isinstance(x, jax.Array) else x.ctypes.data


# ---------------------------------------------------------------- from JAX


def test_a_result_is_held_as_it_is():
    array = result()
    b = Buffer.from_jax(array)
    assert b.jax() is array
    assert (b.dtype, b.shape, b.device, b.strides) == (D.float32, (3,), CPU(), (1,))
    out = b.to_numpy()
    assert address(out) == address(array)
    with pytest.raises(ValueError, match="read-only"):
        out[0] = 1


def test_the_first_write_moves_a_result_to_host_memory():
    array = result()
    b = Buffer.from_jax(array)
    before, part, bits = b.to_numpy(), b[1:], b.view(D.int32)
    b[1] = 9
    assert before.tolist() == np.asarray(array).tolist() == [1, 2, 3]
    assert part.to_numpy().tolist() == [9, 3]
    assert bits[1].item() == np.float32(9).view(np.int32)
    moved = b.to_numpy()
    part[1] = 8
    bits[0] = 0
    assert moved.tolist() == [0, 9, 8]
    assert np.shares_memory(part.to_numpy(), moved)


def test_a_view_of_a_result_is_read_only_until_it_is_written():
    b = Buffer.from_jax(result())
    part = b[::2]
    assert not part.to_numpy().flags.writeable
    part[0] = 5
    assert part.to_numpy().flags.writeable
    assert b.to_numpy().tolist() == [5, 2, 3]


def test_inplace_copy_to_a_result_leaves_the_array():
    array = result()
    b = Buffer.from_jax(array)
    b.inplace_copy_from(Buffer.from_numpy(np.float32([7, 8, 9])))
    assert b.to_numpy().tolist() == [7, 8, 9]
    assert array.tolist() == [1, 2, 3]


def test_an_array_on_many_devices_is_described_and_read():
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    b = Buffer.from_jax(jax.device_put(np.arange(8, dtype=np.int32), spread))
    assert repr(b) == "Buffer(int32, (8,), 4 devices)"
    assert b.to_numpy().tolist() == list(range(8))
    with pytest.raises(ValueError, match=r"spread over 4; make a Buffer of each"):
        _ = b.device


# ---------------------------------------------------------------- to JAX


@pytest.mark.parametrize("dtype", [d for d in DType if d.size_in_bits != 6])
def test_every_element_type_goes_to_jax_and_back(dtype):
    for b in (Buffer.zeros([2, 2], dtype), Buffer.from_numpy(np.zeros((2, 2), dtype.np))):
        b[0, 1] = 1
        array = b.jax()
        assert array.dtype == dtype.np
        assert array.devices() == {CPU0}
        assert np.asarray(array).tobytes() == b.to_numpy().tobytes()
        assert np.asarray(array).astype(np.float32)[0, 1] == 1
        assert Buffer.from_jax(array).dtype is dtype


@pytest.mark.parametrize("dtype", [D.float6_e2m3fn, D.float6_e3m2fn])
def test_jax_has_no_6_bit_floats(gpus, dtype):
    b = Buffer.from_numpy(np.ones(2, dtype.np))
    for move in (b.jax, b.copy().jax, lambda: Buffer.zeros([2], dtype, gpus[0])):
        with pytest.raises(TypeError, match=f"JAX has no {dtype!r}"):
            move()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.int64, 2**63 - 1),
        (np.int64, -(2**63)),
        (np.uint64, 2**64 - 1),
        (np.float64, 1 + 2**-52),
    ],
)
def test_64_bits_are_exact_whatever_jax_is_set_to(dtype, value):
    assert not jax.config.jax_enable_x64
    given = np.array([value, 1], dtype)
    for b in (
        Buffer.from_numpy(given),
        Buffer.from_numpy(given).copy(),
        Buffer.from_numpy(given)[:1],
    ):
        array = b.jax()
        assert array.dtype == dtype
        back = Buffer.from_jax(array)
        assert back[0].item() == back.copy()[0].item() == np.asarray(array)[0] == value
    assert not jax.config.jax_enable_x64


def aligned(n: int) -> np.ndarray:
    """Memory that XLA takes without a copy if it is allowed to."""
    raw = np.zeros(4 * n + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * n].view(np.float32)


@pytest.mark.parametrize("read", [Buffer.jax, Buffer._array, Buffer._donate])
def test_what_jax_gets_never_changes(read):
    a = aligned(16)
    b = Buffer.from_numpy(a)
    got = [read(given) for given in (b, b[::2], b[4:])]
    a[:] = 1
    b[0] = 2
    assert [np.asarray(g).tolist() for g in got] == [[0] * 16, [0] * 8, [0] * 12]


def test_what_jax_gets_of_a_buffers_own_memory_never_changes():
    b = Buffer.zeros([16], D.float32)
    array = b.jax()
    b[0] = 5
    assert array.tolist() == [0] * 16
    assert b[0].item() == 5
    assert b.jax().tolist() == [5] + [0] * 15


def test_memory_that_nobody_has_seen_is_taken_over_without_a_copy():
    for b in (Buffer.zeros([1000], D.int64), Buffer.from_numpy(np.arange(1000)[::-1])):
        own = address(b._ndarray())
        assert address(b.jax()) == own
        assert b.jax() is b.jax()


def test_reading_one_element_does_not_make_memory_seen():
    b = Buffer.zeros([1000], D.int64)
    assert b[3].item() == b[3:].view(D.int32)[0].item() == 0
    str(b)
    own = address(b._ndarray())
    assert address(b.jax()) == own


def test_a_program_may_read_the_memory_after_its_call_returned():
    """XLA would read aligned NumPy memory while the caller already writes it."""
    a = aligned(1 << 20)
    b = Buffer.from_numpy(a)
    busy = jax.jit(lambda x: jax.lax.fori_loop(0, 4, lambda _, c: jnp.sin(c) + x, x))
    a[:] = 0
    busy(b._array()).block_until_ready()
    late = busy(b._array())
    a[:] = 1
    assert float(jnp.abs(late).max()) == 0


# ---------------------------------------------------------------- programs that write


def double(array: jax.Array) -> jax.Array:
    with jax.enable_x64(True):
        return jax.jit(lambda x: x + x, donate_argnums=0)(array)


def test_a_program_writes_shared_memory():
    a = np.float32([1, 2, 3])
    b = Buffer.from_numpy(a)
    out, part = b.to_numpy(), b[1:]
    b._replace(double(b._donate()))
    assert a.tolist() == out.tolist() == [2, 4, 6]
    assert part.to_numpy().tolist() == [4, 6]


def test_a_program_writes_in_place_what_nobody_else_holds():
    b = Buffer.zeros([1000], D.int64)
    b[1] = 2**61
    b._replace(double(b._donate()))
    seen = address(b._array())
    b._replace(double(b._donate()))
    assert address(b._array()) == seen
    assert b[1].item() == -(2**63)


@pytest.mark.parametrize("hold", [Buffer.jax, Buffer.to_numpy, Buffer.copy, np.from_dlpack])
def test_what_was_handed_out_stays_when_a_program_writes(hold):
    b = Buffer.from_jax(result(), owned=True)
    held = hold(b)
    b._replace(double(b._donate()))
    assert np.asarray(held).tolist() == [1, 2, 3]
    assert b.to_numpy().tolist() == [2, 4, 6]


def test_an_array_of_the_caller_is_not_given_away():
    array = result()
    b = Buffer.from_jax(array)
    b._replace(double(b._donate()))
    assert array.tolist() == [1, 2, 3]
    assert b.to_numpy().tolist() == [2, 4, 6]


def test_contents_that_a_program_wrote_over_are_not_read():
    b = Buffer.from_jax(result(), owned=True)
    part = b[1:]
    double(b._donate())
    for read in (b.jax, b._array, b._donate, b.to_numpy, b.copy, part.to_numpy, b[0].item):
        with pytest.raises(RuntimeError, match="given to a program that wrote them over"):
            read()
    with pytest.raises(RuntimeError, match=r"Buffer\(float32, \(3,\), cpu:0\) were given"):
        b[0] = 1
    b._replace(result())
    assert part.to_numpy().tolist() == [2, 3]


def test_a_program_writes_a_view(gpus):
    for device in (CPU(), gpus[1]):
        whole = Buffer.zeros([4], D.float32).to(device)
        part = whole[1:3]
        part._replace(jax.device_put(np.float32([5, 6]), device.jax))
        assert whole.to(CPU()).to_numpy().tolist() == [0, 5, 6, 0]
        part._replace(double(part._donate()))
        assert whole.to(CPU()).to_numpy().tolist() == [0, 10, 12, 0]


@pytest.mark.parametrize("array", [result((1, 2)), result((1, 2, 3), np.int32)])
def test_a_program_must_give_what_fits(array):
    with pytest.raises(ValueError, match=r"in the place of Buffer\(float32, \(3,\), cpu:0\)"):
        Buffer.from_jax(result())._replace(array)


# ---------------------------------------------------------------- accelerators


def test_an_accelerators_buffer(gpus):
    b = Buffer.from_numpy(np.array([[1, 2], [3, 2**62]])).to(gpus[2])
    assert (b.device, b.is_host, b.shape, b.dtype) == (gpus[2], False, (2, 2), D.int64)
    assert repr(b) == "Buffer(int64, (2, 2), gpu:2)"
    assert b.jax().devices() == {gpus[2].jax}
    assert b.to_numpy().tolist() == [[1, 2], [3, 2**62]]
    assert b[1, 1].item() == 2**62
    assert b.to(Accelerator(2)) is b
    assert b.__dlpack_device__()[0] == 1
    assert np.asarray(b)[1, 0] == 3


@pytest.mark.parametrize("dtype", [d for d in DType if d.size_in_bits != 6])
def test_zeros_are_the_same_bits_everywhere(gpus, dtype):
    there = Buffer.zeros([2, 3], dtype, gpus[1])
    assert there.dtype is dtype
    assert there.jax().devices() == {gpus[1].jax}
    assert there.to_numpy().tobytes() == Buffer.zeros([2, 3], dtype).to_numpy().tobytes()
    there[1, 0] = 1
    assert there[1, 0].item() == 1


def test_writes_to_an_accelerator_reach_views_and_not_arrays(gpus):
    b = Buffer.zeros([2, 3], D.int64, gpus[1])
    array, row, bits = b.jax(), b[1, ::-1], b.view(D.int32)
    b[1, 0] = 2**40
    row[0] = 7
    bits[0, 0] = -1
    assert array.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert b.to_numpy().tolist() == [[2**32 - 1, 0, 0], [2**40, 0, 7]]
    assert row.to_numpy().tolist() == [7, 0, 2**40]
    assert row.jax().devices() == b.jax().devices() == {gpus[1].jax}
    assert b[:, 0].contiguous().device == gpus[1]
    assert bits[1, :].strides == (1,) and row.strides == (-1,)


def test_views_of_an_accelerator_by_type_and_shape(gpus):
    b = Buffer.from_numpy(np.uint8([1, 0, 0x80, 0x3F])).to(gpus[0])
    assert b.view(D.bool)[:2].to_numpy().tolist() == [True, False]
    assert b[2:].view(D.bfloat16).item() == 1
    assert b.view(D.uint8, [2, 2]).to_numpy().tolist() == [[1, 0], [0x80, 0x3F]]
    flags = b.view(D.bool)
    flags[1] = True
    assert b.to_numpy().tolist()[:2] == [1, 1]


def test_copies_between_devices_share_nothing(gpus):
    host = Buffer.from_numpy(np.arange(4))
    there = host.to(gpus[0])  # the same CPU device of JAX as the host's
    host[0] = 9
    there[1] = 8
    back, other, again = there.to(CPU()), there.to(gpus[3]), there.copy()
    there._replace(double(there._donate()))
    assert host.to_numpy().tolist() == [9, 1, 2, 3]
    for b in (back, other, again):
        assert b.to_numpy().tolist() == [0, 8, 2, 3]
    assert (back.device, other.device, again.device) == (CPU(), gpus[3], gpus[0])
    assert [b.device for b in host.to([gpus[1], CPU(), gpus[2]])] == [gpus[1], CPU(), gpus[2]]


def test_inplace_copies_between_devices(gpus):
    host, there = Buffer.from_numpy(np.arange(4)), Buffer.zeros([2, 2], D.int64, gpus[1])
    there.inplace_copy_from(host)
    host[0] = 5
    assert there.to_numpy().tolist() == [[0, 1], [2, 3]]
    other = Buffer.zeros([4], D.int64, gpus[2])
    other.inplace_copy_from(there)
    other[3] = -3
    host.inplace_copy_from(other)
    assert host.to_numpy().tolist() == [0, 1, 2, -3]
    assert there.to_numpy().tolist() == [[0, 1], [2, 3]]
    part = other[1:3]
    part.inplace_copy_from(Buffer.from_numpy(np.array([7, 8])))
    assert other.to_numpy().tolist() == [0, 7, 8, -3]


def test_the_engine_says_where_an_array_is(gpus):
    array = result()
    assert Buffer.from_jax(array).device == CPU()
    assert Buffer.from_jax(array, device=gpus[0]).device == gpus[0]
    assert Buffer.from_jax(jax.device_put(array, gpus[4].jax)).device == gpus[4]
