# SPDX-License-Identifier: Apache-2.0
"""Opening a checkpoint by its files' names."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from maxjax.graph.weights.format import WeightsFormat, weights_format
from maxjax.graph.weights.gguf import GGUFWeights
from maxjax.graph.weights.safetensors import SafetensorWeights
from maxjax.graph.weights.weights import Weights

__all__ = ["load_weights"]


def load_weights(paths: Sequence[Path]) -> Weights:
    """Opens the files of one checkpoint; tensors are read when they are used.

    Args:
        paths: The files: one GGUF file, or safetensors files. Where two of these have a weight of
            one name, the later wins.

    Raises:
        ValueError: If there are no paths, a file is missing or damaged, the format is unknown, or
            there are several GGUF files.
        TypeError: If ``paths`` is a single path.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from safetensors.numpy import save_file
        >>> from maxjax.graph.weights import load_weights
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name) / "model.safetensors"
        >>> save_file({"layers.0.weight": np.ones((2, 3), np.float32)}, path)
        >>> weights = load_weights([path])
        >>> weights.layers[0].weight.data()
        WeightData('layers.0.weight', float32, [2, 3])
        >>> weights.close()
        >>> folder.cleanup()
    """
    if isinstance(paths, (str, PathLike)):
        raise TypeError(f"load_weights takes a list of paths: write load_weights([{paths!r}])")
    paths = [Path(path) for path in paths]
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise ValueError(f"no such weight file: {', '.join(missing)}")
    if weights_format(paths) is WeightsFormat.safetensors:
        return SafetensorWeights(paths)
    if len(paths) > 1:
        raise ValueError(
            f"a GGUF checkpoint is one file, got {len(paths)}: {', '.join(map(str, paths))}; "
            "merge the parts of a split one (llama-gguf-split --merge), or load each by itself"
        )
    return GGUFWeights(paths[0])
