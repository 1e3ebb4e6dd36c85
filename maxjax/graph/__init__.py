# SPDX-License-Identifier: Apache-2.0
"""The graph language: dimensions, types, values, ops and graphs."""

from maxjax.graph import dtype_promotion, ops
from maxjax.graph.block import GraphBlock
from maxjax.graph.debug import GraphDebugConfig, ProfileScopeColor
from maxjax.graph.device import DeviceKind, DeviceRef
from maxjax.graph.dim import AlgebraicDim, Dim, DimLike, StaticDim, SymbolicDim
from maxjax.graph.graph import DevicePlacementPolicy, Graph
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
from maxjax.graph.weight import Weight

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
    "Module",
    "ProfileScopeColor",
    "Shape",
    "ShapeLike",
    "StaticDim",
    "SymbolicDim",
    "TensorType",
    "TensorValue",
    "TensorValueLike",
    "Type",
    "Value",
    "Weight",
    "dtype_promotion",
    "ops",
]
