# SPDX-License-Identifier: Apache-2.0
"""Shapes, specs and element types in YAML, as plain scalars: ``shape: 1x256x256x3``.

Importing this teaches PyYAML's own dumpers to write them. They are written without quotes
wherever YAML reads that back as the same text, and with them where it would not: ``3`` and
``0x10`` would be numbers, and ``*`` and nothing at all are no text.

Loaded they are strings, for ``parse``; typed where the document has a tag, ``!TensorShape 0x10``,
or where the loader is `yaml_loader`'s.
"""

from __future__ import annotations

import copy
from typing import Any

import yaml

from maxjax.support.ml.dtype import DType
from maxjax.support.ml.named import NamedSpec
from maxjax.support.ml.shape import TensorShape
from maxjax.support.ml.spec import TensorSpec

__all__ = ["SpecYAMLError", "yaml_loader"]

_TYPES = {f"!{t.__name__}": t for t in (TensorShape, TensorSpec, NamedSpec, DType)}


class SpecYAMLError(yaml.constructor.ConstructorError, ValueError):
    """A scalar of a YAML document that does not parse; says why, and where it is.

    >>> issubclass(SpecYAMLError, yaml.YAMLError)
    True
    """


def _represent(dumper: Any, value: object) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(value))


def _parse(kind: Any, node: yaml.Node) -> Any:
    """What a node says, as one of the types.

    Raises:
        SpecYAMLError: It says none.
    """
    if not isinstance(node, yaml.ScalarNode):
        problem = f"expected the text of a {kind.__name__}, found a {type(node).__name__}"
        raise SpecYAMLError(None, None, problem, node.start_mark)
    try:
        return kind.parse(node.value)
    except ValueError as e:
        raise SpecYAMLError(None, None, str(e), node.start_mark) from e


def yaml_loader(**fields: Any) -> type[yaml.SafeLoader]:
    """A safe loader that reads the values of some keys as shapes, specs or types.

    It looks at the text that the document has, and so reads ``shape: 0x10`` as the shape it is,
    not as the number 16. A list is read element by element.

    Args:
        **fields: The type for each key: `TensorShape`, `TensorSpec`, `NamedSpec` or `DType`, or
            another with a ``parse``. It holds wherever a mapping has the key.

    Returns:
        A class for ``yaml.load(text, Loader=...)``. It raises `SpecYAMLError`, a ``ValueError``
        and a ``yaml.YAMLError``, where a value does not parse.

    >>> loader = yaml_loader(shape=TensorShape, inputs=TensorSpec)
    >>> yaml.load("{shape: 0x10, inputs: [4xf32, bf16], name: 0x10}", Loader=loader)
    {'shape': TensorShape('0x10'), 'inputs': [TensorSpec('4xf32'), TensorSpec('bf16')], 'name': 16}
    """

    class Loader(yaml.SafeLoader):
        def compose_mapping_node(self, anchor: Any) -> Any:
            node: Any = super().compose_mapping_node(anchor)
            node.value = [
                (key, _tagged(value, f"!field {key.value}"))
                if isinstance(key, yaml.ScalarNode) and key.value in fields
                else (key, value)
                for key, value in node.value
            ]
            return node

    for key, kind in fields.items():
        Loader.add_constructor(f"!field {key}", lambda _, node, kind=kind: _parse(kind, node))
    return Loader


def _tagged(node: Any, tag: str) -> Any:
    """A copy of a node with a tag; of a sequence, with the tag on its elements.

    A copy, because an anchor makes one node the value of several keys.
    """
    node = copy.copy(node)
    if isinstance(node, yaml.SequenceNode):
        node.value = [_tagged(part, tag) for part in node.value]
    else:
        node.tag = tag
    return node


def _register() -> None:
    """Teaches PyYAML the types."""
    in_c = [getattr(yaml, f"C{name}", None) for name in ("SafeDumper", "Dumper")]
    for dumper in filter(None, [yaml.SafeDumper, yaml.Dumper, *in_c]):
        for kind in _TYPES.values():
            dumper.add_multi_representer(kind, _represent)
    in_c = [getattr(yaml, f"C{name}", None) for name in ("SafeLoader", "FullLoader", "Loader")]
    for loader in filter(None, [yaml.SafeLoader, yaml.FullLoader, yaml.Loader, *in_c]):
        for tag in _TYPES:
            loader.add_constructor(tag, lambda self, node, tag=tag: _parse(_TYPES[tag], node))


_register()
