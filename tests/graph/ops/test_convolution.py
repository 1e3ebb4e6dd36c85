# SPDX-License-Identifier: Apache-2.0
"""Convolutions against sums written out in NumPy, in every layout, and what is refused."""

import itertools

import jax
import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops
from maxjax.graph.type import ConvInputLayout, FilterLayout
from maxjax.lower import to_jax

CPU = DeviceRef.CPU()
NCHW, NHWC = ConvInputLayout.NCHW, ConvInputLayout.NHWC


def values(*shape, seed=0, dtype=np.float32):
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    return rng.uniform(-2, 2, shape).astype(dtype)


def convolved(x, f, stride, dilation, padding, groups=1):
    """Channels last; the window's elements are multiplied and added up one by one."""
    n = x.ndim - 2
    pads = list(zip(padding[::2], padding[1::2], strict=True))
    x = np.pad(x, [(0, 0), *pads, (0, 0)])
    sizes = [
        (x.shape[1 + i] - dilation[i] * (f.shape[i] - 1) - 1) // stride[i] + 1 for i in range(n)
    ]
    own, features = f.shape[-2], f.shape[-1]
    out = np.zeros((x.shape[0], *sizes, features), x.dtype)
    for tap in itertools.product(*map(range, f.shape[:n])):
        at = tuple(
            slice(t * d, t * d + (m - 1) * s + 1, s)
            for t, d, m, s in zip(tap, dilation, sizes, stride, strict=True)
        )
        part = x[(slice(None), *at)]
        for g in range(groups):
            mine = slice(g * features // groups, (g + 1) * features // groups)
            out[..., mine] += part[..., g * own : (g + 1) * own] @ f[tap][:, mine]
    return out


def transposed(x, f, stride, dilation, padding, added):
    """Channels last; each pixel times the filter, put down where it belongs."""
    n, h, w, _ = x.shape
    r, s, features, _ = f.shape
    full = [
        (size - 1) * step + d * (k - 1) + 1 + more
        for size, step, d, k, more in zip((h, w), stride, dilation, (r, s), added, strict=True)
    ]
    out = np.zeros((n, *full, features), x.dtype)
    for i, j, a, b in itertools.product(range(h), range(w), range(r), range(s)):
        at = i * stride[0] + a * dilation[0], j * stride[1] + b * dilation[1]
        out[:, at[0], at[1]] += x[:, i, j] @ f[a, b].T
    top, bottom, left, right = padding
    return out[:, top : full[0] - bottom, left : full[1] - right]


def close(got, want, rtol=1e-5):
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=rtol * 10
    )


CASES_2D = [
    ((1, 1), (1, 1), (0, 0, 0, 0), 1),
    ((2, 3), (1, 1), (1, 0, 2, 1), 1),
    ((1, 1), (2, 3), (2, 2, 0, 3), 1),
    ((2, 1), (1, 2), (1, 1, 1, 1), 2),
    ((1, 1), (1, 1), (1, 1, 0, 0), 4),
]


@pytest.mark.parametrize(("stride", "dilation", "padding", "groups"), CASES_2D)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16", "int64"])
def test_conv2d_in_every_layout(run, stride, dilation, padding, groups, dtype):
    x = values(2, 6, 8, 4, dtype=dtype)
    f = values(3, 2, 4 // groups, 8, seed=1, dtype=dtype)
    want = convolved(x, f, stride, dilation, padding, groups)

    def build(x, xn, f, ff):
        for image, layout in ((x, NHWC), (xn, NCHW)):
            for weights, order in ((f, FilterLayout.RSCF), (ff, FilterLayout.FCRS)):
                yield ops.conv2d(
                    image, weights, stride, dilation, padding, groups, None, layout, order
                )

    outs = run(lambda *xs: list(build(*xs)), x, x.transpose(0, 3, 1, 2), f, f.transpose(3, 2, 0, 1))
    assert len(outs) == 4
    for got in outs:
        close(got, want)


@pytest.mark.parametrize("groups", [1, 2])
def test_conv3d_in_every_layout(run, groups):
    x, f = values(2, 4, 5, 6, 4), values(2, 3, 2, 4 // groups, 6, seed=1)
    numbers = (1, 2, 1), (2, 1, 2), (1, 0, 0, 1, 1, 1)
    want = convolved(x, f, *numbers, groups)

    def build(x, xn, f, ff):
        for image, layout in ((x, NHWC), (xn, NCHW)):
            for weights, order in ((f, FilterLayout.QRSCF), (ff, FilterLayout.FCQRS)):
                yield ops.conv3d(image, weights, *numbers, groups, None, layout, order)

    outs = run(
        lambda *xs: list(build(*xs)), x, x.transpose(0, 4, 1, 2, 3), f, f.transpose(4, 3, 0, 1, 2)
    )
    for got in outs:
        close(got, want)


@pytest.mark.parametrize(
    ("stride", "dilation", "padding", "added"),
    [
        ((1, 1), (1, 1), (0, 0, 0, 0), (0, 0)),
        ((2, 3), (1, 1), (1, 0, 2, 1), (1, 2)),
        ((1, 2), (2, 3), (0, 1, 1, 0), (0, 1)),
        ((3, 2), (1, 1), (2, 2, 1, 1), (0, 0)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_conv2d_transpose_in_every_layout(run, stride, dilation, padding, added, dtype):
    x, f = values(2, 3, 4, 4, dtype=dtype), values(3, 2, 5, 4, seed=1, dtype=dtype)
    bias = values(5, dtype=dtype)
    want = transposed(x, f, stride, dilation, padding, added) + bias

    def build(x, xn, f, ff, b):
        for image, layout in ((x, NHWC), (xn, NCHW)):
            for weights, order in ((f, FilterLayout.RSCF), (ff, FilterLayout.CFRS)):
                yield ops.conv2d_transpose(
                    image, weights, stride, dilation, padding, added, b, layout, order
                )

    outs = run(
        lambda *xs: list(build(*xs)),
        x, x.transpose(0, 3, 1, 2), f, f.transpose(3, 2, 0, 1), bias,
    )  # fmt: skip
    for got in outs[:2]:
        close(got, want)
    for got in outs[2:]:  # the layout of the input
        close(got, want.transpose(0, 3, 1, 2))


def test_bias_is_per_output_channel_and_promoted(run):
    x, f, b = values(1, 4, 4, 2), values(2, 2, 2, 3), values(3, dtype=np.float64)
    want = convolved(x, f, (1, 1), (1, 1), (0,) * 4)
    plain, wide, one = run(
        lambda x, f, b: [
            ops.conv2d(x, f, bias=np.float32([1, 2, 3])),
            ops.conv2d(x, f, bias=b),
            ops.conv2d(x, f, bias=np.float32([4])),
        ],
        x, f, b,
    )  # fmt: skip
    close(plain, want + np.float32([1, 2, 3]))
    close(wide, want.astype(np.float64) + b)
    close(one, want + np.float32(4))


@pytest.mark.parametrize("sizes", [(1, 4, 5), (3, 7, 9), (2, 3, 2), (0, 4, 5)])
def test_symbolic_batch_height_and_width(run, sizes):
    n, h, w = sizes
    x, f = values(n, h, w, 2), values(3, 2, 2, 3, seed=1)
    (got,) = run(
        lambda x, f: ops.conv2d(x, f, stride=(2, 1)), x, f, dims=[["n", "h", "w", 2], f.shape]
    )
    close(got, convolved(x, f, (2, 1), (1, 1), (0,) * 4))


def test_symbolic_export(run_symbolic):
    x, f, t = values(2, 5, 6, 3), values(3, 3, 3, 4, seed=1), values(2, 2, 5, 3, seed=2)
    same, strided, up = run_symbolic(
        lambda x, f, t: [
            ops.conv2d(x, f, padding=(1, 1, 1, 1)),
            ops.conv2d(x, f, stride=(2, 2), padding=(1, 1, 1, 1)),
            ops.conv2d_transpose(x, t, stride=(2, 2)),
        ],
        x, f, t, dims=[["n", "h", "w", 3], f.shape, t.shape],
    )  # fmt: skip
    close(same, convolved(x, f, (1, 1), (1, 1), (1,) * 4))
    close(strided, convolved(x, f, (2, 2), (1, 1), (1,) * 4))
    close(up, transposed(x, t, (2, 2), (1, 1), (0,) * 4, (0, 0)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_summed_in_float32(run, dtype):
    x = np.full((1, 1, 1, 4096), 0.1, dtype)
    f = np.ones((1, 1, 4096, 1), dtype)
    (got,) = run(ops.conv2d, x, f)
    assert got.dtype == dtype
    # Added up in float16 the sum would stop growing long before.
    assert got.item() == dtype(np.float32(x[0, 0, 0, 0]) * 4096)


def test_integers_wrap_around(run):
    x, f = np.full((1, 1, 1, 2), 100, np.int8), np.full((1, 1, 2, 1), 2, np.int8)
    (got,) = run(ops.conv2d, x, f)
    assert got.item() == np.int64(400).astype(np.int8)


def test_no_channels_give_zeros(run):
    (got,) = run(ops.conv2d, np.ones((1, 3, 3, 0), np.float32), np.ones((2, 2, 0, 4), np.float32))
    close(got, np.zeros((1, 2, 2, 4), np.float32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_has_gradients(dtype):
    types = [
        TensorType(DType[dtype], shape, CPU) for shape in ([1, 5, 5, 2], [3, 3, 2, 4], [2, 2, 3, 4])
    ]
    with Graph("g", input_types=types) as g:
        x, f, t = [v.tensor for v in g.inputs]
        g.output(ops.conv2d_transpose(ops.conv2d(x, f), t, stride=(2, 2)))
    function = to_jax(g)

    def total(*xs):
        return function({}, xs)[0][0].astype(np.float32).sum()

    arrays = [values(*t.shape.evaluate({}), seed=i).astype(t.dtype.np) for i, t in enumerate(types)]
    grads = jax.grad(total, argnums=(0, 1, 2))(*arrays)
    assert [(v.shape, v.dtype) for v in grads] == [(a.shape, a.dtype) for a in arrays]
    assert all(np.abs(np.asarray(v, np.float32)).max() > 0 for v in grads)


# ---------------------------------------------------------------- refused


@pytest.fixture
def inputs():
    shapes = {
        "x": [2, 10, 12, 4], "f": [3, 3, 4, 6], "t": [3, 3, 6, 4], "v": [1, 6, 7, 8, 4],
        "q": [2, 3, 3, 4, 5], "b": [6], "c": ["n", 10, 12, "c"],
    }  # fmt: skip
    types = [TensorType(DType.float32, s, CPU) for s in shapes.values()]
    types += [TensorType(DType.int32, [3, 3, 4, 6], CPU), TensorType(DType.bool, [2, 9, 9, 4], CPU)]
    with Graph("g", input_types=types) as g:
        yield dict(zip([*shapes, "i", "q1"], [v.tensor for v in g.inputs], strict=True))


REFUSED = [
    (lambda v: ops.conv2d(v["x"], v["f"], stride=2), TypeError, "stride must be 2 ints, got 2"),
    (lambda v: ops.conv2d(v["x"], v["f"], stride=(1, 1, 1)), ValueError, "stride must have 2 ints"),
    (lambda v: ops.conv2d(v["x"], v["f"], (0, 1)), ValueError, r"stride must be at least 1"),
    (
        lambda v: ops.conv2d(v["x"], v["f"], dilation=(1, 0)),
        ValueError,
        "dilation must be at least",
    ),
    (lambda v: ops.conv2d(v["x"], v["f"], padding=(-1, 0, 0, 0)), ValueError, "at least 0"),
    (lambda v: ops.conv2d(v["x"], v["f"], padding=(1, 1)), ValueError, "padding must have 4 ints"),
    (lambda v: ops.conv2d(v["x"], v["f"], stride=(1.0, 1)), TypeError, "must be an int, got 1.0"),
    (lambda v: ops.conv2d(v["v"], v["f"]), ValueError, "the input must have rank 4, not 5"),
    (lambda v: ops.conv2d(v["x"], v["q"]), ValueError, "the filter must have rank 4, not 5"),
    (lambda v: ops.conv3d(v["x"], v["q"]), ValueError, "the input must have rank 5, not 4"),
    (lambda v: ops.conv2d(v["x"], v["t"]), ValueError, "has 4 channels, but the filter 6"),
    (lambda v: ops.conv2d(v["x"], v["f"], groups=2), ValueError, "4 in each of 2 groups"),
    (lambda v: ops.conv2d(v["x"], v["f"][:, :, :1, :], groups=4), ValueError, "6 output channels"),
    (lambda v: ops.conv2d(v["x"], v["f"], groups=0), ValueError, "groups must be at least 1"),
    (lambda v: ops.conv2d(v["x"], v["f"], dilation=(5, 5)), ValueError, "spans 11 elements"),
    (lambda v: ops.conv2d(v["x"], v["f"], bias=v["b"][:5]), ValueError, "vector of 6 elements"),
    (lambda v: ops.conv2d(v["x"], v["f"], bias=1.0), ValueError, "vector of 6 elements"),
    (lambda v: ops.conv2d(v["x"], v["i"]), ValueError, "conv2d"),
    (lambda v: ops.conv2d(v["q1"], v["q1"]), ValueError, "bools cannot be convolved"),
    (
        lambda v: ops.conv2d(v["x"], v["f"], filter_layout=FilterLayout.CFRS),
        ValueError,
        "must be RSCF or FCRS, not CFRS",
    ),
    (lambda v: ops.conv2d(v["x"], v["f"], filter_layout="RSCF"), TypeError, "a FilterLayout"),
    (lambda v: ops.conv2d(v["x"], v["f"], input_layout="NHWC"), TypeError, "a ConvInputLayout"),
    (
        lambda v: ops.conv2d_transpose(v["x"], v["t"], output_paddings=(1, 0)),
        ValueError,
        r"output_paddings must be less than the stride, got \[1, 0\] and \[1, 1\]",
    ),
    (
        lambda v: ops.conv2d_transpose(v["x"], v["t"], padding=(9, 9, 1, 1)),
        ValueError,
        "nothing is left of a height of 10",
    ),
    (lambda v: ops.conv2d_transpose(v["x"], v["f"]), ValueError, "4 channels, but the filter 6"),
]


@pytest.mark.parametrize(("build", "error", "match"), REFUSED)
def test_refused(inputs, build, error, match):
    with pytest.raises(error, match=match) as caught:
        build(inputs)
    assert "test_convolution.py" in str(caught.value)


def test_sizes_that_do_not_fit_are_refused_when_it_runs(run):
    x, f = values(1, 2, 5, 2), values(3, 3, 2, 4)
    with pytest.raises(ValueError, match="a window spans 3 elements, but the height is 2"):
        run(ops.conv2d, x, f, dims=[["n", "h", "w", 2], f.shape])
    with pytest.raises(ValueError, match="the input has 3 channels, but the filter 2"):
        run(ops.conv2d, values(1, 5, 5, 3), f, dims=[[1, 5, 5, "c"], f.shape])


def test_an_export_says_which_sizes_do_not_fit(run_symbolic):
    x, f = values(1, 5, 5, 2), values(3, 3, 2, 4)
    with pytest.raises(ValueError, match="export with a constraint that excludes them"):
        run_symbolic(ops.conv2d, x, f, dims=[["n", "h", "w", 2], f.shape])
