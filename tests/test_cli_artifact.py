# SPDX-License-Identifier: Apache-2.0
"""The commands for artifacts: what they print, where, and what they say when something is wrong."""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
import zipfile

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result

from maxjax import _cli_files, _cli_inputs, _cli_text, _cli_verify, export
from maxjax import cli as maxjax_cli
from maxjax._cli_stages import Stages, Times
from maxjax.artifact import Artifact
from maxjax.cli import main
from maxjax.dtype import DType
from maxjax.graph import BufferType, DeviceRef, Dim, Graph, TensorType, Weight, ops
from maxjax.support.ml import fill_random

ROOT = pathlib.Path(__file__).parents[1]
CPU = DeviceRef.CPU()
W = np.float32([[1, 0], [0, 10], [-1, 0]])
MODEL = """
    import numpy as np
    from maxjax.dtype import DType
    from maxjax.graph import DeviceRef, Graph, TensorType, Weight, ops

    cpu = DeviceRef.CPU()

    def plain():
        w = Weight("w", DType.float32, [3, 2], cpu)
        with Graph("linear", input_types=[TensorType(DType.float32, ["batch", 3], cpu)]) as g:
            g.output(ops.relu(g.inputs[0].tensor @ w))
        return g

    def build():
        print("building")
        return plain(), {"w": np.ones((3, 2), np.float32)}

    def of(weights):
        w = weights.w.allocate(DType.float32, [3, 2])
        x = TensorType(DType.float32, ["batch", 3], cpu)
        return Graph("of", lambda x: x @ w, [x])

    def two(a, b):
        return None

    def none():
        return 3

    def fails():
        return plain().nonsense

    def leaves():
        import sys
        sys.exit(7)

    def printing():
        def body(x):
            ops.print("hello")
            return x
        return Graph("printing", body, [TensorType(DType.float32, ["n"], cpu)])

    graph = plain()
    module = graph.module
    pair = graph, [1, 2]

    def positive():
        x = TensorType(DType.float32, ["n"], cpu)
        select = lambda x: ops.gather_nd(x, ops.nonzero(x > 0, "found"))
        return Graph("positive", select, [x])
"""


def command(*args: object, columns: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, list(map(str, args)))


def works(*args: object) -> Result:
    result = command(*args)
    assert result.exit_code == 0, result.output
    return result


def found(*args: object) -> dict:
    return json.loads(works(*args, "--json", "-q").stdout)


def fails(*args: object, code: int) -> str:
    """The last line on standard error; the only one but what tells of stages."""
    result = command(*args)
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    lines = result.stderr.splitlines()
    assert lines[-1].startswith("Error: ")
    told = re.compile(r"building|\w+[\w .]*: .* (µs|ms|s)( \(.*\))?")
    assert all(map(told.fullmatch, lines[:-1]))
    return lines[-1].removeprefix("Error: ")


def linear() -> Graph:
    w = Weight("w", DType.float32, [3, 2], CPU)
    with Graph("linear", input_types=[TensorType(DType.float32, ["batch", 3], CPU)]) as g:
        g.output(ops.relu(g.inputs[0].tensor @ w))
    return g


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def file(folder) -> pathlib.Path:
    """relu(x @ w), with a program for a batch of 2."""
    return export.save(
        linear(), folder / "linear.maxjax", weights_registry={"w": W}, specialize={"batch": [2]}
    )


@pytest.fixture(scope="module")
def bare(folder) -> pathlib.Path:
    """The same without weights, for the CPU alone."""
    return export.save(linear(), folder / "bare.maxjax", platforms=["cpu"])


@pytest.fixture(scope="module")
def counter(folder) -> pathlib.Path:
    """A buffer that a tensor is added to."""
    types = [BufferType(DType.float32, ["n"], CPU), TensorType(DType.float32, ["n"], CPU)]
    with Graph("counter", input_types=types) as g:
        total = g.inputs[0].buffer[...] + g.inputs[1].tensor
        ops.buffer_store(g.inputs[0].buffer, total)
        g.output(total * 2)
    return export.save(g, folder / "counter.maxjax", platforms=["cpu"])


@pytest.fixture(scope="module")
def narrow(folder) -> pathlib.Path:
    """bfloat16 in and out, and rows in fours."""
    types = [TensorType(DType.bfloat16, ["n", Dim("n") * 2], CPU)]
    g = Graph("narrow", lambda x: x + x, types)
    return export.save(g, folder / "narrow.maxjax", platforms=["cpu"], conditions=["n % 4 == 0"])


@pytest.fixture
def model(tmp_path, monkeypatch) -> pathlib.Path:
    """A user's file, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(textwrap.dedent(MODEL))
    return path


def damaged(file: pathlib.Path, member: str, into: pathlib.Path) -> pathlib.Path:
    """A copy with one byte of a member changed, and the checksums right."""
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(into, "w") as new:
        for info in old.infolist():
            content = bytearray(old.read(info))
            if info.filename == member:
                content[-1] ^= 1
            new.writestr(info.filename, bytes(content))
    return into


# ---------------------------------------------------------------- starting


@pytest.mark.parametrize("name", ["export", "inspect", "run", "bench", "verify"])
def test_help_has_examples(name: str) -> None:
    assert f"Examples:\n    maxjax {name} " in works(name, "--help").stdout


def test_help_needs_no_jax() -> None:
    program = (
        "import sys\nfrom maxjax.cli import main\n"
        "try: main(['verify', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('jax', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("name", ["inspect", "run", "bench", "verify"])
def test_a_file_that_is_not_there(name: str) -> None:
    assert fails(name, "no.maxjax", code=2) == "there is no file 'no.maxjax'"


@pytest.mark.parametrize("name", ["inspect", "run", "bench"])
def test_a_file_that_is_no_artifact(name: str, model) -> None:
    pathlib.Path("plain.txt").write_text("plain")
    assert fails(name, "plain.txt", code=1).endswith(
        "no artifact: it does not begin as a zip archive does"
    )


# ---------------------------------------------------------------- export


def test_export_of_a_graph_and_weights(model) -> None:
    result = works("export", "model.py:build", "-o", "m.maxjax", "--platforms", "tpu,cpu")
    assert result.stdout.startswith("m.maxjax  ")
    assert result.stdout.endswith(", 1 program for cpu, tpu\n")
    assert "building\n" in result.stderr
    assert "Exporting: " in result.stderr and "lowering" in result.stderr
    written = Artifact("m.maxjax")
    assert written.weights()["w"].tolist() == [[1, 1]] * 3


def test_export_as_json(model) -> None:
    told = found("export", "model.py:build", "-o", "m.maxjax", "--specialize", "batch=1,8")
    assert told["name"] == "linear"
    assert [p["sizes"] for p in told["programs"]] == [{}, {"batch": 1}, {"batch": 8}]
    assert told["weights"][0]["stored"] is True
    assert told["seconds"]["export"]["lowering"] > 0 < told["seconds"]["build"]["all"]


def test_export_finds_graphs_in_all_their_forms(model, tmp_path) -> None:
    np.savez(tmp_path / "w.npz", w=W)
    for target in "model.py:graph", "model:module", f"{model}:plain", "model.py:pair.0":
        if target != "model.py:pair.0":
            works("export", target, "-o", "m.maxjax", "-w", "w.npz", "--platforms", "cpu")
            assert (Artifact("m.maxjax").weights()["w"] == W).all()
    assert str(tmp_path) not in sys.path
    assert "_exported_model" not in sys.modules
    sys.modules.pop("model", None)


def test_export_gives_a_checkpoint_to_a_function_that_asks(model) -> None:
    from safetensors.numpy import save_file

    save_file({"w": W, "unused": W}, "w.safetensors")
    told = found("export", "model.py:of", "-w", "w.safetensors", "-o", "m.maxjax")
    assert [(w["name"], w["stored"]) for w in told["weights"]] == [("w", True)]


def test_export_without_weights_says_so(model) -> None:
    result = works("export", "model.py:graph", "-o", "m.maxjax", "--platforms", "cpu")
    assert "The artifact lacks 1 weight: who loads it gives them\n" in result.stderr


def test_export_with_conditions_baked_weights_and_places(model) -> None:
    told = found(
        "export", "model.py:build", "-o", "m.maxjax", "--platforms", "cpu",
        "--condition", "batch % 4 == 0", "--bake", "w", "--debug-info",
    )  # fmt: skip
    assert "batch % 4 == 0" in told["conditions"]
    assert told["weights"] == []
    assert b"model.py" in Artifact("m.maxjax").stablehlo()


def test_export_with_bounds(model) -> None:
    args = "export", "model.py:positive", "-o", "m.maxjax", "--platforms", "cpu"
    told = found(*args, "--bound", "found=4")
    assert told["counts"] == ["found"]
    assert [o["type"] for o in told["outputs"]] == ["4xf32", "si64"]
    assert "Sizes that the last outputs tell\n  found" in works("inspect", "m.maxjax").stdout
    text = "nonzero: the size 'found' of its result depends on values"
    assert text in fails(*args, code=1)


def test_export_warns_of_prints_on_one_line(model) -> None:
    args = "export", "model.py:printing", "-o", "m.maxjax", "--platforms", "cpu"
    lines = works(*args).stderr.splitlines()
    (line,) = (line for line in lines if line.startswith("Warning: "))
    assert "1 ops.print are left out" in line
    assert works(*args, "-q").stderr == ""


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["model.py"], "'model.py' names no graph: write MODULE:GRAPH, such as model.py:build"),
        (["model.py:buidl"], "model.py has no 'buidl'; it has graph, module, plain, build, of"),
        (["gone.py:graph"], "there is no file 'gone.py'"),
        (["gone:graph"], "there is no module 'gone'"),
        (["a/gone:graph"], "there is no module 'a/gone'; a file's name ends in .py"),
        ([".model:graph"], "'.model' is relative: write the whole name of the module"),
        (["model.py:np"], "model.py:np is a module; it has to be a Graph, a Module, or a function"),
        (["model.py:none"], "model.py:none returns a int; it has to be a Graph"),
        (["model.py:two"], "model.py:two takes arguments (a, b); it has to be a Graph"),
        (["model.py:of"], "model.py:of takes arguments (weights); it has to be"),
        (["model.py:pair"], "model.py:pair: the weights beside the graph are a list; give a"),
        (["model.py:graph", "--platforms", "gpu"], "--platforms: 'gpu' is none; they are cpu"),
        (["model.py:graph", "--specialize", "batch"], "--specialize is such as batch=1,8, not"),
        (["model.py:graph", "--bound", "n"], "--bound is such as found=128, not 'n'"),
        (["model.py:graph", "--condition", "n"], "--condition: 'n' is no condition on sizes"),
        (["model.py:graph", "-w", "gone.npz"], "there is no file 'gone.npz'"),
    ],
)  # fmt: skip
def test_export_refuses_what_it_cannot_follow(model, args: list[str], text: str) -> None:
    assert text in fails("export", *args, "-o", "m.maxjax", code=2)
    assert not os.path.exists("m.maxjax")


def test_export_refuses_a_folder_that_is_not_there(model) -> None:
    text = fails("export", "model.py:graph", "-o", "no/m.maxjax", code=2)
    assert text == "--output: there is no folder 'no'"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["model.py:fails"], "model.py:fails failed: AttributeError: 'Graph' object has no"),
        (["model.py:leaves"], "model.py:leaves failed: SystemExit: 7"),
        (["broken.py:graph"], "broken.py:graph failed: SyntaxError: "),
        (["asks.py:graph"], "asks.py:graph failed: ModuleNotFoundError: No module named 'gone'"),
        (["model.py:graph", "--specialize", "n=1"], "specialize: there is no dimension 'n'"),
        (["model.py:graph", "--bake", "v"], "bake: there is no weight 'v'"),
        (["model.py:build", "-w", "wrong.npz"], "the weights of graph 'linear' do not fit: w: ex"),
    ],
)  # fmt: skip
def test_export_that_fails(model, tmp_path, args: list[str], text: str) -> None:
    (tmp_path / "broken.py").write_text("def graph(:\n")
    (tmp_path / "asks.py").write_text("import gone\n")
    np.savez(tmp_path / "wrong.npz", w=W[:2])
    said = fails("export", *args, "-o", "m.maxjax", code=1)
    assert text in said
    if "fails" in args[0]:
        assert said.endswith(f"({model}, line 30)")


# ---------------------------------------------------------------- inspect


def test_inspect(file) -> None:
    lines = works("inspect", file).stdout.splitlines()
    assert lines[0].startswith("linear (") and ", by maxjax " in lines[0]
    assert lines[1] == "for cpu, cuda, rocm, tpu"
    text = "\n".join(lines)
    assert "  │   └── batch=2\n  │       ├── module.jax_export" in text
    assert "Inputs\n  input0  batchx3xf32  cpu:0\n" in text
    assert "Outputs\n  output0  batchx2xf32  cpu:0\n" in text
    assert "Dims\n  batch  axis 0 of input0  programs of their own for 2\n" in text
    assert "Conditions\n  batch >= 1\n" in text
    assert "Weights (1, 24 B)\n  w  3x2xf32  24 B\n" in text
    # One product for the platform at hand, though the file has one for each.
    assert [line.split() for line in lines if "dot_general" in line] == [["dot_general", "1"]]


def test_inspect_as_json(file, counter) -> None:
    told = found("inspect", file)
    assert told["bytes"] == file.stat().st_size
    assert told["members"] == dict(Artifact(file).sizes)
    assert told["inputs"] == [
        {"name": "input0", "type": "batchx3xf32", "kind": "tensor", "device": "cpu:0"}
    ]
    assert told["dims"] == {"batch": {"is": "input0", "axis": 0, "specialized": [2]}}
    assert told["weights"][0]["bytes"] == 24 and len(told["weights"][0]["sha256"]) == 64
    assert told["ops"]["platform"] == "cpu"
    assert told["ops"]["counts"]["maximum"] == 1
    assert told["ops"]["total"] == sum(told["ops"]["counts"].values())
    assert "return" not in told["ops"]["counts"]
    assert [i["kind"] for i in found("inspect", counter)["inputs"]] == ["buffer", "tensor"]


def test_inspect_shows_the_largest_weights_first(folder) -> None:
    names = [f"w{i}" for i in range(25)]
    weights = [Weight(n, DType.float32, [i + 1], CPU) for i, n in enumerate(names)]
    g = Graph("many", lambda: sum((ops.sum(w) for w in weights[1:]), ops.sum(weights[0])), [])
    arrays = {n: np.ones(i + 1, np.float32) for i, n in enumerate(names)}
    path = export.save(g, folder / "many.maxjax", platforms=["cpu"], weights_registry=arrays)
    text = works("inspect", path).stdout
    assert "Weights (25, 1.30 kB)\n  w24  25xf32  100 B\n  w23  24xf32   96 B\n" in text
    assert "  and 5 smaller ones; --all shows them\n" in text and "  w4 " not in text
    assert "  w4   5xf32    20 B\n" in works("inspect", "--all", path).stdout
    # A body that is a single op is written on its reduction's line.
    counts = found("inspect", path)["ops"]["counts"]
    assert counts["reduce"] == 25 and counts["add"] == 25 + 24


def test_inspect_of_weights_that_are_elsewhere(bare) -> None:
    text = works("inspect", bare).stdout
    assert "Weights (1, 24 B, 1 of them not in the file)\n" in text
    assert "  w  3x2xf32  24 B  not in the file\n" in text


def test_inspect_shows_what_it_can_of_a_damaged_file(file, tmp_path) -> None:
    path = damaged(file, "module.jax_export", tmp_path / "d.maxjax")
    result = command("inspect", path)
    assert result.exit_code == 1
    assert "  input0  batchx3xf32  cpu:0\n" in result.stdout and "Ops" not in result.stdout
    assert result.stderr.endswith("member 'module.jax_export' does not have its hash\n")
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1


# ---------------------------------------------------------------- run


def test_run_with_a_file(file, tmp_path) -> None:
    x = np.float32([[1, 2, 3], [3, 2, 1], [0, 1, 0]])
    np.save(tmp_path / "x.npy", x)
    result = works("run", file, "--input", tmp_path / "x.npy")
    assert result.stdout == "output0 3x2xf32\n  [[ 0. 20.]\n   [ 2. 20.]\n   [ 0. 10.]]\n"
    assert "Running: " in result.stderr and "compiling" in result.stderr
    assert works("run", "-q", file, "-i", f"input0={tmp_path / 'x.npy'}").stderr == ""


def test_run_with_random_numbers_of_a_seed(file, tmp_path) -> None:
    out = tmp_path / "new" / "results"
    args = "run", file, "-i", "batchx3xf32", "-d", "batch=4", "--seed", 5, "-o", out
    told = found(*args)
    x = np.empty((4, 3), np.float32)
    fill_random(x, seed=5)
    y = np.load(out / "output0.npy")
    np.testing.assert_allclose(y, np.maximum(x @ W, 0), rtol=1e-6)
    assert told["dims"] == {"batch": 4}
    assert told["results"]["output0"] == {
        "type": "4x2xf32", "values": y.tolist(), "file": str(out / "output0.npy"),
    }  # fmt: skip
    assert told["seconds"]["compiling"] > 0
    # A "?" is the declared dim, a number and a name of one's own are themselves.
    for spec in "?x3xf32", "4x3xf32", "rowsx3xf32":
        name = "rows" if "rows" in spec else "batch"
        again = found("run", file, "-i", spec, "-d", f"{name}=4", "--seed", 5)
        assert again["results"]["output0"]["values"] == y.tolist()


def test_run_prints_large_arrays_shortly(file) -> None:
    lines = works("run", "-q", file, "-i", "100x3xf32").stdout.splitlines()
    assert lines[0] == "output0 100x2xf32" and len(lines) == 8
    (told,) = found("run", file, "-i", "100x3xf32")["results"].values()
    assert told.keys() == {"type", "min", "max", "mean"}
    assert told["min"] == 0 < told["mean"] < told["max"]


def test_run_writes_one_file(file, tmp_path) -> None:
    out = tmp_path / "new" / "r.npz"
    assert works("run", file, "-i", "2x3xf32", "--out", out).stdout.endswith(f"wrote {out}\n")
    with np.load(out) as loaded:
        assert loaded["output0"].shape == (2, 2)
    assert os.listdir(out.parent) == ["r.npz"]
    # What one run writes the next one reads.
    np.savez(tmp_path / "both.npz", a=np.ones((2, 3), np.float32), b=np.zeros(4))
    told = found("run", file, "-i", f"input0={tmp_path / 'both.npz'}:a")
    assert told["results"]["output0"]["values"] == [[0, 10]] * 2


def test_run_with_buffers(counter, tmp_path) -> None:
    np.save(tmp_path / "x.npy", np.float32([1, 2]))
    x = f"input1={tmp_path / 'x.npy'}"
    told = found("run", counter, "-i", x)["results"]
    assert told["output0"]["values"] == [2, 4] and told["input0"]["values"] == [1, 2]
    np.save(tmp_path / "b.npy", np.float32([10, 20]))
    args = "-i", tmp_path / "b.npy", "-i", tmp_path / "x.npy", "-o", tmp_path / "out"
    told = found("run", counter, *args)["results"]
    assert told["output0"]["values"] == [22, 44] and told["input0"]["values"] == [11, 22]
    assert np.load(tmp_path / "out" / "input0.npy").tolist() == [11, 22]
    assert np.load(tmp_path / "b.npy").tolist() == [10, 20]


def test_run_with_bfloat16(narrow, tmp_path) -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", x)
    args = "run", narrow, "-i", tmp_path / "x.npy", "-o", tmp_path / "out"
    assert found(*args)["results"]["output0"]["values"] == (x * 2).tolist()
    y = np.load(tmp_path / "out" / "output0.npy").view(ml_dtypes.bfloat16)
    assert (y == x * 2).all()
    # A name is enough where the other dim is computed from it.
    told = found("run", narrow, "-i", "nx(2*n)xbf16", "-d", "n=4")
    assert told["results"]["output0"]["type"] == "4x8xbf16"


def test_run_with_weights_of_a_file(bare, tmp_path) -> None:
    np.savez(tmp_path / "w.npz", w=W)
    np.save(tmp_path / "x.npy", np.float32([[1, 1, 0]]))
    told = found("run", bare, "-i", tmp_path / "x.npy", "-w", tmp_path / "w.npz")
    assert told["results"]["output0"]["values"] == [[1, 10]]
    text = fails("run", bare, "-i", tmp_path / "x.npy", code=2)
    assert text == "the artifact lacks 1 of its weights (w); give their files with --weights"


def test_numbers_that_json_lacks(folder, tmp_path) -> None:
    g = Graph("log", lambda x: ops.log(x), [TensorType(DType.float32, [3], CPU)])
    path = export.save(g, folder / "log.maxjax", platforms=["cpu"])
    np.save(tmp_path / "x.npy", np.float32([-1, 0, 1]))
    told = found("run", path, "-i", tmp_path / "x.npy")["results"]
    assert told["output0"]["values"] == ["nan", "-inf", 0]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], "missing input0: give a file, --input input0=FILE.npy, or random numbers, --input"),
        (["-i", "x=1x3xf32"], "--input: there is no input 'x'; they are input0 (batchx3xf32)"),
        (["-i", "input0=1x3xf32", "-i", "input0=1x3xf32"], "--input: input0 is given twice"),
        (["-i", "1x3xf32", "-i", "1x3xf32"], "--input is given 2 times; inputs are input0 (batch"),
        (["-i", "1x3xf64"], "--input: input0 is batchx3xf32, not 1x3xf64"),
        (["-i", "3xf32"], "--input: input0 is batchx3xf32, not 3xf32"),
        (["-i", "1x3xf33"], "--input: neither a .npy or .npz file nor a spec: no spec: '1x3xf33'"),
        (["-i", "*xf32"], "--input: neither a .npy or .npz file nor a spec: the spec *xf32"),
        (["-i", "(n%2)x3xf32"], "--input: neither a .npy or .npz file nor a spec: "),
        (["-i", "data.csv"], "--input: 'data.csv' is no .npy or .npz file"),
        (["-i", "gone.npy"], "--input: there is no file 'gone.npy'"),
        (["-i", "two.npz"], "--input: two.npz has 2 arrays; write two.npz:NAME with one of a, b"),
        (["-i", "two.npz:c"], "--input: two.npz has no array 'c'; write two.npz:NAME with one of"),
        (["-i", "?x3xf32"], "input0: the size of 'batch' is not known; give --dim batch=..."),
        (["-i", "(n-5)x3xf32", "-d", "n=4"], "input0: the size of n + -5 would be -1; give oth"),
        (["-i", "1x3xf32", "-d", "seq=1"], "--dim: there is no dim 'seq'; they are batch"),
        (["-i", "1x3xf32", "-d", "batch"], "--dim is such as batch=8, not 'batch'"),
        (["-i", "1x3xf32", "-d", "batch=1", "-d", "batch=2"], "--dim: 'batch' has two sizes"),
    ],
)  # fmt: skip
def test_run_refuses_what_it_cannot_follow(file, tmp_path, monkeypatch, args, text) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("two.npz", a=np.zeros(1), b=np.zeros(1))
    assert fails("run", file, *args, code=2).startswith(text)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["-i", "1x4xf32"], "input0 has shape [1, 4], expected f32[batch, 3]"),
        (["-i", "x.npy"], "input0 is f64[1, 3], expected f32[batch, 3]"),
        (["-i", "cut.npy"], "cut.npy cannot be read as arrays: "),
        (["-i", "objects.npy"], "objects.npy cannot be read as arrays: Object arrays cannot be"),
        (["-i", "9000000000000x3xf32"], "out of memory: "),
        (["-i", "1x3xf32", "-o", "x.npy"], "x.npy: File exists"),
    ],
)  # fmt: skip
def test_run_that_fails(file, tmp_path, monkeypatch, args, text) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((1, 3)))
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:140])
    assert text in fails("run", file, *args, code=1)


def test_run_outside_the_conditions(narrow) -> None:
    text = fails("run", narrow, "-i", "3x6xbf16", code=1)
    assert text == "model 'narrow' is for sizes with n % 4 == 0, got n = 3"


def test_run_on_an_accelerator_that_is_not_there(file) -> None:
    args = "run", file, "-i", "1x3xf32", "--device"
    assert fails(*args, "accelerator", code=2) == "--device: there is no accelerator here"
    works(*args, "cpu")


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch) -> None:
    _cli_files.write({"a": np.zeros(2)}, str(tmp_path / "r.npz"))
    before = (tmp_path / "r.npz").read_bytes()

    def broken(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", broken)
    for target in "r.npz", "r":
        with pytest.raises(OSError, match="No space left"):
            _cli_files.write({"a": np.ones(2)}, str(tmp_path / target))
    assert (tmp_path / "r.npz").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["r", "r.npz"] and not os.listdir(tmp_path / "r")


def test_run_in_a_process(file, tmp_path) -> None:
    np.save(tmp_path / "x.npy", np.float32([[1, 2, 3]]))
    command = [sys.executable, "-m", "maxjax", "run", os.fspath(file), "-i", "x.npy"]
    env = {**os.environ, "PYTHONPATH": os.fspath(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (0, "output0 1x2xf32\n  [[ 0. 20.]]\n"), done.stderr
    assert done.stderr.splitlines()[-1].startswith("Running: ")
    assert "Traceback" not in done.stderr and "\x1b" not in done.stderr


# ---------------------------------------------------------------- bench


def test_bench(file) -> None:
    result = works("bench", file, "-d", "batch=16", "--runs", 20, "--warmup", 1)
    lines = result.stdout.splitlines()
    assert lines[0] == "linear on cpu:0, batch 16"
    assert [line.split("  ")[1].strip() for line in lines[1:4]] == ["load", "first call", "run"]
    assert "median of 20 after 1" in lines[3] and "10th to 90th percentile" in lines[4]
    # 16 x 3 x 2 products, two operations each, and the relu.
    told = found("bench", file, "-d", "batch=16", "--runs", 5)
    assert 192 <= told["flops"] <= 256
    assert told["runs"] == 5 and told["dims"] == {"batch": 16} and told["inputs"] == ["16x3xf32"]
    assert told["memory"]["arguments"] == 4 * (16 * 3 + 3 * 2) and told["peak_bytes"] > 1e7
    seconds = told["run_seconds"]
    assert seconds["min"] <= seconds["p10"] <= seconds["median"] <= seconds["p90"] <= seconds["max"]
    assert told["flops_per_second"] == pytest.approx(told["flops"] / seconds["median"])
    assert told["compile_seconds"]["compiling"] > 0


def test_bench_makes_up_what_is_missing(narrow, counter, bare) -> None:
    quick = "--seconds", 0, "--warmup", 0
    assert found("bench", narrow, *quick)["dims"] == {"n": 4}
    assert found("bench", counter, *quick)["runs"] == 5
    assert found("bench", bare, "-i", "7x3xf32", *quick)["dims"] == {"batch": 7}


# ---------------------------------------------------------------- verify


def test_verify(file) -> None:
    result = works("verify", file)
    lines = [line.split("  ") for line in result.stdout.splitlines()]
    assert [line[1] for line in lines] == ["ok"] * 6
    assert [line[2].strip() for line in lines] == [
        "hashes", "load", "run", "jax.export", "batch = 2", "new process",
    ]  # fmt: skip
    assert "6 members, 1 weight " in result.stdout
    assert "Running in a new process: " in result.stderr


def test_verify_of_buffers_and_of_weights_that_are_elsewhere(counter, bare, monkeypatch) -> None:
    # The new process is tried above, and with weights here.
    told = found("verify", bare, "--seed", 3)
    assert told["ok"] and told["dims"] == {"batch": 2}
    monkeypatch.setattr(_cli_verify, "_elsewhere", lambda *args: (None, "left out"))
    told = found("verify", counter)
    assert [c["told"] for c in told["checks"]] == [
        "3 members, 0 weights", "by maxjax", "2xf32, 2xf32", "the same", "left out",
    ]  # fmt: skip


@pytest.mark.parametrize("member", ["module.jax_export", "module.mlirbc", "weights.safetensors"])
def test_verify_of_a_damaged_member(file, tmp_path, member: str) -> None:
    if member == "module.mlirbc" and member not in Artifact(file).sizes:
        member = "module.cpu.mlirbc"
    path = damaged(file, member, tmp_path / "d.maxjax")
    result = command("verify", path, "--json")
    assert result.exit_code == 1
    (check,) = json.loads(result.stdout)["checks"]
    assert check["name"] == "hashes" and check["ok"] is False
    what = "the bytes of weight 'w' do not have their hash" if "weights" in member else member
    assert what in check["told"]
    assert result.stderr == f"Error: {path}: hashes: {check['told']}\n"


def test_verify_of_what_is_no_artifact(model) -> None:
    assert "hashes: " in fails("verify", model, code=1)


def test_verify_of_routes_that_differ(file, monkeypatch) -> None:
    real = Artifact.__call__

    def wrong(self, *args):
        outputs, finals = real(self, *args)
        return [o + 1 for o in outputs], finals

    monkeypatch.setattr(Artifact, "__call__", wrong)
    text = fails("verify", file, code=1)
    assert text == f"{file}: jax.export: output0 is 1 apart at most; 4 of 4 numbers are too far"


def test_verify_of_a_process_that_fails(file, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert "new process: it ended with 1: no word" in fails("verify", file, code=1)


def test_how_far_results_are_apart() -> None:
    a = {"y": np.float32([1, np.nan, np.inf, 0])}

    def apart(b: object, tolerance: float | None = None, a: dict = a) -> str:
        return _cli_verify.difference({"y": np.asarray(b)}, a, tolerance)

    assert apart(np.float32([1, np.nan, np.inf, 0])) == "the same"
    assert apart(np.float32([1, np.nan, np.inf, 1e-6])) == "at most 1e-06 apart"
    assert apart(np.float32([2, np.nan, np.inf, 0]), 0.5) == "at most 1 apart"
    whole = {"y": np.int32([1, 2])}
    assert apart(np.int32([1, 2]), a=whole) == "the same"
    for wrong, told in [
        (np.float32([1, np.nan, np.inf, 1e-3]), "0.001 apart at most; 1 of 4 numbers are too far"),
        (np.float32([1, 0, np.inf, 0]), "inf apart at most; 1 of 4"),
        (np.float32([1, np.nan, -np.inf, 0]), "inf apart at most; 1 of 4"),
        (np.float64([1, np.nan, np.inf, 0]), "y is 4xf64 instead of 4xf32"),
        (np.float32([1]), "y is 1xf32 instead of 4xf32"),
    ]:
        with pytest.raises(Exception, match=told):
            apart(wrong)
    with pytest.raises(Exception, match="y is 1 apart at most; 1 of 2 numbers"):
        apart(np.int32([1, 3]), a=whole)
    with pytest.raises(Exception, match="it gives z instead of y"):
        _cli_verify.difference({"z": a["y"]}, a, None)


# ---------------------------------------------------------------- the parts


def test_sizes_that_meet_conditions() -> None:
    from maxjax.lower.condition import Condition

    def fit(*texts: str, **fixed: int) -> dict[str, int]:
        conditions = [Condition.parse(t) for t in texts]
        names = sorted({n for c in conditions for n in c.names})
        sizes = _cli_inputs.fitting_sizes(names, conditions, fixed)
        assert all(c.holds(sizes) for c in conditions)
        return sizes

    assert fit("n >= 1") == {"n": 2}
    assert fit("n >= 1000", "m == 3 * n") == {"n": 1000, "m": 3000}
    assert fit("n % 96 == 0") == {"n": 96}
    assert fit("a <= b", "b <= c", "c <= 1") == {"a": 1, "b": 1, "c": 1}
    assert fit("m == n + 1", n=41) == {"n": 41, "m": 42}
    with pytest.raises(_cli_text.Misused, match="no sizes were found that meet n >= 5, n <= 4"):
        fit("n >= 5", "n <= 4")


def test_time_in_nested_stages_is_counted_once() -> None:
    times = Times()
    times.add("tracing", 0.001)
    time.sleep(0.002)
    times.add("tracing", 60.0)
    assert times.stages == {"tracing": pytest.approx(60)}
    times.add("lowering", 100.0)
    assert times.stages["lowering"] == pytest.approx(40, abs=0.1)


def test_stages_on_a_terminal_are_one_line_each(capsys, monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Stages().step("Doing"):
        time.sleep(0.01)
    said = capsys.readouterr()
    assert said.out == "" and "Doing: " in said.err and said.err.count("Doing: ") == 1
    with Stages(quiet=True).step("Doing"):
        pass
    assert capsys.readouterr().err == ""


def test_numbers_as_text() -> None:
    sizes = 0, 749, 999, 1000, 2736, 12_345, 999_499, 999_999, 91e6, 1.5e15, 2e18
    assert [_cli_text.byte_text(n) for n in sizes] == [
        "0 B", "749 B", "999 B", "1.00 kB", "2.74 kB", "12.3 kB", "999 kB", "1.00 MB", "91.0 MB",
        "1.50 PB", "2000 PB",
    ]  # fmt: skip
    seconds = 0, 4e-7, 4.12e-5, 0.0123, 0.9996, 1.234, 123.4
    assert [_cli_text.duration(s) for s in seconds] == [
        "0.00 µs", "0.40 µs", "41.2 µs", "12.3 ms", "1.00 s", "1.23 s", "123 s",
    ]  # fmt: skip
    assert _cli_text.counted(1, "weight") == "1 weight"
    assert _cli_text.counted(1234, "weight") == "1,234 weights"


def test_errors_on_one_line() -> None:
    assert _cli_text.one_line(ValueError("a\n  b\x1b[2J")) == "a b\ufffd[2J"
    assert _cli_text.one_line(FileNotFoundError(2, "No such file", "x")) == "x: No such file"
    assert _cli_text.one_line(MemoryError()) == "out of memory"
    try:
        {}["key"]
    except KeyError as e:
        assert _cli_text.one_line(e).startswith("KeyError: 'key' (")


def test_what_is_unexpected_is_one_line_too(file, monkeypatch) -> None:
    monkeypatch.setattr(Artifact, "stablehlo", lambda *args: {}["gone"])
    text = fails("inspect", file, code=1)
    assert text.startswith("KeyError: 'gone' (") and "test_cli_artifact.py, line " in text


def test_an_interrupt_ends_with_130(file, monkeypatch) -> None:
    codes = []
    monkeypatch.setattr(maxjax_cli.os, "_exit", codes.append)

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Artifact, "verify", interrupted)
    result = command("verify", file)
    assert codes == [130] and result.stderr == "\nInterrupted\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_of_a_program_that_runs(model) -> None:
    model.write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    # A shell's background jobs ignore interrupts, and their children with them.
    program = (
        "import runpy, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "runpy.run_module('maxjax', run_name='__main__')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "export", "model.py:graph", "-o", "m.maxjax"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.fspath(ROOT)},
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "\nInterrupted\n")


# ---------------------------------------------------------------- the page


def test_the_page_shows_what_is_printed(tmp_path, monkeypatch) -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.M | re.S)
    monkeypatch.chdir(tmp_path)
    # The new process is tried by other tests.
    monkeypatch.setattr(_cli_verify, "_elsewhere", lambda *args: (None, "the same"))
    printed, commands = "", []
    for language, text in blocks:
        if language == "python":
            pathlib.Path("model.py").write_text(text)
        elif language == "sh":
            name, *args = shlex.split(text)
            assert name == "maxjax"
            commands.append(args[0])
            if args[0] == "bench":
                args += ["--seconds", "0"]
            printed = works(*args).stdout
        elif language == "text":
            assert _without_measures(text) == _without_measures(printed)
    assert commands == ["export", "inspect", "run", "bench", "verify"]


def _without_measures(text: str) -> list[str]:
    """The lines without versions, sizes of files, times, and how JAX writes a program."""
    text = text.partition("\nOps ")[0]
    text = re.sub(r"[\d.,]+ ?([kMGT]?B\b|µs|ms|s\b|[kMGT]?FLOP(/s)?)", "N", text)
    text = re.sub(r"(median of) [\d,]+", r"\1 N", text)
    text = re.sub(r"\b(maxjax|jaxlib|jax) \d[\w.]*", r"\1 N", text)
    return [" ".join(line.split()) for line in text.splitlines()]
