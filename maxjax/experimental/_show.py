# SPDX-License-Identifier: Apache-2.0
"""Tensors as text: values if they are there, else what is known."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["show"]

# Arrays with more elements than this are shown with their ends only.
_MOST = 1000


def show(tensor: Any) -> str:
    """One tensor, on one line for short ones; nothing is computed for it."""
    shape = f"shape=[{', '.join(map(str, tensor.shape))}], dtype=DType.{tensor.dtype.name}"
    if tensor.is_distributed:
        return f"Tensor({shape}, mapping={tensor.mapping!r})"
    if not tensor.real:
        return f"Tensor(unrealized, {shape}, device={tensor.device})"
    dims = ", ".join(map(str, tensor.shape))
    values = _values(tensor.buffers[0].to_numpy())
    return (
        f"Tensor({values}, dtype=DType.{tensor.dtype.name}, device={tensor.device}, shape=[{dims}])"
    )


def _values(array: np.ndarray) -> str:
    """The elements, each as wide as the widest that is shown."""
    if array.dtype.kind not in "biuf":  # NumPy does not print the types of ml_dtypes as it should
        array = array.astype(np.float32)
    if not array.ndim:
        return _element(array[()])
    widest = 0

    def measured(value: Any) -> str:
        nonlocal widest
        text = _element(value)
        widest = max(widest, len(text))
        return text

    np.array2string(array, threshold=_MOST, formatter={"all": measured})
    return np.array2string(
        array,
        threshold=_MOST,
        prefix="Tensor(",
        formatter={"all": lambda v: _element(v).rjust(widest)},
    )


def _element(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
