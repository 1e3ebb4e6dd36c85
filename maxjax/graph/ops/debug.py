# SPDX-License-Identifier: Apache-2.0
"""Looking at a graph: printing values while it runs, checking devices while it is built."""

from __future__ import annotations

import builtins
import functools
from typing import Any

import jax
import numpy as np

from maxjax.dtype import DType
from maxjax.graph.op import State, StateOp, refused
from maxjax.graph.ops._operands import tensor
from maxjax.graph.type import TensorType
from maxjax.graph.value import BufferValue, TensorValue, Value

__all__ = ["assert_same_device", "print"]

# What is longer is printed with its ends only.
_MOST = 1000


class Print(StateOp):
    """Prints a message, or an operand's values after a label, each time the graph runs."""

    label: str
    message: str | None = None

    def infer(self, *operands: TensorType) -> None:
        if len(operands) != (self.message is None):
            raise ValueError("it prints either a message or the values of one tensor")

    def lower(self, state: State, *operands: jax.Array) -> None:
        # Ordered: prints come out in program order.
        if self.message is not None:
            line = f"[{self.label}] {self.message}"
            jax.debug.callback(functools.partial(_show_message, line), ordered=True)
        else:
            jax.debug.callback(functools.partial(_show, self.label), operands[0], ordered=True)


def _show_message(line: str) -> None:
    builtins.print(line, flush=True)


def _show(label: str, array: Any) -> None:
    values = np.asarray(array)
    dtype = DType.of(values.dtype)
    if dtype.is_float() and values.dtype.itemsize < 4:
        values = values.astype(np.float32)  # for NumPy to print floats as it does its own
    text = np.array2string(values, separator=", ", precision=4, threshold=_MOST)
    shape = ", ".join(map(str, values.shape))
    builtins.print(f"{label} = tensor({text}, dtype={dtype.name}, shape=[{shape}])", flush=True)


def print(value: str | TensorValue, label: str = "debug_tensor") -> None:
    """Prints a tensor's values, or a message, to standard output each time the graph runs.

    Prints come in program order. A run may return before all of its prints are out;
    ``jax.effects_barrier()`` waits for them. They call back into this process, which a program
    that is written to a file cannot do.

    Args:
        value: A tensor, or a string.
        label: What to put before it.

    Raises:
        TypeError: If ``value`` is neither, or ``label`` not a string.

    >>> import jax, numpy as np
    >>> from maxjax.dtype import DType
    >>> from maxjax.engine import InferenceSession
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, [2], DeviceRef.CPU())]) as g:
    ...     ops.print(g.inputs[0].tensor * 2, "twice")
    ...     g.output()
    >>> model = InferenceSession().load(g)
    >>> outputs, _ = model(np.float32([1, 2.5])), jax.effects_barrier()
    twice = tensor([2., 5.], dtype=float32, shape=[2])
    """
    if not isinstance(label, str):
        raise refused("print", TypeError, f"label is a string, not {label!r:.60}")
    if isinstance(value, str):
        Print(label, value)()
    else:
        Print(label)(tensor("print", value))


def assert_same_device(
    *values: TensorValue | BufferValue, **named_values: TensorValue | BufferValue
) -> None:
    """Checks, while the graph is built, that all values are on one device.

    Args:
        values: Tensors and buffers.
        named_values: The same, by the names that the message is to use.

    Raises:
        TypeError: If an argument is not a graph value.
        ValueError: If they are on different devices; it names each.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.float32, [2], DeviceRef.CPU())]) as g:
    ...     ops.assert_same_device(g.inputs[0], g.inputs[0].tensor + 1)
    """
    named = {**{f"value {i}": v for i, v in enumerate(values)}, **named_values}
    for name, value in named.items():
        if not isinstance(value, Value):
            raise refused(
                "assert_same_device", TypeError, f"{name} is {value!r:.60}, not a graph value"
            )
    if len({v.device for v in named.values()}) > 1:
        places = ", ".join(f"{name} on {v.device}" for name, v in named.items())
        raise refused(
            "assert_same_device", ValueError, f"the values are on different devices: {places}"
        )
