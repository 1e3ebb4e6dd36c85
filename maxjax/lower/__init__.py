# SPDX-License-Identifier: Apache-2.0
"""Lowering: from a graph to one JAX function."""

from maxjax.lower.function import LoweredFunction, to_jax

__all__ = ["LoweredFunction", "to_jax"]
