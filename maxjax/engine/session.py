# SPDX-License-Identifier: Apache-2.0
"""Sessions: where graphs are compiled and given their weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from maxjax.driver import CPU, Device
from maxjax.engine.debug import DebugConfig
from maxjax.engine.model import Model
from maxjax.engine.programs import Recompile
from maxjax.engine.weights import warn_unused
from maxjax.graph import text
from maxjax.graph.graph import Graph, callees
from maxjax.graph.kernels import CustomExtensions, KernelLibrary, absolute
from maxjax.graph.module import Module
from maxjax.lower import to_jax

__all__ = ["InferenceSession"]


class InferenceSession:
    """Compiles graphs for devices.

    Args:
        devices: What graphs may run on; the CPU when empty.
        num_threads: Accepted; XLA decides.
        custom_extensions: Paths of custom kernels (see :class:`~maxjax.graph.KernelLibrary`) for
            every graph that is loaded, as for graphs that are read from text.

    Raises:
        TypeError: If a device is none.
        ValueError: If custom kernels cannot be loaded.

    >>> import numpy as np
    >>> from maxjax.dtype import DType
    >>> from maxjax.engine import InferenceSession
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, Weight
    >>> cpu = DeviceRef.CPU()
    >>> w = Weight("w", DType.float32, [2], cpu)
    >>> g = Graph("scale", lambda x: x * w, [TensorType(DType.float32, ["n", 2], cpu)])
    >>> model = InferenceSession().load(g, weights_registry={"w": np.float32([10, 100])})
    >>> model(np.float32([[1, 2]]))[0].to_numpy().tolist()
    [[10.0, 200.0]]
    """

    debug: ClassVar[DebugConfig] = DebugConfig()

    def __init__(
        self,
        devices: Iterable[Device] = (),
        num_threads: int | None = None,
        *,
        custom_extensions: CustomExtensions | None = None,
    ) -> None:
        self._devices = list(devices) or [CPU()]
        for d in self._devices:
            if not isinstance(d, Device):
                raise TypeError(f"devices must be Devices, got {d!r}")
        self._kernels = KernelLibrary(custom_extensions or ())

    @property
    def devices(self) -> list[Device]:
        """The devices graphs may run on."""
        return list(self._devices)

    def load(
        self,
        model: str | Path | Graph | Module,
        *,
        custom_extensions: CustomExtensions | None = None,
        weights_registry: Mapping[str, Any] | None = None,
        tile_based_fusion: bool = False,
        recompile: Recompile = "allow",
    ) -> Model:
        """A model of one graph.

        Args:
            model: A graph, or a module or text file with one.
            custom_extensions: Paths of more custom kernels, which the graph's library loads.
            weights_registry: An array (NumPy, JAX, ``Buffer``, DLPack, weights of a file) for
                each weight name.
            tile_based_fusion: Accepted; XLA decides.
            recompile: What a call does whose sizes nothing is compiled for yet, after the first
                or :meth:`Model.warmup`: "allow" compiles, "warn" says so too, "error" refuses.

        Raises:
            RuntimeError: If ``model`` is none of these, or the graph has no outputs yet.
            ValueError: If a module has several graphs, weights are missing or do not fit,
                custom kernels cannot be loaded, or ``recompile`` is another word.
        """
        graphs = _graphs(model)
        if len(graphs) != 1:
            raise ValueError(
                f"expected one graph, got {len(graphs)} "
                f"({', '.join(g.name for g in graphs)}); use load_all for several"
            )
        models = self._load_all(graphs, custom_extensions, weights_registry, recompile)
        return models[graphs[0].name]

    def load_all(
        self,
        model: str | Path | Graph | Module,
        *,
        custom_extensions: CustomExtensions | None = None,
        weights_registry: Mapping[str, Any] | None = None,
        tile_based_fusion: bool = False,
        recompile: Recompile = "allow",
    ) -> dict[str, Model]:
        """A model per graph, by name.

        Args and errors as for :meth:`load`; the graphs share the weights registry.
        """
        return self._load_all(_graphs(model), custom_extensions, weights_registry, recompile)

    def _load_all(
        self,
        graphs: tuple[Graph, ...],
        extensions: CustomExtensions | None,
        registry: Mapping[str, Any] | None,
        recompile: Recompile,
    ) -> dict[str, Model]:
        paths = [*self._kernels.library_paths(), *absolute(extensions or ())]
        for g in graphs if paths else ():
            for each in (*callees(g), g):
                each.kernels.load_paths(paths)
        models = {
            g.name: Model(to_jax(g), self._devices, registry, recompile=recompile) for g in graphs
        }
        declared = {n for m in models.values() for n in m._signature.weights}
        warn_unused(registry, declared)
        return models

    def __repr__(self) -> str:
        return f"InferenceSession({', '.join(map(str, self._devices))})"


def _graphs(model: Any) -> tuple[Graph, ...]:
    if isinstance(model, Graph):
        graphs: tuple[Graph, ...] = (model,)
    elif isinstance(model, Module):
        graphs = model.graphs
    elif isinstance(model, (str, Path)):
        graphs = text.read(model).graphs
    else:
        raise RuntimeError(
            f"a model is a Graph, a Module or the path of a graph's text, got {model!r:.80}"
        )
    for g in graphs:
        if g.body.outputs is None:
            raise RuntimeError(
                f"graph {g.name!r} has no outputs; call graph.output(...) before loading it"
            )
    return graphs
