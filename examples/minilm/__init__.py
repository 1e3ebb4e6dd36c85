# SPDX-License-Identifier: Apache-2.0
"""A sentence encoder (all-MiniLM-L6-v2): the same network as a MAX program and in plain JAX."""
