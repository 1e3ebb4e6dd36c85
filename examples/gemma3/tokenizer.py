# SPDX-License-Identifier: Apache-2.0
"""Text to token ids and back, with the vocabulary that a GGUF file holds.

SentencePiece's BPE (Kudo and Richardson 2018, arXiv:1808.06226): a text is cut into characters,
and as long as two neighbours make a token of the vocabulary, the pair whose token scores highest
becomes one, the leftmost first. Spaces are written as ``▁``; characters that the vocabulary lacks
become their UTF-8 bytes, which have tokens of their own.
"""

from __future__ import annotations

import codecs
import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["Decoder", "Tokenizer"]

_NORMAL, _USER_DEFINED, _BYTE = 1, 4, 6
_SPACE = "▁"


class Tokenizer:
    """A vocabulary.

    Args:
        metadata: A GGUF file's metadata.

    Attributes:
        bos: The id that begins every text.
        stops: The ids that end a text.

    Raises:
        ValueError: If the metadata holds no vocabulary of this kind.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        kind = metadata.get("tokenizer.ggml.model")
        if kind != "llama":
            raise ValueError(f"the file's tokenizer is of kind {kind!r}; read here is 'llama'")
        tokens: list[str] = metadata["tokenizer.ggml.tokens"]
        kinds: list[int] = metadata["tokenizer.ggml.token_type"].tolist()
        self._tokens = tokens
        self._kinds = kinds
        self._scores: list[float] = metadata["tokenizer.ggml.scores"].tolist()
        self.bos: int = metadata["tokenizer.ggml.bos_token_id"]
        self._adds_bos: bool = metadata.get("tokenizer.ggml.add_bos_token", True)
        names = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
        self.stops = frozenset(metadata[name] for name in names if name in metadata)
        self._normal = {t: i for i, t in enumerate(tokens) if kinds[i] == _NORMAL}
        self._bytes = {int(t[1:-1], 16): i for i, t in enumerate(tokens) if kinds[i] == _BYTE}
        # Whole in every text, whatever stands beside them: runs of newlines or spaces, tags.
        self._fixed = {t: i for i, t in enumerate(tokens) if kinds[i] == _USER_DEFINED}
        longest_first = sorted(self._fixed, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")

    def encode(self, text: str) -> list[int]:
        """The ids of a text, beginning with `bos`.

        Args:
            text: Any text. Names of control tokens in it are only text.
        """
        # What cannot be UTF-8 (half of a surrogate pair) becomes a question mark.
        text = text.encode("utf-8", "replace").decode()
        ids = [self.bos] if self._adds_bos else []
        for i, part in enumerate(self._split.split(text) if self._fixed else [text]):
            if i % 2:
                ids.append(self._fixed[part])
            elif part:
                ids += self._merged(part.replace(" ", _SPACE))
        return ids

    def _merged(self, text: str) -> Iterator[int]:
        """The ids of a text without fixed tokens."""
        # A linked list of parts; a part that went into its left neighbour is None.
        parts: list[str | None] = list(text)
        left, right = list(range(-1, len(text) - 1)), list(range(1, len(text) + 1))
        pairs: list[tuple[float, int, str]] = []

        def consider(i: int, j: int) -> None:
            if i >= 0 and j < len(parts):
                token = f"{parts[i]}{parts[j]}"
                if token in self._normal:
                    heapq.heappush(pairs, (-self._scores[self._normal[token]], i, token))

        for i in range(len(text) - 1):
            consider(i, i + 1)
        while pairs:
            _, i, token = heapq.heappop(pairs)
            j = right[i]
            # A pair may have changed since it was considered.
            if parts[i] is None or j >= len(parts) or f"{parts[i]}{parts[j]}" != token:
                continue
            parts[i], parts[j] = token, None
            right[i] = right[j]
            if right[j] < len(parts):
                left[right[j]] = i
            consider(left[i], i)
            consider(i, right[i])
        for part in parts:
            if part in self._normal:
                yield self._normal[part]
            elif part is not None:
                yield from (self._bytes[b] for b in part.replace(_SPACE, " ").encode())

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; control tokens have none."""
        decoder = Decoder(self)
        return "".join(decoder.feed(i) for i in ids) + decoder.end()

    def piece(self, token: int) -> bytes:
        """The UTF-8 of one id, which may be a part of a character."""
        text, kind = self._tokens[token], self._kinds[token]
        if kind == _BYTE:
            return bytes([int(text[1:-1], 16)])
        if kind == _NORMAL:
            text = text.replace(_SPACE, " ")
        elif kind != _USER_DEFINED:
            return b""
        return text.encode("utf-8", "surrogateescape")


class Decoder:
    """Text from ids that come one by one; a character comes out once it is whole.

    Args:
        tokenizer: The vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """The text that is known now that this id is."""
        return self._decoder.decode(self._tokenizer.piece(token))

    def end(self) -> str:
        """What was left over: a broken character, as the replacement character."""
        return self._decoder.decode(b"", final=True)
