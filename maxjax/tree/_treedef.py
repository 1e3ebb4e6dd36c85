# SPDX-License-Identifier: Apache-2.0
"""The structure of a tree without its leaves, and putting the two together again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from maxjax.tree._nodes import child_keys, extend_path, node_kind, one_level, place, spell

__all__ = ["TreeDef", "unflatten"]


@dataclasses.dataclass(frozen=True, eq=False)
class TreeDef:
    """The structure of a tree: what `flatten` leaves when the leaves are taken away.

    Structures compare by value and are hashable.

    Attributes:
        kind: ``"leaf"``; ``"static"``, a value that ``leaf=`` did not pick; ``"ref"``, a node or
            leaf already met; or the kind of node: ``"list"``, ``"tuple"``, ``"namedtuple"``,
            ``"dict"``, ``"node"``.
        children: The structures of a node's children.
        keys: The children's names; empty where they are positions.
        meta: A static's value, a ref's slot (structures other than refs count, in the order in
            which they are met), a named tuple's class, an ordered or default dict's class and
            arguments, a declared node's class and metadata.

    >>> from maxjax import tree
    >>> tree.flatten({"a": 1, "b": (2, 3)})[1].leaf_paths
    ('a', 'b.0', 'b.1')
    """

    kind: str
    children: tuple[TreeDef, ...] = ()
    keys: tuple[Any, ...] = ()
    meta: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeDef):
            return NotImplemented
        return self is other or (
            self.kind == other.kind
            and self.keys == other.keys
            and self.children == other.children
            and _same(self.meta, other.meta)
        )

    def __hash__(self) -> int:
        # Metadata may be unhashable, and equal structures agree in the rest.
        return hash((self.kind, self.keys, self.children))

    @property
    def child_keys(self) -> tuple[Any, ...]:
        """The keys of the children: their names, or else their positions."""
        return child_keys(self.children, self.keys)

    @property
    def num_leaves(self) -> int:
        """How many leaves `unflatten` takes."""
        own = 1 if self.kind == "leaf" else 0
        return own + sum([child.num_leaves for child in self.children])

    @property
    def leaf_paths(self) -> tuple[str, ...]:
        """The path of each leaf, in the order of `flatten`."""
        return tuple(self._leaf_paths(""))

    def _leaf_paths(self, path: str) -> Iterator[str]:
        if self.kind == "leaf":
            yield path
        for key, child in zip(self.child_keys, self.children, strict=True):
            yield from child._leaf_paths(extend_path(path, key))

    def flatten_up_to(self, tree: Any, path: str = "") -> list[Any]:
        """Takes ``tree`` apart as far as this structure goes: one subtree per leaf.

        Args:
            tree: A tree of this structure whose leaves may be trees themselves.
            path: Where ``tree`` lies, for error messages.

        Raises:
            ValueError: ``tree`` has another structure.

        >>> from maxjax.tree import flatten
        >>> flatten([1, 2])[1].flatten_up_to([{"a": 0}, ()])
        [{'a': 0}, ()]
        """
        if self.kind == "leaf":
            return [tree]
        if self.kind == "ref":
            return []
        if self.kind == "static":
            if not _same(self.meta, tree):
                raise ValueError(f"at {spell(path)}: expected {self.meta!r}, got {tree!r}")
            return []
        kind = node_kind(tree)
        if kind != self.kind:
            raise ValueError(
                f"at {spell(path)}: expected a {self.kind}, got {kind or type(tree).__name__}"
            )
        children, keys, meta = one_level(tree, kind)
        if not _same(meta, self.meta):
            raise ValueError(f"at {spell(path)}: expected {self.meta!r}, got {meta!r}")
        if keys != self.keys:
            raise ValueError(f"at {spell(path)}: expected the keys {self.keys}, got {keys}")
        if len(children) != len(self.children):
            raise ValueError(
                f"at {spell(path)}: expected {len(self.children)} children, got {len(children)}"
            )
        out = []
        for key, treedef, child in zip(self.child_keys, self.children, children, strict=True):
            out += treedef.flatten_up_to(child, extend_path(path, key))
        return out


def unflatten(treedef: TreeDef, leaves: Iterable[Any], *, exact: bool = True) -> Any:
    """Puts a tree together from its structure and leaves, the inverse of `flatten`.

    Args:
        treedef: The structure.
        leaves: Its leaves, in order.
        exact: Whether leaves left over are an error; otherwise an iterator keeps them.

    Raises:
        ValueError: Too few leaves or too many, or a structure that `flatten` does not make.
        TypeError: The class of a node does not say how to build one, or needs its children first
            although it contains itself.

    >>> from maxjax.tree import flatten
    >>> leaves, treedef = flatten({"b": 1, "a": [2, 3]})
    >>> unflatten(treedef, "xyz")
    {'a': ['x', 'y'], 'b': 'z'}
    """
    source = iter(leaves)
    out = _build(treedef, source, [], treedef)
    if exact and next(source, _MISSING) is not _MISSING:
        raise ValueError(f"too many leaves: the structure has {treedef.num_leaves}")
    return out


_MISSING = object()
_UNBUILT = object()


def _build(treedef: TreeDef, source: Iterator[Any], slots: list[Any], whole: TreeDef) -> Any:
    """`unflatten`: takes leaves from ``source`` and notes each value built in ``slots``."""
    if treedef.kind == "ref":
        return _referred(treedef.meta, slots)
    slot = len(slots)
    slots.append(_UNBUILT)
    out: Any
    match treedef.kind:
        case "leaf":
            out = next(source, _MISSING)
            if out is _MISSING:
                raise ValueError(f"too few leaves: the structure has {whole.num_leaves}")
        case "static":
            out = treedef.meta
        case "list":
            slots[slot] = out = []
            for child in treedef.children:
                out.append(_build(child, source, slots, whole))
        case "dict":
            cls, args = treedef.meta or (dict, ())
            slots[slot] = out = cls(*args)
            for key, child in zip(treedef.keys, treedef.children, strict=True):
                out[key] = _build(child, source, slots, whole)
        case "tuple":
            out = tuple([_build(child, source, slots, whole) for child in treedef.children])
        case "namedtuple":
            children = [_build(child, source, slots, whole) for child in treedef.children]
            out = treedef.meta._make(children)
        case "node":
            out = _build_node(treedef, source, slots, whole)
        case kind:
            raise ValueError(f"a TreeDef of kind {kind!r} is none that flatten makes")
    slots[slot] = out
    return out


def _build_node(treedef: TreeDef, source: Iterator[Any], slots: list[Any], whole: TreeDef) -> Any:
    """`_build` of a node of a class that declares the protocol."""
    cls, meta = treedef.meta
    if hasattr(cls, "__tree_empty__"):
        slots[-1] = out = cls.__tree_empty__(meta)
        for key, child in zip(treedef.child_keys, treedef.children, strict=True):
            place(out, "node", key, _build(child, source, slots, whole))
        return out
    if not hasattr(cls, "__tree_unflatten__"):
        raise TypeError(
            f"{cls.__name__} declares __tree_flatten__ but neither __tree_unflatten__(cls, meta, "
            "children) nor __tree_empty__(cls, meta), so none can be built"
        )
    children = [_build(child, source, slots, whole) for child in treedef.children]
    keys = treedef.keys
    return cls.__tree_unflatten__(
        meta, dict(zip(keys, children, strict=True)) if keys else children
    )


def _referred(slot: Any, slots: list[Any]) -> Any:
    """What a ref stands for."""
    if not isinstance(slot, int) or not 0 <= slot < len(slots):
        raise ValueError(f"a ref to slot {slot!r} is none that flatten makes: nothing is there yet")
    if slots[slot] is _UNBUILT:
        raise TypeError(
            "a node contains itself, but its class needs the children before it: declare "
            "__tree_empty__(cls, meta), which builds it before them"
        )
    return slots[slot]


def _same(a: Any, b: Any) -> bool:
    """Whether two pieces of metadata are equal; arrays are if they are one object."""
    if a is b:
        return True
    try:
        return bool(a == b)
    except Exception:
        return False
