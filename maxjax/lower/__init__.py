# SPDX-License-Identifier: Apache-2.0
"""Lowering: from a graph to one JAX function."""

from maxjax.lower.function import LoweredFunction, Manner, to_jax
from maxjax.lower.signature import Function, Signature

__all__ = ["Function", "LoweredFunction", "Manner", "Signature", "to_jax"]
