# SPDX-License-Identifier: Apache-2.0
"""maxjax answers each recorded fact as the reference did: one test per fact.

`facts/*.py` are small programs against an API root, `expected/` what the reference
answered; both, and `harness.py`, which loads and compares them, are kept as recorded.
Facts that wait for a later issue are in `later.toml`, those answered otherwise on
purpose in `disputed.toml`. A test's id is the fact's file and name, so that
`pytest -k gather` and `pytest -k "ops_shape and reshape"` do what one expects.
"""

import dataclasses
import functools
import importlib.util
import json
import pathlib
import sys
import tomllib
from typing import Any

import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent

# The fact files replayed, in the order in which a newcomer would want to see them fail.
FILES = (
    "smoke",
    "dtype",
    "dims",
    "types",
    "promotion",
    "graph",
    "shape_rules",
    "driver",
    "tree",
    "ops_elementwise",
    "ops_reduction",
    "ops_shape",
    "ops_linalg",
    "ops_indexing",
    "ops_control",
    "ops_nn",
    "weights",
    "exp_tensor",
    "exp_functional",
    "exp_compilation",
    "exp_nn",
    "exp_sharding",
    "exp_virtual",
)


def _load_harness() -> Any:
    """Imports `harness.py` under the name by which the fact files import it."""
    spec = importlib.util.spec_from_file_location("harness", HERE / "harness.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["harness"] = module
    spec.loader.exec_module(module)
    return module


def _load_facts(file: str) -> dict[str, Any]:
    harness._FACTS.clear()
    harness._load(HERE / "facts" / f"{file}.py")
    return dict(harness._FACTS)


@functools.cache
def _expected(file: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    answers = json.loads((HERE / "expected" / f"{file}.json").read_text())
    with np.load(HERE / "expected" / f"{file}.npz") as arrays:
        return answers, dict(arrays)


harness = _load_harness()
ROOT = harness.Root("maxjax")
FACTS = {file: _load_facts(file) for file in FILES}


@dataclasses.dataclass(frozen=True)
class Dispute:
    """One entry of `disputed.toml`."""

    file: str
    fact: str
    reason: str
    source: str = ""


def _listed() -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], Dispute]]:
    """The facts of `later.toml` with their issues, and those of `disputed.toml`."""
    later: dict[tuple[str, str], str] = {}
    for table, files in tomllib.loads((HERE / "later.toml").read_text()).items():
        for file, facts in files.items():
            later.update({(file, fact): table.replace("-", " ") for fact in facts})
    entries = tomllib.loads((HERE / "disputed.toml").read_text()).get("disputed", [])
    disputed = {(d.file, d.fact): d for d in (Dispute(**entry) for entry in entries)}
    return later, disputed


LATER, DISPUTED = _listed()


def difference(file: str, name: str) -> str | None:
    """Where maxjax's answer to a fact departs from the recorded one, as text, or None."""
    fact = FACTS[file][name]
    answers, arrays = _expected(file)
    value, error = harness._answer(ROOT, fact)
    own_arrays: dict[str, np.ndarray] = {}
    own = error or harness._plain(value, own_arrays, name)
    return harness._differs(answers[name], own, arrays, own_arrays, fact)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        pytest.param(file, name, id=f"{file}/{name}")
        for file in FILES
        for name in FACTS[file]
        if name in _expected(file)[0]
    ],
)
def test_fact(file: str, name: str) -> None:
    text = difference(file, name)
    if (file, name) in LATER:
        assert text, f"{name} is answered now: remove its line from later.toml"
        pytest.skip(LATER[file, name])
    if (file, name) in DISPUTED:
        assert text, f"{name} does not differ from the record: remove it from disputed.toml"
        return
    assert text is None, f"{name}{text}"


@pytest.mark.parametrize("file", FILES)
def test_every_recorded_answer_has_its_fact(file: str) -> None:
    assert _expected(file)[0].keys() <= FACTS[file].keys()


def test_listed_facts_exist() -> None:
    listed = [*LATER, *DISPUTED]
    unknown = [f"{file}: {name}" for file, name in listed if name not in FACTS.get(file, {})]
    assert not unknown, f"later.toml or disputed.toml names facts that do not exist: {unknown}"
    assert not LATER.keys() & DISPUTED.keys()


def test_every_dispute_has_a_reason() -> None:
    assert all(dispute.reason for dispute in DISPUTED.values())
