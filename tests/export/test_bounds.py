# SPDX-License-Identifier: Apache-2.0
"""Sizes that depend on values, in a file: results with a fixed size, and how much of them is real.

In process the same graphs are run in parts, and have no bound.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import maxjax
from maxjax import export
from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, Weight, ops
from tests.export.other_process import Question
from tests.export.tampering import changed

CPU = DeviceRef.CPU()
BOUND = 6


def tensor(dtype, *dims):
    return TensorType(dtype, dims, CPU)


def f32(*dims):
    return tensor(DType.float32, *dims)


def i64(*dims):
    return tensor(DType.int64, *dims)


@maxjax.kernel("test_bounds.upto", shape=lambda x: (jnp.max(x),))
def _upto(x, results):
    return jnp.arange(results[0].shape[0], dtype=jnp.int64)


def positive(x, name="k"):
    return ops.gather_nd(x, ops.nonzero(x > 0, name))


def boxes(corners, scores):
    limits = [ops.constant(n, DType.float32, CPU) for n in (0.5, 0.0)]
    most = ops.constant(5, DType.int64, CPU)
    return ops.non_maximum_suppression(corners, scores, most, *limits, out_dim="k")


CORNERS = np.float32([[[0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 6, 6]]])
X, C = np.float32([3, 0, -4, 1, 5]), np.int64([1, 0, 2, 0, 1])
GRAPHS = {
    "nonzero": (lambda x: ops.nonzero(x, "k"), [(f32("n"), X)]),
    "a mask": (lambda x: ops.exp(positive(x)) * 2, [(f32("n"), X)]),
    "repeat_interleave": (
        lambda x, c: ops.repeat_interleave(x, c, 0, "k"),
        [(f32("n"), X), (i64("n"), C)],
    ),
    "range": (
        lambda c: ops.range(0, c, 1, "k", dtype=DType.int64, device=CPU),
        [(i64(), np.int64(3))],
    ),
    "slice": (lambda x, c: x[(slice(c, None), "k"),], [(f32("n"), X), (i64(), np.int64(2))]),
    "slice back": (
        lambda x, c: x[(slice(c, None, -1), "k"),],
        [(f32("n"), X), (i64(), np.int64(2))],
    ),
    "broadcast_to": (
        lambda x, c: ops.broadcast_to(x, c, ["k"]),
        [(f32(1), X[:1]), (i64(1), np.int64([4]))],
    ),
    "non_maximum_suppression": (
        boxes,
        [(f32("n", "m", 4), CORNERS), (f32("n", "c", "m"), np.float32([[[0.5, 0.9, 0.4]]]))],
    ),
    "custom": (
        lambda x: ops.custom("test_bounds.upto", CPU, [x], [i64("k")])[0],
        [(i64("n"), C)],
    ),
}


def made(name):
    build, arguments = GRAPHS[name]
    return Graph("g", build, [t for t, _ in arguments]), [a for _, a in arguments]


@pytest.mark.parametrize("name", GRAPHS)
def test_both_routes(name, other, tmp_path):
    g, arrays = made(name)
    path = export.save(g, tmp_path / "g", bounds={"k": BOUND})
    manifest = export.inspect(path).manifest
    assert manifest.counts == ("k",)
    assert manifest.platforms == export.PLATFORMS
    assert manifest.outputs[0].shape[0] == BOUND
    other.send(Question(path, [arrays], (False,) * len(arrays), {}))
    (whole,) = [o.to_numpy() for o in InferenceSession().load(g)(*arrays)]
    ((found, count),) = other.receive()
    assert count == len(whole) < BOUND
    assert found.shape == (BOUND, *whole.shape[1:]) and found.dtype == whole.dtype
    np.testing.assert_allclose(found[:count], whole, rtol=1e-6)


def test_more_than_the_bound_is_cut_off_and_told(tmp_path):
    g, (x,) = made("a mask")
    model = export.load(export.save(g, tmp_path / "g", bounds={"k": 2}))
    for n in (5, 4, 1):
        found, count = [o.to_numpy() for o in model(x[:n])]
        whole = np.exp(x[:n][x[:n] > 0]) * 2
        assert count == len(whole)
        np.testing.assert_allclose(found[: len(whole)], whole[:2], rtol=1e-6)
    none, count = model(-np.abs(x))
    assert (none.shape, count.item()) == ((2,), 0)


def test_random_values_by_both_routes(tmp_path):
    g, _ = made("a mask")
    model = export.load(export.save(g, tmp_path / "g", bounds={"k": 40}))
    here = InferenceSession().load(g)
    rng = np.random.default_rng(0)
    for n in range(1, 40, 9):
        x = rng.normal(size=n).astype(np.float32)
        found, count = [o.to_numpy() for o in model(x)]
        (whole,) = [o.to_numpy() for o in here(x)]
        assert count == len(whole)
        np.testing.assert_allclose(found[: len(whole)], whole, rtol=1e-6)


def test_weights_buffers_specialised_sizes_and_other_outputs(tmp_path):
    def build(state, x):
        w = Weight("w", DType.float32, [], CPU)
        ops.buffer_store(state, state[...] + 1)
        return ops.sum(x), positive(x, "a") * w, positive(-x, "b"), state

    g = Graph("g", build, [BufferType(DType.float32, [2], CPU), f32("n")])
    path = export.save(
        g,
        tmp_path / "g",
        weights_registry={"w": np.float32(10)},
        bounds={"b": 3, "a": 4},
        specialize={"n": [5]},
    )
    artifact = export.inspect(path)
    assert artifact.manifest.counts == ("b", "a")
    assert [dict(p.sizes) for p in artifact.manifest.programs] == [{}, {"n": 5}]
    assert artifact.manifest.returned[3] == 0
    state = Buffer.from_numpy(np.zeros(2, np.float32))
    total, a, b, _, nb, na = export.load(path)(state, X)
    assert total.to_numpy().tolist() == [5]
    assert a.to_numpy()[: na.item()].tolist() == [30, 10, 50]
    assert b.to_numpy()[: nb.item()].tolist() == [4]
    assert state.to_numpy().tolist() == [1, 1]


def test_a_model_can_be_given_bounds_and_what_is_loaded_not(tmp_path):
    g, _ = made("a mask")
    model = InferenceSession().load(g)
    path = export.save(model, tmp_path / "g", bounds={"k": 4})
    assert export.save(g, tmp_path / "h", bounds={"k": 4}).read_bytes() == path.read_bytes()
    loaded = export.load(path)
    with pytest.raises(TypeError, match="bounds are for a graph, and Artifact is compiled already"):
        export.save(loaded, tmp_path / "x", bounds={"k": 8})


def test_an_op_without_a_bound_is_named(tmp_path):
    for name in GRAPHS:
        g, _ = made(name)
        op = {"a mask": "nonzero", "slice": "slice_tensor", "slice back": "slice_tensor"}
        with pytest.raises(ValueError, match=rf"(?s)^{op.get(name, name)}: the size 'k' .*") as e:
            export.save(g, tmp_path / "x")
        assert "give bounds={'k': N}" in str(e.value)
        assert "test_bounds.py:" in str(e.value)
    inside = Graph(
        "g",
        lambda p, x: ops.cond(p, [f32(1)], lambda: ops.sum(positive(x)), lambda: ops.sum(x)),
        [tensor(DType.bool), f32("n")],
    )
    with pytest.raises(ValueError, match=r"^nonzero: the size 'k' .* not inside cond: move"):
        export.save(inside, tmp_path / "x", bounds={"k": 4})
    assert not list(tmp_path.iterdir())


def test_an_op_that_mixes_is_named(tmp_path):
    g = Graph("g", lambda x: ops.sum(positive(x)), [f32("n")])
    with pytest.raises(ValueError, match=r"(?s)^sum: mixes along 'k'.*test_bounds.py.*a bound"):
        export.save(g, tmp_path / "x", bounds={"k": 4})
    with pytest.raises(ValueError, match="makes no size 'j' from values; those it makes are 'k'"):
        export.save(g, tmp_path / "x", bounds={"k": 4, "j": 4})
    with pytest.raises(TypeError, match="the bound of 'k' is an int, not '4'"):
        export.save(g, tmp_path / "x", bounds={"k": "4"})


@pytest.mark.parametrize("counts", [["a", "b", "c"], ["a", "b"]])
def test_a_manifest_whose_counts_are_no_sizes(tmp_path, counts):
    g, _ = made("a mask")
    path = export.save(g, tmp_path / "g", bounds={"k": 4}, platforms=["cpu"])
    wrong = changed(path, tmp_path / "x", lambda document: document.update(counts=counts))
    with pytest.raises(ValueError, match=f"its last {len(counts)} outputs tell sizes, which are"):
        export.load(wrong)
