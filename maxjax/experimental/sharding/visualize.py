# SPDX-License-Identifier: Apache-2.0
"""``visualize``: meshes and layouts, drawn in text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from maxjax.experimental.sharding.mesh import DeviceMesh
from maxjax.experimental.sharding.per_shard_dim import global_dim
from maxjax.experimental.sharding.placements import Partial, Unknown, sharding_axes
from maxjax.experimental.sharding.transfer import shard_windows
from maxjax.experimental.sharding.types import TensorLayout
from maxjax.graph.shape import Shape

__all__ = ["visualize"]

_GAP = "   "


def visualize(
    value: Any, *, title: str | None = None, blocks: bool = True, tree: bool = True
) -> None:
    """Prints which device has which part of a tensor, or how the devices of a mesh are numbered.

    Args:
        value: A mesh, a layout or a tensor; or a dict of these, which are drawn side by side.
        title: Goes before the first line.
        blocks: Whether to draw the tensor as a table of parts.
        tree: Whether to list the devices along each axis of the mesh.

    Raises:
        TypeError: If it is something else.
        ValueError: If there is nothing to draw: an empty dict, or neither blocks nor tree.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental.sharding import DeviceMapping, Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> rows = DeviceMapping(mesh, (Sharded(0),))
    >>> visualize(TensorLayout(DType.float32, [5, 4], rows), blocks=False)
    DType.float32 [5, 4] with DeviceMapping(DeviceMesh(tp=2), [Sharded(axis=0)])
    tensor[:, :]
    ├── tp=0  device 0 - tensor[:3, :]
    └── tp=1  device 1 - tensor[3:, :]
    """
    if not blocks and not tree:
        raise ValueError("nothing to draw: leave blocks or tree on")
    if isinstance(value, Mapping):
        if not value:
            raise ValueError("nothing to draw: the dict is empty")
        drawings = [_draw(_known(v), blocks, tree, name) for name, v in value.items()]
        lines = _beside(drawings)
        print("\n".join(lines if title is None else [title, *lines]))
        return
    known = _known(value)
    head, *rest = _draw(known, blocks, tree, None)
    print("\n".join([head if title is None else f"{title}: {head}", *rest]))


def _known(value: Any) -> DeviceMesh | TensorLayout:
    for candidate in (value, getattr(value, "layout", None)):
        if isinstance(candidate, DeviceMesh | TensorLayout):
            return candidate
    raise TypeError(
        f"expected a DeviceMesh, a TensorLayout or a Tensor, got {type(value).__name__} "
        f"{value!r:.60}"
    )


def _draw(
    value: DeviceMesh | TensorLayout, blocks: bool, tree: bool, name: str | None
) -> list[str]:
    """A heading, and below it the parts and the devices, side by side."""
    if isinstance(value, DeviceMesh):
        head = f"{value}" if name is None else f"{name}: {value}"
        columns = [_mesh_table(value)] if blocks else []
        trees = [_tree(value, None)]
    else:
        shape = Shape([global_dim(d) for d in value.shape]).brief()
        placed = ", ".join(map(repr, value.placements))
        long = f"{value.dtype} {shape} with {value.mapping}"
        head = long if name is None else f"{name}: {shape} {placed}"
        columns = [_parts_table(value)] if blocks else []
        trees = [[f"tensor[{', '.join(':' * value.rank)}]"]]
        trees[0] += _tree(value.mesh, value)
    columns = [c for c in columns if c]
    if tree or not columns:
        columns += trees
    return [head, *_beside(columns)]


def _beside(columns: Sequence[Sequence[str]]) -> list[str]:
    """Texts next to each other."""
    widths = [max(map(len, c)) for c in columns]
    rows = zip_longest(*columns, fillvalue="")
    return [
        _GAP.join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


# ---------------------------------------------------------------- the devices, as a tree


def _tree(mesh: DeviceMesh, layout: TensorLayout | None) -> list[str]:
    """The devices along each axis; with a layout, the part that each has."""

    def branch(axis: int, devices: Sequence[int], indent: str) -> list[str]:
        lines = []
        for coord in range(mesh.mesh_shape[axis]):
            own = [d for d in devices if mesh.device_coord(d, axis) == coord]
            last = coord == mesh.mesh_shape[axis] - 1
            leaf = axis == mesh.ndim - 1
            line = f"{indent}{'└── ' if last else '├── '}{mesh.axis_names[axis]}={coord}"
            if leaf:
                line += f"  device {own[0]}"
            if layout is not None:
                kind = _kind(layout, axis + 1, "partial sum of ", "unknown ")
                line += f" - {kind}tensor{_window(layout, own[0], own[-1])}"
            lines.append(line)
            if not leaf:
                lines += branch(axis + 1, own, indent + ("    " if last else "│   "))
        return lines

    return branch(0, range(mesh.num_devices), "")


def _kind(layout: TensorLayout, axes: int, partial: str, unknown: str) -> str:
    """What parts are called, by the placements along the first axes of the mesh."""
    placements = layout.placements[:axes]
    if any(isinstance(p, Unknown) for p in placements):
        return unknown
    return partial if any(isinstance(p, Partial) for p in placements) else ""


def _window(layout: TensorLayout, first: int, last: int) -> str:
    """What devices from one to another have, in slices as Python writes them."""
    split = sharding_axes(layout.placements)
    windows, mesh = shard_windows(layout), layout.mesh
    slices = []
    for axis in range(layout.rank):
        over = split.get(axis, ())
        starts = mesh.device_coord(first, over) == 0
        ends = mesh.device_coord(last, over) == mesh.axis_size(over) - 1
        left = "" if starts else str(windows[first][axis].start)
        right = "" if ends else str(windows[last][axis].stop)
        slices.append(f"{left}:{right}")
    return f"[{', '.join(slices)}]"


# ---------------------------------------------------------------- the parts, as a table


def _mesh_table(mesh: DeviceMesh) -> list[str]:
    """The devices of a mesh of one or two axes."""
    if mesh.ndim > 2:
        return []
    cells = [
        [
            f"device {d}",
            ", ".join(f"{n}={mesh.device_coord(d, n)}" for n in mesh.axis_names),
        ]
        for d in range(mesh.num_devices)
    ]
    width = mesh.mesh_shape[-1]
    return _table([cells[i : i + width] for i in range(0, len(cells), width)])


def _parts_table(layout: TensorLayout) -> list[str]:
    """The parts of a tensor that is split along two axes at most."""
    split = sorted(sharding_axes(layout.placements))
    if len(split) > 2:
        return []
    suffix = _kind(layout, layout.mesh.ndim, " partial", " unknown")
    # Parts in their order, those down the first split axis in rows.
    over = sharding_axes(layout.placements)
    found: dict[tuple[int, ...], list[int]] = {}
    for d in range(layout.mesh.num_devices):
        place = tuple(layout.mesh.device_coord(d, over[axis]) for axis in split)
        found.setdefault(place, []).append(d)
    rows: dict[int, list[list[str]]] = {}
    across = split[-1:] == [layout.rank - 1]
    for place, own in sorted(found.items()):
        down = place[0] if place and not (across and len(place) == 1) else 0
        who = f"device{'s' * (len(own) > 1)} {','.join(map(str, own))}"
        part = f"{_window(layout, own[0], own[0])}{suffix}"
        rows.setdefault(down, []).append([who, part])
    return _table(list(rows.values()))


def _table(rows: list[list[list[str]]]) -> list[str]:
    """Cells of two lines each, in a frame."""
    width = max(len(line) for row in rows for cell in row for line in cell) + 2
    bars = ["─" * width] * len(rows[0])
    lines = [f"┌{'┬'.join(bars)}┐"]
    for i, row in enumerate(rows):
        if i:
            lines.append(f"├{'┼'.join(bars)}┤")
        for k in range(2):
            lines.append(f"│{'│'.join(cell[k].center(width) for cell in row)}│")
    return [*lines, f"└{'┴'.join(bars)}┘"]
