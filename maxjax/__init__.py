# SPDX-License-Identifier: Apache-2.0
"""The MAX Python graph API on JAX."""

__version__ = "0.1.0"

__all__ = ["__version__"]
