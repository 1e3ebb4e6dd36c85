# SPDX-License-Identifier: Apache-2.0
"""Control flow: branches and loops, with state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax

from maxjax.dtype import DType
from maxjax.graph.block import filled
from maxjax.graph.ir import Block
from maxjax.graph.op import RegionOp, Runner, State, describe, refused
from maxjax.graph.operand import tensor
from maxjax.graph.ops.buffer import written
from maxjax.graph.type import BufferType, Type
from maxjax.graph.value import TensorValue, TensorValueLike, Value

__all__ = ["cond", "while_loop"]


def _types(block: Block) -> tuple[Type, ...]:
    return tuple(v.type for v in block.outputs or ())


def _predicate(type_: Type, who: str) -> None:
    if type_.dtype is not DType.bool or type_.shape or type_.device.is_gpu():
        raise ValueError(f"{who} must be a bool scalar on the CPU, not {type_.brief()}")


class Cond(RegionOp):
    """The outputs of the first block where the predicate is true, else of the second."""

    out_types: tuple[Type, ...]

    def __call__(self, pred: Value, *, regions: tuple[Block, ...] = ()) -> Any:
        for name, block in zip(("then_fn", "else_fn"), regions, strict=True):
            if _types(block) != self.out_types:
                raise refused(
                    "cond",
                    TypeError,
                    f"{name} gives ({describe(_types(block))}), not ({describe(self.out_types)})",
                )
        return super().__call__(pred, regions=regions)

    def infer(self, pred: Type) -> tuple[Type, ...]:
        _predicate(pred, "the predicate")
        return self.out_types

    def lower(self, run: Runner, state: State, pred: jax.Array) -> tuple[Any, ...]:
        buffers = run.written()

        def branch(index: int) -> Callable[[Any], Any]:
            def taken(contents: Any) -> Any:
                _write(state, buffers, contents)
                outputs = run.block(index)
                return list(outputs), _read(state, buffers)

            return taken

        before = _read(state, buffers)
        outputs, after = jax.lax.cond(pred, branch(0), branch(1), before)
        _write(state, buffers, after)
        return tuple(outputs)


class WhileLoop(RegionOp):
    """The second block applied to the carried values for as long as the first gives true."""

    def __call__(self, *carried: Value, regions: tuple[Block, ...] = ()) -> Any:
        test, body = regions
        types = tuple(v.type for v in carried)
        flags = _types(test)
        if len(flags) != 1:
            raise refused("while_loop", TypeError, f"predicate gives {len(flags)} values, not one")
        if written(test):
            raise refused("while_loop", ValueError, "predicate must not write buffers")
        try:
            _predicate(flags[0], "what predicate gives")
        except ValueError as e:
            raise refused("while_loop", ValueError, str(e)) from None
        given = _types(body)
        if len(given) != len(types):
            raise refused(
                "while_loop",
                TypeError,
                f"body gives {len(given)} values, but {len(types)} are carried",
            )
        for i, (new, old) in enumerate(zip(given, types, strict=True)):
            if new != old:
                raise refused(
                    "while_loop",
                    TypeError,
                    f"carried value {i} starts as {old.brief()}, but body makes it {new.brief()}",
                )
        return super().__call__(*carried, regions=regions)

    def infer(self, *carried: Type) -> tuple[Type, ...]:
        return carried

    def lower(self, run: Runner, state: State, *carried: jax.Array) -> tuple[Any, ...]:
        buffers = run.written()

        def goes_on(carry: Any) -> Any:
            values, contents = carry
            _write(state, buffers, contents)
            return run.block(0, *values)[0]

        def step(carry: Any) -> Any:
            values, contents = carry
            _write(state, buffers, contents)
            outputs = run.block(1, *values)
            return list(outputs), _read(state, buffers)

        start = list(carried), _read(state, buffers)
        values, after = jax.lax.while_loop(goes_on, step, start)
        _write(state, buffers, after)
        return tuple(values)


def _read(state: State, buffers: list[Any]) -> list[Any]:
    return [state.read(b) for b in buffers]


def _write(state: State, buffers: list[Any], contents: Iterable[Any]) -> None:
    for buffer, array in zip(buffers, contents, strict=True):
        state.write(buffer, array)


def cond(
    pred: TensorValueLike,
    out_types: Iterable[Type] | None,
    then_fn: Callable[[], Any],
    else_fn: Callable[[], Any],
) -> list[TensorValue]:
    """The results of one of two functions, chosen when the graph runs.

    Only the chosen one runs, with its writes to buffers and its prints.

    Args:
        pred: A bool scalar on the CPU.
        out_types: The types of the results; None for none.
        then_fn: Builds the results where ``pred`` is true: returns one value, several, or None.
        else_fn: The same for where it is false.

    Returns:
        One value per type in ``out_types``.

    Raises:
        TypeError: If a function gives other types, or ``pred`` is not a graph value.
        ValueError: If ``pred`` is not a bool scalar on the CPU.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x_type = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    >>> flag = TensorType(DType.bool, [], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x_type, flag]) as g:
    ...     x, p = (v.tensor for v in g.inputs)
    ...     ops.cond(p, [x_type], lambda: x * 2, lambda: -x)
    [TensorValue(float32, [n], cpu:0)]
    """
    predicate = tensor("cond", pred, "pred")
    regions = filled((), then_fn).block, filled((), else_fn).block
    return list(Cond(tuple(out_types or ()))(predicate, regions=regions))


def while_loop(
    initial_values: Iterable[Value] | Value,
    predicate: Callable[..., TensorValue],
    body: Callable[..., Value | Iterable[Value]],
) -> list[TensorValue]:
    """Repeats ``body`` on the carried values while ``predicate`` gives true.

    Args:
        initial_values: One value, or several.
        predicate: From the carried values to a bool scalar on the CPU; it must not write buffers.
        body: From the carried values to the next ones, of the same types.

    Returns:
        The values carried out of the last round.

    Raises:
        NotImplementedError: If a buffer is among the carried values: use it from inside instead.
        TypeError: If ``body`` gives another number of values or other types.
        ValueError: If nothing is carried, or ``predicate`` does not give a bool scalar.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.int64, [], DeviceRef.CPU())]) as g:
    ...     ops.while_loop(g.inputs[0], lambda i: i < 10, lambda i: i + 3)
    [TensorValue(int64, [], cpu:0)]
    """
    given = [initial_values] if isinstance(initial_values, Value) else list(initial_values)
    if not given:
        raise refused("while_loop", ValueError, "at least one value must be carried")
    carried = []
    for i, value in enumerate(given):
        if isinstance(value, Value) and isinstance(value.type, BufferType):
            raise refused(
                "while_loop",
                NotImplementedError,
                f"carried value {i} is a buffer; leave it out and read and write it from body",
            )
        carried.append(tensor("while_loop", value, f"carried value {i}"))
    types = [v.type for v in carried]
    regions = filled(types, predicate).block, filled(types, body).block
    return list(WhileLoop()(*carried, regions=regions))
