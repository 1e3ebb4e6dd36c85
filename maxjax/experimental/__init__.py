# SPDX-License-Identifier: Apache-2.0
"""Tensors that compute at once, later or in compiled functions, on one device or on a mesh."""
