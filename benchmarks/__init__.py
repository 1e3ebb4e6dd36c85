# SPDX-License-Identifier: Apache-2.0
"""Measurements of maxjax: one module each, with a `main()` that prints a few lines.

Timings never decide whether a test passes; they are looked at here.
"""
