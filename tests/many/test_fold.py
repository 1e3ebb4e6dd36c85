# SPDX-License-Identifier: Apache-2.0
"""What is one program, what is not and why, and what a model says of how it runs."""

import re

import jax
import numpy as np
import pytest

from maxjax.driver import CPU as Host
from maxjax.driver import Accelerator, Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession, Model
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, Weight, ops
from maxjax.lower.fold import fold

CPU = DeviceRef.CPU()
F32 = DType.float32


def gpus(n):
    return [DeviceRef.GPU(i) for i in range(n)]


def session(n):
    return InferenceSession([Accelerator(i) for i in range(n)])


def signal_types(n):
    return [BufferType(DType.uint8, [1], d) for d in gpus(n)]


def signals(n):
    return [Buffer.zeros([1], DType.uint8, Accelerator(i)) for i in range(n)]


def on(array, i):
    return Buffer.from_numpy(array.copy()).to(Accelerator(i))


def draw(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def mlp(n, layers=1, width=16, batch="n"):
    """Column- then row-parallel layers, with one sum over the devices in each."""

    def build(*inputs):
        x, *rest = inputs
        kept = [b.buffer for b in rest]
        xs = [x.tensor.to(d) for d in gpus(n)]
        for k in range(layers):
            up = Weight(f"{k}.up", F32, [width, 4 * width], CPU)
            down = Weight(f"{k}.down", F32, [4 * width, width], CPU)
            step = 4 * width // n
            ys = []
            for i, d in enumerate(gpus(n)):
                own = slice(i * step, (i + 1) * step)
                ys.append(ops.relu(xs[i] @ up[:, own].to(d)) @ down[own].to(d))
            ys = ops.allreduce.sum(ys, kept)
            xs = [x + y for x, y in zip(xs, ys, strict=True)]
        return xs

    types = [TensorType(F32, [batch, width], CPU), *signal_types(n)]
    return Graph("mlp", build, types)


def mlp_weights(layers=1, width=16):
    found = {}
    for k in range(layers):
        found[f"{k}.up"] = draw(width, 4 * width, seed=k) / 4
        found[f"{k}.down"] = draw(4 * width, width, seed=k + 100) / 4
    return found


def mlp_result(x, weights, layers=1):
    for k in range(layers):
        x = x + np.maximum(x @ weights[f"{k}.up"], 0) @ weights[f"{k}.down"]
    return x


def compiled_text(model: Model) -> str:
    (program,) = model._programs.compiled.values()
    return program.args[0].as_text()


# ---------------------------------------------------------------- one program


def test_tensor_parallel_layers_are_one_program():
    n, layers = 4, 3
    weights = mlp_weights(layers)
    model = session(n).load(mlp(n, layers), weights_registry=weights)
    for rows in (3, 5):
        x = draw(rows, 16)
        outputs = model(x, *signals(n))
        for i, out in enumerate(outputs):
            assert out.device == Accelerator(i)
            np.testing.assert_allclose(out.to_numpy(), mlp_result(x, weights, layers), atol=1e-5)


def test_its_collectives_are_those_that_were_written():
    n, layers = 4, 3
    model = session(n).load(mlp(n, layers, batch=3), weights_registry=mlp_weights(layers))
    model(draw(3, 16), *signals(n))
    text = compiled_text(model)
    found = re.findall(r"= \S+ (all-reduce|all-gather|collective-permute|all-to-all)\(", text)
    assert found == ["all-reduce"] * layers


def test_a_device_keeps_its_part_of_the_weights_only():
    n, layers, width = 4, 2, 16
    model = session(n).load(mlp(n, layers), weights_registry=mlp_weights(layers))
    total = sum(w.nbytes for w in mlp_weights(layers).values())
    assert model.plan.weight_bytes == {f"gpu:{i}": total // n for i in range(n)}
    for array in model.weights.values():
        assert [s.data.nbytes for s in array.addressable_shards] == [4 * width * width * 4 // n] * n


def lowered_size(n, layers=2):
    graph = fold(mlp(n, layers, width=64))
    return sum(1 for _ in graph.graph.body.walk())


def test_its_size_does_not_depend_on_the_number_of_devices():
    assert lowered_size(8) == lowered_size(64) == lowered_size(2)


def test_the_plan_says_where_everything_is():
    model = session(2).load(mlp(2, batch=3), weights_registry=mlp_weights())
    text = str(model.plan)
    location = model.plan.collectives[0].location
    assert text == (
        "one program on all devices: gpu:0, gpu:1\n"
        "inputs:\n"
        "  input0  f32[3, 16], cpu:0\n"
        "  input1  ui8[1], gpu:0\n"
        "  input2  ui8[1], gpu:1\n"
        "weights:\n"
        "  0.up    f32[16, 32], a part on each of 2 devices\n"
        "  0.down  f32[32, 16], a part on each of 2 devices\n"
        "bytes of weights:\n"
        "  gpu:0  4,096\n"
        "  gpu:1  4,096\n"
        "collectives:\n"
        f"  all-reduce of f32[3, 16], 192 bytes for each device at {location}"
    )
    assert "test_fold.py" in location


def test_the_plan_of_one_device():
    graph = Graph("g", lambda x: x + 1, [TensorType(F32, [3], CPU)])
    plan = InferenceSession().load(graph).plan
    assert str(plan) == "one device: cpu:0\ninputs:\n  input0  f32[3], cpu:0"


def test_loops_and_branches():
    """A loop that all devices go through together, a collective in its body."""
    n = 3

    def build(*inputs):
        xs = [v.tensor for v in inputs[:n]]
        kept = [b.buffer for b in inputs[n + 1 :]]
        count = inputs[n].tensor

        def goes_on(i, *xs):
            return i < count

        def body(i, *xs):
            total = ops.allreduce.sum(list(xs), kept)
            return [i + 1, *[t / n + k for k, t in enumerate(total)]]

        zero = ops.constant(0, DType.int32, CPU)
        _, *xs = ops.while_loop([zero, *xs], goes_on, body)
        types = [x.type for x in xs]
        return ops.cond(count > 2, types, lambda: [x * 2 for x in xs], lambda: [-x for x in xs])

    types = [TensorType(F32, [2], d) for d in gpus(n)]
    graph = Graph("g", build, [*types, TensorType(DType.int32, [], CPU), *signal_types(n)])
    model = session(n).load(graph)
    assert model.plan.path == "one program on all devices"
    for count in (0, 2, 3):
        xs = [draw(2, seed=i) for i in range(n)]
        given = [on(x, i) for i, x in enumerate(xs)]
        outputs = model(*given, np.int32(count), *signals(n))
        for _ in range(count):
            total = sum(xs[1:], xs[0])
            xs = [total / n + k for k in range(n)]
        for i, out in enumerate(outputs):
            want = xs[i] * 2 if count > 2 else -xs[i]
            np.testing.assert_allclose(out.to_numpy(), want, rtol=1e-5)


def test_bodies_of_subgraphs_and_parallel():
    n = 2
    d0, d1 = gpus(n)
    row = [TensorType(F32, ["n", 4], d) for d in gpus(n)]
    with Graph("g", input_types=row) as graph:
        layer = graph.add_subgraph("layer", input_types=row)
        with layer:
            a, b = (v.tensor for v in layer.inputs)
            w = Weight("w", F32, [4, 4], d0, _placeholder=True)
            layer.output(a @ w, b @ w.to(d1))
        a, b = graph.inputs
        for k in range(2):
            a, b = ops.call(layer, a, b, prefix=f"{k}.")
        results = [[TensorType(F32, ["n", 4], d) for d in gpus(n)]]
        (pair,) = ops.parallel([[a, b]], lambda x: ops.tanh(x), result_types=results)
        graph.output(*pair)
    weights = {f"{k}.w": draw(4, 4, seed=k) for k in range(2)}
    model = session(n).load(graph, weights_registry=weights)
    assert model.plan.path == "one program on all devices"
    xs = [draw(3, 4, seed=i) for i in range(n)]
    outputs = model(*[on(x, i) for i, x in enumerate(xs)])
    for out, x in zip(outputs, xs, strict=True):
        want = np.tanh(x @ weights["0.w"] @ weights["1.w"])
        np.testing.assert_allclose(out.to_numpy(), want, rtol=1e-5)


def test_groups_of_devices():
    """Two replicas of two devices each: sums within a replica."""
    n = 4
    types = [TensorType(F32, [4], d) for d in gpus(n)]

    def build(*inputs):
        xs, kept = [v.tensor for v in inputs[:n]], [b.buffer for b in inputs[n:]]
        first = ops.allreduce.sum(xs, kept, group_size=2)
        second = [
            *ops.allgather(first[:2], kept[:2], axis=0),
            *ops.allgather(first[2:], kept[2:], axis=0),
        ]
        return [*second, *ops.reducescatter.sum(xs, kept, axis=0, group_size=2)]

    model = session(n).load(Graph("g", build, [*types, *signal_types(n)]))
    assert [c.kind for c in model.plan.collectives] == [
        "all-reduce",
        "all-gather",
        "reduce-scatter",
    ]
    xs = [draw(4, seed=i) for i in range(n)]
    outputs = [o.to_numpy() for o in model(*[on(x, i) for i, x in enumerate(xs)], *signals(n))]
    sums = [xs[0] + xs[1], xs[2] + xs[3]]
    for i in range(n):
        total = sums[i // 2]
        np.testing.assert_allclose(outputs[i], np.tile(total, 2), rtol=1e-6)
        part = total[:2] if i % 2 == 0 else total[2:]
        np.testing.assert_allclose(outputs[n + i], part, rtol=1e-6)


@pytest.mark.parametrize("dtype", [DType.bool, DType.int64, DType.bfloat16, DType.float64])
def test_what_moves_keeps_its_bits(dtype):
    n = 3
    row = [TensorType(dtype, [2, 2], d) for d in gpus(n)]

    def build(*xs):
        xs = [x.tensor for x in xs]
        everywhere = [xs[1].to(d) for d in gpus(n)]
        shifted = [xs[i - 1].to(d) for i, d in enumerate(gpus(n))]
        return [*everywhere, *shifted, xs[2].to(CPU)]

    model = session(n).load(Graph("g", build, row))
    if dtype is DType.bool:
        xs = [np.array([[True, False], [i == 1, True]]) for i in range(n)]
    else:
        xs = [
            np.array([[-0.0, i], [2**40 if dtype.is_integral() else -np.inf, 3]]) for i in range(n)
        ]
        xs = [x.astype(dtype.np) for x in xs]
    outputs = model(*[on(x, i) for i, x in enumerate(xs)])
    expected = [xs[1]] * n + [xs[i - 1] for i in range(n)] + [xs[2]]
    for out, want in zip(outputs, expected, strict=True):
        assert out.to_numpy().tobytes() == want.tobytes()
    assert outputs[-1].device == Host()


def test_scalars_and_states_of_each_device():
    n = 2
    counters = [BufferType(DType.int32, [], d) for d in gpus(n)]

    def build(*inputs):
        found = []
        for i, value in enumerate(inputs):
            buffer = value.buffer
            ops.buffer_store(buffer, ops.buffer_load(buffer) + (i + 1))
            found.append(ops.buffer_load(buffer))
        return found

    model = session(n).load(Graph("g", build, counters))
    assert model.plan.path == "one program on all devices"
    states = [on(np.array(10 * i, np.int32), i) for i in range(n)]
    for step in (1, 2):
        outputs = model(*states)
        assert [o.item() for o in outputs] == [step, 10 + 2 * step]
    assert [s.item() for s in states] == [2, 14]


# ---------------------------------------------------------------- a program for each device


def pipeline(width=1024):
    d0, d1 = gpus(2)

    def build(x):
        first = Weight("first", F32, [width, width], d0)
        second = Weight("second", F32, [width, width], d1)
        return ops.relu(x.tensor @ first).to(d1) @ second

    return Graph("pipeline", build, [TensorType(F32, ["n", width], d0)])


def test_stages_with_weights_of_their_own_are_not_one_program():
    model = session(2).load(
        pipeline(), weights_registry={"first": draw(1024, 1024), "second": draw(1024, 1024, seed=1)}
    )
    plan = model.plan
    assert plan.path == "a program for each device"
    assert plan.reason == (
        "weight 'first' is on gpu:0 only, and would take as much memory on every device"
    )
    assert plan.weight_bytes == {"gpu:0": 4 << 20, "gpu:1": 4 << 20}
    x = draw(2, 1024)
    (out,) = model(on(x, 0))
    assert out.device == Accelerator(1)
    want = np.maximum(x @ draw(1024, 1024), 0) @ draw(1024, 1024, seed=1)
    np.testing.assert_allclose(out.to_numpy(), want, rtol=1e-3, atol=1e-3)


def test_a_print_is_of_one_device(capfd):
    def build(*xs):
        ops.print(xs[1].tensor, "second")
        return [x.tensor + 1 for x in xs]

    model = session(2).load(Graph("g", build, [TensorType(F32, [1], d) for d in gpus(2)]))
    assert "prints what one device has" in model.plan.reason
    model(on(np.float32([1]), 0), on(np.float32([7]), 1))
    jax.effects_barrier()
    printed = capfd.readouterr().out
    assert printed.count("second") == 1
    assert "7" in printed


# ---------------------------------------------------------------- refused


def test_a_device_that_the_session_has_not():
    with pytest.raises(
        ValueError, match=r"gpu:3, of these gpu:2, gpu:3 are not among the session's"
    ):
        session(2).load(mlp(4), weights_registry=mlp_weights())


def test_an_input_on_another_device():
    types = [TensorType(F32, [2], d) for d in gpus(2)]
    model = session(2).load(Graph("g", lambda a, b: [a + 1, b + 1], types))
    x = np.ones(2, np.float32)
    with pytest.raises(ValueError, match=r"input1 is on .*declared on gpu:1; move it there"):
        model(on(x, 0), on(x, 0))


@pytest.mark.parametrize("missing", ["0.up", "0.down"])
def test_weights_are_bound_by_the_names_of_the_source(missing):
    weights = mlp_weights()
    del weights[missing]
    with pytest.raises(ValueError, match=f"missing: {missing}"):
        session(2).load(mlp(2), weights_registry=weights)


def test_operands_on_two_devices_name_the_transfer():
    types = [TensorType(F32, [2], d) for d in gpus(2)]
    with pytest.raises(ValueError, match=r"gpu:0.*gpu:1|gpu:1.*gpu:0"):
        Graph("g", lambda a, b: a + b, types)
