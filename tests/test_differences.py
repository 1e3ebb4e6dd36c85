# SPDX-License-Identifier: Apache-2.0
"""What the second part of docs/differences.md says: where maxjax answers otherwise than MAX.

The first part, the edges, is `test_edges.py`.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxjax.driver import CPU as HOST
from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Dim, Graph, Module, Shape, TensorType, Weight, ops
from maxjax.graph.type import DeviceKind

CPU = DeviceRef.CPU()


def tensor(dtype: str, *dims: Any) -> TensorType:
    return TensorType(DType[dtype], list(dims), CPU)


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


# ---------------------------------------------------------------- dims and types


def test_dims_compute_as_ints_do() -> None:
    x = Dim("x")
    assert x + x == x * 2
    assert str(7 // x) == "7 // x"
    assert 4 // Dim(2) == 2
    assert Dim(-7) // 2 == -4
    assert (x // 2).substitute({"x": -3}) == -2
    assert Dim(np.int32(3)) == 3
    assert not Dim(0)
    with pytest.raises(OverflowError, match="beyond the int64 range"):
        Dim(2**63 - 1) + 1
    with pytest.raises(TypeError, match="not from bool True"):
        Dim(True)
    with pytest.raises(TypeError, match="bool"):
        x + True
    with pytest.raises(ValueError, match="not the name of a dim"):
        Dim("x\n")


def test_types_are_made_of_their_parts() -> None:
    assert DeviceKind.CPU != DeviceKind.GPU
    with pytest.raises(ValueError, match=r"byte order.*astype"):
        DType.from_numpy(np.dtype(">f4"))
    with pytest.raises(TypeError, match=r"write DeviceRef.CPU\(\)"):
        TensorType(DType.float32, [2], "cpu")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("other", ["float8_e4m3fn", "int8", "uint8"])
def test_small_floats_promote_to_no_third_dtype(other: str) -> None:
    with pytest.raises(ValueError, match="neither of"):
        Graph("g", lambda x, y: x + y, [tensor("float8_e5m2", 2), tensor(other, 2)])


def test_a_bool_beside_floats_is_refused() -> None:
    with pytest.raises(ValueError, match="would lose its fraction"):
        Graph("g", lambda x: x + np.array([1.5]), [tensor("bool", 1)])


# ---------------------------------------------------------------- graphs


def refuses(error: type[Exception], text: str, build: Callable[..., Any], *types: Any) -> None:
    with pytest.raises(error, match=text):
        Graph("g", build, types)


def test_values_have_no_truth_value() -> None:
    x = tensor("float32", 1)
    refuses(TypeError, "no truth value", lambda x: bool(x), x)
    refuses(TypeError, "no truth value", lambda x: x if x == x else -x, x)
    refuses(TypeError, "no truth value", lambda x, y: x in [y], x, x)


def test_a_value_of_another_graph_is_refused() -> None:
    other = Graph("other", input_types=[tensor("float32", 2)])
    refuses(
        ValueError, "belongs to graph 'other'", lambda x: x + other.inputs[0], tensor("float32", 2)
    )


def test_graphs_of_a_module_have_names_of_their_own() -> None:
    module = Module()
    Graph("encoder", module=module)
    with pytest.raises(ValueError, match="already has a graph called 'encoder'"):
        Graph("encoder", module=module)


def test_an_algebraic_input_dimension_is_checked_against_its_name() -> None:
    n = Dim("n")
    with pytest.raises(ValueError, match="no input has n as a dimension by itself"):
        Graph("g", input_types=[tensor("float32", n + 1)])
    types = [tensor("float32", n + 1), tensor("float32", "n")]
    model = InferenceSession().load(Graph("g", lambda x, y: x[1:] + y, types))
    assert model(f32(1, 2), f32(1))[0].to_numpy().tolist() == [3]
    with pytest.raises(ValueError, match=r"n \+ 1 is 3 here"):
        model(f32(1, 2), f32(1, 2))


def test_graphs_from_generators_shapes_and_copies() -> None:
    assert len(Graph("g", input_types=(tensor("float32", 2) for _ in range(2))).inputs) == 2
    (shape,) = Graph("g", lambda x: x.shape, [tensor("float32", "n", 2)]).output_types
    assert shape == tensor("int64", 2)
    copy = Graph("g", lambda x: x, [tensor("float32", 2)]).copy()
    assert copy.output_types == copy.input_types == [tensor("float32", 2)]


def test_an_op_after_the_output_changes_nothing() -> None:
    with Graph("g", input_types=[tensor("float32", 2)]) as graph:
        graph.output(graph.inputs[0])
        graph.inputs[0].tensor.cast(DType.int32)
    assert graph.output_types == [tensor("float32", 2)]


def test_uses_of_ops_that_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    matrix = tensor("float32", 4, 6)
    refuses(ValueError, "bools have no mean", ops.mean, tensor("bool", 2))
    refuses(ValueError, "4, which is never 5", lambda x: x.rebind([5, 5]), matrix)
    refuses(ValueError, "needs 4 paddings", lambda x: ops.pad(x, [1]), matrix)
    refuses(AssertionError, "needs 4 paddings", lambda x: ops.pad(x, [1]), matrix)
    refuses(TypeError, "must be a DType", lambda x: ops.cast(x, int), matrix)
    refuses(ValueError, "not a whole number", lambda: ops.constant(2.5, DType.int32, CPU))
    refuses(ValueError, "not a whole number", lambda: ops.constant(float("nan"), DType.int32, CPU))
    buffer = BufferType(DType.float32, [4, 6], CPU)
    refuses(
        ValueError,
        r"source has shape \[5\], the buffer \[4, 6\]",
        lambda b, x: b.__setitem__(..., x),
        buffer,
        tensor("float32", 5),
    )
    # Nothing but the exception: no dump of the graph.
    assert capfd.readouterr() == ("", "")


def test_constants_and_scalars() -> None:
    graph = Graph(
        "g",
        lambda x: (
            ops.constant(2.0, DType.int32, CPU),
            ops.constant(np.array(3, np.float32)),
            x.permute([]),
        ),
        [tensor("float32")],
    )
    assert graph.output_types == [tensor("int32"), tensor("float32"), tensor("float32")]
    results = InferenceSession().load(graph)(np.array(5, np.float32))
    assert [b.to_numpy().tolist() for b in results] == [2, 3, 5]


def test_what_builds_runs() -> None:
    def nested(x: Any, p: Any) -> Any:
        def inner() -> Any:
            return ops.cond(p, [x.type], lambda: x * 2, lambda: x)

        return ops.cond(p, [x.type], inner, lambda: -x)

    types = [tensor("float32", 2), tensor("bool")]
    model = InferenceSession().load(Graph("g", nested, types))
    assert model(f32(1, 2), np.array(True))[0].to_numpy().tolist() == [2, 4]
    assert model(f32(1, 2), np.array(False))[0].to_numpy().tolist() == [-1, -2]

    types = [tensor("float32", 3), tensor("int64")]
    model = InferenceSession().load(Graph("g", lambda x, i: ops.gather(x, i, axis=0), types))
    assert model(f32(1, 2, 3), np.array(2))[0].to_numpy().tolist() == 3

    types = [tensor("float32", 1)]
    model = InferenceSession().load(Graph("g", lambda x: x.cast(DType.float8_e5m2), types))
    assert model(f32(1))[0].dtype is DType.float8_e5m2


def test_a_computed_mask_is_not_lost_in_a_softmax() -> None:
    def masked(scores: Any, place: Any) -> Any:
        reach = ops.range(0, 4, 1, dtype=DType.int64, device=CPU)
        visible = ops.unsqueeze(place + 1, 1) >= ops.unsqueeze(reach, 0)
        chances = ops.softmax(ops.where(visible, scores, ops.constant(-1e9, DType.float32, CPU)))
        return chances, chances[-1]

    types = [tensor("float32", "n", 4), tensor("int64", "n")]
    scores, place = f32([1, 2, 3, 4], [4, 3, 2, 1]), np.int64([0, 1])
    got, last = InferenceSession().load(Graph("masked", masked, types))(scores, place)
    raised = np.exp(scores) * (place[:, None] + 1 >= np.arange(4))
    expected = raised / raised.sum(-1, keepdims=True)
    np.testing.assert_allclose(got.to_numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(last.to_numpy(), expected[-1], rtol=1e-6)


# ---------------------------------------------------------------- sessions and models


def test_all_problems_with_weights_are_one_message() -> None:
    w, v = Weight("layer.weight", DType.float32, [2], CPU), Weight("v", DType.float32, [3], CPU)
    graph = Graph("g", lambda x: (x + w, v * 2), [tensor("float32", 2)])
    registry = {"layer.weigth": f32(1, 2), "v": np.zeros(4)}
    text = (
        r"missing: layer.weight \(f32\[2\]\); did you mean layer.weigth\?\n"
        r"  v: expected f32\[3\], got f64\[4\]\n"
        r"  not used by the graph: layer.weigth"
    )
    with pytest.raises(ValueError, match=text):
        InferenceSession().load(graph, weights_registry=registry)


def test_weights_of_no_use_are_a_warning() -> None:
    graph = Graph("g", lambda x: x, [tensor("float32", 2)])
    with pytest.warns(UserWarning, match="weights that no graph uses: bias"):
        InferenceSession().load(graph, weights_registry={"bias": f32(1)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        InferenceSession().load(graph, weights_registry={})


def test_inputs_are_not_converted_and_results_are_read_only() -> None:
    model = InferenceSession().load(Graph("g", lambda x: x + 1, [tensor("float32", "n")]))
    with pytest.raises(ValueError, match=r"input0 is float64\[2\], expected f32\[n\]"):
        model(np.zeros(2))
    for given in (
        f32(1, 2),
        f32(1, 0, 2)[::2],
        np.array([1, 2], ">f4"),
        Buffer.from_numpy(f32(1, 2)),
    ):
        result = model(given)[0].to_numpy()
        assert result.tolist() == [2, 3]
        with pytest.raises(ValueError, match="read-only"):
            result[0] = 5
    writable = result.copy()
    writable[0] = 5


def test_arrays_can_be_changed_after_the_call() -> None:
    w = Weight("w", DType.float32, [4096], CPU)
    graph = Graph("g", lambda x: (x, x + w), [tensor("float32", 4096)])
    weight, given = np.zeros((2, 4096), np.float32)
    model = InferenceSession().load(graph, weights_registry={"w": weight})
    weight[:] = 5
    for _ in range(10):
        given[:] = 0
        results = model(given)
        given[:] = 7
        assert [r.to_numpy().max() for r in results] == [0, 0]


# ---------------------------------------------------------------- buffers of the driver


def test_writes_of_the_host_are_in_order() -> None:
    for _ in range(20):
        zeros = Buffer.zeros([4], DType.int8)
        zeros[2] = 7
        copy = zeros.copy()
        copy[0] = 9
        assert zeros.to_numpy().tolist() == [0, 0, 7, 0]
        assert copy.to_numpy().tolist() == [9, 0, 7, 0]


def test_buffers_are_indexed_and_filled_exactly() -> None:
    table = Buffer.from_numpy(np.arange(12, dtype=np.float32).reshape(3, 4))
    assert table[:, 1].to_numpy().tolist() == [1, 5, 9]
    for index in ((0, 1.0), (None, 0)):
        with pytest.raises(TypeError, match="indexed by ints and slices"):
            table[index]
    with pytest.raises(TypeError, match="is an int, not float"):
        Buffer.scalar(2.5, DType.int32)
    with pytest.raises(ValueError, match="out of the range of int8"):
        Buffer.scalar(300, DType.int8)


def test_the_host_knows_itself() -> None:
    assert HOST().architecture_name
    assert HOST().can_access(HOST())


def test_shapes_of_one_graph_stay_what_they_are() -> None:
    """A value's shape is a copy: changing it changes no type."""
    with Graph("g", input_types=[tensor("float32", "n", 2)]) as graph:
        graph.inputs[0].shape.append(Dim(3))
        assert graph.inputs[0].shape == Shape(["n", 2])
