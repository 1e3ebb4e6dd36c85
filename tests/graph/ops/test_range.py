# SPDX-License-Identifier: Apache-2.0
"""Ranges against NumPy, and what is refused."""

import re

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops, text

CPU = DeviceRef.CPU()


def arange(*bounds, dtype="int64", **kwargs):
    return ops.range(*bounds, dtype=DType[dtype], device=CPU, **kwargs)


INTS = [
    (0, 5), (2, 11, 3), (0, 10, 3), (5, 0, -1), (10, 0, -3), (3, 3), (5, 0), (0, 5, -1), (-3, 3),
    (0, 1, 7), (7, -7, -5),
]  # fmt: skip
FLOATS = [(0, 1, 0.1), (0, 1, 0.3), (0.5, 5), (2, -1, -0.5), (0, 0), (1, 0, 0.5), (0, 4)]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_of_integers_against_numpy(run, dtype):
    got = run(lambda x: [arange(*b, dtype=dtype) for b in INTS], np.int8(0))
    for bounds, result in zip(INTS, got, strict=True):
        want = np.arange(*bounds, dtype=dtype)
        assert result.dtype == dtype and result.tolist() == want.tolist(), bounds


def test_of_unsigned_integers(run):
    up, down = run(
        lambda x: [arange(250, 255, dtype="uint8"), arange(5, 0, -1, dtype="uint16")], np.int8(0)
    )
    assert up.dtype == np.uint8 and up.tolist() == [250, 251, 252, 253, 254]
    assert down.dtype == np.uint16 and down.tolist() == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_of_floats_against_numpy(run, dtype):
    got = run(lambda x: [arange(*b, dtype=dtype) for b in FLOATS], np.int8(0))
    for bounds, result in zip(FLOATS, got, strict=True):
        want = np.arange(*bounds, dtype=np.float64)
        assert result.dtype == dtype and result.shape == want.shape, bounds
        np.testing.assert_allclose(result, want, rtol=np.finfo(dtype).eps, atol=1e-7)


def test_narrow_floats_are_rounded_once(run):
    (got,) = run(lambda x: arange(0, 1, 0.001, dtype="float16"), np.int8(0))
    np.testing.assert_array_equal(got, (np.arange(1000, dtype=np.float32) * 0.001).astype("f2"))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_to_dims(run, n):
    got = run(
        lambda x: [
            arange(0, Dim("n")), arange(1, Dim("n"), dtype="float32"), arange(Dim("n"), 0, -1),
            arange(0, Dim("n"), 3), arange(0, Dim("n") * 2, 2), arange(0, x.shape[0], 2),
            arange(Dim("n") - 1, 10), arange(Dim("n"), Dim("n") + 2, dtype="bfloat16"),
            arange(Dim("n"), 0, -3), arange(0, Dim("n"), Dim("n")),
        ],
        np.zeros(n), dims=[["n"]],
    )  # fmt: skip
    want = [
        np.arange(n), np.arange(1, n, dtype=np.float32), np.arange(n, 0, -1), np.arange(0, n, 3),
        np.arange(0, 2 * n, 2), np.arange(0, n, 2), np.arange(n - 1, 10), np.arange(n, n + 2),
        np.arange(n, 0, -3), np.arange(0, n, n),
    ]  # fmt: skip
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=str(i))
    assert got[1].dtype == np.float32


def test_size_0(run):
    (got, named) = run(
        lambda x: [arange(0, Dim("n")), arange(1, Dim("n"), out_dim="rest")],
        np.zeros(0), dims=[["n"]],
    )  # fmt: skip
    assert got.shape == named.shape == (0,)
    with pytest.raises(ValueError, match="range: from 1 to 0 there are -1 elements; where there m"):
        run(lambda x: arange(1, Dim("n")), np.zeros(0), dims=[["n"]])


@pytest.mark.parametrize("n", [1, 4, 7])
def test_traced_with_symbolic_dims(run_symbolic, n):
    got = run_symbolic(
        lambda x: [
            arange(0, Dim("n")), arange(0, Dim("n"), 2, dtype="float32"), arange(Dim("n"), 0, -3),
            arange(0, Dim("n"), out_dim="m"),
        ],
        np.zeros(n), dims=[["n"]],
    )  # fmt: skip
    want = [np.arange(n), np.arange(0, n, 2), np.arange(n, 0, -3), np.arange(n)]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_sizes():
    with Graph("g"):
        n = Dim("n")
        assert arange(0, n).shape == ["n"]
        assert arange(1, n).shape == [n - 1]
        assert arange(0, n * 2, 2).shape == ["n"]
        assert arange(0, n, 3).shape == [(n + 2) // 3]
        assert arange(n, 0, -2).shape == [(n + 1) // 2]
        assert arange(n, n - 2).shape == [0]
        assert arange(0, 5, out_dim="five").shape == ["five"]


def test_out_dim_with_bounds_that_are_known(run):
    a, b, c = run(
        lambda x: [
            arange(0, 5, out_dim=5), arange(0, 3, 0.5, out_dim="s", dtype="float32"),
            arange(0.5, Dim("n"), out_dim="n", dtype="float32"),
        ],
        np.zeros(4), dims=[["n"]],
    )  # fmt: skip
    assert a.tolist() == [0, 1, 2, 3, 4] and len(b) == 6 and c.tolist() == [0.5, 1.5, 2.5, 3.5]
    with Graph("g"), pytest.raises(ValueError, match="range has 5 elements, out_dim says 4"):
        arange(0, 5, out_dim=4)
    with pytest.raises(ValueError, match="range has 4 elements, out_dim says 3"):
        run(lambda x: arange(0, Dim("n"), out_dim=3), np.zeros(4), dims=[["n"]])


def test_bounds_by_value(run):
    (a, b, c, d) = run(
        lambda k, y: [
            arange(0, k, out_dim=4), arange(k, 100, k, out_dim="m", dtype="float32"),
            arange(k, 0, -1, out_dim=3, dtype="int8"), arange(0, k, 2, out_dim=3),
        ],
        np.int32(4), np.zeros(2), dims=[[], ["m"]],
    )  # fmt: skip
    assert a.dtype == np.int64 and a.tolist() == [0, 1, 2, 3]
    assert b.dtype == np.float32 and b.tolist() == [4, 8]
    assert c.dtype == np.int8 and c.tolist() == [4, 3, 2]
    assert d.tolist() == [0, 2, 4]  # out_dim decides, not stop


@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [
        (0, 4, 1), (0, 0, 1), (5, 0, 1), (5, 0, -1), (5, 0, -2), (-3, 4, 3), (0, 6, 3), (0, 1, 5),
        (2**62, 2**62 + 5, 2), (-(2**63), 2**63 - 1, 2**62),
    ],
)  # fmt: skip
def test_as_many_as_there_are_between_values(run, start, stop, step):
    got = run(
        lambda a, b, s: [
            arange(a, b, s, out_dim="p"), arange(start, b, step, out_dim="q")
        ],
        *map(np.int64, (start, stop, step)),
    )  # fmt: skip
    want = np.arange(start, stop, step)
    np.testing.assert_array_equal(got[0], want)
    np.testing.assert_array_equal(got[1], want)


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 1, 0.25), (0.5, 2, 0.5), (1, 0, -0.3), (0, 1, 5)]
)
def test_as_many_as_there_are_between_floats(run, start, stop, step):
    (got,) = run(
        lambda *v: arange(*v, out_dim="p", dtype="float32"),
        *[np.float32(v) for v in (start, stop, step)],
    )
    np.testing.assert_allclose(got, np.arange(start, stop, step, np.float32), rtol=1e-6)


@pytest.mark.parametrize(("stop", "step"), [(4.0, 0.0), (np.nan, 1.0), (np.inf, 1.0), (1e30, 1.0)])
def test_values_between_which_there_is_no_number_of_steps(run, stop, step):
    def build(b, s):
        return arange(0, b, s, out_dim="p", dtype="float64")

    message = r"range: its operands' values allow no size 'p' .*\(given f64\[\], f64\[\]\)\n  at .*"
    with pytest.raises(ValueError, match=message):
        run(build, np.float64(stop), np.float64(step))


def test_one_program_needs_the_number_of_elements(run_symbolic):
    message = (
        r"(?s)range: the size upto depends on values, .*a number or a dimension of an input as "
        r"out_dim.*\(given si64\[\]\)\n  at .*test_range"
    )
    with pytest.raises(ValueError, match=message):
        run_symbolic(
            lambda k, x: arange(0, k, out_dim="upto"), np.int64(4), np.zeros(2), dims=[[], ["n"]]
        )


def test_what_only_the_sizes_bring_beyond_the_dtype_is_refused(run):
    (got,) = run(lambda x: arange(0, Dim("n"), dtype="int8"), np.zeros(128), dims=[["n"]])
    assert got[-1] == 127
    with pytest.raises(ValueError, match="range: 199 is beyond the range of int8"):
        run(lambda x: arange(0, Dim("n"), dtype="int8"), np.zeros(200), dims=[["n"]])


@pytest.mark.parametrize(
    ("bounds", "dtype", "error", "problem"),
    [
        ((0, 200), "int8", ValueError, "stop: 200 does not fit int8"),
        ((-3, 3), "uint8", ValueError, "start: -3 does not fit uint8"),
        ((0, 2**40, 2**39), "int32", ValueError, "stop: .* does not fit int32"),
        ((0, 1.5), "int64", ValueError, "stop: .*float"),
        ((0, 5, 0), "int64", ValueError, "the step is 0"),
        ((0, 5, 0.0), "float32", ValueError, "the step is 0"),
        ((0, float("nan")), "float32", ValueError, "stop is nan"),
        ((0, float("inf")), "float32", ValueError, "stop is inf"),
        (
            (0, Dim("n"), 0.5),
            "float32",
            ValueError,
            "the number of elements is not known .* .a dim with a fraction.; give it as",
        ),
        ((0, "n"), "int64", TypeError, "stop is a number, a dim or a scalar tensor, not 'n'"),
        ((0, None), "int64", TypeError, "stop is a number, a dim or a scalar tensor, not None"),
        ((0, True), "int64", TypeError, "stop is a number, a dim or a scalar tensor, not True"),
        ((0, 1), "bool", ValueError, "there is no range of bool"),
    ],
)
def test_what_is_refused(bounds, dtype, error, problem):
    with Graph("g"), pytest.raises(error, match=f"range: {problem}"):
        arange(*bounds, dtype=dtype)


def test_what_values_are_refused():
    types = [TensorType(d, s, CPU) for d, s in ((DType.int64, []), (DType.int64, [4]))]
    with Graph("g", input_types=[*types, TensorType(DType.float32, [], CPU)]) as g:
        k, v, f = (i.tensor for i in g.inputs)
        with pytest.raises(ValueError, match=r"\(a bound is a tensor\); give it as out_dim"):
            arange(0, k)
        with pytest.raises(
            ValueError, match=r"a bound that is a tensor is a scalar, not si64\[4\]"
        ):
            arange(0, v, out_dim=3)
        with pytest.raises(ValueError, match="a bound of a range of int64 is not float32; cast it"):
            arange(0, f, out_dim=3)
        with pytest.raises(TypeError, match="dtype is a DType"):
            ops.range(0, 4, dtype="int64", device=CPU)
        with pytest.raises(TypeError, match="out_dim is the negative size -1"):
            arange(0, k, out_dim=-1)
        with pytest.raises(TypeError, match="dtype"):
            ops.range(0, 4, device=CPU)
        assert str(ops.range(0, 4, dtype=DType.int8, device=DeviceRef.GPU(1)).device) == "gpu:1"


def test_numpy_numbers_are_numbers(run):
    (got,) = run(lambda x: arange(np.int64(1), np.array(4), Dim(2)), np.int8(0))
    assert got.tolist() == [1, 3]


def test_ranges_read_back_from_text():
    with Graph("g", input_types=[TensorType(DType.int64, ["n"], CPU)]) as g:
        x = g.inputs[0].tensor
        g.output(
            arange(0, Dim("n"), 2), arange(0, x[0], out_dim=3), arange(0, 1, 0.5, dtype="float32")
        )
    written = text.dump(g)
    assert re.search(r'stop = "value"', written)
    assert text.dump(text.parse(written)) == written
