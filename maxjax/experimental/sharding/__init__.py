# SPDX-License-Identifier: Apache-2.0
"""Meshes of devices, and how tensors are spread over them."""

from maxjax.experimental.sharding.mappings import (
    ConversionError,
    DeviceMapping,
    NamedMapping,
    as_device_mapping,
)
from maxjax.experimental.sharding.mesh import DeviceMesh
from maxjax.experimental.sharding.placements import (
    Partial,
    Placement,
    Replicated,
    Sharded,
    ShardingError,
    Unknown,
)
from maxjax.experimental.sharding.types import BufferLayout, TensorLayout, as_layout

__all__ = [
    "BufferLayout",
    "ConversionError",
    "DeviceMapping",
    "DeviceMesh",
    "NamedMapping",
    "Partial",
    "Placement",
    "Replicated",
    "Sharded",
    "ShardingError",
    "TensorLayout",
    "Unknown",
    "as_device_mapping",
    "as_layout",
]
