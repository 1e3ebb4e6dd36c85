# SPDX-License-Identifier: Apache-2.0
"""One node of a tree: what counts as one, its children, and how one of them is replaced."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar, dataclass_transform, overload

__all__ = [
    "Selector",
    "Tree",
    "as_predicate",
    "child_keys",
    "dataclass",
    "extend_path",
    "flatten_one_level",
    "is_node",
    "node_kind",
    "one_level",
    "place",
    "spell",
]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class _Flattenable(Protocol[_T_co]):
    """A node of a class that declares the protocol."""

    def __tree_flatten__(self) -> tuple[Any, Any]: ...


Selector: TypeAlias = type | tuple[type, ...] | Callable[[Any], bool]
"""What picks leaves: a type, some types, or a predicate."""

Tree: TypeAlias = (
    _T_co
    | list["Tree[_T_co]"]
    | tuple["Tree[_T_co]", ...]
    | dict[Any, "Tree[_T_co]"]
    | _Flattenable[_T_co]
)
"""``Tree[T]`` is a ``T``, or a node of trees of ``T``."""

_BUILTIN_KINDS: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    dict: "dict",
    OrderedDict: "dict",
    defaultdict: "dict",
}


def is_node(value: Any) -> bool:
    """Whether ``value`` has children to descend into, even if it has none at present.

    >>> [is_node(v) for v in ([], {"a": 1}, (1, 2), "text", {1, 2}, None)]
    [True, True, True, False, False, False]
    """
    return node_kind(value) is not None


def as_predicate(
    selector: Selector | None, default: Callable[[Any], bool]
) -> Callable[[Any], bool]:
    """The predicate that a selector stands for: types are tested with `isinstance`.

    Args:
        selector: A type, a tuple of types, a predicate, or None.
        default: What None stands for.

    Raises:
        TypeError: ``selector`` is none of these.

    >>> as_predicate((int, str), bool)("text")
    True
    """
    if selector is None:
        return default
    if isinstance(selector, (type, tuple)):
        types = selector
        return lambda value: isinstance(value, types)
    if not callable(selector):
        raise TypeError(
            "expected a type, a tuple of types or a predicate to pick leaves with, "
            f"got {selector!r}"
        )
    return selector


def extend_path(path: str, key: Any) -> str:
    """The path of the child at ``key`` of what lies at ``path``.

    >>> extend_path("layers.0", "weight"), extend_path("", 3), extend_path("a", "")
    ('layers.0.weight', '3', 'a')
    """
    step = str(key)
    return f"{path}.{step}" if path and step else path or step


def flatten_one_level(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
    """A node's children, their keys (empty where they are positions), and its metadata.

    Raises:
        TypeError: ``value`` is not a node, or a dict whose keys can't be sorted.

    >>> flatten_one_level({"b": 1, "a": [2]})
    (([2], 1), ('a', 'b'), None)
    """
    kind = node_kind(value)
    if kind is None:
        raise TypeError(
            "expected a list, tuple, dict or a class with __tree_flatten__, "
            f"got {type(value).__name__}: it is a leaf"
        )
    children, keys, meta = one_level(value, kind)
    return children, keys, meta[1] if kind == "node" else meta


@overload
def dataclass(cls: type[_T], /) -> type[_T]: ...
@overload
def dataclass(cls: None = None, /, **kwargs: Any) -> Callable[[type[_T]], type[_T]]: ...
@dataclass_transform()
def dataclass(
    cls: type[_T] | None = None, /, **kwargs: Any
) -> type[_T] | Callable[[type[_T]], type[_T]]:
    """Makes a class a dataclass that is a node, whose children are the fields that are not None.

    The children are positions, not names: ``paths`` of it are ``"0"``, ``"1"``, ... Which fields
    are None is part of the structure. A class that is a dataclass already stays as it is, and one
    that declares ``__tree_flatten__`` itself keeps it.

    Args:
        cls: The class, where the decorator stands without parentheses.
        **kwargs: Arguments of `dataclasses.dataclass`.

    >>> from maxjax import tree
    >>> @tree.dataclass
    ... class Batch:
    ...     tokens: list
    ...     mask: object = None
    >>> tree.leaves(Batch([1, 2]))
    [1, 2]
    >>> tree.map(lambda v: v + 1, Batch([1, 2]))
    Batch(tokens=[2, 3], mask=None)
    """

    def decorate(cls: type[_T]) -> type[_T]:
        # Inherited fields don't count: the fields of this class have to be collected too.
        if "__dataclass_fields__" not in vars(cls):
            cls = dataclasses.dataclass(**kwargs)(cls)
        node: Any = cls
        if "__tree_flatten__" not in vars(cls):
            node.__tree_flatten__ = _flatten_fields
            if "__tree_unflatten__" not in vars(cls):
                node.__tree_unflatten__ = classmethod(_unflatten_fields)
        return cls

    return decorate if cls is None else decorate(cls)


def _flatten_fields(self: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """``__tree_flatten__`` of a dataclass: its fields that are not None, and their names."""
    given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
    given = {name: value for name, value in given.items() if value is not None}
    return tuple(given.values()), tuple(given)


def _unflatten_fields(cls: type[Any], meta: tuple[str, ...], children: list[Any]) -> Any:
    """``__tree_unflatten__`` of a dataclass."""
    given = dict(zip(meta, children, strict=True))
    fields = dataclasses.fields(cls)
    out = cls(**{f.name: given.get(f.name) for f in fields if f.init})
    for f in fields:
        if not f.init:
            # As dataclasses does in a frozen class, whose own __setattr__ refuses.
            object.__setattr__(out, f.name, given.get(f.name))
    return out


def node_kind(value: Any) -> str | None:
    """The kind of node that ``value`` is, or None."""
    cls = type(value)
    kind = _BUILTIN_KINDS.get(cls)
    if kind is None:
        if hasattr(cls, "__tree_flatten__"):
            return "node"
        if isinstance(value, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make"):
            return "namedtuple"
    return kind


def one_level(value: Any, kind: str | None) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
    """Children, keys and what `TreeDef.meta` is for a node of that kind."""
    match kind:
        case "list" | "tuple":
            return tuple(value), (), None
        case "namedtuple":
            return tuple(value), type(value)._fields, type(value)
        case "dict":
            cls = type(value)
            keys = tuple(value) if cls is OrderedDict else _sorted_keys(value)
            meta = None
            if cls is not dict:
                meta = cls, (value.default_factory,) if cls is defaultdict else ()
            return tuple([value[key] for key in keys]), keys, meta
        case _:
            children, meta = value.__tree_flatten__()
            if isinstance(children, Mapping):
                return tuple(children.values()), tuple(children), (type(value), meta)
            return tuple(children), (), (type(value), meta)


def child_keys(children: tuple[Any, ...], keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """The keys of all children: their names, or else their positions."""
    return keys or tuple(range(len(children)))


def _sorted_keys(value: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(value))
    except TypeError as e:
        types = sorted({type(key).__name__ for key in value})
        raise TypeError(
            "the children of a dict come in the order of its sorted keys, but keys of the types "
            f"{', '.join(types)} can't be sorted; use keys of one type, or an OrderedDict"
        ) from e


def place(node: Any, kind: str, key: Any, child: Any) -> None:
    """Replaces the child of a node at that key."""
    if kind != "node":
        node[key] = child
    elif hasattr(type(node), "__tree_setattr__"):
        node.__tree_setattr__(key, child)
    elif isinstance(key, str):
        setattr(node, key, child)
    else:
        raise TypeError(
            f"child {key} of {type(node).__name__} has no name to set it by; declare "
            "__tree_setattr__(self, key, value) in the class"
        )


def spell(path: str) -> str:
    """A path in a message."""
    return repr(path) if path else "the root"
