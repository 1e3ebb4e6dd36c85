# SPDX-License-Identifier: Apache-2.0
"""Registering kernels: names, replacement, and who a registration belongs to."""

import functools
import pathlib
import subprocess
import sys

import jax
import pytest

import maxjax
from maxjax import kernels


def double(x):
    return x * 2


def triple(x):
    return x * 3


@pytest.fixture
def found():
    """Kernels registered in a test go here, and not into the process."""
    with kernels.collecting() as found:
        yield found


def test_the_decorator_returns_the_function_as_it_is(found):
    assert maxjax.kernel("double")(double) is double
    assert found["double"].function is double


def test_a_kernel_says_where_it_comes_from(found):
    maxjax.kernel("double", shape=lambda x: x.shape)(double)
    line = double.__code__.co_firstlineno
    assert found["double"].origin == f"{pathlib.Path(__file__)}:{line}"
    assert str(found["double"]) == f"'double' ({__file__}:{line})"


@pytest.mark.parametrize("wrap", [jax.jit, functools.partial, functools.lru_cache])
def test_the_origin_is_that_of_the_function_inside(found, wrap):
    maxjax.kernel("wrapped")(wrap(double))
    assert found["wrapped"].origin.endswith(f"test_kernels.py:{double.__code__.co_firstlineno}")


def test_an_object_can_be_a_kernel(found):
    class Scale:
        def __call__(self, x):
            return x * 2

    maxjax.kernel("scale")(Scale())
    assert found["scale"].origin.endswith("Scale")
    with pytest.raises(ValueError, match="two kernels are called 'scale'"):
        maxjax.kernel("scale")(Scale())


def test_a_function_can_have_two_names(found):
    maxjax.kernel("a")(maxjax.kernel("b")(double))
    assert sorted(found) == ["a", "b"]


def test_another_function_under_a_name_that_is_taken(found):
    maxjax.kernel("same")(double)
    with pytest.raises(ValueError, match=r"called 'same': one from .*:\d+, one from .*:\d+; ren"):
        maxjax.kernel("same")(triple)
    assert found["same"].function is double


def test_the_same_function_defined_again_takes_the_place_of_the_first(found):
    def define(factor):
        @maxjax.kernel("again")
        def again(x):
            return x * factor

        return again

    define(2)
    second = define(3)
    assert found["again"].function is second


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: maxjax.kernel(double), TypeError, r"is a string, not .*write @kernel\(\"name\"\)"),
        (lambda: maxjax.kernel(3), TypeError, r"is a string, not 3$"),
        (lambda: maxjax.kernel(""), ValueError, "is empty"),
        (
            lambda: maxjax.kernel("x", shape=(2,)),
            TypeError,
            r"shape function of .*\(2,\)",
        ),
        (lambda: maxjax.kernel("x")(7), TypeError, "kernel 'x' is not a function: 7"),
    ],
)
def test_wrong_registrations_are_refused(found, make, error, text):
    with pytest.raises(error, match=text):
        make()
    assert not found


def test_collecting_nests_and_ends_on_errors():
    before = dict(kernels.registered())
    with pytest.raises(KeyError), kernels.collecting() as outer:
        with kernels.collecting() as inner:
            maxjax.kernel("inner")(double)
        maxjax.kernel("outer")(double)
        raise KeyError
    assert list(inner) == ["inner"] and list(outer) == ["outer"]
    assert dict(kernels.registered()) == before


def test_the_registry_cannot_be_changed_past_the_decorator():
    with pytest.raises(TypeError):
        kernels.registered()["x"] = None


def test_registering_needs_no_jax():
    program = "import sys, maxjax; maxjax.kernel('x')(abs); print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
