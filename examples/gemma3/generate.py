# SPDX-License-Identifier: Apache-2.0
"""From a prompt to text, token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maxjax.driver import CPU, Buffer, Device
from maxjax.dtype import DType
from maxjax.engine import InferenceSession, Model
from maxjax.graph import DeviceRef
from maxjax.graph.weights import load_weights
from maxjax.graph.weights.gguf_file import GGUFFile

from . import parallel
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
        device: Where it runs; the first of several.
        path: The GGUF file; by default that of the installed package.
        sampling: How tokens are drawn; None for the likeliest always.
        progress: Called after each weight that was loaded, with how many bytes are done and how
            many there are.
        devices: All devices, if they are several accelerators: the network is shared out to them.

    Attributes:
        refs: The devices as graphs name them.
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
        devices: Sequence[Device] = (),
    ) -> None:
        self.devices = list(devices) or [device or CPU()]
        self.device = self.devices[0]
        self._sampling = sampling
        path = path or model_path()
        metadata = GGUFFile(path).metadata
        self.config = Config.of(metadata)
        self.tokenizer = Tokenizer(metadata)
        weights = load_weights([path])
        self.refs = [DeviceRef.from_device(d) for d in self.devices]
        draws = sampling is not None
        if len(self.refs) == 1:
            module = build(weights, self.config, self.refs[0], draws=draws)
            registry = _on(self.device, weights.allocated_weights, progress)
        else:
            module = parallel.build(weights, self.config, self.refs, draws=draws)
            registry = weights.allocated_weights  # each device takes its part from the file
        self.models: dict[str, Model] = InferenceSession(self.devices).load_all(
            module, weights_registry=registry
        )
        self._caches = [t.shape for t in cache_types(self.config, self.refs[0])]

    def caches(self, batch: int, context: int) -> list[Buffer]:
        """Empty caches for ``batch`` texts of up to ``context`` tokens, of device after device."""
        sizes = {"batch": batch, "context": context}
        return [
            Buffer.from_numpy(np.zeros(shape.evaluate(sizes), np.float32)).to(device)
            for device in self.devices
            for shape in self._caches * self.config.layers
        ]

    @property
    def signals(self) -> list[Buffer]:
        """What several devices have for their collectives."""
        if len(self.devices) == 1:
            return []
        return [Buffer.zeros([1], DType.uint8, d) for d in self.devices]

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
        caches, signals = self.caches(len(prompts), context), self.signals
        given = [*caches, *self._numbers(0), *signals]
        _, token = self.models["prefill"](padded, starts, *given)
        yield token.to_numpy()[:, 0].tolist()
        for place in range(longest, longest + count - 1):
            given = [*caches, *self._numbers(place), *signals]
            if signals:
                token = token.to(CPU())
            _, token = self.models["decode"](token, starts, np.int64(place), *given)
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
