# SPDX-License-Identifier: Apache-2.0
"""What a graph needs of its sizes, and its dimensions as those of JAX."""

import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, Weight, ops
from maxjax.lower import to_jax
from maxjax.lower.condition import Condition
from maxjax.lower.symbolic import needed, specs, symbols

CPU = DeviceRef.CPU()


def lowered(f, *shapes):
    return to_jax(Graph("g", f, [TensorType(DType.float32, s, CPU) for s in shapes]))


def texts(conditions):
    return [str(c) for c in conditions]


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("n >= 2", {"n": 2}, {"n": 1}),
        ("n <= 8", {"n": 8}, {"n": 9}),
        ("n % 4 == 0", {"n": 8}, {"n": 6}),
        ("(n + m) % 3 == 1", {"n": 3, "m": 1}, {"n": 3, "m": 2}),
        ("n == 2 * m", {"n": 6, "m": 3}, {"n": 6, "m": 4}),
        ("n * m - 4 >= 0", {"n": 2, "m": 2}, {"n": 1, "m": 3}),
    ],
)
def test_conditions(text, yes, no):
    condition = Condition.parse(text)
    assert condition.holds(yes) and not condition.holds(no)
    assert Condition.parse(str(condition)) == condition


@pytest.mark.parametrize("text", ["", "n", "n > 2", "n >= ", "2 n >= 1", "n % m == 0", None, 3])
def test_what_is_no_condition(text):
    with pytest.raises(ValueError, match="no condition on sizes"):
        Condition.parse(text)


@pytest.mark.parametrize(
    ("f", "shapes", "expected"),
    [
        (lambda x: x * 2, [["n"]], []),
        (lambda x: x[1:-1], [["n"]], ["n >= 2"]),
        (lambda x: x[2:][1:], [["n"]], ["n >= 2", "n >= 3"]),
        (lambda x, y: x + y.rebind(["n"]), [["n"], ["m"]], ["m == n"]),
        (lambda x: x.rebind([4]), [["n"]], ["n == 4"]),
        (lambda x: ops.flatten(x)[8:], [["n", "m"]], ["(m * n) + -8 >= 0"]),
        (lambda x: x[: x.shape[0] // 2], [["n"]], []),
    ],
)
def test_what_a_graph_needs(f, shapes, expected):
    assert texts(needed(lowered(f, *shapes))) == expected


def test_names_of_subgraphs_and_weights_count_and_new_ones_do_not():
    w = Weight("w", DType.float32, ["m"], CPU)

    def build(x):
        body = Graph.current.add_subgraph("body", lambda v: v[1:-1], [x.type])
        return [ops.call(body, x)[0], w[3:], ops.nonzero(x, "found")[1:]]

    assert texts(needed(lowered(build, ["n"]))) == ["n >= 2", "m >= 3"]


def test_symbols_know_their_conditions():
    fn = lowered(lambda x, y: x[1:] + y.rebind(["n"])[1:], ["n"], ["m"])
    found = symbols(fn.signature, [*needed(fn), Condition.parse("n % 4 == 0")])
    n = found.sizes["n"]
    assert found.sizes["m"] is n
    assert n % 4 == 0 and n >= 1
    assert texts(found.conditions) == ["n >= 1", "m == n", "n % 4 == 0"]
    assert [s.shape for s in specs(fn.signature.inputs, found.sizes)] == [(n,), (n,)]


def test_a_name_that_can_only_be_a_number_is_one():
    fn = lowered(lambda x, y: ops.concat([x, y]).rebind([7]), ["n"], [4])
    assert texts(needed(fn)) == ["n + 4 == 7"]
    fn = lowered(lambda x: x.rebind([4]), ["n"])
    assert symbols(fn.signature, needed(fn)).sizes == {"n": 4}


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        (["k >= 2"], "is about k, but the dimensions of inputs and weights are n, m"),
        (["n == 4", "n >= 5"], "contradicts the others"),
    ],
)
def test_conditions_that_cannot_be(conditions, text):
    fn = lowered(lambda x, y: [x, y], ["n"], ["m"])
    with pytest.raises(ValueError, match=text):
        symbols(fn.signature, [Condition.parse(c) for c in conditions])


def test_names_that_are_words_of_jax():
    fn = lowered(lambda x: x[1:], ["mod", "max"])
    found = symbols(fn.signature, needed(fn))
    assert list(found.sizes) == ["mod", "max"]
    assert found.sizes["mod"] != found.sizes["max"]
