# SPDX-License-Identifier: Apache-2.0
"""A collective and the RMS norm after it, which the reference has as one kernel for some GPUs.

Here they are the ops they consist of, on any device; XLA fuses what it can.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from maxjax.graph.op import refused
from maxjax.graph.ops._microscaling import FP6, MxQuantize
from maxjax.graph.ops._operands import tensor
from maxjax.graph.ops.collective import allgather
from maxjax.graph.ops.elementwise import add
from maxjax.graph.ops.norm import rms_norm
from maxjax.graph.ops.reducescatter import sum as reducescatter_sum
from maxjax.graph.value import BufferValueLike, TensorValue, TensorValueLike

__all__ = [
    "allgather_rms_norm",
    "allgather_rms_norm_quant_mxfp6",
    "allgather_rms_norm_quant_mxfp8",
    "reduce_scatter_rms_norm",
]


def _norms(
    who: str, xs: list[TensorValue], gammas: Iterable[Any], epsilon: float, offset: float
) -> list[TensorValue]:
    weights = [tensor(who, g, f"gamma {i}") for i, g in enumerate(gammas)]
    if len(weights) != len(xs):
        raise refused(
            who,
            ValueError,
            f"there must be a gamma for each input, got {len(xs)} inputs and {len(weights)} gammas",
        )
    return [
        rms_norm(x, w, epsilon, offset, multiply_before_cast=True)
        for x, w in zip(xs, weights, strict=True)
    ]


def allgather_rms_norm(
    inputs: Iterable[TensorValueLike],
    signal_buffers: Iterable[BufferValueLike],
    gammas: Iterable[TensorValueLike],
    epsilon: float,
    weight_offset: float = 0.0,
    group_size: int | None = None,
) -> tuple[list[TensorValue], list[TensorValue]]:
    """``ops.allgather`` along axis 0, and the RMS norm of what it gives.

    Args:
        inputs: A float tensor of shape ``(n_i, ..., C)`` on each device.
        signal_buffers: A buffer for each device; accepted, and not used.
        gammas: The scale, of shape ``(C,)``, on each device.
        epsilon: Added to the mean square.
        weight_offset: Added to the scale: 1 for Gemma.
        group_size: How many neighbours make a group; by default all are one.

    Returns:
        Two lists with a tensor of shape ``(sum(n_i), ..., C)`` for each device: normalized, scaled
        in float32 before rounding; and as gathered.

    Raises:
        TypeError: As :func:`~maxjax.graph.ops.allgather` and
            :func:`~maxjax.graph.ops.rms_norm` do.
        IndexError: If an input is a scalar.
        ValueError: As those do, and if there is not one gamma for each input.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops
    >>> devices = [DeviceRef.GPU(0), DeviceRef.GPU(1)]
    >>> rows = [TensorType(DType.bfloat16, ["n", 64], d) for d in devices]
    >>> gammas = [TensorType(DType.bfloat16, [64], d) for d in devices]
    >>> signals = [BufferType(DType.uint8, [1], d) for d in devices]
    >>> with Graph("g", input_types=[*rows, *gammas, *signals]) as g:
    ...     normed, gathered = ops.allgather_rms_norm(
    ...         g.inputs[:2], g.inputs[4:], g.inputs[2:4], epsilon=1e-6
    ...     )
    ...     normed[1], gathered[1]
    (TensorValue(bfloat16, [n * 2, 64], gpu:1), TensorValue(bfloat16, [n * 2, 64], gpu:1))
    """
    gathered = allgather(inputs, signal_buffers, 0, group_size)
    return _norms("allgather_rms_norm", gathered, gammas, epsilon, weight_offset), gathered


def allgather_rms_norm_quant_mxfp8(
    inputs: Iterable[TensorValueLike],
    signal_buffers: Iterable[BufferValueLike],
    gammas: Iterable[TensorValueLike],
    epsilon: float,
    weight_offset: float = 0.0,
    group_size: int | None = None,
) -> tuple[list[TensorValue], list[TensorValue], list[TensorValue], list[TensorValue]]:
    """:func:`allgather_rms_norm`, and its result in blocks of 32 eight-bit floats with a scale.

    The format is MXFP8 (E4M3) of the OCP Microscaling specification 1.0.

    Args:
        inputs: A float tensor of shape ``(n_i, ..., C)`` on each device; 32 must divide C.
        signal_buffers: A buffer for each device; accepted, and not used.
        gammas: The scale of the norm, of shape ``(C,)``, on each device.
        epsilon: Added to the mean square.
        weight_offset: Added to the scale of the norm.
        group_size: How many neighbours make a group; by default all are one.

    Returns:
        Four lists with a tensor for each device: normalized; its numbers as ``float8_e4m3fn`` of
        the same shape; the scales of its blocks, ``float8_e8m0fnu`` of shape ``(..., C // 32)``;
        and as gathered.

    Raises:
        TypeError: As :func:`allgather_rms_norm` does.
        ValueError: As that does, and if the last dimension is no number that 32 divides.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops
    >>> device = DeviceRef.GPU(0)
    >>> rows, gamma = [TensorType(DType.bfloat16, s, device) for s in (["n", 64], [64])]
    >>> with Graph("g", input_types=[rows, gamma, BufferType(DType.uint8, [1], device)]) as g:
    ...     x, w, signal = [[v] for v in g.inputs]
    ...     _, codes, scales, _ = ops.allgather_rms_norm_quant_mxfp8(x, signal, w, 1e-6)
    ...     codes[0], scales[0]
    (TensorValue(float8_e4m3fn, [n, 64], gpu:0), TensorValue(float8_e8m0fnu, [n, 2], gpu:0))
    """
    normed, gathered = allgather_rms_norm(
        inputs, signal_buffers, gammas, epsilon, weight_offset, group_size
    )
    codes, scales = zip(*[MxQuantize("e4m3")(x) for x in normed], strict=True)
    return normed, list(codes), list(scales), gathered


def allgather_rms_norm_quant_mxfp6(
    inputs: Iterable[TensorValueLike],
    signal_buffers: Iterable[BufferValueLike],
    gammas: Iterable[TensorValueLike],
    epsilon: float,
    weight_offset: float = 0.0,
    group_size: int | None = None,
    fp6_format: str = "e2m3",
) -> tuple[list[TensorValue], list[TensorValue], list[TensorValue], list[TensorValue]]:
    """:func:`allgather_rms_norm`, and its result in blocks of 32 six-bit floats with a scale.

    The format is MXFP6 of the OCP Microscaling specification 1.0. Codes are packed as a stream of
    bits, lowest first.

    Args:
        inputs: A float tensor of shape ``(n_i, ..., C)`` on each device; 32 must divide C.
        signal_buffers: A buffer for each device; accepted, and not used.
        gammas: The scale of the norm, of shape ``(C,)``, on each device.
        epsilon: Added to the mean square.
        weight_offset: Added to the scale of the norm.
        group_size: How many neighbours make a group; by default all are one.
        fp6_format: "e2m3" or "e3m2".

    Returns:
        Four lists with a tensor for each device: normalized; its codes as ``uint8`` of shape
        ``(..., C // 4 * 3)``; the scales of its blocks, ``float8_e8m0fnu`` of shape
        ``(..., C // 32)``; and as gathered.

    Raises:
        TypeError: As :func:`allgather_rms_norm` does.
        ValueError: As that does, if the last dimension is no number that 32 divides, or there is
            no such format.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops
    >>> device = DeviceRef.GPU(0)
    >>> rows, gamma = [TensorType(DType.bfloat16, s, device) for s in (["n", 64], [64])]
    >>> with Graph("g", input_types=[rows, gamma, BufferType(DType.uint8, [1], device)]) as g:
    ...     x, w, signal = [[v] for v in g.inputs]
    ...     ops.allgather_rms_norm_quant_mxfp6(x, signal, w, 1e-6, fp6_format="e3m2")[1]
    [TensorValue(uint8, [n, 48], gpu:0)]
    """
    if fp6_format not in FP6:
        raise refused(
            "allgather_rms_norm_quant_mxfp6",
            ValueError,
            f"fp6_format is one of {', '.join(FP6)}, not {fp6_format!r:.60}",
        )
    normed, gathered = allgather_rms_norm(
        inputs, signal_buffers, gammas, epsilon, weight_offset, group_size
    )
    codes, scales = zip(*[MxQuantize(fp6_format)(x) for x in normed], strict=True)
    return normed, list(codes), list(scales), gathered


def reduce_scatter_rms_norm(
    inputs: Iterable[TensorValueLike],
    signal_buffers: Iterable[BufferValueLike],
    gammas: Iterable[TensorValueLike],
    epsilon: float,
    residuals: Iterable[TensorValueLike] | None = None,
    weight_offset: float = 0.0,
    group_size: int | None = None,
) -> tuple[list[TensorValue], list[TensorValue]]:
    """``ops.reducescatter.sum`` along axis 0, plus a residual, and the RMS norm of that.

    Args:
        inputs: A float tensor of shape ``(n, ..., C)`` on each device, the same in a group.
        signal_buffers: A buffer for each device; accepted, and not used.
        gammas: The scale, of shape ``(C,)``, on each device.
        epsilon: Added to the mean square.
        residuals: On each device a tensor like its input, with the same values on all devices of
            a group; it is added once to the sum.
        weight_offset: Added to the scale: 1 for Gemma.
        group_size: How many neighbours make a group; by default all are one.

    Returns:
        Two lists with a tensor of about ``(n / D, ..., C)`` for each device, as
        ``ops.reducescatter.sum`` divides: normalized, scaled in float32 before rounding; and the
        sum itself.

    Raises:
        TypeError: If an input, gamma or residual is no tensor, or a signal no buffer.
        ValueError: As ``ops.reducescatter.sum`` and :func:`~maxjax.graph.ops.rms_norm` do, and if
            there is not one gamma, or one residual of the same type, for each input.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops
    >>> devices = [DeviceRef.GPU(0), DeviceRef.GPU(1)]
    >>> partial = [TensorType(DType.bfloat16, [5, 64], d) for d in devices]
    >>> gammas = [TensorType(DType.bfloat16, [64], d) for d in devices]
    >>> signals = [BufferType(DType.uint8, [1], d) for d in devices]
    >>> with Graph("g", input_types=[*partial, *gammas, *signals]) as g:
    ...     normed, total = ops.reduce_scatter_rms_norm(
    ...         g.inputs[:2], g.inputs[4:], g.inputs[2:4], epsilon=1e-6
    ...     )
    ...     total
    [TensorValue(bfloat16, [3, 64], gpu:0), TensorValue(bfloat16, [2, 64], gpu:1)]
    """
    who = "reduce_scatter_rms_norm"
    values = [tensor(who, x, f"input {i}") for i, x in enumerate(inputs)]
    if residuals is not None:
        values = _with_residuals(who, values, residuals, group_size)
    total = reducescatter_sum(values, signal_buffers, 0, group_size)
    return _norms(who, total, gammas, epsilon, weight_offset), total


def _with_residuals(
    who: str, values: list[TensorValue], residuals: Iterable[Any], group_size: int | None
) -> list[TensorValue]:
    """The inputs, with the residual added on the first device of each group."""
    added = [tensor(who, r, f"residual {i}") for i, r in enumerate(residuals)]
    if [r._type for r in added] != [v._type for v in values]:
        raise refused(
            who,
            ValueError,
            "each residual must have the type of its input",
            *[v._type for v in (*values, *added)],
        )
    size = group_size or len(values)
    return [
        add(v, r) if i % size == 0 else v
        for i, (v, r) in enumerate(zip(values, added, strict=True))
    ]
