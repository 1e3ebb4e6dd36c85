# SPDX-License-Identifier: Apache-2.0
"""Libraries that a compiler is made with, none of which knows what a graph is."""

__all__: list[str] = []
