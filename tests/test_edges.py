# SPDX-License-Identifier: Apache-2.0
"""What the first part of docs/differences.md says: the edges, the same on every route.

The cases of one section run as one graph. The second part is `test_differences.py`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.export
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, TensorType, ops
from maxjax.lower import to_jax

INF, NAN = float("inf"), float("nan")
LEAST = -(2**31)
CPU = DeviceRef.CPU()


def tensor(dtype: str, *dims: Any) -> TensorType:
    return TensorType(DType[dtype], list(dims), CPU)


class Case(NamedTuple):
    build: Callable[..., Any]
    inputs: tuple[Any, ...]
    expected: Any


def case(build: Callable[..., Any], *inputs: Any, gives: Any) -> Case:
    return Case(build, inputs, gives)


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def i8(*values: int) -> np.ndarray:
    return np.array(values, np.int8)


def u8(*values: int) -> np.ndarray:
    return np.array(values, np.uint8)


def empty(dtype: type, *shape: int) -> np.ndarray:
    return np.empty(shape, dtype)


def to(dtype: str) -> Callable[[Any], Any]:
    return lambda x: ops.cast(x, DType[dtype])


ZEROS = i32(0, 0, 0, 0)
ROWS = np.array([[1, NAN, 3], [NAN, NAN, NAN], [INF, -INF, 1], [2, 2, 1]], np.float32)
BIG = f32(NAN, INF, -INF, 3e9, -3e9, 1.9, -1.9, 300, -1)

EDGES: dict[str, dict[str, Case]] = {
    "integers": {
        "+ wraps around": case(lambda x, y: x + y, i8(100, -100), i8(100, -100), gives=i8(-56, 56)),
        "* wraps around": case(lambda x: x * x, u8(16, 20), gives=u8(0, 144)),
        "sum wraps around": case(ops.sum, i8(100, 100), gives=i8(-56)),
        "prod wraps around": case(ops.prod, i8(100, 2), gives=i8(-56)),
        "cumsum wraps around": case(ops.cumsum, i8(100, 100), gives=i8(100, -56)),
        "abs of the least": case(ops.abs, i8(-128), gives=i8(-128)),
        "negation of the least": case(lambda x: -x, i8(-128, 1), gives=i8(-128, -1)),
        "negation of unsigned": case(lambda x: -x, u8(1, 0), gives=u8(255, 0)),
        "// 0": case(lambda x, y: x // y, i32(7, -7, 0, LEAST), ZEROS, gives=ZEROS),
        "% 0": case(lambda x, y: x % y, i32(7, -7, 0, LEAST), ZEROS, gives=ZEROS),
        "// 0 unsigned": case(lambda x, y: x // y, u8(7), u8(0), gives=u8(0)),
        "least // -1": case(lambda x, y: x // y, i32(LEAST), i32(-1), gives=i32(LEAST)),
        "least % -1": case(lambda x, y: x % y, i32(LEAST), i32(-1), gives=i32(0)),
        "// floors": case(
            lambda x, y: x // y, i32(7, -7, 7, -7), i32(2, 2, -2, -2), gives=i32(3, -4, -4, 3)
        ),
        "% has the divisor's sign": case(
            lambda x, y: x % y, i32(7, -7, 7, -7), i32(2, 2, -2, -2), gives=i32(1, 1, -1, -1)
        ),
        "/": case(
            lambda x, y: x / y, i32(7, 0, -7), i32(0, 0, 2), gives=np.array([INF, NAN, -3.5])
        ),
        "** of a negative power": case(
            lambda x, y: x**y, i32(2, 1, -1, -1), i32(-1, -1, -1, -2), gives=i32(0, 1, -1, 1)
        ),
        "mean": case(ops.mean, i32(-1, -2, -4), gives=i32(-2)),
        "mean does not overflow": case(ops.mean, i8(100, 120), gives=i8(110)),
    },
    "floats": {
        "x / 0": case(lambda x, y: x / y, f32(7, -7, 0), f32(0, 0, 0), gives=f32(INF, -INF, NAN)),
        "x // 0": case(lambda x, y: x // y, f32(7, -7, 0), f32(0, 0, 0), gives=f32(INF, -INF, NAN)),
        "x % 0": case(lambda x, y: x % y, f32(7, 0, INF), f32(0, 0, 2), gives=f32(NAN, NAN, NAN)),
        "x % inf": case(lambda x, y: x % y, f32(7, -7), f32(INF, INF), gives=f32(7, INF)),
        "==": case(
            lambda x, y: x == y, f32(NAN, 1, -0.0), f32(NAN, NAN, 0), gives=[False] * 2 + [True]
        ),
        "!=": case(
            lambda x, y: x != y, f32(NAN, 1, -0.0), f32(NAN, NAN, 0), gives=[True] * 2 + [False]
        ),
        ">": case(lambda x, y: x > y, f32(NAN, NAN, 1), f32(NAN, 1, NAN), gives=[False] * 3),
        ">=": case(lambda x, y: x >= y, f32(NAN, NAN, 1), f32(NAN, 1, NAN), gives=[False] * 3),
        "< is not >=": case(lambda x, y: x < y, f32(NAN, 1, 1), f32(1, NAN, 2), gives=[True] * 3),
        "<= is not >": case(
            lambda x, y: x <= y, f32(NAN, 1, 3), f32(1, NAN, 2), gives=[True] * 2 + [False]
        ),
        "max along an axis": case(ops.max, ROWS, gives=f32([NAN], [NAN], [INF], [2])),
        "min along an axis": case(ops.min, ROWS, gives=f32([NAN], [NAN], [-INF], [1])),
        "max of two": case(ops.max, f32(1, NAN, 2), f32(NAN, 1, 3), gives=f32(NAN, NAN, 3)),
        "min of two": case(ops.min, f32(1, NAN, 2), f32(NAN, 1, 3), gives=f32(NAN, NAN, 2)),
        "argmax": case(ops.argmax, ROWS, gives=i64([1], [0], [0], [0])),
        "argmin": case(ops.argmin, ROWS, gives=i64([1], [0], [1], [2])),
        "relu": case(ops.relu, f32(NAN, -1, INF), gives=f32(NAN, 0, INF)),
        "softmax": case(
            lambda x: ops.softmax(x)[:3],
            ROWS,
            gives=f32([NAN] * 3, [NAN] * 3, [NAN] * 3),
        ),
        "softmax of all -inf": case(ops.softmax, f32(-INF, -INF), gives=f32(NAN, NAN)),
        "softmax of large numbers": case(ops.softmax, f32(1e30, -1e30), gives=f32(1, 0)),
        "layer_norm of a constant row": case(
            lambda x, y: ops.layer_norm(x, y, y, 1e-5), f32([5, 5]), f32(1, 2), gives=f32([1, 2])
        ),
        "round": case(ops.round, f32(0.5, 1.5, 2.5, -1.5), gives=f32(0, 2, 2, -2)),
        "logsoftmax of -inf": case(ops.logsoftmax, f32(0, -INF), gives=f32(0, -INF)),
        "sum of narrow floats": case(
            lambda x: ops.sum(to("float16")(x)), np.ones(4096, np.float32), gives=np.float16([4096])
        ),
        "where does not mix in what is not chosen": case(
            lambda c, x, y: ops.where(c, x, y), np.array([True]), f32(1), f32(NAN), gives=f32(1)
        ),
    },
    "casts": {
        "float to int32": case(
            to("int32"), BIG, gives=i32(0, 2**31 - 1, LEAST, 2**31 - 1, LEAST, 1, -1, 300, -1)
        ),
        "float to uint8": case(to("uint8"), BIG, gives=u8(0, 255, 0, 255, 0, 1, 0, 255, 0)),
        "float to int8": case(to("int8"), BIG, gives=i8(0, 127, -128, 127, -128, 1, -1, 127, -1)),
        "float to int64": case(
            to("int64"),
            BIG,
            gives=i64(0, 2**63 - 1, -(2**63), 3 * 10**9, -3 * 10**9, 1, -1, 300, -1),
        ),
        "double to int32": case(
            to("int32"), np.float64([1e300, -1e300, NAN]), gives=i32(2**31 - 1, LEAST, 0)
        ),
        "bfloat16 to int8": case(
            lambda x: to("int8")(to("bfloat16")(x)), f32(300, NAN, -1.5), gives=i8(127, 0, -1)
        ),
        "integer to a narrower one": case(to("uint8"), i32(-1, 300, 256), gives=u8(255, 44, 0)),
        "integer to a signed one": case(to("int8"), i32(-1, 300, 128), gives=i8(-1, 44, -128)),
        "float to bool": case(to("bool"), f32(0, -0.0, 0.5, NAN), gives=[False, False, True, True]),
        "integer to bool": case(to("bool"), i32(0, 256, -1), gives=[False, True, True]),
        "wide float to a narrower one": case(
            to("float16"), f32(1e6, -1e6, NAN, 2049), gives=np.float16([INF, -INF, NAN, 2048])
        ),
        "beyond a dtype without infinity": case(
            lambda x: to("float32")(to("float8_e4m3fn")(x)), f32(1e6, 448), gives=f32(NAN, 448)
        ),
        "integer to float": case(to("float32"), i32(2**24 + 1, -7), gives=f32(2**24, -7)),
    },
    "indices": {
        "gather": case(
            lambda x, i: ops.gather(x, i, axis=0),
            f32(10, 11, 12),
            i64(0, -1, -3, -4, 3, 2**62, -(2**62)),
            gives=f32(10, 12, 10, 10, 12, 12, 10),
        ),
        "gather by uint8": case(
            lambda x, i: ops.gather(x, i, axis=0), f32(10, 11, 12), u8(255), gives=f32(12)
        ),
        "x[i]": case(lambda x, i: x[i], f32(10, 11, 12), np.int64(7), gives=np.float32(12)),
        "x[i] by int32": case(
            lambda x, i: x[i], f32(10, 11, 12), np.int32(-1), gives=np.float32(12)
        ),
        "a window by value": case(
            lambda x, i: x[(slice(i, None), 2),], f32(10, 11, 12), np.int64(7), gives=f32(11, 12)
        ),
        "repeats by value": case(
            lambda x, n: ops.repeat_interleave(x, n, out_dim=4),
            f32(1, 2),
            i64(-1, 9),
            gives=f32(2, 2, 2, 2),
        ),
        "too few repeats by value": case(
            lambda x, n: ops.repeat_interleave(x, n, out_dim=4),
            f32(1, 2),
            i64(1, 1),
            gives=f32(1, 2, 2, 2),
        ),
        "a range by value": case(
            lambda n: ops.range(n, 0, 1, 3, dtype=DType.int64, device=CPU),
            np.int64(5),
            gives=i64(5, 6, 7),
        ),
        "a negative step with out_dim": case(
            lambda x: x[(slice(None, None, -1), 3),], f32(1, 2, 3), gives=f32(3, 2, 1)
        ),
    },
    "sizes": {
        "sum": case(ops.sum, empty(np.float32, 2, 0), gives=f32([0], [0])),
        "prod": case(ops.prod, empty(np.int32, 0), gives=i32(1)),
        "mean": case(ops.mean, empty(np.float32, 0), gives=f32(NAN)),
        "mean of integers": case(ops.mean, empty(np.int32, 0), gives=i32(0)),
        "cumsum": case(ops.cumsum, empty(np.float32, 0), gives=empty(np.float32, 0)),
        "softmax": case(ops.softmax, empty(np.float32, 2, 0), gives=empty(np.float32, 2, 0)),
        "matmul": case(
            lambda x, y: x @ y,
            empty(np.float32, 2, 0),
            empty(np.float32, 0, 3),
            gives=np.zeros((2, 3), np.float32),
        ),
        "range": case(
            lambda x: ops.range(5, 5, dtype=DType.int64, device=CPU) + x[:0].cast(DType.int64),
            f32(1),
            gives=i64(),
        ),
        "pad": case(lambda x: ops.pad(x, [1, 1]), empty(np.float32, 0), gives=f32(0, 0)),
        "layer_norm": case(
            lambda x, y: ops.layer_norm(x, y, y, 1e-5),
            empty(np.float32, 0, 2),
            f32(1, 1),
            gives=empty(np.float32, 0, 2),
        ),
        "concat": case(lambda x, y: ops.concat([x, y]), empty(np.float32, 0), f32(1), gives=f32(1)),
        "reshape": case(
            lambda x: x.reshape([3, 0, 5]),
            empty(np.float32, 0, 4),
            gives=empty(np.float32, 3, 0, 5),
        ),
        "arithmetic": case(
            lambda x, y: x + y, empty(np.float32, 0), f32(1), gives=empty(np.float32, 0)
        ),
        "max of the other axis": case(
            lambda x: ops.max(x, axis=1), empty(np.float32, 0, 2), gives=empty(np.float32, 0, 1)
        ),
        "gather of nothing": case(
            lambda x, i: ops.gather(x, i, axis=0),
            empty(np.float32, 0, 2),
            empty(np.int64, 0),
            gives=empty(np.float32, 0, 2),
        ),
    },
    "precision": {
        "float64": case(lambda x: x + 1, np.float64([2.0**53 - 1]), gives=np.float64([2.0**53])),
        "int64": case(lambda x: x * 3, i64(2**60 + 1), gives=i64(3 * (2**60 + 1))),
        "bfloat16 products": case(
            lambda x: to("float32")(to("bfloat16")(x) @ to("bfloat16")(x)),
            np.ones(1024, np.float32),
            gives=np.float32(1024),
        ),
    },
}


def graph_of(cases: dict[str, Case]) -> tuple[Graph, list[np.ndarray]]:
    """One graph with an output per case, and its inputs."""
    arrays = [np.asarray(a) for c in cases.values() for a in c.inputs]
    types = [TensorType(DType.of(a.dtype), a.shape, CPU) for a in arrays]
    with Graph("edges", input_types=types) as graph:
        values = iter(graph.inputs)
        graph.output(*[c.build(*[next(values) for _ in c.inputs]) for c in cases.values()])
    return graph, arrays


def by_model(graph: Graph, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [b.to_numpy() for b in InferenceSession().load(graph)(*arrays)]


def by_function(graph: Graph, arrays: list[np.ndarray]) -> list[np.ndarray]:
    with jax.enable_x64(True):
        outputs, _ = to_jax(graph)({}, [jax.numpy.asarray(a) for a in arrays])
    return [np.asarray(o) for o in outputs]


def by_export(graph: Graph, arrays: list[np.ndarray]) -> list[np.ndarray]:
    function = to_jax(graph)
    with jax.enable_x64(True):
        exported = jax.export.export(jax.jit(lambda *xs: function({}, xs)[0]))(*arrays)
        outputs = jax.export.deserialize(exported.serialize()).call(*arrays)
    return [np.asarray(o) for o in outputs]


@pytest.mark.parametrize("route", [by_model, by_function, by_export])
@pytest.mark.parametrize("section", EDGES)
def test_edges(section: str, route: Callable[..., list[np.ndarray]]) -> None:
    cases = EDGES[section]
    found = route(*graph_of(cases))
    wrong = {}
    for (name, c), got in zip(cases.items(), found, strict=True):
        expected = np.asarray(c.expected)
        same = got.dtype == expected.dtype and got.shape == expected.shape
        if not same or not np.array_equal(got, expected, equal_nan=got.dtype.kind == "f"):
            wrong[name] = (got.dtype, got.tolist(), expected.dtype, expected.tolist())
    assert not wrong


def test_float32_products_are_asked_for_in_float32_whatever_the_device() -> None:
    graph = Graph("product", lambda x: x @ x, [tensor("float32", 8, 8)])
    text = jax.jit(lambda x: to_jax(graph)({}, [x])[0]).lower(np.ones((8, 8), np.float32)).as_text()
    assert "precision = [HIGHEST, HIGHEST]" in text
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 256, 256)).astype(np.float32)
    graph = Graph("product", lambda x, y: x @ y, [tensor("float32", "n", "n")] * 2)
    (got,) = by_model(graph, [a, b])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    # A sum of 256 products, each rounded to 2**-24 of its size.
    bound = 256 * 2.0**-24 * (np.abs(a).astype(np.float64) @ np.abs(b))
    assert (np.abs(got - exact) <= bound).all()


@pytest.mark.parametrize("op", [ops.max, ops.min, ops.argmax, ops.argmin])
def test_choosing_from_nothing_is_refused(op: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="size 0, so there is no element to choose"):
        Graph("none", op, [tensor("float32", 0)])
    model = InferenceSession().load(Graph("none", op, [tensor("float32", "n")]))
    with pytest.raises(ValueError, match="size 0, so there is no element to choose"):
        model(empty(np.float32, 0))
    assert model(f32(1))[0].shape == (1,)


def test_an_index_into_an_empty_axis_is_refused() -> None:
    types = [tensor("float32", "n"), tensor("int64", 1)]
    model = InferenceSession().load(Graph("g", lambda x, i: ops.gather(x, i, axis=0), types))
    with pytest.raises(ValueError, match="size 0, so no index is in range"):
        model(empty(np.float32, 0), i64(0))


def test_slices_are_not_cut_off() -> None:
    with pytest.raises(ValueError, match="not inside dimension 0 of size 4"):
        Graph("slice", lambda x: x[1:10], [tensor("float32", 4)])
    with pytest.raises(ValueError, match="index 4 is out of range"):
        Graph("slice", lambda x: x[4], [tensor("float32", 4)])
    model = InferenceSession().load(Graph("slice", lambda x: x[1:10], [tensor("float32", "n")]))
    assert model(f32(*range(10)))[0].shape == (9,)
    with pytest.raises(ValueError, match="not inside dimension 0, which has size 4"):
        model(f32(1, 2, 3, 4))


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (slice(None, None, -1), "step of a slice is a positive int"),
        (slice(-2, 1), "would shrink as batch grows"),
    ],
)
def test_slices_of_a_symbolic_size_that_are_refused(index: slice, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Graph("slice", lambda x: x[index], [tensor("float32", "batch")])


@pytest.mark.parametrize("axis", [2, -7])
def test_softmax_refuses_an_axis_out_of_range(axis: int) -> None:
    with pytest.raises(ValueError, match="out of range for rank 2"):
        Graph("g", lambda x: ops.softmax(x, axis=axis), [tensor("float32", 4, 6)])


def test_a_symbolic_size_of_1_does_not_stretch() -> None:
    types = [tensor("float32", "n"), tensor("float32", "n")]
    model = InferenceSession().load(Graph("add", lambda x, y: x + y, types))
    text = r"'n' has two sizes: 3 from dimension 0 of input0, and 1 from dimension 0 of input1"
    with pytest.raises(ValueError, match=text):
        model(f32(1, 2, 3), f32(1))
    assert model(f32(1), f32(2))[0].to_numpy().tolist() == [3]


def test_two_names_do_not_broadcast_and_a_rebind_is_checked() -> None:
    types = [tensor("float32", "n"), tensor("float32", "m")]
    with pytest.raises(ValueError, match=r"n and m do not broadcast.*x.rebind"):
        Graph("add", lambda x, y: x + y, types)
    model = InferenceSession().load(Graph("add", lambda x, y: x + y.rebind(["n"]), types))
    assert model(f32(1, 2), f32(3, 4))[0].to_numpy().tolist() == [4, 6]
    with pytest.raises(ValueError, match="rebind"):
        model(f32(1, 2), f32(3))


def test_minus_one_beside_a_size_of_0_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 stands for no particular size"):
        Graph("g", lambda x: x.reshape([0, -1]), [tensor("float32", 0, 4)])
