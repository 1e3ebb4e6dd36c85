# SPDX-License-Identifier: Apache-2.0
"""Sessions: where graphs are compiled and given their weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from maxjax.artifact import Artifact, is_artifact
from maxjax.driver import CPU, Device
from maxjax.engine.artifacts import loaded
from maxjax.engine.buckets import Bucket
from maxjax.engine.cache import use_folder
from maxjax.engine.compiled import CompiledModel, read
from maxjax.engine.debug import DebugConfig
from maxjax.engine.model import Model
from maxjax.engine.programs import Recompile
from maxjax.engine.store import MefStore
from maxjax.engine.weights import warn_unused
from maxjax.graph import text
from maxjax.graph.graph import Graph, callees
from maxjax.graph.kernels import CustomExtensions, KernelLibrary, absolute
from maxjax.graph.module import Module
from maxjax.lower import Manner, to_jax

__all__ = ["LOOP", "InferenceSession"]

# From how many calls of one body in a row a program has a loop in their place. A loop is compiled
# once, however long it is; on a CPU it copies a layer's weights before it uses them, which shows
# where there are only a few rows to multiply them with.
LOOP = 32


class InferenceSession:
    """Compiles graphs for devices.

    Args:
        devices: What graphs may run on; the CPU when empty.
        num_threads: Accepted; XLA decides.
        custom_extensions: Paths of custom kernels (see :class:`~maxjax.graph.KernelLibrary`) for
            every graph that is loaded, as for graphs that are read from text.
        precompiled_mefs: Folders of artifacts, or a store of them, that graphs are taken from.
        export_mefs: A folder, or a store, that the artifact of each loaded graph is written to.
        cache_dir: A folder where XLA's programs are kept, for later processes: see
            :mod:`maxjax.engine.cache`. JAX has one for the whole process.

    Raises:
        TypeError: If a device is none, or ``cache_dir`` no path.
        ValueError: If custom kernels cannot be loaded, or both kinds of store are given.
        FileNotFoundError: If a folder of artifacts is none.

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
    default_mef_store: ClassVar[MefStore | None] = None
    """The store of sessions that have none of their own."""

    def __init__(
        self,
        devices: Iterable[Device] = (),
        num_threads: int | None = None,
        *,
        custom_extensions: CustomExtensions | None = None,
        precompiled_mefs: str | Path | Iterable[str | Path] | MefStore | None = None,
        export_mefs: str | Path | MefStore | None = None,
        cache_dir: str | Path | None = None,
    ) -> None:
        self._devices = list(devices) or [CPU()]
        for d in self._devices:
            if not isinstance(d, Device):
                raise TypeError(f"devices must be Devices, got {d!r}")
        self._kernels = KernelLibrary(custom_extensions or ())
        if precompiled_mefs is not None and export_mefs is not None:
            raise ValueError(
                "a session reads artifacts or writes them: give one of "
                "precompiled_mefs and export_mefs"
            )
        if cache_dir is not None:
            use_folder(cache_dir)
        self._store: MefStore | None = None
        if precompiled_mefs is not None:
            self._store = (
                precompiled_mefs
                if isinstance(precompiled_mefs, MefStore)
                else MefStore.for_import(precompiled_mefs)
            )
        elif export_mefs is not None:
            self._store = (
                export_mefs
                if isinstance(export_mefs, MefStore)
                else MefStore.for_export(export_mefs)
            )

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
        buckets: Mapping[str, Bucket] | None = None,
    ) -> Model:
        """A model of one graph.

        Args:
            model: A graph, a module with one, or the path of a graph's text or of an artifact.
            custom_extensions: Paths of more custom kernels, which the graph's library loads.
            weights_registry: An array (NumPy, JAX, ``Buffer``, DLPack, weights of a file) for
                each weight name.
            tile_based_fusion: Accepted; XLA decides.
            recompile: What a call does whose sizes nothing is compiled for yet, after the first
                or :meth:`Model.warmup`: "allow" compiles, "warn" says so too, "error" refuses.
            buckets: For names of dimensions ``"pow2"`` or sizes, such as ``[1, 8, 32]``: inputs are
                padded to the next of them, and outputs cut, so that there are few programs. A size
                beyond the largest is compiled as it is.

        Raises:
            RuntimeError: If ``model`` is none of these, or the graph has no outputs yet.
            ValueError: If a module has several graphs, weights are missing or do not fit,
                custom kernels cannot be loaded, or ``recompile`` is another word; or if padding
                might change a result: the op that mixes along the dimension is named.
            TypeError: If ``buckets`` are none.
        """
        compiled = self.compile_reusing_mefs(model, custom_extensions=custom_extensions)
        return self._one(compiled, weights_registry, recompile, buckets)

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
        compiled = self.compile_reusing_mefs(model, custom_extensions=custom_extensions)
        return self._models(compiled, weights_registry, recompile)

    # ---------------------------------------------------------------- in two steps

    def compile(
        self,
        model: str | Path | Graph | Module,
        *,
        custom_extensions: CustomExtensions | None = None,
        tile_based_fusion: bool = False,
    ) -> CompiledModel:
        """Lowers graphs, without weights; :meth:`init` gives them those.

        Args:
            model: A graph, a module, or the path of a graph's text or of an artifact.
            custom_extensions: Paths of more custom kernels, which the graphs' libraries load.
            tile_based_fusion: Accepted; XLA decides.

        Raises:
            RuntimeError: If ``model`` is none of these, an artifact is damaged, or a graph has no
                outputs yet.
            ValueError: If text does not parse or custom kernels cannot be loaded.
        """
        if isinstance(model, str | Path) and is_artifact(model):
            return read(model)
        graphs = _graphs(model)
        paths = [*self._kernels.library_paths(), *absolute(custom_extensions or ())]
        for g in graphs if paths else ():
            for each in (*callees(g), g):
                each.kernels.load_paths(paths)
        return CompiledModel({g.name: to_jax(g, Manner(loop=LOOP)) for g in graphs})

    def compile_async(
        self,
        model: str | Path | Graph | Module,
        *,
        custom_extensions: CustomExtensions | None = None,
        tile_based_fusion: bool = False,
    ) -> CompiledModel:
        """The same as :meth:`compile`, which waits for nothing: XLA compiles when a model runs."""
        return self.compile(model, custom_extensions=custom_extensions)

    def compile_reusing_mefs(
        self,
        model: str | Path | Graph | Module,
        *,
        custom_extensions: CustomExtensions | None = None,
        tile_based_fusion: bool = False,
    ) -> CompiledModel:
        """As :meth:`compile`; a graph is taken from, or written to, the session's store.

        The store is that of ``precompiled_mefs`` or ``export_mefs``, else ``default_mef_store``.

        Raises:
            MissingArtifactError: If the store has no artifact for the graph.
        """
        store = self._store or type(self).default_mef_store
        if store is None or not isinstance(model, Graph):
            return self.compile(model, custom_extensions=custom_extensions)
        if not store.exporting:
            path = store.claim_import(model)
            return self.compile(model if path is None else path)
        compiled = self.compile(model, custom_extensions=custom_extensions)
        compiled.export_mef(store.claim_export(model))
        store.write_manifest()
        return compiled

    def init(
        self, compiled: CompiledModel, *, weights_registry: Mapping[str, Any] | None = None
    ) -> Model:
        """A model of what was compiled, with its weights.

        Args:
            compiled: From :meth:`compile` or :func:`maxjax.engine.read`; it can be used again.
            weights_registry: An array for each weight name that an artifact does not hold itself.

        Raises:
            ValueError: If it is several graphs, weights are missing or do not fit, or an artifact
                is for other platforms.
        """
        return self._one(compiled, weights_registry, "allow")

    def init_all(
        self, compiled: CompiledModel, *, weights_registry: Mapping[str, Any] | None = None
    ) -> dict[str, Model]:
        """A model per graph, by name; arguments and errors as for :meth:`init`."""
        return self._models(compiled, weights_registry, "allow")

    def _one(
        self,
        compiled: CompiledModel,
        registry: Mapping[str, Any] | None,
        recompile: Recompile,
        buckets: Mapping[str, Bucket] | None = None,
    ) -> Model:
        names = list(compiled.functions)
        if len(names) != 1:
            raise ValueError(
                f"expected one graph, got {len(names)} ({', '.join(names)}); use load_all or "
                "init_all for several"
            )
        return self._models(compiled, registry, recompile, buckets)[names[0]]

    def _models(
        self,
        compiled: CompiledModel,
        registry: Mapping[str, Any] | None,
        recompile: Recompile,
        buckets: Mapping[str, Bucket] | None = None,
    ) -> dict[str, Model]:
        models = {}
        for name, function in compiled.functions.items():
            if isinstance(function, Artifact):
                weights = function.weights()
                models[name] = loaded(
                    function, self._devices, weights, registry, recompile, buckets
                )
            else:
                models[name] = Model(
                    function, self._devices, registry, recompile=recompile, buckets=buckets
                )
        declared = {n for f in compiled.functions.values() for n in f.signature.weights}
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
