# SPDX-License-Identifier: Apache-2.0
"""What a Buffer holds, and how it moves between NumPy, JAX and compiled programs.

A Buffer's contents are one of three things:

- host memory (a NumPy array), possibly shared with whoever made it or was handed it;
- a ``jax.Array``, such as the result of a compiled program. It never changes: the first write
  moves the contents of a host Buffer to host memory, and puts another array in the place of an
  accelerator's;
- a view of another Buffer, taken anew at each use, so that it follows the other's writes. A view
  of shared host memory needs no such link: it is host memory itself.
"""

import enum
import math
import threading

import jax
import numpy as np
from jax import Array

from maxjax.driver.device import CPU, Device, device_of
from maxjax.driver.memory import duplicate, place, snapshot
from maxjax.driver.queue import DeviceQueue
from maxjax.driver.views import Layout, Recast, Window
from maxjax.dtype import DType

__all__ = ["Contents", "Usage", "moving"]

moving = threading.RLock()
"""Held while contents move from one kind of storage to another, or are replaced on a device."""


class Usage(enum.Enum):
    """What a Buffer is for. JAX places memory by itself, so this is kept and has no effect."""

    DEFAULT = 0
    STAGING = 1
    UNTRACKED = 2


class Contents:
    """The part of ``Buffer`` that holds its contents; made as a ``Buffer``."""

    __slots__ = (
        "__weakref__",
        "_base",
        "_device",
        "_dtype",
        "_host",
        "_layout",
        "_recipe",
        "_shared",
        "_store",
        "_usage",
    )
    # One of _host, _store and _base is set. _layout and _recipe belong to _base.
    _host: np.ndarray | None
    _store: Array | None
    _base: "Contents | None"
    _recipe: Window | Recast
    _layout: Layout
    _device: Device | None
    _dtype: DType | None
    # Whether others may hold the memory or the array.
    _shared: bool
    _usage: Usage

    @property
    def dtype(self) -> DType:
        """The element type."""
        if self._dtype is None:
            self._dtype = DType.of(self._holds().dtype)
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        if self._base is not None:
            return self._layout.shape
        return self._holds().shape

    @property
    def device(self) -> Device:
        """Where it is.

        Raises:
            ValueError: If it holds a ``jax.Array`` that is spread over several devices.
        """
        if self._device is None:
            store = self._store
            if store is None:
                self._device = CPU()
            else:
                devices = store.sharding.device_set
                if len(devices) > 1:
                    raise ValueError(
                        f"a Buffer is on one device, and this array is spread over "
                        f"{len(devices)}; make a Buffer of each of array.addressable_shards"
                    )
                self._device = device_of(next(iter(devices)))
        return self._device

    @property
    def is_host(self) -> bool:
        """Whether it is on the CPU."""
        return self.device.is_host

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def num_elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def element_size(self) -> int:
        """The size of an element, in bytes; sub-byte types take a whole byte."""
        return self.dtype.size_in_bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """How many elements of memory lie between neighbours along each axis."""
        return self._lies().strides

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie row after row without gaps."""
        return self._lies().is_contiguous()

    @property
    def pinned(self) -> bool:
        """Whether its pages are locked for transfers: never, JAX uses pages of its own."""
        return False

    @property
    def usage(self) -> Usage:
        """What was given as ``usage``."""
        return self._usage

    @property
    def stream(self) -> DeviceQueue:
        """The queue of its device."""
        return self.device.default_queue

    def _holds(self) -> np.ndarray | Array:
        """The memory or array of a Buffer that is no view."""
        while True:  # another thread may move it from one to the other between the two looks
            if (store := self._store) is not None:
                return store
            if (host := self._host) is not None:
                return host

    def _where(self) -> str:
        """The device as text, for an array on many as well."""
        store = self._store
        if self._device is None and store is not None and len(store.sharding.device_set) > 1:
            return f"{len(store.sharding.device_set)} devices"
        return f"{self.device.label}:{self.device.id}"

    def _lies(self) -> Layout:
        """Where the elements lie in memory."""
        if self._base is not None:
            return self._layout
        host = self._host
        return Layout.packed(self.shape) if host is None else Layout.of(host)

    # ---------------------------------------------------------------- reading

    def _alive(self, store: Array) -> Array:
        """The array, if no program has written it over."""
        if store.is_deleted():
            raise RuntimeError(
                f"the contents of {self!r} were given to a program that wrote them over; use the "
                "program's result, or give it a copy()"
            )
        return store

    def _on_device(self) -> Array:
        """The contents of a Buffer on an accelerator, as an array there."""
        if self._base is None:
            assert self._store is not None
            return self._alive(self._store)
        with jax.enable_x64(True):
            return self._recipe.take(self._base._on_device())

    def _ndarray(self, *, share: bool = False) -> np.ndarray:
        """The contents on the host, in the Buffer's own memory where they are in host memory.

        Args:
            share: Whether the caller hands the array out; else it is read at once and let go.
        """
        if self._base is not None:
            if self.is_host:
                return self._recipe.take(self._base._ndarray(share=share))
            return np.asarray(self._on_device())
        with moving:
            host = self._host
            if host is not None:
                # Writes have to reach this very memory from now on.
                self._shared |= share
                return host
            store = self._store
            assert store is not None
        return np.asarray(self._alive(store))

    # ---------------------------------------------------------------- writing

    def _writable(self) -> np.ndarray:
        """The host memory to write to; contents that cannot be written move there."""
        if self._base is not None:
            return self._recipe.take(self._base._writable())
        if (store := self._store) is not None:
            self._alive(store).block_until_ready()  # not while others wait for the lock
        with moving:
            host = self._host
            if host is None:
                assert self._store is not None
                host = snapshot(np.asarray(self._alive(self._store)))
                self._host, self._store, self._shared = host, None, False
        if not host.flags.writeable:
            raise ValueError(
                f"{self!r} maps a file for reading; map it with mode='copyonwrite', or write to "
                "a copy()"
            )
        return host

    def _put(self, array: Array) -> None:
        """Puts an array, which nobody else holds, in the place of an accelerator's contents."""
        if self._base is not None:
            base = self._base
            with jax.enable_x64(True):
                base._put(self._recipe.put(base._on_device(), array))
            return
        self._store, self._shared = array, False

    # ---------------------------------------------------------------- JAX

    def _adopt(self) -> Array | None:
        """The contents as an array it holds from now on; None if others see its host memory."""
        if self._store is None and self._base is None:
            with moving:
                host = self._host
                if host is not None and not self._shared and host.flags.writeable:
                    self._store = place(host, self.device.jax, ours=True)
                    self._host = None
        return None if (store := self._store) is None else self._alive(store)

    def _array(self) -> Array | np.ndarray:
        """The contents for a program that starts now, which neither keeps nor writes them."""
        store = self._adopt()
        if store is not None:
            return store
        if not self.is_host:
            return self._on_device()
        array = self._ndarray()
        if self._base is None and not array.flags.writeable:
            return array
        # A program may read NumPy memory after its call has returned, so it gets its own.
        return np.array(array, order="C")

    def jax(self) -> Array:
        """The contents as a ``jax.Array`` on the Buffer's device, in their own element type.

        There is no copy if the Buffer holds an array, or memory that nobody else has seen. The
        array does not change when the Buffer is written later.

        Raises:
            TypeError: If JAX has no such element type (the 6-bit floats).
            RuntimeError: If a program has written the contents over.

        Example:
            >>> import numpy as np
            >>> from maxjax.driver import Buffer
            >>> int(Buffer.from_numpy(np.array([2**63 - 1])).jax()[0])
            9223372036854775807
        """
        store = self._adopt()
        if store is not None:
            self._shared = True
            return store
        if not self.is_host:
            return self._on_device()
        array = self._ndarray()
        # Memory that cannot be written is safe to share: a file mapped for reading.
        ours = self._base is None and not array.flags.writeable
        return place(array, self.device.jax, ours=ours)

    def _donate(self) -> Array:
        """The contents as an array that a program may write over.

        `_replace` must follow before the Buffer is used again.
        """
        store = self._adopt()
        if store is not None:
            return duplicate(store, self.device.jax) if self._shared else store
        if self.is_host:
            return place(self._ndarray(), self.device.jax, ours=False)
        return duplicate(self._on_device(), self.device.jax)

    def _replace(self, array: Array) -> None:
        """New contents, after a program wrote this Buffer; nobody else may hold ``array``.

        Shared host memory is written, so that those it is shared with see the new contents.

        Raises:
            ValueError: If the shape or dtype is another.
        """
        if array.shape != self.shape or array.dtype != self.dtype.np:
            raise ValueError(
                f"cannot put {array.dtype}{list(array.shape)} in the place of {self!r}"
            )
        with moving:
            if self._base is None and (self._host is None or not self._shared):
                self._host, self._store, self._shared = None, array, False
                return
        if self.is_host:
            np.copyto(self._writable(), np.asarray(array))
        else:
            with moving:
                self._put(array)

    def _sent(self, device: Device) -> np.ndarray | Array:
        """The contents on a device, sharing nothing with this Buffer."""
        if not self.is_host:
            return duplicate(self._on_device(), device.jax)
        if device.is_host:
            return snapshot(self._ndarray())
        return place(self._ndarray(), device.jax, ours=False)

    def __repr__(self) -> str:
        return f"Buffer({self.dtype!r}, {self.shape}, {self._where()})"
