# SPDX-License-Identifier: Apache-2.0
"""Binding weights: a registry of arrays against the weights a graph declares."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from maxjax.driver import Buffer
from maxjax.driver.memory import place
from maxjax.dtype import DType
from maxjax.graph.dim import StaticDim
from maxjax.graph.ir import warn
from maxjax.graph.type import TensorType
from maxjax.graph.weights import WeightData, Weights

__all__ = ["as_array", "bind", "placed_weight", "warn_unused"]


def as_array(value: Any) -> Any:
    """A weight's data as something JAX takes: a NumPy or JAX array, without a copy.

    Raises:
        TypeError: If it is neither an array nor anything that gives one.
    """
    # First: asking whether an array of NumPy's is Weights, a protocol, asks for its memory, which
    # it has not for element types of ml_dtypes.
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return value
    if isinstance(value, Weights):
        value = value.data()
    if isinstance(value, WeightData):
        # An array of a mapped file is read where it is needed, and a Buffer of it whole.
        value = value.data if isinstance(value.data, np.ndarray) else value.to_buffer()
        if isinstance(value, np.ndarray):
            return value
    if isinstance(value, Buffer):
        host = value._host
        if host is not None and (value._shared or not host.flags.writeable):
            # Memory that stays where it is, as of a mapped file: who needs it copies his part.
            return value._ndarray(share=True)
        return value.jax()
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    raise TypeError(f"expected an array, got {type(value).__name__}")


def bind(
    graph: str, declared: Mapping[str, TensorType], registry: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The array of each declared weight.

    Args:
        graph: The graph's name, for messages.
        declared: The weights' types by name.
        registry: Arrays by name; names the graph does not declare are left alone.

    Raises:
        ValueError: If a weight is missing, or its shape or dtype is another; one message lists
            all problems, with the nearest names.
    """
    registry = registry or {}
    unused = [n for n in registry if n not in declared]
    problems, arrays = [], {}
    for name, type_ in declared.items():
        if name not in registry:
            problems.append(f"missing: {name} ({type_.brief()}){_nearest(name, unused)}")
            continue
        try:
            array = as_array(registry[name])
            wrong = _mismatch(array, type_)
        except (TypeError, ValueError, KeyError) as e:
            wrong = str(e)
        if wrong:
            problems.append(f"{name}: {wrong}")
        else:
            arrays[name] = array
    if problems:
        if unused:
            problems.append(f"not used by the graph: {_list(unused)}")
        raise ValueError(f"the weights of graph {graph!r} do not fit:\n  " + "\n  ".join(problems))
    return arrays


def placed_weight(array: Any, device: Any) -> jax.Array:
    """A weight on a ``jax.Device``; memory nobody can write, as of a mapped file, is shared."""
    if isinstance(array, (np.ndarray, np.generic)):
        return place(np.asarray(array), device, ours=not array.flags.writeable)
    return jax.device_put(array, device)


def _mismatch(array: Any, type_: TensorType) -> str | None:
    own = DType.of(array.dtype)
    fits = len(array.shape) == len(type_.shape) and all(
        not isinstance(d, StaticDim) or d.dim == s
        for d, s in zip(type_.shape, array.shape, strict=True)
    )
    if fits and own is type_.dtype:
        return None
    shape = ", ".join(map(str, array.shape))
    return f"expected {type_.brief()}, got {own.short}[{shape}]"


def _nearest(name: str, candidates: list[str]) -> str:
    close = difflib.get_close_matches(name, candidates, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _list(names: Iterable[str], most: int = 5) -> str:
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def warn_unused(registry: Mapping[str, Any] | None, declared: set[str]) -> None:
    """Warns of names in the registry that nothing declares: perhaps a name is misspelt."""
    unused = [n for n in registry or {} if n not in declared]
    if unused:
        hints = [f"{n}{_nearest(n, sorted(declared))}" for n in unused[:5]]
        more = f" and {len(unused) - 5} more" if len(unused) > 5 else ""
        warn(f"weights that no graph uses: {', '.join(hints)}{more}")
