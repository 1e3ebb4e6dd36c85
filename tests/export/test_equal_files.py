# SPDX-License-Identifier: Apache-2.0
"""Equal graphs are equal files, whoever writes them and where; no path of a machine is inside."""

import os
import subprocess
import sys

import pytest

from maxjax import export
from tests.export.other_process import ROOT
from tests.export.tampering import members

PROGRAM = """
import sys
import numpy as np
import maxjax
from maxjax import export
from maxjax.dtype import DType
from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, Weight, ops

CPU = DeviceRef.CPU()


@maxjax.kernel("twice")
def twice(x):
    return x * 2


def body(x):
    w = Weight("w", DType.float32, [4, 4], CPU)
    return ops.softmax(x @ w)


def build(x, calls):
    calls[...] = calls[...] + 1
    shared = Graph.current.add_subgraph("body", body, [x.type])
    for _ in range(2):
        (x,) = ops.call(shared, x)
    x = ops.custom("twice", CPU, [x], [x.type])[0] + Weight("b", DType.float32, [4], CPU)
    zero = ops.constant(0, DType.int32, CPU)
    x = ops.while_loop([zero, x], lambda i, x: i < 3, lambda i, x: [i + 1, x * x])[1]
    ops.random.set_seed(7)
    return [x + ops.random.uniform(x.type), *ops.top_k(x, 2)]


types = [TensorType(DType.float32, ["n", 4], CPU), BufferType(DType.int32, [1], CPU)]
weights = {}
for name, shape in {("w", (4, 4)), ("b", (4,))}:  # in no order
    weights[name] = np.ones(shape, np.float32)
export.save(
    Graph("equal", build, types),
    sys.argv[1],
    weights_registry=weights,
    specialize={"n": [2]},
    debug_info=len(sys.argv) > 2,
)
"""


def saved(folder, name, seed, *options):
    """What such a program writes: a file of another name, run in another folder."""
    place = folder / name
    place.mkdir()
    script = place / f"script_{name}.py"
    script.write_text(PROGRAM)
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, script.name, f"{name}.maxjax", *options]
    subprocess.run(command, cwd=place, env=env, check=True)
    return place / f"{name}.maxjax"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("folder_of_artifacts")


def test_two_processes_in_two_folders_write_equal_files(folder):
    one, two = (saved(folder, name, seed) for name, seed in (("one", "1"), ("two", "2")))
    content = one.read_bytes()
    assert content == two.read_bytes()
    for word in (str(folder), "script_one", ".py", str(ROOT), "site-packages", sys.prefix):
        assert word.encode() not in content, word


def test_files_and_lines_are_inside_when_asked_for(folder):
    path = saved(folder, "debug", "1", "debug")
    (line,) = [i for i, t in enumerate(PROGRAM.splitlines(), 1) if "ops.random.uniform" in t]
    artifact = export.inspect(path)
    for text in (members(path)["module.jax_export"], artifact.stablehlo("cpu")):
        assert f"script_debug.py:{line}".encode() in text
