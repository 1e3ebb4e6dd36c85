# SPDX-License-Identifier: Apache-2.0
"""`where` against NumPy, and what is refused."""

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops

CPU, GPU = DeviceRef.CPU(), DeviceRef.GPU()


@pytest.mark.parametrize("n", [0, 1, 3])
def test_against_numpy(run, n):
    c = np.arange(n * 2).reshape(n, 2) % 3 == 0
    x, y = np.arange(2, dtype=np.float32), np.float32(-1)
    got = run(
        lambda c, x, y: [
            ops.where(c, x, y), ops.where(c, 0, x), ops.where(c[:, 0:1], x, 1.5),
            ops.where(c, np.float32([7, 8]), y), ops.where(c, c, True), ops.where(c, c.shape[0], 5),
        ],
        c, x, y, dims=[["n", 2], [2], []],
    )  # fmt: skip
    want = [
        np.where(c, x, y), np.where(c, 0, x), np.where(c[:, :1], x, 1.5),
        np.where(c, np.float32([7, 8]), y), np.where(c, c, True), np.where(c, n, 5),
    ]  # fmt: skip
    for a, b, dtype in zip(got, want, ["float32"] * 4 + ["bool", "int64"], strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == dtype


def test_the_three_broadcast(run, run_symbolic):
    c, x, y = np.array([[True], [False]]), np.float32([1, 2, 3]), np.float32([[[4]], [[5]]])
    for dims in (None, [["c", 1], ["x"], ["y", 1, 1]]):
        (got,) = run(ops.where, c, x, y, dims=dims)
        np.testing.assert_array_equal(got, np.where(c, x, y))
    (got,) = run_symbolic(ops.where, c, x, y, dims=[["c", 1], ["x"], ["y", 1, 1]])
    np.testing.assert_array_equal(got, np.where(c, x, y))


def test_dtypes_promote(run):
    (got,) = run(ops.where, np.array([True, False]), np.uint8([1, 2]), np.float16([0.5, 0.25]))
    assert got.dtype == np.float16 and got.tolist() == [1, 0.25]


def test_nan_in_what_is_not_chosen_does_not_matter(run):
    (got,) = run(
        lambda x: ops.where(x > 0, ops.sqrt(x), -ops.sqrt(-x)), np.float32([4, -9, 0, np.nan])
    )
    np.testing.assert_array_equal(got, np.float32([2, -3, 0, np.nan]))


def test_what_is_refused():
    types = [
        TensorType(d, s, p)
        for d, s, p in [
            (DType.bool, [4, 6], CPU), (DType.float32, [4, 6], CPU), (DType.float32, [5], CPU),
            (DType.int64, [4, 6], CPU), (DType.bool, [4, 6], GPU), (DType.float32, ["n", 6], CPU),
        ]
    ]  # fmt: skip
    with Graph("g", input_types=types) as g:
        c, x, v, i, gpu, n = (v.tensor for v in g.inputs)
        with pytest.raises(ValueError, match="condition must be bool, not float32; compare it"):
            ops.where(x, x, x)
        with pytest.raises(ValueError, match="dimensions 6 and 5 do not broadcast"):
            ops.where(c, x, v)
        with pytest.raises(ValueError, match=r"do not broadcast; .*rebind"):
            ops.where(c, x, n)
        with pytest.raises(TypeError, match="where: at least one operand must be a graph value"):
            ops.where(c, 1, 2)
        with pytest.raises(TypeError, match="where: expected a tensor value, got bool True"):
            ops.where(True, x, x)
        with pytest.raises(ValueError, match=r"where: .*int64 .*float32"):
            ops.where(c, i, x)
        with pytest.raises(ValueError, match="where: "):
            ops.where(c, i, 0.5)
        with pytest.raises(ValueError, match="different devices, gpu:0 and cpu:0"):
            ops.where(gpu, x, x)
