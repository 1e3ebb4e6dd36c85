# SPDX-License-Identifier: Apache-2.0
"""Control flow, subgraphs, launches, and buffers that programs write."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.differential.picking import index
from tests.differential.program import Program, texts
from tests.differential.registry import op
from tests.differential.values import (
    ALL,
    BOOL,
    I64,
    NUMBERS,
    Array,
    Size,
    Value,
    sizes,
    small,
)

Step = Callable[[Array], Array]


def _steps(x: Value) -> tuple[str, Step, str, Step]:
    """Two small functions of a value like ``x``: their text after it, and the same in NumPy."""
    if x.dtype == BOOL:
        return " + True", lambda a: a | True, " - True", lambda a: a ^ True
    n = np.array(0.5 if x.is_float else 2, x.wide)
    return f" + {n}", lambda a: a + n, f" - {n}", lambda a: a - n


def _flag(p: Program) -> Value:
    return p.scalar([BOOL], (True, False))


def _times(p: Program) -> Value:
    return p.scalar([I64], range(4))


def _operand(p: Program, *wanted: Callable[[Value], bool]) -> Value:
    return p.tame(p.some(*wanted))


@op("cond")
def cond(p: Program) -> None:
    flag, x = _flag(p), _operand(p)
    up, more, down, less = _steps(x)
    if p.number(0, 2) < 2:
        p.emit_all(
            f"ops.cond({flag.name}, [{x.name}.type] * 2, lambda: [{x.name}{up}, {x.name}], "
            f"lambda: [{x.name}, {x.name}{down}])", [flag, x],
            lambda c, a: [more(a), a] if c else [a, less(a)],
            [x.dims, x.dims], dtypes=[x.dtype] * 2)  # fmt: skip
        return
    # A branch that writes.
    name = _buffer(p)
    old = p.buffers[name]
    p.lines.append(f"ops.cond({flag.name}, None, lambda: ops.buffer_store({name}, -{name}[...]), "
                   f"lambda: None)")  # fmt: skip
    _read(p, name, [old, flag], lambda a, c: _negative(a) if c else a)


@op("while_loop")
def while_loop(p: Program) -> None:
    times = _times(p)
    kind = p.chance("plain", "nested", "writing")
    if kind == "writing":
        name = _buffer(p)
        old = p.buffers[name]
        p.lines.append(f"ops.while_loop([{times.name}], lambda k: k > 0, lambda k: "
                       f"[ops.buffer_store({name}, -{name}[...]), k - 1][1:])")  # fmt: skip
        _read(p, name, [old, times], lambda a, k: _negative(a) if k % 2 else a)
        return
    x = _operand(p)
    up, more, down, less = _steps(x)
    flag = _flag(p) if kind == "nested" else None
    step = f"v{up}"
    if flag is not None:
        step = f"ops.cond({flag.name}, [v.type], lambda: v{up}, lambda: v{down})[0]"

    def repeated(k: Array, a: Array, *c: Array) -> Array:
        for _ in range(int(k)):
            a = less(a) if c and not c[0] else more(a)
        return a

    p.emit(f"ops.while_loop([{times.name}, {x.name}], lambda k, v: k > 0, "
           f"lambda k, v: [k - 1, {step}])[1]", [times, x, *([flag] if flag else [])], repeated,
           x.dims, dtype=x.dtype)  # fmt: skip


@op("call")
def call(p: Program) -> None:

    def plain(v: Value) -> bool:
        # The inputs of a graph have names or numbers as dimensions.
        return v.exact and all(d.static or d in p.known for d in v.dims)

    x, y = _operand(p, plain), _operand(p, plain)
    up, more, *_ = _steps(x)
    _, _, down, less = _steps(y)
    name = p.new_name("f")
    p.lines.append(f"{name} = Graph.current.add_subgraph({name!r}, lambda a, b: [b{down}, a{up}], "
                   f"[{x.name}.type, {y.name}.type])")  # fmt: skip
    for _ in range(p.number(1, 2)):
        given = x
        _, x = p.emit_all(
            f"[v.tensor for v in ops.call({name}, {given.name}, {y.name})]", [given, y],
            lambda a, b: [less(b), more(a)], [y.dims, given.dims],
            dtypes=[y.dtype, given.dtype])  # fmt: skip


@op("parallel")
def parallel(p: Program) -> None:
    x = _operand(p)
    y = p.pick(small, lambda v: v.dtype == x.dtype and v.dims == x.dims) or x
    up, more, *_ = _steps(x)
    if p.flip():
        p.emit_all(
            f"ops.parallel([[{x.name}, {y.name}]], lambda v: v{up}, "
            f"result_types=[[{x.name}.type] * 2])[0]", [x, y],
            lambda a, b: [more(a), more(b)], [x.dims] * 2)  # fmt: skip
        return
    # Launches that write one after the other.
    name = p.new_name("c")
    p.lines.append(f"{name} = ops.buffer_create(BufferType({x.name}.dtype, {x.name}.shape, CPU))")
    p.emit_all(
        f"ops.parallel([[{x.name}, {y.name}]], lambda v, b: [ops.buffer_store(b, b[...] + v), "
        f"b[...]][1], buffers=[{name}] * 2, result_types=[[{x.name}.type] * 2])[0]", [x, y],
        lambda a, b: [np.copy(a), a + b], [x.dims] * 2)  # fmt: skip


@op("side_stream")
def side_stream(p: Program) -> None:
    x = _operand(p)
    up, more, *_ = _steps(x)
    p.emit_all(f"ops.side_stream([{x.name}], lambda v: [v{up}, v], "
               f"result_types=[{x.name}.type] * 2)", [x], lambda a: [more(a), a],
               [x.dims] * 2)  # fmt: skip


# ---------------------------------------------------------------- buffers


def _negative(a: Array) -> Array:
    return np.logical_not(a) if a.dtype == BOOL else np.negative(a)


def _buffer(p: Program) -> str:
    """The name of a buffer: one that is there, or a new input."""
    if p.buffers and p.number(0, 2):
        return p.chance(*p.buffers)
    dtype = p.chance(*ALL)
    dims = [p.dim() for _ in range(p.number(1, 2))]
    return p.given(p.random(dtype, sizes(dims)), dims, "b").name


def _read(p: Program, name: str, operands: list[Value], contents: Callable[..., Any]) -> None:
    """A line that reads the buffer, after one that wrote it."""
    p.buffers[name] = p.emit(f"{name}[...]", operands, contents, p.buffers[name].dims)


@op("buffer_create")
def buffer_create(p: Program) -> None:
    dtype, name = p.chance(*NUMBERS), p.new_name("c")
    dims = [p.dim() for _ in range(p.number(0, 3))]
    fill = p.chance(None, 3)
    given = "" if fill is None else f", init_value={fill}"
    p.lines.append(f"{name} = ops.buffer_create(BufferType(DType.{dtype.name}, {texts(dims)}, CPU)"
                   f"{given})")  # fmt: skip
    p.buffers[name] = p.emit(f"{name}[...]", [], lambda: np.full(sizes(dims), fill or 0), dims,
                             dtype=dtype)  # fmt: skip


@op("buffer_load")
def buffer_load(p: Program) -> None:
    name = _buffer(p)
    old = p.buffers[name]
    p.emit(f"ops.buffer_load({name})", [old], np.copy, old.dims)


@op("buffer_store")
def buffer_store(p: Program) -> None:
    name = _buffer(p)
    old = p.buffers[name]
    source = p.some(dtypes=[old.dtype], dims=old.dims)
    p.lines.append(p.chance(f"ops.buffer_store({name}, {source.name})",
                            f"{name}[...] = {source.name}"))  # fmt: skip
    _read(p, name, [source], np.copy)


@op("buffer_store_slice")
def buffer_store_slice(p: Program) -> None:
    name = _buffer(p)
    if not p.buffers[name].dims:
        name = p.given(p.random(p.chance(*ALL), (3,)), [Size.of(3)], "b").name
    old = p.buffers[name]
    text, entries, dims = index(p, old.dims, new_axes=False)
    operands = [old]
    source = None
    if None not in dims and p.flip():
        source = p.some(dtypes=[old.dtype], dims=[d for d in dims if d is not None])
        operands.append(source)
    written = source.name if source else f"-{name}[{text}]"
    p.lines.append(p.chance(
        f"ops.buffer_store_slice({name}, {written}, [*np.s_[{text}]])",
        f"{name}[{text}] = {written}"))  # fmt: skip

    def contents(a: Array, *source: Array) -> Array:
        a = np.copy(a)
        a[entries] = source[0] if source else _negative(a[entries])
        return a

    _read(p, name, operands, contents)
