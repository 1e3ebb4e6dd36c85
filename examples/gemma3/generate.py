# SPDX-License-Identifier: Apache-2.0
"""From a prompt to text, token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maxjax.driver import CPU, Buffer, Device
from maxjax.engine import InferenceSession, Model
from maxjax.graph import DeviceRef
from maxjax.graph.weights import load_weights
from maxjax.graph.weights.gguf_file import GGUFFile

from .assets import Config, model_path
from .layers import cache_types
from .model import build
from .sampling import Sampling
from .tokenizer import Decoder, Tokenizer

__all__ = ["Generator", "Sampling"]

_STEP = 64
"""Caches grow in steps of this many tokens, so that few sizes are compiled."""


class Generator:
    """A model that is ready to write.

    Args:
        device: Where it runs.
        path: The GGUF file; by default that of the installed package.
        sampling: How tokens are drawn; None for the likeliest always.
        progress: Called after each weight that was loaded, with how many bytes are done and how
            many there are.

    Attributes:
        ref: The device as graphs name it.
        tokenizer: The file's vocabulary.
        config: The sizes of the network.
        models: The compiled graphs ``prefill`` and ``decode``.

    Raises:
        ModuleNotFoundError: If no path is given and the model's package is not installed.
        ValueError: If the file is damaged or holds another kind of model.
    """

    def __init__(
        self,
        device: Device | None = None,
        path: Path | None = None,
        sampling: Sampling | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.device = device or CPU()
        self._sampling = sampling
        path = path or model_path()
        metadata = GGUFFile(path).metadata
        self.config = Config.of(metadata)
        self.tokenizer = Tokenizer(metadata)
        weights = load_weights([path])
        self.ref = DeviceRef.from_device(self.device)
        module = build(weights, self.config, self.ref, draws=sampling is not None)
        registry = _on(self.device, weights.allocated_weights, progress)
        self.models: dict[str, Model] = InferenceSession([self.device]).load_all(
            module, weights_registry=registry
        )
        self._caches = [t.shape for t in cache_types(self.config, self.ref)] * self.config.layers

    def caches(self, batch: int, context: int) -> list[Buffer]:
        """Empty caches for ``batch`` texts of up to ``context`` tokens."""
        sizes = {"batch": batch, "context": context}
        return [
            Buffer.from_numpy(np.zeros(shape.evaluate(sizes), np.float32)).to(self.device)
            for shape in self._caches
        ]

    def tokens(self, prompts: Sequence[Sequence[int]], count: int) -> Iterator[list[int]]:
        """The tokens that follow.

        Args:
            prompts: The ids of each prompt; at least one id each.
            count: How many tokens to write.

        Yields:
            The next id of each text; ``count`` times, whether or not a text has ended.

        Raises:
            ValueError: If there is no prompt, one is empty, or the longest one and what is to be
                written are more than the model's context.
        """
        if not prompts or not all(prompts):
            raise ValueError("give at least one prompt, and at least one token in each")
        longest = max(map(len, prompts))
        if count < 1:
            return
        # The last token is written and never read.
        context = longest + count - 1
        if context > self.config.context:
            raise ValueError(
                f"a prompt of {longest} tokens and {count} more are {longest + count}; the model's "
                f"context has {self.config.context}"
            )
        context = min(-(-context // _STEP) * _STEP, self.config.context)
        padded = np.zeros((len(prompts), longest), np.int64)
        starts = np.array([longest - len(p) for p in prompts], np.int64)
        for row, start, prompt in zip(padded, starts, prompts, strict=True):
            row[start:] = prompt
        caches = self.caches(len(prompts), context)
        _, token = self.models["prefill"](padded, starts, *caches, *self._numbers(0))
        yield token.to_numpy()[:, 0].tolist()
        for place in range(longest, longest + count - 1):
            numbers = self._numbers(place)
            _, token = self.models["decode"](token, starts, np.int64(place), *caches, *numbers)
            yield token.to_numpy()[:, 0].tolist()

    def _numbers(self, step: int) -> tuple[np.generic, ...]:
        return self._sampling.inputs(step) if self._sampling is not None else ()

    def ids(self, prompt: str, count: int) -> Iterator[int]:
        """The ids that follow a prompt: at most ``count``, and none from the end of the text on."""
        for (token,) in self.tokens([self.tokenizer.encode(prompt)], count):
            if token in self.tokenizer.stops:
                return
            yield token

    def text(self, prompt: str, count: int) -> Iterator[str]:
        """The text that follows a prompt, in pieces as they come.

        Args:
            prompt: Where to begin; may be empty.
            count: The most tokens to write.

        Raises:
            ValueError: If the prompt and ``count`` are more than the model's context.
        """
        decoder = Decoder(self.tokenizer)
        for token in self.ids(prompt, count):
            yield decoder.feed(token)
        yield decoder.end()


def _on(
    device: Device, arrays: dict[str, Any], progress: Callable[[int, int], None] | None
) -> dict[str, Any]:
    """The weights on a device, for both graphs; a CPU uses them where they lie in the file."""
    total, done, placed = sum(a.nbytes for a in arrays.values()), 0, {}
    for name, array in arrays.items():
        placed[name] = array if device.is_host else Buffer.from_numpy(array).to(device)
        done += array.nbytes
        if progress is not None:
            progress(done, total)
    return placed
