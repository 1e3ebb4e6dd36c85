# SPDX-License-Identifier: Apache-2.0
"""Windows, and the transform from spectra back to signals."""

from __future__ import annotations

import enum

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import StaticDim
from maxjax.graph.op import Op, refused
from maxjax.graph.ops._operands import axis_of, int_of, tensor, with_dim
from maxjax.graph.ops.constant import literal
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import StrongTensorValueLike, TensorValue

__all__ = ["Normalization", "hann_window", "irfft"]


class Normalization(enum.Enum):
    """By what a transform of n points is divided: n, the square root of n, or 1."""

    BACKWARD = "backward"
    ORTHO = "ortho"
    FORWARD = "forward"


class Irfft(Op):
    """The real signal of ``n`` points with a spectrum given by its first half."""

    n: int
    axis: int
    normalization: Normalization
    is_complex: bool

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype is not DType.float32:
            raise ValueError(f"a spectrum is float32, not {x.dtype.name}; cast it")
        shape = Shape(x.shape[:-1]) if self.is_complex else x.shape
        return TensorType._of(x.dtype, with_dim(shape, self.axis, StaticDim(self.n)), x.device)

    def lower(self, x: jax.Array) -> jax.Array:
        if self.is_complex:
            real, imaginary = [lax.index_in_dim(x, i, -1, keepdims=False) for i in (0, 1)]
        else:
            real, imaginary = x, jnp.zeros_like(x)
        spectrum = lax.complex(real, imaginary)
        return jnp.fft.irfft(spectrum, self.n, self.axis, self.normalization.value)


def irfft(
    input_tensor: StrongTensorValueLike,
    n: int | None = None,
    axis: int = -1,
    normalization: Normalization | str = Normalization.BACKWARD,
    input_is_complex: bool = False,
    buffer_size_mb: int = 512,
) -> TensorValue:
    """The real signal whose spectrum is given, as ``numpy.fft.irfft`` computes it.

    Args:
        input_tensor: The spectrum, ``float32``: its first M frequencies along ``axis``. With
            ``input_is_complex`` a last dimension of 2 holds real and imaginary parts, else all
            imaginary parts are 0.
        n: The number of points of the signal, at least 1, by default ``2 * (M - 1)``. Of the
            spectrum the first ``n // 2 + 1`` frequencies are used, and 0 for what is missing.
        axis: The axis of the frequencies; negative counts from the end. The last dimension of
            complex numbers is no axis.
        normalization: By what the sum over the frequencies is divided: n (``"backward"``), the
            square root of n (``"ortho"``), or 1 (``"forward"``).
        input_is_complex: Whether the last dimension holds real and imaginary parts.
        buffer_size_mb: Accepted, and not needed: XLA sizes its own buffers.

    Returns:
        A ``float32`` tensor with size ``n`` along ``axis``, without the last dimension of complex
        numbers.

    Raises:
        TypeError: If ``input_tensor`` is not a graph value, or ``n`` or ``axis`` not an int.
        ValueError: If the spectrum is not ``float32``, its number of frequencies not a number, or
            the last dimension not 2 for complex numbers; if there is no such axis, ``n`` is less
            than 1, or the normalization unknown.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> spectrum = TensorType(DType.float32, ["batch", 257, 2], DeviceRef.CPU())
    >>> with Graph("g", input_types=[spectrum]) as g:
    ...     ops.irfft(g.inputs[0].tensor, input_is_complex=True)
    TensorValue(float32, [batch, 512], cpu:0)
    """
    who = "irfft"
    x = tensor(who, input_tensor)
    type_ = x._type
    shape = type_.shape
    if input_is_complex:
        if not shape or shape[-1] != 2:
            raise refused(who, ValueError, "the last dimension of complex numbers is not 2", type_)
        shape = shape[:-1]
    at = axis_of(who, axis, len(shape), ValueError)
    frequencies = shape[at]
    if not isinstance(frequencies, StaticDim):
        raise refused(
            who, ValueError, f"dimension {at} is {frequencies}; rebind it to a number first", type_
        )
    points = 2 * (frequencies.dim - 1) if n is None else int_of(who, "n", n, type_)
    if points < 1:
        raise refused(who, ValueError, f"a signal of {points} points; give n, at least 1", type_)
    try:
        norm = Normalization(normalization)
    except ValueError:
        known = ", ".join(repr(m.value) for m in Normalization)
        raise refused(
            who, ValueError, f"normalization is one of {known}, not {normalization!r}", type_
        ) from None
    return Irfft(points, at, norm, bool(input_is_complex))(x)


def hann_window(
    window_length: int,
    device: Device | DeviceRef,
    periodic: bool = True,
    dtype: DType = DType.float32,
) -> TensorValue:
    """The Hann window, ``0.5 - 0.5 * cos(2 * pi * k / N)`` for k = 0, 1, ...

    Args:
        window_length: The number of points, from 0. One point is 1.
        device: Where the result lives.
        periodic: Whether N is the number of points, as spectra want it, and not one less, which
            makes the window symmetric.
        dtype: A float dtype.

    Returns:
        A constant of shape ``(window_length,)``.

    Raises:
        LookupError: If no graph is being built.
        TypeError: If ``window_length`` is not an int.
        ValueError: If it is negative, or ``dtype`` not a float.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, ops
    >>> with Graph("g") as g:
    ...     ops.hann_window(400, DeviceRef.CPU())
    TensorValue(float32, [400], cpu:0)
    """
    who = "hann_window"
    count = int_of(who, "window_length", window_length)
    if count < 0:
        raise refused(who, ValueError, f"window_length is negative: {count}")
    if not isinstance(dtype, DType) or not dtype.is_float():
        raise refused(who, ValueError, f"dtype is a float DType, not {dtype!r}")
    if count == 1:
        window = np.ones(1)
    else:
        period = count if periodic else count - 1
        window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(count) / period)
    return literal(window, dtype, DeviceRef.from_device(device))
