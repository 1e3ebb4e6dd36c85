# SPDX-License-Identifier: Apache-2.0
"""Regions and boxes against loops written out in NumPy, and what is refused."""

import math

import jax
import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops
from maxjax.lower import to_jax

CPU = DeviceRef.CPU()
INF, NAN = np.inf, np.nan

FEATURES = np.random.default_rng(0).uniform(-2, 2, (2, 6, 7, 3)).astype(np.float32)
# Inside, on the border, far outside, tiny, the other image, and with its corners exchanged.
ROIS = np.float32(
    [
        [0, 0.5, 0.5, 4.5, 3.5],
        [1, 1, 2, 5, 5],
        [0, -2, -3, 9, 8],
        [1, 3, 3, 3.2, 3.1],
        [0, 0, 0, 6, 5],
        [0, 5, 5, 1, 1],
        [1, 40, 40, 50, 60],
    ]
)


def corners(x, row, column):
    """The four pixels around a place, weighted; a place beyond the border weighs the last one."""
    h, w, c = x.shape
    if not (-1 <= row <= h and -1 <= column <= w):
        return [np.zeros(c)] * 4
    row, column = max(row, 0.0), max(column, 0.0)
    top, left = min(int(row), h - 1), min(int(column), w - 1)
    bottom, right = min(top + 1, h - 1), min(left + 1, w - 1)
    a, b = row - top, column - left
    return [
        (1 - a) * (1 - b) * x[top, left],
        (1 - a) * b * x[top, right],
        a * (1 - b) * x[bottom, left],
        a * b * x[bottom, right],
    ]


def aligned_regions(x, rois, height, width, scale=1.0, ratio=0, aligned=False, mode="AVG"):
    out = np.zeros((len(rois), height, width, x.shape[3]))
    for m, (image, *box) in enumerate(rois.astype(np.float64)):
        x1, y1, x2, y2 = [v * scale - (0.5 if aligned else 0) for v in box]
        size = np.array([y2 - y1, x2 - x1])
        if not aligned:
            size = np.maximum(size, 1)
        bins = size / [height, width]
        n = [max(int(ratio) if ratio > 0 else math.ceil(b), 0) for b in bins]
        for p, q in np.ndindex(height, width):
            found = [
                corners(
                    x[int(image)].astype(np.float64),
                    y1 + (p + (i + 0.5) / n[0]) * bins[0],
                    x1 + (q + (j + 0.5) / n[1]) * bins[1],
                )
                for i, j in np.ndindex(*n)
            ]
            if found and mode == "AVG":
                out[m, p, q] = np.sum(found, (0, 1)) / len(found)
            elif found:
                out[m, p, q] = np.max(found, (0, 1))
    return out


@pytest.mark.parametrize("mode", ["AVG", "MAX"])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 1, 2.5, 3])
def test_roi_align(run, mode, aligned, ratio):
    outs = run(
        lambda x, r: [
            ops.roi_align(x, r, 2, 3, 1.0, ratio, aligned, mode),
            ops.roi_align(x, r, 3, 1, 0.5, ratio, aligned, mode),
        ],
        FEATURES,
        ROIS,
    )
    wants = (
        aligned_regions(FEATURES, ROIS, 2, 3, 1.0, ratio, aligned, mode),
        aligned_regions(FEATURES, ROIS, 3, 1, 0.5, ratio, aligned, mode),
    )
    for got, want in zip(outs, wants, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_the_image_of_a_region_is_brought_into_range(run):
    rois = ROIS[:3].copy()
    rois[:, 0] = [-3, 7, NAN]
    (got,) = run(lambda x, r: ops.roi_align(x, r, 2, 2), FEATURES, rois)
    rois[:, 0] = [0, 1, 0]
    np.testing.assert_allclose(got, aligned_regions(FEATURES, rois, 2, 2), rtol=1e-4, atol=1e-5)


def test_regions_that_are_not_finite_come_to_an_end(run):
    rois = np.float32([[0, NAN, 0, 3, 3], [0, 1, 1, 4, 4]])
    (got,) = run(lambda x, r: ops.roi_align(x, r, 2, 2), FEATURES, rois)
    np.testing.assert_array_equal(got[0], 0)
    np.testing.assert_allclose(
        got[1:], aligned_regions(FEATURES, rois[1:], 2, 2), rtol=1e-4, atol=1e-5
    )


def test_an_infinite_pixel_that_does_not_count_does_not_matter(run):
    x = np.ones((1, 4, 4, 1), np.float32)
    x[0, 3, 3, 0] = INF
    (got,) = run(
        lambda x, r: ops.roi_align(x, r, 1, 1, sampling_ratio=1), x, np.float32([[0, 0, 0, 4, 4]])
    )
    assert got.item() == 1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_regions_keep_the_dtype_of_the_input(run, dtype):
    x = FEATURES.astype(dtype)
    (got,) = run(lambda x, r: ops.roi_align(x, r, 2, 2, 1.0, 2), x, ROIS[:2])
    assert got.dtype == dtype
    want = aligned_regions(x, ROIS[:2], 2, 2, ratio=2)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("m", [0, 1, 3])
def test_symbolic_regions(run, m):
    (got,) = run(
        lambda x, r: ops.roi_align(x, r, 2, 2),
        FEATURES,
        ROIS[:m],
        dims=[["n", "h", "w", "c"], ["m", 5]],
    )
    np.testing.assert_allclose(got, aligned_regions(FEATURES, ROIS[:m], 2, 2), rtol=1e-4, atol=1e-5)


def test_symbolic_export_of_regions(run_symbolic):
    fixed, free = run_symbolic(
        lambda x, r: [
            ops.roi_align(x, r, 2, 2, 1.0, 2),
            ops.roi_align(x, r, 2, 2, mode="MAX"),
        ],
        FEATURES,
        ROIS,
        dims=[["n", "h", "w", 3], ["m", 5]],
    )
    np.testing.assert_allclose(
        fixed, aligned_regions(FEATURES, ROIS, 2, 2, ratio=2), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        free, aligned_regions(FEATURES, ROIS, 2, 2, mode="MAX"), rtol=1e-4, atol=1e-5
    )


def test_regions_have_gradients():
    types = [TensorType(DType.float32, s, CPU) for s in (FEATURES.shape, [2, 5])]
    with Graph("g", input_types=types) as g:
        x, rois = [v.tensor for v in g.inputs]
        g.output(ops.roi_align(x, rois, 2, 2, sampling_ratio=2))
    function = to_jax(g)
    with jax.enable_x64(True):
        grad = jax.grad(lambda x: function({}, [x, ROIS[:2]])[0][0].sum())(FEATURES)
    # Every result is a weighted mean of pixels.
    np.testing.assert_allclose(np.asarray(grad).sum(), 2 * 2 * 2 * 3, rtol=1e-4)


# ---------------------------------------------------------------- boxes

BOXES = np.float32(
    [
        [[0, 0, 2, 2], [0, 0.2, 2, 2.2], [3, 3, 5, 5], [3, 3.1, 5, 5.1], [8, 8, 9, 9]],
        [[2, 2, 0, 0], [0, 0, 2, 2], [1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 2, 1]],
    ]
)
SCORES = np.float32(
    [
        [[0.6, 0.9, 0.5, 0.8, 0.1], [0.7, 0.2, 0.3, 0.35, 0.95]],
        [[0.5, 0.5, 0.5, 0.5, 0.4], [0, -1, NAN, 0.2, 0.2]],
    ]
)


def overlap(a, b):
    (a0, a1), (b0, b1) = [np.sort(np.float64(v).reshape(2, 2), 0) for v in (a, b)]
    both = np.prod(np.maximum(np.minimum(a1, b1) - np.maximum(a0, b0), 0))
    either = np.prod(a1 - a0) + np.prod(b1 - b0) - both
    return both / either if either > 0 else 0.0


def chosen(boxes, scores, most, iou, least):
    """Rows of image, class and box, from the highest score down."""
    rows = []
    for image, of_class in np.ndindex(scores.shape[:2]):
        s, mine = scores[image, of_class], []
        for i in sorted((i for i in range(len(s)) if s[i] > least), key=lambda i: -s[i]):
            if len(mine) < most and all(
                overlap(boxes[image, i], boxes[image, j]) <= iou for j in mine
            ):
                mine.append(i)
        rows += [[image, of_class, i] for i in mine]
    return np.array(rows, np.int64).reshape(-1, 3)


def suppressed(most, iou, least, out_dim):
    def build(boxes, scores):
        limit = ops.constant(most, DType.int64, CPU)
        limits = [ops.constant(v, DType.float32, CPU) for v in (iou, least)]
        return ops.non_maximum_suppression(boxes, scores, limit, *limits, out_dim=out_dim)

    return build


LIMITS = [
    (5, 0.5, 0.0),
    (1, 0.5, 0.4),
    (0, 0.5, 0.0),
    (-1, 0.5, 0.0),
    (5, 0.5, 0.35),
    (5, 1.0, -5.0),
    (5, 0.0, -5.0),
    (3, 0.5, 0.99),
]


@pytest.mark.parametrize("limits", LIMITS)
def test_as_many_rows_as_there_are_boxes(run, limits):
    want = chosen(BOXES, SCORES, *limits)
    (got,) = run(suppressed(*limits, len(want)), BOXES, SCORES)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("rows", [0, 3, 30])
def test_too_many_are_cut_off_and_zeros_fill_the_rest(run, rows):
    (got,) = run(suppressed(5, 0.5, 0.0, rows), BOXES, SCORES)
    want = np.zeros((rows, 3), np.int64)
    found = chosen(BOXES, SCORES, 5, 0.5, 0.0)[:rows]
    want[: len(found)] = found
    np.testing.assert_array_equal(got, want)


def test_random_boxes(run):
    rng = np.random.default_rng(5)
    boxes = rng.uniform(0, 4, (3, 20, 4)).astype(np.float32)
    scores = rng.integers(0, 6, (3, 2, 20)).astype(np.float32)  # many are equal
    want = chosen(boxes, scores, 6, 0.3, 0.5)
    (got,) = run(suppressed(6, 0.3, 0.5, len(want)), boxes, scores)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_symbolic_boxes(run, n):
    boxes, scores = BOXES[:, :n], SCORES[:, :, :n]
    (got,) = run(suppressed(5, 0.5, 0.0, "b"), boxes, scores, dims=[["n", "b", 4], ["n", "k", "b"]])
    want = np.zeros((n, 3), np.int64)
    found = chosen(boxes, scores, 5, 0.5, 0.0)[:n]
    want[: len(found)] = found
    np.testing.assert_array_equal(got, want)


def test_symbolic_export_of_boxes(run_symbolic):
    want = chosen(BOXES, SCORES, 5, 0.5, 0.0)
    (got,) = run_symbolic(
        suppressed(5, 0.5, 0.0, len(want)), BOXES, SCORES, dims=[["n", "b", 4], ["n", "k", "b"]]
    )
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("most", "least"), [(5, 0.0), (1, 0.0), (5, 2.0), (0, 0.0), (5, 0.9)])
def test_as_many_as_are_left(run, most, least):
    (got,) = run(suppressed(most, 0.5, least, "num_selected"), BOXES, SCORES)
    want = chosen(BOXES, SCORES, most, 0.5, least)
    np.testing.assert_array_equal(got, np.reshape(want, (-1, 3)))


def test_one_program_needs_the_number_of_boxes(run_symbolic):
    with pytest.raises(ValueError, match=r"size num_selected depends on values, .*bounds="):
        run_symbolic(
            suppressed(5, 0.5, 0.0, "num_selected"),
            BOXES, SCORES, dims=[["n", "b", 4], ["n", "k", "b"]],
        )  # fmt: skip


# ---------------------------------------------------------------- refused


@pytest.fixture
def inputs():
    types = {
        "x": (DType.float32, [2, 6, 7, 3]), "r": (DType.float32, ["m", 5]),
        "r4": (DType.float32, ["m", 4]), "i": (DType.int32, [2, 6, 7, 3]),
        "e": (DType.float32, [2, 0, 7, 3]),
        "b": (DType.float32, [2, "b", 4]), "s": (DType.float32, [2, 3, "b"]),
        "s3": (DType.float32, [3, 3, "b"]), "n": (DType.int64, []), "t": (DType.float32, []),
    }  # fmt: skip
    given = [TensorType(d, s, CPU) for d, s in types.values()]
    with Graph("g", input_types=given) as g:
        yield dict(zip(types, [v.tensor for v in g.inputs], strict=True))


def _nms(**other):
    names = {"boxes": "b", "scores": "s", "most": "n", "iou": "t", "least": "t"} | other
    return lambda v: ops.non_maximum_suppression(
        *[v[name] if isinstance(name, str) else name for name in names.values()]
    )


REFUSED = [
    (lambda v: ops.roi_align(v["x"][0], v["r"], 2, 2), ValueError, "must have rank 4, not 3"),
    (lambda v: ops.roi_align(v["x"], v["r"][0], 2, 2), ValueError, r"must be of shape \(M, 5\)"),
    (lambda v: ops.roi_align(v["x"], v["r4"], 2, 2), ValueError, r"not \[m, 4\]"),
    (lambda v: ops.roi_align(v["i"], v["r"], 2, 2), ValueError, "must be floats, not int32"),
    (lambda v: ops.roi_align(v["e"], v["r"], 2, 2), ValueError, "there are regions, but no pixels"),
    (lambda v: ops.roi_align(v["x"], v["r"], -1, 2), TypeError, "cannot be -1 by 2"),
    (lambda v: ops.roi_align(v["x"], v["r"], "o", 2), TypeError, "output_height must be an int"),
    (lambda v: ops.roi_align(v["x"], v["r"], 2, 2, mode="avg"), ValueError, "'AVG' or 'MAX'"),
    (lambda v: ops.roi_align(v["x"], v["r"], 2, 2, v["t"]), TypeError, "spatial_scale must be a"),
    (lambda v: ops.roi_align(v["x"], v["r"], 2, 2, 1.0, 0.5), ValueError, "0, or at least 1"),
    (_nms(boxes="t"), ValueError, "the boxes must have rank 3, not 0"),
    (_nms(scores="s3"), ValueError, "boxes of 2 images, and scores of 3"),
    (_nms(most="t"), ValueError, "max_output_boxes_per_class must be an integer"),
    (_nms(iou="n"), ValueError, "iou_threshold must be floats, not int64"),
    (_nms(least="s"), ValueError, "must be scalars"),
    (_nms(most=3), TypeError, "non_maximum_suppression"),
]


@pytest.mark.parametrize(("build", "error", "match"), REFUSED)
def test_refused(inputs, build, error, match):
    with pytest.raises(error, match=match) as caught:
        build(inputs)
    assert "test_detection.py" in str(caught.value)


def test_sizes_that_do_not_fit_are_refused_when_it_runs(run):
    with pytest.raises(ValueError, match="there are 5 boxes, and 4 scores for each class"):
        run(
            suppressed(5, 0.5, 0.0, 4),
            BOXES, SCORES[:, :, :4], dims=[[2, "a", 4], [2, 2, "b"]],
        )  # fmt: skip
    with pytest.raises(ValueError, match="a region has 4 numbers instead of 5"):
        run(
            lambda x, r: ops.roi_align(x, r, 2, 2),
            FEATURES, ROIS[:, :4], dims=[FEATURES.shape, [7, "five"]],
        )  # fmt: skip
