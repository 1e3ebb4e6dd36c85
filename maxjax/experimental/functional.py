# SPDX-License-Identifier: Apache-2.0
"""Functions over tensors: the ops of ``maxjax.graph``, and what is made of them.

Most are ``graph.ops`` as they are, turned by one adapter; their signatures for editors and type
checkers are in ``functional.pyi``, which ``python -m tools.stubs`` writes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from maxjax.experimental import _graph_functions as own
from maxjax.experimental._context import CONTEXT
from maxjax.experimental._control import cond, side_stream, while_loop
from maxjax.experimental._dispatch import functional, graph_function
from maxjax.experimental._distributed import call_on_mesh as call_on_mesh
from maxjax.experimental._graph_functions import buffer_of as buffer_of
from maxjax.experimental._moves import (
    allgather,
    allreduce_sum,
    distributed_broadcast,
    filled,
    reduce_scatter,
    transfer_to,
)
from maxjax.experimental._moves import materialize as materialize
from maxjax.experimental.realization_context import ensure_context
from maxjax.experimental.realization_context import in_graph_context as in_graph_context
from maxjax.experimental.realization_context import lazy as lazy
from maxjax.experimental.sharding.rules import rule_for
from maxjax.experimental.tensor import Tensor
from maxjax.graph import ops
from maxjax.graph.device import DeviceRef

# The ops that are taken over with the signature they have.
TAKEN = [
    "abs",
    "acos",
    "add",
    "argsort",
    "as_interleaved_complex",
    "atanh",
    "avg_pool2d",
    "band_part",
    "bottom_k",
    "buffer_store",
    "buffer_store_slice",
    "cast",
    "ceil",
    "chunk",
    "concat",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "cos",
    "cumsum",
    "dequantize",
    "div",
    "equal",
    "erf",
    "exp",
    "flatten",
    "floor",
    "floor_div",
    "fold",
    "gather",
    "gather_nd",
    "gelu",
    "greater",
    "greater_equal",
    "group_norm",
    "irfft",
    "is_inf",
    "is_nan",
    "layer_norm",
    "log",
    "log1p",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsoftmax",
    "masked_scatter",
    "matmul",
    "max_pool2d",
    "mod",
    "mul",
    "negate",
    "non_maximum_suppression",
    "nonzero",
    "not_equal",
    "outer",
    "pad",
    "permute",
    "pow",
    "qmatmul",
    "rebind",
    "relu",
    "repeat_interleave",
    "reshape",
    "resize",
    "resize_bicubic",
    "resize_linear",
    "resize_nearest",
    "rms_norm",
    "roi_align",
    "round",
    "rsqrt",
    "scatter",
    "scatter_add",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd",
    "scatter_nd_add",
    "scatter_nd_max",
    "scatter_nd_min",
    "scatter_nd_mul",
    "shape_to_tensor",
    "sigmoid",
    "silu",
    "sin",
    "slice_tensor",
    "softmax",
    "sqrt",
    "squeeze",
    "sub",
    "tanh",
    "tile",
    "top_k",
    "transpose",
    "trunc",
    "unsqueeze",
]
# Those that functions of `_graph_functions` stand for, and their other names.
OWN = [
    "argmax",
    "argmin",
    "broadcast_to",
    "clamp",
    "complex_mul",
    "constant_external",
    "custom",
    "elementwise_max",
    "elementwise_min",
    "full_like",
    "inplace_custom",
    "max",
    "mean",
    "min",
    "ones_like",
    "print",
    "prod",
    "split",
    "stack",
    "sum",
    "where",
    "zeros_like",
]
MADE = ("full", "hann_window", "ones", "range", "zeros")
RANDOM = ("uniform", "gaussian", "uniform_like", "gaussian_like")

for _name in TAKEN:
    globals()[_name] = graph_function(getattr(ops, _name), rule_for(_name))
for _name in OWN:
    globals()[_name] = graph_function(getattr(own, _name), rule_for(_name))

clip = globals()["clamp"]


def _made(name: str) -> Callable[..., Tensor]:
    """A function that makes tensors, by default of the element type and device in force."""
    make = graph_function(getattr(own, name))

    @functools.wraps(make)
    def made(*args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Tensor:
        where = own.place(device)
        kind = own.element_type(dtype, where if device is None else device)
        mapping = own.several(device)
        if mapping is None:
            return make(*args, dtype=kind, device=where, **kwargs)
        if name in own.FILLED:
            return filled(mapping, kind, *args, **own.FILLED[name], **kwargs)
        return transfer_to(make(*args, dtype=kind, device=DeviceRef.CPU(), **kwargs), mapping)

    return made


for _name in MADE:
    globals()[_name] = _made(_name)
_constant = graph_function(own.constant)


@functools.wraps(own.constant)
def constant(value: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A number, nested lists or an array; numbers have the default element type."""
    mapping = own.several(device)
    if not hasattr(value, "dtype"):
        where = own.place(device)
        dtype, device = own.element_type(dtype, where if device is None else device), where
    if mapping is not None:
        return transfer_to(_constant(value, dtype, DeviceRef.CPU()), mapping)
    return _constant(value, dtype, device)


def _like(name: str) -> Callable[..., Tensor]:
    """A function that makes tensors like another, on several devices as that is."""
    alike, make = globals()[name], globals()[name.removesuffix("_like")]

    @functools.wraps(alike)
    def made(like: Any, *args: Any, **kwargs: Any) -> Tensor:
        if isinstance(like, Tensor) and like.is_distributed:
            return make(like.shape, *args, dtype=like.dtype, device=like.mapping, **kwargs)
        return alike(like, *args, **kwargs)

    return made


for _name in ("full_like", "ones_like", "zeros_like"):
    globals()[_name] = _like(_name)
_stack = globals()["stack"]


@functools.wraps(_stack)
def stack(values: Iterable[Any], axis: int = 0, device: Any = None) -> Tensor:
    """The tensors one after the other along a new axis."""
    mapping = None if device is None else own.several(device)
    if mapping is None:
        return _stack(values, axis, device)
    if axis != 0:
        raise ValueError(
            f"stack: over several devices the new axis is the first, got axis={axis}; transpose "
            "the result"
        )
    return transfer_to(_stack(values), mapping)


arange = globals()["range"]


def _random(name: str) -> Callable[..., Tensor]:
    """A function that draws numbers: eagerly, from the random state of eager tensors."""
    draw = functional(getattr(own, name))
    wrapped = draw.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]

    def drawn(*args: Any, **kwargs: Any) -> Tensor:
        mapping = own.several(kwargs.get("device")) if "like" not in name else None
        if mapping is not None:
            # One stream for the whole, so that devices differ in nothing but their part of it.
            dtype = own.element_type(kwargs.get("dtype"), mapping)
            kwargs |= {"dtype": dtype, "device": DeviceRef.CPU()}
        with ensure_context():
            seeded = getattr(CONTEXT.get(), "ensure_seed", None)
            if seeded is not None:
                seeded()
            made = draw(*args, **kwargs)
            return made if mapping is None else transfer_to(made, mapping)

    drawn.__wrapped__ = wrapped  # pyright: ignore[reportFunctionMemberAccess]
    drawn.__name__ = drawn.__qualname__ = name
    drawn.__doc__ = wrapped.__doc__
    drawn.graph_op, drawn.rule = wrapped, None  # pyright: ignore[reportFunctionMemberAccess]
    return drawn


for _name in RANDOM:
    globals()[_name] = _random(_name)
for _name in ("gaussian_like", "uniform_like"):
    globals()[_name] = _like(_name)
normal, normal_like = globals()["gaussian"], globals()["gaussian_like"]


__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    *TAKEN,
    *MADE,
    *OWN,
    *RANDOM,
    "allgather",
    "allreduce_sum",
    "arange",
    "call_on_mesh",
    "clip",
    "cond",
    "constant",
    "distributed_broadcast",
    "ensure_context",
    "functional",
    "in_graph_context",
    "lazy",
    "normal",
    "normal_like",
    "reduce_scatter",
    "side_stream",
    "transfer_to",
    "while_loop",
]

# The operators of a tensor are calls of these functions.
Tensor._ops = sys.modules[__name__]
