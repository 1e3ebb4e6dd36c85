# SPDX-License-Identifier: Apache-2.0
"""Complex products and pairs against NumPy, and what is refused."""

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops

CPU, GPU = DeviceRef.CPU(), DeviceRef.GPU()


def product(x, y):
    z = (x[..., 0] + 1j * x[..., 1]) * (y[..., 0] + 1j * y[..., 1])
    return np.stack([z.real, z.imag], -1)


@pytest.mark.parametrize(
    ("a", "b"), [((3, 2), (3, 2)), ((3, 2), (2,)), ((3, 1, 2), (4, 2)), ((0, 2), (1, 2))]
)
def test_products_against_numpy(run, a, b):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=a).astype(np.float32), rng.normal(size=b).astype(np.float32)
    (got,) = run(ops.complex.mul, x, y)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, product(x, y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 4])
def test_products_of_symbolic_sizes(run, run_symbolic, n):
    x, y = np.arange(2.0 * n).reshape(n, 2), np.array([3.0, -1.0])
    for runner in (run, run_symbolic):
        (got,) = runner(ops.complex.mul, x, y, dims=[["n", 2], [2]])
        np.testing.assert_array_equal(got, product(x, y))


def test_products_of_integers_and_of_two_dtypes(run):
    x = np.array([[1, 2], [-3, 4]], np.int32)
    exact, wide = run(lambda x: [ops.complex.mul(x, x), ops.complex.mul(x, x.cast(DType.int64))], x)
    assert (exact.dtype, wide.dtype) == (np.int32, np.int64)
    assert exact.tolist() == wide.tolist() == [[-3, 4], [-7, -24]]


def test_what_products_refuse():
    f = DType.float32
    types = [
        TensorType(d, s, p)
        for d, s, p in [
            (f, [3, 2], CPU), (f, [3, 3], CPU), (f, [], CPU), (f, [3, "n"], CPU), (f, [4, 2], CPU),
            (f, [3, 2], GPU), (DType.int64, [3, 2], CPU),
        ]
    ]  # fmt: skip
    with Graph("g", input_types=types) as g:
        x, three, scalar, sym, other, gpu, ints = (v.tensor for v in g.inputs)
        for wrong, shown in ((three, "f32.3, 3"), (scalar, "f32"), (sym, "f32.3, n")):
            with pytest.raises(ValueError, match=f"complex_mul: .*; {shown}.* has none"):
                ops.complex.mul(x, wrong)
        with pytest.raises(ValueError, match="dimensions 3 and 4 do not broadcast"):
            ops.complex.mul(x, other)
        with pytest.raises(ValueError, match="different devices, cpu:0 and gpu:0"):
            ops.complex.mul(x, gpu)
        with pytest.raises(ValueError, match="complex_mul: "):
            ops.complex.mul(x, ints)
        for wrong in (2.0, np.ones(2, np.float32)):
            with pytest.raises(TypeError, match="complex_mul: expected a tensor value"):
                ops.complex.mul(x, wrong)


def test_pairs(run):
    x = np.arange(12.0).reshape(2, 6)
    got, none = run(
        lambda x: [ops.as_interleaved_complex(x), ops.complex.as_interleaved_complex(x[:, 6:])],
        x, dims=[["n", 6]],
    )  # fmt: skip
    assert got.tolist() == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]
    assert none.shape == (2, 0, 2)


def test_what_has_no_pairs():
    types = [TensorType(DType.float32, s, CPU) for s in ([5], ["n"], [])]
    with Graph("g", input_types=types) as g:
        odd, sym, scalar = (v.tensor for v in g.inputs)
        with pytest.raises(ValueError, match="the last dimension, 5, does not divide into pairs"):
            ops.as_interleaved_complex(odd)
        with pytest.raises(TypeError, match="the last dimension is n; rebind it to a number first"):
            ops.as_interleaved_complex(sym)
        with pytest.raises(ValueError, match="a scalar has no pairs"):
            ops.as_interleaved_complex(scalar)
        with pytest.raises(TypeError, match="as_interleaved_complex: expected a tensor value"):
            ops.as_interleaved_complex(np.ones((2, 4)))
