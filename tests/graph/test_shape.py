# SPDX-License-Identifier: Apache-2.0
"""Shapes: a list that holds dims, and its text."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxjax.graph.dim import Dim, StaticDim
from maxjax.graph.shape import Shape, parse_shape

x, y = Dim("x"), Dim("y")


def test_every_element_becomes_a_dim():
    shape = Shape(iter([2, "x", y + 1, np.int32(4)]))
    assert all(isinstance(dim, Dim) for dim in shape)
    assert shape == [2, x, 1 + y, 4] and shape != (2, x, 1 + y, 4)
    assert Shape() == [] and Shape("ab") == ["a", "b"]


@pytest.mark.parametrize("dims", [3, None, 2.5, Dim(3)])
def test_not_a_list_of_dims(dims):
    with pytest.raises(TypeError, match=r"a shape is made from dims to iterate over, .* not from"):
        Shape(dims)


def test_elements_that_are_no_dims():
    with pytest.raises(
        TypeError, match="a dim is made from an int, a name or a Dim, not from list"
    ):
        Shape([[1]])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="'a b' is not the name of a dim"):
        Shape(["a b"])


def test_what_a_shape_says_of_itself():
    shape = Shape(["x", 3, x + y, 4])
    assert shape.rank == 4 and shape.static_dims == [3, 4]
    assert [p.name for p in shape.parameters] == ["x", "x", "y"]
    assert type(shape.static_dims[0]) is int
    assert repr(shape) == "[Dim('x'), Dim(3), Dim('x') + Dim('y'), Dim(4)]"


@pytest.mark.parametrize(
    ("dims", "static"), [([], True), ([0, 2], True), ([2, "x"], False), ([-1], False)]
)
def test_is_static(dims, static):
    assert Shape.is_static(Shape(dims)) is static


def test_changing_a_shape_leaves_its_source_alone():
    source = Shape([1, 2])
    shape = Shape(source)
    shape[0] = StaticDim(9)
    shape.append(x)
    assert source == [1, 2] and shape == [9, 2, "x"] and shape.rank == 3


def test_slices_and_sums_are_lists():
    shape = Shape([1, "x", 3])
    assert type(shape[1:]) is list and type(shape + shape) is list and shape[1:] == [x, 3]


def test_copies():
    shape = Shape([1, "x", (x + 1) // 2])
    for other in (copy.copy(shape), copy.deepcopy(shape), pickle.loads(pickle.dumps(shape))):
        assert type(other) is Shape and other == shape and other is not shape


def test_evaluate():
    assert Shape(["x", 3, x // 2]).evaluate({"x": 5}) == (5, 3, 2)
    with pytest.raises(KeyError, match="dim 'x' has no size here"):
        Shape([3, "x"]).evaluate({})


dims = st.one_of(
    st.integers(0, 99),
    st.sampled_from(["x", "_n1", "batch"]),
    st.sampled_from([x + 1, (x + y) // 3 * 2, x * y - 4, 7 // x]),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(dims, max_size=5))
def test_text_reads_back(parts):
    shape = Shape(parts)
    assert parse_shape(shape.brief()) == shape


def test_text():
    assert Shape(["batch", 3, (x + 1) // 2]).brief() == "[batch, 3, (x + 1) // 2]"
    assert Shape().brief() == "[]" and parse_shape(" [ ] ") == []
    assert parse_shape("[x,2 ]") == ["x", 2]


@pytest.mark.parametrize(
    ("text", "problem", "column"),
    [
        ("", r"expected '\['", 1),
        (" 3, 4", r"expected '\['", 2),
        ("[", r"expected '\]'", 2),
        ("[3, 4", r"expected '\]'", 6),
        ("[3, 4x]", "expected an operator or the end, found 'x'", 6),
        ("[3,, 4]", "expected a name, a number or '\\('", 4),
        (" [3,]", "expected a name, a number or '\\('", 5),
        ("[3, [4]]", "unexpected '\\['", 5),
    ],
)
def test_bad_text(text, problem, column):
    with pytest.raises(ValueError, match=f"cannot read .*{problem}.* at column {column}$"):
        parse_shape(text)
