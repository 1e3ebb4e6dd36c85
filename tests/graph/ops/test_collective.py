# SPDX-License-Identifier: Apache-2.0
"""Ops over several devices, as arrays of one program: sums, parts, copies, and the fused norms."""

import jax
import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops
from maxjax.lower import to_jax

GPUS = [DeviceRef.GPU(i) for i in range(4)]
CPU = DeviceRef.CPU()


def built(f, *types, signals=None):
    """The graph of ``f`` of inputs and signals; a type without a device is on that of its place."""
    placed = [t if isinstance(t, TensorType) else TensorType(*t) for t in types]
    count = len(placed) if signals is None else signals
    with Graph(
        "g", input_types=[*placed, *[BufferType(DType.uint8, [1], d) for d in GPUS[:count]]]
    ) as g:
        out = f(g.inputs[: len(placed)], g.inputs[len(placed) :])
        parts = out if isinstance(out, tuple) else (out,)
        g.output(*[v for part in parts for v in part])
    return g


def on(shape, n, dtype=DType.float32):
    """A type on each of ``n`` devices."""
    return [(dtype, shape, d) for d in GPUS[:n]]


def run(graph, *arrays):
    fn = to_jax(graph)
    signals = [np.zeros(1, np.uint8)] * (len(graph.inputs) - len(arrays))
    with jax.enable_x64(True):
        return [np.asarray(x) for x in jax.jit(fn.__call__)({}, arrays, signals)[0]]


def rows(n, shape=(5, 8), seed=0):
    return list(np.random.default_rng(seed).normal(size=(n, *shape)).astype(np.float32))


def test_allreduce_sums_each_group():
    xs = rows(4)
    out = run(built(lambda x, s: ops.allreduce.sum(x, s, 2), *on(["n", 8], 4)), *xs)
    expected = [xs[0] + xs[1]] * 2 + [xs[2] + xs[3]] * 2
    np.testing.assert_array_equal(out, expected)


def test_bundled_allreduce_is_allreduce():
    xs = rows(3)
    out = run(built(ops.bundled_allreduce.sum, *on([5, 8], 3)), *xs)
    np.testing.assert_allclose(out, [sum(xs)] * 3, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_reducescatter_gives_the_first_devices_the_remainder(axis):
    xs = rows(3)
    graph = built(lambda x, s: ops.reducescatter.sum(x, s, axis), *on(["n", "m"], 3))
    for made, expected in zip(run(graph, *xs), np.array_split(sum(xs), 3, axis), strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-6)


def test_reducescatter_of_fewer_rows_than_devices_gives_empty_parts():
    graph = built(ops.reducescatter.sum, *on([1, 8], 2))
    assert [x.shape for x in run(graph, *rows(2, (1, 8)))] == [(1, 8), (0, 8)]


def test_allgather_of_unequal_shards():
    xs = [rows(1, (n, 8))[0] for n in (2, 3, 1, 4)]
    types = [(DType.float32, [name, 8], d) for name, d in zip("abcd", GPUS, strict=True)]
    graph = built(lambda x, s: ops.allgather(x, s, group_size=2), *types)
    assert [str(v.shape[0]) for v in graph.outputs] == ["a + b", "a + b", "c + d", "c + d"]
    left, right = np.concatenate(xs[:2]), np.concatenate(xs[2:])
    for made, expected in zip(run(graph, *xs), [left, left, right, right], strict=True):
        np.testing.assert_array_equal(made, expected)


def test_reduce_scatter_undoes_allgather():
    xs = rows(2, (4, 8))
    graph = built(
        lambda x, s: ops.reducescatter.sum([v * 0.5 for v in ops.allgather(x, s)], s),
        *on([4, 8], 2),
    )
    for made, x in zip(run(graph, *xs), xs, strict=True):
        np.testing.assert_array_equal(made, x)


@pytest.mark.parametrize(
    ("chunks", "devices", "places"),
    [
        (2, 4, [0, 0, 1, 1]),
        (2, 3, [0, 0, 1]),
        (3, 4, [0, 0, 1, 1]),
        (4, 3, [0, 1, 2]),
        (1, 2, [0, 0]),
    ],
)
def test_scatter_gives_each_run_of_devices_its_chunk(chunks, devices, places):
    xs = [rows(1, (n + 1, 2))[0] for n in range(chunks)]
    types = [(DType.float32, [n + 1, 2], GPUS[0]) for n in range(chunks)]
    graph = built(ops.distributed_scatter, *types, signals=devices)
    assert [v.device for v in graph.outputs] == GPUS[:devices]
    for made, i in zip(run(graph, *xs), places, strict=True):
        np.testing.assert_array_equal(made, xs[i])


def test_broadcast_is_on_every_signals_device():
    (x,) = rows(1)
    graph = built(
        lambda x, s: ops.distributed_broadcast(x[0], s), (DType.float32, [5, 8], GPUS[1]), signals=3
    )
    assert [v.device for v in graph.outputs] == GPUS[:3]
    np.testing.assert_array_equal(run(graph, x), [x] * 3)


@pytest.mark.parametrize("axis", [0, 1])
def test_shard_and_stack(axis):
    xs = rows(3, (4, 6))
    graph = built(
        lambda x, s: ops.shard_and_stack(x, GPUS[:2], axis),
        *[(DType.float32, ["n", 6], CPU)] * 3,
        signals=0,
    )
    np.testing.assert_array_equal(run(graph, *xs), np.split(np.stack(xs), 2, axis + 1))


def test_shard_and_stack_of_a_size_that_does_not_divide():
    graph = built(
        lambda x, s: ops.shard_and_stack(x, GPUS[:2]), (DType.float32, ["n", 6], CPU), signals=0
    )
    with pytest.raises(ValueError, match="dimension 0 of size 5 does not divide into 2"):
        run(graph, *rows(1, (5, 6)))


# ---------------------------------------------------------------- fused norms


def rms(x, w, offset=0.0):
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * (w + offset)


def test_allgather_rms_norm_is_its_parts():
    xs, ws = rows(2, (3, 32)), rows(2, (32,), seed=1)
    graph = built(
        lambda x, s: ops.allgather_rms_norm(x[:2], s, x[2:], 1e-6, weight_offset=1.0),
        *on(["n", 32], 2),
        *on([32], 2),
        signals=2,
    )
    whole = np.concatenate(xs)
    *normed, a, b = run(graph, *xs, *ws)
    np.testing.assert_array_equal([a, b], [whole] * 2)
    np.testing.assert_allclose(normed, [rms(whole, w, 1.0) for w in ws], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("group_size", [None, 2])
def test_reduce_scatter_rms_norm_adds_the_residual_once(group_size):
    xs, ws, (residual,) = rows(4, (5, 32)), rows(4, (32,), seed=1), rows(1, (5, 32), seed=2)
    graph = built(
        lambda x, s: ops.reduce_scatter_rms_norm(
            x[:4], s, x[4:8], 1e-6, residuals=x[8:], group_size=group_size
        ),
        *on([5, 32], 4),
        *on([32], 4),
        *on([5, 32], 4),
        signals=4,
    )
    out = run(graph, *xs, *ws, *[residual] * 4)
    size = group_size or 4
    parts = [
        part
        for i in range(0, 4, size)
        for part in np.array_split(sum(xs[i : i + size]) + residual, size)
    ]
    for made, part in zip(out[4:], parts, strict=True):
        np.testing.assert_allclose(made, part, rtol=1e-5, atol=1e-6)
    for made, part, w in zip(out[:4], parts, ws, strict=True):
        np.testing.assert_allclose(made, rms(part, w), rtol=1e-4, atol=1e-5)


def quantized(x, op, **options):
    graph = built(
        lambda v, s: op(v[:1], s, v[1:], 1e-6, **options)[:3],
        (DType.float32, x.shape, GPUS[0]),
        (DType.float32, [x.shape[-1]], GPUS[0]),
        signals=1,
    )
    normed, codes, scales = run(graph, x, np.ones(x.shape[-1], np.float32))
    return normed, codes, scales.astype(np.float32)


ROW = np.concatenate([
    np.linspace(-3, 3, 32), np.geomspace(1e-6, 1, 32), np.zeros(32), np.linspace(0.99, 1, 32)
]).astype(np.float32)[None]  # fmt: skip


def scaled_blocks(normed, scales):
    return normed.reshape(-1, 32) / scales.reshape(-1, 1)


def test_mxfp8_codes_are_the_nearest_multiples_of_the_scale():
    normed, codes, scales = quantized(ROW, ops.allgather_rms_norm_quant_mxfp8)
    assert codes.dtype == ml_dtypes.float8_e4m3fn and codes.shape == ROW.shape
    blocks = scaled_blocks(normed, scales)
    peaks = np.abs(blocks).max(-1)
    assert ((peaks >= 256) & (peaks < 512) | (peaks == 0)).all()
    expected = np.clip(blocks, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(codes.reshape(-1, 32), expected)


@pytest.mark.parametrize(
    ("name", "dtype", "peak"),
    [("e2m3", ml_dtypes.float6_e2m3fn, 4), ("e3m2", ml_dtypes.float6_e3m2fn, 16)],
)
def test_mxfp6_codes_are_packed_four_in_three_bytes(name, dtype, peak):
    normed, packed, scales = quantized(ROW, ops.allgather_rms_norm_quant_mxfp6, fp6_format=name)
    blocks = scaled_blocks(normed, scales)
    peaks = np.abs(blocks).max(-1)
    assert ((peaks >= peak) & (peaks < 2 * peak) | (peaks == 0)).all()
    bits = np.unpackbits(packed, axis=-1, bitorder="little").reshape(-1, 6)
    codes = (bits << np.arange(6)).sum(-1).astype(np.uint8)
    largest = float(ml_dtypes.finfo(dtype).max)
    expected = np.clip(blocks, -largest, largest).astype(dtype)
    np.testing.assert_array_equal(
        codes.view(dtype).astype(np.float32).reshape(-1, 32), expected.astype(np.float32)
    )


def test_a_block_with_infinity_has_no_scale():
    from maxjax.graph.ops._microscaling import MxQuantize

    x = np.ones((2, 32), np.float32)
    x[1, 3] = np.inf
    _, scales = MxQuantize("e4m3").lower(jax.numpy.asarray(x))
    assert np.isnan(np.asarray(scales).astype(np.float32)).tolist() == [[False], [True]]


# ---------------------------------------------------------------- refusals

TWO = on([4, 8], 2)
REFUSALS = [
    (lambda x, s: ops.allreduce.sum(x, s[:1]), TWO, ValueError, "2 inputs and 1 signal buffers"),
    (lambda x, s: ops.allreduce.sum([], []), TWO, ValueError, "at least one input"),
    (lambda x, s: ops.allreduce.sum(x, s, 0), TWO, ValueError, "do not make groups of 0"),
    (lambda x, s: ops.allreduce.sum(x, s, 3), TWO, ValueError, "2 inputs do not make groups of 3"),
    (lambda x, s: ops.allreduce.sum(x, s, True), TWO, TypeError, "group_size is an int"),
    (lambda x, s: ops.allreduce.sum(x, x), TWO, TypeError, "signal buffer 0"),
    (lambda x, s: ops.allreduce.sum([x[0]] * 2, s), TWO, ValueError, "a device of its own"),
    (lambda x, s: ops.allreduce.sum([x[0], x[1][:2]], s), TWO, ValueError,
     r"differ in shape, \[4, 8\] on gpu:0 and \[2, 8\] on gpu:1"),
    (lambda x, s: ops.allreduce.sum([x[0], x[1].cast(DType.int32)], s), TWO, ValueError,
     "float32 on gpu:0 and int32 on gpu:1"),
    (lambda x, s: ops.allgather(x, s, 2), TWO, IndexError, "axis 2 is out of range"),
    (lambda x, s: ops.allgather([x[0], x[1][:2]], s, 1), TWO, ValueError, "only dimension 1 may"),
    (lambda x, s: ops.allgather([x[0], x[1][0]], s), TWO, ValueError, "rank"),
    (lambda x, s: ops.reducescatter.sum(x, s, 2), TWO, ValueError, "axis 2 is out of range"),
    (lambda x, s: ops.distributed_broadcast(x[0], []), TWO, ValueError, "at least one signal"),
    (lambda x, s: ops.distributed_broadcast(x[0], s[1:]), TWO, ValueError,
     "is on gpu:0, where no signal buffer is"),
    (lambda x, s: ops.distributed_broadcast(x[0], [s[0], s[0]]), TWO, ValueError, "of its own"),
    (lambda x, s: ops.distributed_scatter(x, s), TWO, ValueError, "on one device"),
    (lambda x, s: ops.shard_and_stack([], GPUS), TWO, ValueError, "at least one input"),
    (lambda x, s: ops.shard_and_stack(x[:1], []), TWO, ValueError, "at least one device"),
    (lambda x, s: ops.shard_and_stack(x[:1], GPUS[:3]), TWO, ValueError, "into 3 equal parts"),
    (lambda x, s: ops.shard_and_stack(x[:1], GPUS[:2], 2), TWO, IndexError, "axis 2"),
    (lambda x, s: ops.allgather_rms_norm(x, s, [], 1e-6), TWO, ValueError, "a gamma for each"),
    (lambda x, s: ops.allgather_rms_norm_quant_mxfp8(x, s, [v[0] for v in x], 1e-6), TWO,
     ValueError, "a number that 32 divides"),
    (lambda x, s: ops.allgather_rms_norm_quant_mxfp6(x, s, x, 1e-6, fp6_format="e1m4"), TWO,
     ValueError, "e2m3, e3m2, not 'e1m4'"),
    (lambda x, s: ops.reduce_scatter_rms_norm(x, s, x, 1e-6, residuals=x[:1]), TWO, ValueError,
     "each residual must have the type of its input"),
]  # fmt: skip


@pytest.mark.parametrize(("f", "types", "error", "text"), REFUSALS)
def test_refusals(f, types, error, text):
    with pytest.raises(error, match=text):
        built(f, *types)
