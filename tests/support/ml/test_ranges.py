# SPDX-License-Identifier: Apache-2.0
"""How many elements a range has, as Python and NumPy count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import export

from maxjax.graph import Dim
from maxjax.support.ml import range_num_elements

bounds = st.integers(-300, 300)
steps = st.integers(-9, 9).filter(bool)


@given(bounds, bounds, steps)
def test_as_python_counts(start, limit, step) -> None:
    count = range_num_elements(start, limit, step)
    assert count == len(range(start, limit, step)) == len(np.arange(start, limit, step))
    assert range_num_elements(np.int8(step), 5, np.int64(step)) == len(range(step, 5, step))


@given(st.integers(0, 300), st.integers(1, 9), bounds)
def test_dims_count_alike(distance, step, start) -> None:
    start_dim, limit_dim, step_dim = Dim("a"), Dim("b"), Dim("s")
    env = {"a": start, "b": start + distance, "s": step}
    expected = len(range(start, start + distance, step))
    for count in (
        range_num_elements(start_dim, limit_dim, step),
        range_num_elements(start_dim, limit_dim, step_dim),
        range_num_elements(start, limit_dim, step),
        range_num_elements(start_dim, start + distance, step_dim),
        range_num_elements(limit_dim, start_dim, -step),
    ):
        down = len(range(start + distance, start, -step))
        assert isinstance(count, Dim) and count.evaluate(env) in (expected, down)
    assert range_num_elements(limit_dim, start_dim, -step).evaluate(env) == down


def test_dims_stay_simple() -> None:
    n = Dim("n")
    assert range_num_elements(0, n) == n and range_num_elements(1, n) == n - 1
    assert range_num_elements(0, 3 * n, 3) == n
    assert str(range_num_elements(0, n, 2)) == "(n + 1) // 2"


def test_static_dims_are_integers() -> None:
    assert range_num_elements(Dim(0), Dim(10), Dim(3)) == 4
    assert type(range_num_elements(Dim(0), Dim(10))) is int
    assert range_num_elements(Dim(10), Dim(0)) == 0
    with pytest.raises(ValueError, match="has no step of 0"):
        range_num_elements(Dim(0), Dim("n"), Dim(0))


def test_dims_of_exported_programs() -> None:
    (n,) = export.symbolic_shape("n")
    assert range_num_elements(0, n) == n
    assert range_num_elements(0, 2 * n, 2) == n


def test_at_the_limit() -> None:
    assert range_num_elements(0, 2**63 - 1) == 2**63 - 1
    assert range_num_elements(-(2**63), 2**63 - 1, 3) == (2**64 - 1) // 3
    with pytest.raises(
        ValueError, match="from -1 to 9223372036854775807 by 1 has 92233720368547758"
    ):
        range_num_elements(-1, 2**63 - 1)


def test_bad_bounds() -> None:
    with pytest.raises(ValueError, match="a range from 0 to 10 has no step of 0"):
        range_num_elements(0, 10, 0)
    with pytest.raises(ValueError, match="a range from 0 to n has no step of 0"):
        range_num_elements(0, Dim("n"), 0)
    for bad in (1.0, True, "1", None, np.float32(1), 1j, [1]):
        for name, given_bounds in (
            ("start", (bad, 1, 1)),
            ("limit", (1, bad, 1)),
            ("step", (1, 1, bad)),
        ):
            with pytest.raises(TypeError, match=f"the {name} of a range is an integer or a dim"):
                range_num_elements(*given_bounds)
