# SPDX-License-Identifier: Apache-2.0
"""Padding: what is proven harmless is, whatever the padding holds; what mixes is named."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.extend.core import Primitive, primitives

from maxjax.dtype import DType
from maxjax.graph import BufferType, DeviceRef, Dim, Graph, TensorType, Weight, ops
from maxjax.kernels import kernel
from maxjax.lower import padding_rules, to_jax
from maxjax.lower.padding import Padding, Size, padding

CPU = DeviceRef.CPU()


def f32(*dims):
    return TensorType(DType.float32, dims, CPU)


def i32(*dims):
    return TensorType(DType.int32, dims, CPU)


def seeded(*shape):
    ops.random.set_seed(7)
    return ops.random.uniform(TensorType(DType.float32, shape, CPU))


def loop(x):
    zero = ops.constant(0, DType.int32, CPU)
    return ops.while_loop([zero, x], lambda i, x: i < 3, lambda i, x: [i + 1, x * 2])[1]


def either(x):
    flag = ops.constant(True, DType.bool, CPU)
    return ops.cond(flag, [x.type], lambda: ops.exp(x), lambda: ops.sin(x))[0]


def called(body):
    def build(x):
        graph = Graph.current.add_subgraph("body", body, [x.type])
        return ops.call(graph, x)[0]

    return build


def table(*shape, dtype=np.float32):
    return ops.constant(np.arange(np.prod(shape), dtype=dtype).reshape(shape), device=CPU)


# ---------------------------------------------------------------- with padding, and without


def garbage(rng, shape, dtype):
    """Anything that padding may become."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    choices = ([np.nan], [0.0], [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0], [3e38])
    with np.errstate(over="ignore"):
        return rng.choice(choices[rng.integers(len(choices))], shape).astype(dtype)


def run(fn, arrays, weights):
    is_buffer = fn.signature.is_buffer
    tensors = [a for a, b in zip(arrays, is_buffer, strict=True) if not b]
    states = [a for a, b in zip(arrays, is_buffer, strict=True) if b]
    with jax.enable_x64(True):
        outputs, finals = jax.jit(lambda *args: fn(*args))(weights, tensors, states)
    return [np.asarray(a) for a in outputs], [np.asarray(a) for a in finals]


def check(fn, proof: Padding, real: dict, padded: dict, rng, exact=None, weights=None) -> None:
    """Runs a graph with and without padding; the real parts must be equal.

    Args:
        fn: The graph.
        proof: That it may be padded.
        real: The sizes without padding.
        padded: Those with it.
        rng: What the padding is drawn with, and inputs if there are none.
        exact: The inputs without padding.
        weights: The graph's, by their names.
    """
    if exact is None:
        exact = []
        for type_ in fn.signature.inputs:
            shape, dtype = type_.shape.evaluate(real), type_.dtype.np
            array = rng.normal(size=shape) if dtype.kind == "f" else rng.integers(0, 4, shape)
            exact.append(array.astype(dtype))
    larger = []
    for type_, array in zip(fn.signature.inputs, exact, strict=True):
        larger.append(garbage(rng, type_.shape.evaluate(padded), array.dtype))
        larger[-1][tuple(map(slice, array.shape))] = array
    (wanted, states), (got, others) = run(fn, exact, weights or {}), run(fn, larger, weights or {})
    for array, longer, shape in zip(wanted, got, proof.outputs, strict=True):
        assert tuple(n.at(real) for n in shape) == array.shape
        same(longer[tuple(map(slice, array.shape))], array)
    for array, other in zip(states, others, strict=True):
        same(other, array)


def same(got, wanted):
    if wanted.dtype.kind in "biu":
        assert np.array_equal(got, wanted)
        return
    near = 1e-6 if wanted.dtype.itemsize > 2 else 2e-2
    np.testing.assert_allclose(got.astype(float), wanted.astype(float), rtol=near, atol=near)


# ---------------------------------------------------------------- what must be accepted, or refused

ROWS = f32("n", 4)
ACCEPTED = {
    "elementwise": (lambda x: ops.sqrt(x * 2 + 1) / x, ROWS),
    "two inputs": (lambda x, y: x - y, ROWS, ROWS),
    "broadcast": (lambda x: x + table(4), ROWS),
    "made of the size": (lambda x: ops.broadcast_to(table(1, 4), [x.shape[0], 4]) + x, ROWS),
    "matmul": (lambda x: x @ table(4, 3), ROWS),
    "batched matmul": (lambda x, y: x @ y, f32("n", 2, 3), f32("n", 3, 2)),
    "softmax of rows": (lambda x: ops.softmax(x), ROWS),
    "norm of rows": (lambda x: ops.layer_norm(x, table(4), table(4), 1e-5), ROWS),
    "rms norm of rows": (lambda x: ops.rms_norm(x, table(4), 1e-5), ROWS),
    "sum of rows": (lambda x: ops.sum(x, axis=1), ROWS),
    "mean of rows": (lambda x: ops.mean(x, axis=1), ROWS),
    "argmax of rows": (lambda x: ops.argmax(x, axis=1), ROWS),
    "top_k of rows": (lambda x: list(ops.top_k(x, 2)), ROWS),
    "cumsum of rows": (lambda x: ops.cumsum(x, axis=1), ROWS),
    "cumsum from the start": (lambda x: ops.cumsum(x, axis=0), ROWS),
    "transpose": (lambda x: ops.transpose(x, 0, 1) * 2, ROWS),
    "flatten rows": (lambda x: ops.reshape(x, [-1]), ROWS),
    "split rows": (lambda x: ops.reshape(x, [x.shape[0], 2, 2]), ROWS),
    "heads": (
        lambda x: ops.permute(ops.reshape(x, [x.shape[0], x.shape[1], 2, 2]), [0, 2, 1, 3]),
        f32("n", "m", 4),
    ),
    "merged batch": (lambda x: ops.reshape(x, [x.shape[0] * 3, 4]), f32("n", 3, 4)),
    "slice of columns": (lambda x: x[:, 1:3], ROWS),
    "first rows": (lambda x: x[:1] * 2, ROWS),
    "without the first": (lambda x: x[1:], ROWS),
    "joined columns": (lambda x: ops.concat([x, x], axis=1), ROWS),
    "joined last": (lambda x: ops.concat([table(2, 4), x], axis=0), ROWS),
    "padded columns": (lambda x: ops.pad(x, [0, 0, 1, 2]), ROWS),
    "padded in front": (lambda x: ops.pad(x, [2, 0, 0, 0]), ROWS),
    "lookup": (lambda i: ops.gather(table(5, 3), i, axis=0), i32("n")),
    "columns by index": (lambda x: ops.gather(x, ops.constant([1, 0], DType.int32, CPU), 1), ROWS),
    "where": (lambda x: ops.where(x > 0, x, 0.0), ROWS),
    "conv": (lambda x: ops.conv2d(x, table(2, 2, 1, 3)), f32("n", 5, 5, 1)),
    "pool": (lambda x: ops.max_pool2d(x, (2, 2)), f32("n", 4, 4, 1)),
    "range": (lambda x: x[:, 0] + ops.range(0, x.shape[0], 1, out_dim=x.shape[0],
              dtype=DType.float32, device=CPU), ROWS),
    "random rows": (lambda x: x + seeded(x.shape[0], 4), ROWS),
    "loop": (loop, ROWS),
    "cond": (either, ROWS),
    "call": (called(lambda x: ops.softmax(x)), ROWS),
    "not of the result": (lambda x: [x * 2, ops.sum(x, axis=0)][:1], ROWS),
    "another dimension": (lambda x: ops.softmax(x, axis=1), f32("n", "m")),
}  # fmt: skip

REFUSED = {
    "sum": (lambda x: ops.sum(x, axis=0), ROWS),
    "mean": (lambda x: ops.mean(x, axis=0), ROWS),
    "max": (lambda x: ops.max(x, axis=0), ROWS),
    "softmax": (lambda x: ops.softmax(x, axis=0), ROWS),
    "argmax": (lambda x: ops.argmax(x, axis=0), ROWS),
    "cumsum": (lambda x: ops.cumsum(x, axis=0, reverse=True), ROWS),
    "argsort": (lambda x: ops.argsort(x), f32("n")),
    "top_k": (lambda x: list(ops.top_k(x, 1)), f32(4, "n")),
    "matmul": (lambda x: table(3, 4).transpose(0, 1) @ table(3, 4) @ ops.transpose(x, 0, 1) @ x,
               ROWS),
    "conv2d": (lambda x, y: ops.conv2d(x, table(2, 2, 1, 3)), f32(1, Dim("n") + 3, 5, 1), f32("n")),
    "max_pool2d": (lambda x, y: ops.max_pool2d(x, (2, 2)), f32(1, Dim("n") + 3, 4, 1), f32("n")),
    "layer_norm": (lambda x, g: ops.layer_norm(x, g, g, 1e-5), f32(4, "n"), f32("n")),
    "gather": (lambda x, i: ops.gather(x, i, axis=0), ROWS, i32(2)),
    "slice_tensor": (lambda x: x[-1], ROWS),
    "concat": (lambda x: ops.concat([x, x], axis=0), ROWS),
    "reshape": (lambda x: ops.reshape(x, [-1]), f32(4, "n")),
    "pad": (lambda x: ops.pad(x, [0, 1, 0, 0]), ROWS),
    "tile": (lambda x: ops.tile(x, [2, 1]), ROWS),
    "random_uniform": (lambda x: x + seeded(4, x.shape[1]), f32(4, "n")),
}  # fmt: skip


def lowered(build, *types):
    return to_jax(Graph("g", build, types))


@pytest.mark.parametrize("name", ACCEPTED)
def test_is_accepted_and_right(name):
    build, *types = ACCEPTED[name]
    fn = lowered(build, *types)
    proof = padding(fn, ["n"])
    check(fn, proof, {"n": 3, "m": 3}, {"n": 5, "m": 3}, np.random.default_rng(len(name)))


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_by_name(name):
    build, *types = REFUSED[name]
    with pytest.raises(ValueError) as caught:
        padding(lowered(build, *types), ["n"])
    first, place, advice = str(caught.value).splitlines()
    assert re.match(
        rf"{name}: .*'n'.*, so its result would change with padding \(given .*\)", first
    )
    assert re.match(rf"  at .*{Path(__file__).name}:\d+ in ", place)
    assert advice == "leave 'n' out of buckets"


def test_a_refusal_in_full():
    def build(x):
        return ops.mean(x, axis=0)

    with pytest.raises(ValueError) as caught:
        padding(to_jax(Graph("g", build, [f32("batch", 4)])), ["batch"])
    line = build.__code__.co_firstlineno + 1
    assert str(caught.value) == (
        "mean: mixes along 'batch', so its result would change with padding (given f32[batch, 4])\n"
        f"  at {__file__}:{line} in build\n"
        "leave 'batch' out of buckets"
    )


def test_an_op_in_a_subgraph_is_named_with_its_place():
    body = lambda x: ops.softmax(x, axis=0)  # noqa: E731
    with pytest.raises(ValueError, match=rf"(?s)^softmax: .*{Path(__file__).name}:"):
        padding(lowered(called(body), ROWS), ["n"])


def attention(masked):
    def build(q, k, v, mask):
        scores = q @ ops.transpose(k, 1, 2)
        if masked:
            scores = scores + mask
        return ops.softmax(scores) @ v

    return build


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_of_each_batch_but_over_the_sequence(masked):
    types = [f32("b", "s", 4)] * 3 + [f32("b", 1, "s")]
    fn = lowered(attention(masked), *types)
    check(fn, padding(fn, ["b"]), {"b": 2, "s": 3}, {"b": 4, "s": 3}, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"softmax: mixes along 's'"):
        padding(fn, ["b", "s"])


def test_several_dimensions_at_once():
    fn = lowered(lambda x, y: x + ops.unsqueeze(y, 1), f32("n", "m", 3), f32("n", 3))
    proof = padding(fn, ["n", "m"])
    check(fn, proof, {"n": 3, "m": 2}, {"n": 5, "m": 4}, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"reshape: moves 'm' to the inside"):
        padding(lowered(lambda x: ops.reshape(x, [-1, 3]), f32("n", "m", 3)), ["n", "m"])


def test_buffers_without_the_dimension_may_be_written():
    def build(x, b):
        ops.buffer_store(b, ops.buffer_load(b) + 1)
        return x * 2

    fn = lowered(build, ROWS, BufferType(DType.float32, [2], CPU))
    check(fn, padding(fn, ["n"]), {"n": 3}, {"n": 4}, np.random.default_rng(0))

    def mixing(x, b):
        ops.buffer_store(b, ops.sum(x, axis=0)[0])
        return x * 2

    with pytest.raises(ValueError, match=r"sum: mixes along 'n'"):
        padding(lowered(mixing, ROWS, BufferType(DType.float32, [4], CPU)), ["n"])


# ---------------------------------------------------------------- custom kernels


@kernel("padding.by_hand")
def by_hand(x, *, how):
    match how:
        case "scan":
            return lax.scan(lambda c, row: (c + row[0], row * 2 + c), jnp.float32(0), x)[1]
        case "map":
            return lax.map(lambda row: row * 2, x)
        case "scatter":
            return x.at[:, 1].add(1)
        case "write":
            return lax.dynamic_update_slice(x, jnp.zeros((x.shape[0], 1), x.dtype), (0, 1))
        case "cholesky":
            squares = x[:, :, None] * x[:, None] + jnp.eye(4, dtype=x.dtype)[None]
            return jnp.linalg.cholesky(squares)[:, 0]
        case "fft":
            return jnp.fft.fft(x).real
        case "number":
            return x * x.shape[0]
        case "callback":
            result = jax.ShapeDtypeStruct((4,), x.dtype)
            total = jax.pure_callback(lambda x: x.sum(0), result, x, vmap_method="sequential")
            return x + total[None]
        case "write rows":
            return x.at[lax.iota(jnp.int32, x.shape[0])].set(1.0)
        case "while":
            return lax.while_loop(lambda y: y.sum() < 3, lambda y: y + 1, x)
    raise AssertionError(how)


def custom(how):
    return lowered(
        lambda x: ops.custom("padding.by_hand", CPU, [x], [x.type], {"how": how})[0], ROWS
    )


# The real parts of these kernels' results are what they are without padding.
@pytest.mark.parametrize("how", ["map", "scatter", "write", "cholesky", "fft"])
def test_kernels_are_looked_into(how):
    fn = custom(how)
    check(fn, padding(fn, ["n"]), {"n": 3}, {"n": 5}, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("scan", "carries a value along 'n'"),
        ("number", "computes with the size of 'n'"),
        ("callback", "runs 'pure_callback', which may mix along 'n'"),
        ("write rows", "writes a row for each of 'n'"),
        ("while", "mixes along 'n'"),
    ],
)
def test_kernels_that_mix(how, why):
    with pytest.raises(ValueError, match=rf"^custom\S*: {why}, so .*\n  at .*test_padding.py"):
        padding(custom(how), ["n"])


def test_every_rule_is_for_a_primitive():
    public = {p.name for p in vars(primitives).values() if isinstance(p, Primitive)}
    others = {"dim_as_value", "geqrf", "optimization_barrier", "random_unwrap", "random_wrap",
              "scatter-sub", "split", "stack", "tile", "unstack"}  # fmt: skip
    assert set(padding_rules.RULES) <= public | others


# ---------------------------------------------------------------- names that cannot be padded


def test_names_that_are_no_dimension_of_inputs():
    with pytest.raises(ValueError, match=r"'g' has no dimension 'k'; the dimensions .* are m, n"):
        padding(lowered(lambda x: x * 2, f32("n", "m")), ["k"])
    with pytest.raises(ValueError, match=r"has no dimension 'n'; .* are all numbers"):
        padding(lowered(lambda x: x * 2, f32(4)), ["n"])


def test_the_size_of_a_weight_or_buffer_is_its_owners():
    w = Weight("w", DType.float32, ["n"], CPU)
    with pytest.raises(ValueError, match="'n' of graph 'g' cannot be padded: weight 'w' has it"):
        padding(lowered(lambda x: x + w, f32("n")), ["n"])
    buffer = BufferType(DType.float32, ["n"], CPU)
    with pytest.raises(ValueError, match="cannot be padded: buffer input1 has it"):
        padding(lowered(lambda x, b: x * 2, f32("n"), buffer), ["n"])


def test_a_dimension_that_can_only_be_a_number():
    with pytest.raises(ValueError, match="'n' is always 4 in this graph"):
        padding(lowered(lambda x: x.rebind([4]), f32("n")), ["n"])
    with pytest.raises(ValueError, match=r"'m' is always 2\*n in this graph"):
        padding(lowered(lambda x, y: y.rebind([2 * x.shape[0]]), f32("n"), f32("m")), ["m"])


def test_dimensions_that_must_be_equal_are_padded_alike():
    fn = lowered(lambda x, y: x + y.rebind(["n"]), f32("n"), f32("m"))
    proof = padding(fn, ["n", "m"])
    assert len(set(proof.dims.values())) == 1
    assert proof.holds({"n": 3, "m": 3}) and not proof.holds({"n": 3, "m": 4})


def test_conditions_are_of_both_sizes():
    proof = padding(lowered(lambda x: x[2:], f32("n")), ["n"])
    assert proof.holds({"n": 2}) and not proof.holds({"n": 1})


def test_what_shrinks_is_refused():
    def build(x):
        return ops.range(x.shape[0], 8, 1, out_dim=8 - x.shape[0], dtype=DType.int32, device=CPU)

    with pytest.raises(ValueError, match=r"has a size .*, which shrinks with 'n'"):
        padding(lowered(build, f32("n")), ["n"])


def test_what_ops_need_of_sizes_is_found():
    def build(x):
        return x * ops.squeeze(ops.top_k(x[3], 4, axis=0)[0][:1], 0)

    proof = padding(to_jax(Graph("g", build, [f32("n", "m")])), ["n"])
    assert {"n >= 4", "m >= 4"} <= {*map(str, proof.conditions)}
    assert proof.holds({"n": 4, "m": 4}) and not proof.holds({"n": 3, "m": 4})


def test_a_graph_that_needs_to_know_the_size():
    @kernel("test_padding.halves")
    def halves(x):
        return x * (2.0 if x.shape[0] > 4 else 3.0)

    def build(x):
        return ops.custom("test_padding.halves", CPU, [x], [x.type])[0]

    with pytest.raises(ValueError, match="'g' cannot be followed while the size of 'n' is unknown"):
        padding(lowered(build, f32("n")), ["n"])


def test_sizes_are_computed_as_jax_does():
    a, b = export.symbolic_shape("a, b")
    env = {"a": 7, "b": 3}
    for dim, value in (
        (a, 7), (a + 2 * b - 1, 12), (a * a * b, 147), (a // 2, 3), (-(-a // 2), 4), (a % b, 1),
        (export.symbolic_shape("max(a, 2*b), min(a, b)")[0], 7), ((a * b) // (b + 1), 5),
    ):  # fmt: skip
        size = Size(dim)
        assert size.at(env) == value and size.names <= {"a", "b"}
    assert Size(4).at({}) == 4
