# SPDX-License-Identifier: Apache-2.0
"""Random small programs give what NumPy gives.

Every value of a program is an output. A line is compared with its NumPy function of the values
that maxjax computed for its operands, so errors do not add up: what is exact must be equal, the
rest near. Ops that jump (rounding, comparing, casting to integers) are only given exact operands:
there a last bit decides. Each generator below adds a line or a few to a program, always valid.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Dim, Graph, TensorType, ops
from tests._differential import (
    BF16,
    BITS,
    BOOL,
    F16,
    F32,
    F64,
    FLOATS,
    I64,
    INTS,
    LARGEST,
    LOOSE,
    Array,
    Program,
    Size,
    Value,
    constant,
    converted,
    is_exact,
    literal,
    small,
    widened,
)

CPU = DeviceRef.CPU()
SCOPE = {"ops": ops, "DType": DType, "Dim": Dim, "BufferType": BufferType, "CPU": CPU, "np": np}
SIZES = st.sampled_from([3, 2, 4, 1, 5, 0])


# ---------------------------------------------------------------- two operands


def joint(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any] | None:
    """The one of both that holds every value of the other."""
    for wide, narrow in ((a, b), (b, a)):
        if wide == narrow or narrow == BOOL:
            return wide
        if wide == BOOL or (narrow in LOOSE and wide not in LOOSE):
            continue
        signs = wide.kind == "u" and narrow.kind == "i"
        halves = {wide, narrow} == {F16, BF16}
        if BITS[wide] >= BITS[narrow] and not signs and not halves:
            return wide
    return None


def broadcast(a: list[Size], b: list[Size]) -> list[Size] | None:
    one, rank = Size.of(1), max(len(a), len(b))
    a, b = [one] * (rank - len(a)) + a, [one] * (rank - len(b)) + b
    if any(x != y and one not in (x, y) for x, y in zip(a, b, strict=True)):
        return None
    return [y if x == one else x for x, y in zip(a, b, strict=True)]


def pair(p: Program, exact: bool, numbers: bool = True) -> tuple[Value, Value, Any, list[Size]]:
    """Two operands, a number among them at times, their common dtype and dims."""
    wanted = [small, *([is_exact] if exact else [])]
    x = p.some(*wanted)
    y = p.pick(
        *wanted,
        lambda v: joint(x.dtype, v.dtype) is not None and broadcast(x.dims, v.dims) is not None,
        lambda v: v.array.size * max(x.array.size, 1) <= LARGEST * 50,
    )
    if y is None or (numbers and p.number(0, 3) == 3):
        y = literal(p, x.dtype) if numbers else x
    x, y = (x, y) if p.number(0, 1) else (y, x)
    dims = broadcast(x.dims, y.dims)
    assert dims is not None
    return x, y, joint(x.dtype, y.dtype), dims


def _floor_div(a: Array, b: Array) -> Array:
    return np.floor(a / b) if a.dtype.kind == "f" else np.floor_divide(a, b)


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind != "i":
        return np.power(a, b)
    unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 1, -1, 1), 0)).astype(a.dtype)
    return np.where(b < 0, unit, np.power(a, np.maximum(b, 0)))


ARITHMETIC: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "add": ("+", np.add, np.logical_or),
    "sub": ("-", np.subtract, np.logical_xor),
    "mul": ("*", np.multiply, np.logical_and),
    "floor_div": ("//", _floor_div, np.logical_and),
    "mod": ("%", np.mod, lambda a, b: a & ~b),
    "pow": ("**", _pow, lambda a, b: a | ~b),
    "max": ("", np.maximum, np.logical_or),
    "min": ("", np.minimum, np.logical_and),
}
COMPARISONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "equal": ("==", np.equal),
    "not_equal": ("!=", np.not_equal),
    "greater": (">", np.greater),
    "greater_equal": (">=", np.greater_equal),
    "<": ("<", lambda a, b: ~np.greater_equal(a, b)),
    "<=": ("<=", lambda a, b: ~np.greater(a, b)),
}


def written(p: Program, name: str, sign: str, x: Value, y: Value) -> str:
    if sign and (name == sign or p.number(0, 1)):
        return f"({x.name}) {sign} ({y.name})"
    return f"ops.{name}({x.name}, {y.name})"


def arithmetic(p: Program) -> None:
    name = p.chance(*ARITHMETIC)
    sign, of_numbers, of_bools = ARITHMETIC[name]
    x, y, dtype, dims = pair(p, exact=name in ("floor_div", "mod"))
    if dtype in LOOSE and name in ("mul", "pow"):
        x, y = [p.tame(v, *((-3, 3) if name == "pow" else ())) for v in (x, y)]
        if name == "pow" and not x.exact:
            x = p.tame(x, 0.25, 4, always=True)
    wide = F64 if dtype in LOOSE else dtype
    apply = of_bools if dtype == BOOL else of_numbers
    p.emit(written(p, name, sign, x, y), [x, y],
           lambda a, b: apply(a.astype(wide), b.astype(wide)), dims,
           name != "pow", dtype)  # fmt: skip


def division(p: Program) -> None:
    x, y, dtype, dims = pair(p, exact=False)
    if BOOL in (x.dtype, y.dtype):
        return comparison(p)
    if not y.exact:
        y = p.tame(y, 0.25, 8, always=True)
    p.emit(written(p, "div", "/", x, y), [x, y], lambda a, b: a.astype(F64) / b.astype(F64),
           dims, False, dtype if dtype in LOOSE else F64)  # fmt: skip


def comparison(p: Program) -> None:
    name = p.chance(*COMPARISONS)
    sign, apply = COMPARISONS[name]
    x, y, dtype, dims = pair(p, exact=True)
    wide = F64 if dtype in LOOSE else dtype
    p.emit(written(p, name, sign, x, y), [x, y],
           lambda a, b: apply(a.astype(wide), b.astype(wide)), dims, dtype=BOOL)  # fmt: skip


def boolean(p: Program, *wanted: Callable[[Value], bool]) -> Value:
    x = p.pick(small, lambda v: v.dtype == BOOL, *wanted)
    return x or p.cast(p.some(is_exact, *wanted), BOOL)


def logical(p: Program) -> None:
    x = boolean(p)
    y = boolean(p, lambda v: broadcast(x.dims, v.dims) is not None)
    dims = broadcast(x.dims, y.dims)
    if dims is None or p.number(0, 3) == 0:
        p.emit(p.chance(f"ops.logical_not({x.name})", f"~{x.name}"), [x], np.logical_not, x.dims)
        return
    name = p.chance("and", "or", "xor")
    apply = getattr(np, f"logical_{name}")
    p.emit(f"ops.logical_{name}({x.name}, {y.name})", [x, y], apply, dims)


def where(p: Program) -> None:
    x, y, dtype, dims = pair(p, exact=False)
    c = boolean(p, lambda v: broadcast(v.dims, dims) is not None)
    all_dims = broadcast(c.dims, dims)
    wide = F64 if dtype in LOOSE else dtype
    if all_dims is not None:
        p.emit(f"ops.where({c.name}, {x.name}, {y.name})", [c, x, y],
               lambda c, a, b: np.where(c, a.astype(wide), b.astype(wide)), all_dims,
               dtype=dtype)  # fmt: skip


# ---------------------------------------------------------------- one operand


def _gelu(x: Array) -> Array:
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_erf = np.vectorize(math.erf, otypes=[float])
# The function, and where it is smooth.
SMOOTH: dict[str, tuple[Callable[..., Any], float, float]] = {
    "acos({})": (np.arccos, -0.75, 0.75),
    "atanh({})": (np.arctanh, -0.75, 0.75),
    "cos({})": (np.cos, -8, 8),
    "erf({})": (_erf, -8, 8),
    "exp({})": (np.exp, -8, 4),
    "gelu({})": (_gelu, -8, 8),
    "gelu({}, 'tanh')": (_gelu_tanh, -8, 8),
    "gelu({}, 'quick')": (lambda x: x * _sigmoid(1.702 * x), -8, 8),
    "log({})": (np.log, 0.25, 8),
    "log1p({})": (np.log1p, -0.75, 8),
    "rsqrt({})": (lambda x: 1 / np.sqrt(np.where(x == 0, 0.0, x)), 0.25, 8),
    "sigmoid({})": (_sigmoid, -8, 8),
    "silu({})": (lambda x: x * _sigmoid(x), -8, 8),
    "sin({})": (np.sin, -8, 8),
    "sqrt({})": (np.sqrt, 0.25, 8),
    "tanh({})": (np.tanh, -8, 8),
}
WHOLE = {"ceil": np.ceil, "floor": np.floor, "round": np.round, "trunc": np.trunc}


def smooth(p: Program) -> None:
    text = p.chance(*SMOOTH)
    apply, low, high = SMOOTH[text]
    x = p.floating()
    # What is exact may also be where the function has a pole or is NaN.
    x = p.tame(x) if x.exact else p.tame(x, low, high, always=True)
    finite = "silu" in text or "gelu" in text
    if finite and not np.isfinite(widened(x.array)).all():
        x = p.tame(x, always=True)  # -inf times 0
    p.emit(f"ops.{text.format(x.name)}", [x], apply, x.dims, False)


def unary(p: Program) -> None:
    kind = p.chance("sign", "whole", "test", "cast")
    x = p.some() if kind == "sign" else p.some(is_exact)
    if kind == "whole":
        name = p.chance(*WHOLE)
        whole = WHOLE[name] if x.is_float else np.copy
        p.emit(f"ops.{name}({x.name})", [x], whole, x.dims)
    elif kind == "test":
        name, apply = p.chance(("is_nan", np.isnan), ("is_inf", np.isinf))
        p.emit(f"ops.{name}({x.name})", [x], apply, x.dims, dtype=BOOL)
    elif kind == "cast":
        p.cast(x, p.chance(*[d for d in (*FLOATS, *INTS, BOOL) if d != x.dtype]))
    else:
        texts = {
            "ops.abs({})": np.abs,
            "ops.negate({})": np.logical_not if x.dtype == BOOL else np.negative,
            "-{}": np.logical_not if x.dtype == BOOL else np.negative,
            "ops.relu({})": (lambda a: a) if x.dtype == BOOL else lambda a: np.maximum(a, 0),
        }
        text = p.chance(*texts)
        p.emit(text.format(x.name), [x], texts[text], x.dims)


def float_cast(p: Program) -> None:
    x = p.floating()
    p.cast(x, p.chance(*[d for d in FLOATS if d != x.dtype]))


# ---------------------------------------------------------------- along an axis


def any_axis(p: Program, x: Value, *wanted: Callable[[Size], bool]) -> int | None:
    """An axis, from either end."""
    found = [i for i, size in enumerate(x.dims) if all(w(size) for w in wanted)]
    return p.chance(*found) - p.chance(0, x.rank) if found else None


def not_empty(size: Size) -> bool:
    return size.size > 0


def resized(x: Value, axis: int, size: Size | int) -> list[Size]:
    dims = list(x.dims)
    dims[axis] = Size.of(size) if isinstance(size, int) else size
    return dims


def _mean(a: Array, axis: int) -> Array:
    n = a.shape[axis]
    if a.dtype.kind == "f":
        return np.divide(np.sum(a, axis, keepdims=True), n)
    total = np.sum(a, axis, keepdims=True, dtype=np.uint64 if a.dtype.kind == "u" else np.int64)
    numbers = [abs(int(t)) // max(n, 1) * (-1 if t < 0 else 1) for t in total.ravel()]
    return np.array(numbers, total.dtype).reshape(total.shape)


def reduction(p: Program) -> None:
    name = p.chance("sum", "prod", "mean", "max", "min", "argmax", "argmin")
    extreme = "max" in name or "min" in name
    x = p.ranked(p.some(is_exact) if "arg" in name else p.some())
    axis = any_axis(p, x, not_empty) if extreme else any_axis(p, x)
    if axis is None or (name == "mean" and x.dtype == BOOL):
        name, extreme, axis = "sum", False, -1
    x = x if extreme else p.tame(x)
    wide = F64 if x.is_float else x.dtype

    def of(a: Array) -> Array:
        if name == "mean":
            return _mean(a, axis)
        if name == "sum":
            return np.add.reduce(a, axis, wide, keepdims=True)
        if name == "prod":
            return np.multiply.reduce(a, axis, wide, keepdims=True)
        return getattr(np, name)(a, axis=axis, keepdims=True)

    given = p.chance(f", axis={axis}", f", axis={axis}" if extreme else f", {axis}")
    p.emit(f"ops.{name}({x.name}{given})", [x], of, resized(x, axis, 1), extreme,
           I64 if "arg" in name else None)  # fmt: skip


def _softmax(a: Array, axis: int) -> Array:
    e = np.exp(a - np.max(a, axis, keepdims=True, initial=-np.inf))
    return e / np.sum(e, axis, keepdims=True)


def _logsoftmax(a: Array, axis: int) -> Array:
    a = a - np.max(a, axis, keepdims=True, initial=-np.inf)
    return a - np.log(np.sum(np.exp(a), axis, keepdims=True))


def _cumsum(a: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    a = np.flip(a, axis) if reverse else a
    sums = np.cumsum(a, axis, I64 if a.dtype == BOOL else a.dtype)
    if exclusive:
        none = np.zeros_like(np.take(sums, [0] if a.shape[axis] else [], axis))
        kept = np.take(sums, np.arange(max(a.shape[axis] - 1, 0)), axis)
        sums = np.concatenate([none, kept], axis)
    return np.flip(sums, axis) if reverse else sums


def running(p: Program) -> None:
    name = p.chance("softmax", "logsoftmax", "cumsum")
    x = p.tame(p.ranked(p.some() if name == "cumsum" else p.floating()))
    axis = any_axis(p, x)
    assert axis is not None
    if name != "cumsum":
        apply = _softmax if name == "softmax" else _logsoftmax
        p.emit(f"ops.{name}({x.name}, {axis})", [x], lambda a: apply(a, axis), x.dims, False)
        return
    flags = p.chance(False, True), p.chance(False, True)
    p.emit(f"ops.cumsum({x.name}, {axis}, {flags[0]}, {flags[1]})", [x],
           lambda a: _cumsum(a, axis, *flags), x.dims, False)  # fmt: skip


def norm(p: Program) -> None:
    x = p.tame(p.ranked(p.floating()), always=True)
    gamma, beta, epsilon = p.chance(0.5, 2.0, -1.0), p.chance(0.0, 1.0), p.chance(0.5, 0.25)
    weights = np.array([gamma + i for i in range(x.dims[-1].size)], F32)
    scale: Any = gamma
    if x.dims[-1].static and p.number(0, 1):
        gamma, scale = constant(weights), weights
    kind = p.chance("layer", "rms", "group")
    if kind == "group":
        x = p.ranked(x, 2)
        groups = p.chance(*[g for g in (1, 2, 3, 5) if x.dims[1].size % g == 0])

        def grouped(a: Array) -> Array:
            n, c, *rest = a.shape
            g = a.reshape(n, groups, c // groups * math.prod(rest))
            g = (g - _mean(g, 2)) / np.sqrt(_mean((g - _mean(g, 2)) ** 2, 2) + epsilon)
            return g.reshape(a.shape) * 2 + beta

        p.emit(f"ops.group_norm({x.name}, 2.0, {beta}, {groups}, {epsilon})", [x], grouped, x.dims,
               False)  # fmt: skip
    elif kind == "layer":
        p.emit(
            f"ops.layer_norm({x.name}, {gamma}, {beta}, {epsilon})", [x],
            lambda a: (a - _mean(a, -1)) / np.sqrt(_mean((a - _mean(a, -1)) ** 2, -1) + epsilon)
            * scale + beta, x.dims, False)  # fmt: skip
    else:
        offset, first = p.chance(0.0, 1.0), p.chance(False, True)
        p.emit(f"ops.rms_norm({x.name}, {gamma}, {epsilon}, {offset}, {first})", [x],
               lambda a: a / np.sqrt(_mean(a * a, -1) + epsilon) * (scale + offset),
               x.dims, False)  # fmt: skip


# ---------------------------------------------------------------- shapes


def _texts(dims: list[Size]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def shape(p: Program) -> None:
    kind = p.chance("reshape", "flatten", "broadcast", "permute", "transpose", "squeeze", "rebind")
    x = p.some()
    if kind == "reshape":
        whole = Size.of(1)
        for size in x.dims:
            whole = whole * size
        if x.dims and x.dims[-1].size % 2 == 0 and x.dims[-1].static and p.number(0, 1):
            dims = [*x.dims[:-1], Size.of(x.dims[-1].size // 2), Size.of(2)]
            text = _texts(dims)
        elif p.number(0, 1):
            dims, text = [whole], "[-1]"
        else:
            at = p.number(0, x.rank)
            dims = [*x.dims[at:], *x.dims[:at], Size.of(1)]
            text = _texts(dims)
        sizes = [d.size for d in dims]
        p.emit(p.chance(f"ops.reshape({x.name}, {text})", f"{x.name}.reshape({text})"), [x],
               lambda a: a.reshape(sizes), dims)  # fmt: skip
    elif kind == "flatten":
        x = p.ranked(x)
        first = p.number(0, x.rank - 1)
        last = p.number(first, x.rank - 1)
        merged = Size.of(1)
        for size in x.dims[first : last + 1]:
            merged = merged * size
        dims = [*x.dims[:first], merged, *x.dims[last + 1 :]]
        sizes = [d.size for d in dims]
        p.emit(f"ops.flatten({x.name}, {first}, {last})", [x], lambda a: a.reshape(sizes), dims)
    elif kind == "broadcast":
        stretched = p.chance(Size.of(3), *p.symbols.values())
        dims = [stretched if d == Size.of(1) else d for d in x.dims]
        dims = [p.chance(Size.of(2), *p.symbols.values())] * p.number(0, 1) + dims
        sizes = [d.size for d in dims]
        p.emit(f"ops.broadcast_to({x.name}, {_texts(dims)})", [x],
               lambda a: np.broadcast_to(a, sizes), dims)  # fmt: skip
    elif kind == "permute":
        order = p.draw(st.permutations(range(x.rank)))
        dims = [x.dims[i] for i in order]
        given = [i - p.chance(0, x.rank) for i in order]
        p.emit(f"ops.permute({x.name}, {given})", [x], lambda a: np.transpose(a, order), dims)
    elif kind == "transpose":
        x = p.ranked(x, 2)
        i, j = any_axis(p, x) or 0, any_axis(p, x) or 0
        dims = list(x.dims)
        dims[i], dims[j] = dims[j], dims[i]
        p.emit(f"ops.transpose({x.name}, {i}, {j})", [x], lambda a: np.swapaxes(a, i, j), dims)
    elif kind == "squeeze":
        axis = any_axis(p, x, lambda size: size == Size.of(1))
        if axis is None:
            p.ranked(x, x.rank + 1)
            return
        dims = [d for i, d in enumerate(x.dims) if i != axis % x.rank]
        p.emit(f"ops.squeeze({x.name}, {axis})", [x], lambda a: np.squeeze(a, axis), dims)
    else:
        alike = [p.chance(d, *[s for s in p.symbols.values() if s.size == d.size and not d.static])
                 for d in x.dims]  # fmt: skip
        p.emit(f"ops.rebind({x.name}, {_texts(alike)})", [x], np.copy, alike)


def join(p: Program) -> None:
    kind = p.chance("concat", "stack", "split", "chunk")
    x = p.ranked(p.some())
    axis = any_axis(p, x)
    assert axis is not None
    at = axis % x.rank
    if kind == "concat":
        y = p.pick(small, lambda v: v.dtype == x.dtype and v.rank == x.rank
                   and resized(v, at, 0) == resized(x, at, 0))  # fmt: skip
        parts = [x, y or x, x][: p.number(1, 3)]
        dims = resized(x, at, parts[0].dims[at])
        for v in parts[1:]:
            dims[at] = dims[at] + v.dims[at]
        p.emit(f"ops.concat([{', '.join(v.name for v in parts)}], axis={axis})", parts,
               lambda *a: np.concatenate(a, at), dims)  # fmt: skip
    elif kind == "stack":
        y = p.pick(small, lambda v: v.dtype == x.dtype and v.dims == x.dims) or x
        at = p.number(-x.rank - 1, x.rank)
        dims = list(x.dims)
        dims.insert(at % (x.rank + 1), Size.of(2))
        p.emit(f"ops.stack([{x.name}, {y.name}], axis={at})", [x, y],
               lambda *a: np.stack(a, at), dims)  # fmt: skip
    else:
        size = x.dims[at].size
        if not x.dims[at].static:
            x = p.emit(f"ops.rebind({x.name}, {_texts(resized(x, at, size))})", [x], np.copy,
                       resized(x, at, size))  # fmt: skip
        first = p.number(0, size)
        sizes, text = [first, size - first], f"ops.split({x.name}, {[first, size - first]}, {axis})"
        if kind == "chunk":
            n = p.chance(*[n for n in range(1, 6) if size % n == 0])
            sizes, text = [size // n] * n, f"ops.chunk({x.name}, {n}, {axis})"
        ends = np.cumsum(sizes)
        p.emit_all(text, [x], lambda a: np.split(a, ends[:-1], at),
                   [resized(x, at, n) for n in sizes], True, x.dtype)  # fmt: skip


def extend(p: Program) -> None:
    kind = p.chance("pad", "tile", "repeat", "repeat each")
    x = p.ranked(p.some())
    if kind == "pad":
        mode = p.chance("constant", "reflect", "edge")
        pads = [(p.number(0, 2), p.number(0, 3)) if d.size or mode == "constant" else (0, 0)
                for d in x.dims]  # fmt: skip
        dims = [d + sum(n) for d, n in zip(x.dims, pads, strict=True)]
        value = literal(p, x.dtype)
        more, keys = ("", {})
        if mode == "constant":
            more, keys = f", value={value.name}", {"constant_values": value.array.item()}
        p.emit(f"ops.pad({x.name}, {[n for ns in pads for n in ns]}, mode={mode!r}{more})", [x],
               lambda a: np.pad(a, pads, mode, **keys), dims)  # fmt: skip
    elif kind == "tile":
        symbols = [s for s in p.symbols.values() if s.size > 0]
        times = [p.chance(Size.of(1), Size.of(2), *symbols) for _ in x.dims]
        dims = [d * n for d, n in zip(x.dims, times, strict=True)]
        p.emit(f"ops.tile({x.name}, {_texts(times)})", [x],
               lambda a: np.tile(a, [n.size for n in times]), dims)  # fmt: skip
    elif kind == "repeat":
        n, axis = p.number(1, 3), p.chance(None, any_axis(p, x))
        whole = Size.of(n)
        for d in x.dims:
            whole = whole * d
        dims = [whole] if axis is None else resized(x, axis, x.dims[axis] * n)
        p.emit(f"ops.repeat_interleave({x.name}, {n}, {axis})", [x],
               lambda a: np.repeat(a, n, axis), dims)  # fmt: skip
    else:
        axis = any_axis(p, x)
        assert axis is not None
        counts = np.array([p.number(0, 3) for _ in range(x.dims[axis].size)], I64)
        total = int(counts.sum())
        p.emit(f"ops.repeat_interleave({x.name}, {constant(counts)}, {axis}, {total})", [x],
               lambda a: np.repeat(a, counts, axis), resized(x, axis, total))  # fmt: skip


# ---------------------------------------------------------------- picking


def index(p: Program, dims: list[Size], new_axes: bool = True) -> tuple[str, Any, list[Size]]:
    """What is written in brackets, the same for NumPy, and the dims it gives."""
    texts: list[str] = []
    entries: list[Any] = []
    out: list[Size] = []
    for axis, d in enumerate(dims):
        n = d.size
        if new_axes and p.number(0, 5) == 5:
            texts, entries, out = [*texts, "None"], [*entries, None], [*out, Size.of(1)]
        kinds = [":", "slice", "pair", *(["int", "value"] if n else [])]
        kind = p.chance(*kinds)
        if kind == ":":
            text, entry = ":", slice(None)
            out.append(d)
        elif kind == "int":
            entry = p.number(-n, n - 1)
            text = str(entry)
        elif kind == "value":
            k = p.number(-n - 1, n + 1)
            entry = max(0, min(n - 1, k + n if k < 0 else k))
            text = f"ops.constant({k}, DType.{p.chance('int64', 'int32')}, CPU)"
        elif kind == "slice":
            text, entry, size = _slice(p, d)
            out.append(size)
        else:
            # Of any bounds, as in Python, with the size given.
            ends = [None, *range(-n - 1, n + 2)]
            entry = slice(p.chance(*ends), p.chance(*ends), p.chance(1, -1, 2, -2))
            size = len(range(n)[entry])
            same = p.chance(Size.of(size), *[s for s in p.symbols.values() if s.size == size])
            text = f"({entry}, {same})"
            out.append(same)
        texts.append(text)
        entries.append(entry)
        if p.number(0, 5) == 5:
            rest = list(dims[axis + 1 :])
            written = p.chance(["..."], [])
            return ", ".join([*texts, *written, ""]), (*entries, ...), [*out, *rest]
    return ", ".join([*texts, "" if texts else "..., "]), tuple(entries) or ..., out


def _slice(p: Program, d: Size) -> tuple[str, slice, Size]:
    """A slice that is in range, and its size."""
    n = d.size
    low = p.number(0, n)
    high = p.number(low, n)
    # From which end each bound counts says how the size depends on the dimension's.
    low_ends, high_ends = [low], [high]
    if low < n:
        low_ends.append(low - n)
    if high == n:
        high_ends.append(None)
    elif high > 0:
        high_ends.append(high - n)
    start, stop = p.chance(*low_ends), p.chance(*high_ends)
    if start == 0 and p.number(0, 1):
        start = None
    if not d.static and start is not None and start < 0 and stop is not None and stop >= 0:
        start = low
    step = p.chance(1, 1, 2, 3)
    first = Size.of(start or 0) if (start or 0) >= 0 else d + start
    last = d if stop is None else Size.of(stop) if stop >= 0 else d + stop
    size = last + first * -1
    if step > 1:
        # A size of its own: nothing else is known to equal it.
        expression = f"-(-({size}) // {step})"
        count = -(-size.size // step)
        size = Size.of(count) if size.static else Size.of(count, expression)
    bounds = ["" if b is None else str(b) for b in (start, stop)]
    return ":".join([*bounds, str(step)][: 3 if step > 1 else 2]), slice(start, stop, step), size


def slicing(p: Program) -> None:
    x = p.ranked(p.some())
    text, entries, dims = index(p, x.dims)
    p.emit(f"{x.name}[{text}]", [x], lambda a: a[entries], dims)


def _near(i: Array, n: int) -> Array:
    i = i.astype(np.int64)
    return np.clip(np.where(i < 0, i + n, i), 0, max(n - 1, 0))


def gather(p: Program) -> None:
    x = p.ranked(p.some())
    axis = any_axis(p, x, not_empty)
    if axis is None:
        return shape(p)
    at = axis % x.rank
    n = x.dims[at].size
    i = p.pick(small, lambda v: v.dtype in INTS and v.array.size * x.array.size <= 2000)
    if i is None or p.number(0, 1):
        drawn = [p.number(-n - 1, n + 1) for _ in range(p.number(0, 3))]
        array = np.array(drawn, p.chance("int64", "int32"))
        i = Value(constant(array), [Size.of(len(drawn))], array)
    p.emit(f"ops.gather({x.name}, {i.name}, {axis})", [x, i],
           lambda a, i: np.take(a, _near(i, n), at),
           [*x.dims[:at], *i.dims, *x.dims[at + 1 :]])  # fmt: skip


def gather_nd(p: Program) -> None:
    x = p.ranked(p.some())
    depth = p.number(1, x.rank)
    sizes = [d.size for d in x.dims[:depth]]
    if 0 in sizes:
        return slicing(p)
    rows = [[p.number(-n - 1, n) for n in sizes] for _ in range(p.number(1, 3))]
    array = np.array(rows, np.int64)
    p.emit(f"ops.gather_nd({x.name}, {constant(array)})", [x],
           lambda a: a[tuple(_near(array[:, k], n) for k, n in enumerate(sizes))],
           [Size.of(len(rows)), *x.dims[depth:]])  # fmt: skip


# ---------------------------------------------------------------- products and ranges


def _matmul_dims(a: list[Size], b: list[Size]) -> list[Size] | None:
    inner = b[-2] if len(b) > 1 else b[0] if b else None
    if not a or inner != a[-1]:
        return None
    leading = broadcast(a[:-2], b[:-2])
    return None if leading is None else [*leading, *a[-2:-1], *(b[-1:] if len(b) > 1 else [])]


def matmul(p: Program) -> None:
    x = p.tame(p.ranked(p.some()))
    y = p.pick(small, lambda v: _matmul_dims(x.dims, v.dims) is not None
               and joint(x.dtype, v.dtype) is not None)  # fmt: skip
    if y is None:
        y = x if x.rank == 1 else p.emit(f"{x.name}.T", [x], lambda a: np.swapaxes(a, -1, -2),
                                         [*x.dims[:-2], x.dims[-1], x.dims[-2]])  # fmt: skip
    y = p.tame(y)
    dims, dtype = _matmul_dims(x.dims, y.dims), joint(x.dtype, y.dtype)
    assert dims is not None and dtype is not None
    wide = F64 if dtype in LOOSE else dtype
    p.emit(p.chance(f"ops.matmul({x.name}, {y.name})", f"{x.name} @ {y.name}"), [x, y],
           lambda a, b: np.matmul(a.astype(wide), b.astype(wide)), dims, False, dtype)  # fmt: skip


def outer(p: Program) -> None:
    x = p.pick(lambda v: v.rank == 1 and small(v))
    y = x and p.pick(small, lambda v: v.rank == 1 and joint(x.dtype, v.dtype) is not None)
    if x is None or y is None:
        return matmul(p)
    x, y = p.tame(x), p.tame(y)
    dtype = joint(x.dtype, y.dtype)
    wide = F64 if dtype in LOOSE else dtype
    p.emit(f"ops.outer({x.name}, {y.name})", [x, y],
           lambda a, b: np.outer(a.astype(wide), b.astype(wide)), [*x.dims, *y.dims],
           True, dtype)  # fmt: skip


def ranges(p: Program) -> None:
    dtype = p.chance(I64, F32, *INTS, *FLOATS)
    start, step = p.number(0, 3), p.number(1, 3)
    symbol = p.chance(None, *p.symbols.values())
    if symbol is not None:
        start = min(start, symbol.size)
        bounds: list[Any] = [start, symbol, 1]
        array, dims = np.arange(start, symbol.size), [symbol + -start]
    else:
        stop: Any = p.number(0, 9)
        if dtype.kind != "u" and p.number(0, 1):
            start, stop, step = stop, start - 3, -step
        bounds = [start, stop, step]
        if dtype in LOOSE and p.number(0, 1):
            bounds = [n / 2 for n in bounds]
        array = np.arange(*bounds)
        dims = [Size.of(len(array))]
    given = ", ".join(map(str, bounds))
    p.emit(f"ops.range({given}, dtype=DType.{dtype.name}, device=CPU)", [], lambda: array, dims,
           dtype=dtype)  # fmt: skip


# ---------------------------------------------------------------- control flow and state


def control(p: Program) -> None:
    flag, times = p.pool[0], p.pool[1]
    x = p.some()
    if x.is_float:
        x = p.tame(x)
    n = 0.5 if x.is_float else True if x.dtype == BOOL else 2
    one = np.array(n, F64 if x.is_float else x.dtype)
    more, less = (np.logical_or, np.logical_xor) if x.dtype == BOOL else (np.add, np.subtract)
    kind = p.chance("cond", "while", "nested")
    if kind == "cond":
        p.emit_all(
            f"ops.cond({flag.name}, [{x.name}.type] * 2, lambda: [{x.name} + {n}, {x.name}], "
            f"lambda: [{x.name}, {x.name} - {n}])", [flag, x],
            lambda c, a: [more(a, one), a] if c else [a, less(a, one)],
            [x.dims, x.dims], True, x.dtype)  # fmt: skip
        return

    def repeated(k: Array, c: Array, a: Array) -> Array:
        for _ in range(int(k)):
            a = less(a, one) if kind == "nested" and not c else more(a, one)
        return a

    step = f"v + {n}"
    if kind == "nested":
        step = f"ops.cond({flag.name}, [v.type], lambda: v + {n}, lambda: v - {n})[0]"
    p.emit(f"ops.while_loop([{times.name}, {x.name}], lambda k, v: k > 0, "
           f"lambda k, v: [k - 1, {step}])[1]", [times, flag, x], repeated, x.dims,
           dtype=x.dtype)  # fmt: skip


def state(p: Program) -> None:
    times = p.pool[1]
    if not p.buffers or p.number(0, 4) == 4:
        dtype = p.chance(*FLOATS, *INTS)
        dims = [p.chance(Size.of(3), *p.symbols.values()) for _ in range(p.number(1, 2))]
        name = f"b{len(p.buffers) + 1}"
        p.lines.append(f"{name} = ops.buffer_create(BufferType(DType.{dtype.name}, "
                       f"{_texts(dims)}, CPU), init_value=3)")  # fmt: skip
        sizes = [d.size for d in dims]
        p.buffers[name] = p.emit(f"{name}[...]", [], lambda: np.full(sizes, 3), dims, dtype=dtype)
    name = p.chance(*p.buffers)
    old = p.buffers[name]
    negative = np.logical_not if old.dtype == BOOL else np.negative
    source = p.pick(lambda v: v.dtype == old.dtype and v.dims == old.dims)
    kind = p.chance("all", "slice", "slice", "loop")
    operands = [old]
    if kind == "all" and source is not None:
        p.lines.append(f"{name}[...] = {source.name}")
        operands, contents = [source], np.copy
    elif kind == "loop":
        p.lines.append(f"ops.while_loop([{times.name}], lambda k: k > 0, lambda k: "
                       f"[ops.buffer_store({name}, -{name}[...]), k - 1][1:])")  # fmt: skip
        operands = [old, times]

        def contents(a: Array, k: Array) -> Array:
            return negative(a) if k % 2 else a
    else:
        text, entries, _ = index(p, old.dims, new_axes=False)
        p.lines.append(f"{name}[{text}] = -{name}[{text}]")

        def contents(a: Array) -> Array:
            a = np.copy(a)
            a[entries] = negative(a[entries])
            return a

    p.buffers[name] = p.emit(f"{name}[...]", operands, contents, old.dims)


# ---------------------------------------------------------------- the property

GENERATORS = (
    arithmetic, arithmetic, division, comparison, logical, where, smooth, smooth, unary, unary,
    float_cast, reduction, reduction, running, norm, shape, shape, join, extend, slicing, slicing,
    gather, gather_nd, matmul, outer, ranges, control, state,
)  # fmt: skip


@st.composite
def programs(draw: Callable[..., Any]) -> Program:
    p = Program(draw)
    p.symbols = {name: Size.of(draw(SIZES), name) for name in ("n", "m")}
    rng = np.random.default_rng(p.number(0, 2**32 - 1))
    known = [*p.symbols.values(), *[Size.of(draw(SIZES)) for _ in range(2)], Size.of(1)]
    p.add_input(Value("flag", [], np.array(p.chance(True, False))))
    p.add_input(Value("times", [], np.array(p.number(0, 3), I64)))
    # Sizes come from these inputs, whatever else there is.
    p.add_input(Value("x0", list(p.symbols.values()),
                      drawn(p, rng, [s.size for s in p.symbols.values()])))  # fmt: skip
    for i in range(p.number(1, 2)):
        dims = [p.chance(*known) for _ in range(p.number(0, 3))]
        p.add_input(Value(f"x{i + 1}", dims, drawn(p, rng, [d.size for d in dims])))
    if p.number(0, 1):
        dims = [p.chance(*known) for _ in range(p.number(1, 2))]
        p.add_input(Value("b0", dims, drawn(p, rng, [d.size for d in dims])), is_buffer=True)
    least = p.number(3, 8)
    while len(p.steps) < least:
        p.chance(*GENERATORS)(p)
    return p


def drawn(p: Program, rng: np.random.Generator, sizes: list[int]) -> Array:
    dtype = p.chance(*FLOATS, *INTS, BOOL)
    if dtype == BOOL:
        return rng.integers(0, 2, sizes).astype(dtype)
    if dtype in LOOSE:
        # Quarters: arithmetic on them is exact for a while.
        array = rng.integers(-16, 17, sizes) / 4
        if p.number(0, 4) == 4:
            special = rng.choice([np.nan, np.inf, -np.inf, -0.0], sizes)
            array = np.where(rng.integers(0, 4, sizes) == 0, special, array)
        return array.astype(dtype)
    low, high = (-3, 6) if p.number(0, 1) else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return rng.integers(max(low, np.iinfo(dtype).min), high, sizes, dtype, endpoint=True)


def graph_of(p: Program) -> Graph:
    """The program's text as a graph whose outputs are all its values."""
    types = [
        (BufferType if is_buffer else TensorType)(
            DType.of(v.dtype), [d.size if d.static else str(d) for d in v.dims], CPU
        )
        for v, is_buffer in p.inputs
    ]
    with Graph("program", input_types=types) as graph:
        names = SCOPE | {name: Dim(name) for name in p.symbols}
        for (v, is_buffer), value in zip(p.inputs, graph.inputs, strict=True):
            names[v.name] = value.buffer if is_buffer else value.tensor
        exec("\n".join(p.lines), names)
        graph.output(*[names[v.name] for s in p.steps for v in s.results])
    return graph


def check(p: Program) -> None:
    graph = graph_of(p)
    model = InferenceSession().load(graph)
    arguments = [Buffer.from_numpy(v.array.copy()) if b else v.array for v, b in p.inputs]
    outputs = [o.to_numpy() for o in model(*arguments)]
    results = [v for s in p.steps for v in s.results]
    sizes = {name: s.size for name, s in p.symbols.items()}
    for v, got, type_ in zip(results, outputs, graph.output_types, strict=True):
        assert type_.dtype.np == got.dtype == v.dtype, f"{v.name} is {got.dtype}, not {v.dtype}"
        assert tuple(type_.shape.evaluate(sizes)) == got.shape == v.array.shape, (
            f"{v.name} has shape {got.shape}, not {v.array.shape}"
        )
    actual = {v.name: v.array for v, _ in p.inputs}
    actual |= {v.name: got for v, got in zip(results, outputs, strict=True)}
    for s in p.steps:
        operands = [widened(actual.get(v.name, v.array)) for v in s.operands]
        with np.errstate(all="ignore"):
            wanted = s.reference(*operands)
        for v, want in zip(s.results, wanted, strict=True):
            compare(v, actual[v.name], converted(want, v.dtype), operands)
    for (v, is_buffer), argument in zip(p.inputs, arguments, strict=True):
        if is_buffer:
            last = p.buffers[v.name]
            left = argument.to_numpy()
            assert np.array_equal(left, actual[last.name], equal_nan=last.is_float), v.name


def compare(v: Value, got: Array, want: Array, operands: list[Array]) -> None:
    got, want = widened(got), widened(want)
    if v.exact:
        same = np.array_equal(got, want, equal_nan=v.is_float)
    else:
        largest = max([1.0, *[float(np.abs(o, where=np.isfinite(o), out=np.zeros(o.shape)).max(
            initial=0)) for o in operands if o.dtype == F64]])  # fmt: skip
        with np.errstate(all="ignore"):
            near = np.abs(got - want) <= v.loose * (np.abs(want) + largest)
        same = bool(np.all(near | (got == want) | (np.isnan(got) & np.isnan(want))))
    assert same, f"{v.name} is {got.tolist()}, NumPy says {want.tolist()}"


# No time is spent on looking for smaller data than what fits on a screen already.
CALM = (HealthCheck.too_slow, HealthCheck.data_too_large)


@settings(max_examples=100, suppress_health_check=CALM)
@given(programs())
def test_programs_compute_what_numpy_does(program: Program):
    check(program)


@pytest.mark.slow
@settings(max_examples=2000, suppress_health_check=CALM)
@given(programs())
def test_many_programs_compute_what_numpy_does(program: Program):
    check(program)
