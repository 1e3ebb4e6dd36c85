# SPDX-License-Identifier: Apache-2.0
"""Random small programs give what NumPy gives.

Every value of a program is an output. What is exact must be equal, the rest near. Ops that jump
(rounding, comparing, sorting, casting to integers) are only given exact operands: there a last bit
decides.

Each op is the last of as many programs as any other, so a failing test is named after an op; the
ops before it, whose results it may be given, are any. What Hypothesis shows is the shortest
program that fails, as text.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from tests.differential.program import Program
from tests.differential.registry import NOT_HERE, OPS, public_functions
from tests.differential.running import check, programs

# No time is spent on looking for smaller data than what fits on a screen already, nor on what
# the programs that fail have in common.
CALM: dict[str, Any] = {
    "suppress_health_check": (HealthCheck.too_slow, HealthCheck.data_too_large),
    "phases": [phase for phase in Phase if phase is not Phase.explain],
}
each_op = pytest.mark.parametrize("name", sorted(OPS))


# The first program of each test is the op alone, on the smallest operands.
@each_op
@settings(max_examples=2, **CALM)
@given(st.data())
def test_programs_compute_what_numpy_does(name: str, data: st.DataObject):
    check(data.draw(programs(name)))


@pytest.mark.slow
@each_op
@settings(max_examples=18, **CALM)
@given(st.data())
def test_many_programs_compute_what_numpy_does(name: str, data: st.DataObject):
    check(data.draw(programs(name)))


def test_every_public_op_is_drawn_or_has_a_reason_not_to_be():
    assert set(OPS) | set(NOT_HERE) == public_functions()
    assert not set(OPS) & set(NOT_HERE)
    assert all(NOT_HERE.values())


def smallest(strategy: st.SearchStrategy[Any]) -> Any:
    return find(strategy, lambda _: True, settings=settings(database=None))


def test_a_difference_is_shown_with_the_lines_that_lead_to_it():
    program = Program(smallest)
    for name in ("buffer_load", "sin", "buffer_store", "conv2d"):
        OPS[name](program)
    unrelated, wrong = program.steps[0], program.steps[-2]
    wrong.reference = lambda *a: [a[0] + 1]
    with pytest.raises(AssertionError) as e:
        check(program)
    shown = str(e.value).split(" in\n")[1].splitlines()
    assert shown[-1].startswith(f"{wrong.results[0].name} = b")
    assert any("ops.buffer_store(b" in line or "[...] = x" in line for line in shown)
    assert not any(unrelated.results[0].name in line or "ops.sin" in line for line in shown)


def test_the_smallest_program_is_its_op_alone():
    program = smallest(programs("conv2d"))
    (line,) = program.lines
    assert line.startswith("v1 = ops.conv2d(x1, x2, ")
