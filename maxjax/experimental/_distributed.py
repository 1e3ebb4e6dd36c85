# SPDX-License-Identifier: Apache-2.0
"""Functions on distributed tensors: their operands are placed, then each device runs its own."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from maxjax import tree
from maxjax.driver import CPU
from maxjax.dtype import DType
from maxjax.experimental._context import CONTEXT, RealizationState
from maxjax.experimental._defaults import default_device
from maxjax.experimental._moves import transfer_to
from maxjax.experimental.realization_context import ensure_context
from maxjax.experimental.sharding import (
    AxisAssignment,
    DeviceMapping,
    DeviceMesh,
    Partial,
    Placement,
    ShardingError,
    TensorLayout,
    Unknown,
)
from maxjax.experimental.sharding._auto_reshard import pick_reshard_action
from maxjax.experimental.sharding.action import PerShard, common_mesh, placements_on
from maxjax.experimental.sharding.mesh import AxisLike
from maxjax.experimental.sharding.per_shard_dim import PerShardDim, local_dim_at
from maxjax.experimental.sharding.rules import localizer_for, rule_for
from maxjax.experimental.tensor import Tensor
from maxjax.graph.dim import Dim
from maxjax.graph.shape import Shape
from maxjax.graph.value import BufferValue, TensorValue

__all__ = ["call_on_mesh", "first", "run_placed"]


# ---------------------------------------------------------------- ops with placement rules


class _Operand:
    """An operand of an op: its name in messages, what was given, and its layout."""

    __slots__ = ("given", "layout", "name")

    def __init__(self, name: str, given: Any, layout: TensorLayout) -> None:
        self.name = name
        self.given = given
        self.layout = layout


def run_placed(
    run: Callable[..., Any],
    graph_op: Callable[..., Any],
    rule: Any,
    like: Tensor,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """What an op gives of arguments among which are distributed tensors.

    Args:
        run: The op over tensors on one device.
        graph_op: The op, for its name and parameters.
        rule: Its placement rule; None if it has none, when results are placed ``Unknown()``.
        like: One of the distributed tensors.
        args: Its arguments.
        kwargs: Those given by name.

    Raises:
        ShardingError: If operands are on different meshes, or not placed as the op needs them
            and nothing lets it move them.
    """
    if rule is None:
        return call_on_mesh(run, like.mesh)(*args, **kwargs)
    with ensure_context():
        bound = _signature(graph_op).bind(*args, **kwargs)
        operands = _laid_out(bound, rule, like)
        mesh = common_mesh([o.layout for o in operands])
        rows = list(rule(*bound.args, **bound.kwargs))
        action = pick_reshard_action(
            rows,
            _with_numbers(operands, rows, mesh),
            op_name=getattr(run, "__name__", "the op"),
            operand_names=[o.name for o in operands],
        )
        moved = [_moved(o, to, mesh) for o, to in zip(operands, action.inputs, strict=True)]
        own = localizer_for(graph_op.__name__) if rule is rule_for(graph_op.__name__) else None
        local = {}
        if own is not None:
            layouts = [
                t.layout if isinstance(t, Tensor) else o.layout
                for o, t in zip(operands, moved, strict=True)
            ]
            local = own(*_swapped(bound.args, operands, layouts), **bound.kwargs)
        for name, value in bound.arguments.items():
            bound.arguments[name] = _swapped(value, operands, moved)
        bound.arguments.update(local)
        return _run(run, mesh, bound.args, bound.kwargs, list(action.outputs))


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def first(arguments: Iterable[Any]) -> Tensor | None:
    """The first distributed tensor among arguments, at any depth of lists, tuples and dicts."""
    for value in arguments:
        found = None
        if isinstance(value, Tensor):
            found = value if value.is_distributed else None
        elif isinstance(value, list | tuple):
            found = first(value)
        elif isinstance(value, dict):
            found = first(value.values())
        if found is not None:
            return found
    return None


def _laid_out(bound: inspect.BoundArguments, rule: Any, like: Tensor) -> list[_Operand]:
    """The operands among arguments, which get layouts in the places of these."""
    takes = _signature(rule).parameters
    found: list[_Operand] = []
    for name, value in bound.arguments.items():
        # What a rule wants a layout of may be a number or an array as well.
        alone = like if name in takes and "TensorLayout" in str(takes[name].annotation) else None
        bound.arguments[name] = _laid(value, name, alone, found)
    return found


def _laid(value: Any, name: str, like: Tensor | None, found: list[_Operand]) -> Any:
    """An argument with layouts in the places of operands, which are added to those found.

    With ``like``, numbers and arrays are operands too.
    """
    if isinstance(value, TensorValue | BufferValue):
        value = Tensor.from_graph_value(value)
    if isinstance(value, Tensor):
        layout = value.layout
    elif like is not None and isinstance(value, numbers.Number):
        # Each device makes it by itself, as it does an array.
        layout = TensorLayout(like.dtype, [], DeviceMapping.replicated(like.mesh))
    elif like is not None and isinstance(value, np.ndarray):
        layout = TensorLayout(DType.from_numpy(value.dtype), list(value.shape), CPU())
    elif type(value) in (list, tuple):
        return type(value)([_laid(v, f"{name}[{i}]", None, found) for i, v in enumerate(value)])
    else:
        return value
    found.append(_Operand(name, value, layout))
    return layout


def _with_numbers(
    operands: Sequence[_Operand], rows: Sequence[AxisAssignment], mesh: DeviceMesh
) -> list[TensorLayout]:
    """The layouts of operands, where numbers are terms of a sum if that is what they go with.

    Only the first device then has the number, the others zero.
    """
    layouts = [o.layout for o in operands]
    made = [i for i, o in enumerate(operands) if isinstance(o.given, numbers.Number)]
    if not made or any(len(r.needed_inputs) != len(operands) for r in rows):
        return layouts
    placed = [list(placements_on(layout, mesh)) for layout in layouts]
    for axis in range(mesh.ndim):
        here = [p[axis] for p in placed]
        asis = [r.needed_inputs for r in rows if _goes(r.needed_inputs, here, made)]
        if asis and tuple(here) not in asis:
            for i in made:
                placed[i][axis] = asis[0][i]
    for i in made:
        mapping = DeviceMapping(layouts[i].mesh, tuple(placed[i]))
        layouts[i] = TensorLayout(layouts[i].dtype, [], mapping)
    return layouts


def _goes(needed: Sequence[Placement], here: Sequence[Placement], made: Sequence[int]) -> bool:
    """Whether operands are placed as a row needs them, numbers aside."""
    return all(i in made or n == h for i, (n, h) in enumerate(zip(needed, here, strict=True)))


def _moved(operand: _Operand, mapping: DeviceMapping, mesh: DeviceMesh) -> Any:
    """An operand where an op needs it: a tensor, or a number for each device."""
    if isinstance(operand.given, Tensor):
        t = operand.given
        return transfer_to(t, mapping) if t.is_distributed else t
    if isinstance(operand.given, np.ndarray):
        return operand.given
    sums = [axis for axis, p in enumerate(mapping.placements) if isinstance(p, Partial)]
    value: Any = operand.given
    return PerShard(
        type(value)(0) if mesh.device_coord(d, sums) else value for d in range(mesh.num_devices)
    )


def _swapped(value: Any, operands: Sequence[_Operand], new: Sequence[Any]) -> Any:
    """An argument with other things in the places of the layouts of operands."""
    if isinstance(value, TensorLayout):
        return next((n for o, n in zip(operands, new, strict=True) if o.layout is value), value)
    if type(value) in (list, tuple):
        return type(value)([_swapped(v, operands, new) for v in value])
    return value


# ---------------------------------------------------------------- a function on each device


def call_on_mesh(
    fn: Callable[..., Any],
    mesh: DeviceMesh,
    mesh_axes: AxisLike = (),
    *,
    out_specs: Any = None,
) -> Callable[..., Any]:
    """A function over distributed tensors from one over the parts that a device has of them.

    It is called once for each device, which is the default device meanwhile. Instead of
    distributed tensors it is given their parts on that device, instead of a
    ``sharding.action.PerShard`` its value there, and shapes with the sizes there; the rest as it
    is. What it writes to a part, the distributed tensor has.

    Args:
        fn: The function.
        mesh: The devices.
        mesh_axes: Axes of the mesh. If there are some, it is called once for each group of
            devices that differ along these only, with a list of the parts of all of them, and
            returns a list of what each of them then has.
        out_specs: How the results are placed: a mapping for all of them, or one for each, in
            order. Left out, they are placed ``Unknown()``.

    Raises:
        ShardingError: If there is not a value, a result or a mapping for each, a distributed
            tensor is on another mesh, or a tensor is on a single accelerator. All of that when
            the function is called.

    >>> from maxjax.driver import CPU
    >>> from maxjax.experimental.sharding import DeviceMapping, DeviceMesh, Sharded
    >>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
    >>> rows = DeviceMapping(mesh, (Sharded(0),))
    >>> x = Tensor([1, 2, 3, 4]).to(rows)
    >>> call_on_mesh(lambda part: part + part[0], mesh, out_specs=rows)(x).to_numpy()
    array([2., 3., 6., 7.], dtype=float32)
    """
    axes = mesh.axis_indices(mesh_axes)
    groups = mesh.groups(axes) if axes else [(d,) for d in range(mesh.num_devices)]

    @functools.wraps(fn)
    def called(*args: Any, **kwargs: Any) -> Any:
        specs = out_specs
        if isinstance(specs, list | tuple):
            specs = list(specs)
        with ensure_context():
            return _run(fn, mesh, args, kwargs, specs, groups if axes else None)

    return called


def _run(
    fn: Callable[..., Any],
    mesh: DeviceMesh,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    specs: DeviceMapping | list[DeviceMapping] | None,
    groups: list[tuple[int, ...]] | None = None,
) -> Any:
    """What a function gives on each device, or for each group of devices, as one result."""
    parts: dict[int, tuple[Tensor, tuple[Tensor, ...]]] = {}
    given = tuple(args), kwargs
    results: list[Any] = [None] * mesh.num_devices
    name = getattr(fn, "__name__", "the function")
    for group in groups or [(d,) for d in range(mesh.num_devices)]:
        where = group if groups else group[0]
        own_args, own_kwargs = _local(given, where, mesh, parts)
        with default_device(mesh.devices[group[0]]):
            result = fn(*own_args, **own_kwargs)
        if not groups:
            results[group[0]] = result
            continue
        if not isinstance(result, list | tuple) or len(result) != len(group):
            raise ShardingError(
                f"{name} is called for a group of {len(group)} devices, and has to return a list "
                f"of a result for each of them, got {result!r:.80}"
            )
        for d, own in zip(group, result, strict=True):
            results[d] = own
    for whole, shards in parts.values():
        _write_back(whole, shards)
    return _labelled(name, results, mesh, specs)


def _local(value: Any, where: Any, mesh: DeviceMesh, parts: dict[int, Any]) -> Any:
    """An argument as a device has it; for a group of devices, a list where these differ."""

    def each(pick: Callable[[int], Any]) -> Any:
        return pick(where) if isinstance(where, int) else [pick(d) for d in where]

    if isinstance(value, Tensor):
        if not value.is_distributed:
            return _seen_by_all(value, mesh)
        shards = _shards_on(value, mesh, parts)
        return each(lambda d: shards[d])
    if isinstance(value, PerShard):
        if len(value) != mesh.num_devices:
            raise ShardingError(
                f"{mesh} has {mesh.num_devices} devices, and a PerShard has {len(value)} values"
            )
        return each(lambda d: value[d])
    if isinstance(value, PerShardDim):
        return each(lambda d: local_dim_at(value, d))
    if isinstance(value, Shape):
        if not any(isinstance(dim, PerShardDim) for dim in value):
            return value
        return each(lambda d: Shape([local_dim_at(dim, d) for dim in value]))
    if type(value) in (list, tuple):
        if any(isinstance(v, PerShardDim) for v in value):
            return each(lambda d: [local_dim_at(v, d) if isinstance(v, Dim) else v for v in value])
        return type(value)([_local(v, where, mesh, parts) for v in value])
    if type(value) is dict:
        return {k: _local(v, where, mesh, parts) for k, v in value.items()}
    return value


def _seen_by_all(t: Tensor, mesh: DeviceMesh) -> Tensor:
    if t.device.is_host:
        return t
    raise ShardingError(
        f"a tensor on {t.device} alone is not read by the devices of {mesh}; copy it to each with "
        "transfer_to(x, mesh), or keep it on the CPU"
    )


def _shards_on(t: Tensor, mesh: DeviceMesh, parts: dict[int, Any]) -> tuple[Tensor, ...]:
    """The parts of a distributed tensor, the same ones for each device."""
    if t.mesh != mesh:
        own, other = (
            f"{m} of {', '.join(f'{d.label}:{d.id}' for d in dict.fromkeys(m.devices))}"
            for m in (t.mesh, mesh)
        )
        raise ShardingError(
            f"a tensor is on {own}, and is to be used on {other}; bring it there with "
            "transfer_to first"
        )
    if id(t) not in parts:
        parts[id(t)] = t, t._local()
    return parts[id(t)][1]


def _write_back(whole: Tensor, shards: tuple[Tensor, ...]) -> None:
    """Lets a distributed tensor have the buffers that its parts became when they were written."""
    if whole._state is None or whole.external_name is not None:
        return
    values = tuple(s._state.values[0] for s in shards if s._state is not None)
    if len(values) == len(shards) and any(
        v is not w for v, w in zip(values, whole._state.values, strict=True)
    ):
        whole._state = RealizationState(values, whole._state.ctx)


def _labelled(name: str, results: Sequence[Any], mesh: DeviceMesh, specs: Any) -> Any:
    """One result of those of all devices."""
    flat = [_flat(r) for r in results]
    counts = [len(found) for found, _ in flat]
    count = counts[0]
    if len(set(counts)) != 1:
        raise ShardingError(
            f"{name} returns as many tensors on each device, got {', '.join(map(str, counts))}"
        )
    if specs is None:
        specs = [DeviceMapping(mesh, (Unknown(),) * mesh.ndim)] * count
    elif isinstance(specs, DeviceMapping):
        specs = [specs] * count
    if len(specs) != count:
        raise ShardingError(
            f"{name} gives {count} tensors, and there are placements for {len(specs)}"
        )
    whole = [
        _whole([found[i] for found, _ in flat], DeviceMapping(mesh, specs[i].placements))
        for i in range(count)
    ]
    return flat[0][1](whole)


def _flat(result: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The tensors of a result, and what makes one like it of others."""
    if isinstance(result, _VALUES):
        return [result], lambda new: new[0]
    if type(result) in (list, tuple) and all(isinstance(v, _VALUES) for v in result):
        return list(result), type(result)
    found, form = tree.flatten(result, leaf=lambda v: isinstance(v, _VALUES))
    return found, lambda new: tree.unflatten(form, new)


_VALUES = (Tensor, TensorValue, BufferValue)


def _whole(shards: Sequence[Any], mapping: DeviceMapping) -> Tensor:
    ctx = CONTEXT.get()
    assert ctx is not None
    values = [s._graph_value() if isinstance(s, Tensor) else s for s in shards]
    if len(values) == 1:
        return ctx.create_unrealized(tuple(values))
    return ctx.create_unrealized(tuple(values), mapping=mapping)
