# SPDX-License-Identifier: Apache-2.0
"""The parts that machine-learning compilers are made of."""

from maxjax.support.ml._yaml import SpecYAMLError, yaml_loader
from maxjax.support.ml.debug import debug_print, debug_string
from maxjax.support.ml.dispatch import DTypeSwitch, code_table, dispatch
from maxjax.support.ml.dtype import DType, extended
from maxjax.support.ml.fill import (
    fill_homogeneous,
    fill_random,
    get_scalar_negative_one,
    get_scalar_one,
)
from maxjax.support.ml.label import CompiledFrameworkLabel, Framework
from maxjax.support.ml.layout import SHAPE_DTYPE, RepKind
from maxjax.support.ml.named import NamedSpec
from maxjax.support.ml.ranges import range_num_elements
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
    "CompiledFrameworkLabel",
    "DType",
    "DTypeSwitch",
    "Framework",
    "NamedSpec",
    "RepKind",
    "ShapeTable",
    "SpecTable",
    "SpecYAMLError",
    "TensorRankStyle",
    "TensorShape",
    "TensorSpec",
    "code_table",
    "debug_print",
    "debug_string",
    "dispatch",
    "extended",
    "fill_homogeneous",
    "fill_random",
    "get_scalar_negative_one",
    "get_scalar_one",
    "kDynamicDimensionValue",
    "kDynamicRankValue",
    "kMaxRank",
    "range_num_elements",
    "yaml_loader",
]
