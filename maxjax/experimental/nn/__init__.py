# SPDX-License-Identifier: Apache-2.0
"""Modules: tensors with names, and functions over them, compiled with weights given by name.

>>> from maxjax.driver import CPU
>>> from maxjax.dtype import DType
>>> from maxjax.experimental import nn
>>> from maxjax.experimental.sharding import TensorLayout
>>> class Block(nn.Module):
...     def __init__(self, dim):
...         self.norm = nn.RMSNorm(dim)
...         self.mix = nn.Linear(dim, dim, bias=False)
...
...     def forward(self, x):
...         return x + self.mix(self.norm(x))
>>> class Model(nn.Module):
...     def __init__(self, dim, depth):
...         self.layers = nn.ModuleList([Block(dim) for _ in range(depth)])
...
...     def forward(self, x):
...         for layer in self.layers:
...             x = nn.as_subgraph(layer, name="block")(x)
...         return x
>>> staged = Model(4, 3).trace(TensorLayout(DType.float32, ["n", 4], CPU()))
>>> str(staged).count("mo.graph @block"), str(staged).count("mo.call @block")
(1, 3)
"""

from maxjax.experimental.compilation import as_subgraph
from maxjax.experimental.nn.containers import ModuleList, Sequential
from maxjax.experimental.nn.convolution import Conv2d
from maxjax.experimental.nn.hyper_connection import HyperConnection
from maxjax.experimental.nn.linear import Embedding, Linear
from maxjax.experimental.nn.lora import LoRA, lora_layers, lora_parameters
from maxjax.experimental.nn.module import (
    Module,
    PinnedDeviceTensor,
    TransparentModule,
    module_dataclass,
)
from maxjax.experimental.nn.norms import GemmaRMSNorm, GroupNorm, LayerNorm, RMSNorm
from maxjax.experimental.nn.rope import RotaryEmbedding, TransposedRotaryEmbedding

__all__ = [
    "Conv2d",
    "Embedding",
    "GemmaRMSNorm",
    "GroupNorm",
    "HyperConnection",
    "LayerNorm",
    "Linear",
    "LoRA",
    "Module",
    "ModuleList",
    "PinnedDeviceTensor",
    "RMSNorm",
    "RotaryEmbedding",
    "Sequential",
    "TransparentModule",
    "TransposedRotaryEmbedding",
    "as_subgraph",
    "lora_layers",
    "lora_parameters",
    "module_dataclass",
]
