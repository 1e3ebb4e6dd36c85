# SPDX-License-Identifier: Apache-2.0
"""The parts that machine-learning compilers are made of."""

from maxjax.support.ml.dispatch import DTypeSwitch, code_table, dispatch
from maxjax.support.ml.dtype import DType, extended

__all__ = ["DType", "DTypeSwitch", "code_table", "dispatch", "extended"]
