# SPDX-License-Identifier: Apache-2.0
"""Buckets: few programs for many sizes, the same results, and refusals."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxjax.driver import Accelerator, Buffer, set_virtual_device_count
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.engine.buckets import next_size
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, Weight, ops
from maxjax.kernels import kernel

REF = DeviceRef.CPU()
SIZES = [1, 2, 3, 5, 7, 8, 9, 11, 13, 15, 16, 17, 19, 21, 23, 25, 27, 29, 31, 32]


def f32(*dims, device=REF):
    return TensorType(DType.float32, dims, device)


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def encoder(x, w):
    """A layer of attention over ``seq``, with norms, and a mean: all of each batch by itself."""
    q = ops.layer_norm(x @ w, ops.sum(w, axis=0)[0], ops.sum(w, axis=0)[0], 1e-5)
    mixed = ops.softmax(q @ ops.transpose(q, 1, 2)) @ q
    return ops.squeeze(ops.mean(ops.gelu(mixed), axis=1), 1)


def rows(buckets, **kwargs):
    graph = Graph("rows", lambda x: ops.softmax(x), [f32("batch", 4)])
    return InferenceSession().load(graph, buckets=buckets, **kwargs)


# ---------------------------------------------------------------- the rule


def test_the_next_size():
    assert [next_size("pow2", n) for n in range(10)] == [0, 1, 2, 4, 4, 8, 8, 8, 8, 16]
    assert [next_size((1, 8, 32), n) for n in (0, 1, 2, 8, 9, 32, 33)] == [0, 1, 8, 8, 32, 32, 33]


# ---------------------------------------------------------------- few programs, the same results


def test_20_batch_sizes_need_at_most_6_programs():
    graph = Graph("encoder", encoder, [f32("batch", 5, 8), f32(8, 8)])
    w = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    model = InferenceSession().load(graph, buckets={"batch": "pow2"})
    exact = InferenceSession().load(graph)
    assert len(SIZES) == 20
    for n in SIZES:
        x = np.random.default_rng(n).normal(size=(n, 5, 8)).astype(np.float32)
        (got,), (wanted,) = model(x, w), exact(x, w)
        assert got.shape == (n, 8)
        np.testing.assert_allclose(got.to_numpy(), wanted.to_numpy(), rtol=1e-6, atol=1e-6)
    stats = model.stats
    assert stats.compiles <= 6 and stats.hits == 20 - stats.compiles
    assert [dict(sizes)["batch"] for sizes in stats.per_dims] == [1, 2, 4, 8, 16, 32]
    assert exact.stats.compiles == 20


def test_xla_compiles_nothing_for_padding_and_cutting():
    model = rows({"batch": [32]})
    model(ones(32, 4))
    arrays = [jnp.ones((n, 4), jnp.float32) for n in (1, 30)]
    given = [ones(31, 4), *arrays, *(Buffer.from_numpy(ones(n, 4)) for n in (2, 17))]
    compiled = []

    def listen(event, seconds, **_):
        compiled.extend([event] if "compile" in event else [])

    jax.monitoring.register_event_duration_secs_listener(listen)
    shapes = [model(x)[0].to_numpy().shape for x in given]
    jax.monitoring.unregister_event_duration_listener(listen)
    assert shapes == [(31, 4), (1, 4), (30, 4), (2, 4), (17, 4)]
    assert not compiled
    assert model.stats.compiles == 1 and model.stats.hits == 5


def test_a_size_beyond_the_largest_bucket_is_compiled_as_it_is():
    model = rows({"batch": [8, 1, 8]})
    for n in (1, 3, 8, 9, 10, 9, 0):
        assert model(ones(n, 4))[0].shape == (n, 4)
    assert [dict(sizes)["batch"] for sizes in model.stats.per_dims] == [1, 8, 9, 10, 0]
    assert model.stats.hits == 2


def test_several_dimensions():
    graph = Graph("g", lambda x, y: x + ops.unsqueeze(y, 1), [f32("n", "m"), f32("n")])
    model = InferenceSession().load(graph, buckets={"n": "pow2", "m": [4, 16]})
    for n, m in [(1, 1), (3, 3), (4, 16), (3, 5)]:
        x, y = np.arange(n * m, dtype=np.float32).reshape(n, m), np.arange(n, dtype=np.float32)
        assert np.array_equal(model(x, y)[0].to_numpy(), x + y[:, None])
    assert set(model.stats.per_dims) == {
        (("m", 4), ("n", 1)),
        (("m", 4), ("n", 4)),
        (("m", 16), ("n", 4)),
    }


def test_sizes_that_the_graph_is_not_for_fail_as_without():
    graph = Graph("g", lambda x: x[2:] * 2, [f32("n")])
    model = InferenceSession().load(graph, buckets={"n": [8]})
    assert model(ones(5))[0].to_numpy().tolist() == [2, 2, 2]
    for same in (model, InferenceSession().load(graph)):
        with pytest.raises(ValueError, match="slice_tensor: "):
            same(ones(1))


def test_equal_dimensions_are_padded_alike():
    graph = Graph("g", lambda x, y: x + y.rebind(["n"]), [f32("n"), f32("m")])
    model = InferenceSession().load(graph, buckets={"n": "pow2", "m": "pow2"})
    assert model(ones(3), ones(3))[0].to_numpy().tolist() == [2, 2, 2]
    assert [dict(s) for s in model.stats.per_dims] == [{"n": 4, "m": 4}]
    with pytest.raises(ValueError):
        model(ones(3), ones(4))
    with pytest.raises(ValueError, match="need the same sizes, not pow2 and"):
        InferenceSession().load(graph, buckets={"n": "pow2", "m": [8]})


def test_every_dtype_comes_back_as_it_is():
    for dtype in (DType.bool, DType.int64, DType.bfloat16, DType.float64, DType.uint8):
        graph = Graph("g", lambda x: [x, x[:, 0]], [TensorType(dtype, ["n", 2], REF)])
        model = InferenceSession().load(graph, buckets={"n": [4]})
        x = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype.np)
        whole, first = model(x)
        assert whole.dtype is first.dtype is dtype
        assert np.array_equal(whole.to_numpy(), x) and np.array_equal(first.to_numpy(), x[:, 0])


def test_results_can_be_written_and_given_back():
    model = rows({"batch": [8]})
    (y,) = model(ones(3, 4))
    y[0, 0] = 5.0
    assert y.to_numpy()[0, 0] == 5 and model(ones(3, 4))[0].to_numpy()[0, 0] == 0.25
    assert model(y)[0].shape == (3, 4)


def test_buffers_are_written_as_without():
    def build(x, b):
        ops.buffer_store(b, ops.buffer_load(b) + 1)
        return [x * 2, b]

    graph = Graph("g", build, [f32("n"), BufferType(DType.float32, [2], REF)])
    model = InferenceSession().load(graph, buckets={"n": [4]})
    state = Buffer.from_numpy(ones(2))
    for n in (1, 3, 4):
        x, same = model(ones(n), state)
        assert x.shape == (n,) and same is state
    assert state.to_numpy().tolist() == [4, 4] and model.stats.compiles == 1


def test_weights_may_have_other_dimensions_and_be_reloaded():
    w = Weight("w", DType.float32, ["k"], REF)
    graph = Graph("g", lambda x: x * w, [f32("n", "k")])
    model = InferenceSession().load(graph, weights_registry={"w": ones(2)}, buckets={"n": [4]})
    assert model(ones(3, 2))[0].shape == (3, 2)
    model.reload({"w": ones(5)})
    assert model(ones(3, 5))[0].shape == (3, 5)
    with pytest.raises(ValueError, match="dimension 'k' has two sizes"):
        model(ones(3, 2))


def test_wrong_inputs_are_refused_as_without():
    model = rows({"batch": "pow2"})
    with pytest.raises(ValueError, match=r"input0 has shape \[3, 5\], expected f32\[batch, 4\]"):
        model(ones(3, 5))
    with pytest.raises(ValueError, match="input0 is float64"):
        model(ones(3, 4, dtype=np.float64))
    assert model(ones(3, 4))[0].shape == (3, 4)


def test_arrays_of_another_device_are_refused_as_without():
    model = rows({"batch": "pow2"})
    with pytest.raises(ValueError, match="move it there"):
        model(jax.device_put(ones(3, 4), jax.devices()[1]))


def test_on_an_accelerator():
    set_virtual_device_count(2)
    try:
        gpu = Accelerator(1)
        graph = Graph("g", lambda x: x * 2, [f32("n", device=DeviceRef.GPU(1))])
        model = InferenceSession([gpu]).load(graph, buckets={"n": "pow2"})
        for n in (3, 4, 5):
            (y,) = model(Buffer.from_numpy(ones(n)).to(gpu))
            assert y.device == gpu and y.to_numpy().tolist() == [2] * n
        assert model.stats.compiles == 2
    finally:
        set_virtual_device_count(0)


# ---------------------------------------------------------------- warm-up and the guard


def test_warmup_is_for_the_padded_sizes():
    model = rows({"batch": [4, 16]}, recompile="error")
    model.warmup({"batch": [1, 3, 4, 9]})
    assert model.stats.compiles == 2
    for n in (2, 4, 16):
        model(ones(n, 4))
    assert model.stats.hits == 3
    with pytest.raises(RuntimeError, match="must be compiled again: batch is 17, was "):
        model(ones(17, 4))


def test_threads_share_a_program():
    model = rows({"batch": [64]})
    shapes = []
    threads = [
        threading.Thread(target=lambda n=n: shapes.append(model(ones(n, 4))[0].shape))
        for n in range(1, 9)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(shapes) == [(n, 4) for n in range(1, 9)] and model.stats.compiles == 1


# ---------------------------------------------------------------- refusals


def test_a_graph_that_mixes_is_refused_at_load():
    graph = Graph("g", lambda x: ops.softmax(x, axis=0), [f32("batch", 4)])
    with pytest.raises(ValueError, match=r"(?s)^softmax: mixes along 'batch'.*test_buckets.py:\d+"):
        InferenceSession().load(graph, buckets={"batch": "pow2"})


@pytest.mark.parametrize(
    ("buckets", "error", "text"),
    [
        ("pow2", TypeError, "buckets are a mapping such as"),
        ({}, TypeError, "buckets are a mapping such as"),
        ({"batch": "pow3"}, TypeError, "the buckets of 'batch' are \"pow2\" or sizes, not 'pow3'"),
        ({"batch": 8}, TypeError, 'are "pow2" or sizes, not 8'),
        ({"batch": []}, ValueError, "'batch' has no buckets"),
        ({"batch": [0, 1]}, ValueError, "a bucket of 'batch' is a number from 1 up, not 0"),
        ({"batch": [True]}, ValueError, "from 1 up, not True"),
        ({"batch": [1.5]}, ValueError, r"from 1 up, not 1\.5"),
        ({"n": "pow2"}, ValueError, "graph 'rows' has no dimension 'n'"),
    ],
)
def test_what_are_no_buckets(buckets, error, text):
    with pytest.raises(error, match=text):
        rows(buckets)


def test_an_artifact_is_not_padded(tmp_path):
    session = InferenceSession()
    graph = Graph("g", lambda x: x * 2, [f32("n")])
    session.compile(graph).export_mef(tmp_path / "g.mef")
    with pytest.raises(ValueError, match="model 'g' is an artifact, which is not padded"):
        session.load(tmp_path / "g.mef", buckets={"n": "pow2"})


# ---------------------------------------------------------------- interruption

INTERRUPTED = threading.Event()


@kernel("buckets.interrupted")
def interrupted(x):
    if not INTERRUPTED.is_set() and isinstance(x.shape[0], int):
        INTERRUPTED.set()
        raise KeyboardInterrupt
    return x * 2


@pytest.mark.parametrize("buckets", [None, {"n": "pow2"}])
@pytest.mark.parametrize("nested", [False, True])
def test_an_interrupted_compile_leaves_the_session_usable(buckets, nested):
    def build(x):
        def twice(x):
            return ops.custom("buckets.interrupted", REF, [x], [x.type])[0]

        if not nested:
            return twice(x)
        return ops.call(Graph.current.add_subgraph("body", twice, [x.type]), x)[0]

    session = InferenceSession()
    model = session.load(Graph("g", build, [f32("n")]), buckets=buckets)
    INTERRUPTED.clear()
    with pytest.raises(KeyboardInterrupt):
        model(ones(3))
    assert model.stats.compiles == 0
    assert model(ones(3))[0].to_numpy().tolist() == [2, 2, 2]
    other = session.load(Graph("g", lambda x: x + 1, [f32("n")]), buckets=buckets)
    assert other(ones(3))[0].to_numpy().tolist() == [2, 2, 2]
