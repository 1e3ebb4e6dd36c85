# SPDX-License-Identifier: Apache-2.0
"""The element type and device of tensors that are made without either."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from maxjax.driver import CPU, Accelerator, Device, accelerator_count
from maxjax.dtype import DType
from maxjax.experimental.sharding import DeviceMesh
from maxjax.experimental.sharding._default import DEFAULT_MESH
from maxjax.experimental.support import contextvar_context
from maxjax.graph.device import DeviceRef

__all__ = ["as_mesh", "default_device", "default_dtype", "defaults", "defaults_like"]

_DTYPE: ContextVar[DType | None] = ContextVar("_DTYPE", default=None)


def as_mesh(device: Any) -> DeviceMesh:
    """A device, or a mesh of devices, as a mesh.

    Raises:
        TypeError: If it is neither.
    """
    if isinstance(device, DeviceMesh):
        return device
    if isinstance(device, DeviceRef):
        device = device.to_device()
    if not isinstance(device, Device):
        raise TypeError(
            f"expected a Device or a DeviceMesh, got {type(device).__name__} {device!r:.60}"
        )
    return DeviceMesh.single(device)


def defaults(
    dtype: DType | None = None, device: Device | DeviceMesh | None = None
) -> tuple[DType, DeviceMesh]:
    """The element type and the mesh of a tensor that is made now.

    Args:
        dtype: What to take instead of the default, ``float32`` on a CPU and ``bfloat16`` on an
            accelerator.
        device: What to take instead of the default, the first accelerator or, without one, the
            CPU.

    >>> from maxjax.dtype import DType
    >>> defaults(DType.int8)
    (int8, DeviceMesh(_=1))
    """
    mesh = DEFAULT_MESH.get() if device is None else as_mesh(device)
    if mesh is None:
        mesh = DeviceMesh.single(Accelerator() if accelerator_count() else CPU())
    if dtype is None:
        dtype = _DTYPE.get()
    if dtype is None:
        dtype = DType.float32 if mesh.devices[0].is_host else DType.bfloat16
    return dtype, mesh


def default_device(
    device: Device | DeviceMesh | DeviceRef,
) -> contextlib.AbstractContextManager[DeviceMesh]:
    """Sets where tensors are made, while the block lasts; gives the mesh.

    Raises:
        TypeError: If it is neither a device nor a mesh.
    """
    return contextvar_context(DEFAULT_MESH, as_mesh(device))  # pyright: ignore[reportReturnType]


def default_dtype(dtype: DType) -> contextlib.AbstractContextManager[DType]:
    """Sets the element type of tensors that are made without one, while the block lasts.

    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental.tensor import Tensor
    >>> with default_dtype(DType.int32):
    ...     Tensor([1, 2]).dtype
    int32
    """
    return contextvar_context(_DTYPE, dtype)  # pyright: ignore[reportReturnType]


@contextlib.contextmanager
def defaults_like(like: Any) -> Iterator[None]:
    """Makes tensors with the element type and where a tensor is, while the block lasts."""
    with default_dtype(like.dtype), default_device(like.mesh):
        yield
