# SPDX-License-Identifier: Apache-2.0
"""Distributed tensors on devices that are several: eager, lazy, compiled, and as arrays of JAX."""

from collections.abc import Iterator

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from maxjax import driver
from maxjax.driver import CPU, Accelerator
from maxjax.dtype import DType
from maxjax.experimental import compilation, nn
from maxjax.experimental import functional as F
from maxjax.experimental.sharding import (
    ALL_TRANSITIONS,
    DeviceMapping,
    DeviceMesh,
    ShardingError,
    TensorLayout,
    auto_reshard,
)
from maxjax.experimental.tensor import Tensor
from tests.experimental.spread import P, R, S, accelerators, mesh, spread

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 8)).astype(np.float32)
W = RNG.normal(size=(8, 8)).astype(np.float32)


@pytest.fixture(autouse=True, scope="module")
def eight_accelerators() -> Iterator[None]:
    driver.set_virtual_device_count(8)
    yield
    driver.set_virtual_device_count(0)


def layout(shape: list, on: DeviceMesh, *placements) -> TensorLayout:
    return TensorLayout(DType.float32, shape, DeviceMapping(on, placements))


# ---------------------------------------------------------------- eager and lazy


@pytest.mark.parametrize("rows", [8, 6, 4])
def test_parts_are_on_their_devices(rows: int) -> None:
    four = accelerators(4)
    t = spread(X[:rows], four, S(0))
    assert [b.device for b in t.buffers] == list(four.devices)
    got = (t + 1) @ spread(W, four, R)
    assert [b.device for b in got.buffers] == list(four.devices)
    np.testing.assert_allclose(got.to_numpy(), (X[:rows] + 1) @ W, rtol=1e-4, atol=1e-4)


@st.composite
def programs(draw: st.DrawFn) -> tuple:
    grid = draw(st.sampled_from([(2,), (4,), (2, 2)]))
    way = st.tuples(*[st.sampled_from([R, S(0), S(1), P])] * len(grid))
    steps = st.sampled_from(["relu", "add", "scale", "matmul", "transpose", "row", "sum", "move"])
    rows = draw(st.integers(4, 8))
    return grid, rows, draw(st.lists(st.tuples(steps, way), min_size=1, max_size=6)), draw(way)


@given(programs())
@settings(max_examples=25)
def test_random_programs_compute_what_numpy_does(program: tuple) -> None:
    grid, rows, steps, start = program
    four = accelerators(*grid)
    want, t = X[:rows], spread(X[:rows], four, *start)
    with F.lazy(), auto_reshard(ALL_TRANSITIONS, mode="silent"):
        for step, way in steps:
            other = W[: want.shape[1], :5]
            match step:
                case "relu":
                    t, want = F.relu(t), np.maximum(want, 0)
                case "add":
                    t, want = t + spread(want, four, *way), want + want
                case "scale":
                    t, want = 2 - t * 0.5, 2 - want * np.float32(0.5)
                case "matmul":
                    t, want = t @ spread(other, four, *way), want @ other
                case "transpose":
                    t, want = t.T, want.T.copy()
                case "row":
                    t, want = t * spread(want[0], four, *[R] * len(grid)), want * want[0]
                case "sum":
                    t, want = t - F.sum(t, 0), want - want.sum(0, keepdims=True)
                case "move":
                    fits = all(
                        p.localized_axis() is None or want.shape[p.localized_axis()] > 1
                        for p in way
                    )
                    t = t.to(DeviceMapping(four, way)) if fits else t
    scale = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(t.to_numpy() / scale, want / scale, rtol=1e-4, atol=1e-4)


def test_what_is_lazy_runs_as_one_program_when_it_is_read() -> None:
    four = accelerators(4)
    with F.lazy():
        part = spread(X, four, S(1)) @ spread(W, four, S(0))
        total = part.to(four).to(DeviceMapping.replicated(four))
    assert not total.real and total.placements == (R,)
    np.testing.assert_allclose(total.to_numpy(), X @ W, rtol=1e-4, atol=1e-4)
    assert part.real and part.placements == (P,)


# ---------------------------------------------------------------- compiled


def test_a_tensor_parallel_network_has_the_collective_that_is_written() -> None:
    four = accelerators(4)

    def network(x, up, down):
        return (F.relu(x @ up) @ down).to(DeviceMapping.replicated(four))

    run = compilation.compile(network)(
        layout(["n", 8], four, R), layout([8, 8], four, S(1)), layout([8, 8], four, S(0))
    )
    for rows in (8, 3):
        x, up, down = (spread(a, four, p) for a, p in ((X[:rows], R), (W, S(1)), (X, S(0))))
        got = run(x, up, down)
        want = np.maximum(X[:rows] @ W, 0) @ X
        for part in got.buffers:
            np.testing.assert_allclose(part.to_numpy(), want, rtol=1e-4, atol=1e-4)
    plan = run.engine_model.plan
    assert plan.path == "one program on all devices"
    assert [c.kind for c in plan.collectives] == ["all-reduce"]


@pytest.mark.parametrize("rows", [8, 6])
def test_a_symbolic_size_is_split(rows: int) -> None:
    four = accelerators(4)
    staged = compilation.stage(lambda x: F.softmax(x * 2))
    assert str(staged(layout(["n", 8], four, S(0))).out_layouts[0].shape[0]) == (
        "n_tp_0 + n_tp_1 + n_tp_2 + n_tp_3"
    )
    run = compilation.compile(lambda x: F.softmax(x * 2))(layout(["n", 8], four, S(0)))
    got = run(spread(X[:rows], four, S(0)))
    want = jax.nn.softmax(X[:rows] * 2, axis=-1)
    np.testing.assert_allclose(got.to_numpy(), want, rtol=1e-5, atol=1e-5)


class Mlp(nn.Module):
    """Two layers, the first split by columns and the second by rows."""

    def __init__(self, on: DeviceMesh) -> None:
        self.on = on
        self.up = Tensor.zeros([8, 8], dtype=DType.float32, device=DeviceMapping(on, (S(1),)))
        self.down = Tensor.zeros([8, 8], dtype=DType.float32, device=DeviceMapping(on, (S(0),)))

    def forward(self, x: Tensor) -> Tensor:
        return x + (F.relu(x @ self.up) @ self.down).to(DeviceMapping.replicated(self.on))


def test_layers_of_a_module_share_a_body_and_have_their_own_weights() -> None:
    four = accelerators(4)
    layers = nn.Sequential(Mlp(four), Mlp(four))
    weights = {n: RNG.normal(size=(8, 8)).astype(np.float32) / 8 for n, _ in layers.parameters}
    run = layers.compile(layout(["n", 8], four, R), weights=weights)
    want = X
    for k in range(2):
        up, down = weights[f"{k}.up"], weights[f"{k}.down"]
        want = want + np.maximum(want @ up, 0) @ down
    got = run(spread(X, four, R))
    np.testing.assert_allclose(got.to_numpy(), want, rtol=1e-4, atol=1e-4)
    assert [c.kind for c in run.engine_model.plan.collectives] == ["all-reduce"] * 2


def test_weights_may_be_distributed_tensors() -> None:
    four = accelerators(4)
    module = Mlp(four)
    given = {"up": spread(X / 8, four, S(1)), "down": spread(W / 8, four, S(0))}
    run = module.compile(layout(["n", 8], four, R), weights=given)
    want = X + np.maximum(X @ (X / 8), 0) @ (W / 8)
    np.testing.assert_allclose(run(spread(X, four, R)).to_numpy(), want, rtol=1e-4, atol=1e-4)


def test_signal_buffers_are_inputs_that_a_call_adds() -> None:
    two = accelerators(2)
    run = compilation.compile(lambda x, n: x * n, signal_buffer_index=0)(layout([8], two, S(0)), 2)
    assert [str(v.type.device) for v in run.graph.inputs] == ["gpu:0", "gpu:1"] * 2
    assert [b.device for b in run.signal_buffers] == list(two.devices)
    x = spread(X[0], two, S(0))
    np.testing.assert_array_equal(run(x, 2).to_numpy(), X[0] * 2)
    for raw in (run.execute_raw(*x.buffers), run.execute_raw(*run.signal_buffers, *x.buffers)):
        np.testing.assert_array_equal(np.concatenate([b.to_numpy() for b in raw]), X[0] * 2)


def test_a_call_on_other_devices_is_refused() -> None:
    two = accelerators(2)
    run = compilation.compile(lambda x: x + 1)(layout([8], two, S(0)))
    with pytest.raises(ValueError, match="is on 1 devices instead of 2"):
        run(Tensor.from_dlpack(X[0]))
    swapped = DeviceMesh(two.devices[::-1], (2,), ("tp",))
    with pytest.raises(ValueError, match=r"argument 0.0: it is on .*id=1\), .*id=0\); declared"):
        run(spread(X[0], swapped, S(0)))
    with pytest.raises(ValueError, match=r"argument 0.0: it is placed \[Replicated\(\)\]; decl"):
        run(spread(X[0, :4], two, R))
    with pytest.raises(ValueError, match=r"argument 0.0: it has shape \[3\] on .*id=0\); declared"):
        run(spread(X[0, :6], two, S(0)))


# ---------------------------------------------------------------- operands that do not go together


def test_operands_on_different_devices() -> None:
    two = accelerators(2)
    t = spread(X, two, R)
    with pytest.raises(ShardingError, match=r"a tensor on .*id=0\) alone is not read by"):
        t + Tensor.from_dlpack(X).to(Accelerator(0))
    with pytest.raises(ValueError, match="operands are on different devices, gpu:0 and cpu:0"):
        t + Tensor.from_dlpack(X)
    swapped = DeviceMesh(two.devices[::-1], (2,), ("tp",))
    with pytest.raises(ShardingError, match="of gpu:1, gpu:0, and is to be used on"):
        t + spread(X, swapped, R)
    with pytest.raises(ShardingError, match="of cpu:0, and is to be used on"):
        t + spread(X, mesh(2), R)
    assert ((t + X).to_numpy() == X + X).all()


def test_a_device_is_in_a_mesh_once_or_alone() -> None:
    g = [Accelerator(i) for i in range(2)]
    with pytest.raises(ValueError, match="is in the mesh 2 times, beside others"):
        DeviceMesh((g[0], g[1], g[0]), (3,), ("x",))


def test_between_meshes_of_other_devices() -> None:
    two, other = accelerators(2), DeviceMesh((Accelerator(4), Accelerator(5)), (2,), ("tp",))
    t = spread(X, two, S(0)).to(other)
    assert [b.device for b in t.buffers] == list(other.devices) and t.placements == (S(0),)
    assert (t.to_numpy() == X).all()
    assert (t.to(mesh(2)).to(accelerators(4)).to(CPU()).to_numpy() == X).all()


# ---------------------------------------------------------------- arrays of JAX


def test_a_tensor_is_an_array_over_a_mesh_of_jax() -> None:
    grid = accelerators(2, 2)
    t = spread(X, grid, S(1), S(0))
    array = t.jax()
    assert array.sharding.spec == PartitionSpec("tp", "dp")
    np.testing.assert_array_equal(array, X)
    again = Tensor.from_jax(array)
    assert again.mapping == t.mapping
    assert (again.to_numpy() == X).all()
    summed = spread(X, grid, P, R)
    np.testing.assert_allclose(summed.jax(), X, rtol=1e-6)
    np.testing.assert_array_equal(spread(X[:5], grid, S(0), R).jax(), X[:5])


def test_an_array_of_jax_over_its_mesh_is_a_tensor() -> None:
    over = Mesh(np.array(jax.devices("cpu")[:4]).reshape(2, 2), ("a", "b"))
    array = jax.device_put(X, NamedSharding(over, PartitionSpec(None, ("a", "b"))))
    t = Tensor.from_jax(array)
    assert t.placements == (S(1), S(1)) and t.mesh == DeviceMesh(
        tuple(Accelerator(i) for i in range(4)), (2, 2), ("a", "b")
    )
    assert ((t * 2).to_numpy() == X * 2).all()
    crossed = jax.device_put(X, NamedSharding(over, PartitionSpec(("b", "a"))))
    with pytest.raises(ValueError, match="in another order than the mesh"):
        Tensor.from_jax(crossed)
