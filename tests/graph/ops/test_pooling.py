# SPDX-License-Identifier: Apache-2.0
"""Pools and folds against windows written out in NumPy, and what is refused."""

import itertools

import jax
import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops
from maxjax.lower import to_jax

CPU = DeviceRef.CPU()
INF, NAN = np.inf, np.nan


def values(*shape, dtype=np.float32):
    rng = np.random.default_rng([7, *shape])
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-100 if np.dtype(dtype).kind == "i" else 0, 100, shape).astype(dtype)
    return rng.uniform(-2, 2, shape).astype(dtype)


def windows(size, kernel, stride, dilation, padding, ceil):
    """The positions of each window along an axis, those outside included."""
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-room // stride) if ceil else room // stride) + 1
    return [[i * stride - padding + a * dilation for a in range(kernel)] for i in range(count)]


def pooled(x, of_window, kernel, stride=(1, 1), dilation=(1, 1), padding=(0, 0), ceil=False):
    """``of_window`` of the elements of each window that are inside, ``(N, elements, C)``."""
    rows, columns = [
        windows(x.shape[i + 1], kernel[i], stride[i], dilation[i], padding[i], ceil)
        for i in range(2)
    ]
    out = np.zeros((x.shape[0], len(rows), len(columns), x.shape[3]), x.dtype)
    for (i, r), (j, c) in itertools.product(enumerate(rows), enumerate(columns)):
        r = [at for at in r if 0 <= at < x.shape[1]]
        c = [at for at in c if 0 <= at < x.shape[2]]
        part = x[:, r][:, :, c].reshape(x.shape[0], len(r) * len(c), x.shape[3])
        out[:, i, j] = of_window(part)
    return out


def largest(part):
    lowest = -INF if part.dtype.kind == "f" else np.iinfo(part.dtype).min
    return part.max(1, initial=lowest)


def mean_of(area=None):
    """The mean over ``area``, or over how many elements there are; of integers toward zero."""

    def mean(part):
        wide = np.float64 if part.dtype.kind == "f" else np.int64
        total, n = part.sum(1, dtype=wide), area or part.shape[1]
        if wide is np.float64:
            with np.errstate(invalid="ignore"):
                return total / n
        return np.trunc(total / max(n, 1))

    return mean


CASES = {
    "plain": ((2, 3), {}),
    "strided": ((3, 2), {"stride": (2, 3)}),
    "padded": ((3, 3), {"stride": (2, 2), "padding": (1, 1)}),
    "dilated": ((2, 2), {"dilation": (2, 3), "padding": (1, 0)}),
    "ceil": ((2, 2), {"stride": (2, 2), "ceil": True}),
    "ceil and padded": ((3, 3), {"stride": (2, 2), "padding": (1, 1), "ceil": True}),
    "nothing inside": ((2, 2), {"padding": (3, 3)}),
    "beyond the padding": ((1, 1), {"stride": (5, 5), "padding": (3, 3), "ceil": True}),
}


def arguments(kwargs):
    return {("ceil_mode" if k == "ceil" else k): v for k, v in kwargs.items()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16", "int64"])
def test_pools(run, case, dtype):
    kernel, kwargs = CASES[case]
    x = values(2, 5, 6, 3, dtype=dtype)
    most, counted, inside = run(
        lambda x: [
            ops.max_pool2d(x, kernel, **arguments(kwargs)),
            ops.avg_pool2d(x, kernel, **arguments(kwargs)),
            ops.avg_pool2d(x, kernel, **arguments(kwargs), count_boundary=False),
        ],
        x,
    )
    wanted = (
        pooled(x, largest, kernel, **kwargs),
        pooled(x, mean_of(kernel[0] * kernel[1]), kernel, **kwargs),
        pooled(x, mean_of(), kernel, **kwargs),
    )
    for got, want in zip((most, counted, inside), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_one_number_stands_for_both_axes(run):
    x = values(1, 6, 7, 2)
    one, two = run(
        lambda x: [
            ops.max_pool2d(x, (2, 2), 2, 1, 1),
            ops.max_pool2d(x, (2, 2), (2, 2), (1, 1), (1, 1)),
        ],
        x,
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("sizes", [(1, 3, 2), (2, 7, 5), (0, 4, 4)])
def test_symbolic_sizes_and_global_pools(run, sizes):
    x = values(*sizes, 3)
    dims = [["n", "h", "w", 3]]
    most, mean, windowed = run(
        lambda x: [
            ops.max_pool2d(x, ("h", "w")),
            ops.avg_pool2d(x, (x.shape[1], x.shape[2])),
            ops.avg_pool2d(x, (2, 2), padding=1, count_boundary=False),
        ],
        x,
        dims=dims,
    )
    np.testing.assert_array_equal(most, x.max((1, 2), keepdims=True, initial=-INF))
    if sizes[0]:
        np.testing.assert_allclose(mean, x.mean((1, 2), keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(
        windowed, pooled(x, mean_of(), (2, 2), padding=(1, 1)), rtol=1e-5, atol=1e-6
    )


def test_symbolic_export(run_symbolic):
    x = values(2, 4, 5, 3)
    most, mean, windowed, ceil = run_symbolic(
        lambda x: [
            ops.max_pool2d(x, ("h", "w")),
            ops.avg_pool2d(x, ("h", "w")),
            ops.avg_pool2d(x, (3, 3), 2, padding=1, count_boundary=False),
            ops.max_pool2d(x, (2, 2), 2, padding=1, ceil_mode=True),
        ],
        x,
        dims=[["n", "h", "w", 3]],
    )
    np.testing.assert_array_equal(most, x.max((1, 2), keepdims=True))
    np.testing.assert_allclose(mean, x.mean((1, 2), keepdims=True), rtol=1e-5)
    want = pooled(x, mean_of(), (3, 3), (2, 2), padding=(1, 1))
    np.testing.assert_allclose(windowed, want, rtol=1e-5)
    want = pooled(x, largest, (2, 2), (2, 2), padding=(1, 1), ceil=True)
    np.testing.assert_array_equal(ceil, want)


def test_a_symbolic_kernel_that_is_not_the_image_cannot_be_exported(run_symbolic):
    with pytest.raises(ValueError, match="the kernel's height k is no number and not the input's"):
        run_symbolic(
            lambda x, y: ops.max_pool2d(x, ("k", 1), padding=(1, 0)),
            values(1, 4, 4, 1),
            values(3),
            dims=[[1, Dim("k") + 1, 4, 1], ["k"]],
        )


def test_nan_makes_the_maximum_nan(run):
    x = np.float32([1, NAN, 2, 3]).reshape(1, 1, 4, 1)
    (got,) = run(lambda x: ops.max_pool2d(x, (1, 2)), x)
    np.testing.assert_array_equal(got.ravel(), [NAN, NAN, 3])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_summed_in_float32(run, dtype):
    x = np.full((1, 64, 64, 1), 1.001, dtype)
    (got,) = run(lambda x: ops.avg_pool2d(x, (64, 64)), x)
    assert got.dtype == dtype
    assert got.item() == x[0, 0, 0, 0]


def test_averages_of_integers_do_not_overflow(run):
    x = np.full((1, 4, 4, 1), 127, np.int8)
    x[0, 0, 0, 0] = -127
    (got,) = run(lambda x: ops.avg_pool2d(x, (4, 4)), x)
    assert got.item() == int((127 * 15 - 127) / 16)


def test_pools_have_gradients():
    with Graph("g", input_types=[TensorType(DType.float32, [1, 5, 5, 2], CPU)]) as g:
        x = g.inputs[0].tensor
        g.output(ops.max_pool2d(x, (2, 2), 2), ops.avg_pool2d(x, (3, 3), padding=1))
    function = to_jax(g)
    with jax.enable_x64(True):
        grad = jax.grad(lambda x: sum(o.sum() for o in function({}, [x])[0]))(values(1, 5, 5, 2))
    assert grad.shape == (1, 5, 5, 2)
    assert float(abs(np.asarray(grad)).max()) > 0


# ---------------------------------------------------------------- fold


def folded(x, size, kernel, stride, dilation, padding):
    """The windows put down one by one; what falls outside is dropped."""
    n, channels, _ = x.shape
    c = channels // (kernel[0] * kernel[1])
    rows, columns = [
        windows(size[i], kernel[i], stride[i], dilation[i], padding[i], ceil=False)
        for i in range(2)
    ]
    parts = x.reshape(n, c, *kernel, len(rows), len(columns))
    out = np.zeros((n, c, *size), x.dtype)
    for (i, r), (j, s) in itertools.product(enumerate(rows), enumerate(columns)):
        for (a, row), (b, column) in itertools.product(enumerate(r), enumerate(s)):
            if 0 <= row < size[0] and 0 <= column < size[1]:
                out[:, :, row, column] += parts[:, :, a, b, i, j]
    return out


FOLDS = [
    ((4, 5), (2, 3), (1, 1), (1, 1), (0, 0)),
    ((4, 6), (2, 3), (2, 3), (1, 1), (0, 0)),
    ((5, 4), (2, 2), (1, 1), (2, 1), (0, 1)),
    ((5, 4), (3, 2), (2, 1), (1, 2), (2, 1)),
    ((3, 3), (2, 2), (1, 1), (3, 3), (2, 2)),
]


def count(size, kernel, stride, dilation, padding):
    return [
        len(windows(size[i], kernel[i], stride[i], dilation[i], padding[i], ceil=False))
        for i in range(2)
    ]


@pytest.mark.parametrize("case", FOLDS)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_fold(run, case, dtype):
    size, kernel, *steps = case
    x = values(2, 3 * kernel[0] * kernel[1], np.prod(count(*case)), dtype=dtype)
    (got,) = run(lambda x: ops.fold(x, size, kernel, *steps), x)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got, folded(x, *case), rtol=1e-5, atol=1e-5)


def test_fold_undoes_unfolding(run):
    x = values(2, 3, 4, 6)
    blocks = x.reshape(2, 3, 2, 2, 2, 3).transpose(0, 1, 3, 5, 2, 4).reshape(2, 18, 4)
    (got,) = run(lambda x: ops.fold(x, (4, 6), (2, 3), (2, 3)), blocks)
    np.testing.assert_array_equal(got, x)


def test_symbolic_fold(run, run_symbolic):
    case = (5, 4), (2, 2), (1, 1), (1, 1), (1, 1)
    size, kernel, *steps = case
    x = values(2, 12, np.prod(count(*case)))
    want = folded(x, *case)
    (got,) = run(lambda x: ops.fold(x, size, kernel, *steps), x, dims=[["n", "c", "l"]])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    x = values(2, 12, 20)
    (got,) = run_symbolic(
        lambda x, y: ops.fold(x, ("h", "w"), (3, 1), 1, 1, (1, 0)),
        x,
        np.zeros((5, 4), np.float32),
        dims=[["n", 12, Dim("h") * Dim("w")], ["h", "w"]],
    )
    want = folded(x, (5, 4), (3, 1), (1, 1), (1, 1), (1, 0))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- refused


@pytest.fixture
def inputs():
    shapes = {"x": [2, 10, 12, 4], "m": [4, 6], "f": [1, 4, 9]}
    types = [TensorType(DType.float32, s, CPU) for s in shapes.values()]
    types += [TensorType(DType.bool, [1, 4, 4, 1], CPU), TensorType(DType.bool, [1, 4, 9], CPU)]
    with Graph("g", input_types=types) as g:
        yield dict(zip([*shapes, "q", "qf"], [v.tensor for v in g.inputs], strict=True))


REFUSED = [
    (lambda v: ops.max_pool2d(v["m"], (2, 2)), ValueError, "must have rank 4, not 2"),
    (lambda v: ops.avg_pool2d(v["x"], (2, 2, 2)), ValueError, "kernel_size must be two dims"),
    (lambda v: ops.max_pool2d(v["x"], 2), TypeError, "max_pool2d"),
    (lambda v: ops.max_pool2d(v["x"], "hw"), TypeError, "kernel_size must be two dims, got 'hw'"),
    (lambda v: ops.max_pool2d(v["x"], (0, 2)), ValueError, "at least 1 by 1"),
    (lambda v: ops.max_pool2d(v["x"], (11, 2)), ValueError, "spans 11 elements, but the height"),
    (lambda v: ops.max_pool2d(v["x"], (2, 2), stride=0), ValueError, "stride must be at least 1"),
    (lambda v: ops.max_pool2d(v["x"], (2, 2), padding=-1), ValueError, "padding must be at least"),
    (lambda v: ops.max_pool2d(v["x"], (2, 2), padding=(1, 2, 3)), ValueError, "must have 2 ints"),
    (lambda v: ops.avg_pool2d(v["x"], (2, 2), dilation=0.5), TypeError, "one int or 2 ints"),
    (lambda v: ops.avg_pool2d(v["q"], (2, 2)), ValueError, "bools cannot be pooled"),
    (lambda v: ops.fold(v["m"], (4, 4), (2, 2)), ValueError, "must have rank 3, not 2"),
    (lambda v: ops.fold(v["f"], (4, 4), (5, 1)), ValueError, "do not divide into windows of 5"),
    (lambda v: ops.fold(v["f"], (4, 5), (2, 2)), ValueError, "9 windows, but 3 by 4 have a place"),
    (lambda v: ops.fold(v["f"], (1, 4), (2, 2)), ValueError, "a window spans 2 elements"),
    (lambda v: ops.fold(v["f"], 4, (2, 2)), TypeError, "fold"),
    (lambda v: ops.fold(v["f"], (4, 4), (2, 2), stride=0), ValueError, "stride must be at least"),
    (lambda v: ops.fold(v["qf"], (4, 4), (2, 2)), ValueError, "bools cannot be added up"),
]


@pytest.mark.parametrize(("build", "error", "match"), REFUSED)
def test_refused(inputs, build, error, match):
    with pytest.raises(error, match=match) as caught:
        build(inputs)
    assert "test_pooling.py" in str(caught.value)


def test_sizes_that_do_not_fit_are_refused_when_it_runs(run):
    with pytest.raises(ValueError, match="a window spans 3 elements, but the height is 2"):
        run(lambda x: ops.max_pool2d(x, (3, 1)), values(1, 2, 5, 2), dims=[[1, "h", "w", 2]])
    with pytest.raises(ValueError, match="there are 8 windows, but 3 by 3 have a place"):
        run(lambda x: ops.fold(x, (4, 4), (2, 2)), values(1, 4, 8), dims=[[1, 4, "l"]])
    with pytest.raises(ValueError, match="5 channels do not divide into windows of 4"):
        run(lambda x: ops.fold(x, (4, 4), (2, 2)), values(1, 5, 9), dims=[[1, "c", 9]])
