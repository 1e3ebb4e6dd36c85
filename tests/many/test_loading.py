# SPDX-License-Identifier: Apache-2.0
"""Weights go from a file to the devices part by part: there is never another copy of them."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).parents[2]

LOADS = """
import json, sys
from maxjax import driver
driver.set_virtual_device_count(4)
import numpy as np
from maxjax.driver import Accelerator
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, ShardingStrategy, Weight, ops
from maxjax.graph.weights import load_weights

def anonymous():
    # What is not a page of a mapped file, in bytes.
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(l.split()[1]) for l in lines if l.startswith("RssAnon"))

gpus = [DeviceRef.GPU(i) for i in range(4)]
weights = load_weights([sys.argv[1]])
with Graph("g") as graph:
    outputs = []
    for k in range(8):
        w = weights[f"w{k}"].allocate(device=DeviceRef.CPU())
        strategy = ShardingStrategy.columnwise if k % 2 else ShardingStrategy.rowwise
        w.sharding_strategy = strategy(4)
        outputs.append([ops.sum(ops.sum(part, 0), 1) for part in w.shard(gpus)])
    graph.output(*[part for row in outputs for part in row])
import jax
jax.device_put(np.zeros(1)).block_until_ready()
session = InferenceSession([Accelerator(i) for i in range(4)])
before = anonymous()
model = session.load(graph, weights_registry=weights.allocated_weights)
grown = anonymous() - before
sums = [float(o.to_numpy().reshape(())) for o in model()]
print(json.dumps({"grown": grown, "sums": sums, "path": model.plan.path,
                  "bytes": model.plan.weight_bytes}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells what is mapped from files")
def test_each_device_has_its_parts_and_nothing_is_there_twice(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {f"w{k}": rng.normal(size=(2048, 2048)).astype(np.float32) for k in range(8)}
    path = tmp_path / "weights.safetensors"
    save_file(arrays, path)
    done = subprocess.run(
        [sys.executable, "-c", LOADS, str(path)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    total = sum(a.nbytes for a in arrays.values())
    assert found["path"] == "one program on all devices"
    assert set(found["bytes"].values()) == {total // 4}
    assert found["grown"] <= 1.2 * total
    want = []
    for k in range(8):
        want += [p.sum() for p in np.array_split(arrays[f"w{k}"].astype(np.float64), 4, axis=k % 2)]
    np.testing.assert_allclose(found["sums"], want, rtol=1e-3, atol=0.05)
