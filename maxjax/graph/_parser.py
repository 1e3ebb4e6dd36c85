# SPDX-License-Identifier: Apache-2.0
"""Reading the text of graphs; see :mod:`maxjax.graph._printer` for the grammar.

Each op is built again through its class, so what does not type-check does not load.
"""

from __future__ import annotations

import enum
import functools
import json
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import parse_dim
from maxjax.graph.ir import Block, Location
from maxjax.graph.op import OPS, Op
from maxjax.graph.ops.call import Call
from maxjax.graph.ops.constant import ConstantExternal
from maxjax.graph.shape import parse_shape
from maxjax.graph.type import Type, parse_type
from maxjax.graph.value import Value, make_value

__all__ = ["GraphFactory", "parse_graphs"]

# Makes a graph: name, symbol, input types, and the rest of its attributes.
GraphFactory = Callable[[str, str, list[Type], dict[str, Any]], Any]

_SPACE = re.compile(r"(?:\s|//[^\n]*)*")
_NAME = re.compile(r"[A-Za-z_][\w$.]*")
_VALUE = re.compile(r"%[A-Za-z0-9_]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NUMBER = re.compile(r"-?(?:inf|nan|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)")
_TYPE = re.compile(r"!mo\.\w+<[^>]*>")
_SPECIAL = re.compile(r"#mo\.(dtype|device|dim|shape|enum)<([^>]*)>")


def parse_graphs(text: str, factory: GraphFactory) -> list[Any]:
    """Reads graphs.

    Args:
        text: What :func:`~maxjax.graph._printer.print_graphs` writes.
        factory: Makes the graph objects.

    Returns:
        The graphs in the order of the text.

    Raises:
        ValueError: If the text is malformed or does not type-check; names line and column.
    """
    return _Parser(text, factory).graphs()


class _Parser:
    def __init__(self, text: str, factory: GraphFactory) -> None:
        self.text = text
        self.at = 0
        self.factory = factory
        self.symbols: dict[str, Any] = {}
        self.values: dict[str, Value] = {}
        self.resources: dict[str, bytes] = {}

    # ---------------------------------------------------------------- tokens

    def fail(self, problem: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        raise ValueError(f"line {line}, column {column}: {problem}")

    def space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def peek(self, literal: str) -> bool:
        self.space()
        return self.text.startswith(literal, self.at)

    def accept(self, literal: str) -> bool:
        if not self.peek(literal):
            return False
        self.at += len(literal)
        return True

    def expect(self, literal: str) -> None:
        if not self.accept(literal):
            found = self.text[self.at : self.at + 20].partition("\n")[0]
            self.fail(
                f"expected {literal!r}, found {found!r}" if found else f"expected {literal!r}"
            )

    def match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        self.space()
        found = pattern.match(self.text, self.at)
        if found is None:
            self.fail(f"expected {what}")
        self.at = found.end()
        return found

    def string(self) -> str:
        start = self.at
        try:
            return json.loads(self.match(_STRING, "a string in double quotes")[0])
        except json.JSONDecodeError as e:
            self.fail(f"malformed string: {e.msg}", start)

    def symbol(self) -> str:
        self.expect("@")
        return self.string() if self.peek('"') else self.match(_NAME, "a symbol")[0]

    def list(self, item: Callable[[], Any], end: str) -> list[Any]:
        items = []
        while not self.accept(end):
            if items:
                self.expect(",")
                if self.accept(end):
                    break
            items.append(item())
        return items

    def type(self) -> Type:
        start = self.at
        text = self.match(_TYPE, "a type, !mo.tensor<...> or !mo.buffer<...>")[0]
        try:
            return parse_type(text)
        except ValueError as e:
            self.fail(str(e), start)

    def types(self) -> list[Type]:
        return self.list(self.type, ")") if self.accept("(") else [self.type()]

    # ---------------------------------------------------------------- graphs and ops

    def graphs(self) -> list[Any]:
        self.read_resources()
        found = []
        while not self.end():
            found.append(self.graph())
        if not found:
            self.fail("expected a graph")
        return found

    def end(self) -> bool:
        self.space()
        return self.at == len(self.text)

    def read_resources(self) -> None:
        """Takes the resource section off the end, so that constants find their data."""
        start = self.text.rfind("{-#")
        if start < 0:
            return
        self.at = start
        self.expect("{-#")
        while not self.accept("#-}"):
            name = self.match(_NAME, "a resource's name")[0]
            self.expect(":")
            self.resources[name] = self.bytes()
        if not self.end():
            self.fail("nothing may follow the resources")
        self.text, self.at = self.text[:start], 0

    def bytes(self) -> bytes:
        start = self.at
        try:
            return bytes.fromhex(self.string())
        except ValueError as e:
            self.fail(f"malformed hexadecimal data: {e}", start)

    def graph(self) -> Any:
        self.expect("mo.graph")
        symbol = self.symbol()
        if symbol in self.symbols:
            self.fail(f"graph @{symbol} is defined twice")
        if self.accept("<"):
            self.list(lambda: self.match(_NAME, "a dimension's name"), ">")
        self.expect("(")
        arguments = self.list(self.argument, ")")
        self.expect("->")
        gives = self.types()
        attributes = self.dictionary() if self.accept("attributes") else {}
        types = [t for _, t in arguments]
        name = attributes.pop("name", symbol)
        graph = self.checked(lambda: self.factory(name, symbol, types, attributes))
        self.values = {n: v for (n, _), v in zip(arguments, graph.inputs, strict=True)}
        with graph:
            self.block(graph.body, "mo.output")
        if [v.type for v in graph.body.outputs] != gives:
            self.fail(f"the outputs are not of the types that graph @{symbol} declares")
        self.symbols[symbol] = graph
        return graph

    def argument(self) -> tuple[str, Type]:
        name = self.match(_VALUE, "an argument, %name")[0]
        self.expect(":")
        return name, self.type()

    def block(self, block: Block, terminator: str) -> None:
        """The ops and the terminator of a block, and the brace after it."""
        self.expect("{")
        graph = block.graph
        outer, graph.block = graph.block, block
        try:
            while not self.peek(terminator):
                self.op(graph)
        finally:
            graph.block = outer
        self.expect(terminator)
        block.outputs = ()
        if self.peek("%"):
            values = [self.value()]
            while self.accept(","):
                values.append(self.value())
            self.expect(":")
            start = self.at
            types = [self.type()]
            while self.accept(","):
                types.append(self.type())
            if types != [v.type for v in values]:
                self.fail("the values are not of these types", start)
            block.outputs = tuple(values)
        self.expect("}")

    def value(self) -> Value:
        start = self.at
        name = self.match(_VALUE, "a value, %name")[0]
        if name not in self.values:
            self.fail(f"{name} is not defined before this", start)
        return self.values[name]

    def op(self, graph: Any) -> None:
        names: list[str] = []
        if self.peek("%"):
            names.append(self.match(_VALUE, "a value")[0])
            while self.accept(","):
                names.append(self.match(_VALUE, "a value")[0])
            self.expect("=")
        self.space()
        start = self.at
        self.expect("mo.")
        mnemonic = self.match(_NAME, "an op's name")[0]
        cls = OPS.get(mnemonic)
        if cls is None:
            self.fail(f"there is no op mo.{mnemonic}", start)
        callee = self.callee() if cls is Call else None
        self.expect("(")
        operands = self.list(self.value, ")")
        fields = self.dictionary(cls) if self.peek("{") else {}
        if callee is not None:
            fields["callee"] = callee
        self.expect(":")
        self.expect("(")
        takes = self.list(self.type, ")")
        self.expect("->")
        gives = self.types()
        scope = self.strings() if self.accept("scope") else ()
        location = self.location() if self.accept("loc") else None
        regions = tuple(self.regions(graph))
        if takes != [v.type for v in operands]:
            self.fail(f"the operands of mo.{mnemonic} are not of these types", start)
        results = self.build(graph, cls, fields, operands, regions, scope, location, start)
        if [r.type for r in results] != gives:
            inferred = ", ".join(str(r.type) for r in results)
            self.fail(f"the results of mo.{mnemonic} are {inferred}", start)
        if names and len(names) != len(results):
            self.fail(f"mo.{mnemonic} has {len(results)} results, not {len(names)}", start)
        for name, result in zip(names, results, strict=False):
            if name in self.values:
                self.fail(f"{name} is defined twice", start)
            self.values[name] = result

    def callee(self) -> Any:
        start = self.at
        symbol = self.symbol()
        if symbol not in self.symbols:
            self.fail(f"graph @{symbol} is not defined before this call", start)
        return self.symbols[symbol]

    def build(
        self,
        graph: Any,
        cls: type[Op],
        fields: dict[str, Any],
        operands: Sequence[Value],
        regions: tuple[Block, ...],
        scope: tuple[str, ...],
        location: Location | None,
        start: int,
    ) -> Sequence[Value]:
        def run() -> Any:
            op = cls(**fields)
            if isinstance(op, ConstantExternal):
                return graph.declare_weight(op)
            return op(*operands, regions=regions)

        outer, graph.scope = graph.scope, scope
        try:
            result = self.checked(run, start)
        finally:
            graph.scope = outer
        weight = cls is ConstantExternal
        node = graph.body.nodes[len(graph._weights) - 1] if weight else graph.block.nodes[-1]
        node.location = location
        return () if result is None else result if isinstance(result, tuple) else (result,)

    def checked(self, run: Callable[[], Any], start: int | None = None) -> Any:
        try:
            return run()
        except (ValueError, TypeError, IndexError, RuntimeError) as e:
            self.fail(str(e).partition("\n")[0], start)

    def regions(self, graph: Any) -> list[Block]:
        found = []
        while self.accept("("):
            arguments = self.list(self.argument, ")")
            block = Block(graph, graph.block)
            block.arguments = tuple(make_value(t, block) for _, t in arguments)
            self.values.update({n: v for (n, _), v in zip(arguments, block.arguments, strict=True)})
            self.block(block, "mo.yield")
            found.append(block)
        return found

    def strings(self) -> tuple[str, ...]:
        self.expect("[")
        return tuple(self.list(self.string, "]"))

    def location(self) -> Location:
        self.expect("(")
        file = self.string()
        self.expect(":")
        line = int(self.match(_NUMBER, "a line number")[0])
        self.expect("in")
        function = self.string()
        self.expect(")")
        return Location(file, line, function)

    # ---------------------------------------------------------------- attributes

    def dictionary(self, cls: type[Op] | None = None) -> dict[str, Any]:
        self.expect("{")
        known = cls._names if cls is not None else None
        found: dict[str, Any] = {}
        while not self.accept("}"):
            if found:
                self.expect(",")
            start = self.at
            name = self.match(_NAME, "an attribute's name")[0]
            if known is not None and name not in known:
                self.fail(f"mo.{cls.mnemonic if cls else ''} has no attribute {name!r}", start)
            self.expect("=")
            found[name] = self.attribute(cls)
        return found

    def attribute(self, cls: type[Op] | None) -> Any:
        self.space()
        for word, value in (("none", None), ("true", True), ("false", False)):
            if self.accept(word):
                return value
        if self.peek('"'):
            return self.string()
        if self.peek("!"):
            return self.type()
        if self.peek("#"):
            return self.special(cls)
        if self.accept("slice("):
            parts = self.list(lambda: self.attribute(cls), ")")
            if len(parts) != 3:
                self.fail("a slice has three parts")
            return slice(*parts)
        if self.accept("("):
            return tuple(self.list(lambda: self.attribute(cls), ")"))
        if self.accept("dense<"):
            return self.dense()
        return self.number()

    def number(self) -> Any:
        text = self.match(_NUMBER, "an attribute")[0]
        return float(text) if re.search(r"[.einf]", text) else int(text)

    def special(self, cls: type[Op] | None) -> Any:
        start = self.at
        match = self.match(_SPECIAL, "#mo.dtype, #mo.device, #mo.dim, #mo.shape or #mo.enum")
        kind, text = match[1], match[2]
        try:
            if kind == "dtype":
                return DType.from_short(text)
            if kind == "device":
                name, _, number = text.partition(":")
                return DeviceRef(name, int(number))
            if kind == "dim":
                return parse_dim(text)
            if kind == "shape":
                return parse_shape(text)
            owner, _, member = text.partition(".")
            return _enums(cls)[owner][member]
        except (ValueError, KeyError) as e:
            self.fail(f"malformed {kind} {text!r}: {e}", start)

    def dense(self) -> np.ndarray:
        start = self.at
        self.expect("[")
        shape = self.list(self.number, "]")
        self.expect(",")
        try:
            dtype = DType.from_short(self.match(_NAME, "a dtype")[0])
        except KeyError as e:
            self.fail(str(e), start)
        self.expect(",")
        if self.accept("["):
            numbers = self.list(lambda: self.attribute(None), "]")
            array = np.array(numbers, object).astype(dtype.np)
        elif self.peek('"'):
            array = np.frombuffer(self.bytes(), dtype.np)
        else:
            name = self.match(_NAME, "a resource's name")[0]
            if name not in self.resources:
                self.fail(f"there is no resource {name!r}", start)
            array = np.frombuffer(self.resources[name], dtype.np)
        self.expect(">")
        try:
            array = array.reshape(shape)
        except ValueError:
            self.fail(f"{array.size} elements do not fill the shape {shape}", start)
        array.flags.writeable = False
        return array


@functools.cache
def _enums(cls: type[Op] | None) -> dict[str, Any]:
    """The enum classes among the types of an op's fields, by name."""
    found: dict[str, Any] = {}

    def look(hint: Any) -> None:
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            found[hint.__name__] = hint
        for inner in typing.get_args(hint):
            look(inner)

    if cls is not None:
        for hint in typing.get_type_hints(cls).values():
            look(hint)
    return found
