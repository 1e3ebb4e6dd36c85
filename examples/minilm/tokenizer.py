# SPDX-License-Identifier: Apache-2.0
"""Sentences to token ids, padded to the longest of the batch; no network."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .assets import INSTALL, Config, model_dir

try:
    from tokenizers import Tokenizer
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(
        f"the 'tokenizers' package is not installed; get it with: {INSTALL}", name="tokenizers"
    ) from e

__all__ = ["Batch", "encode"]


class Batch(NamedTuple):
    """The encoder's three inputs, in order: int64 arrays of shape ``[batch, seq]``."""

    input_ids: np.ndarray
    attention_mask: np.ndarray
    token_type_ids: np.ndarray


@functools.cache
def _tokenizer() -> Tokenizer:
    folder = model_dir()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    # The file pads every sentence to 128 tokens and cuts there; the model was published
    # with a limit of its own, and a batch need be no longer than its longest sentence.
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"), pad_token="[PAD]")
    tokenizer.enable_truncation(Config.load().max_tokens)
    return tokenizer


def encode(sentences: Sequence[str]) -> Batch:
    """Turns ``batch`` sentences into ids, a mask (1 for a token, 0 for padding) and type ids.

    Raises:
        ValueError: If there are no sentences.
        ModuleNotFoundError: If the model's package is not installed.
    """
    if not sentences:
        raise ValueError("encode: no sentences; give at least one (the empty string is one)")
    encoded = _tokenizer().encode_batch(list(sentences))
    return Batch(
        np.array([e.ids for e in encoded], np.int64),
        np.array([e.attention_mask for e in encoded], np.int64),
        np.array([e.type_ids for e in encoded], np.int64),
    )
