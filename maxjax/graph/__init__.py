# SPDX-License-Identifier: Apache-2.0
"""The graph language: dimensions, types, values, ops and graphs."""

from maxjax.graph import dtype_promotion, ops
from maxjax.graph.block import GraphBlock
from maxjax.graph.debug import GraphDebugConfig, ProfileScopeColor
from maxjax.graph.device import DeviceKind, DeviceRef
from maxjax.graph.dim import AlgebraicDim, Dim, DimLike, StaticDim, SymbolicDim
from maxjax.graph.graph import DevicePlacementPolicy, Graph
from maxjax.graph.kernels import (
    KernelLibrary,
    default_custom_extensions,
    default_custom_extensions_scope,
)
from maxjax.graph.module import Module
from maxjax.graph.shape import Shape, ShapeLike
from maxjax.graph.type import BufferType, TensorType, Type
from maxjax.graph.value import (
    BufferValue,
    BufferValueLike,
    TensorValue,
    TensorValueLike,
    Value,
)
from maxjax.graph.weight import ShardingStrategy, Weight

__all__ = [
    "AlgebraicDim",
    "BufferType",
    "BufferValue",
    "BufferValueLike",
    "DeviceKind",
    "DevicePlacementPolicy",
    "DeviceRef",
    "Dim",
    "DimLike",
    "Graph",
    "GraphBlock",
    "GraphDebugConfig",
    "KernelLibrary",
    "Module",
    "ProfileScopeColor",
    "Shape",
    "ShapeLike",
    "ShardingStrategy",
    "StaticDim",
    "SymbolicDim",
    "TensorType",
    "TensorValue",
    "TensorValueLike",
    "Type",
    "Value",
    "Weight",
    "default_custom_extensions",
    "default_custom_extensions_scope",
    "dtype_promotion",
    "ops",
]
