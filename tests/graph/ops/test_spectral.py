# SPDX-License-Identifier: Apache-2.0
"""Signals from spectra against NumPy, windows against their formula, and what is refused."""

import numpy as np
import pytest

from maxjax.driver import CPU as CPUDevice
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops

CPU, GPU = DeviceRef.CPU(), DeviceRef.GPU()


def spectrum(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("n", [None, 1, 4, 7, 8, 30])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_real_and_complex_spectra(run, n, norm):
    x = spectrum(3, 5, 2)
    real, pairs, along_0 = run(
        lambda x: [
            ops.irfft(x[..., 0], n, normalization=norm),
            ops.irfft(x, n, normalization=norm, input_is_complex=True),
            ops.irfft(x, n, 0, norm, True, buffer_size_mb=1),
        ],
        x,
    )
    z = x[..., 0] + 1j * x[..., 1]
    for got, want in (
        (real, np.fft.irfft(x[..., 0], n, norm=norm)),
        (pairs, np.fft.irfft(z, n, norm=norm)),
        (along_0, np.fft.irfft(z, n, 0, norm=norm)),
    ):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3])
def test_other_dimensions_may_be_symbolic(run, run_symbolic, n):
    x = spectrum(n, 5, 2)
    for runner in (run, run_symbolic):
        (got,) = runner(lambda x: ops.irfft(x, input_is_complex=True), x, dims=[["n", 5, 2]])
        want = np.fft.irfft(x[..., 0] + 1j * x[..., 1])
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_of_no_signals(run):
    (got,) = run(ops.irfft, np.zeros((0, 5), np.float32), dims=[["n", 5]])
    assert got.shape == (0, 8)


def test_what_irfft_refuses():
    f = DType.float32
    types = [
        TensorType(d, s, CPU)
        for d, s in [
            (f, [2, 5]), (f, [2, 1]), (f, [2, "n"]), (f, []), (DType.float64, [2, 5]),
            (DType.float16, [2, 5]),
        ]
    ]  # fmt: skip
    with Graph("g", input_types=types) as g:
        x, one, sym, scalar, f64, f16 = (v.tensor for v in g.inputs)
        for wrong in (f64, f16):
            with pytest.raises(ValueError, match="irfft: a spectrum is float32, not float"):
                ops.irfft(wrong, 4)
        with pytest.raises(ValueError, match="irfft: a signal of 0 points; give n, at least 1"):
            ops.irfft(one)
        for n in (0, -2):
            with pytest.raises(ValueError, match=f"a signal of {n} points"):
                ops.irfft(x, n)
        with pytest.raises(TypeError, match=r"n must be an int, got 4\.0"):
            ops.irfft(x, 4.0)
        with pytest.raises(ValueError, match="dimension 1 is n; rebind it to a number first"):
            ops.irfft(sym, 4)
        with pytest.raises(ValueError, match="axis 2 is out of range for rank 2"):
            ops.irfft(x, 4, axis=2)
        with pytest.raises(ValueError, match="a scalar has no axis"):
            ops.irfft(scalar, 4)
        for wrong in (x, scalar):
            with pytest.raises(ValueError, match="the last dimension of complex numbers is not 2"):
                ops.irfft(wrong, 4, input_is_complex=True)
        with pytest.raises(ValueError, match="normalization is one of 'backward', 'ortho', 'forwa"):
            ops.irfft(x, normalization="ORTHO")
        with pytest.raises(TypeError, match="irfft: expected a tensor value"):
            ops.irfft(np.ones((2, 5), np.float32))


# ---------------------------------------------------------------- windows


def window(*args, **kwargs):
    with Graph("window") as g:
        w = ops.hann_window(*args, **kwargs)
        g.output(w)
    (out,) = InferenceSession().load(g)()
    return out.to_numpy()


def hann(n, periodic=True):
    if n == 1:
        return np.ones(1)
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / (n if periodic else n - 1))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 400])
@pytest.mark.parametrize("periodic", [True, False])
def test_windows_against_their_formula(n, periodic):
    got = window(n, CPU, periodic)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, hann(n, periodic).astype(np.float32))


def test_windows_of_other_dtypes():
    for dtype in (DType.float64, DType.float16):
        got = window(6, CPUDevice(), dtype=dtype)
        assert got.dtype == dtype.np
        np.testing.assert_array_equal(got, hann(6).astype(dtype.np))


def test_overlapping_periodic_windows_add_up_to_1():
    w = window(8, CPU, dtype=DType.float64)
    np.testing.assert_allclose(w[:4] + w[4:], np.ones(4), rtol=1e-15)


def test_what_hann_window_refuses():
    with Graph("g"):
        assert ops.hann_window(Dim(4), GPU).type == TensorType(DType.float32, [4], GPU)
        with pytest.raises(ValueError, match="hann_window: window_length is negative: -1"):
            ops.hann_window(-1, CPU)
        for wrong in (2.5, "4", Dim("n")):
            with pytest.raises(TypeError, match="hann_window: window_length must be an int, got"):
                ops.hann_window(wrong, CPU)
        with pytest.raises(ValueError, match="dtype is a float DType, not int32"):
            ops.hann_window(4, CPU, dtype=DType.int32)
    with pytest.raises(LookupError, match="no graph is being built"):
        ops.hann_window(4, CPU)
