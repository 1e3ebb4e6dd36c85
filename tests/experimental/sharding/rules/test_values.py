# SPDX-License-Identifier: Apache-2.0
"""Every row of a rule is true: run on parts placed so, the op gives parts of its result.

Each op is NumPy's, on the arrays of simulated devices.
"""

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.experimental.sharding import DeviceMapping, Sharded, TensorLayout
from maxjax.experimental.sharding.per_shard_dim import local_dim_at
from maxjax.experimental.sharding.rules import localizer_for, names, rule_for
from maxjax.graph import Dim
from tests.experimental.sharding.simulated import joined, mesh, short, spread


class Case(NamedTuple):
    """An op: how NumPy computes it from arrays and parameters, and examples of both."""

    op: str
    compute: Callable[..., Any]
    shapes: list[tuple[int, ...]]
    parameters: Any = MappingProxyType({})
    listed: bool = False


def elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays, **parameters: function(*arrays)


def softmax(value: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(value - value.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def norm(x: np.ndarray, *weights: np.ndarray, **rest: Any) -> np.ndarray:
    axes = tuple(range(x.ndim - weights[0].ndim, x.ndim))
    y = x / np.sqrt((x * x).mean(axes, keepdims=True) + 1)
    for w in weights:
        y = y * w
    return y


def top(input: np.ndarray, k: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-input, axis).take(range(k), axis)
    return np.take_along_axis(input, order, axis), order


def conv(x: np.ndarray, w: np.ndarray, bias: Any = None, transposed: bool = False) -> np.ndarray:
    """A convolution with a filter of one element, NHWC."""
    y = np.einsum("nhwc,fc->nhwf" if transposed else "nhwc,cf->nhwf", x, w[0, 0])
    return y if bias is None else y + bias


def pooled(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def compute(x: np.ndarray, **rest: Any) -> np.ndarray:
        n, h, w, c = x.shape
        return reduce(x.reshape(n, h // 2, 2, w // 2, 2, c), (2, 4))

    return compute


def cumsum(x: np.ndarray, axis: int) -> np.ndarray:
    return np.cumsum(x, axis)


def padded(input: np.ndarray, paddings: list[int], mode: Any, value: float = 0) -> np.ndarray:
    pairs = list(zip(paddings[::2], paddings[1::2], strict=True))
    extra = {"constant_values": value} if mode == "constant" else {}
    return np.pad(input, pairs, mode, **extra)


def resized(input: np.ndarray, **size: Any) -> np.ndarray:
    (target,) = size.values()
    assert input.shape[0] == target[0]
    return input.repeat(2, 2).repeat(2, 3)


def written(input: np.ndarray, updates: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    result = input.copy()
    np.put_along_axis(result, whole_numbers(indices), updates, axis)
    return result


def whole_numbers(array: np.ndarray) -> np.ndarray:
    """Places in an axis of size 4, from any numbers."""
    return np.floor(np.abs(array) * 100).astype(np.int64) % 4


def gathered(input: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    return np.take(input, whole_numbers(indices), axis)


def gathered_nd(input: np.ndarray, indices: np.ndarray, batch_dims: int) -> np.ndarray:
    places = whole_numbers(indices)[..., 0]
    if not batch_dims:
        return input[places]
    return np.stack([i[p] for i, p in zip(input, places, strict=True)])


REPEATS = {"repeats": 3, "axis": 0}
TWO = [(4, 6), (4, 6)]
CASES = [
    Case("relu", elementwise(lambda x: np.maximum(x, 0)), [(4, 6)]),
    Case("negate", elementwise(np.negative), [(4, 6)]),
    Case("cast", lambda x, dtype: x, [(4, 6)], {"dtype": DType.float32}),
    Case("cast", lambda x, dtype: np.round(x), [(4, 6)], {"dtype": DType.int32}),
    *[
        Case(op, elementwise(f), shapes)
        for op, f in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply),
                      ("div", np.divide), ("elementwise_max", np.maximum), ("max", np.maximum))
        for shapes in (TWO, [(4, 6), (6,)], [(4, 1), (1, 6)], [(4, 6), ()], [(), (6,)],
                       [(2, 4, 6), (4, 1)], [(1, 1), (1, 1)])
    ],
    Case("where", elementwise(lambda c, x, y: np.where(c > 0, x, y)), [(6,), (4, 6), (4, 1)]),
    Case("clamp", elementwise(lambda x, a, b: np.minimum(np.maximum(x, a), b)), [(4, 6), (6,), ()]),
    Case("complex_mul", elementwise(
        lambda x, y: np.stack([x[..., 0] * y[..., 0] - x[..., 1] * y[..., 1],
                               x[..., 0] * y[..., 1] + x[..., 1] * y[..., 0]], -1)
    ), [(4, 6, 2), (6, 2)]),
    *[
        Case("sum", lambda x, axis: x.sum(axis, keepdims=True), [(4, 6, 2)], {"axis": axis})
        for axis in (0, 1, -1, None)
    ],
    *[
        Case(op, lambda x, axis, f=f: f(x, axis, keepdims=True), [(4, 6)], {"axis": axis})
        for op, f in (("mean", np.mean), ("prod", np.prod), ("max", np.max), ("argmax", np.argmax))
        for axis in (0, -1)
    ],
    Case("softmax", softmax, [(4, 6, 2)], {"axis": 1}),
    Case("cumsum", cumsum, [(4, 6, 2)], {"axis": -2}),
    Case("top_k", top, [(4, 6)], {"k": 2, "axis": -1}),
    Case("layer_norm", norm, [(2, 4, 6), (6,), (6,)], {"epsilon": 1}),
    Case("rms_norm", norm, [(2, 4, 6), (4, 6)], {"epsilon": 1}),
    *[
        Case("matmul", lambda x, y: x @ y, shapes)
        for shapes in ([(4, 6), (6, 8)], [(3, 4, 6), (6, 8)], [(3, 4, 6), (3, 6, 8)],
                       [(2, 3, 4, 6), (3, 6, 8)], [(1, 4, 6), (3, 6, 8)], [(4, 6), (3, 6, 8)],
                       [(6,), (6, 8)], [(4, 6), (6,)], [(6,), (6,)], [(2, 4, 6), (6,)],
                       [(6,), (2, 6, 8)])
    ],
    Case("outer", np.outer, [(4,), (6,)]),
    Case("conv2d", conv, [(2, 3, 3, 4), (1, 1, 4, 6)]),
    Case("conv2d", lambda x, w, groups: np.concatenate(
        [conv(x[..., :2], w[..., :3]), conv(x[..., 2:], w[..., 3:])], -1
    ), [(2, 3, 3, 4), (1, 1, 2, 6)], {"groups": 2}),
    Case("conv2d_transpose", lambda x, w: conv(x, w, None, True),
         [(2, 3, 3, 4), (1, 1, 6, 4)]),
    Case("max_pool2d", pooled(np.max), [(2, 4, 4, 6)]),
    Case("avg_pool2d", pooled(np.mean), [(2, 4, 4, 6)]),
    Case("band_part", np.triu, [(2, 4, 6)]),
    Case("as_interleaved_complex", lambda x: x.reshape(*x.shape[:-1], -1, 2), [(2, 4, 6)]),
    Case("irfft", lambda input_tensor, n, axis: input_tensor[:, ::-1], [(2, 4, 6)],
         {"n": None, "axis": 1}),
    Case("fold", lambda x: x.sum(2, keepdims=True), [(2, 4, 6)]),
    Case("resize", resized, [(4, 3, 2, 2)], {"shape": [4, 3, 4, 4]}),
    Case("resize_nearest", resized, [(4, 3, 2, 2)], {"size": [4, 3, 4, 4]}),
    Case("permute", lambda x, dims: x.transpose(dims), [(4, 6, 2)], {"dims": [-1, 0, 1]}),
    Case("transpose", lambda x, axis_1, axis_2: x.swapaxes(axis_1, axis_2), [(4, 6, 2)],
         {"axis_1": -1, "axis_2": 0}),
    *[
        Case("unsqueeze", lambda x, axis: np.expand_dims(x, axis), [(4, 6)], {"axis": axis})
        for axis in (0, 1, -1)
    ],
    Case("squeeze", lambda x, axis: x.squeeze(axis), [(4, 1, 6)], {"axis": -2}),
    Case("stack", lambda x, axis: np.stack(x, axis), TWO, {"axis": 1}, listed=True),
    Case("chunk", lambda x, chunks, axis: np.split(x, chunks, axis), [(4, 6)],
         {"chunks": 2, "axis": 1}),
    Case("split", lambda x, split_size_or_sections, axis: np.split(x, [1], axis), [(4, 6)],
         {"split_size_or_sections": [1, 5], "axis": -1}),
    Case("split", lambda x, split_size_or_sections, axis: np.split(x, [4], axis), [(4, 6)],
         {"split_size_or_sections": 4, "axis": 1}),
    Case("tile", lambda x, repeats: np.tile(x, repeats), [(4, 6)], {"repeats": [1, 3]}),
    Case("tile", lambda x, repeats: np.tile(x, repeats), [(4, 6)], {"repeats": [2, 1, 3]}),
    Case("repeat_interleave", lambda x, repeats, axis: x.repeat(repeats, axis), [(4, 6)], REPEATS),
    Case("pad", padded, [(4, 6)], {"paddings": [1, 2, 0, 0], "mode": "constant"}),
    Case("pad", padded, [(4, 6)], {"paddings": [1, 2, 0, 0], "mode": "constant", "value": 5}),
    Case("pad", padded, [(4, 6)], {"paddings": [0, 0, 0, 1], "mode": "edge"}),
    *[
        Case("slice_tensor", lambda x, indices: x[tuple(indices)], [(4, 6, 2)], {"indices": i})
        for i in ([0], [slice(None), slice(1, 3)], [..., 0], [None, ..., 1], [], [slice(0, 4)],
                  [None, slice(None), 1], [slice(1, 2), ..., None])
    ],
    Case("gather", gathered, [(8, 4), (6,)], {"axis": 0}),
    Case("gather", gathered, [(4, 5, 3), (2, 6)], {"axis": -2}),
    Case("gather_nd", gathered_nd, [(4, 3), (6, 1)], {"batch_dims": 0}),
    Case("gather_nd", gathered_nd, [(4, 5), (4, 6, 1)], {"batch_dims": 1}),
    Case("scatter", written, [(6, 4), (6, 2), (6, 2)], {"axis": 1}),
    Case("broadcast_to", lambda x, shape: np.broadcast_to(x, shape), [(4, 1)],
         {"shape": [3, 4, 6]}),
    Case("rebind", lambda x, shape: x.reshape(shape), [(4, 6)], {"shape": [4, 6]}),
    Case("flatten", lambda x, start_dim, end_dim: x.reshape(len(x), 12, -1), [(4, 6, 2, 2)],
         {"start_dim": 1, "end_dim": 2}),
    Case("dequantize", lambda quantized, encoding: quantized.repeat(2, -1), [(4, 6)],
         {"encoding": None}),
]  # fmt: skip


def places(arguments: dict[str, Any], device: int) -> dict[str, Any]:
    """Arguments as one device has them, with numbers for dims."""

    def at(value: Any) -> Any:
        if isinstance(value, list):
            return [at(v) for v in value]
        return int(local_dim_at(value, device)) if isinstance(value, Dim) else value

    return {name: at(value) for name, value in arguments.items()}


def check_rows(case: Case, rows: Any, n: int) -> None:
    on = mesh(n)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in case.shapes]
    whole = outputs_of(case, arrays, case.parameters)
    for row in rows:
        layouts = [
            TensorLayout(DType.float32, a.shape, DeviceMapping(on, (p,)))
            for a, p in zip(arrays, row.needed_inputs, strict=True)
        ]
        axes = [(p.localized_axis(), a) for p, a in zip(row.needed_inputs, arrays, strict=True)]
        if any(axis is not None and a.shape[axis] < n for axis, a in axes):
            continue  # never taken: a part would be empty
        localizer = localizer_for(case.op)
        own = localizer(*layouts, **case.parameters) if localizer else {}
        parts = [spread(a, on, (p,)) for a, p in zip(arrays, row.needed_inputs, strict=True)]
        results = [
            outputs_of(case, [p[d] for p in parts], places({**case.parameters, **own}, d))
            for d in range(n)
        ]
        for i, (expected, placement) in enumerate(zip(whole, row.outputs, strict=True)):
            got = joined([r[i] for r in results], on, (placement,))
            said = f"{case.op} {case.parameters} {list(map(short, row.needed_inputs))}"
            assert got.shape == expected.shape, said
            np.testing.assert_allclose(got, expected, atol=1e-9, err_msg=said)


def outputs_of(case: Case, arrays: list[np.ndarray], parameters: dict[str, Any]) -> list[Any]:
    result = case.compute(arrays, **parameters) if case.listed else (
        case.compute(*arrays, **parameters)
    )  # fmt: skip
    return list(result) if isinstance(result, tuple | list) else [result]


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.op}-{c.shapes}-{c.parameters}")
def test_rows(case, n):
    layouts = [TensorLayout(DType.float32, s, mesh(n)) for s in case.shapes]
    rule = rule_for(case.op)
    assert rule is not None
    if case.op == "dequantize":
        rows = rule(None, *layouts)
    elif case.listed:
        rows = rule(layouts, **case.parameters)
    else:
        rows = rule(*layouts, **case.parameters)
    assert len(rows) == len(set(rows)) and all(len(r.needed_inputs) == len(layouts) for r in rows)
    check_rows(case, [r for r in rows if "U0" not in map(short, r.needed_inputs)], n)


RESHAPES = [
    ((4, 6), [24]), ((4, 6), [4, 2, 3]), ((12, 6), [6, 2, 6]), ((12, 6), [2, 6, 6]), ((5, 6), [30]),
    ((5, 6), [5, 3, 2]), ((4, 6), [1, 4, 1, 6]), ((1, 4, 6), [4, 6]), ((2, 4, 6), [2, 24]),
    ((2, 4, 6), [8, 6]), ((4, 6, 2), [4, 12]), ((4, 6), [-1, 2]), ((4, 6), [6, 4]), ((1, 1), []),
    ((6, 4, 3), [6, 12]), ((6, 4, 3), [2, 3, 12]), ((6, 4, 3), [3, 2, 2, 2, 3]),
    ((10, 6), [2, 5, 6]),
]  # fmt: skip


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize(("shape", "target"), RESHAPES)
def test_rows_of_reshapes(shape, target, n):
    rule = rule_for("reshape")
    assert rule is not None
    case = Case("reshape", lambda x, shape: x.reshape(shape), [shape], {"shape": target})
    for axis, size in enumerate(shape):
        if size < n:
            continue
        placed = TensorLayout(DType.float32, shape, DeviceMapping(mesh(n), (Sharded(axis),)))
        check_rows(case, [r for r in rule(placed, target) if "U" not in map(short, r.outputs)], n)


def test_every_reshape_that_can_keep_a_split_does():
    """Whatever axis of the result a part could be of, by brute force."""
    rule = rule_for("reshape")
    assert rule is not None
    n = 2
    for shape, target in RESHAPES:
        array = np.arange(math.prod(shape)).reshape(shape)
        result = array.reshape(target)
        for axis, size in enumerate(shape):
            if size < n or size % n:
                continue
            mine = set(np.split(array, n, axis)[0].flat)
            fits = any(
                s % n == 0 and set(np.split(result, n, b)[0].flat) == mine
                for b, s in enumerate(result.shape)
            )
            placed = TensorLayout(DType.float32, shape, DeviceMapping(mesh(n), (Sharded(axis),)))
            kept = any(r.needed_inputs == (Sharded(axis),) for r in rule(placed, target))
            assert kept == fits, (shape, target, axis)


def test_every_rule_has_a_case():
    """Of those that split anything or have results that are sums."""
    same = {
        "abs", "acos", "atanh", "ceil", "cos", "erf", "exp", "floor", "gelu", "is_inf", "is_nan",
        "log", "log1p", "logical_not", "round", "rsqrt", "sigmoid", "silu", "sin", "sqrt", "tanh",
        "trunc", "elementwise_min", "equal", "floor_div", "greater", "greater_equal", "logical_and",
        "logical_or", "logical_xor", "mod", "not_equal", "pow", "clip", "argmin", "min",
        "logsoftmax", "bottom_k", "conv3d", "resize_bicubic", "resize_linear", "scatter_add",
        "scatter_max", "scatter_min", "scatter_mul", "group_norm", "reshape",
    }  # fmt: skip
    elsewhere = {"concat", "buffer_store", "buffer_store_slice", "cond", "while_loop"}
    nothing = {
        "argsort",
        "qmatmul",
        "masked_scatter",
        "nonzero",
        *(n for n in names() if "nd" in n),
    }
    tested = {case.op for case in CASES}
    assert set(names()) - tested - same - elsewhere - nothing == set()
