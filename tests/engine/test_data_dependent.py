# SPDX-License-Identifier: Apache-2.0
"""Models of graphs whose sizes depend on values: results, buffers, few programs, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import maxjax
from maxjax.driver import Accelerator, Buffer, set_virtual_device_count
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Dim, Graph, TensorType, Weight, ops

REF = DeviceRef.CPU()


def tensor(dtype, *dims, device=REF):
    return TensorType(dtype, dims, device)


def f32(*dims, device=REF):
    return tensor(DType.float32, *dims, device=device)


def positive(x, name="found"):
    return ops.gather_nd(x, ops.nonzero(x > 0, name))


def load(build, *types, **kwargs):
    return InferenceSession().load(Graph("g", build, types), **kwargs)


def run(build, types, *arrays):
    return [b.to_numpy() for b in load(build, *types)(*arrays)]


def draw(n, seed=0):
    return np.random.default_rng(seed).normal(size=n).astype(np.float32)


# ---------------------------------------------------------------- results


@pytest.mark.parametrize("found", [0, 1, 2, 5])
@pytest.mark.parametrize("n", [5, "n"])
def test_what_a_mask_selects(n, found):
    x = -np.ones(5, np.float32)
    x[:found] = np.arange(found) + 1
    y, total, size = run(
        lambda x: [y := positive(x), ops.sum(y), ops.shape_to_tensor(y.shape)], [f32(n)], x
    )
    np.testing.assert_array_equal(y, x[x > 0])
    np.testing.assert_array_equal(total, [x[x > 0].sum()])
    assert size.tolist() == [found]


def test_nothing_to_select_from():
    model = load(positive, f32("n"))
    for n in (0, 1, 3):
        assert model(np.ones(n, np.float32))[0].shape == (n,)


def test_one_after_another():
    def chain(x):
        y = positive(x, "k")
        z = ops.gather_nd(y, ops.nonzero(y > 1, "j"))
        return z, ops.sum(y), ops.repeat_interleave(z, ops.shape_to_tensor(z.shape), 0, "jj")

    model = load(chain, f32("n"))
    for x in (draw(9), draw(9, 1) + 2, -np.ones(9, np.float32), np.float32([0.5])):
        y = x[x > 0]
        z = y[y > 1]
        got = [b.to_numpy() for b in model(x)]
        np.testing.assert_array_equal(got[0], z)
        np.testing.assert_allclose(got[1], [y.sum()], rtol=1e-6)
        np.testing.assert_array_equal(got[2], np.repeat(z, len(z)))


def test_names_that_are_known_in_between():
    """``rest`` is bound by an op of the first part and used in the second, where nothing has it."""

    def build(x):
        ops.sum(x[(slice(1, None), "rest"),])
        y = positive(x)
        return ops.broadcast_to(y[(slice(0, 1), 1),], [Dim("rest")]), y, x

    x = np.float32([3, -1, 2, 5])
    got = run(build, [f32("n")], x)
    np.testing.assert_array_equal(got[0], [3, 3, 3])
    np.testing.assert_array_equal(got[1], [3, 2, 5])
    np.testing.assert_array_equal(got[2], x)


def test_an_input_that_is_an_output_is_not_the_callers_array():
    x = Buffer.from_numpy(np.float32([1, -1]))
    a, b, y = load(lambda x: [x, x, positive(x)], f32("n"))(x)
    a[0] = 7
    assert x.to_numpy().tolist() == b.to_numpy().tolist() == [1, -1]
    assert y.to_numpy().tolist() == [1]


def test_a_shape_that_is_a_tensor():
    def build(x, shape):
        return ops.broadcast_to(x, shape, out_dims=["p", 2, "q"])

    types = [f32(1), tensor(DType.int32, 3)]
    model = load(build, *types)
    for shape in ([3, 2, 1], [0, 2, 4], [1, 2, 1]):
        assert model(np.ones(1, np.float32), np.int32(shape))[0].shape == tuple(shape)
    with pytest.raises(ValueError, match=r"broadcast_to: its operands' values allow no size 'p'"):
        model(np.ones(1, np.float32), np.int32([-1, 2, 1]))


def test_a_kernel_whose_shape_function_reads_values():
    @maxjax.kernel("data_dependent.above", shape=lambda x, *, least: (jnp.sum(x > least), 2))
    def above(x, *, least, results):
        (rows,) = jnp.nonzero(x > least, size=results[0].shape[0])
        return jnp.stack([x[rows], rows.astype(x.dtype)], axis=1)

    def build(x):
        (y,) = ops.custom("data_dependent.above", REF, [x], [f32("m", 2)], {"least": 1})
        return y, ops.sum(y, axis=0)

    model = load(build, f32("n"))
    for x in (draw(8), draw(8, 1) + 3, np.zeros(8, np.float32)):
        rows = np.flatnonzero(x > 1)
        want = np.stack([x[rows], rows.astype(np.float32)], axis=1)
        got, total = [b.to_numpy() for b in model(x)]
        np.testing.assert_array_equal(got, want)
        np.testing.assert_allclose(total, want.sum(0, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (lambda x: (jnp.sum(x), 1), "gave rank 2 instead of 1 for result 0"),
        (lambda x: (jnp.sum(x),), r"gave f32\[\] as a size, where an integer is expected"),
        (lambda x: ((jnp.argmax(x),), (3,)), "gave 2 shapes for 1 result"),
        (lambda x: (-jnp.argmax(x),), "its operands' values allow no size 'm' of the result"),
    ],
)
def test_a_shape_function_that_is_wrong(shape, text):
    name = f"data_dependent.wrong{hash(text)}"

    @maxjax.kernel(name, shape=shape)
    def wrong(x, results):
        return jnp.zeros(results[0].shape, results[0].dtype)

    with pytest.raises(ValueError, match=text):
        run(lambda x: ops.custom(name, REF, [x], [f32("m")]), [f32("n")], np.float32([1, 2]))


def test_dims_of_weights_and_other_inputs():
    w = Weight("w", DType.float32, ["v", 2], REF)

    def build(x, y):
        picked = ops.gather(w, ops.squeeze(ops.nonzero(x > 0, "found"), 1), axis=0)
        return picked @ ops.transpose(w, 0, 1), ops.broadcast_to(y, ["m"])

    weight = np.arange(8, dtype=np.float32).reshape(4, 2)
    model = load(build, f32("v"), f32("m"), weights_registry={"w": weight})
    for x in ([1, -1, 1, 1], [-1] * 4, [1, 0, 0, 0]):
        x = np.float32(x)
        got = [b.to_numpy() for b in model(x, np.ones(3, np.float32))]
        np.testing.assert_array_equal(got[0], weight[x > 0] @ weight.T)
        assert got[1].shape == (3,)
    model.reload({"w": weight[:2]})
    x = np.float32([0, 1])
    np.testing.assert_array_equal(model(x, x)[0].to_numpy(), weight[1:2] @ weight[:2].T)


def test_a_graph_that_is_called_is_split_too():
    def build(x, y):
        w = Weight("w", DType.float32, [], REF, _placeholder=True)
        return positive(x * w, "k"), ops.sum(y)

    module_types = [f32("n"), f32("n")]
    with Graph("main", input_types=module_types) as g:
        sub = g.add_subgraph("sub", build, module_types)
        first = ops.call(sub, *g.inputs, prefix="a.")
        g.output(*first, *ops.call(sub, g.inputs[1], g.inputs[0], prefix="b."))
    weights = {"a.w": np.float32(2), "b.w": np.float32(-1)}
    model = InferenceSession().load(g, weights_registry=weights)
    a, b = np.float32([1, -1, 3]), np.float32([-4, -5, 1])
    got = [o.to_numpy().tolist() for o in model(a, b)]
    assert got == [[2, 6], [-8], [4, 5], [3]]
    with pytest.raises(ValueError, match=r"(?s)'k' has two sizes: 2 from nonzero at .*1 here"):
        model(a, np.float32([-4, 5, 1]))


def test_many_calls_of_one_body_stay_a_loop():
    with Graph("main", input_types=[f32("n", 4)]) as g:
        layer = g.add_subgraph(
            "layer",
            lambda x: x @ Weight("w", DType.float32, [4, 4], REF, _placeholder=True),
            [f32("k", 4)],
        )
        rows = ops.nonzero(g.inputs[0][:, 0] > 0, "k")
        x = ops.gather(g.inputs[0], ops.squeeze(rows, 1), axis=0)
        for i in range(40):
            (x,) = ops.call(layer, x, prefix=f"{i}.")
        g.output(x)
    rng = np.random.default_rng(0)
    weights = {f"{i}.w": np.eye(4, dtype=np.float32)[rng.permutation(4)] for i in range(40)}
    model = InferenceSession().load(g, weights_registry=weights)
    assert any(isinstance(k, tuple) for k in model.function.weight_keys)
    x = rng.normal(size=(6, 4)).astype(np.float32)
    want = x[x[:, 0] > 0]
    for i in range(40):
        want = want @ weights[f"{i}.w"]
    np.testing.assert_allclose(model(x)[0].to_numpy(), want, rtol=1e-6)


# ---------------------------------------------------------------- buffers and prints


def state(dtype, *dims):
    return BufferType(dtype, dims, REF)


def test_effects_keep_their_order():
    def build(b, x):
        ops.buffer_store(b, b[...] + 1)
        own = ops.buffer_create(state(DType.float32, 2), 3)
        y = ops.gather_nd(b[...], ops.nonzero(x > 0, "k"))
        ops.buffer_store(b, b[...] * 2)
        own[0] = ops.sum(y)[0]
        z = ops.gather_nd(b[...], ops.nonzero(y > 1, "j"))
        b[0] = ops.sum(z)[0]
        return y, z, b[...], b, own

    model = load(build, state(DType.float32, "n"), f32("n"))
    b = Buffer.from_numpy(np.float32([1, 0, 5]))
    got = model(b, np.float32([1, 1, -1]))
    assert [o.to_numpy().tolist() for o in got] == [[2, 1], [4], [4, 2, 12], [4, 2, 12], [3, 3]]
    assert got[3] is b
    assert b.to_numpy().tolist() == [4, 2, 12]


def test_buffers_are_updated_in_place():
    def build(b, x):
        ops.buffer_store(b, b[...] + 1)
        y = positive(x)
        b[0] = ops.sum(y)[0]
        return y

    model = load(build, state(DType.float32, 4096), f32("n"))
    b = Buffer.zeros([4096], DType.float32)
    model(b, np.float32([1, 2]))
    place = b._array().unsafe_buffer_pointer()
    model(b, np.float32([1, 2]))
    assert b._array().unsafe_buffer_pointer() == place
    assert b.to_numpy()[:2].tolist() == [3, 2]


def test_a_buffer_is_what_the_parts_before_a_failure_made_of_it():
    def build(b, x):
        ops.buffer_store(b, b[...] + 1)
        y = positive(x)
        return ops.rebind(y, [2], "two are wanted")

    model = load(build, state(DType.float32, 2), f32("n"))
    b = Buffer.from_numpy(np.float32([1, 2]))
    with pytest.raises(ValueError, match=r"(?s)two are wanted.*dependent.py:\d+ in build"):
        model(b, np.ones(3, np.float32))
    assert b.to_numpy().tolist() == [2, 3]
    assert model(b, np.ones(2, np.float32))[0].to_numpy().tolist() == [1, 1]
    assert b.to_numpy().tolist() == [3, 4]


def test_prints_keep_their_order(capfd):
    def build(x):
        ops.print("one")
        y = positive(x)
        y.print("y")
        ops.print("three")
        return y

    run(build, [f32("n")], np.float32([1, -1]))
    jax.effects_barrier()
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["[debug_tensor]", "y", "[debug_tensor]"]


# ---------------------------------------------------------------- programs


def test_twenty_calls_compile_few_programs():
    model = load(lambda x: ops.exp(positive(x)) * 2, f32(64))
    found = set()
    for seed in range(20):
        x = draw(64, seed) + np.float32(seed / 5 - 2)
        found.add(int((x > 0).sum()))
        np.testing.assert_allclose(model(x)[0].to_numpy(), np.exp(x[x > 0]) * 2, rtol=1e-6)
    assert len(found) > 10
    assert model.stats.compiles <= 1 + 7
    assert model.stats.hits == 20 - (model.stats.compiles - 1)
    sizes = {dict(k).get("found") for k in model.stats.per_dims} - {None}
    assert sizes <= {0, 1, 2, 4, 8, 16, 32, 64}


def test_what_mixes_is_compiled_for_its_size():
    """And what is behind it is not padded either, but what is beside it is."""
    model = load(lambda x: ops.softmax(positive(x)), f32(8))
    for n in (3, 5, 6):
        x = -np.ones(8, np.float32)
        x[:n] = 1
        np.testing.assert_allclose(model(x)[0].to_numpy(), np.ones(n) / n, rtol=1e-6)
    assert {dict(k).get("found") for k in model.stats.per_dims} == {None, 3, 5, 6}


def test_one_size_may_be_padded_where_another_is_not():
    def build(x, y):
        return positive(x, "mixed").mean(), positive(y, "free") + 1

    model = load(build, f32(8), f32(8))
    for n in (3, 5, 6):
        x = -np.ones(8, np.float32)
        x[:n] = 1
        mean, rest = model(x, x)
        assert mean.to_numpy().tolist() == [1]
        assert rest.to_numpy().tolist() == [2] * n
    assert {tuple(dict(k).values()) for k in model.stats.per_dims} == {(), (4, 3), (8, 5), (8, 6)}


def test_a_part_depends_on_its_own_sizes_only():
    def build(x, y):
        a = positive(x, "a")
        total = ops.sum(a)
        b = ops.nonzero(y + total * 0 > 0, "b")
        return total, ops.sum(ops.gather_nd(y, b))

    model = load(build, f32(8), f32(8))
    y = draw(8)
    for n in (3, 5, 6):
        x = -np.ones(8, np.float32)
        x[:n] = 1
        total, rest = model(x, y)
        assert total.to_numpy().tolist() == [n]
        np.testing.assert_allclose(rest.to_numpy(), [y[y > 0].sum()], rtol=1e-6)
    # The first, the second for three sizes of a, the third for one of b.
    assert model.stats.compiles == 5


def test_what_is_not_needed_any_more_is_given_away(monkeypatch):
    given = []
    real = jax.stages.Compiled.__call__

    def call(self, *args, **kwargs):
        results = real(self, *args, **kwargs)
        given.append([a for a in jax.tree.leaves(args) if isinstance(a, jax.Array)])
        return results

    monkeypatch.setattr(jax.stages.Compiled, "__call__", call)
    x = jnp.asarray(draw(2048))
    model = load(lambda x: (y := x * 2, ops.sum(positive(x)) + y)[1], f32(2048))
    (out,) = model(x)
    np.testing.assert_allclose(
        out.to_numpy(), np.asarray(x)[np.asarray(x) > 0].sum() + np.asarray(x) * 2, rtol=1e-5
    )
    assert [[a.is_deleted() for a in arrays if a is not x] for arrays in given][1].count(True) == 1
    assert not x.is_deleted()


def test_recompile_and_warmup():
    model = load(positive, f32("n"), recompile="error")
    model.warmup({"n": [4]})
    assert model.stats.compiles == 1
    model(np.ones(4, np.float32))
    model(np.float32([1, 2, 3, -1]))
    assert model.stats.compiles == 2
    with pytest.raises(RuntimeError, match="'g' must be compiled again: found is 2, was 4"):
        model(np.float32([1, 2, -1, -1]))
    with pytest.raises(RuntimeError, match="'g' must be compiled again: n is 5, was 4"):
        model(np.ones(5, np.float32))


def test_on_an_accelerator():
    set_virtual_device_count(8)
    try:
        gpu = DeviceRef.GPU(0)
        graph = Graph("g", lambda x: positive(x) * 2, [f32("n", device=gpu)])
        model = InferenceSession([Accelerator(0)]).load(graph)
        for found in (0, 1, 3, 5):
            x = -np.ones(6, np.float32)
            x[:found] = 1
            (out,) = model(Buffer.from_numpy(x).to(Accelerator(0)))
            assert out.device == Accelerator(0)
            assert out.to_numpy().tolist() == [2] * found
    finally:
        set_virtual_device_count(0)


# ---------------------------------------------------------------- refused


def inside_cond(x, p):
    return ops.cond(p, [f32(1)], lambda: ops.sum(positive(x)), lambda: ops.sum(x))


def inside_a_loop(x, p):
    def body(i, x):
        return i + ops.cast(ops.sum(positive(x))[0], DType.int64), x

    zero = ops.constant(0, DType.int64, REF)
    return ops.while_loop([zero, x], lambda i, x: i < 3, body)


@pytest.mark.parametrize(("build", "op"), [(inside_cond, "cond"), (inside_a_loop, "while_loop")])
def test_branches_and_loops_have_the_sizes_they_begin_with(build, op):
    message = (
        rf"nonzero: the size 'found' of its result depends on values, .* not inside {op}: move .*"
        r"give out_dim a number or a dimension of an input \(given bool\[n\]\)\n"
        r"  at .*test_data_dependent.py:\d+ in positive"
    )
    with pytest.raises(ValueError, match=message):
        load(build, f32("n"), tensor(DType.bool))


def test_a_size_that_is_known_may_be_used_in_a_branch():
    def build(x, p):
        y = positive(x)
        (out,) = ops.cond(p, [f32("found")], lambda: y * 2, lambda: ops.exp(y) + 0)
        return out, ops.cond(p, [f32(1)], lambda: ops.sum(y), lambda: ops.sum(x))[0]

    model = load(build, f32("n"), tensor(DType.bool))
    x = np.float32([3, -1, 4])
    assert [b.to_numpy().tolist() for b in model(x, np.True_)] == [[6, 8], [7]]
    assert model(x, np.False_)[1].to_numpy().tolist() == [6]


def test_two_ops_that_make_one_size_must_agree():
    def build(x, y):
        return positive(x, "k") + positive(y, "k")

    model = load(build, f32("n"), f32("n"))
    a, b = np.float32([1, 2, -1]), np.float32([-1, 5, 6])
    assert model(a, b)[0].to_numpy().tolist() == [6, 8]
    with pytest.raises(ValueError, match=r"'k' has two sizes: 2 from nonzero.*, and 3 here; give"):
        model(a, np.float32([4, 5, 6]))


def test_buckets_of_inputs_are_refused():
    with pytest.raises(ValueError, match="cannot be followed while the size of 'n' is unknown"):
        load(positive, f32("n"), buckets={"n": "pow2"})


def test_a_mask_as_an_index_says_what_to_do():
    message = (
        r"not bool\[n\]; what a mask selects is ops.gather_nd\(x, ops.nonzero\(mask, \"found\"\)\)"
    )
    with pytest.raises(ValueError, match=message):
        load(lambda x: x[x > 0], f32("n"))
