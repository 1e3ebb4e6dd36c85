# SPDX-License-Identifier: Apache-2.0
"""Programs in a folder: read by a later process, and never a reason to fail."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, TensorType

OPTIONS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)
PROGRAM = """
import sys, numpy as np
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, TensorType
x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
model = InferenceSession(cache_dir=sys.argv[1]).load(Graph("g", lambda x: x * 2 + 1, [x]))
print(model(np.float32([1, 2]))[0].to_numpy().tolist(), model.stats.compiles, model.stats.read)
"""


@pytest.fixture(autouse=True)
def settings_of_jax():
    """The settings of the process are put back."""
    before = {name: jax.config.values[name] for name in OPTIONS}
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def load(folder, name="g"):
    x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    return InferenceSession(cache_dir=folder).load(Graph(name, lambda x: x * 2 + 1, [x]))


def result(model):
    return model(np.float32([1, 2]))[0].to_numpy().tolist()


def entries(folder):
    return [p for p in Path(folder).iterdir() if "g-" in p.name and p.name.endswith("-cache")]


def test_a_second_process_reads_what_the_first_compiled(tmp_path):
    told = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert told == ["[3.0, 5.0] 1 0", "[3.0, 5.0] 1 1"]


def test_small_programs_are_kept_and_read(tmp_path):
    first = load(tmp_path / "new" / "folder")
    assert result(first) == [3, 5] and first.stats.read == 0
    assert len(entries(tmp_path / "new" / "folder")) == 1
    again = load(str(tmp_path / "new" / "folder"))
    assert result(again) == [3, 5]
    assert (again.stats.compiles, again.stats.read) == (1, 1)


def test_another_folder_takes_the_place_of_the_first(tmp_path):
    result(load(tmp_path / "a"))
    model = load(tmp_path / "b")
    assert result(model) == [3, 5] and model.stats.read == 0
    assert len(entries(tmp_path / "b")) == 1


def damaged(data, how):
    match how:
        case "empty":
            return b""
        case "short":
            return data[: len(data) // 2]
        case "other":
            return b"no entry at all"
    place = int(how) % len(data)
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


@pytest.mark.parametrize("how", ["empty", "short", "other", "0", "1", "40", "400", "1001", "-3"])
def test_a_damaged_entry_is_compiled_again(tmp_path, how):
    result(load(tmp_path))
    (entry,) = entries(tmp_path)
    entry.write_bytes(damaged(entry.read_bytes(), how))
    model = load(tmp_path)
    with pytest.warns(UserWarning, match="Error reading persistent compilation cache entry"):
        assert result(model) == [3, 5]
    assert (model.stats.compiles, model.stats.read) == (1, 0)
    assert result(model) == [3, 5]


def test_an_entry_of_another_jaxlib_is_not_read(tmp_path, monkeypatch):
    result(load(tmp_path))
    monkeypatch.setattr("jax._src.cache_key.jaxlib_version_str", "0.0.1")
    model = load(tmp_path)
    assert result(model) == [3, 5] and model.stats.read == 0
    assert len(entries(tmp_path)) == 2


def test_a_folder_that_is_a_file_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    model = load(tmp_path / "file")
    with pytest.warns(UserWarning, match="persistent compilation cache"):
        assert result(model) == [3, 5]
    assert result(model) == [3, 5]


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch):
    # Not by its mode: root may write everywhere.
    def refuse(self, key, value):
        raise PermissionError(13, "Permission denied", key)

    monkeypatch.setattr("jax._src.lru_cache.LRUCache.put", refuse)
    model = load(tmp_path)
    with pytest.warns(UserWarning, match="Error writing persistent compilation cache entry"):
        assert result(model) == [3, 5]


@pytest.mark.parametrize("wrong", [3, b"/tmp", ["a"]])
def test_what_is_no_folder(wrong):
    with pytest.raises(TypeError):
        InferenceSession(cache_dir=wrong)
