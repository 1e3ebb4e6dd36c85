# SPDX-License-Identifier: Apache-2.0
"""Writing artifacts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maxjax.artifact import PLATFORMS, write_artifact
from maxjax.engine import Model
from maxjax.engine.weights import bind
from maxjax.graph.graph import Graph
from maxjax.graph.module import Module
from maxjax.lower import Function, LoweredFunction, to_jax
from maxjax.lower.spmd import LaneFunction, one_program
from maxjax.lower.stages import bounded, new_sizes

__all__ = ["save"]


def save(
    model: Graph | Module | Model,
    path: str | os.PathLike[str],
    *,
    weights_registry: Mapping[str, Any] | None = None,
    platforms: Sequence[str] = PLATFORMS,
    specialize: Mapping[str, Sequence[int]] | None = None,
    conditions: Iterable[str] = (),
    bounds: Mapping[str, int] | None = None,
    bake: Iterable[str] = (),
    debug_info: bool = False,
    custom_calls: Iterable[str] = (),
) -> Path:
    """Writes a graph and its weights as an artifact: one file, for every platform and all sizes.

    The file is the same, byte for byte, for the same graph and weights, wherever it is written.
    What JAX needs to run it, and what other consumers of StableHLO need, is in it, and nothing
    of maxjax: a dozen lines run it without.

    Args:
        model: A finished graph, a module with one, or a model, whose weights go with it.
        path: The file to write; it is written beside and renamed.
        weights_registry: An array for each weight of the graph. Without it the artifact has no
            weights, and whoever loads it gives them.
        platforms: Where it is to run, of cpu, cuda, rocm and tpu; none of them need be here.
        specialize: For names of dimensions the sizes for which programs without that dimension
            are added, in all combinations; for consumers that need fixed sizes.
        conditions: What sizes it is for, where that is not all: ``"n % 4 == 0"``. What the graph's
            types need (such as 2 elements for ``x[1:-1]``) is found and added.
        bounds: A number for the name of each size that depends on values (``nonzero``, a mask as an
            index): the program has it in the place of the size. After the graph's own outputs come
            the real sizes, an ``int64`` scalar for each name in this order; results with such a
            size are right as far as that goes, and cut off where it is above its bound.
        bake: The names of weights that become constants of the program.
        debug_info: Whether the program names the user's files and lines.
        custom_calls: The targets of foreign calls that every reader will have registered.

    Returns:
        The path.

    Raises:
        TypeError: If ``model`` is none of these, or the graph has no outputs yet.
        ValueError: If weights are missing or do not fit; if an op cannot be exported; if a size
            that depends on values has no bound, or an op would use what is behind the real
            elements (names the op and its place); if a platform, a name or a condition is none.
        OSError: If the file cannot be written.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from maxjax import export
    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType
    >>> g = Graph("double", lambda x: x * 2, [TensorType(DType.float32, ["n"], DeviceRef.CPU())])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = export.save(g, os.path.join(folder, "double.maxjax"))
    ...     model = export.load(path)
    ...     model(np.float32([1, 2, 3]))[0].to_numpy().tolist()
    [2.0, 4.0, 6.0]

    With a size that depends on values:

    >>> from maxjax.graph import ops
    >>> def positive(x):
    ...     return ops.gather_nd(x, ops.nonzero(x > 0, "found"))
    >>> g = Graph("positive", positive, [TensorType(DType.float32, ["n"], DeviceRef.CPU())])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = export.save(g, os.path.join(folder, "positive.maxjax"), bounds={"found": 4})
    ...     y, found = export.load(path)(np.float32([3, -1, 2]))
    >>> y.shape, y.to_numpy()[: found.item()].tolist()
    ((4,), [3.0, 2.0])
    """
    function, registry = _function(model, weights_registry)
    if bounds or (isinstance(function, LoweredFunction) and new_sizes(function.graph)):
        function = bounded(function, {} if bounds is None else bounds)
    whole, arrays = one_program(function), None
    if registry is not None:
        bound = bind(function.signature.name, function.signature.weights, registry)
        arrays = {name: np.asarray(array) for name, array in bound.items()}
        if isinstance(whole, LaneFunction) and whole is not function:
            arrays = whole.arrays(arrays)
    return write_artifact(
        whole,
        path,
        arrays,
        platforms=platforms,
        specialize=specialize,
        conditions=conditions,
        counts=tuple(bounds or ()),
        bake=bake,
        debug_info=debug_info,
        custom_calls=custom_calls,
    )


def _function(
    model: Any, registry: Mapping[str, Any] | None
) -> tuple[Function, Mapping[str, Any] | None]:
    """What is exported, and its weights."""
    if isinstance(model, Model):
        function = model.exported
        registry = model.weights if registry is None else registry
    else:
        function = to_jax(_graph(model))
    return function, registry


def _graph(model: Any) -> Graph:
    if isinstance(model, Module):
        if len(model.graphs) != 1:
            raise TypeError(
                f"an artifact is one graph, and the module has {len(model.graphs)}: save each"
            )
        return model.graphs[0]
    if not isinstance(model, Graph):
        raise TypeError(f"expected a Graph, a Module or a Model, got {type(model).__name__}")
    return model
