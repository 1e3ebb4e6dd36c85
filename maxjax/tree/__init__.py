# SPDX-License-Identifier: Apache-2.0
"""Nested values as trees: taken apart into leaves and a structure, and put back together.

Nodes are lists, tuples, named tuples, dicts, ordered dicts and default dicts, and instances of
classes that declare ``__tree_flatten__``. All other values, ``None`` among them, are leaves.

A class becomes a node with

* ``__tree_flatten__(self)``, which gives its children (a mapping, or a sequence) and its metadata,
* one of the class methods ``__tree_unflatten__(cls, meta, children)``, which builds it from its
  children (given as a dict or a list), and ``__tree_empty__(cls, meta)``, which builds it before
  them, as a node that contains itself needs,
* optionally ``__tree_setattr__(self, key, value)``, which replaces one child; without it a named
  child is set as an attribute.

A leaf's *path* is the keys that lead to it, joined by dots; an empty key adds nothing to it.
"""

from maxjax.tree._nodes import (
    Selector,
    Tree,
    as_predicate,
    dataclass,
    extend_path,
    flatten_one_level,
    is_node,
)
from maxjax.tree._treedef import TreeDef, unflatten
from maxjax.tree._walks import flatten, leaves, map, nodes, paths, update

__all__ = [
    "Selector",
    "Tree",
    "TreeDef",
    "as_predicate",
    "dataclass",
    "extend_path",
    "flatten",
    "flatten_one_level",
    "is_node",
    "leaves",
    "map",
    "nodes",
    "paths",
    "unflatten",
    "update",
]
