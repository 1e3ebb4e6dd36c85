# SPDX-License-Identifier: Apache-2.0
"""Graphs as text: MLIR-like, and read back by :mod:`maxjax.graph._parser`.

Grammar, in the order things appear::

    graph     = "mo.graph" symbol ["<" name, ... ">"] "(" argument, ... ")" "->" types
                ["attributes" attributes] "{" op... "mo.output" [value, ... ":" type, ...] "}"
    op        = [value, ... "="] "mo." mnemonic [symbol] "(" value, ... ")" [attributes] ":"
                "(" type, ... ")" "->" types ["scope" strings] ["loc" location] [region...]
    region    = "(" argument, ... ")" "{" op... "mo.yield" [value, ... ":" type, ...] "}"
    resources = "{-#" (name ":" hex string)... "#-}"

Arrays of more than 16 elements are written as hexadecimal bytes, those of more than 1 KiB in the
resource section at the end.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import Dim
from maxjax.graph.ir import Block, Location, Node
from maxjax.graph.ops.call import Call
from maxjax.graph.shape import Shape
from maxjax.graph.type import Type
from maxjax.graph.value import Value

if TYPE_CHECKING:
    from maxjax.graph.graph import Graph

__all__ = ["print_graphs", "symbol_text"]

# Arrays up to this many elements are written as numbers, up to this many bytes in place.
_NUMBERS, _IN_PLACE = 16, 1024


def print_graphs(graphs: Iterable[Graph], *, locations: bool = False) -> str:
    """The text of graphs, one after the other, with their resources at the end."""
    printer = _Printer(locations)
    text = "\n".join(printer.graph(g) for g in graphs)
    if printer.resources:
        entries = "\n".join(f'  {name}: "{data}"' for name, data in printer.resources.items())
        text += f"\n{{-#\n{entries}\n#-}}"
    return text


def symbol_text(name: str) -> str:
    """``@name``, in quotes when it is not an identifier."""
    return f"@{name}" if re.fullmatch(r"[A-Za-z_][\w$.]*", name) else f"@{json.dumps(name)}"


class _Printer:
    def __init__(self, locations: bool) -> None:
        self.locations = locations
        self.resources: dict[str, str] = {}
        self.names: dict[int, str] = {}
        self.count = 0

    # ---------------------------------------------------------------- structure

    def graph(self, graph: Graph) -> str:
        self.names, self.count = {}, 0
        parameters = list(
            dict.fromkeys(p.name for t in graph.input_types for p in t.shape.parameters)
        )
        for i, value in enumerate(graph.inputs):
            self.names[id(value)] = f"%arg{i}"
        head = f"mo.graph {symbol_text(graph.symbol)}"
        if parameters:
            head += f"<{', '.join(parameters)}>"
        outputs = graph.body.outputs
        gives = "(...)" if outputs is None else self.types([v.type for v in outputs])
        head += f"({self.arguments(graph.inputs)}) -> {gives}{self.graph_attributes(graph)} {{"
        return "\n".join([head, *self.block(graph.body, "mo.output", 1), "}"])

    def graph_attributes(self, graph: Graph) -> str:
        attributes: dict[str, Any] = {}
        if graph.name != graph.symbol:
            attributes["name"] = graph.name
        if graph in graph.module.subgraphs:
            attributes["subgraph"] = True
        if graph.strict_device_placement.value != "warn":
            attributes["strict_device_placement"] = graph.strict_device_placement.value
        if graph.is_device_graph:
            attributes["is_device_graph"] = True
        paths = graph.kernels.library_paths()
        if paths:
            attributes["custom_extensions"] = tuple(map(str, paths))
        return f" attributes {self.dictionary(attributes)}" if attributes else ""

    def block(self, block: Block, terminator: str, depth: int) -> list[str]:
        indent = "  " * depth
        lines = [line for node in block.nodes for line in self.node(node, depth)]
        if block.outputs is not None:
            end = terminator
            if block.outputs:
                values = ", ".join(self.names[id(v)] for v in block.outputs)
                end += f" {values} : {', '.join(str(v.type) for v in block.outputs)}"
            lines.append(indent + end)
        return lines

    def node(self, node: Node, depth: int) -> list[str]:
        indent = "  " * depth
        operands = ", ".join(self.names[id(v)] for v in node.operands)
        for result in node.results:
            self.names[id(result)] = f"%{self.count}"
            self.count += 1
        line = indent
        if node.results:
            line += f"{', '.join(self.names[id(r)] for r in node.results)} = "
        line += f"mo.{node.op.mnemonic}"
        if isinstance(node.op, Call):
            line += f" {symbol_text(node.op.callee.symbol)}"
        line += f"({operands})"
        attributes = _fields(node.op)
        if attributes:
            line += f" {self.dictionary(attributes)}"
        takes = ", ".join(str(v.type) for v in node.operands)
        line += f" : ({takes}) -> {self.types([r.type for r in node.results])}"
        if node.scope:
            line += f" scope [{', '.join(map(json.dumps, node.scope))}]"
        if self.locations and node.location:
            line += f" {_location(node.location)}"
        if not node.regions:
            return [line]
        lines = []
        for region in node.regions:
            for argument in region.arguments:
                self.names[id(argument)] = f"%{self.count}"
                self.count += 1
            lines.append(f"{line} ({self.arguments(region.arguments)}) {{")
            lines += self.block(region, "mo.yield", depth + 1)
            line = f"{indent}}}"
        return [*lines, line]

    def arguments(self, values: Iterable[Value]) -> str:
        return ", ".join(f"{self.names[id(v)]}: {v.type}" for v in values)

    def types(self, types: list[Type]) -> str:
        return str(types[0]) if len(types) == 1 else f"({', '.join(map(str, types))})"

    # ---------------------------------------------------------------- attributes

    def dictionary(self, attributes: dict[str, Any]) -> str:
        return f"{{{', '.join(f'{k} = {self.attribute(v)}' for k, v in attributes.items())}}}"

    def attribute(self, value: Any) -> str:
        if value is None:
            return "none"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, enum.Enum) and not isinstance(value, DType):
            return f"#mo.enum<{type(value).__name__}.{value.name}>"
        if isinstance(value, (int, float)):
            return repr(value)
        if isinstance(value, str):
            return json.dumps(value)
        if isinstance(value, DType):
            return f"#mo.dtype<{value.short}>"
        if isinstance(value, DeviceRef):
            return f"#mo.device<{value}>"
        if isinstance(value, Dim):
            return f"#mo.dim<{value}>"
        if isinstance(value, Shape):
            return f"#mo.shape<{value.brief()}>"
        if isinstance(value, Type):
            return str(value)
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return f"slice({', '.join(map(self.attribute, parts))})"
        if isinstance(value, tuple):
            inner = ", ".join(map(self.attribute, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, np.ndarray):
            return self.dense(value)
        raise TypeError(f"an op's field cannot be written as text: {value!r}")

    def dense(self, array: np.ndarray) -> str:
        shape, dtype = list(array.shape), DType.of(array.dtype)
        numbers = None
        if array.size <= _NUMBERS:
            numbers = [_number(v) for v in array.ravel().tolist()]
            back = np.array([_value(n) for n in numbers], object).astype(array.dtype)
            if back.tobytes() != array.tobytes():
                numbers = None  # a NaN with a payload, say: only the bytes are exact
        if numbers is not None:
            return f"dense<{shape}, {dtype.short}, [{', '.join(numbers)}]>"
        data = np.ascontiguousarray(array).tobytes().hex()
        if array.nbytes > _IN_PLACE:
            name = f"c{len(self.resources)}"
            self.resources[name] = data
            return f"dense<{shape}, {dtype.short}, {name}>"
        return f'dense<{shape}, {dtype.short}, "{data}">'


def _number(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else repr(value)


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return float(text) if re.search(r"[.einf]", text) else int(text)


def _fields(op: Any) -> dict[str, Any]:
    """An op's fields that differ from their defaults; a called graph is written as a symbol."""
    found = {}
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if field.name == "callee" and isinstance(op, Call):
            continue
        if field.default is not dataclasses.MISSING and _same(value, field.default):
            continue
        found[field.name] = value
    return found


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def _location(location: Location) -> str:
    return f"loc({json.dumps(location.file)}:{location.line} in {json.dumps(location.function)})"
