# SPDX-License-Identifier: Apache-2.0
"""The parts that machine-learning compilers are made of."""

from maxjax.support.ml._yaml import SpecYAMLError, yaml_loader
from maxjax.support.ml.dispatch import DTypeSwitch, code_table, dispatch
from maxjax.support.ml.dtype import DType, extended
from maxjax.support.ml.layout import SHAPE_DTYPE, RepKind
from maxjax.support.ml.named import NamedSpec
from maxjax.support.ml.shape import (
    TensorRankStyle,
    TensorShape,
    kDynamicDimensionValue,
    kDynamicRankValue,
    kMaxRank,
)
from maxjax.support.ml.spec import SpecTable, TensorSpec
from maxjax.support.ml.table import ShapeTable

__all__ = [
    "SHAPE_DTYPE",
    "DType",
    "DTypeSwitch",
    "NamedSpec",
    "RepKind",
    "ShapeTable",
    "SpecTable",
    "SpecYAMLError",
    "TensorRankStyle",
    "TensorShape",
    "TensorSpec",
    "code_table",
    "dispatch",
    "extended",
    "kDynamicDimensionValue",
    "kDynamicRankValue",
    "kMaxRank",
    "yaml_loader",
]
