# SPDX-License-Identifier: Apache-2.0
"""Meshes of devices, how tensors are spread over them, and what ops make of that.

A tensor over a :class:`DeviceMesh` has a placement for each axis of the mesh: every device has a
copy (:class:`Replicated`), a part (:class:`Sharded`) or a term of a sum (:class:`Partial`). Ops
take their operands as they are placed where their placement rules allow; inside of
:func:`auto_reshard` they may move them.

>>> from maxjax.driver import CPU
>>> from maxjax.dtype import DType
>>> mesh = DeviceMesh((CPU(),) * 2, (2,), ("tp",))
>>> visualize(TensorLayout(DType.float32, ["n", 8], NamedMapping(mesh, (None, "tp"))))
DType.float32 [n, 8] with NamedMapping(DeviceMesh(tp=2), (None, 'tp'))
┌──────────┬──────────┐   tensor[:, :]
│ device 0 │ device 1 │   ├── tp=0  device 0 - tensor[:, :4]
│ [:, :4]  │ [:, 4:]  │   └── tp=1  device 1 - tensor[:, 4:]
└──────────┴──────────┘
"""

from maxjax.experimental.sharding._auto_reshard import (
    ALL_TRANSITIONS,
    DEFAULT_TRANSITIONS,
    Transition,
    auto_reshard,
)
from maxjax.experimental.sharding.action import (
    AxisAssignment,
    match_operand_placement,
    replicated_rows,
)
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
from maxjax.experimental.sharding.visualize import visualize

__all__ = [
    "ALL_TRANSITIONS",
    "DEFAULT_TRANSITIONS",
    "AxisAssignment",
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
    "Transition",
    "Unknown",
    "as_device_mapping",
    "as_layout",
    "auto_reshard",
    "match_operand_placement",
    "replicated_rows",
    "visualize",
]
