# SPDX-License-Identifier: Apache-2.0
"""`maxjax.tree`: nodes, structures, paths, ties, cycles, dataclasses, errors."""

import dataclasses
import pickle
import re
from collections import Counter, OrderedDict, defaultdict, namedtuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from maxjax import tree
from maxjax.tree import TreeDef

Point = namedtuple("Point", "x y")


class Layer:
    """Named children, built from them."""

    def __init__(self, weight, bias=None, eps=1):
        self.weight, self.bias, self.eps = weight, bias, eps

    def __tree_flatten__(self):
        return {"weight": self.weight, "bias": self.bias}, self.eps

    @classmethod
    def __tree_unflatten__(cls, meta, children):
        return cls(children["weight"], children["bias"], meta)

    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None


class Pair:
    """Positional children, which may be written."""

    def __init__(self, first, second):
        self.items = [first, second]

    def __tree_flatten__(self):
        return tuple(self.items), None

    def __tree_setattr__(self, key, value):
        self.items[key] = value

    @classmethod
    def __tree_unflatten__(cls, meta, children):
        return cls(*children)


class Shell:
    """Built before its children."""

    def __init__(self, tag, **kids):
        self.tag, self.kids = tag, kids

    def __tree_flatten__(self):
        return dict(self.kids), self.tag

    @classmethod
    def __tree_empty__(cls, tag):
        return cls(tag)

    def __tree_setattr__(self, key, value):
        self.kids[key] = value


class OneWay:
    """Neither built nor written."""

    def __tree_flatten__(self):
        return (1,), None


def back(value, **kwargs):
    leaves, treedef = tree.flatten(value, **kwargs)
    return tree.unflatten(treedef, leaves)


# ---------------------------------------------------------------- taking apart and back


@pytest.mark.parametrize(
    ("value", "leaves", "paths"),
    [
        (5, [5], [""]),
        (None, [None], [""]),
        ([1, (2, {"k": 3})], [1, 2, 3], ["0", "1.0", "1.1.k"]),
        ({"b": 1, "a": 2}, [2, 1], ["a", "b"]),
        ({1: "x", 0: "y"}, ["y", "x"], ["0", "1"]),
        (OrderedDict(b=1, a=2), [1, 2], ["b", "a"]),
        (defaultdict(list, z=1, y=[2]), [2, 1], ["y.0", "z"]),
        (Point(1, [2]), [1, 2], ["x", "y.0"]),
        (Layer(1, [2, 3], eps=7), [1, 2, 3], ["weight", "bias.0", "bias.1"]),
        (([], {}, ()), [], []),
        ({"": 1}, [1], [""]),
        ({"a": {"": 5}}, [5], ["a"]),
    ],
    ids=lambda v: re.sub(r" at 0x\w+", "", repr(v)),
)
def test_leaves_paths_and_round_trip(value, leaves, paths):
    assert tree.leaves(value) == leaves
    assert list(tree.paths(value)) == paths
    assert list(tree.paths(value).values()) == leaves
    again = back(value)
    assert type(again) is type(value)
    assert again == value
    assert list(tree.leaves(again)) == leaves


def test_subclasses_of_containers_are_leaves_unless_they_declare_the_protocol():
    class Stack(list):
        def __tree_flatten__(self):
            return tuple(self), "meta"

        @classmethod
        def __tree_unflatten__(cls, meta, children):
            return cls([meta, *children])

    for value in (Counter("aa"), type("MyList", (list,), {})(), type("T", (tuple,), {})(), Layer):
        assert not tree.is_node(value)
    assert tree.is_node(Stack())
    assert tree.map(lambda v: v, Stack([1])) == ["meta", 1]


@given(
    st.recursive(
        st.integers() | st.none() | st.text(),
        lambda kids: (
            st.lists(kids)
            | st.lists(kids).map(tuple)
            | st.dictionaries(st.text(min_size=1), kids)
            | st.builds(Point, kids, kids)
            | st.builds(Layer, kids, kids)
        ),
    )
)
def test_any_tree_comes_back(value):
    leaves, treedef = tree.flatten(value)
    assert tree.unflatten(treedef, leaves) == value
    assert treedef.num_leaves == len(leaves) == len(treedef.leaf_paths)
    assert treedef.flatten_up_to(value) == leaves
    again = tree.flatten(value)[1]
    assert (again, hash(again)) == (treedef, hash(treedef))
    assert tree.leaves(value, shared=True) == leaves
    with pytest.raises(ValueError, match=f"too many leaves: the structure has {len(leaves)}"):
        tree.unflatten(treedef, [*leaves, 0])
    if leaves:
        with pytest.raises(ValueError, match=f"too few leaves: the structure has {len(leaves)}"):
            tree.unflatten(treedef, leaves[1:])


def test_an_iterator_keeps_the_leaves_left_over():
    source = iter([1, 2, 3])
    treedef = tree.flatten([0, 0])[1]
    assert tree.unflatten(treedef, source, exact=False) == [1, 2]
    assert list(source) == [3]


def test_one_level():
    assert tree.flatten_one_level(Layer(1, 2, 7)) == ((1, 2), ("weight", "bias"), 7)
    assert tree.flatten_one_level(Pair(1, 2)) == ((1, 2), (), None)
    assert tree.flatten_one_level(defaultdict(int, a=1))[2] == (defaultdict, (int,))
    for leaf in (5, "abc", Layer):
        with pytest.raises(TypeError, match="expected a list, tuple, dict or a class"):
            tree.flatten_one_level(leaf)


def test_unsortable_keys():
    for value in ({"a": 1, 2: 3}, [defaultdict(int, {"a": 1, 2: 3})]):
        with pytest.raises(TypeError, match="keys of the types int, str can't be sorted"):
            tree.flatten(value)
    assert tree.leaves(OrderedDict([("a", 1), (2, 3)])) == [1, 3]


# ---------------------------------------------------------------- picking leaves


def test_leaf_picks_by_type_types_or_predicate():
    value = [1, "a", [2.5, None]]
    assert tree.leaves(value, leaf=int) == [1]
    assert tree.leaves(value, leaf=(int, str)) == [1, "a"]
    assert tree.leaves(value, leaf=lambda v: v is None) == [None]
    assert tree.leaves([[1], [2, 3]], leaf=lambda v: isinstance(v, list) and len(v) == 1) == [[1]]
    assert tree.leaves(value, leaf=()) == []
    kinds = [c.kind for c in tree.flatten(value, leaf=int)[1].children]
    assert kinds == ["leaf", "static", "list"]
    assert tree.map(str, value, leaf=int) == ["1", "a", [2.5, None]]
    for selector in ("int", [int], 5):
        with pytest.raises(TypeError, match="expected a type, a tuple of types or a predicate"):
            tree.flatten(value, leaf=selector)


def test_as_predicate_of_none_is_the_default():
    assert tree.as_predicate(None, str.isdigit) is str.isdigit


# ---------------------------------------------------------------- structures


def test_structures_compare_by_value():
    def treedef(value, **kwargs):
        return tree.flatten(value, **kwargs)[1]

    assert treedef([1, {"a": 2}]) == treedef(["x", {"a": None}])
    different = [[1], (1,), [1, 2], {"a": 1}, {"b": 1}, OrderedDict(a=1), Layer(1), Layer(1, eps=2)]
    assert len({treedef(value) for value in different}) == len(different)
    assert treedef([1, "a"], leaf=int) != treedef([1, "b"], leaf=int)
    array, other = np.ones(2), np.ones(2)
    assert treedef([1, array], leaf=int) == treedef([2, array], leaf=int)
    assert treedef([1, array], leaf=int) != treedef([1, other], leaf=int)
    assert treedef([1, {2}], leaf=int) == treedef([1, {2}], leaf=int)
    assert treedef([1]) != "list"
    assert pickle.loads(pickle.dumps(treedef([1, {"a": 2}]))) == treedef([1, {"a": 2}])
    with pytest.raises(dataclasses.FrozenInstanceError):
        treedef(1).kind = "x"


def test_flatten_up_to_says_where_the_structures_part():
    treedef = tree.flatten({"a": [1, "k"], "b": Layer(1)}, leaf=int)[1]
    good = {"a": [(), "k"], "b": Layer({})}
    assert treedef.flatten_up_to(good) == [(), {}]
    for change, text in [
        ({"a": ((), "k")}, r"at 'a': expected a list, got tuple"),
        ({"a": [0]}, r"at 'a': expected 2 children, got 1"),
        ({"a": [0, "x"]}, r"at 'a.1': expected 'k', got 'x'"),
        ({"a": 5}, r"at 'a': expected a list, got int"),
        ({"b": Layer(1, eps=2)}, r"at 'b': expected .*Layer'>, 1\), got .*Layer'>, 2\)"),
        ({"c": 0}, r"at the root: expected the keys \('a', 'b'\), got \('a', 'b', 'c'\)"),
    ]:
        with pytest.raises(ValueError, match=text):
            treedef.flatten_up_to(good | change)
    with pytest.raises(ValueError, match="at 'here': expected a dict, got list"):
        treedef.flatten_up_to([], "here")


@pytest.mark.parametrize(
    ("treedef", "text"),
    [
        (TreeDef("mystery"), "a TreeDef of kind 'mystery' is none that flatten makes"),
        (TreeDef("ref", meta=3), "a ref to slot 3 is none that flatten makes"),
        (TreeDef("ref", meta="x"), "a ref to slot 'x' is none"),
        (TreeDef("list", (TreeDef("ref", meta=-1),)), "a ref to slot -1 is none"),
    ],
)
def test_structures_that_flatten_does_not_make(treedef, text):
    with pytest.raises(ValueError, match=text):
        tree.unflatten(treedef, [])


def test_nodes_that_cannot_be_built():
    with pytest.raises(TypeError, match="OneWay declares __tree_flatten__ but neither"):
        tree.map(lambda v: v, OneWay())


# ---------------------------------------------------------------- map, paths, nodes


def test_map_over_several_trees():
    assert tree.map(lambda a, b: (a, b), {"a": 1, "b": 2}, {"b": 3, "a": [4]}) == {
        "a": (1, [4]),
        "b": (2, 3),
    }
    with pytest.raises(ValueError, match="map: tree 3 is not of the structure of tree 1, at '1'"):
        tree.map(lambda *a: a, [1, [2]], [1, [2]], [1, 2])
    with pytest.raises(ZeroDivisionError):
        tree.map(lambda v: 1 / v, [0])


@pytest.mark.parametrize(
    "value",
    [{"a": {"b": 1}, "a.b": 2}, {"": {"x": 1}, "x": 2}, {"a": {"": 1, "c": 2}, "a.c": 3}],
)
def test_two_leaves_of_one_path(value):
    with pytest.raises(ValueError, match=r"two leaves have the path '(a\.b|x|a\.c)'; rename"):
        tree.paths(value)


def test_extend_path():
    assert [tree.extend_path(*args) for args in [("a", "b"), ("", 0), ("a", ""), ("a", None)]] == [
        "a.b",
        "0",
        "a",
        "a.None",
    ]


def test_nodes_by_path():
    value = {"a": Layer([1]), "b": Layer(Layer(2))}
    assert list(tree.nodes(value, Layer)) == ["a", "b", "b.weight"]
    assert tree.nodes(value, Layer)["b.weight"] is value["b"].weight
    assert list(tree.nodes(value, (int, list))) == ["a.weight", "a.weight.0", "b.weight.weight"]
    assert list(tree.nodes(value, list, leaf=Layer)) == []
    assert list(tree.nodes([1, "a"], str, leaf=int)) == ["1"]
    twice = [value["a"], value["a"]]
    assert list(tree.nodes(twice, Layer)) == ["0", "1"]
    assert list(tree.nodes(twice, Layer, shared=True)) == ["0"]
    assert tree.nodes({"": [1]}, (list, dict)) == {"": [1]}


# ---------------------------------------------------------------- update


def test_update_writes_in_place_and_rebuilds_tuples():
    inner, layer = [1, (2, Point(3, 4))], Layer((5, 6))
    value = {"a": inner, "b": layer, "p": Pair(7, 8)}
    out = tree.update(
        value, {"a.1.1.y": 40, "a.0": None, "b.weight.0": 50, "p.1": 80, "b.bias": "new"}
    )
    assert out is value
    assert inner == [None, (2, Point(3, 40))]
    assert (layer.weight, layer.bias) == ((50, 6), "new")
    assert value["p"].items == [7, 80]


def test_update_gives_back_what_replaces_a_tuple_or_a_leaf():
    kept = (1, [2])
    assert tree.update(kept, {"1.0": 3}) is kept
    assert tree.update((1, 2), {"0": 5}) == (5, 2)
    assert tree.update(5, {"": 6}) == 6
    assert tree.update([1], {"0": [2]}) == [[2]]


def test_update_of_unknown_paths_names_them_after_writing_the_others():
    value = [1, {"k": 2}]
    with pytest.raises(ValueError, match=r"update: the tree has no leaf at '7', '1'; paths"):
        tree.update(value, {"0": 9, "7": 1, "1": 2})
    assert value == [9, {"k": 2}]
    with pytest.raises(ValueError, match="no leaf at the root"):
        tree.update([1], {"": 2})
    with pytest.raises(ValueError, match="no leaf at '1'"):
        tree.update([1, "x"], {"1": "y"}, leaf=int)


def test_update_of_a_child_without_a_name():
    with pytest.raises(TypeError, match="child 0 of OneWay has no name to set it by"):
        tree.update(OneWay(), {"0": 5})


def test_update_of_tied_places():
    array, pair = np.ones(2), ([0], 1)
    assert tree.update([array, {"k": array}], {"0": 8}, shared=True) == [8, {"k": 8}]
    with pytest.raises(ValueError, match=r"no leaf at '1\.k'"):
        tree.update([array, {"k": array}], {"1.k": 8}, shared=True)
    # Tuples are never tied, in update as in paths: each place has its own path.
    both = tree.update([pair, pair], {"0.1": 8, "1.1": 9}, shared=True)
    assert both == [([0], 8), ([0], 9)]
    loop = [1]
    loop.append(loop)
    assert tree.update(loop, {"0": 2}) is tree.update(loop, {"0": 2}, shared=True) is loop
    assert loop[0] == 2


# ---------------------------------------------------------------- ties and cycles


def test_shared_objects_are_one_leaf_or_node_and_stay_one_object():
    array, inner = np.ones(2), [1]
    leaves, treedef = tree.flatten([array, {"k": array}, inner, inner], shared=True)
    assert leaves == [array, 1] and treedef.leaf_paths == ("0", "2.0")
    out = tree.unflatten(treedef, ["v", 5])
    assert out == ["v", {"k": "v"}, [5], [5]] and out[2] is out[3]
    calls = []
    tree.map(calls.append, [array] * 3, shared=True)
    assert len(calls) == 1
    loose = tree.map(lambda v: v, [inner, inner])
    assert loose[0] is not loose[1]


@pytest.mark.parametrize("value", [1, "x", None, True, 2.5, b"y", np.float64(1), (1, 2)], ids=repr)
def test_small_values_are_never_tied(value):
    assert len(tree.flatten([value, value], leaf=lambda v: v is value, shared=True)[0]) == 2


def test_children_made_on_the_fly_are_never_mistaken_for_each_other():
    class Fresh:
        def __tree_flatten__(self):
            return [[0]], None

    leaves, treedef = tree.flatten([Fresh() for _ in range(50)], shared=True)
    assert len(leaves) == treedef.num_leaves == 50


def test_cycles_need_shared():
    loop = [1]
    loop.append(loop)
    for walk in (tree.flatten, tree.leaves, tree.paths, lambda t: tree.nodes(t, list)):
        with pytest.raises(ValueError, match="at '1': the tree contains itself; with shared=True"):
            walk(loop)
    out = tree.map(lambda v: v + 1, loop, shared=True)
    assert out[0] == 2 and out[1] is out and out is not loop
    assert list(tree.nodes(loop, list, shared=True)) == [""]


def test_cycles_through_nodes():
    named = {"v": 1}
    named["tuple"] = (named, Point(named, 2))
    out = tree.map(lambda v: v * 3, named, shared=True)
    assert out["v"] == 3 and out["tuple"][0] is out["tuple"][1].x is out
    shell = Shell("s", v=1)
    shell.kids["me"] = shell
    out = tree.map(lambda v: v * 3, shell, shared=True)
    assert (out.tag, out.kids["v"]) == ("s", 3) and out.kids["me"] is out and out is not shell
    layer = Layer(1)
    layer.bias = layer
    with pytest.raises(TypeError, match="a node contains itself, but its class needs the children"):
        tree.map(lambda v: v, layer, shared=True)
    inner: list = []
    loop = (inner,)
    inner.append(loop)
    for walk in (tree.flatten, tree.paths, lambda t, **k: tree.update(t, {}, **k)):
        with pytest.raises(ValueError, match=r"at '0\.0': a tuple contains itself"):
            walk(loop, shared=True)


# ---------------------------------------------------------------- dataclasses


@tree.dataclass
class Inputs:
    x: int
    y: object = None
    z: object = 7


@tree.dataclass(frozen=True)
class Frozen:
    a: int
    made: object = dataclasses.field(default=3, init=False)


def test_dataclass_children_are_the_fields_that_are_not_none():
    assert tree.paths({"in": Inputs(1, [2])}) == {"in.0": 1, "in.1.0": 2, "in.2": 7}
    assert tree.leaves(Inputs(None, None, None)) == []
    assert back(Inputs(1, 2, None)) == Inputs(1, 2, None)
    assert tree.flatten(Inputs(1))[1] != tree.flatten(Inputs(1, 2))[1]
    with pytest.raises(TypeError, match="child 0 of Inputs has no name"):
        tree.update(Inputs(1), {"0": 2})


def test_frozen_dataclasses_and_fields_outside_init_come_back():
    out = tree.map(lambda v: v + 10, Frozen(1))
    assert (out.a, out.made) == (11, 13)
    with pytest.raises(dataclasses.FrozenInstanceError):
        out.a = 3


def test_dataclass_of_a_dataclass_and_of_a_subclass():
    @tree.dataclass
    @dataclasses.dataclass(order=True)
    class Already:
        p: int = 0

    @tree.dataclass
    class More(Inputs):
        w: int = 9

    class Undecorated(Inputs):
        pass

    assert Already(1) < Already(2) and tree.leaves(Already(4)) == [4]
    assert tree.leaves(More(1)) == [1, 7, 9]
    assert type(back(Undecorated(1))) is Undecorated


def test_dataclass_keeps_a_protocol_of_its_own():
    @tree.dataclass
    class Named:
        a: int

        def __tree_flatten__(self):
            return {"a": self.a}, None

        @classmethod
        def __tree_unflatten__(cls, meta, children):
            return cls(**children)

    assert tree.paths(Named(1)) == {"a": 1}
    assert tree.update(Named(1), {"a": 2}) == Named(2)


def test_the_generic_alias():
    assert tree.Tree[int].__args__[0] is int
