# SPDX-License-Identifier: Apache-2.0
"""Side by side: one body for several launches, and work set apart from the main stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from maxjax.graph.block import filled
from maxjax.graph.ir import Block
from maxjax.graph.op import RegionOp, Runner, State, refused
from maxjax.graph.operand import buffer
from maxjax.graph.ops._operands import tensor
from maxjax.graph.type import BufferType, TensorType, Type
from maxjax.graph.value import (
    BufferValueLike,
    TensorValue,
    TensorValueLike,
    Value,
    as_outputs,
)

__all__ = ["parallel", "side_stream"]


class Parallel(RegionOp):
    """The outputs of a block, once for each launch.

    Operands and results are in bundles, one after the other, of a value for each launch.
    """

    launches: int
    out_types: tuple[Type, ...]

    def __call__(self, *operands: Value, regions: tuple[Block, ...] = ()) -> Any:
        (block,) = regions
        wrong = self.disagreement(block, [v.type for v in operands])
        if wrong:
            raise refused("parallel", ValueError, wrong)
        return super().__call__(*operands, regions=regions)

    def disagreement(self, block: Block, types: list[Type]) -> str | None:
        """Where operands, block and results do not fit together."""
        n, outputs = self.launches, block.outputs or ()
        if n < 1 or len(types) != n * len(block.arguments) or not types:
            return f"{len(types)} operands are not {n} for each of {len(block.arguments)} arguments"
        devices = [t.device for t in types[:n]]
        for b, argument in enumerate(block.arguments):
            for i, given in enumerate(types[b * n : (b + 1) * n]):
                want = _on(argument.type, devices[0], devices[i])
                if given != want:
                    return (
                        f"launch {i} gives {given.brief()} for input {b}, but should give "
                        f"{want.brief()}, as launch 0 gives {argument.type.brief()}"
                    )
        if len(self.out_types) != n * len(outputs):
            return (
                f"body_fn gives {len(outputs)} values, result_types "
                f"{len(self.out_types) // n} bundles"
            )
        for b, output in enumerate(outputs):
            for i, declared in enumerate(self.out_types[b * n : (b + 1) * n]):
                made = _on(output.type, devices[0], devices[i])
                if made != declared:
                    return (
                        f"launch {i} makes {made.brief()} as output {b}, but result_types "
                        f"declares {declared.brief()}"
                    )
        return None

    def infer(self, *operands: Type) -> tuple[Type, ...]:
        return self.out_types

    def lower(self, run: Runner, state: State, *operands: Any) -> tuple[Any, ...]:
        n = self.launches
        outputs = [run.block(0, *operands[i::n]) for i in range(n)]
        return tuple(value for bundle in zip(*outputs, strict=True) for value in bundle)


def _on(type_: Type, old: Any, new: Any) -> Type:
    """A type on device ``new`` if it is on ``old``, else as it is."""
    if type_.device != old:
        return type_
    cls = BufferType if isinstance(type_, BufferType) else TensorType
    return cls._of(type_.dtype, type_.shape, new)


def parallel(
    inputs: Sequence[Sequence[TensorValueLike]],
    body_fn: Callable[..., Any],
    *,
    buffers: Iterable[BufferValueLike] | None = None,
    chain: Any = None,
    result_types: Sequence[Sequence[TensorType]],
) -> Any:
    """The same body for several launches, such as one for each device.

    Args:
        inputs: Bundles: for each argument of ``body_fn`` a value for each launch. Those of one
            bundle differ in nothing but their device.
        body_fn: From a value of each bundle, then a buffer if there are any, to one value or
            several. It is called once, with values of launch 0, and runs for each launch.
        buffers: A buffer for each launch, which the body may write. Launches write in order.
        chain: Accepted; program order is effect order. If it is given, ``body_fn`` is given it
            last and returns its outputs and the chain.
        result_types: For each output of ``body_fn`` its type in each launch.

    Returns:
        For each output a list with its value in each launch; with a ``chain`` these lists and the
        chain.

    Raises:
        TypeError: If an input is no tensor or a buffer none.
        ValueError: If bundles are empty or of different lengths, types differ between launches,
            or the outputs are not of ``result_types``.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x, x]) as g:
    ...     ops.parallel([g.inputs], lambda v: v * 2, result_types=[[x, x]])
    [[TensorValue(float32, [n], cpu:0), TensorValue(float32, [n], cpu:0)]]
    """
    who = "parallel"
    bundles: list[list[Value]] = [[tensor(who, v) for v in bundle] for bundle in inputs]
    if not bundles or not bundles[0]:
        raise refused(who, ValueError, "there must be a bundle, and a value in it for each launch")
    launches = len(bundles[0])
    if buffers is not None:
        bundles.append([buffer(who, b) for b in buffers])
    elif chain is not None:
        raise refused(who, ValueError, "a chain is for the writes to buffers, but there are none")
    for b, bundle in enumerate(bundles):
        if len(bundle) != launches:
            kind = "buffers" if buffers is not None and b == len(bundles) - 1 else f"bundle {b}"
            raise refused(
                who, ValueError, f"{kind} has {len(bundle)} values, bundle 0 has {launches}"
            )
    for b, types in enumerate(result_types):
        if len(types) != launches:
            raise refused(
                who,
                ValueError,
                f"result_types[{b}] has {len(types)} types for {launches} launches",
            )

    def outputs(*arguments: Any) -> Any:
        nonlocal chain
        if chain is None:
            return body_fn(*arguments)
        result, chain = body_fn(*arguments, chain)
        return result

    block = filled([bundle[0].type for bundle in bundles], outputs).block
    out_types = tuple(t for types in result_types for t in types)
    operands = [v for bundle in bundles for v in bundle]
    flat = Parallel(launches, out_types)(*operands, regions=(block,))
    made = [list(flat[i : i + launches]) for i in range(0, len(flat), launches)]
    return made if chain is None else (made, chain)


def side_stream(
    inputs: Sequence[TensorValueLike],
    body_fn: Callable[..., TensorValue | Iterable[TensorValue]],
    *,
    result_types: Sequence[TensorType],
    stream_id: int = 1,
) -> list[TensorValue]:
    """Work that may overlap with what stands around it.

    XLA puts independent work on streams by itself, so this builds the body in place.

    Args:
        inputs: What ``body_fn`` is given.
        body_fn: From tensors to one tensor or several.
        result_types: The types of what it returns.
        stream_id: Accepted; 0 or more.

    Returns:
        What ``body_fn`` returned, as a list.

    Raises:
        TypeError: If an input or result is no tensor, or ``stream_id`` no int.
        ValueError: If the results are not of ``result_types``, or ``stream_id`` is negative.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x]) as g:
    ...     ops.side_stream(g.inputs, lambda v: v * 2, result_types=[x])
    [TensorValue(float32, [n], cpu:0)]
    """
    who = "side_stream"
    if not isinstance(stream_id, int) or isinstance(stream_id, bool):
        raise refused(who, TypeError, f"stream_id is an int, not {stream_id!r:.60}")
    if stream_id < 0:
        raise refused(who, ValueError, f"stream_id is 0 or more, not {stream_id}")
    results = as_outputs(body_fn(*[tensor(who, v) for v in inputs]))
    made = [tensor(who, v) for v in results]
    if len(made) != len(result_types):
        raise refused(
            who, ValueError, f"body_fn gives {len(made)} values, result_types {len(result_types)}"
        )
    for i, (value, declared) in enumerate(zip(made, result_types, strict=True)):
        if value.type != declared:
            raise refused(
                who,
                ValueError,
                f"body_fn makes {value.type.brief()} as result {i}, but result_types declares "
                f"{declared.brief()}",
            )
    return made
