# SPDX-License-Identifier: Apache-2.0
"""Eager tensors, functions over them, and how both are compiled."""

# `functional` comes first: the operators of tensors are its functions.
from maxjax.experimental import functional as functional
from maxjax.experimental import random as random
from maxjax.experimental.tensor import Tensor

__all__ = ["Tensor", "functional", "random"]
