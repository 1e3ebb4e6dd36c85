# SPDX-License-Identifier: Apache-2.0
"""The MAX Python graph API on JAX."""

from maxjax.kernels import kernel

__version__ = "0.1.0"

__all__ = ["__version__", "kernel"]
