# SPDX-License-Identifier: Apache-2.0
"""Measurements of maxjax against what it is built on and what it imitates.

Each module here without an underscore is one benchmark, with a `results()` that yields
`Result`s. Both sides of a comparison run in turns, so that a busy machine slows both, and
ratios are taken between neighbours. Timings never decide whether a test passes.

Set ``MAX_PYTHON`` to an interpreter that has the reference (``pip install max==26.7.0``, in a
virtual environment of its own) to measure it too.
"""
