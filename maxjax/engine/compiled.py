# SPDX-License-Identifier: Apache-2.0
"""Compiled models: what a session makes of graphs before it gives them weights."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from maxjax.artifact import Artifact, write_artifact
from maxjax.lower import Function

__all__ = ["CompiledModel", "read"]


class CompiledModel:
    """Functions that wait for their weights; made by ``InferenceSession.compile`` and :func:`read`.

    XLA programs have fixed sizes, so XLA compiles when a model is called, or warmed up.

    Args:
        functions: Each function by its graph's name.

    Attributes:
        functions: The same.
    """

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = dict(functions)

    def export_mef(self, path: str | Path) -> None:
        """Writes the artifact that :func:`read` reads, without weights.

        For platforms, sizes and weights in it see :func:`maxjax.export.save`.

        Args:
            path: The file; it is written beside and renamed.

        Raises:
            ValueError: If there are several graphs, for an artifact is one, or an op cannot be
                exported.
            OSError: If the file cannot be written.
        """
        if len(self.functions) != 1:
            raise ValueError(
                f"an artifact is one graph, and these are {len(self.functions)} "
                f"({', '.join(self.functions)}): compile and export each"
            )
        (function,) = self.functions.values()
        write_artifact(function, path)

    def __repr__(self) -> str:
        return f"CompiledModel({', '.join(self.functions)})"


def read(source: str | os.PathLike[str] | BinaryIO) -> CompiledModel:
    """Reads an artifact, for ``InferenceSession.init``.

    Args:
        source: A path, or a binary file that stands at the artifact's beginning.

    Raises:
        RuntimeError: If there is no such file, or it is no artifact or a damaged one; says what is
            wrong with it.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from maxjax import engine, export
    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType
    >>> g = Graph("double", lambda x: x * 2, [TensorType(DType.float32, ["n"], DeviceRef.CPU())])
    >>> session = engine.InferenceSession()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "double.maxjax")
    ...     session.compile(g).export_mef(path)
    ...     model = session.init(engine.read(path))
    ...     model(np.float32([1, 2, 3]))[0].to_numpy().tolist()
    [2.0, 4.0, 6.0]
    """
    try:
        is_path = isinstance(source, str | os.PathLike)
        artifact = Artifact(source) if is_path else _spooled(source)
    except (OSError, ValueError) as e:
        raise RuntimeError(f"cannot read an artifact: {e}") from e
    return CompiledModel({artifact.name: artifact})


def _spooled(source: BinaryIO) -> Artifact:
    """An artifact from a stream: weights are mapped from files, so it becomes one."""
    if not hasattr(source, "read"):
        raise ValueError(f"expected a path or a binary file, got {type(source).__name__}")
    handle, name = tempfile.mkstemp(suffix=".maxjax")
    try:
        with open(handle, "wb") as file:
            shutil.copyfileobj(source, file)
        artifact = Artifact(name)
    except BaseException:
        os.unlink(name)
        raise
    weakref.finalize(artifact, os.unlink, name)
    return artifact
