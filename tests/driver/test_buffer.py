# SPDX-License-Identifier: Apache-2.0
"""Buffers in host memory: making, indexing, viewing, writing, copying."""

import copy
import pickle
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maxjax.driver import CPU, Accelerator, Buffer, Usage
from maxjax.dtype import DType

D = DType


def grid() -> np.ndarray:
    return np.arange(12, dtype=np.float32).reshape(3, 4)


# ---------------------------------------------------------------- making


@pytest.mark.parametrize("dtype", list(DType))
def test_every_element_type_is_held(dtype):
    b = Buffer.zeros([2, 3], dtype)
    assert (b.dtype, b.shape, b.element_size) == (dtype, (2, 3), dtype.size_in_bytes)
    b[1, 2] = 1
    values = b.to_numpy()
    assert values.dtype == dtype.np
    assert values.astype(np.float32)[1, 2] == 1
    # All bits zero: the number 0 but for float8_e8m0fnu, which has none.
    assert not values.view(np.uint8).ravel()[: -dtype.size_in_bytes].any()
    assert b[1, 2].item() == 1
    assert type(b[1, 2].item()) is (
        bool if dtype is D.bool else int if dtype.is_integral() else float
    )


def test_what_a_buffer_says_of_itself():
    b = Buffer(D.float32, (2, 3), CPU(), Usage.STAGING)
    assert (b.rank, b.num_elements, b.strides, b.is_contiguous) == (2, 6, (3, 1), True)
    assert (b.device, b.is_host, b.pinned, b.usage) == (CPU(), True, False, Usage.STAGING)
    assert b.stream == CPU().default_queue
    assert repr(b) == "Buffer(float32, (2, 3), cpu:0)"
    assert Buffer(D.float32, [2], stream=CPU().default_queue).device == CPU()
    assert Buffer(D.float32, [2], CPU().default_queue).usage is Usage.DEFAULT


def test_an_array_and_a_device_make_a_buffer():
    a = grid()
    for b in (Buffer(a, CPU()), Buffer(shape=a, device=CPU())):
        a[0, 0] += 1
        assert b[0, 0].item() == a[0, 0]


def test_scalars():
    assert Buffer.scalar(-7, D.int64).item() == -7
    assert Buffer.scalar(np.float32(2.5), D.bfloat16, CPU()).item() == 2.5
    assert Buffer.scalar(2, D.bool).item() is True
    assert Buffer.scalar(True, D.int32).item() == 1
    assert Buffer.scalar(1e300, D.float32).item() == float("inf")
    assert Buffer.scalar(2**64 - 1, D.uint64).item() == 2**64 - 1


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Buffer(), TypeError, "needs a dtype and a shape"),
        (lambda: Buffer(D.int8), TypeError, "needs a dtype and a shape"),
        (lambda: Buffer([2], D.int8), TypeError, "a dtype is a DType"),
        (lambda: Buffer(D.int8, 3), TypeError, "a list or tuple of ints"),
        (lambda: Buffer(D.int8, "ab"), TypeError, "a list or tuple of ints"),
        (lambda: Buffer(D.int8, iter([2])), TypeError, "a list or tuple of ints"),
        (lambda: Buffer(D.int8, [2.5]), TypeError, r"sizes of a shape are ints, got \[2\.5\]"),
        (lambda: Buffer(D.int8, [2, -1]), ValueError, r"0 or more, got \[2, -1\]"),
        (lambda: Buffer(D.int8, [2], "cpu"), TypeError, "expected a Device, .* got str 'cpu'"),
        (lambda: Buffer.zeros([2], "int8"), TypeError, "a dtype is a DType"),
        (lambda: Buffer.scalar(1, np.int8), TypeError, "a dtype is a DType"),
        (lambda: Buffer.scalar(300, D.int8), ValueError, "300 is out of the range of int8"),
        (lambda: Buffer.scalar(-1, D.uint8), ValueError, "-1 is out of the range of uint8"),
        (lambda: Buffer.scalar(2.5, D.int32), TypeError, r"an int, not float 2\.5"),
        (lambda: Buffer.scalar("1", D.float32), TypeError, "a number, not str '1'"),
        (lambda: Buffer.scalar(1j, D.float32), TypeError, "a number, not complex 1j"),
        (lambda: Buffer.scalar(np.str_("1"), D.float32), TypeError, "a number, not str_"),
        (lambda: Buffer.scalar(10**400, D.float64), ValueError, "beyond the range of float64"),
    ],
)
def test_what_makes_no_buffer(make, error, text):
    with pytest.raises(error, match=text):
        make()


# ---------------------------------------------------------------- NumPy


def test_numpy_memory_is_shared_both_ways():
    a = grid()
    b = Buffer.from_numpy(a)
    a[0, 0] = 42
    b[1, 1] = -3
    assert b[0, 0].item() == 42
    assert a[1, 1] == -3
    out = b.to_numpy()
    out[2, 2] = 7
    assert a[2, 2] == b[2, 2].item() == 7
    assert np.shares_memory(out, a)


def test_what_is_done_to_a_handed_out_array_is_no_matter():
    a = grid()
    b = Buffer.from_numpy(a)
    out = b.to_numpy()
    out.flags.writeable = a.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from NumPy 2.5 on
        out.shape = (12,)
    b[0, 0] = 5
    assert b.shape == (3, 4) and out[0] == 5


@pytest.mark.parametrize(
    "array",
    [
        grid().T,
        grid()[:, ::2],
        grid()[::-1],
        grid()[1:, 1:],
        np.asfortranarray(grid()),
        np.broadcast_to(np.float32([1, 2]), (2, 2)),
        grid().astype(">f4"),
        np.arange(5, dtype=">i8")[::2],
        np.frombuffer(bytes(range(9)), np.uint8)[1:].view("<i4"),
    ],
    ids=["transposed", "stepped", "reversed", "cut", "fortran", "broadcast", "big-endian",
         "big-endian-stepped", "unaligned"],
)  # fmt: skip
def test_memory_that_cannot_be_shared_is_copied(array):
    b = Buffer.from_numpy(array)
    assert b.is_contiguous
    assert b.to_numpy().tolist() == array.tolist()
    assert b.to_numpy().dtype.isnative
    assert not np.shares_memory(b.to_numpy(), array)


def test_read_only_memory_is_copied():
    a = grid()
    a.flags.writeable = False
    b = Buffer.from_numpy(a)
    b[0, 0] = 5
    assert a[0, 0] == 0


def test_arrays_without_elements():
    for shape in [(0,), (0, 3), (3, 0), (2, 0, 4)]:
        b = Buffer.from_numpy(np.zeros(shape, np.int16))
        assert (b.shape, b.num_elements, b.is_contiguous) == (shape, 0, True)
        assert b.copy().to_numpy().shape == b.jax().shape == np.asarray(b).shape == shape
        assert b.view(D.int16, [0]).shape == (0,)
        b.inplace_copy_from(Buffer.zeros(shape, D.int16))
    assert str(Buffer.zeros([0, 2], D.int8)).startswith("Buffer([]")


def test_array_subclasses_are_plain_arrays():
    class Mine(np.ndarray):
        pass

    b = Buffer.from_numpy(np.array([1.0, 2.0]).view(Mine))
    assert type(b.to_numpy()) is np.ndarray
    assert b[1].item() == 2
    assert Buffer.from_numpy(np.ma.array([1.0, 2.0])).to_numpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"masked; give them values with filled"):
        Buffer.from_numpy(np.ma.array([1.0, 2.0], mask=[True, False]))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, 2], "expected a NumPy array, got list"),
        (3.0, "expected a NumPy array, got float"),
        (np.float32(3), "expected a NumPy array, got float32"),
        (np.array([1j]), "cannot hold these elements: .*complex128"),
        (np.array(["a"]), "cannot hold these elements"),
        (np.array([object()]), "cannot hold these elements"),
        (np.array(["2020-01-01"], "M8[D]"), "cannot hold these elements"),
    ],
)
def test_what_from_numpy_refuses(value, text):
    with pytest.raises(TypeError, match=text):
        Buffer.from_numpy(value)


def test_a_buffer_is_an_array_to_numpy():
    b = Buffer.from_numpy(grid())
    assert np.shares_memory(np.asarray(b), b.to_numpy())
    assert np.asarray(b, np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(b), b.to_numpy())
    assert np.array(b, copy=None).tolist() == grid().tolist()
    assert (grid() + b == 2 * grid()).all()
    with pytest.raises(TypeError):
        b + 1
    with pytest.raises(TypeError):
        len(b)


# ---------------------------------------------------------------- indexing


@given(
    st.data(),
    hnp.arrays(np.int32, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)),
    st.booleans(),
)
def test_indexing_is_numpys(data, array, shared):
    """Values, shape, strides and contiguity, of shared memory and of linked views."""
    axis = lambda n: st.slices(n) | (st.integers(-n, n - 1) if n else st.nothing())  # noqa: E731
    index = tuple(data.draw(axis(n)) for n in array.shape)
    b = Buffer.from_numpy(array) if shared else Buffer.from_numpy(array).copy()
    got, want = b[index], array[(*index, ...)]
    assert got.shape == want.shape
    assert got.to_numpy().tolist() == want.tolist()
    assert np.shares_memory(got.to_numpy(), b.to_numpy()) == bool(want.size)
    if want.size:
        assert got.is_contiguous == want.flags.c_contiguous
        sizes = zip(got.shape, got.strides, want.strides, strict=True)
        assert all(step * 4 == theirs for n, step, theirs in sizes if n > 1)
    assert got.contiguous().to_numpy().tolist() == want.tolist()


@pytest.mark.parametrize("index", [[0, 1], (0, 1), range(2), np.array([0, 1]), (False, True)])
def test_any_sequence_of_ints_is_an_index(index):
    assert Buffer.from_numpy(grid())[index].item() == 1


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        (0, ValueError, "a Buffer of rank 2 takes 2 indices, got 1"),
        (slice(1, None), ValueError, "write : for a whole axis"),
        ((0, 0, 0), ValueError, "takes 2 indices, got 3"),
        ((), ValueError, "takes 2 indices, got 0"),
        ((0, 4), IndexError, "index 4 is out of range for axis 1 with size 4"),
        ((-4, 0), IndexError, "index -4 is out of range for axis 0 with size 3"),
        (..., TypeError, "not ellipsis"),
        ((None, 0), TypeError, "not NoneType None"),
        ((0, 1.0), TypeError, r"not float 1\.0"),
        ("ab", TypeError, "not str 'ab'"),
        ({0, 1}, TypeError, "not set"),
        ((slice(None, None, 0), 0), ValueError, "step 0"),
    ],
)
def test_what_is_no_index(index, error, text):
    b = Buffer.from_numpy(grid())
    with pytest.raises(error, match=text):
        b[index]
    with pytest.raises((error, TypeError)):
        b[index] = 1.0


def test_slices_share_memory():
    for b in (Buffer.from_numpy(grid()), Buffer.from_numpy(grid()).copy()):
        column = b[:, 1]
        part = column[::-2]
        part[0] = -5
        b[0, 1] = 7
        assert b[2, 1].item() == -5
        assert column[0].item() == part[1].item() == 7


def test_to_numpy_of_a_slice_has_the_values_of_the_slice():
    assert Buffer.from_numpy(grid())[:, 1].to_numpy().tolist() == [1, 5, 9]


# ---------------------------------------------------------------- writing


def test_writes_are_done_when_they_return():
    for _ in range(200):
        z = Buffer.zeros([4], D.int8)
        z[2] = 7
        c = z.copy()
        c[0] = 9
        d = Buffer.zeros([4], D.int8)
        d.inplace_copy_from(c)
        c[1] = 8
        assert z.to_numpy().tolist() == [0, 0, 7, 0]
        assert c.to_numpy().tolist() == [9, 8, 7, 0]
        assert d.to_numpy().tolist() == [9, 0, 7, 0]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (300, ValueError, "300 is out of the range of int8, -128 to 127"),
        (1.0, TypeError, r"an int, not float 1\.0; convert it with int"),
        ("x", TypeError, "a number, not str 'x'"),
        (None, TypeError, "a number, not NoneType"),
        (Buffer.zeros([], D.int8), TypeError, "a number, not Buffer"),
        (np.int8([1]), TypeError, "a number, not ndarray"),
    ],
)
def test_what_is_no_element(value, error, text):
    b = Buffer.zeros([2], D.int8)
    with pytest.raises(error, match=text):
        b[0] = value
    assert b.to_numpy().tolist() == [0, 0]


def test_only_single_elements_are_set():
    b = Buffer.zeros([2, 2], D.int8)
    with pytest.raises(TypeError, match="only single elements can be set"):
        b[:, 0] = 1
    one = Buffer.zeros([], D.int8)
    one[()] = 3
    assert one.item() == 3


def test_item_is_for_one_element():
    for shape in ([2], [0], [2, 2]):
        with pytest.raises(ValueError, match="exactly one element"):
            Buffer.zeros(shape, D.int8).item()
    assert Buffer.zeros([1, 1], D.int8).item() == 0


# ---------------------------------------------------------------- views


def test_views_share_memory():
    for b in (Buffer.from_numpy(grid()), Buffer.from_numpy(grid()).copy()):
        v = b.view(D.float32, [12])
        bits = b.view(D.int32)
        v[5] = -1.0
        b[2, 3] = 99.0
        assert b[1, 1].item() == -1
        assert v[11].item() == 99
        bits[0, 0] = 0x3F800000
        assert b[0, 0].item() == 1
        assert b[1:, :].view(D.uint8).shape == (2, 16)
        assert b[:, 2:].view(D.float64).shape == (3, 1)
        assert b[::2, :].view(D.int16).strides == (16, 1)
        assert b.view(D.uint8, [48])[44:].view(D.float32).item() == 99


@pytest.mark.parametrize("shared", [True, False])
def test_a_view_is_numpys_view(shared):
    a = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    b = Buffer.from_numpy(a) if shared else Buffer.from_numpy(a).copy()
    for index in [
        np.s_[:, :, :],
        np.s_[1, :, :],
        np.s_[:, ::2, :],
        np.s_[:, :, ::2],
        np.s_[0, 1, 2:],
    ]:
        for dtype in (D.int8, D.int32, D.int64, D.float32):
            try:
                want = a[index].view(dtype.np)
            except ValueError:
                with pytest.raises(ValueError, match="cannot view"):
                    b[index].view(dtype)
                continue
            got = b[index].view(dtype)
            assert (got.dtype, got.shape) == (dtype, want.shape)
            assert got.to_numpy().tolist() == want.tolist()
            assert got.is_contiguous == want.flags.c_contiguous


@pytest.mark.parametrize(
    ("view", "error", "text"),
    [
        (lambda b: b.view(D.float32, [5]), ValueError, r"as float32 with shape \[5\]: 48 bytes"),
        (lambda b: b.view(D.int64, [12]), ValueError, "do not divide into that"),
        (lambda b: b[:, :3].view(D.float64), ValueError, "do not divide into that"),
        (lambda b: b[:, ::2].view(D.float32, [6]), ValueError, r"call contiguous\(\) first"),
        (lambda b: b[:, ::2].view(D.int16), ValueError, r"strides \[4, 2\] as int16"),
        (lambda b: b[0, 0].view(D.uint8), ValueError, "do not divide into that"),
        (lambda b: b.view(D.float32, [-1]), ValueError, "0 or more"),
        (lambda b: b.view("int8"), TypeError, "a dtype is a DType"),
        (lambda b: b.view(D.uint8).view(D.float4_e2m1fn), ValueError, "a byte of its own"),
    ],
)
def test_what_cannot_be_viewed(view, error, text):
    with pytest.raises(error, match=text):
        view(Buffer.from_numpy(grid()))


def test_a_scalar_is_viewed_as_its_bytes():
    one = Buffer.scalar(1.0, D.float32)
    assert one.view(D.int32).item() == 0x3F800000
    assert one.view(D.uint8, [4]).to_numpy().tolist() == [0, 0, 0x80, 0x3F]


# ---------------------------------------------------------------- copies


def test_copies_share_nothing():
    b = Buffer.from_numpy(grid())
    for c in (b.copy(), b.copy(CPU()), b.contiguous(), copy.copy(b), copy.deepcopy(b)):
        c[0, 0] = 50
        assert b[0, 0].item() == 0
        assert c[2, 3].item() == 11
    assert b.to(CPU()) is b
    assert b.to([CPU(), CPU()]) == [b, b]
    assert b.to([]) == []


def test_copying_to_no_device():
    b = Buffer.from_numpy(grid())
    for device in ("cpu", None, ["cpu"]):
        with pytest.raises(TypeError, match="expected a Device or a list of them"):
            b.to(device)
    with pytest.raises(TypeError, match="expected a Device, got str 'cpu'"):
        b.copy("cpu")


def test_inplace_copy_goes_by_row_order():
    b = Buffer.zeros([4, 3], D.float32)
    b.inplace_copy_from(Buffer.from_numpy(grid()))
    assert b.to_numpy().tolist() == grid().reshape(4, 3).tolist()
    b.inplace_copy_from(b)
    rows = b.view(D.float32, [12])
    rows[2:].inplace_copy_from(rows[:10])
    assert rows.to_numpy().tolist() == [0, 1, *range(10)]


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        (lambda: Buffer.zeros([2, 4], D.float32), ValueError, "number of elements must be equal"),
        (lambda: Buffer.zeros([3, 4], D.int32), ValueError, "the dtype and the number"),
        (lambda: Buffer.zeros([3, 8], D.float32)[:, ::2], ValueError, r"strides \[8, 2\] is not"),
        (grid, TypeError, r"got ndarray; use Buffer\.from_numpy"),
    ],
)
def test_what_cannot_be_copied_in_place(source, error, text):
    b = Buffer.from_numpy(grid())
    with pytest.raises(error, match=text):
        b.inplace_copy_from(source())
    assert b.to_numpy().tolist() == grid().tolist()


def test_a_slice_is_not_copied_into():
    with pytest.raises(ValueError, match="is not contiguous"):
        Buffer.from_numpy(grid())[:, ::2].inplace_copy_from(Buffer.zeros([3, 2], D.float32))


# ---------------------------------------------------------------- text


def test_text():
    assert str(Buffer.from_numpy(np.float32([[0, 1]]))) == (
        "Buffer([[0., 1.]], dtype=float32, shape=(1, 2), device=cpu:0)"
    )
    assert str(Buffer.scalar(3, D.float8_e4m3fn)).startswith("Buffer(3, dtype=float8_e4m3fn")


def test_large_buffers_are_described():
    large = Buffer.zeros([1000, 1000], D.bfloat16)
    assert repr(large) == "Buffer(bfloat16, (1000, 1000), cpu:0)"
    assert str(large) == "Buffer(..., dtype=bfloat16, shape=(1000, 1000), device=cpu:0)"


def test_buffers_are_not_pickled():
    with pytest.raises(TypeError, match=r"save to_numpy\(\)"):
        pickle.dumps(Buffer.zeros([1], D.int8))


# ---------------------------------------------------------------- threads


def test_threads_make_and_copy_buffers():
    failures = []
    source = Buffer.from_numpy(np.arange(1000))
    source.copy().jax()
    start = threading.Barrier(8)

    def work(me: int) -> None:
        try:
            start.wait()
            for i in range(30):
                b = Buffer.zeros([1000], D.int64)
                b.inplace_copy_from(source)
                b[i] = 2**62 + me
                c = Buffer.from_jax(b.jax()).copy()
                c[0] = -me
                assert c[i if i else 1].item() == (2**62 + me if i else 1)
                assert b[0].item() == (0 if i else 2**62 + me)
                assert c.view(D.uint8)[:8].contiguous().view(D.int64).item() == -me
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert source.to_numpy().tolist() == list(range(1000))


@pytest.mark.parametrize("place", ["host", "result", "accelerator"])
def test_threads_write_one_buffer(gpus, place):
    """No write is lost while the contents move from one kind of storage to another."""
    device = Accelerator(1) if place == "accelerator" else CPU()
    n = 8 if place == "accelerator" else 64
    for _ in range(5):
        b = Buffer.zeros([8, n], D.int32, device)
        if place == "result":
            b = Buffer.from_jax(b.jax())
        start = threading.Barrier(8)

        def work(me: int, b=b, start=start) -> None:
            start.wait()
            for i in range(n):
                b[me, i] = me + 1
                b.shape, b.strides, b[me, i].item()

        threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (b.to_numpy() == np.arange(1, 9)[:, None]).all()
