# SPDX-License-Identifier: Apache-2.0
"""Ops that change a shape, join, cut and extend."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.differential.program import Program, constant, literal, texts
from tests.differential.registry import op
from tests.differential.values import (
    I64,
    INTS,
    ONE,
    Array,
    Size,
    Value,
    product,
    sizes,
    small,
    with_size,
)

# ---------------------------------------------------------------- one operand


@op("reshape")
def reshape(p: Program) -> None:
    x = p.some()
    kind = p.chance("flat", "turned", "halved")
    if kind == "halved" and x.dims and x.dims[-1].static and x.dims[-1].size % 2 == 0:
        dims = [*x.dims[:-1], Size.of(x.dims[-1].size // 2), Size.of(2)]
        text = texts(dims)
    elif kind == "flat":
        dims, text = [product(x.dims)], "[-1]"
    else:
        at = p.number(0, x.rank)
        dims = [*x.dims[at:], *x.dims[:at], ONE]
        text = texts(dims)
    p.emit(p.chance(f"ops.reshape({x.name}, {text})", f"{x.name}.reshape({text})"), [x],
           lambda a: a.reshape(sizes(dims)), dims)  # fmt: skip


@op("flatten")
def flatten(p: Program) -> None:
    x = p.some(rank=(1, 3))
    first = p.number(0, x.rank - 1)
    last = p.number(first, x.rank - 1)
    dims = [*x.dims[:first], product(x.dims[first : last + 1]), *x.dims[last + 1 :]]
    ends = p.chance(f"{first}, {last}", f"{first - x.rank}, {last - x.rank}")
    p.emit(f"ops.flatten({x.name}, {ends})", [x], lambda a: a.reshape(sizes(dims)), dims)


@op("broadcast_to")
def broadcast_to(p: Program) -> None:
    x = p.some()
    stretched = p.dim()
    dims = [p.dim() for _ in range(p.number(0, 1))]
    dims += [stretched if d == ONE else d for d in x.dims]
    p.emit(f"ops.broadcast_to({x.name}, {texts(dims)})", [x],
           lambda a: np.broadcast_to(a, sizes(dims)), dims)  # fmt: skip


@op("permute")
def permute(p: Program) -> None:
    x = p.some()
    order = p.draw(st.permutations(range(x.rank)))
    given = [i - p.chance(0, x.rank) for i in order]
    p.emit(f"ops.permute({x.name}, {given})", [x], lambda a: np.transpose(a, order),
           [x.dims[i] for i in order])  # fmt: skip


@op("transpose")
def transpose(p: Program) -> None:
    x = p.some(rank=(2, 4))
    i, j = p.axis(x), p.axis(x)
    dims = list(x.dims)
    dims[i], dims[j] = dims[j], dims[i]
    p.emit(f"ops.transpose({x.name}, {i}, {j})", [x], lambda a: np.swapaxes(a, i, j), dims)


@op("squeeze")
def squeeze(p: Program) -> None:
    x = p.pick(small, lambda v: ONE in v.dims)
    if x is None:
        dims = [p.dim() for _ in range(p.number(0, 2))]
        dims.insert(p.number(0, len(dims)), ONE)
        x = p.fresh(dims=dims)
    axis = p.axis(x, lambda d: d == ONE)
    dims = [d for i, d in enumerate(x.dims) if i != axis % x.rank]
    p.emit(f"ops.squeeze({x.name}, {axis})", [x], lambda a: np.squeeze(a, axis), dims)


@op("unsqueeze")
def unsqueeze(p: Program) -> None:
    x = p.some()
    axis = p.number(-x.rank - 1, x.rank)
    at = axis % (x.rank + 1)
    p.emit(f"ops.unsqueeze({x.name}, {axis})", [x], lambda a: np.expand_dims(a, axis),
           [*x.dims[:at], ONE, *x.dims[at:]])  # fmt: skip


@op("rebind")
def rebind(p: Program) -> None:
    x = p.some()
    dims = [
        p.use(p.chance(d, Size.of(d.size), *[s for s in p.symbols.values() if s.size == d.size]))
        if not d.static
        else p.use(p.chance(d, *[s for s in p.symbols.values() if s.size == d.size]))
        for d in x.dims
    ]
    p.emit(f"ops.rebind({x.name}, {texts(dims)})", [x], np.copy, dims)


@op("shape_to_tensor")
def shape_to_tensor(p: Program) -> None:
    dims = [*p.some().dims, p.dim() * p.number(1, 2) + p.number(0, 2)]
    p.emit(f"ops.shape_to_tensor({texts(dims)})", [], lambda: np.array(sizes(dims)),
           [Size.of(len(dims))], dtype=I64)  # fmt: skip


# ---------------------------------------------------------------- joining and cutting


def _alike(p: Program, x: Value) -> Value:
    """Another value of that dtype and shape, at times the same."""
    return p.pick(small, lambda v: v.dtype == x.dtype and v.dims == x.dims) or x


@op("concat")
def concat(p: Program) -> None:
    x = p.some(rank=(1, 3))
    axis = p.axis(x)

    def fits(v: Value) -> bool:
        own = with_size(x.dims, axis, 0)
        return v.dtype == x.dtype and v.rank == x.rank and with_size(v.dims, axis, 0) == own

    more = p.fresh([x.dtype], dims=with_size(x.dims, axis, p.dim())) if p.flip() else None
    parts = [x, more or p.pick(small, fits) or x, x][: p.number(1, 3)]
    size = Size.of(0)
    for v in parts:
        size = size + v.dims[axis]
    p.emit(f"ops.concat([{', '.join(v.name for v in parts)}], axis={axis})", parts,
           lambda *a: np.concatenate(a, axis), with_size(x.dims, axis, size))  # fmt: skip


@op("stack")
def stack(p: Program) -> None:
    x = p.some()
    y = _alike(p, x)
    axis = p.number(-x.rank - 1, x.rank)
    dims = list(x.dims)
    dims.insert(axis % (x.rank + 1), Size.of(2))
    p.emit(f"ops.stack([{x.name}, {y.name}], axis={axis})", [x, y],
           lambda *a: np.stack(a, axis), dims)  # fmt: skip


def _static(p: Program) -> tuple[Value, int]:
    """A value and an axis of it whose size is a number."""
    x = p.some(rank=(1, 3))
    axis = p.axis(x)
    if not x.dims[axis].static:
        dims = with_size(x.dims, axis, x.dims[axis].size)
        x = p.emit(f"ops.rebind({x.name}, {texts(dims)})", [x], np.copy, dims)
    return x, axis


def _cut(p: Program, text: str, x: Value, axis: int, parts: list[int]) -> None:
    ends = np.cumsum(parts)[:-1]
    p.emit_all(text, [x], lambda a: np.split(a, ends, axis),
               [with_size(x.dims, axis, n) for n in parts])  # fmt: skip


@op("split")
def split(p: Program) -> None:
    x, axis = _static(p)
    first = p.number(0, x.dims[axis].size)
    parts = [first, x.dims[axis].size - first]
    _cut(p, f"ops.split({x.name}, {parts}, {axis})", x, axis, parts)


@op("chunk")
def chunk(p: Program) -> None:
    x, axis = _static(p)
    size = x.dims[axis].size
    n = p.chance(*[n for n in range(1, 6) if size % n == 0])
    _cut(p, f"ops.chunk({x.name}, {n}, {axis})", x, axis, [size // n] * n)


@op("shard_and_stack")
def shard_and_stack(p: Program) -> None:
    x, axis = _static(p)
    y = _alike(p, x)
    size = x.dims[axis].size
    n = p.chance(*[n for n in range(1, 4) if size % n == 0])
    at = axis % x.rank + 1
    dims = [Size.of(2), *with_size(x.dims, axis, size // n)]
    p.emit_all(f"ops.shard_and_stack([{x.name}, {y.name}], [CPU] * {n}, {axis})", [x, y],
               lambda *a: np.split(np.stack(a), n, at), [dims] * n)  # fmt: skip


# ---------------------------------------------------------------- extending


@op("pad")
def pad(p: Program) -> None:
    x = p.some(rank=(1, 3))
    mode = p.chance("constant", "reflect", "edge")
    pads = [(p.number(0, 2), p.number(0, 3)) if d.size or mode == "constant" else (0, 0)
            for d in x.dims]  # fmt: skip
    dims = [d + sum(n) for d, n in zip(x.dims, pads, strict=True)]
    value = literal(p, x.dtype)
    more, keys = "", {}
    if mode == "constant":
        more, keys = f", value={value.name}", {"constant_values": value.array.item()}
    flat = [n for ns in pads for n in ns]
    p.emit(f"ops.pad({x.name}, {flat}, mode={mode!r}{more})", [x],
           lambda a: np.pad(a, pads, mode, **keys), dims)  # fmt: skip


@op("tile")
def tile(p: Program) -> None:
    x = p.some(rank=(1, 3))
    times = [p.chance(ONE, Size.of(2), p.symbol(1)) for _ in x.dims]
    dims = [d * n for d, n in zip(x.dims, times, strict=True)]
    p.emit(f"ops.tile({x.name}, {texts(times)})", [x],
           lambda a: np.tile(a, sizes(times)), dims)  # fmt: skip


@op("repeat_interleave")
def repeat_interleave(p: Program) -> None:
    kind = p.chance("number", "flat", "each", "value")
    x = p.some(rank=(0 if kind == "flat" else 1, 3))
    n: Any = p.number(1, 3)
    if kind == "flat":
        p.emit(f"ops.repeat_interleave({x.name}, {n})", [x], lambda a: np.repeat(a, n),
               [product(x.dims) * n])  # fmt: skip
        return
    axis = p.axis(x)
    size = x.dims[axis]
    if kind == "number":
        p.emit(f"ops.repeat_interleave({x.name}, {n}, {axis})", [x],
               lambda a: np.repeat(a, n, axis), with_size(x.dims, axis, size * n))  # fmt: skip
        return
    if kind == "each":
        counts = np.array([p.number(0, 3) for _ in range(size.size)], p.chance(*INTS))
        total, name, operands = Size.of(int(counts.sum())), constant(counts), [x]
    else:
        # A count that is known when it runs, and the size that says what it will be.
        value = p.scalar((I64,), range(4))
        counts = value.array
        total, name, operands = size * int(counts), value.name, [x, value]

    def apply(a: Array, n: Array = counts) -> Array:
        return np.repeat(a, n.astype(np.int64), axis)

    p.emit(f"ops.repeat_interleave({x.name}, {name}, {axis}, {total})", operands, apply,
           with_size(x.dims, axis, total))  # fmt: skip
