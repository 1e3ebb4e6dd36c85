# SPDX-License-Identifier: Apache-2.0
"""Elements replaced, or combined with others, by index or by mask."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.differential.picking import places
from tests.differential.program import Program
from tests.differential.registry import op
from tests.differential.values import ALL, BOOL, Array, Size, Value, broadcast, sizes

COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "": lambda old, new: new,
    "_add": np.add,
    "_max": np.maximum,
    "_min": np.minimum,
    "_mul": np.multiply,
}


def _updates(p: Program, x: Value, dims: list[Size]) -> Value:
    return p.tame(p.some(dtypes=[x.dtype], dims=dims))


def _combined(name: str, of: str, a: Array, u: Array, places: list[tuple[Any, Any]]) -> Array:
    """``a`` with an update for each place, in order."""
    combine, out = COMBINE[name.removeprefix(of)], np.copy(a)
    for place, source in places:
        out[place] = combine(out[place], u[source])
    return out


def _is_exact(name: str) -> bool:
    return not name.endswith(("_add", "_mul"))


@op("scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul")
def scatter(p: Program, name: str) -> None:
    x = p.tame(p.some(rank=(1, 3)))
    axis = p.axis(x)
    at = axis % x.rank
    size = x.dims[at].size
    dims = [d if p.flip() else Size.of(p.number(0, d.size)) for d in x.dims]
    dims[at] = p.dim()
    u = _updates(p, x, dims)
    i = places(p, dims, -size - 1, size)

    def apply(a: Array, u: Array, i: Array) -> Array:
        found = []
        for source in np.ndindex(i.shape):
            k = int(i[source])
            if -size <= k < size:
                found.append(((*source[:at], k, *source[at + 1 :]), source))
        return _combined(name, "scatter", a, u, found)

    given = p.chance(f", {axis}", f", axis={axis}")
    p.emit(f"ops.{name}({x.name}, {u.name}, {i.name}{given})", [x, u, i], apply, x.dims,
           _is_exact(name))  # fmt: skip


@op("scatter_nd", "scatter_nd_add", "scatter_nd_max", "scatter_nd_min", "scatter_nd_mul")
def scatter_nd(p: Program, name: str) -> None:
    x = p.tame(p.some(rank=(1, 3)))
    depth = p.number(0, x.rank)
    picked = sizes(x.dims)[:depth]
    many = [p.dim() for _ in range(p.number(0, 2))]
    u = _updates(p, x, [*many, *x.dims[depth:]])
    most = max(picked, default=0)
    i = places(p, [*many, Size.of(depth)], -most - 1, most)

    def apply(a: Array, u: Array, i: Array) -> Array:
        found = []
        for source in np.ndindex(i.shape[:-1]):
            place = tuple(int(k) for k in i[source])
            if all(-n <= k < n for k, n in zip(place, picked, strict=True)):
                found.append((place, source))
        return _combined(name, "scatter_nd", a, u, found)

    p.emit(f"ops.{name}({x.name}, {u.name}, {i.name})", [x, u, i], apply, x.dims,
           _is_exact(name))  # fmt: skip


@op("masked_scatter")
def masked_scatter(p: Program) -> None:
    x = p.some(rank=(1, 3))
    mask = p.pick(lambda v: v.exact and broadcast(x.dims, v.dims) == x.dims)
    if mask is None or p.flip():
        mask = p.fresh((BOOL, *ALL), dims=x.dims[p.number(0, x.rank) :])
    u = p.some(dtypes=[x.dtype])

    def apply(a: Array, mask: Array, u: Array) -> Array:
        chosen = np.flatnonzero(np.broadcast_to(mask != 0, a.shape))[: u.size]
        out = np.copy(a)
        out.flat[chosen] = u.ravel()[: len(chosen)]
        return out

    p.emit(f"ops.masked_scatter({x.name}, {mask.name}, {u.name}, {p.chance(0, 1)})", [x, mask, u],
           apply, x.dims)  # fmt: skip
