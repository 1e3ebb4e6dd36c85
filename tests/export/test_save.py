# SPDX-License-Identifier: Apache-2.0
"""What is saved: weights, conditions, specialised programs; and what is refused."""

import os
import pathlib
import re
import resource

import jax
import numpy as np
import pytest

import maxjax
from examples.kernels import build as tool
from maxjax import export
from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Dim, Graph, Module, TensorType, ops
from tests.export.other_process import Question
from tests.export.tampering import INPUTS, WEIGHTS, graph, members, small

CPU = DeviceRef.CPU()
HERE = pathlib.Path(__file__).name


def f32(*dims):
    return TensorType(DType.float32, dims, CPU)


def run(model, x=INPUTS[0]):
    count = Buffer.from_numpy(np.int32([4]))
    (out,) = model(x, count)
    return out.to_numpy(), count.to_numpy().tolist()


def expected(x=INPUTS[0]):
    return np.maximum(x @ WEIGHTS["layer.w"] + np.arange(4), 0).astype(np.float64) * 0.5


@maxjax.kernel("test_save.callback")
def _callback(x):
    return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


# ---------------------------------------------------------------- what goes in and comes out


def test_a_graph_with_weights(tmp_path):
    path = small(tmp_path / "small.maxjax")
    assert sorted(members(path)) == [
        "manifest.yaml",
        "module.jax_export",
        "module.mlirbc",
        "specialized/batch=2/module.jax_export",
        "specialized/batch=2/module.mlirbc",
        "weights.safetensors",
    ]
    assert os.listdir(tmp_path) == ["small.maxjax"]
    model = export.load(path)
    for x in (INPUTS[0], INPUTS[0][:1], np.tile(INPUTS[0], (4, 1))):
        out, count = run(model, x)
        np.testing.assert_allclose(out, expected(x), rtol=1e-6)
        assert count == [5]
    assert repr(model) == "Model('small', (f32[batch, 6], si32[1]) -> (f64[batch, 4]))"


def test_a_model_and_a_module_save_as_their_graph(tmp_path):
    whole = small(tmp_path / "graph").read_bytes()
    model = InferenceSession().load(graph(), weights_registry=WEIGHTS)
    assert small(tmp_path / "model", weights_registry=None) != whole
    path = export.save(model, tmp_path / "model", specialize={"batch": [2]})
    assert members(path) == members(tmp_path / "graph")
    again = export.save(export.load(path), tmp_path / "again")
    out, _ = run(export.load(again))
    np.testing.assert_allclose(out, expected(), rtol=1e-6)
    module = Module()
    for name in ("a", "b"):
        Graph(name, lambda x: x, [f32(1)], module=module)
    with pytest.raises(TypeError, match="an artifact is one graph, and the module has 2: save"):
        export.save(module, tmp_path / "x")
    with pytest.raises(TypeError, match="expected a Graph, a Module or a Model, got int"):
        export.save(3, tmp_path / "x")


def test_weights_are_given_later_or_instead(tmp_path):
    without = small(tmp_path / "without", weights_registry=None)
    assert "weights.safetensors" not in members(without)
    with pytest.raises(ValueError, match=r"(?s)missing: layer\.b .*missing: layer\.w"):
        export.load(without)
    out, _ = run(export.load(without, weights_registry=WEIGHTS))
    np.testing.assert_allclose(out, expected(), rtol=1e-6)
    own = export.load(small(tmp_path / "with"), weights_registry={"scale": np.float64([1.0])})
    np.testing.assert_allclose(run(own)[0], expected() * 2, rtol=1e-6)
    with pytest.raises(ValueError, match=r"(?s)missing: layer\.b.*not used by the graph: layer\.c"):
        small(tmp_path / "x", weights_registry={"layer.c": WEIGHTS["layer.b"]})
    assert not (tmp_path / "x").exists()


def test_baked_weights_are_constants(tmp_path):
    path = small(tmp_path / "baked", bake=["scale", "layer.w"])
    manifest = export.inspect(path).manifest
    assert list(manifest.weights) == ["layer.b"]
    np.testing.assert_allclose(run(export.load(path))[0], expected(), rtol=1e-6)
    with pytest.raises(ValueError, match="bake: there is no weight 'w'; the weights are"):
        small(tmp_path / "x", bake=["w"])
    with pytest.raises(ValueError, match=r"bake: .* the weights are none that is given"):
        small(tmp_path / "x", weights_registry=None, bake=["scale"])


def test_weights_are_what_safetensors_reads(tmp_path):
    from safetensors.numpy import load_file

    path = small(tmp_path / "small")
    plain = tmp_path / "w.safetensors"
    plain.write_bytes(members(path)["weights.safetensors"])
    found = load_file(plain)
    assert found.keys() == WEIGHTS.keys()
    for name, array in found.items():
        assert array.dtype == WEIGHTS[name].dtype and array.tobytes() == WEIGHTS[name].tobytes()


def test_specialised_programs_have_no_unknown_sizes(tmp_path):
    g = Graph("g", lambda x, y: x.reshape([-1]) * 2 + y, [f32("n", "m"), f32(Dim("n") * Dim("m"))])
    path = export.save(g, tmp_path / "g", specialize={"n": [8], "m": [16, 4]})
    artifact = export.inspect(path)
    assert [dict(p.sizes) for p in artifact.manifest.programs] == [
        {},
        {"n": 8, "m": 16},
        {"n": 8, "m": 4},
    ]
    for m in (16, 4):
        text = artifact.program({"n": 8, "m": m}).mlir_module()
        assert "?x" not in text and "shape_assertion" not in text
        assert f"tensor<8x{m}xf32>" in text
    with pytest.raises(ValueError, match=r"no program for the sizes \{'n': 1\}; it has: \{'n': 8"):
        artifact.program({"n": 1})
    path = export.save(g, tmp_path / "g", specialize={"n": [8]})
    (shape, _) = [a.shape for a in export.inspect(path).program({"n": 8}).in_avals]
    assert shape[0] == 8 and not isinstance(shape[1], int)


def test_arguments_that_nothing_uses_keep_their_places(tmp_path):
    g = Graph("g", lambda x, y, z: x + z, [f32(2), f32(3), f32(2)])
    path = export.save(g, tmp_path / "g")
    text = export.inspect(path).program().mlir_module()
    (line,) = re.findall(r"func\.func public @main\((.*?)\) ->", text)
    assert re.findall(r"tensor<(\d)xf32>", line) == ["2", "3", "2"]


@pytest.mark.parametrize(
    ("specialize", "match"),
    [
        ({"k": [1]}, "there is no dimension 'k'; they are batch"),
        ({"batch": ["2"]}, "a size of 'batch' is a number, not '2'"),
        ({"batch": [-1]}, "a size of 'batch' is a number, not -1"),
        ({"batch": [True]}, "a size of 'batch' is a number, not True"),
    ],
)
def test_sizes_to_specialise_for_are_checked(tmp_path, specialize, match):
    with pytest.raises(ValueError, match=match):
        small(tmp_path / "x", specialize=specialize)
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("build", "types", "conditions", "good", "bad", "condition"),
    [
        (lambda x: x[1:-1], [f32("n")], [], [2, 3], 1, "n >= 2"),
        (lambda x: x[2], [f32("n")], [], [3, 4], 2, "n >= 3"),
        (lambda x: ops.top_k(x, 4), [f32("n")], [], [4, 9], 3, "n >= 4"),
        (lambda x: x * 2, [f32("n")], ["n % 4 == 0"], [4, 8], 6, "n % 4 == 0"),
        (lambda x: x * 2, [f32("n")], ["n <= 8"], [1, 8], 9, "n <= 8"),
        (lambda x: x + 1, [f32("n")], [], [1, 2], 0, "n >= 1"),
    ],
)
def test_conditions_on_sizes(tmp_path, build, types, conditions, good, bad, condition):
    g = Graph("g", build, types)
    path = export.save(g, tmp_path / "g", conditions=conditions)
    assert condition in map(str, export.inspect(path).manifest.conditions)
    model, here = export.load(path), InferenceSession().load(g)
    for n in good:
        x = np.arange(n, dtype=np.float32)
        for a, b in zip(model(x), here(x), strict=True):
            np.testing.assert_array_equal(a.to_numpy(), b.to_numpy())
    with pytest.raises(ValueError) as caught:
        model(np.zeros(bad, np.float32))
    assert f"model 'g' is for sizes with {condition}, got n = {bad}" in str(caught.value)


def test_one_name_is_one_size(tmp_path):
    g = Graph("g", lambda x, y: x + y, [f32("n"), f32("n")])
    model = export.load(export.save(g, tmp_path / "g"))
    for other in (4, 1):
        with pytest.raises(ValueError, match=f"'n' has two sizes: 3 .* of input0, and {other} .*"):
            model(np.zeros(3, np.float32), np.zeros(other, np.float32))


def test_names_that_are_said_to_be_equal(tmp_path):
    g = Graph("g", lambda x, y: x + y.rebind(["a"]), [f32("a"), f32("b")])
    path = export.save(g, tmp_path / "g")
    assert "b == a" in map(str, export.inspect(path).manifest.conditions)
    model = export.load(path)
    (out,) = model(np.float32([1, 2]), np.float32([3, 4]))
    assert out.to_numpy().tolist() == [4, 6]
    for other in (1, 3):
        with pytest.raises(ValueError, match=f"sizes with b == a, got a = 2, b = {other}"):
            model(np.zeros(2, np.float32), np.zeros(other, np.float32))


@pytest.mark.parametrize(
    ("conditions", "match"),
    [
        (["n"], "'n' is no condition on sizes; write such as 'n >= 2'"),
        (["k >= 2"], "'k >= 2' is about k, but the dimensions of inputs and weights are batch"),
        (["batch == 2", "batch == 3"], "contradict"),
        (["batch >= 5", "batch <= 3"], "conditions batch >= 5; batch <= 3 cannot be met"),
    ],
)
def test_conditions_are_checked(tmp_path, conditions, match):
    with pytest.raises(ValueError, match=match):
        small(tmp_path / "x", conditions=conditions)


# ---------------------------------------------------------------- platforms


def test_platforms(tmp_path):
    path = small(tmp_path / "g", platforms="tpu", specialize=None)
    assert export.inspect(path).program().platforms == ("tpu",)
    there = re.escape("g is for tpu, and ")
    with pytest.raises(
        ValueError, match=there + r".*cpu.* is cpu; save it with platforms=\[\.\.\.\]"
    ):
        export.load(path)
    assert small(tmp_path / "g", platforms=["tpu", "cpu"], specialize=None)
    assert export.inspect(path).manifest.platforms == ("cpu", "tpu")
    run(export.load(path))
    for wrong, named in ((["gpu"], "'gpu'"), ([], "none")):
        with pytest.raises(ValueError, match=f"of cpu, cuda, rocm, tpu, got {named}"):
            small(tmp_path / "x", platforms=wrong)


# ---------------------------------------------------------------- what no file can do


def test_prints_are_left_out_with_a_warning(tmp_path, capfd):
    def build(x):
        ops.print(x, "x")
        return x + 1

    g = Graph("g", build, [f32("n")])
    with pytest.warns(
        UserWarning, match=rf"does not print: 1 ops\.print are left out \(at .*{HERE}:"
    ):
        path = export.save(g, tmp_path / "g")
    assert export.load(path)(np.float32([1]))[0].to_numpy().tolist() == [2]
    assert "x" not in capfd.readouterr().out


def test_callbacks_are_named(tmp_path):
    def build(x):
        return ops.custom("test_save.callback", CPU, [x + 1], [x.type])[0]

    g = Graph("g", build, [f32("n")])
    with pytest.raises(
        ValueError, match=rf"cannot call back into Python, .*callback.* at .*{HERE}:\d+"
    ):
        export.save(g, tmp_path / "g")
    nested = Graph(
        "g", lambda x: ops.call(Graph.current.add_subgraph("s", build, [x.type]), x), [f32("n")]
    )
    with pytest.raises(
        ValueError, match=rf"cannot call back into Python, .*callback.* at .*{HERE}:\d+"
    ):
        export.save(nested, tmp_path / "g")
    assert os.listdir(tmp_path) == []


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    if tool.compiler() is None:
        pytest.skip("there is no C++ compiler on this machine")
    return tool.build(tmp_path_factory.mktemp("foreign"))


def test_foreign_calls_are_the_users_to_answer_for(foreign, tmp_path, other):
    g = Graph("g", input_types=[f32("n", 4), f32(4)], custom_extensions=[foreign])
    with g:
        g.output(*ops.custom("foreign_rms_norm", CPU, g.inputs, [f32("n", 4)], {"eps": 1e-5}))
    with pytest.raises(ValueError, match=r"custom\(foreign_rms_norm\) calls foreign") as e:
        export.save(g, tmp_path / "g", platforms=["cpu"])
    (targets,) = re.findall(r"say custom_calls=\['([^']+)'\]", str(e.value))
    path = export.save(g, tmp_path / "g", platforms=["cpu"], custom_calls=[targets])
    arrays = [np.ones((3, 4), np.float32), np.ones(4, np.float32)]
    (out,) = export.load(path)(*arrays)
    np.testing.assert_allclose(out.to_numpy(), arrays[0], rtol=1e-4)
    other.send(Question(path, [arrays], (False, False), {}))
    (error,) = other.receive()
    assert error[0] == "JaxRuntimeError" and targets in error[1]


# ---------------------------------------------------------------- the file


def test_what_was_there_stays_when_writing_fails(tmp_path):
    path = small(tmp_path / "g")
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="large"):
            small(path, specialize=None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["g"]


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "missing" / "g", tmp_path / "folder"):
        with pytest.raises(OSError):
            small(path, specialize=None)
    assert os.listdir(tmp_path) == ["folder"] and os.listdir(tmp_path / "folder") == []


def test_a_model_keeps_its_weights_when_its_file_is_replaced(tmp_path):
    path = small(tmp_path / "g")
    model = export.load(path)
    small(path, weights_registry={**WEIGHTS, "scale": np.float64([100])}, specialize=None)
    np.testing.assert_allclose(run(model)[0], expected(), rtol=1e-6)
    np.testing.assert_allclose(run(export.load(path))[0], expected() * 200, rtol=1e-6)


def test_links(tmp_path):
    path = small(tmp_path / "g")
    link = tmp_path / "link"
    link.symlink_to(path)
    run(export.load(link))
    small(link, specialize=None)
    assert not link.is_symlink() and len(members(path)) == 6 and len(members(link)) == 4
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        export.load(link)


@pytest.mark.parametrize("folder", [True, False])
def test_files_that_are_not_there(tmp_path, folder):
    path = tmp_path / "x"
    if folder:
        path.mkdir()
    for read in (export.load, export.inspect):
        with pytest.raises(OSError):
            read(path)
