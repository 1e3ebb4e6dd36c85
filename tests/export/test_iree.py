# SPDX-License-Identifier: Apache-2.0
"""The StableHLO of an artifact is compiled and run by IREE, which knows nothing of JAX.

It is given the programs for fixed sizes: IREE 3.13 refuses JAX's dynamic broadcasts.
"""

import numpy as np
import pytest

from examples.minilm import model as minilm
from maxjax import export
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, Weight, ops
from tests.export.other_process import run

compiler = pytest.importorskip("iree.compiler", reason="optional extra: pip install maxjax[iree]")
runtime = pytest.importorskip("iree.runtime", reason="optional extra: pip install maxjax[iree]")
pytestmark = pytest.mark.slow
CPU = DeviceRef.CPU()
SIZES = {"n": 5, "m": 4}


def f32(*dims):
    return TensorType(DType.float32, dims, CPU)


def i64(*dims):
    return TensorType(DType.int64, dims, CPU)


def run_by_iree(path, sizes, arrays, buffers):
    """What IREE gives for the program of an artifact for these sizes."""
    artifact = export.inspect(path)
    code = compiler.compile_str(
        artifact.stablehlo("cpu", sizes),
        target_backends=["llvm-cpu"],
        input_type="stablehlo",
        extra_args=["--iree-llvmcpu-target-cpu=host"],
    )
    config = runtime.Config("local-sync")
    module = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, code), config)
    weights = artifact.weights()
    arguments = [weights[name] for name in sorted(weights)]
    for kind in (False, True):
        arguments += [a for a, b in zip(arrays, buffers, strict=True) if b == kind]
    results = module.main(*map(np.ascontiguousarray, arguments))
    several = results if isinstance(results, (tuple, list)) else [results]
    return [r.to_host() for r in several]


def loop(x):
    zero = ops.constant(0, DType.int32, CPU)
    return ops.while_loop([zero, x], lambda i, x: i < 3, lambda i, x: [i + 1, x * 2])[1]


def either(x):
    return ops.cond(
        ops.sum(ops.reshape(x, [-1]))[0] > 0, [x.type], lambda: ops.exp(x), lambda: ops.sin(x)
    )[0]


def called(x):
    def body(x):
        return ops.tanh(x) + Weight("w", DType.float32, [4], CPU)

    graph = Graph.current.add_subgraph("body", body, [x.type])
    return ops.call(graph, ops.call(graph, x)[0])[0]


def stored(state, x):
    ops.buffer_store(state, state[...] + x)
    return state[...] * 2


def positive(x):
    return ops.gather_nd(x, ops.nonzero(x > 0, "found"))


NM = f32("n", "m")
GRAPHS = {
    "arithmetic": (lambda x, y: (x + y) * x - y / 2, NM, NM),
    "elementwise": (lambda x: [ops.exp(x), ops.tanh(x), ops.erf(x), ops.rsqrt(x * x + 1)], NM),
    "activations": (lambda x: [ops.gelu(x), ops.silu(x), ops.relu(x), ops.sigmoid(x)], NM),
    "softmax": (lambda x: [ops.softmax(x), ops.logsoftmax(x)], NM),
    "reductions": (lambda x: [ops.sum(x), ops.mean(x, axis=0), ops.max(x), ops.min(x)], NM),
    "argmax": (lambda x: [ops.argmax(x), ops.argmin(x)], NM),
    "matmul": (lambda x, y: x @ ops.transpose(y, 0, 1), NM, NM),
    "batched matmul": (lambda x, y: x @ y, f32(3, "n", "m"), f32(3, "m", "n")),
    "layer norm": (
        lambda x: ops.layer_norm(x, x[0] * 2, x[1], 1e-5),
        NM,
    ),
    "gather": (lambda x, i: ops.gather(x, ops.abs(i) % 4, axis=0), NM, i64("n")),
    "concat and split": (
        lambda x: ops.split(ops.concat([x, x * 2], axis=1), [3, 5], axis=1),
        f32("n", 4),
    ),
    "slices": (lambda x: [x[1:3], x[:, -1], x[::2]], NM),
    "top_k": (lambda x: ops.top_k(x, 3), NM),
    "argsort": (lambda x: ops.argsort(x), f32("n")),
    "cumsum": (lambda x: [ops.cumsum(x, axis=0), ops.cumsum(x, axis=1, reverse=True)], NM),
    "where": (lambda x, y: ops.where(x > y, x, y), NM, NM),
    "conv2d": (
        lambda x, w: ops.conv2d(x, w, padding=(1, 1, 1, 1)),
        f32(1, "n", 6, 3),
        f32(3, 3, 3, 4),
    ),
    "pooling": (
        lambda x: [ops.max_pool2d(x, (2, 2)), ops.avg_pool2d(x, (2, 2))],
        f32(1, "n", "m", 2),
    ),
    "scatter": (
        lambda x, i: ops.scatter_nd(x, x[:2], ops.constant([[0], [3]], DType.int64, CPU)),
        NM,
        i64("n"),
    ),
    "shapes": (lambda x: [ops.permute(x, [1, 0]), ops.flatten(x), ops.tile(x, [2, 1])], NM),
    "integers": (lambda x: [x // 3, x % 3, x * x, x.cast(DType.float32)], i64("n", "m")),
    "bfloat16": (lambda x: (x.cast(DType.bfloat16) * 2).cast(DType.float32), NM),
    "a loop": (loop, NM),
    "a branch": (either, NM),
    "a body": (called, f32("n", 4)),
    "a buffer": (stored, BufferType(DType.float32, ["n", "m"], CPU), NM),
    "a size from values": (positive, f32("n")),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name, tmp_path):
    build, *types = GRAPHS[name]
    graph = Graph("g", build, types)
    weights = {"w": np.float32([1, 2, 3, 4])} if name == "a body" else {}
    named = {p.name for t in types for p in t.parameters}
    sizes = {n: s for n, s in SIZES.items() if n in named}
    path = export.save(
        graph,
        tmp_path / "g",
        weights_registry=weights,
        platforms=["cpu"],
        specialize={n: [s] for n, s in sizes.items()},
        bounds={"found": 4} if name == "a size from values" else None,
    )
    rng = np.random.default_rng(0)
    arrays = [
        (rng.normal(size=t.shape.evaluate(sizes)) * 4).astype(t.dtype.to_numpy()) for t in types
    ]
    buffers = tuple(isinstance(t, BufferType) for t in types)
    wanted = run(export.load(path), buffers, arrays)
    found = run_by_iree(path, sizes, arrays, buffers)
    for ours, theirs in zip(wanted, found, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-4)


def test_minilm(tmp_path):
    model = minilm.load_model(InferenceSession())
    sizes = {"batch": 2, "seq": 16}
    path = export.save(
        model,
        tmp_path / "minilm",
        platforms=["cpu"],
        specialize={n: [s] for n, s in sizes.items()},
    )
    rng = np.random.default_rng(0)
    mask = np.ones((2, 16), np.int64)
    mask[1, 9:] = 0
    arrays = [rng.integers(0, 30000, (2, 16)), mask, np.zeros((2, 16), np.int64)]
    (found,) = run_by_iree(path, sizes, arrays, (False,) * 3)
    np.testing.assert_allclose(found, model(*arrays)[0].to_numpy(), rtol=0, atol=1e-4)
