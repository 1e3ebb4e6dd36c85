# SPDX-License-Identifier: Apache-2.0
"""Branches, loops and side streams over tensors, on one device or on several."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from maxjax.experimental import _graph_functions as own
from maxjax.experimental._context import CONTEXT
from maxjax.experimental._distributed import call_on_mesh, first, run_placed
from maxjax.experimental._moves import transfer_to
from maxjax.experimental.realization_context import ensure_context
from maxjax.experimental.sharding import DeviceMapping, ShardingError, TensorLayout
from maxjax.experimental.sharding.action import PerShard, placements_on
from maxjax.experimental.sharding.rules import rule_for
from maxjax.experimental.tensor import Tensor
from maxjax.graph import ops
from maxjax.graph.value import TensorValue, as_outputs

__all__ = ["cond", "side_stream", "while_loop"]


def cond(
    pred: Tensor,
    out_types: Iterable[Any],
    then_fn: Callable[[], Any],
    else_fn: Callable[[], Any],
) -> list[Tensor]:
    """What one of two functions computes, which one being decided when it runs.

    Args:
        pred: A bool scalar. One on several devices must be copied to each.
        out_types: The types, or layouts, of the results; layouts over several devices too.
        then_fn: What to compute if it is True.
        else_fn: What to compute if it is False.

    Raises:
        TypeError, ValueError: As ``ops.cond`` does.
        ShardingError: If ``pred`` is on several devices, not as a copy on each.
    """
    with ensure_context():
        declared = None if out_types is None else list(out_types)
        types = None if declared is None else [t for d in declared for t in _types(d)]
        made = ops.cond(_decided(pred), types, _branch(then_fn), _branch(else_fn))
        if declared is None:
            return [Tensor.from_graph_value(v) for v in made]
        values, ctx = iter(made), CONTEXT.get()
        assert ctx is not None
        return [
            ctx.create_unrealized(tuple(itertools.islice(values, len(_types(d)))), mapping=_over(d))
            for d in declared
        ]


def _types(declared: Any) -> list[Any]:
    """The type of the value on each device."""
    return declared.local_types if isinstance(declared, TensorLayout) else [declared]


def _over(declared: Any) -> DeviceMapping | None:
    """How a result is spread; None on one device."""
    if isinstance(declared, TensorLayout) and declared.mesh.num_devices > 1:
        return declared.mapping
    return None


def _decided(pred: Any) -> TensorValue:
    if isinstance(pred, Tensor) and pred.is_distributed:
        if not pred.mapping.is_fully_replicated:
            raise ShardingError(
                f"cond: each device needs the predicate, and it is placed {list(pred.placements)}; "
                "place it Replicated() first"
            )
        pred = transfer_to(pred, pred.mesh.devices[0])
    return TensorValue(pred)


def while_loop(
    initial_values: Any, predicate: Callable[..., Any], body: Callable[..., Any]
) -> list[Tensor]:
    """What a function gives when it is applied until a predicate is False.

    On several devices, which must have copies, each runs a loop of its own, and the functions
    are given its tensors.

    Args:
        initial_values: A tensor, or several.
        predicate: From the current tensors to a bool scalar.
        body: From the current tensors to the next ones, of the same types.

    Raises:
        TypeError, ValueError: As ``ops.while_loop`` does.
        ShardingError: If a tensor is on several devices, not as a copy on each.
    """
    start = [initial_values] if isinstance(initial_values, Tensor) else list(initial_values)
    spread = first(start)
    if spread is not None:
        rule = rule_for("while_loop")
        return run_placed(while_loop, while_loop, rule, spread, (start, predicate, body), {})
    with ensure_context():
        values = [TensorValue(v) for v in start]
        made = ops.while_loop(values, _body(predicate), _body(body))
        return [Tensor.from_graph_value(v) for v in made]


def side_stream(
    inputs: Sequence[Tensor],
    body_fn: Callable[..., Any],
    *,
    result_types: Sequence[Any] | None = None,
    stream_id: int = 1,
) -> list[Tensor]:
    """What a function computes, which may overlap with what stands around it.

    On several devices, each calls the function with its tensors.

    Args:
        inputs: What it is given.
        body_fn: From tensors to one or several.
        result_types: The types, or layouts, of the results; those of the inputs if left out.
        stream_id: Accepted.

    Raises:
        TypeError, ValueError: As ``ops.side_stream`` does.
        ShardingError: If tensors are on different meshes.
    """
    spread = first(inputs)
    if spread is not None:
        mesh = spread.mesh
        layouts = [t.layout for t in inputs] if result_types is None else list(result_types)
        types = [
            PerShard([_types(d)[i if len(_types(d)) > 1 else 0] for i in range(mesh.num_devices)])
            for d in layouts
        ]
        specs = [
            DeviceMapping(mesh, placements_on(d, mesh))
            if isinstance(d, TensorLayout)
            else DeviceMapping.replicated(mesh)
            for d in layouts
        ]
        run = call_on_mesh(side_stream, mesh, out_specs=specs)
        return run(list(inputs), body_fn, result_types=types, stream_id=stream_id)
    with ensure_context():
        values = [TensorValue(v) for v in inputs]
        types = [v.type for v in values] if result_types is None else result_types
        made = ops.side_stream(
            values,
            _body(body_fn),
            result_types=[own._type(t) for t in types],
            stream_id=stream_id,
        )
        return [Tensor.from_graph_value(v) for v in made]


def _branch(fn: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: _values(fn())


def _body(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function over tensors as one over graph values."""

    def body(*values: Any) -> Any:
        return _values(fn(*[Tensor.from_graph_value(v) for v in values]))

    return body


def _values(result: Any) -> Any:
    """What a function over tensors returned, as graph values, one for each device."""
    if result is None:
        return None
    if isinstance(result, Tensor) and not result.is_distributed:
        return TensorValue(result)
    found: list[Any] = []
    for r in [result] if isinstance(result, Tensor) else as_outputs(result):
        found += [TensorValue(p) for p in r._local()] if isinstance(r, Tensor) else [r]
    return found
