# SPDX-License-Identifier: Apache-2.0
"""Ops along an axis: reductions, running sums, normalizations, orders."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.differential.elementwise import ARITHMETIC, pair
from tests.differential.program import Program, constant
from tests.differential.registry import op
from tests.differential.values import (
    ALL,
    BOOL,
    F32,
    F64,
    I64,
    LOOSE,
    NUMBERS,
    Array,
    Size,
    Value,
    is_exact,
    quotient,
    with_size,
)


def not_empty(size: Size) -> bool:
    return size.size > 0


def has_elements(v: Value) -> bool:
    """Whether some axis has."""
    return any(map(not_empty, v.dims))


def mean(a: Array, axis: int) -> Array:
    """Of integers rounded toward zero, and 0 of none."""
    n = a.shape[axis]
    if a.dtype.kind == "f":
        return np.divide(np.sum(a, axis, keepdims=True), n)
    total = np.sum(a, axis, keepdims=True, dtype=np.uint64 if a.dtype.kind == "u" else np.int64)
    return quotient(np.asarray(total), max(n, 1))


@op("max", "min")
def extremes(p: Program, name: str) -> None:
    if p.flip():
        _, of_numbers, of_bools = ARITHMETIC[name]
        x, y, dtype, dims = pair(p)
        wide, apply = F64 if dtype in LOOSE else dtype, of_bools if dtype == BOOL else of_numbers
        p.emit(f"ops.{name}({x.name}, {y.name})", [x, y],
               lambda a, b: apply(a.astype(wide), b.astype(wide)), dims, dtype=dtype)  # fmt: skip
        return
    x = p.some(has_elements, rank=(1, 3), least=1)
    axis = p.axis(x, not_empty)
    p.emit(f"ops.{name}({x.name}, axis={axis})", [x],
           lambda a: getattr(np, name)(a, axis=axis, keepdims=True), with_size(x.dims, axis, 1),
           )  # fmt: skip


@op("argmax", "argmin")
def positions(p: Program, name: str) -> None:
    x = p.some(is_exact, has_elements, rank=(1, 3), least=1)
    axis = p.axis(x, not_empty)
    p.emit(f"ops.{name}({x.name}, {axis})", [x],
           lambda a: getattr(np, name)(a, axis=axis, keepdims=True), with_size(x.dims, axis, 1),
           dtype=I64)  # fmt: skip


@op("sum", "prod", "mean")
def reduction(p: Program, name: str) -> None:
    x = p.tame(p.some(rank=(1, 3), dtypes=NUMBERS if name == "mean" else ALL))
    axis = p.axis(x)
    reduce: dict[str, Callable[[Array], Array]] = {
        "sum": lambda a: np.add.reduce(a, axis, x.wide, keepdims=True),
        "prod": lambda a: np.multiply.reduce(a, axis, x.wide, keepdims=True),
        "mean": lambda a: mean(a, axis),
    }
    given = p.chance(f", axis={axis}", f", {axis}", *([""] if axis in (-1, x.rank - 1) else []))
    p.emit(f"ops.{name}({x.name}{given})", [x], reduce[name], with_size(x.dims, axis, 1),
           False)  # fmt: skip


# ---------------------------------------------------------------- as long as before


def _softmax(a: Array, axis: int) -> Array:
    e = np.exp(a - np.max(a, axis, keepdims=True, initial=-np.inf))
    return e / np.sum(e, axis, keepdims=True)


def _logsoftmax(a: Array, axis: int) -> Array:
    a = a - np.max(a, axis, keepdims=True, initial=-np.inf)
    return a - np.log(np.sum(np.exp(a), axis, keepdims=True))


@op("softmax", "logsoftmax")
def softmax(p: Program, name: str) -> None:
    x = p.tame(p.floating(rank=(1, 3)))
    axis = p.axis(x)
    apply = _softmax if name == "softmax" else _logsoftmax
    p.emit(f"ops.{name}({x.name}, {axis})", [x], lambda a: apply(a, axis), x.dims, False)


def _cumsum(a: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    a = np.flip(a, axis) if reverse else a
    sums = np.cumsum(a, axis, I64 if a.dtype == BOOL else a.dtype)
    if exclusive:
        none = np.zeros_like(np.take(sums, [0] if a.shape[axis] else [], axis))
        kept = np.take(sums, np.arange(max(a.shape[axis] - 1, 0)), axis)
        sums = np.concatenate([none, kept], axis)
    return np.flip(sums, axis) if reverse else sums


@op("cumsum")
def cumsum(p: Program) -> None:
    x = p.tame(p.some(rank=(1, 3)))
    axis, flags = p.axis(x), (p.flip(), p.flip())
    p.emit(f"ops.cumsum({x.name}, {axis}, {flags[0]}, {flags[1]})", [x],
           lambda a: _cumsum(a, axis, *flags), x.dims, False)  # fmt: skip


# ---------------------------------------------------------------- normalizations


def _weights(p: Program, size: Size) -> tuple[str, Any]:
    """A number, or one for each channel where their number is known."""
    gamma = p.chance(0.5, 2.0, -1.0)
    if not size.static or p.flip():
        return str(gamma), gamma
    weights = np.array([gamma + i for i in range(size.size)], F32)
    return constant(weights), weights


@op("layer_norm")
def layer_norm(p: Program) -> None:
    x = p.tame(p.floating(rank=(1, 3)), always=True)
    gamma, scale = _weights(p, x.dims[-1])
    beta, epsilon = p.chance(0.0, 1.0), p.chance(0.5, 0.25)

    def apply(a: Array) -> Array:
        a = a - mean(a, -1)
        return a / np.sqrt(mean(a**2, -1) + epsilon) * scale + beta

    p.emit(f"ops.layer_norm({x.name}, {gamma}, {beta}, {epsilon})", [x], apply, x.dims, False)


@op("rms_norm")
def rms_norm(p: Program) -> None:
    x = p.tame(p.floating(rank=(1, 3)), always=True)
    gamma, scale = _weights(p, x.dims[-1])
    epsilon, offset, first = p.chance(0.5, 0.25), p.chance(0.0, 1.0), p.flip()
    p.emit(f"ops.rms_norm({x.name}, {gamma}, {epsilon}, {offset}, {first})", [x],
           lambda a: a / np.sqrt(mean(a * a, -1) + epsilon) * (scale + offset),
           x.dims, False)  # fmt: skip


@op("group_norm")
def group_norm(p: Program) -> None:
    x = p.tame(p.floating(rank=(2, 4)), always=True)
    beta, epsilon = p.chance(0.0, 1.0), p.chance(0.5, 0.25)
    groups = p.chance(*[g for g in (1, 2, 3, 5) if x.dims[1].size % g == 0])

    def apply(a: Array) -> Array:
        n, c, *rest = a.shape
        g = a.reshape(n, groups, c // groups * math.prod(rest))
        g = g - mean(g, 2)
        return (g / np.sqrt(mean(g**2, 2) + epsilon)).reshape(a.shape) * 2 + beta

    p.emit(f"ops.group_norm({x.name}, 2.0, {beta}, {groups}, {epsilon})", [x], apply, x.dims,
           False)  # fmt: skip


# ---------------------------------------------------------------- orders


def _order(a: Array, axis: int, descending: bool) -> Array:
    """Where the elements are in order: NaN is the largest, equal ones stay as they are."""
    ranks = np.unique(a, return_inverse=True)[1].reshape(a.shape)
    return np.argsort(-ranks if descending else ranks, axis, kind="stable")


@op("top_k", "bottom_k")
def first_k(p: Program, name: str) -> None:
    x = p.some(is_exact, rank=(1, 3))
    axis = p.axis(x)
    k = p.number(0, x.dims[axis].size)

    def apply(a: Array) -> list[Array]:
        at = np.take(_order(a, axis, name == "top_k"), np.arange(k), axis)
        return [np.take_along_axis(a, at, axis), at]

    dims = with_size(x.dims, axis, k)
    p.emit_all(f"ops.{name}({x.name}, {k}, {axis})", [x], apply, [dims, dims],
               dtypes=[x.dtype, I64])  # fmt: skip


@op("argsort")
def argsort(p: Program) -> None:
    x = p.some(is_exact, rank=(1, 1))
    ascending = p.chance(True, False)
    p.emit(f"ops.argsort({x.name}, {ascending})", [x], lambda a: _order(a, 0, not ascending),
           x.dims, dtype=I64)  # fmt: skip
