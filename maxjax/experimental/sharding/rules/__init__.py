# SPDX-License-Identifier: Apache-2.0
"""Placement rules: for each op, which placements of its operands give which of its results.

A rule takes what its op takes, with a layout for each tensor, and gives rows, each of which is
one way to run the op along an axis of a mesh.

>>> from maxjax.driver import CPU
>>> from maxjax.dtype import DType
>>> from maxjax.experimental.sharding import TensorLayout
>>> rule = rule_for("sum")
>>> rule(TensorLayout(DType.float32, [4], CPU()))[1]
AxisAssignment(needed_inputs=(Sharded(axis=0),), outputs=(Partial(),))
"""

from maxjax.experimental.sharding.rules import (
    contraction,
    elementwise,
    indexing,
    misc,
    reduction,
    reshape,
    shape,
)
from maxjax.experimental.sharding.rules._registry import localizer_for, names, rule_for

__all__ = [
    "contraction",
    "elementwise",
    "indexing",
    "localizer_for",
    "misc",
    "names",
    "reduction",
    "reshape",
    "rule_for",
    "shape",
]
