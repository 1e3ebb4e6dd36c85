# SPDX-License-Identifier: Apache-2.0
"""Making tensors of one number, or of evenly spaced ones."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.experimental._defaults import default_device, defaults_like
from maxjax.experimental.sharding.per_shard_dim import global_shape
from maxjax.graph.dim import StaticDim

__all__ = ["TensorFactories"]


class TensorFactories:
    """Class methods that make tensors, in terms of the functions of ``_ops``."""

    __slots__ = ()

    _ops: ClassVar[Any]

    @classmethod
    def constant(
        cls, value: Any, *, dtype: DType | None = None, device: Device | None = None
    ) -> Any:
        """Deprecated: the same as ``Tensor(value)``."""
        warnings.warn(
            "Tensor.constant(x) is deprecated: write Tensor(x)", DeprecationWarning, stacklevel=2
        )
        made: Any = cls
        return made(value, dtype=dtype, device=device)

    @classmethod
    def full(cls, shape: Any, value: Any, *, dtype: DType | None = None, device: Any = None) -> Any:
        """A number in every place.

        >>> from maxjax.experimental.tensor import Tensor
        >>> Tensor.full([2], 7).to_numpy()
        array([7., 7.], dtype=float32)
        """
        return cls._ops.full(shape, value, dtype=dtype, device=device)

    @classmethod
    def full_like(cls, input: Any, value: Any) -> Any:
        """A number in every place of a tensor like another."""
        return cls.full(input.shape, value, dtype=input.dtype, device=input._where())

    @classmethod
    def zeros(cls, shape: Any, *, dtype: DType | None = None, device: Any = None) -> Any:
        """Zeros."""
        return cls.full(shape, 0, dtype=dtype, device=device)

    @classmethod
    def zeros_like(cls, input: Any) -> Any:
        """Zeros in a tensor like another."""
        return cls.full_like(input, 0)

    @classmethod
    def ones(cls, shape: Any, *, dtype: DType | None = None, device: Any = None) -> Any:
        """Ones."""
        return cls.full(shape, 1, dtype=dtype, device=device)

    @classmethod
    def ones_like(cls, input: Any) -> Any:
        """Ones in a tensor like another."""
        return cls.full_like(input, 1)

    @classmethod
    def arange(
        cls,
        start: Any = 0,
        stop: Any = None,
        step: Any = 1,
        out_dim: Any = None,
        *,
        dtype: DType | None = None,
        device: Any = None,
    ) -> Any:
        """``start``, ``start + step``, ..., before ``stop``; from 0 where only a stop is given.

        >>> from maxjax.experimental.tensor import Tensor
        >>> Tensor.arange(5, 11, 2).to_numpy()
        array([5., 7., 9.], dtype=float32)
        """
        if stop is None:
            start, stop = 0, start
        return cls._ops.range(start, stop, step, out_dim, dtype=dtype, device=device)

    @classmethod
    def range_like(cls, input: Any) -> Any:
        """0, 1, ... along the last axis, the same in all others, in a tensor like another."""
        shape = global_shape(input.shape)
        last = shape[-1]
        with defaults_like(input), default_device(input.mesh.devices[0]):
            row = cls.arange(
                0, last if not isinstance(last, StaticDim) else int(last), out_dim=last
            )
        whole = row.broadcast_to(shape)
        return whole.to(input.mapping) if input.is_distributed else whole
