# SPDX-License-Identifier: Apache-2.0
"""The stream of random numbers, word for word; the numbers made of it; and what is refused."""

import gc
import math
import weakref

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Dim, Graph, TensorType, ops, text
from maxjax.lower import to_jax

CPU, GPU = DeviceRef.CPU(), DeviceRef.GPU()
random = ops.random


def like(dtype, *shape, device=CPU):
    return TensorType(DType.of(np.dtype(dtype)), list(shape), device)


def draws(build, *arrays):
    """What a graph with a seed of 5 gives, unless ``build`` sets another."""
    types = [like(a.dtype, *a.shape) for a in arrays]
    with Graph("draws", input_types=types) as graph:
        random.set_seed(5)
        out = build(*[v.tensor for v in graph.inputs])
        graph.output(*(out if isinstance(out, (list, tuple)) else [out]))
    return [b.to_numpy() for b in InferenceSession().load(graph)(*arrays)]


# ---------------------------------------------------------------- the stream, written out


def threefry(key, counter):
    """Threefry-2x32, 20 rounds, as published; on pairs of Python ints."""
    mask = 2**32 - 1
    keys = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    a, b = (counter[0] + keys[0]) & mask, (counter[1] + keys[1]) & mask
    for block in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            a = (a + b) & mask
            b = ((b << rotation | b >> (32 - rotation)) & mask) ^ a
        a = (a + keys[(block + 1) % 3]) & mask
        b = (b + keys[(block + 2) % 3] + block + 1) & mask
    return a, b


def words(seed, draw, count):
    key = threefry((seed >> 32, seed & 0xFFFFFFFF), (0, draw))
    return [threefry(key, (0, i)) for i in range(count)]


def bits32(seed, draw, count):
    return np.array([a ^ b for a, b in words(seed, draw, count)], np.uint64)


def bits64(seed, draw, count):
    return [a << 32 | b for a, b in words(seed, draw, count)]


def test_the_cipher_of_the_test_is_the_published_one():
    # The known answers that come with the authors' own code.
    assert threefry((0, 0), (0, 0)) == (0x6B200159, 0x99BA4EFE)
    assert threefry((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2) == (0x1CB996FC, 0xBB002BE7)
    assert threefry((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)) == (
        0xC4923A9C, 0x483DF7A0,
    )  # fmt: skip


@pytest.mark.parametrize("seed", [0, 5, 2**32 + 1, 2**64 - 1])
def test_uniform_floats_are_the_top_bits(seed):
    def build():
        random.set_seed(seed)
        return [random.uniform(like(d, 2, 3)) for d in ("float32", "float64", "float16")]

    got = draws(build)
    np.testing.assert_array_equal(got[0].ravel(), (bits32(seed, 0, 6) >> 8) * 2.0**-24)
    np.testing.assert_array_equal(
        got[1].ravel(), [(b >> 11) * 2.0**-53 for b in bits64(seed, 1, 6)]
    )
    np.testing.assert_array_equal(got[2].ravel(), (bits32(seed, 2, 6) >> 21) * 2.0**-11)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("int32", -3, 4), ("uint8", 0, 255), ("int8", -128, 127), ("int64", -(2**63), 2**63 - 1)],
)
def test_uniform_integers_are_remainders(dtype, low, high):
    (got,) = draws(lambda: random.uniform(like(dtype, 50), range=(low, high)))
    assert got.dtype == dtype
    assert got.tolist() == [low + b % (high - low) for b in bits64(5, 0, 50)]


def test_normal_numbers_are_the_quantiles_of_the_top_bits():
    from_32, from_64 = draws(lambda: [random.normal(like(d, 40)) for d in ("float32", "float64")])
    v32 = (2 * (bits32(5, 0, 40) >> 9) + 1).astype(np.float64) * 2.0**-23 - 1
    v64 = np.array([(2 * (b >> 12) + 1) * 2.0**-52 - 1 for b in bits64(5, 1, 40)])
    erf = np.vectorize(math.erf)
    np.testing.assert_allclose(erf(from_32.astype(np.float64) / math.sqrt(2)), v32, atol=3e-7)
    np.testing.assert_allclose(erf(from_64 / math.sqrt(2)), v64, atol=1e-14)


# ---------------------------------------------------------------- the same everywhere


def test_a_draw_depends_on_the_seed_and_its_number_alone():
    def build():
        a, b = random.uniform(like("float32", 4)), random.uniform(like("float32", 4))
        random.set_seed(5)
        again = random.uniform(like("float32", 4))
        random.set_seed(6)
        other = random.uniform(like("float32", 4))
        return [a, b, again, other]

    a, b, again, other = draws(build)
    np.testing.assert_array_equal(a, again)
    assert not np.any(a == b)
    assert not np.any(a == other)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint64"])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_seed_may_be_a_value(dtype, shape):
    def build(seed):
        random.set_seed(seed)
        return random.uniform(like("float32", 3))

    (got,) = draws(build, np.full(shape, 77, dtype))
    np.testing.assert_array_equal(got, (bits32(77, 0, 3) >> 8) * 2.0**-24)
    if dtype != "uint64":
        (got,) = draws(build, np.full(shape, -1, dtype))
        np.testing.assert_array_equal(got, (bits32(2**64 - 1, 0, 3) >> 8) * 2.0**-24)


def sampled():
    types = [like("float32", "n", 3)]
    with Graph("sampled", input_types=types) as graph:
        random.set_seed(11)
        n = Dim("n")
        graph.output(random.uniform(like("float32", n, 8)), random.normal(like("float32", n * 2)))
    return graph


def test_symbolic_sizes_and_export(run_symbolic):
    session = InferenceSession().load(sampled())
    for n in (0, 1, 8):
        uniform, normal = (b.to_numpy() for b in session(np.zeros((n, 3), np.float32)))
        assert uniform.shape == (n, 8)
        np.testing.assert_array_equal(uniform.ravel(), (bits32(11, 0, 8 * n) >> 8) * 2.0**-24)
        assert normal.shape == (2 * n,)

    def build(x):
        random.set_seed(11)
        return random.uniform(like("float32", Dim("n"), 8))

    (exported,) = run_symbolic(build, np.zeros((8, 3), np.float32), dims=[["n", 3]])
    np.testing.assert_array_equal(exported, uniform)


def test_any_number_of_devices_gives_the_same_numbers():
    function = to_jax(sampled())
    x = np.zeros((8, 3), np.float32)
    with jax.enable_x64(True):
        alone = jax.jit(lambda x: function({}, [x])[0])(x)
        mesh = Mesh(np.array(jax.devices("cpu")), ("d",))
        spread = NamedSharding(mesh, PartitionSpec("d"))
        parts = jax.jit(lambda x: function({}, [x])[0], out_shardings=[spread, spread])(x)
    assert len(parts[0].sharding.device_set) == len(jax.devices("cpu")) > 1
    for a, b in zip(alone, parts, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_settings_of_jax_do_not_matter():
    want = draws(lambda: random.uniform(like("float32", 6)))
    with jax.threefry_partitionable(False), jax.default_prng_impl("rbg"):
        got = draws(lambda: random.uniform(like("float32", 6)))
    np.testing.assert_array_equal(got, want)


def test_the_text_of_a_graph_keeps_the_numbers():
    (again,) = text.parse(text.dump(sampled())).graphs
    x = np.zeros((2, 3), np.float32)
    results = [InferenceSession().load(g)(x) for g in (sampled(), again)]
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a.to_numpy(), b.to_numpy())


# ---------------------------------------------------------------- where a seed holds


def test_a_seed_set_in_a_branch_ends_with_it():
    def build(p):
        def inside():
            random.set_seed(9)
            return random.uniform(like("float32", 3))

        def outside():
            return random.uniform(like("float32", 3))

        (chosen,) = ops.cond(p, [like("float32", 3)], inside, outside)
        return [chosen, random.uniform(like("float32", 3))]

    def numbers(seed, draw):
        return (bits32(seed, draw, 3) >> 8) * 2.0**-24

    chosen, after = draws(build, np.array(True))
    np.testing.assert_array_equal(chosen, numbers(9, 0))
    np.testing.assert_array_equal(after, numbers(5, 1))
    chosen, after = draws(build, np.array(False))
    np.testing.assert_array_equal(chosen, numbers(5, 0))
    np.testing.assert_array_equal(after, numbers(5, 1))


def test_a_loop_draws_other_numbers_in_each_round_only_with_a_seed_that_changes():
    def rounds(reseed):
        def body(i, total):
            if reseed:
                random.set_seed(i)
            return i + 1, total + random.uniform(like("float64"))

        def build(i, total):
            return ops.while_loop([i, total], lambda i, total: i < 3, body)

        return draws(build, np.int64(0), np.float64(0))[1]

    def number(seed):
        return (bits64(seed, 0, 1)[0] >> 11) * 2.0**-53

    np.testing.assert_allclose(rounds(False), 3 * number(5), rtol=1e-15)
    np.testing.assert_allclose(rounds(True), sum(map(number, range(3))), rtol=1e-15)


def test_a_graph_that_is_called_needs_a_seed_of_its_own():
    with Graph("outer", input_types=[like("float32", 2)]) as graph:
        random.set_seed(1)
        (x,) = (v.tensor for v in graph.inputs)
        with pytest.raises(
            RuntimeError, match="uniform: no seed is set in graph 'inner'; call ops"
        ):
            graph.add_subgraph("inner", lambda v: v + random.uniform(v.type), [x.type])


def test_without_a_seed_or_a_graph():
    with pytest.raises(LookupError, match="set_seed: no graph is being built"):
        random.set_seed(1)
    with pytest.raises(LookupError, match="normal: no graph is being built"):
        random.normal(like("float32", 2))
    for draw in (random.uniform, random.normal, random.gaussian):
        with Graph("g"), pytest.raises(RuntimeError, match="no seed is set in graph 'g'"):
            draw(like("float32", 2))


def test_graphs_are_not_kept_alive():
    graph = sampled()
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None


# ---------------------------------------------------------------- distributions


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_moments(dtype):
    u, n = draws(
        lambda: [
            random.uniform(like(dtype, 200, 100), range=(-1, 3)),
            random.gaussian(like(dtype, 200, 100), mean=2, std=0.5),
        ]
    )
    assert u.dtype == n.dtype == dtype
    u, n = u.astype(np.float64), n.astype(np.float64)
    assert -1 <= u.min() < -0.99
    assert 2.99 < u.max() <= 3
    np.testing.assert_allclose([u.mean(), u.var()], [1, 16 / 12], atol=0.03)
    np.testing.assert_allclose([n.mean(), n.std()], [2, 0.5], atol=0.01)
    inside = [np.mean(np.abs(n - 2) < 0.5 * k) for k in (1, 2, 3)]
    np.testing.assert_allclose(inside, [0.6827, 0.9545, 0.9973], atol=0.01)


def test_1_is_never_drawn_from_0_to_1():
    narrow = draws(
        lambda: [
            random.uniform(TensorType(d, [20000], CPU)).cast(DType.float32)
            for d in (DType.bfloat16, DType.float16, DType.float8_e4m3fn)
        ]
    )
    for numbers, digits in zip(narrow, (8, 11, 4), strict=True):
        assert numbers.min() == 0 or digits > 8
        assert numbers.max() == 1 - 2.0**-digits or digits > 8
        assert numbers.max() < 1


def test_numbers_may_be_values():
    def build(low, mean):
        return [
            random.uniform(like("float32", 5), range=(low, low + 2)),
            random.normal(like("float32", 5), mean, mean),
            random.uniform(like("int32", 5), range=(low.cast(DType.int32), 3)),
        ]

    u, n, i = draws(build, np.float32(10), np.float64(3))
    u1, n1 = draws(lambda: [random.uniform(like("float32", 5)), random.normal(like("float32", 5))])
    np.testing.assert_allclose(u, 10 + 2 * u1, rtol=1e-6)
    np.testing.assert_allclose(n, 3 + 3 * n1, rtol=1e-5)
    assert i.tolist() == [10] * 5  # the range is empty


def test_normal_integers_are_converted_as_casts_do():
    (ints, floats) = draws(
        lambda: [random.normal(like("int8", 30), 0, 100), random.normal(like("float64", 1))]
    )
    assert ints.dtype == np.int8
    assert {-128, 127} < set(ints.tolist())
    assert floats.shape == (1,)


def test_the_device_is_that_of_the_type():
    with Graph("g", input_types=[like("float32")]) as g:
        random.set_seed(g.inputs[0].tensor.cast(DType.int64))
        u = random.uniform(like("float32", 2, device=GPU), range=(g.inputs[0].tensor, 1))
        assert u.device == GPU
        with pytest.raises(ValueError, match=r"the start of the range is a scalar, not f32\[2\]"):
            random.uniform(like("float32", 2), range=(ops.constant(np.ones(2, np.float32)), 1))


def test_a_size_must_be_known():
    with pytest.raises(ValueError, match=r"'zz'.*use a number or a dimension of an input"):
        draws(lambda: random.uniform(like("float32", "zz")))


def test_the_type_of_a_seed():
    assert random.SeedType(CPU) == TensorType(DType.uint64, [1], CPU)
    assert random.SeedType(GPU).device == GPU


def test_scalars():
    with Graph("g", input_types=[like("float32"), like("float32", 1)]) as g:
        scalar, vector = (v.tensor for v in g.inputs)
        for x in (scalar, 3, 2.5, np.float32(1), np.ones(())):
            random.assert_scalar(x)
        with pytest.raises(ValueError, match=r"a scalar is needed, got shape \[1\]"):
            random.assert_scalar(vector)
        with pytest.raises(ValueError, match=r"a scalar is needed, got shape \[2, 3\]"):
            random.assert_scalar(np.ones((2, 3)))


def test_what_is_refused():
    types = [like("float32"), like("int64", 2), like("float64")]
    with Graph("g", input_types=types) as g:
        f, vector, f64 = (v.tensor for v in g.inputs)
        for seed in (-1, 2**64):
            with pytest.raises(ValueError, match=r"set_seed: a seed is from 0 to 2\*\*64 - 1, got"):
                random.set_seed(seed)
        with pytest.raises(ValueError, match="random_seed: a seed is an integer, not float32"):
            random.set_seed(f)
        with pytest.raises(ValueError, match=r"a seed is one number, not si64\[2\]"):
            random.set_seed(vector)
        for seed in (1.5, "a", None):
            with pytest.raises(TypeError, match="set_seed: expected a tensor value"):
                random.set_seed(seed)
        random.set_seed(np.int64(3))
        for draw in (random.uniform, random.normal):
            name = draw.__name__
            for wrong in (f, (2, 3), BufferType(DType.float32, [2], CPU)):
                with pytest.raises(TypeError, match=f"{name}: expected a TensorType, got "):
                    draw(wrong)
            with pytest.raises(
                ValueError, match="there are no random bools; compare random floats"
            ):
                draw(like("bool", 2))
        for wrong in ((1,), (1, 2, 3), 5):
            with pytest.raises(ValueError, match="uniform: a range is a start and an end, got"):
                random.uniform(like("float32", 2), range=wrong)
        for empty in ((1, 0), (2, 2), (0.0, math.nan)):
            with pytest.raises(
                ValueError, match=r"uniform: the range starts at .*, not before its"
            ):
                random.uniform(like("float32", 2), range=empty)
        with pytest.raises(ValueError, match=r"uniform: 1\.5 does not fit int64"):
            random.uniform(like("int64", 2), range=(0, 1.5))
        with pytest.raises(
            ValueError, match="the end of the range is float64, not float32; cast it"
        ):
            random.uniform(like("float32", 2), range=(0, f64))
        with pytest.raises(ValueError, match=r"a scalar is needed, got shape \[2\]"):
            random.normal(like("float32", 2), mean=np.ones(2))
        with pytest.raises(ValueError, match="the mean is a scalar, not "):
            random.normal(like("float32", 2), mean=vector)
        for std in (0, -1, math.nan):
            with pytest.raises(
                ValueError, match=r"normal: the standard deviation is .*, not great"
            ):
                random.normal(like("float32", 2), std=std)
        with pytest.raises(TypeError, match="normal: "):
            random.normal(like("float32", 2), mean="a")
