# SPDX-License-Identifier: Apache-2.0
"""The example kernels of all three kinds compute what they say, in graphs."""

import pathlib
import re

import jax
import numpy as np
import pytest

from examples.kernels import build as tool
from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, KernelLibrary, TensorType, ops
from maxjax.lower import to_jax

FOLDER = pathlib.Path(tool.__file__).parent
CPU = DeviceRef.CPU()


def f32(*dims):
    return TensorType(DType.float32, dims, CPU)


def i32(*dims):
    return TensorType(DType.int32, dims, CPU)


def graph(path, name, in_types, out_types, parameters=None, op=ops.custom):
    with Graph("g", input_types=in_types, custom_extensions=[path]) as g:
        g.output(*op(name, CPU, g.inputs, out_types, parameters))
    return g


def run(g, *arrays):
    return [o.to_numpy() for o in InferenceSession().load(g)(*arrays)]


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# ---------------------------------------------------------------- plain JAX


def test_histogram():
    parameters = {"bins": 7, "low": -1.0, "high": 1.5}
    g = graph(FOLDER / "plain.py", "histogram", [f32("n")], [i32(7)], parameters)
    for n in (0, 1, 1000):
        x = random(n)
        (counts,) = run(g, x)
        np.testing.assert_array_equal(counts, np.histogram(x[x < 1.5], 7, (-1.0, 1.5))[0])


def test_append():
    types = [f32("n", 2).as_buffer(), i32(1).as_buffer(), f32(2)]
    g = graph(FOLDER / "plain.py", "append", types, None, op=ops.inplace_custom)
    model = InferenceSession().load(g)
    rows, count = Buffer.from_numpy(np.zeros((2, 2), np.float32)), Buffer.from_numpy(np.int32([0]))
    for i in range(3):
        model(rows, count, np.float32([i + 1, 10 * i]))
    assert rows.to_numpy().tolist() == [[1, 0], [2, 10]]  # the third finds no room
    assert count.to_numpy().tolist() == [2]


# ---------------------------------------------------------------- Pallas


@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16])
def test_swiglu(dtype):
    t = TensorType(dtype, ["n", 16], CPU)
    g = graph(FOLDER / "pallas.py", "swiglu", [t, t], [t], {"rows": 4})
    for n in (0, 1, 4, 11):
        gate, up = (random(n, 16, seed=s).astype(dtype.np) for s in (1, 2))
        (out,) = InferenceSession().load(g)(gate, up)
        x, y = gate.astype(np.float64), up.astype(np.float64)
        close = 1e-6 if dtype is DType.float32 else 1e-2
        got = np.asarray(out.to_numpy()).view(dtype.np).astype(np.float64).reshape(n, 16)
        np.testing.assert_allclose(got, x / (1 + np.exp(-x)) * y, rtol=close, atol=close)


# ---------------------------------------------------------------- C++


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    if tool.compiler() is None:
        pytest.skip("there is no C++ compiler on this machine")
    return tool.build(tmp_path_factory.mktemp("foreign"))


def test_foreign_rms_norm(foreign):
    t = f32("n", "m", 8)
    g = graph(foreign, "foreign_rms_norm", [t, f32(8)], [t], {"eps": 1e-5})
    for n, m in ((0, 3), (1, 1), (3, 5)):
        x, weight = random(n, m, 8), random(8, seed=1)
        expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight
        np.testing.assert_allclose(run(g, x, weight)[0], expected, rtol=1e-5, atol=1e-6)


def test_foreign_handler_writes_in_place(foreign):
    g = graph(foreign, "accumulate", [f32("n").as_buffer(), f32("n")], None, op=ops.inplace_custom)
    total = Buffer.from_numpy(np.float32([1, 2, 3]))
    model = InferenceSession().load(g)
    for _ in range(2):
        model(total, np.float32([10, 20, 30]))
    assert total.to_numpy().tolist() == [21, 42, 63]
    spec = jax.ShapeDtypeStruct((1024,), np.float32)
    jitted = jax.jit(lambda x, s: to_jax(g)({}, [x], [s]), donate_argnums=1)
    memory = jitted.lower(spec, spec).compile().memory_analysis()
    assert memory.alias_size_in_bytes == 4096
    assert memory.temp_size_in_bytes == 0


def test_a_handlers_own_error_is_raised(foreign):
    g = graph(foreign, "foreign_rms_norm", [f32("n"), f32("m")], [f32("n")], {"eps": 1e-5})
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"rms_norm takes x of \[\.\.\., d\]"):
        run(g, random(3), random(4))[0].tolist()


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ({}, ValueError, "missing a required (keyword-only )?argument: 'eps'"),
        ({"eps": 1.0, "scale": 2.0}, ValueError, "unexpected keyword argument 'scale'"),
        ({"eps": "small"}, TypeError, "'eps' of kernel 'foreign_rms_norm' must be float32, not 's"),
        ({"eps": True}, TypeError, "must be float32, not True"),
        ({"eps": 1e300}, ValueError, r"is 1e\+300, which float32 does not hold"),
    ],
)
def test_attributes_are_checked(foreign, parameters, error, text):
    with pytest.raises(error, match=text):
        run(
            graph(foreign, "foreign_rms_norm", [f32("n"), f32("n")], [f32("n")], parameters),
            random(3),
            random(3),
        )


def test_a_library_that_was_built_again_is_what_runs(foreign, tmp_path):
    def failure(path):
        g = graph(path, "foreign_rms_norm", [f32("n"), f32("m")], [f32("n")], {"eps": 1e-5})
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            run(g, random(3), random(4))[0].tolist()
        return str(caught.value)

    path = tmp_path / "k.so"
    path.write_bytes(foreign.read_bytes())
    manifest = path.with_suffix(".yaml")
    manifest.write_text(foreign.with_suffix(".yaml").read_text())
    assert "rms_norm takes x" in failure(path)
    again = tmp_path / "again.so"
    again.write_bytes(foreign.read_bytes().replace(b"rms_norm takes x", b"RMS_NORM takes x"))
    again.replace(path)
    assert "RMS_NORM takes x" in failure(path)
    assert "rms_norm takes x" in failure(foreign)


def test_a_library_is_loaded_once_and_again_with_another_manifest(foreign, tmp_path):
    path = tmp_path / "k.so"
    path.write_bytes(foreign.read_bytes())
    manifest = path.with_suffix(".yaml")
    manifest.write_text(foreign.with_suffix(".yaml").read_text())
    before = KernelLibrary([path])["accumulate"]
    assert KernelLibrary([path])["accumulate"] is before
    assert KernelLibrary([foreign])["accumulate"] is not before
    manifest.write_text(manifest.read_text().replace("accumulate", "add_to"))
    assert sorted(KernelLibrary([path])) == ["add_to", "foreign_rms_norm"]


def test_graphs_with_foreign_kernels_lower_for_symbolic_sizes(foreign):
    t = f32("n", 4)
    fn = to_jax(graph(foreign, "foreign_rms_norm", [t, f32(4)], [t], {"eps": 1e-5}))
    x = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n, 4"), np.float32)
    weight = jax.ShapeDtypeStruct((4,), np.float32)
    jitted = jax.jit(lambda x, w: fn({}, [x, w])[0])
    (target,) = re.findall(r"foreign_rms_norm@\w{16}", jitted.lower(x, weight).as_text())
    check = jax.export.DisabledSafetyCheck.custom_call(target)
    exported = jax.export.export(jitted, disabled_checks=[check])(x, weight)
    (out,) = exported.call(np.ones((3, 4), np.float32), np.ones(4, np.float32))
    np.testing.assert_allclose(out, np.ones((3, 4)), rtol=1e-4)


# ---------------------------------------------------------------- the page


def test_the_python_of_the_readme_runs(monkeypatch):
    monkeypatch.chdir(FOLDER.parents[1])
    names: dict[str, object] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", (FOLDER / "README.md").read_text(), re.M | re.S)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    for target in re.findall(r"\]\(([^)]+)\)", (FOLDER / "README.md").read_text()):
        assert (FOLDER / target).exists()
