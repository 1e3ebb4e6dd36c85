# SPDX-License-Identifier: Apache-2.0
"""How packed bytes encode numbers: block formats of quantized weights."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "BlockParameters",
    "Encoding",
    "GGUFEncoding",
    "QuantizationConfig",
    "QuantizationEncoding",
]


@dataclass(frozen=True)
class BlockParameters:
    """The size of one block of a quantized tensor.

    Attributes:
        elements_per_block: How many numbers a block holds.
        block_size: How many bytes a block takes.

    Example:
        >>> from maxjax.graph.quantization import BlockParameters
        >>> block = BlockParameters(elements_per_block=32, block_size=18)
        >>> 8 * block.block_size / block.elements_per_block  # bits per number
        4.5
    """

    elements_per_block: int
    block_size: int


@dataclass(frozen=True)
class QuantizationConfig:
    """What a checkpoint says about how its weights were quantized.

    Attributes:
        quant_method: The method's name, such as ``"gptq"``.
        bits: Bits per number.
        group_size: How many numbers share one scale.
        desc_act: Whether columns were quantized in order of falling activation size.
        sym: Whether the range is symmetric, so that there is no zero point.
    """

    quant_method: str
    bits: int
    group_size: int
    desc_act: bool = False
    sym: bool = False


class _Encoding(enum.Enum):
    """What encodings have in common; a member's value is its name in GGUF files."""

    @property
    def name(self) -> str:
        """The lower-case name, ``"q4_0"``."""
        return self._name_.lower()

    @property
    def block_parameters(self) -> BlockParameters:
        """The size of a block.

        Raises:
            KeyError: For `QuantizationEncoding.GPTQ`, whose blocks vary with the checkpoint's
                group size.
        """
        if self.value not in _BLOCKS:
            blocks = ", ".join(e.value for e in type(self) if e.value in _BLOCKS)
            raise KeyError(
                f"{self.value} has no fixed block size: it depends on the checkpoint's "
                f"QuantizationConfig.group_size; these have one: {blocks}"
            )
        return _BLOCKS[self.value]

    @property
    def elements_per_block(self) -> int:
        """How many numbers a block holds.

        Raises:
            KeyError: For `QuantizationEncoding.GPTQ`.
        """
        return self.block_parameters.elements_per_block

    @property
    def block_size(self) -> int:
        """How many bytes a block takes.

        Raises:
            KeyError: For `QuantizationEncoding.GPTQ`.
        """
        return self.block_parameters.block_size

    @property
    def is_gguf(self) -> bool:
        """Whether GGUF files use this encoding."""
        return self.value in _BLOCKS

    @classmethod
    def _missing_(cls, value: object) -> _Encoding:
        known = ", ".join(encoding.value for encoding in cls)
        raise ValueError(f"{value!r} is no quantization encoding; there are {known}")


class QuantizationEncoding(_Encoding):
    """A way to pack numbers into bytes.

    The block formats are those of the GGUF file format
    (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

    Example:
        >>> from maxjax.graph.quantization import QuantizationEncoding
        >>> QuantizationEncoding("Q6_K").block_parameters
        BlockParameters(elements_per_block=256, block_size=210)
    """

    Q4_0 = "Q4_0"
    Q4_K = "Q4_K"
    Q5_K = "Q5_K"
    Q6_K = "Q6_K"
    GPTQ = "GPTQ"


class GGUFEncoding(_Encoding):
    """Block formats of GGUF files that `QuantizationEncoding`, which is MAX's, has no member for.

    They go wherever an encoding goes.

    Example:
        >>> from maxjax.graph.quantization import GGUFEncoding
        >>> GGUFEncoding.Q8_0.block_parameters
        BlockParameters(elements_per_block=32, block_size=34)
    """

    Q5_0 = "Q5_0"
    Q8_0 = "Q8_0"


Encoding: TypeAlias = QuantizationEncoding | GGUFEncoding
"""What a function that is given an encoding takes."""

# A block is its scales and offsets and the packed numbers; sizes in bytes.
_BLOCKS = {
    "Q4_0": BlockParameters(32, 2 + 32 // 2),
    "Q4_K": BlockParameters(256, 2 + 2 + 12 + 256 // 2),
    "Q5_0": BlockParameters(32, 2 + 32 // 8 + 32 // 2),
    "Q5_K": BlockParameters(256, 2 + 2 + 12 + 256 // 8 + 256 // 2),
    "Q6_K": BlockParameters(256, 2 + 256 // 16 + 256 // 4 + 256 // 2),
    "Q8_0": BlockParameters(32, 2 + 32),
}
