# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: files of named tensors, and how a graph's weights take their data from them."""

from maxjax.graph.weights.format import WeightsFormat, weights_format
from maxjax.graph.weights.gguf import GGUFWeights
from maxjax.graph.weights.load import load_weights
from maxjax.graph.weights.safetensors import SafetensorWeights
from maxjax.graph.weights.weights import WeightData, Weights, WeightsAdapter

__all__ = [
    "GGUFWeights",
    "SafetensorWeights",
    "WeightData",
    "Weights",
    "WeightsAdapter",
    "WeightsFormat",
    "load_weights",
    "weights_format",
]
