# SPDX-License-Identifier: Apache-2.0
"""Which file format a checkpoint has, by the names of its files."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path

__all__ = ["WeightsFormat", "weights_format"]


class WeightsFormat(enum.StrEnum):
    """The formats of weight files; a member's value is the file name's suffix without the dot."""

    gguf = "gguf"
    safetensors = "safetensors"


def weights_format(weight_paths: Sequence[Path]) -> WeightsFormat:
    """The one format of all these files, told by their suffixes alone.

    Args:
        weight_paths: The paths of the files, which need not exist.

    Raises:
        ValueError: If there are none, they differ in format, or a suffix is unknown.

    Example:
        >>> from pathlib import Path
        >>> from maxjax.graph.weights import weights_format
        >>> weights_format([Path("model.safetensors")]).value
        'safetensors'
    """
    known = " or ".join(f".{member.value}" for member in WeightsFormat)
    if not weight_paths:
        raise ValueError(f"no weight files given; give the path of a {known} file")
    found: dict[WeightsFormat, Path] = {}
    for path in map(Path, weight_paths):
        try:
            found.setdefault(WeightsFormat(path.suffix[1:]), path)
        except ValueError:
            raise ValueError(
                f"{path} is no weight file known here: its name must end in {known}"
            ) from None
    if len(found) > 1:
        first, second = list(found.values())[:2]
        raise ValueError(
            f"weight files of different formats: {first} and {second}; load each with a call "
            "of its own"
        )
    return next(iter(found))
