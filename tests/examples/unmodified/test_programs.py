# SPDX-License-Identifier: Apache-2.0
"""The programs of ``examples/unmodified`` print under ``maxjax run`` what they print under MAX.

What MAX 26.7.0 printed on a CPU is in the text files beside this one. Where MAX is installed in
the same environment, the programs run under it too.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PROGRAMS = sorted((ROOT / "examples" / "unmodified").glob("*.py"))
NUMBER = re.compile(r"-?\d+\.\d+")


def printed(*command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_same(text: str, recorded: str) -> None:
    assert NUMBER.sub("N", text) == NUMBER.sub("N", recorded)
    numbers, expected = ([float(n) for n in NUMBER.findall(t)] for t in (text, recorded))
    assert numbers == pytest.approx(expected, rel=1e-5, abs=1e-5)


def recorded(program: pathlib.Path) -> str:
    return pathlib.Path(__file__).with_name(f"{program.stem}.txt").read_text(encoding="utf-8")


def test_there_are_three_and_they_name_only_max() -> None:
    assert len(PROGRAMS) == 3
    for program in PROGRAMS:
        assert "maxjax" not in program.read_text(encoding="utf-8")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_it_prints_the_same(program: pathlib.Path) -> None:
    assert_same(printed("-m", "maxjax", "run", str(program)), recorded(program))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("max") is None, reason="MAX is not installed here")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_the_record_is_what_max_prints(program: pathlib.Path) -> None:
    assert_same(printed(str(program)), recorded(program))
