# SPDX-License-Identifier: Apache-2.0
"""The byte that stands for an element type: its bits, its widths, its names.

==========  ====================================================================
bit 7       integer class; without it float or other
bit 6       float, within the others
bit 5       complex: two of the element that the other bits say
bits 4 - 1  the width of an integer, as a power of two: 3 is 8 bits
bit 0       signed, for integers
==========  ====================================================================

Floats are numbered within their class, since their formats follow no rule. Their codes are the
values of `maxjax.dtype.DType`, which are read from there: the two can not come apart.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from maxjax import dtype as _dtype

__all__ = [
    "BOOL",
    "FIRST_EXTENDED",
    "FLOATS",
    "INT_WIDTH_SHIFT",
    "IS_COMPLEX",
    "IS_FLOAT",
    "IS_INTEGER",
    "IS_SIGNED",
    "LAST_EXTENDED",
    "MAX_INT_WIDTH_LOG2",
    "NAMES",
    "NUMPY",
    "WIDTHS",
]

IS_INTEGER = 0x80
IS_FLOAT = 0x40
IS_COMPLEX = 0x20
IS_SIGNED = 0x01
INT_WIDTH_SHIFT = 1
MAX_INT_WIDTH_LOG2 = 8
BOOL = 1
FIRST_EXTENDED = 2
LAST_EXTENDED = 31

# maxjax.dtype has no f8e3m4; among its values this one is left out.
FLOATS = {
    **{d.short: (d.value, d.size_in_bits) for d in _dtype.DType if d.is_float()},
    "f8e3m4": (74, 8),
}
"""The code and the width in bits of each float, by name."""


def _integers() -> dict[str, tuple[int, int]]:
    """The code and the width of each integer, by name."""
    return {
        f"{sign}i{1 << log2}": (
            IS_INTEGER | log2 << INT_WIDTH_SHIFT | (IS_SIGNED if sign == "s" else 0),
            1 << log2,
        )
        for log2 in range(MAX_INT_WIDTH_LOG2 + 1)
        for sign in "su"
    }


def _with_complex(reals: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """These, and the complex types of those that fill at least a byte."""
    return reals | {
        f"complex_{name}": (code | IS_COMPLEX, 2 * width)
        for name, (code, width) in reals.items()
        if width >= 8
    }


# A bool's one bit of data comes with seven that are zero, so that its storage is 8 bits wide.
_ALL = _with_complex({"bool": (BOOL, 8)} | _integers() | FLOATS)
NAMES: dict[int, str] = {code: name for name, (code, _) in _ALL.items()}
"""The name of each code that is a type of this library."""
WIDTHS: dict[int, int] = dict(_ALL.values())
"""The width in bits of each of them."""


def _numpy() -> dict[int, np.dtype]:
    """The NumPy or ml_dtypes dtype of each code that has one."""
    code = {name: code for name, (code, _) in _ALL.items()}
    found = {d.value: d.np for d in _dtype.DType}
    found[code["f8e3m4"]] = np.dtype(ml_dtypes.float8_e3m4)
    for width in (2, 4):
        found[code[f"si{width}"]] = np.dtype(getattr(ml_dtypes, f"int{width}"))
        found[code[f"ui{width}"]] = np.dtype(getattr(ml_dtypes, f"uint{width}"))
    found[code["complex_f32"]] = np.dtype(np.complex64)
    found[code["complex_f64"]] = np.dtype(np.complex128)
    # Newer releases of ml_dtypes have these.
    for name, its in (
        ("si1", "int1"),
        ("ui1", "uint1"),
        ("complex_f16", "complex32"),
        ("complex_bf16", "bcomplex32"),
    ):
        if hasattr(ml_dtypes, its):
            found[code[name]] = np.dtype(getattr(ml_dtypes, its))
    return found


NUMPY: dict[int, np.dtype] = _numpy()
"""The dtype with which NumPy computes on each code, where there is one.

NumPy gives every element below a byte a byte of its own; packed sizes are `DType`'s matter.
"""
