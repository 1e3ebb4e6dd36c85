# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the benchmarks; no test here depends on how fast anything is."""

import json

import pytest

from benchmarks._measure import Result, Timing, Worker, at_most, in_turns, ratio, stopwatch


def test_sides_take_turns_in_alternating_order():
    order = []

    def side(name, seconds):
        def run():
            order.append(name)
            return seconds

        return run

    a, b = in_turns(3, side("a", 1.0), side("b", 2.0))
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert (a.samples, b.samples) == ((1.0,) * 3, (2.0,) * 3)


def test_ratio_is_taken_between_neighbours():
    # The machine gets slower; each pair still says 2.
    slowing = Timing((2.0, 20.0, 200.0)), Timing((1.0, 10.0, 100.0))
    assert ratio(*slowing) == 2.0
    assert at_most(2.0, *slowing)
    assert not at_most(1.9, *slowing)


def test_at_most_allows_a_constant_more():
    a, b = Timing((1.5,) * 3), Timing((1.0,) * 3)
    assert not at_most(1.2, a, b)
    assert at_most(1.2, a, b, plus=0.4)


def test_timing():
    timing = Timing((1.0, 2.0, 3.0, 4.0, 5.0))
    assert timing.median == 3.0
    assert timing.quartiles == (2.0, 4.0)
    assert Timing((7.0,)).quartiles == (7.0, 7.0)


def test_stopwatch_counts_calls():
    calls = []
    assert stopwatch(lambda: calls.append(1), calls=5)() >= 0
    assert len(calls) == 5


def test_result_as_json():
    result = Result("r", Timing((2.0,)), {"other": Timing((1.0,))}, target="<= 1x", held=False)
    kept = json.loads(json.dumps(result.as_json()))
    assert kept["maxjax"] == {"median_s": 2.0, "quartiles_s": [2.0, 2.0], "runs": 1}
    assert kept["others"]["other"]["ratio"] == 2.0
    assert (kept["target"], kept["held"]) == ("<= 1x", False)


WORKER = """
import json, sys
print(json.dumps(sys.argv[1]), flush=True)
for line in sys.stdin:
    print(json.dumps(line.strip() * 2), flush=True)
"""


def test_worker_answers_line_by_line(tmp_path):
    (tmp_path / "echo.py").write_text(WORKER)
    with Worker("echo", "hello", cwd=tmp_path) as worker:
        assert worker.ready == "hello"
        assert worker.startup > 0
        assert [worker.ask("a"), worker.ask("b")] == ["aa", "bb"]


def test_worker_that_dies(tmp_path):
    (tmp_path / "dies.py").write_text("raise SystemExit(3)")
    with pytest.raises(RuntimeError, match=r"dies.* ended with code 3"):
        Worker("dies", cwd=tmp_path)
