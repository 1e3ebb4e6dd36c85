# SPDX-License-Identifier: Apache-2.0
"""Tensors: made, computed at once or later, written, and handed to other libraries."""

import asyncio
import concurrent.futures
import copy

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from maxjax.driver import CPU, Buffer
from maxjax.dtype import DType
from maxjax.experimental import functional as F
from maxjax.experimental import random, tensor
from maxjax.experimental.executor import (
    CompositeExecutor,
    InterpreterExecutor,
    JitExecutor,
    UnsupportedGraphError,
    default_executor,
    set_default_executor,
)
from maxjax.experimental.realization_context import (
    EagerRealizationContext,
    LazyRealizationContext,
    set_default_realization_context,
)
from maxjax.experimental.tensor import Tensor
from maxjax.graph import Graph, TensorType

# ---------------------------------------------------------------- made of


def test_memory_of_numpy_is_shared_and_results_are_not():
    array = np.ones(3, np.float32)
    x = Tensor.from_dlpack(array)
    y = x * 2
    array[0] = 5
    assert x.to_numpy().tolist() == [5, 1, 1]
    assert y.to_numpy().tolist() == [2, 2, 2]


def test_jax_arrays_go_in_and_out_without_a_copy():
    array = jnp.arange(4.0)
    x = Tensor.from_jax(array)
    assert x.jax() is array
    result = (x + 1).jax()
    assert isinstance(result, jax.Array) and result.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(np.from_dlpack(x), array)
    np.testing.assert_array_equal(np.asarray(x), array)


@pytest.mark.parametrize(
    ("data", "dtype", "error", "text"),
    [
        ([256], DType.uint8, ValueError, "256 is out of the range of uint8"),
        ([1.5], DType.int32, ValueError, r"1\.5 cannot be an element of int32"),
        ([2**70], None, ValueError, "beyond the 64-bit range"),
        (["a"], None, TypeError, "expected numbers"),
        ([[1], [2, 3]], None, ValueError, "no tensor"),
    ],
)
def test_data_that_is_no_tensor(data, dtype, error, text):
    with pytest.raises(error, match=text):
        Tensor(data, dtype=dtype)


def test_floats_of_one_byte_and_bfloat16():
    x = Tensor([0.1, 300.0], dtype=DType.bfloat16)
    np.testing.assert_array_equal(x.to_numpy(), np.array([0.1, 300], ml_dtypes.bfloat16))
    assert Tensor([1, 2], dtype=DType.float8_e4m3fn).cast(DType.float32).to_numpy().tolist() == [
        1,
        2,
    ]


def test_64_bit_values_are_exact():
    x = Tensor([2**53 + 1], dtype=DType.int64)
    assert (x + 1).item() == 2**53 + 2
    assert (Tensor([0.1], dtype=DType.float64) * 3).item() == 0.1 * 3
    assert not jax.config.jax_enable_x64


# ---------------------------------------------------------------- shown


def test_repr_shows_values_and_plain_shape():
    assert repr(Tensor([1.0, 2.5])) == (
        "Tensor([  1 2.5], dtype=DType.float32, device=Device(type=cpu,id=0), shape=[2])"
    )
    assert "..." in repr(Tensor.zeros([5120, 3]))
    with F.lazy():
        x = Tensor([1.0]) + 1
    assert "unrealized" in repr(x) and not x.real


# ---------------------------------------------------------------- eager


def test_a_program_is_kept_for_like_arguments(monkeypatch):
    from maxjax.experimental import _dispatch

    compiled = []
    real = _dispatch._compiled
    monkeypatch.setattr(_dispatch, "_compiled", lambda *a: compiled.append(1) or real(*a))
    for value in (1.0, 2.0):
        F.mod(Tensor([5.25, 6, 7]), Tensor([value, value, value]))
    assert len(compiled) <= 1
    F.mod(Tensor([[5.25, 6, 7]]), Tensor([2.0, 2, 2]))
    assert len(compiled) <= 2


def test_numbers_of_other_types_are_other_programs():
    x = Tensor([1, 2], dtype=DType.int32)
    assert (x == True).to_numpy().tolist() == [True, False]  # noqa: E712
    assert (x == 1).to_numpy().tolist() == [True, False]
    y = Tensor([1.0])
    assert np.signbit((y * 0.0).to_numpy()) != np.signbit((y * -0.0).to_numpy())


def test_errors_name_the_users_line():
    with pytest.raises(ValueError, match=r"(?s)add: .*f32\[2\], f32\[3\].*test_tensor\.py"):
        Tensor([1, 2]) + Tensor([1, 2, 3])


def test_threads_and_asyncio():
    def work(i):
        x = Tensor(np.full((i % 3 + 1,), i, np.float32))
        return float(((x + 1) * 2).to_numpy()[0])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(40))) == [(i + 1) * 2 for i in range(40)]

    async def main():
        with F.lazy():
            x = Tensor([1.0]) + 1
        return (await x).real, (await x.realize).to_numpy().tolist()

    assert asyncio.run(main()) == (True, [2.0])


def test_identity():
    x = Tensor([1.0])
    assert copy.copy(x) is x and copy.deepcopy({"k": x})["k"] is x
    assert len({x, x}) == 1


# ---------------------------------------------------------------- lazy


def test_lazy_tensors_are_one_program_and_only_what_is_used():
    counted = []

    class Counting(InterpreterExecutor):
        def execute(self, graph, inputs):
            counted.append([n.op.mnemonic for n in graph.body.nodes])
            return super().execute(graph, inputs)

    with set_default_executor(Counting()):
        x = Tensor([1.0, 2.0])
        with F.lazy():
            y = F.sin(x)
            z = F.cos(y)
            F.exp(z)  # nobody has this
        assert z.to_numpy().shape == (2,)
    assert counted == [["sin", "cos"]]
    assert y.real


def test_a_failed_block_computes_nothing():
    with pytest.raises(KeyError), F.lazy():
        x = Tensor([1.0]) + 1
        raise KeyError
    assert x.to_numpy().tolist() == [2.0]


def test_the_default_context_can_be_lazy():
    with set_default_realization_context(LazyRealizationContext) as factory:
        assert factory is LazyRealizationContext
        assert not (Tensor([1.0]) + 1).real
    assert (Tensor([1.0]) + 1).real


def test_a_context_of_ones_own():
    context = EagerRealizationContext()
    x = Tensor([1.0])
    with context:
        y = x * 3
        assert not y.real
        with pytest.raises(TypeError, match="inside the block that computes it"):
            y.item()
    assert y.item() == 3
    assert context.realize_all() == []


# ---------------------------------------------------------------- written


def test_writes_are_in_place_and_seen_by_buffers():
    buffer = Buffer.zeros([2, 3], DType.float32)
    x = Tensor(storage=buffer)
    x[1] = Tensor([1, 2, 3])
    x[0, 1:] = Tensor([7, 8])
    assert x.storage is buffer
    assert buffer.to_numpy().tolist() == [[0, 7, 8], [1, 2, 3]]


def test_writes_in_a_lazy_block_are_in_program_order():
    x = Tensor.zeros([3])
    with F.lazy():
        before = x + 0
        y = x + 1
        y[0] = Tensor(9.0)
        after = y * 2
    assert after.to_numpy().tolist() == [18, 2, 2]
    assert y.to_numpy().tolist() == [9, 1, 1]
    assert before.to_numpy().tolist() == x.to_numpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize("value", [1.0, np.ones(2, np.float32), None])
def test_what_cannot_be_written(value):
    with pytest.raises(TypeError, match="written with a tensor"):
        Tensor([1, 2])[0] = value


# ---------------------------------------------------------------- defaults, seeds, executors


def test_defaults_are_kept_for_each_call():
    with tensor.default_dtype(DType.int64):
        assert F.zeros([1]).dtype is DType.int64
    assert F.zeros([1]).dtype is DType.float32
    with tensor.default_device(CPU()) as mesh:
        assert mesh.num_devices == 1
    with pytest.raises(TypeError, match="expected a Device or a DeviceMesh"):
        tensor.default_device("cpu")


def test_random_state():
    random.set_seed(3)
    first = random.uniform([4]).to_numpy()
    assert random.seed().dtype is DType.uint64
    second = random.gaussian([4], mean=1.0).to_numpy()
    random.set_seed(3)
    assert (random.uniform([4]).to_numpy() == first).all()
    assert (random.gaussian([4], mean=1.0).to_numpy() == second).all()
    assert F.uniform_like(Tensor.zeros([2, 2])).shape == [2, 2]
    for bad in (-1, 2**64):
        with pytest.raises(ValueError, match="from 0 to"):
            random.set_seed(bad)
    with pytest.raises(TypeError, match="an int"):
        random.set_seed("a")


def test_executors_compute_the_same():
    x = Tensor([1.0, 2.0])
    small = InterpreterExecutor(max_ops=0)
    for executor in (JitExecutor(interpreter=small), CompositeExecutor(interpreter=small)):
        with set_default_executor(executor):
            with F.lazy():
                y = x * 2 + 1
            assert y.to_numpy().tolist() == [3, 5]
    assert default_executor() is not small
    graph = Graph("g", lambda v: v + 1, [TensorType(DType.float32, [2], x.type.device)])
    with pytest.raises(UnsupportedGraphError, match="has 2 ops"):
        small.execute(graph, [x.storage])
    assert CompositeExecutor(interpreter=small).compile(graph).result()(x.storage)


# ---------------------------------------------------------------- in graphs


def test_tensors_and_graph_values_mix():
    t = TensorType(DType.float32, ["n"], Tensor(1.0).type.device)
    with Graph("g", input_types=[t]) as g:
        with F.ensure_context():
            x = Tensor.from_graph_value(g.inputs[0].tensor)
            y = F.relu(x) + Tensor([1.0])
        g.output(y)
    assert str(g.output_types[0].shape[0]) == "n"


def test_control_flow_over_tensors():
    x = Tensor([1.0, -2.0])
    (y,) = F.cond(x.sum()[0] > 0, [x.type], lambda: x, lambda: -x)
    assert y.to_numpy().tolist() == [-1, 2]
    i, total = F.while_loop(
        [Tensor(0, dtype=DType.int32), Tensor(0.0)], lambda i, _: i < 5, lambda i, t: [i + 1, t + 2]
    )
    assert (i.item(), total.item()) == (5, 10)
