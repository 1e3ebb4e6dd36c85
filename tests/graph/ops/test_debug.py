# SPDX-License-Identifier: Apache-2.0
"""Prints come out in program order, each time; devices are compared while building."""

import jax
import ml_dtypes
import numpy as np
import pytest

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops, text

CPU, GPU = DeviceRef.CPU(), DeviceRef.GPU()


@pytest.fixture
def printed(run, capsys):
    """``printed(build, *arrays, dims=None)``: the lines that running it prints."""

    def printed(build, *arrays, dims=None):
        def with_output(*values):
            build(*values)
            return list(values)

        run(with_output, *arrays, dims=dims)
        jax.effects_barrier()
        return capsys.readouterr().out.splitlines()

    return printed


def test_values_and_messages_in_program_order(printed):
    def build(x, k):
        for i in range(5):
            ops.print(x[i % 2], f"row {i}")
            ops.print(f"step {i}")
        ops.print(k)
        ops.print("the end", "note")
        (x + 1).print()

    lines = printed(build, np.float32([[1, 2.5], [3, -0.125]]), np.int64(7), dims=[["n", 2], []])
    rows = ["[1. , 2.5]", "[ 3.   , -0.125]"]
    assert lines == [
        *[
            line
            for i in range(5)
            for line in (
                f"row {i} = tensor({rows[i % 2]}, dtype=float32, shape=[2])",
                f"[debug_tensor] step {i}",
            )
        ],
        "debug_tensor = tensor(7, dtype=int64, shape=[])",
        "[note] the end",
        "debug_tensor = tensor([[2.   , 3.5  ],",
        " [4.   , 0.875]], dtype=float32, shape=[2, 2])",
    ]


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (np.array([True, False]), "[ True, False], dtype=bool, shape=[2]"),
        (np.array([0.5, 2], ml_dtypes.bfloat16), "[0.5, 2. ], dtype=float32, shape=[2]"),
        (np.array([1 / 3], np.float16), "[0.3333], dtype=float32, shape=[1]"),
        (np.zeros((0, 3), np.int8), "[], dtype=int8, shape=[0, 3]"),
        (np.float64([np.nan, np.inf]), "[nan, inf], dtype=float64, shape=[2]"),
        (np.uint64(2**64 - 1), "18446744073709551615, dtype=uint64, shape=[]"),
    ],
    ids=lambda v: str(getattr(v, "dtype", "")),
)
def test_dtypes(printed, array, shown):
    shown = shown.replace("float32", str(array.dtype))
    assert printed(lambda x: ops.print(x, "x"), array) == [f"x = tensor({shown})"]


def test_large_tensors_are_shown_by_their_ends(printed):
    (line,) = printed(lambda x: ops.print(x, "x"), np.arange(5000))
    assert (
        line == "x = tensor([   0,    1,    2, ..., 4997, 4998, 4999], dtype=int64, shape=[5000])"
    )


def test_labels_are_not_formats(printed):
    lines = printed(lambda x: [ops.print(x, "{x} %s"), ops.print("{} %d", "{}")], np.int8(1))
    assert lines == ["{x} %s = tensor(1, dtype=int8, shape=[])", "[{}] {} %d"]


def test_each_run_prints_and_buffers_show_what_they_hold_then(capsys):
    with Graph("g", input_types=[BufferType(DType.int32, [2], CPU)]) as g:
        b = g.inputs[0].buffer
        b.print("before")
        b[...] = b[...] * 2
        b.print("after")
        g.output()
    model = InferenceSession().load(g)
    held = Buffer.from_numpy(np.int32([1, 2]))
    model(held)
    model(held)
    jax.effects_barrier()
    assert [line.partition("(")[2][:6] for line in capsys.readouterr().out.splitlines()] == [
        "[1, 2]", "[2, 4]", "[2, 4]", "[4, 8]",
    ]  # fmt: skip


def test_prints_inside_a_subgraph_and_a_loop_keep_their_order(printed):
    def build(n):
        body = Graph.current.add_subgraph("body", lambda v: ops.print(v, "sub"), [n.type])

        def step(i):
            ops.print(i, "loop")
            ops.call(body, i * 10)
            return i - 1

        ops.while_loop(n, lambda i: i > 0, step)
        ops.print("done")

    lines = printed(build, np.int64(2))
    assert [line.replace("tensor", "").split(",")[0] for line in lines] == [
        "loop = (2", "sub = (20", "loop = (1", "sub = (10", "[debug_] done",
    ]  # fmt: skip


def test_what_is_not_printed():
    with Graph("g", input_types=[TensorType(DType.float32, [2], CPU)]) as g:
        x = g.inputs[0].tensor
        for value in (1.0, None, np.ones(2)):
            with pytest.raises(TypeError, match="print: expected a tensor value"):
                ops.print(value)
        with pytest.raises(TypeError, match="print: label is a string, not 5"):
            ops.print(x, 5)


def test_prints_read_back_from_text():
    with Graph("g", input_types=[TensorType(DType.float32, [2], CPU)]) as g:
        ops.print(g.inputs[0].tensor, 'a "label"')
        ops.print("a message")
        g.output()
    assert text.dump(text.parse(text.dump(g))) == text.dump(g)


def test_assert_same_device():
    types = [TensorType(DType.float32, [2], p) for p in (CPU, GPU)]
    with Graph("g", input_types=[*types, BufferType(DType.int8, [1], CPU)]) as g:
        x, gpu, b = g.inputs
        ops.assert_same_device()
        ops.assert_same_device(x, b, other=x)
        with pytest.raises(
            ValueError,
            match="on different devices: value 0 on cpu:0, value 1 on gpu:0, cache on cpu:0",
        ):
            ops.assert_same_device(x, gpu, cache=b)
        with pytest.raises(TypeError, match=r"assert_same_device: value 0 is 1\.0, not a graph"):
            ops.assert_same_device(1.0, x)
