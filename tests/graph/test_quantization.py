# SPDX-License-Identifier: Apache-2.0
"""Block sizes are those of the GGUF library; errors say which encodings there are."""

import dataclasses

import gguf
import pytest

from maxjax.graph.quantization import (
    BlockParameters,
    GGUFEncoding,
    QuantizationConfig,
    QuantizationEncoding,
)


@pytest.mark.parametrize(
    "encoding", [e for e in (*QuantizationEncoding, *GGUFEncoding) if e.is_gguf]
)
def test_blocks_are_those_of_gguf(encoding):
    numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[encoding.value]]
    assert encoding.block_parameters == BlockParameters(numbers, size)
    assert (encoding.elements_per_block, encoding.block_size) == (numbers, size)


def test_gptq_has_no_fixed_block():
    assert not QuantizationEncoding.GPTQ.is_gguf
    with pytest.raises(KeyError, match=r"GPTQ has no fixed block size.*Q4_0, Q4_K, Q5_K, Q6_K"):
        _ = QuantizationEncoding.GPTQ.block_parameters


def test_name_is_lower_case_and_value_is_not():
    assert QuantizationEncoding.Q4_K.name == "q4_k"
    assert QuantizationEncoding("Q4_K") is QuantizationEncoding["Q4_K"]


def test_unknown_encoding():
    with pytest.raises(ValueError, match=r"'Q8_0' is no quantization encoding; .*Q4_0.*GPTQ"):
        QuantizationEncoding("Q8_0")
    assert GGUFEncoding("Q8_0") is GGUFEncoding.Q8_0


def test_records_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        BlockParameters(32, 18).block_size = 20  # pyright: ignore[reportAttributeAccessIssue]
    config = QuantizationConfig("gptq", 4, 128)
    assert (config.desc_act, config.sym) == (False, False)
    assert config == dataclasses.replace(config)
    assert hash(config) == hash(QuantizationConfig("gptq", 4, 128))
