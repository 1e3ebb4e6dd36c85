# SPDX-License-Identifier: Apache-2.0
"""Ops element by element."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.differential.program import Program, literal
from tests.differential.registry import op
from tests.differential.values import (
    ALL,
    BOOL,
    F64,
    FLOATS,
    LARGEST,
    LOOSE,
    NUMBERS,
    Array,
    Size,
    Type,
    Value,
    broadcast,
    finite,
    is_exact,
    joint,
)

# ---------------------------------------------------------------- two operands


def pair(
    p: Program, exact: bool = False, dtypes: tuple[Type, ...] = ALL
) -> tuple[Value, Value, Type, list[Size]]:
    """Two operands, a number among them at times, their common dtype and dims."""
    wanted = [is_exact] if exact else []
    x = p.some(*wanted, dtypes=dtypes)
    if p.number(0, 3) == 3:
        y = literal(p, x.dtype)
    else:
        found = p.pick(
            *wanted,
            lambda v: v.dtype in dtypes,
            lambda v: joint(x.dtype, v.dtype) is not None and broadcast(x.dims, v.dims) is not None,
            lambda v: v.array.size * max(x.array.size, 1) <= LARGEST * 50,
        )
        fitting = [d for d in dtypes if joint(d, x.dtype) is not None]
        y = found or p.fresh(fitting, dims=x.dims[p.number(0, x.rank) :])
    x, y = (x, y) if p.flip() else (y, x)
    dims, dtype = broadcast(x.dims, y.dims), joint(x.dtype, y.dtype)
    assert dims is not None and dtype is not None
    return x, y, dtype, dims


def _floor_div(a: Array, b: Array) -> Array:
    return np.floor(a / b) if a.dtype.kind == "f" else np.floor_divide(a, b)


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind != "i":
        return np.power(a, b)
    unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 1, -1, 1), 0)).astype(a.dtype)
    return np.where(b < 0, unit, np.power(a, np.maximum(b, 0)))


# The operator, the function of numbers, and that of bools.
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
COMPARISONS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "equal": ("==", np.equal, ""),
    "not_equal": ("!=", np.not_equal, ""),
    "greater": (">", np.greater, "<="),
    "greater_equal": (">=", np.greater_equal, "<"),
}


def _written(p: Program, name: str, sign: str, x: Value, y: Value) -> str:
    if sign and p.flip():
        return f"({x.name}) {sign} ({y.name})"
    return f"ops.{name}({x.name}, {y.name})"


@op("add", "sub", "mul", "floor_div", "mod", "pow")
def arithmetic(p: Program, name: str) -> None:
    sign, of_numbers, of_bools = ARITHMETIC[name]
    x, y, dtype, dims = pair(p, exact=name in ("floor_div", "mod"))
    if dtype in LOOSE and name in ("mul", "pow"):
        most = 3 if name == "pow" else 8
        x, y = p.tame(x, -most, most), p.tame(y, -most, most)
        if name == "pow" and not x.exact:
            x = p.tame(x, 0.25, 4, always=True)
    wide = F64 if dtype in LOOSE else dtype
    apply = of_bools if dtype == BOOL else of_numbers
    p.emit(_written(p, name, sign, x, y), [x, y],
           lambda a, b: apply(a.astype(wide), b.astype(wide)), dims,
           name != "pow", dtype)  # fmt: skip


@op("div")
def division(p: Program) -> None:
    x, y, dtype, dims = pair(p, dtypes=NUMBERS)
    if not y.exact:
        y = p.tame(y, 0.25, 8, always=True)
    p.emit(_written(p, "div", "/", x, y), [x, y], lambda a, b: a.astype(F64) / b.astype(F64),
           dims, False, dtype if dtype in LOOSE else F64)  # fmt: skip


@op("equal", "not_equal", "greater", "greater_equal")
def comparison(p: Program, name: str) -> None:
    sign, apply, negation = COMPARISONS[name]
    x, y, dtype, dims = pair(p, exact=True)
    wide = F64 if dtype in LOOSE else dtype
    if negation and p.number(0, 2) == 2:
        p.emit(f"({x.name}) {negation} ({y.name})", [x, y],
               lambda a, b: ~apply(a.astype(wide), b.astype(wide)), dims, dtype=BOOL)  # fmt: skip
    else:
        p.emit(_written(p, name, sign, x, y), [x, y],
               lambda a, b: apply(a.astype(wide), b.astype(wide)), dims, dtype=BOOL)  # fmt: skip


@op("logical_and", "logical_or", "logical_xor")
def logical(p: Program, name: str) -> None:
    x, y, _, dims = pair(p, dtypes=(BOOL,))
    sign = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}[name]
    p.emit(_written(p, name, sign, x, y), [x, y], getattr(np, name), dims, dtype=BOOL)


@op("logical_not")
def logical_not(p: Program) -> None:
    x = p.some(dtypes=(BOOL,))
    p.emit(p.chance(f"ops.logical_not({x.name})", f"~{x.name}"), [x], np.logical_not, x.dims)


@op("where")
def where(p: Program) -> None:
    x, y, dtype, dims = pair(p)
    c = p.pick(lambda v: v.dtype == BOOL and broadcast(v.dims, dims) is not None)
    c = c or p.fresh((BOOL,), dims=dims[p.number(0, len(dims)) :])
    all_dims = broadcast(c.dims, dims)
    assert all_dims is not None
    wide = F64 if dtype in LOOSE else dtype
    p.emit(f"ops.where({c.name}, {x.name}, {y.name})", [c, x, y],
           lambda c, a, b: np.where(c, a.astype(wide), b.astype(wide)), all_dims,
           dtype=dtype)  # fmt: skip


# ---------------------------------------------------------------- one operand

_erf = np.vectorize(math.erf, otypes=[float])


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _gelu(x: Array) -> Array:
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# The function, and where it is smooth.
SMOOTH: dict[str, tuple[Callable[..., Any], float, float]] = {
    "acos": (np.arccos, -0.75, 0.75),
    "atanh": (np.arctanh, -0.75, 0.75),
    "cos": (np.cos, -8, 8),
    "erf": (_erf, -8, 8),
    "exp": (np.exp, -8, 4),
    "log": (np.log, 0.25, 8),
    "log1p": (np.log1p, -0.75, 8),
    "rsqrt": (lambda x: 1 / np.sqrt(np.where(x == 0, 0.0, x)), 0.25, 8),
    "sigmoid": (_sigmoid, -8, 8),
    "silu": (lambda x: x * _sigmoid(x), -8, 8),
    "sin": (np.sin, -8, 8),
    "sqrt": (np.sqrt, 0.25, 8),
    "tanh": (np.tanh, -8, 8),
}
GELU = {
    "": _gelu,
    ", 'none'": _gelu,
    ", 'tanh'": _gelu_tanh,
    ", 'quick'": lambda x: x * _sigmoid(1.702 * x),
}


@op(*SMOOTH)
def smooth(p: Program, name: str) -> None:
    apply, low, high = SMOOTH[name]
    x = p.floating()
    # What is exact may also be where the function has a pole or is NaN.
    x = p.tame(x) if x.exact else p.tame(x, low, high, always=True)
    if name == "silu" and not finite(x):
        x = p.tame(x, always=True)  # -inf times 0
    p.emit(f"ops.{name}({x.name})", [x], apply, x.dims, False)


@op("gelu")
def gelu(p: Program) -> None:
    kind = p.chance(*GELU)
    x = p.tame(p.floating())
    if not finite(x):
        x = p.tame(x, always=True)
    p.emit(f"ops.gelu({x.name}{kind})", [x], GELU[kind], x.dims, False)


@op("ceil", "floor", "round", "trunc")
def whole(p: Program, name: str) -> None:
    x = p.some(is_exact)
    apply = getattr(np, name) if x.is_float else np.copy
    p.emit(f"ops.{name}({x.name})", [x], apply, x.dims)


@op("is_nan", "is_inf")
def test(p: Program, name: str) -> None:
    x = p.some(is_exact)
    apply = np.isnan if name == "is_nan" else np.isinf
    p.emit(f"ops.{name}({x.name})", [x], apply, x.dims, dtype=BOOL)


@op("abs", "negate", "relu")
def sign(p: Program, name: str) -> None:
    x = p.some()
    is_bool = x.dtype == BOOL
    text = f"ops.{name}({x.name})"
    if name == "abs":
        p.emit(text, [x], np.abs, x.dims)
    elif name == "relu":
        p.emit(text, [x], np.copy if is_bool else lambda a: np.maximum(a, 0), x.dims)
    else:
        p.emit(p.chance(text, f"-{x.name}"), [x], np.logical_not if is_bool else np.negative,
               x.dims)  # fmt: skip


@op("cast")
def cast(p: Program) -> None:
    x = p.some()
    p.cast(x, p.chance(*[d for d in (ALL if x.exact else FLOATS) if d != x.dtype]))
