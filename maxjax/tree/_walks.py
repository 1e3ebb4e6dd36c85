# SPDX-License-Identifier: Apache-2.0
"""Walks over whole trees: taking them apart, mapping, naming, searching and updating."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, TypeVar

from maxjax.tree._nodes import (
    Selector,
    as_predicate,
    child_keys,
    extend_path,
    is_node,
    node_kind,
    one_level,
    place,
    spell,
)
from maxjax.tree._treedef import TreeDef, unflatten

__all__ = ["flatten", "leaves", "map", "nodes", "paths", "update"]

_T = TypeVar("_T")

_LEAF = TreeDef("leaf")
# One object stands for every use of such a value, so meeting it twice says nothing.
_NEVER_TIED = (NoneType, int, float, complex, str, bytes, tuple)


def flatten(
    tree: Any, *, leaf: Selector | None = None, shared: bool = False
) -> tuple[list[Any], TreeDef]:
    """Takes a tree apart into its leaves and its structure.

    Args:
        tree: Any value. The children of a dict come in the order of its sorted keys, those of an
            ordered dict in its own.
        leaf: Which values are leaves: even nodes, if picked. Other values that are no nodes become
            part of the structure. By default all values that are no nodes are leaves.
        shared: Whether an object met again is tied to its first place: it counts as one leaf or
            node, and `unflatten` gives one object in both places. Numbers, strings and tuples
            are never tied. A tree that contains itself needs it.

    Raises:
        TypeError: The keys of a dict can't be sorted.
        ValueError: The tree contains itself and ``shared`` is false, or does so through tuples
            alone, which can't be built before their children.

    >>> flatten({"b": 1, "a": [2, 3]})[0]
    [2, 3, 1]
    >>> leaves, treedef = flatten([1, "text", 2], leaf=int)
    >>> unflatten(treedef, [10, 20])
    [10, 'text', 20]
    """
    walk = _Walk(leaf, shared)
    out: list[Any] = []
    slots: dict[int, int] = {}  # id of a tied object -> its slot
    count = 0

    def visit(value: Any, path: str) -> TreeDef:
        nonlocal count
        kind = walk.kind(value)
        tied = shared and kind != "static" and not isinstance(value, _NEVER_TIED)
        if tied and id(value) in slots:
            return TreeDef("ref", meta=slots[id(value)])
        if tied:
            slots[id(value)] = count
            walk.keep(value)
        count += 1
        if kind == "leaf":
            out.append(value)
            return _LEAF
        if kind == "static":
            return TreeDef("static", meta=value)
        walk.enter(value, path)
        children, keys, meta = one_level(value, kind)
        steps = zip(child_keys(children, keys), children, strict=True)
        structures = tuple([visit(child, extend_path(path, key)) for key, child in steps])
        walk.leave(value)
        return TreeDef(kind, structures, keys, meta)

    return out, visit(tree, "")


def leaves(tree: Any, *, leaf: Selector | None = None, shared: bool = False) -> list[Any]:
    """The leaves of a tree, in the order of `flatten`, whose arguments it takes.

    >>> leaves({"b": 1, "a": [2, 3]})
    [2, 3, 1]
    """
    return flatten(tree, leaf=leaf, shared=shared)[0]


def map(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    leaf: Selector | None = None,
    shared: bool = False,
) -> Any:
    """A tree of the same structure whose leaves are ``f`` of the leaves.

    Args:
        f: Takes a leaf of ``tree`` and what each tree of ``rest`` has in its place.
        tree: The tree that gives the structure.
        *rest: Trees of the same structure, which may go on below its leaves.
        leaf: As in `flatten`.
        shared: As in `flatten`; ``f`` is called once for a leaf met several times.

    Raises:
        ValueError: A tree of ``rest`` has another structure.

    >>> map(lambda a, b: a + b, [1, {"k": 2}], [10, {"k": 20}])
    [11, {'k': 22}]
    """
    first, treedef = flatten(tree, leaf=leaf, shared=shared)
    others = []
    for i, other in enumerate(rest, start=2):
        try:
            others.append(treedef.flatten_up_to(other))
        except ValueError as e:
            raise ValueError(f"map: tree {i} is not of the structure of tree 1, {e}") from e
    return unflatten(treedef, [f(*args) for args in zip(first, *others, strict=True)])


def paths(tree: Any, *, leaf: Selector | None = None, shared: bool = False) -> dict[str, Any]:
    """The leaves of a tree by their paths; takes the arguments of `flatten`.

    Raises:
        ValueError: Two leaves have one path, as in ``{"a": {"b": 1}, "a.b": 2}``.

    >>> paths({"layers": [{"w": 1}, {"w": 2}]})
    {'layers.0.w': 1, 'layers.1.w': 2}
    """
    found, treedef = flatten(tree, leaf=leaf, shared=shared)
    out: dict[str, Any] = {}
    for path, value in zip(treedef.leaf_paths, found, strict=True):
        if path in out:
            raise ValueError(
                f"two leaves have the path {spell(path)}; rename a key that is empty or has a dot"
            )
        out[path] = value
    return out


def nodes(
    tree: Any,
    node_type: type[_T] | tuple[type[_T], ...],
    *,
    leaf: Selector | None = None,
    shared: bool = False,
) -> dict[str, _T]:
    """All values of some types within a tree by their paths, outer ones first.

    Args:
        tree: Any value; it may be among the answers itself, under the path ``""``.
        node_type: The types of the values looked for, be they nodes or leaves.
        leaf: Values not to look into, as in `flatten`.
        shared: Whether an object met again is left out.

    Raises:
        ValueError: The tree contains itself and ``shared`` is false.

    Where an empty key gives an inner value the path of an outer one, the inner one counts.

    >>> nodes({"a": [1, [2]]}, list)
    {'a': [1, [2]], 'a.1': [2]}
    """
    walk = _Walk(leaf, shared)
    out: dict[str, _T] = {}
    seen: set[int] = set()

    def visit(value: Any, path: str) -> None:
        if shared and not isinstance(value, _NEVER_TIED):
            if id(value) in seen:
                return
            seen.add(id(value))
            walk.keep(value)
        if isinstance(value, node_type):
            out[path] = value
        kind = walk.kind(value)
        if kind not in ("leaf", "static"):
            walk.enter(value, path)
            children, keys, _ = one_level(value, kind)
            for key, child in zip(child_keys(children, keys), children, strict=True):
                visit(child, extend_path(path, key))
            walk.leave(value)

    visit(tree, "")
    return out


def update(
    tree: Any,
    state: Mapping[str, Any],
    *,
    leaf: Selector | None = None,
    shared: bool = False,
) -> Any:
    """Replaces leaves by their paths, in place where the nodes around them can be written.

    Args:
        tree: The tree to change. Tuples are rebuilt, and the node around them is given the new one.
        state: New values by the paths that `paths` gives for this tree.
        leaf: As in `flatten`.
        shared: As in `flatten`; all places of a leaf met several times get the value of the first.

    Returns:
        ``tree``, or what replaces it where it is a leaf or a tuple.

    Raises:
        ValueError: No leaf has one of the paths. All others have been written by then.
        TypeError: The class of a node does not say how to write a child that has no name.

    >>> tree = {"layers": [{"w": 1}, {"w": (2, 3)}]}
    >>> update(tree, {"layers.0.w": 10, "layers.1.w.0": 20}) is tree
    True
    >>> tree
    {'layers': [{'w': 10}, {'w': (20, 3)}]}
    """
    walk = _Walk(leaf, shared)
    unused = dict(state)
    replaced: dict[int, Any] = {}  # id of a tied object -> what stands in its place now

    def visit(value: Any, path: str) -> Any:
        kind = walk.kind(value)
        if kind == "static":
            return value
        tied = shared and not isinstance(value, _NEVER_TIED)
        if tied and id(value) in replaced:
            return replaced[id(value)]
        if kind == "leaf":
            new = unused.pop(path, value)
        elif isinstance(value, tuple) or not walk.is_open(value):
            new = rewrite(value, path, kind)
        else:
            # It contains itself, and is being written in place already.
            return value
        if tied:
            replaced[id(value)] = new
            walk.keep(value)
        return new

    def rewrite(value: Any, path: str, kind: str) -> Any:
        walk.enter(value, path)
        children, keys, meta = one_level(value, kind)
        keys = child_keys(children, keys)
        steps = zip(keys, children, strict=True)
        results = [visit(child, extend_path(path, key)) for key, child in steps]
        walk.leave(value)
        changes = [
            (key, new)
            for key, old, new in zip(keys, children, results, strict=True)
            if new is not old
        ]
        if changes and kind == "tuple":
            return tuple(results)
        if changes and kind == "namedtuple":
            return meta._make(results)
        for key, new in changes:
            place(value, kind, key, new)
        return value

    out = visit(tree, "")
    if unused:
        names = ", ".join(spell(path) for path in unused)
        raise ValueError(
            f"update: the tree has no leaf at {names}; paths(tree) gives the paths it has"
        )
    return out


class _Walk:
    """What the walks over values have in common: which are leaves, and which contain themselves."""

    def __init__(self, leaf: Selector | None, shared: bool) -> None:
        self._is_leaf = None if leaf is None else as_predicate(leaf, is_node)
        self._shared = shared
        self._open: set[int] = set()
        self._kept: list[Any] = []

    def kind(self, value: Any) -> str:
        """``"leaf"``, ``"static"`` or the kind of node."""
        if self._is_leaf is not None and self._is_leaf(value):
            return "leaf"
        return node_kind(value) or ("leaf" if self._is_leaf is None else "static")

    def keep(self, value: Any) -> None:
        """Keeps ``value`` alive, so that no child made on the fly is given its id."""
        self._kept.append(value)

    def is_open(self, value: Any) -> bool:
        """Whether the children of ``value`` are being visited."""
        return id(value) in self._open

    def enter(self, value: Any, path: str) -> None:
        """Notes that the children of ``value`` are visited from here on."""
        if id(value) not in self._open:
            self._open.add(id(value))
        elif self._shared:
            raise ValueError(
                f"at {spell(path)}: a tuple contains itself and can't be built before its "
                "children; use a list, a dict or a class with __tree_empty__ in between"
            )
        else:
            raise ValueError(
                f"at {spell(path)}: the tree contains itself; with shared=True the value is "
                "tied to its first place"
            )

    def leave(self, value: Any) -> None:
        """Ends what `enter` began."""
        self._open.discard(id(value))
