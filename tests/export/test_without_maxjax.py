# SPDX-License-Identifier: Apache-2.0
"""The loader in the documentation runs artifacts in a process that cannot import maxjax."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from examples.minilm import model as minilm
from maxjax import export
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, TensorType
from tests.export.other_process import ROOT
from tests.export.tampering import INPUTS, WEIGHTS, small

BEFORE = """
import sys
sys.modules["maxjax"] = None
"""
AFTER = """
try:
    import maxjax
except ImportError:
    pass
else:
    raise SystemExit("maxjax could be imported")
import numpy as np

path, count, *files = sys.argv[1:]
arrays = [np.load(f) for f in files]
function = load(path)
tensors, buffers = arrays[: int(count)], arrays[int(count) :]
outputs, finals = function(*tensors, buffers=buffers)
for i, array in enumerate([*outputs, *finals]):
    np.save(f"result{i}.npy", array)
print(sorted(m for m in sys.modules if m.split(".")[0] == "maxjax"))
"""


def loader():
    """The block of the page that defines it, without the call."""
    page = (ROOT / "docs" / "artifacts.md").read_text()
    section = page.partition("\n## Without maxjax\n")[2]
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    return block.partition("\noutputs, _ = ")[0]


@pytest.fixture
def call(tmp_path):
    def call(path: pathlib.Path, tensors, buffers=()):
        script = tmp_path / "script.py"
        script.write_text(BEFORE + loader() + AFTER)
        files = []
        for i, array in enumerate([*tensors, *buffers]):
            np.save(tmp_path / f"{i}.npy", array)
            files.append(f"{i}.npy")
        command = [sys.executable, script, path, str(len(tensors)), *files]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "['maxjax']"  # the one that says there is none
        found = sorted(tmp_path.glob("result*.npy"))
        return [np.load(f) for f in found]

    return call


def test_it_is_short():
    lines = [line for line in loader().splitlines() if line.strip()]
    assert 5 < len(lines) <= 15


def test_weights_and_buffers(call, tmp_path):
    path = small(tmp_path / "small")
    found, calls = call(path, INPUTS, [np.int32([4])])
    whole = np.maximum(INPUTS[0] @ WEIGHTS["layer.w"] + np.arange(4), 0) * 0.5
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, whole, rtol=1e-6)
    assert calls.tolist() == [5]


def test_no_weights(call, tmp_path):
    x = TensorType(DType.int64, ["n"], DeviceRef.CPU())
    path = export.save(Graph("g", lambda x: x * 2, [x]), tmp_path / "g")
    (found,) = call(path, [np.int64([2**40, 3])])
    assert found.tolist() == [2**41, 6]


def test_minilm(call, tmp_path):
    model = minilm.load_model(InferenceSession())
    path = export.save(model, tmp_path / "minilm")
    rng = np.random.default_rng(0)
    ids, zeros = rng.integers(0, 30_000, (3, 9)), np.zeros((3, 9), np.int64)
    (found,) = call(path, [ids, zeros + 1, zeros])
    (whole,) = model(ids, zeros + 1, zeros)
    np.testing.assert_allclose(found, whole.to_numpy(), rtol=0, atol=1e-5)
