# SPDX-License-Identifier: Apache-2.0
"""Programs over many devices in files: saved, loaded elsewhere, refused where they do not fit."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import yaml

from maxjax import export
from maxjax.artifact.manifest import Manifest
from maxjax.driver import Accelerator, Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, Weight, ops
from tests.many.test_fold import F32, draw, gpus, mlp, mlp_result, mlp_weights, session, signals

ROOT = pathlib.Path(__file__).parents[2]
N = 4


def saved(folder, graph=None, weights=None, **options):
    graph = graph or mlp(N)
    weights = mlp_weights() if weights is None else weights
    path = folder / "network.maxjax"
    return export.save(graph, path, weights_registry=weights, **options)


def devices(n=N):
    return [Accelerator(i) for i in range(n)]


def test_it_gives_what_the_graph_gives(tmp_path):
    path = saved(tmp_path)
    model = export.load(path, devices())
    for rows in (2, 5):
        x = draw(rows, 16)
        outputs = model(x, *signals(N))
        for i, out in enumerate(outputs):
            assert out.device == Accelerator(i)
            np.testing.assert_allclose(out.to_numpy(), mlp_result(x, mlp_weights()), atol=1e-5)
    for program in model._programs.compiled.values():
        text = program.args[0].as_text()
        found = re.findall(r"= \S+ (all-\w+|collective-\w+|reduce-scatter)\(", text)
        assert found == ["all-reduce"]


def test_it_keeps_its_placements(tmp_path):
    manifest = export.inspect(saved(tmp_path)).manifest
    assert manifest.devices == N
    assert manifest.layout is not None
    assert list(map(str, manifest.layout.devices)) == [f"gpu:{i}" for i in range(N)]
    # Of the columns and of the rows: the weights are whole in the file, by their own names.
    assert {n: p.axis for n, p in manifest.layout.weights.items()} == {"0.up": 1, "0.down": 0}
    plan = export.load(tmp_path / "network.maxjax", devices()).plan
    assert plan.path == "one program on all devices"
    assert plan.weight_bytes == {f"gpu:{i}": 8192 // N for i in range(N)}
    assert manifest == Manifest.parse(manifest.dump())


def test_a_model_is_saved_as_its_graph_is(tmp_path):
    model = session(N).load(mlp(N), weights_registry=mlp_weights())
    path = export.save(model, tmp_path / "model.maxjax", platforms=["cpu"])
    assert path.read_bytes() == saved(tmp_path, platforms=["cpu"]).read_bytes()


def test_states_scalars_and_parts_that_do_not_tile(tmp_path):
    """A state and a number on each device, weights of its own, results on all and on one."""
    n = 2
    types = [TensorType(F32, [], d) for d in gpus(n)]
    states = [BufferType(F32, [3], d) for d in gpus(n)]

    def build(*inputs):
        numbers, kept = [v.tensor for v in inputs[:n]], [v.buffer for v in inputs[n:]]
        found = []
        for i, d in enumerate(gpus(n)):
            own = Weight(f"w{i}", F32, [3], d)
            ops.buffer_store(kept[i], ops.buffer_load(kept[i]) + own * numbers[i])
            found.append(numbers[i] + ops.sum(ops.buffer_load(kept[i])))
        return [*found, found[1].to(DeviceRef.CPU())]

    weights = {f"w{i}": draw(3, seed=i) for i in range(n)}
    path = saved(tmp_path, Graph("g", build, [*types, *states]), weights)
    model = export.load(path, devices(n))
    arrays = [draw(3, seed=10 + i) for i in range(n)]
    kept = [Buffer.from_numpy(a.copy()).to(Accelerator(i)) for i, a in enumerate(arrays)]
    given = [Buffer.scalar(i + 2.0, F32, Accelerator(i)) for i in range(n)]
    *found, last = model(*given, *kept)
    for i in range(n):
        want = arrays[i] + weights[f"w{i}"] * (i + 2)
        np.testing.assert_allclose(kept[i].to_numpy(), want, rtol=1e-6)
        np.testing.assert_allclose(found[i].to_numpy(), (i + 2) + want.sum()[None], rtol=1e-5)
    np.testing.assert_allclose(last.to_numpy(), found[1].to_numpy())


ELSEWHERE = """
import json, sys
import jax
jax.config.update("jax_num_cpu_devices", 4)
import numpy as np
import zipfile
from jax import export
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

with zipfile.ZipFile(sys.argv[1]) as file:
    program = export.deserialize(bytearray(file.read("module.jax_export")))
weights = np.load(sys.argv[2])
mesh = Mesh(np.array(jax.devices()), ("model",))
up = jax.device_put(weights["up"], NamedSharding(mesh, P(None, "model")))
down = jax.device_put(weights["down"], NamedSharding(mesh, P("model")))
x = jax.device_put(weights["x"], NamedSharding(mesh, P()))
signal = jax.device_put(np.zeros(4, np.uint8), NamedSharding(mesh, P("model")))
outputs, _ = jax.jit(program.call)({"0.up": up, "0.down": down}, [x], [signal])
assert "maxjax" not in sys.modules
print(json.dumps([s.data.tolist() for s in outputs[0].addressable_shards]))
"""


def test_it_runs_without_maxjax_on_a_mesh_with_another_name(tmp_path):
    weights, x = mlp_weights(), draw(3, 16)
    path = saved(tmp_path, platforms=["cpu"])
    np.savez(tmp_path / "given.npz", up=weights["0.up"], down=weights["0.down"], x=x)
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(path), str(tmp_path / "given.npz")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for part in json.loads(done.stdout):
        np.testing.assert_allclose(part, mlp_result(x, weights), atol=1e-5)


IN_A_NEW_PROCESS = """
import json, sys
from maxjax import driver, export
driver.set_virtual_device_count(4)
import numpy as np
from maxjax.dtype import DType
devices = [driver.Accelerator(i) for i in range(4)]
model = export.load(sys.argv[1], devices)
x = np.load(sys.argv[2])
signals = [driver.Buffer.zeros([1], DType.uint8, d) for d in devices]
print(json.dumps([o.to_numpy().tolist() for o in model(x, *signals)]))
"""


def test_it_is_loaded_in_a_new_process(tmp_path):
    path, x = saved(tmp_path), draw(3, 16)
    np.save(tmp_path / "x.npy", x)
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS, str(path), str(tmp_path / "x.npy")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    here = export.load(path, devices())(x, *signals(N))
    for there, out in zip(json.loads(done.stdout), here, strict=True):
        np.testing.assert_array_equal(np.float32(there), out.to_numpy())


# ---------------------------------------------------------------- refused


def test_too_few_devices(tmp_path):
    path = saved(tmp_path)
    with pytest.raises(
        ValueError, match=r"is a program for 4 devices \(gpu:0, .*\), and here are 2 accelerators"
    ):
        export.load(path, devices(2))
    with pytest.raises(ValueError, match="and here are 0 accelerators"):
        export.load(path)


def test_a_program_for_each_device_is_no_artifact(tmp_path):
    d0, d1 = gpus(2)
    types = [TensorType(F32, [2], d0), TensorType(F32, [2], d1)]

    def build(a, b):
        ops.print(a, "a")
        return [a.tensor + 1, b.tensor + 1]

    graph = Graph("parts", build, types)
    with pytest.raises(ValueError, match="'parts' runs as a program for each device, and an artif"):
        saved(tmp_path, graph, {})
    model = InferenceSession(devices(2)).load(graph)
    with pytest.raises(ValueError, match="prints what one device has"):
        export.save(model, tmp_path / "parts.maxjax")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(devices=3), "runs on 3 devices, and lays out 4"),
        (lambda d: d["layout"]["devices"].__setitem__(0, "tpu"), "'device' is such as cpu:0"),
        (lambda d: d["layout"]["results"].__setitem__(0, [0, 9]), "is not of its inputs and"),
        (lambda d: d["layout"]["results"].__setitem__(0, [0]), "each is to be a pair"),
        (lambda d: d["layout"]["inputs"][0].update(of=[7]), "other inputs than the manifest"),
        (lambda d: d["layout"]["inputs"][0].update(of="x"), "is to be numbers, not 'x'"),
        (lambda d: d["layout"]["inputs"][1].update(axis=3), "'axis' is none of"),
        (lambda d: d["layout"]["weights"].pop("0.up"), "other weights than the manifest"),
        (lambda d: d.pop("layout"), "runs on 4 devices, and lays out 1"),
    ],
)
def test_a_layout_that_is_wrong(tmp_path, change, message):
    document = yaml.safe_load(export.inspect(saved(tmp_path, platforms=["cpu"])).manifest.dump())
    change(document)
    with pytest.raises(ValueError, match=message):
        Manifest.parse(yaml.safe_dump(document))


def test_dtype_of_signals_is_checked(tmp_path):
    model = export.load(saved(tmp_path, platforms=["cpu"]), devices())
    wrong = [Buffer.zeros([1], DType.int32, Accelerator(i)) for i in range(N)]
    with pytest.raises(ValueError, match="input1"):
        model(draw(2, 16), *wrong)
