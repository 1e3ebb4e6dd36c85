# SPDX-License-Identifier: Apache-2.0
"""Models: what they take and refuse, weights, devices, and what is compiled when."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxjax.driver import CPU, Accelerator, Buffer, set_virtual_device_count
from maxjax.dtype import DType
from maxjax.engine import InferenceSession, TensorSpec
from maxjax.graph import BufferType, DeviceRef, Graph, Module, TensorType, Weight, ops, text

REF = DeviceRef.CPU()


def f32(*dims, device=REF):
    return TensorType(DType.float32, dims, device)


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


@pytest.fixture
def session():
    return InferenceSession()


@pytest.fixture
def model(session):
    g = Graph("g", lambda x, y: x + ops.reshape(y, ["n", 1]), [f32("n", 4), f32("n")])
    return session.load(g)


# ---------------------------------------------------------------- what a model says of itself


def test_metadata(model):
    assert model.name == "g"
    assert [(s.name, s.dtype, s.shape) for s in model.input_metadata] == [
        ("input0", DType.float32, [None, 4]),
        ("input1", DType.float32, [None]),
    ]
    assert [(s.name, s.dtype, s.shape) for s in model.output_metadata] == [
        ("output0", DType.float32, [None, 4])
    ]
    assert list(map(str, model.input_metadata)) == ["input0=nx4xf32", "input1=nxf32"]
    assert str(model.output_metadata[0].spec.to_spec({"n": 3})) == "3x4xf32"
    assert str(TensorSpec([None, 4], DType.bool, "x")) == "x=?x4xbool"
    assert str(model.signature) == "(input0, input1)"
    assert model.devices == [CPU()] == model.output_devices
    assert model.input_devices == [CPU(), CPU()]
    assert repr(model) == "Model('g', (f32[n, 4], f32[n]) -> (f32[n, 4]))"


# ---------------------------------------------------------------- inputs that are accepted


@pytest.mark.parametrize(
    "convert", [np.asarray, jnp.asarray, Buffer.from_numpy], ids=["numpy", "jax", "buffer"]
)
def test_arrays_of_every_kind(model, convert):
    x, y = np.arange(8, dtype=np.float32).reshape(2, 4), np.float32([10, 20])
    (out,) = model(convert(x), convert(y))
    assert isinstance(out, Buffer) and out.device == CPU()
    np.testing.assert_array_equal(out.to_numpy(), x + y[:, None])


def test_keywords_and_execute(model):
    x, y = ones(2, 4), ones(2)
    expected = model(x, y)[0].to_numpy()
    for out in (model(input1=y, input0=x), model(x, input1=y), model.execute(x, y)):
        np.testing.assert_array_equal(out[0].to_numpy(), expected)


def test_an_output_is_an_input_of_the_next_call(model):
    (out,) = model(ones(2, 4), ones(2))
    (out,) = model(out, ones(2))
    np.testing.assert_array_equal(out.to_numpy(), np.full((2, 4), 3))


def test_odd_layouts_arrive_with_the_right_values(session):
    model = session.load(Graph("g", lambda x: x * 2, [f32("n", "m")]))
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    frozen = base.copy()
    frozen.flags.writeable = False
    for x in (base.T, base[::2], base[:, ::-1], np.asfortranarray(base), frozen):
        np.testing.assert_array_equal(model(x)[0].to_numpy(), x * 2)
    big = base.astype(">f4")
    np.testing.assert_array_equal(model(big)[0].to_numpy(), base * 2)
    assert model(ones(0, 3))[0].to_numpy().shape == (0, 3)
    np.testing.assert_array_equal(base, np.arange(24).reshape(4, 6))


@pytest.mark.parametrize("dtype", [DType.int64, DType.uint64, DType.float64])
def test_64_bit_values_are_exact_and_the_configuration_untouched(session, dtype):
    t = TensorType(dtype, ["n"], REF)
    model = session.load(Graph("g", lambda x: (x, x + 1, x * 3), [t]))
    top = 2**53 - 1 if dtype is DType.float64 else 2**63 - 2
    x = np.array([top, 1, 2**33 + 1]).astype(dtype.np)
    for convert in (np.asarray, Buffer.from_numpy):
        same, plus, times = (o.to_numpy() for o in model(convert(x)))
        assert same.dtype == dtype.np
        np.testing.assert_array_equal(same, x)
        np.testing.assert_array_equal(plus, x + x.dtype.type(1))
        np.testing.assert_array_equal(times[1:], x[1:] * x.dtype.type(3))
    assert not jax.config.jax_enable_x64
    assert jnp.arange(2).dtype == jnp.int32


# ---------------------------------------------------------------- inputs that are refused


def test_a_wrong_number_of_inputs(model):
    with pytest.raises(TypeError, match=r"model 'g' takes 2 inputs \(input0, input1\); missing"):
        model(ones(2, 4))
    with pytest.raises(TypeError, match=r"takes 2 inputs .*, got 3"):
        model(ones(2, 4), ones(2), ones(2))
    with pytest.raises(TypeError, match="'z' was given but it has none of that name"):
        model(ones(2, 4), z=ones(2))
    with pytest.raises(TypeError, match="'input0' was given twice"):
        model(ones(2, 4), input0=ones(2))


REFUSED = {
    "dtype": ((ones(3, 4, dtype=np.float64), ones(3)), r"input0 is float64\[3, 4\].*f32\[n, 4\]"),
    "rank": ((ones(3), ones(3)), r"input0 has rank 1 \(shape \[3\]\), expected f32\[n, 4\]"),
    "static size": ((ones(3, 5), ones(3)), r"input0 has shape \[3, 5\], expected f32\[n, 4\]"),
    "two sizes": (
        (ones(3, 4), ones(5)),
        "'n' has two sizes: 3 from dimension 0 of input0, and 5 from dimension 0 of input1",
    ),
    "two sizes, one of them 1": ((ones(3, 4), ones(1)), "'n' has two sizes: 3 from.* and 1 from"),
    "list": (([[1.0] * 4], ones(1)), "input0 must be a Buffer or an array, got list"),
    "none": ((None, ones(1)), "input0 must be a Buffer or an array, got NoneType"),
    "int for float": ((ones(3, 4, dtype=np.int32), ones(3)), r"input0 is int32\[3, 4\]"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(model, case):
    args, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        model(*args)
    assert model(ones(2, 4), ones(2))[0].to_numpy().sum() == 16


# ---------------------------------------------------------------- weights


@pytest.fixture
def weighted():
    w, b = (
        Weight("layer.weight", DType.float32, [4, 2], REF),
        Weight("layer.bias", DType.float32, [2], REF),
    )
    return Graph("weighted", lambda x: x @ w + b, [f32("n", 4)])


@pytest.mark.parametrize(
    "convert", [np.asarray, jnp.asarray, Buffer.from_numpy], ids=["numpy", "jax", "buffer"]
)
def test_weights_of_every_kind(session, weighted, convert):
    weights = {"layer.weight": convert(ones(4, 2)), "layer.bias": convert(np.float32([1, 2]))}
    model = session.load(weighted, weights_registry=weights)
    np.testing.assert_array_equal(model(ones(1, 4))[0].to_numpy(), [[5, 6]])


def test_weights_in_any_layout(session, weighted):
    weights = {"layer.weight": ones(2, 4).T, "layer.bias": ones(4)[::2]}
    model = session.load(weighted, weights_registry=weights)
    np.testing.assert_array_equal(model(ones(1, 4))[0].to_numpy(), [[5, 5]])


def test_all_problems_with_weights_in_one_message(session):
    names = ["a", "encoder.layer.0.weight", "c", "d"]
    with Graph("g", input_types=[f32(2)]) as g:
        x = g.inputs[0].tensor
        for n in names:
            x = x + Weight(n, DType.float32, [2], REF)
        g.output(x)
    registry = {
        "a": ones(3),
        "encoder.layers.0.weight": ones(2),
        "c": ones(2, dtype=np.float64),
        "d": "text",
        "zzz": ones(1),
    }
    with pytest.raises(ValueError) as e:
        session.load(g, weights_registry=registry)
    assert str(e.value).splitlines() == [
        "the weights of graph 'g' do not fit:",
        "  a: expected f32[2], got f32[3]",
        "  missing: encoder.layer.0.weight (f32[2]); did you mean encoder.layers.0.weight?",
        "  c: expected f32[2], got f64[2]",
        "  d: expected an array, got str",
        "  not used by the graph: encoder.layers.0.weight, zzz",
    ]


def test_missing_weights_without_a_registry(session, weighted):
    with pytest.raises(ValueError, match=r"missing: layer\.weight \(f32\[4, 2\]\)"):
        session.load(weighted)


def test_extra_weights_are_a_warning(session, weighted):
    weights = {"layer.weight": ones(4, 2), "layer.bias": ones(2), "layer.baas": ones(2)}
    with pytest.warns(UserWarning, match=r"no graph uses: layer\.baas; did you mean layer\.bias"):
        session.load(weighted, weights_registry=weights)


def test_reload_and_release(session, weighted):
    weights = {"layer.weight": ones(4, 2), "layer.bias": ones(2)}
    model = session.load(weighted, weights_registry=weights)
    assert model(ones(1, 4))[0].to_numpy().tolist() == [[5, 5]]
    programs = dict(model._programs.compiled)
    model.reload({**weights, "layer.bias": np.float32([10, 20])})
    assert model(ones(1, 4))[0].to_numpy().tolist() == [[14, 24]]
    assert model._programs.compiled == programs
    with pytest.raises(ValueError, match=r"missing: layer\.bias"):
        model.reload({"layer.weight": ones(4, 2)})
    assert model(ones(1, 4))[0].to_numpy().tolist() == [[14, 24]]
    model.release_weights()
    with pytest.raises(RuntimeError, match="weights of model 'weighted' were released"):
        model(ones(1, 4))


def test_a_symbolic_weight_takes_its_size_from_the_data(session):
    with Graph("g", input_types=[f32("n")]) as g:
        g.output(g.inputs[0].tensor + Weight("w", DType.float32, ["n"], REF))
    model = session.load(g, weights_registry={"w": ones(3)})
    assert model(ones(3))[0].to_numpy().tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match="dimension 'n' has two sizes"):
        model(ones(4))


# ---------------------------------------------------------------- buffers


def test_a_buffer_is_changed_in_place(session):
    state = BufferType(DType.float32, ["n"], REF)

    def forward(b, x):
        old = ops.buffer_load(b)
        ops.buffer_store(b, old + x)
        return old, b

    model = session.load(Graph("g", forward, [state, f32("n")]))
    memory = np.zeros(3, np.float32)
    held = Buffer.from_numpy(memory)
    for step in range(1, 4):
        old, same = model(held, ones(3))
        assert same is held
        assert old.to_numpy().tolist() == [step - 1] * 3
        assert memory.tolist() == [step] * 3
    with pytest.raises(ValueError, match=r"input0 is changed in place.*got list"):
        model([1.0], ones(1))
    with pytest.raises(ValueError, match=r"input0 is f64\[3\], expected f32\[n\]"):
        model(Buffer.from_numpy(np.zeros(3)), ones(3))
    with pytest.raises(ValueError, match="input0 is changed in place, so it must be a Buffer"):
        model(np.zeros(3, np.float32), ones(3))


def test_a_cache_is_written_in_place_without_a_copy(session):
    cache = BufferType(DType.float32, [1024, 64], REF)
    with Graph("g", input_types=[cache, f32(1, 64), TensorType(DType.int64, [], REF)]) as g:
        b, row, at = g.inputs[0].buffer, g.inputs[1].tensor, g.inputs[2].tensor
        b[(slice(at, at + 1), 1), :] = row
        g.output(b[at])
    model = session.load(g)
    held = Buffer.zeros([1024, 64], DType.float32)
    model(held, ones(1, 64), np.int64(5))
    (program,) = model._programs.compiled.values()
    memory = program.memory_analysis()
    assert memory.alias_size_in_bytes == 1024 * 64 * 4
    assert memory.temp_size_in_bytes < 1024
    before = held._array().unsafe_buffer_pointer()
    model(held, ones(1, 64), np.int64(7))
    assert held._array().unsafe_buffer_pointer() == before
    assert held.to_numpy().sum(axis=1).nonzero()[0].tolist() == [5, 7]


def test_an_array_of_the_callers_survives_a_buffer_made_of_it(session):
    state = BufferType(DType.float32, [3], REF)
    model = session.load(Graph("g", lambda b: b.__setitem__(..., b[...] + 1), [state]))
    array = jnp.zeros(3, jnp.float32)
    held = Buffer.from_jax(array)
    model(held)
    seen = held.jax()
    model(held)
    assert array.tolist() == [0, 0, 0] and seen.tolist() == [1, 1, 1]
    assert held.to_numpy().tolist() == [2, 2, 2]


def test_a_numpy_input_can_be_changed_after_the_call(session):
    n = 1 << 18
    with Graph("g", input_types=[f32("n")]) as g:
        x = g.inputs[0].tensor
        for _ in range(20):
            x = ops.sin(x)
        g.output(x)
    model = session.load(g)
    raw = np.zeros(n * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    x = raw[start : start + n * 4].view(np.float32)
    for _ in range(5):
        x[...] = 0
        (out,) = model(x)
        x[...] = 1
        assert not out.to_numpy().any()


def test_weights_do_not_follow_the_memory_they_came_from(session):
    w = np.ones(2, np.float32)
    with Graph("g", input_types=[f32(2)]) as g:
        g.output(g.inputs[0].tensor * Weight("w", DType.float32, [2], REF))
    for convert in (np.asarray, Buffer.from_numpy):
        w[...] = 1
        model = session.load(g, weights_registry={"w": convert(w)})
        w[...] = 5
        assert model(ones(2))[0].to_numpy().tolist() == [1, 1]


def test_one_buffer_given_twice(session):
    state = BufferType(DType.float32, [2], REF)

    def forward(a, b):
        b[...] = b[...] + a[...]
        return a[...] * 10

    model = session.load(Graph("g", forward, [state, state]))
    result = model(Buffer.from_numpy(ones(2)), Buffer.from_numpy(ones(2)))
    assert result[0].to_numpy().tolist() == [10, 10]
    twice = Buffer.from_jax(jnp.ones(2, jnp.float32))
    model(twice, twice)
    assert twice.to_numpy().tolist() == [2, 2]


# ---------------------------------------------------------------- sessions


def test_load_all_gives_a_model_per_graph(session):
    module = Module()
    for k, name in enumerate(["one", "two"]):
        Graph(
            name,
            lambda x, k=k: x * (k + 1) + Weight("w", DType.float32, [1], REF),
            [f32(2)],
            module=module,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models = session.load_all(module, weights_registry={"w": ones(1)})
    assert list(models) == ["one", "two"]
    assert models["two"](ones(2))[0].to_numpy().tolist() == [3, 3]
    with pytest.raises(ValueError, match=r"expected one graph, got 2 \(one, two\); use load_all"):
        session.load(module)


def test_load_takes_a_file_of_text(session, tmp_path):
    g = Graph("double", lambda x: x * 2, [f32("n")])
    path = tmp_path / "double.mo"
    text.save(g, path)
    for where in (path, str(path)):
        assert session.load(where)(ones(2))[0].to_numpy().tolist() == [2, 2]


def test_load_refuses_what_is_no_graph(session):
    with pytest.raises(RuntimeError, match="a model is a Graph, a Module or the path"):
        session.load(3)
    with pytest.raises(RuntimeError, match="graph 'g' has no outputs"):
        session.load(Graph("g"))
    with pytest.raises(TypeError, match="devices must be Devices"):
        InferenceSession(["cpu"])


def test_one_accelerator_of_the_session(session):
    set_virtual_device_count(2)
    try:
        gpu = DeviceRef.GPU(1)
        with Graph("g", input_types=[f32(2, device=gpu), f32(2)]) as g:
            x, y = (v.tensor for v in g.inputs)
            g.output(x + y.to(gpu), (x * 2).to(REF))
        model = InferenceSession([CPU(), Accelerator(1)]).load(g)
        on_gpu, on_cpu = model(ones(2), ones(2))
        assert on_gpu.device == Accelerator(1) and on_cpu.device == CPU()
        assert on_gpu.to_numpy().tolist() == on_cpu.to_numpy().tolist() == [2, 2]
        elsewhere = Buffer.from_numpy(ones(2)).to(Accelerator(0))
        with pytest.raises(
            ValueError, match=r"input0 is on .*0, but f32\[2\] gpu:1 is declared on"
        ):
            model(elsewhere, ones(2))
        assert model(Buffer.from_numpy(ones(2)).to(Accelerator(1)), elsewhere.to(CPU()))
        state = BufferType(DType.float32, [2], gpu)
        bump = Graph("bump", lambda b, x: b.__setitem__(..., b[...] + x.to(gpu)), [state, f32(2)])
        bump = InferenceSession([CPU(), Accelerator(1)]).load(bump)
        held = Buffer.from_numpy(ones(2)).to(Accelerator(1))
        bump(held, ones(2))
        assert held.device == Accelerator(1) and held.to(CPU()).to_numpy().tolist() == [2, 2]
        with pytest.raises(ValueError, match="input0 is on"):
            bump(elsewhere, ones(2))
        assert elsewhere.to(CPU()).to_numpy().tolist() == [1, 1]
        with pytest.raises(ValueError, match="runs on gpu:1, which is not among the session's"):
            session.load(g)
    finally:
        set_virtual_device_count(0)


# ---------------------------------------------------------------- what is compiled when


def test_warmup_compiles_every_combination(session):
    model = session.load(Graph("g", lambda x: x * 2, [f32("n", "m")]))
    model.warmup({"n": [1, 2], "m": [3, 4]})
    assert model.stats.compiles == 4
    model(ones(2, 3))
    assert (model.stats.compiles, model.stats.hits) == (4, 1)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({}, "needs sizes of the dimensions n, got none"),
        ({"n": [1], "k": [2]}, "dimensions n, got k, n"),
        ({"n": [1, -1]}, "a size of 'n' is a number from 0 up, not -1"),
        ({"n": [True]}, "not True"),
    ],
)
def test_warmup_for_what_is_no_size(session, sizes, text):
    with pytest.raises(ValueError, match=text):
        session.load(Graph("g", lambda x: x * 2, [f32("n")])).warmup(sizes)


def test_recompiles_can_be_refused(session):
    model = session.load(Graph("g", lambda x: x * 2, [f32("n", "m")]), recompile="error")
    model.warmup({"n": [4], "m": [3, 5]})
    model(ones(4, 3))
    with pytest.raises(RuntimeError, match=r"'g' must be .* again: m is 6, was [35]; .*warmup"):
        model(ones(4, 6))
    model(ones(4, 5))
    assert (model.stats.compiles, model.stats.hits) == (2, 2)


def test_the_first_call_may_compile(session):
    model = session.load(Graph("g", lambda x: x * 2, [f32("n")]), recompile="warn")
    model(ones(4))
    with pytest.warns(UserWarning, match="n is 5, was 4") as warned:
        model(ones(5))
    assert warned[0].filename == __file__
    with pytest.raises(ValueError, match="not 'never'"):
        session.load(Graph("g", lambda x: x * 2, [f32("n")]), recompile="never")


def test_equal_calls_compile_once(session):
    model = session.load(Graph("g", lambda x: x * 2, [f32("n")]))
    for x in (ones(3), jnp.ones(3), Buffer.from_numpy(ones(3)), ones(6)[::2]):
        model(x)
    assert list(model.stats.per_dims) == [(("n", 3),)]
    model(ones(4))
    assert list(model.stats.per_dims) == [(("n", 3),), (("n", 4),)]
    assert (model.stats.compiles, model.stats.hits) == (2, 3)
    assert model.stats.seconds == sum(model.stats.per_dims.values()) > 0
