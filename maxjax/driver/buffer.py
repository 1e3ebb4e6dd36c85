# SPDX-License-Identifier: Apache-2.0
"""``Buffer``: an array on a device, with contents that can be written."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, NoReturn, overload

import jax
import numpy as np
import numpy.typing as npt
from jax import Array

from maxjax.driver.contents import Contents, Usage, moving
from maxjax.driver.device import CPU, Device
from maxjax.driver.interchange import map_file, read_dlpack
from maxjax.driver.memory import allocate, native, number, snapshot, zeros_on
from maxjax.driver.queue import DeviceQueue
from maxjax.driver.views import Layout, Recast, Window, parse_index, parse_shape
from maxjax.dtype import DType

__all__ = ["Buffer"]

# Buffers with more elements than this are described, not printed.
_PRINTED = 1000


class Buffer(Contents):
    """An array on a device.

    Args:
        dtype: The element type.
        shape: The sizes, such as ``[2, 3]``. The contents are arbitrary.
        device: Where; the CPU if left out. A queue stands for its device.
        usage: Kept, without effect.
        stream: Another name for ``device``.

    An array in the place of ``dtype`` and a device in the place of ``shape`` are the array's
    values on that device.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a size is negative.

    Example:
        >>> import numpy as np
        >>> from maxjax.driver import Buffer
        >>> a = np.zeros((2, 3), np.float32)
        >>> b = Buffer.from_numpy(a)
        >>> b[1, 2] = 5
        >>> b, a[1, 2], b[1, :].to_numpy()
        (Buffer(float32, (2, 3), cpu:0), np.float32(5.0), array([0., 0., 5.], dtype=float32))
    """

    __slots__ = ()

    def __init__(
        self,
        dtype: DType | np.ndarray | None = None,
        shape: Sequence[int] | np.ndarray | Device | None = None,
        device: Device | DeviceQueue | None = None,
        usage: Usage = Usage.DEFAULT,
        *,
        stream: DeviceQueue | None = None,
    ) -> None:
        self._base = None
        self._usage = usage
        if isinstance(dtype, np.ndarray) and isinstance(shape, Device) and device is None:
            dtype, shape, device = None, dtype, shape
        if dtype is None and isinstance(shape, np.ndarray) and device is not None:
            made = Buffer.from_numpy(shape).to(_device(device))
            self._host, self._store, self._shared = made._host, made._store, made._shared
            self._device, self._dtype = made._device, made._dtype
            return
        if shape is None:
            raise TypeError("a Buffer needs a dtype and a shape, as in Buffer(DType.int8, [2, 3])")
        self._fill(shape, dtype, device if stream is None else stream, zeros=False)

    def _fill(self, shape: Any, dtype: Any, device: Any, *, zeros: bool) -> None:
        """Gives it memory."""
        if not isinstance(dtype, DType):
            raise TypeError(
                f"a dtype is a DType, such as DType.float32, not {type(dtype).__name__} {dtype!r}"
            )
        sizes = parse_shape(shape)
        device = _device(device)
        self._host = self._store = None
        self._shared = False
        self._device, self._dtype = device, dtype
        if device.is_host:
            self._host = allocate(sizes, dtype.np, zeros=zeros)
        else:
            self._store = zeros_on(sizes, dtype, device.jax)

    # ---------------------------------------------------------------- making

    @staticmethod
    def _hold(contents: np.ndarray | Array, device: Device | None, *, shared: bool) -> "Buffer":
        """A Buffer of that memory or array, without a check."""
        self = object.__new__(Buffer)
        if isinstance(contents, np.ndarray):
            self._host, self._store = contents, None
        else:
            self._host, self._store = None, contents
        self._base = self._dtype = None
        self._device = device
        self._shared = shared
        self._usage = Usage.DEFAULT
        return self

    @staticmethod
    def zeros(
        shape: Sequence[int],
        dtype: DType,
        device: Device | DeviceQueue | None = None,
        usage: Usage = Usage.DEFAULT,
    ) -> "Buffer":
        """Zeros.

        Args:
            shape: The sizes.
            dtype: The element type.
            device: Where; the CPU if left out.
            usage: Kept, without effect.

        Raises:
            TypeError: If an argument is of another type.
            ValueError: If a size is negative.

        Example:
            >>> from maxjax.driver import Buffer
            >>> from maxjax.dtype import DType
            >>> Buffer.zeros([2], DType.int8).to_numpy()
            array([0, 0], dtype=int8)
        """
        self = object.__new__(Buffer)
        self._base = None
        self._usage = usage
        self._fill(shape, dtype, device, zeros=True)
        return self

    @staticmethod
    def scalar(value: Any, dtype: DType, device: Device | None = None) -> "Buffer":
        """One number, with shape ``[]``.

        Args:
            value: A Python or NumPy number.
            dtype: The element type.
            device: Where; the CPU if left out.

        Raises:
            TypeError: If ``value`` is no number, or a float for an integer type.
            ValueError: If it is out of the range of ``dtype``.

        Example:
            >>> from maxjax.driver import Buffer
            >>> from maxjax.dtype import DType
            >>> Buffer.scalar(3, DType.int32).item()
            3
        """
        if not isinstance(dtype, DType):
            raise TypeError(f"a dtype is a DType, such as DType.float32, not {dtype!r}")
        host = allocate((), dtype.np)
        host[()] = number(value, dtype)
        made = Buffer._hold(host, CPU(), shared=False)
        return made if device is None else made.to(device)

    @staticmethod
    def from_numpy(arr: npt.NDArray[Any]) -> "Buffer":
        """An array's values on the CPU, in the array's memory where possible.

        The memory is shared, and writes are seen on both sides, if the array is contiguous,
        writable and in this machine's byte order. Otherwise the values are copied.

        Args:
            arr: An array of numbers.

        Raises:
            TypeError: If it is no NumPy array, or not of numbers that a `DType` stands for.
            ValueError: If some of its elements are masked.
        """
        if not isinstance(arr, np.ndarray):
            raise TypeError(
                f"expected a NumPy array, got {type(arr).__name__}; use np.asarray, or "
                "Buffer.scalar for a number"
            )
        array, dtype = native(arr)
        flags = array.flags
        if not (flags.c_contiguous and flags.writeable and flags.aligned):
            self = Buffer._hold(snapshot(array), CPU(), shared=False)
        else:
            self = Buffer._hold(array, CPU(), shared=arr.dtype.isnative)
        self._dtype = dtype
        return self

    @staticmethod
    def from_dlpack(array: Any, *, copy: bool | None = None) -> "Buffer":
        """The values of an array of any library, in its memory where possible.

        A Buffer is given back as it is. The memory of NumPy and other host arrays is shared, and
        writes are seen on both sides; read-only memory is copied. A ``jax.Array`` is shared and
        never changes.

        Args:
            array: An array that exports DLPack.
            copy: True for a copy in any case, False for an error where one is needed.

        Raises:
            TypeError: If ``array`` does not export DLPack, or no `DType` stands for its elements.
            ValueError: If it is not contiguous, unless ``copy`` is True.
            BufferError: If ``copy`` is False and a copy is needed.
        """
        if isinstance(array, Buffer):
            return array.copy() if copy else array
        contents, shared = read_dlpack(array, copy=copy)
        return Buffer._hold(contents, None, shared=shared)

    @staticmethod
    def from_jax(array: Array, *, device: Device | None = None, owned: bool = False) -> "Buffer":
        """A Buffer of a ``jax.Array``, which is kept as it is.

        Args:
            array: The array, on one device.
            device: The device it is on, if known. In virtual device mode the first CPU device is
                taken for the host otherwise.
            owned: Whether nobody else holds the array, so that a program may overwrite its memory
                when it writes this Buffer.

        Example:
            >>> import jax.numpy as jnp
            >>> from maxjax.driver import Buffer
            >>> Buffer.from_jax(jnp.ones(2, jnp.int8))
            Buffer(int8, (2,), cpu:0)
        """
        # Written out: this is done for every result of every call of a program.
        self = object.__new__(Buffer)
        self._store = array
        self._host = self._base = self._dtype = None
        self._device = device
        self._shared = not owned
        self._usage = Usage.DEFAULT
        return self

    @staticmethod
    def mmap(
        filename: PathLike[str] | str,
        dtype: DType,
        shape: Sequence[int] | int,
        mode: "np._MemMapModeKind" = "copyonwrite",
        offset: int = 0,
    ) -> "Buffer":
        """Part of a file as a Buffer on the CPU, read from disk as it is used.

        Args:
            filename: The file.
            dtype: The type of the elements in the file.
            shape: The sizes; an int for one axis.
            mode: ``"copyonwrite"`` (writes stay in memory), ``"readonly"``, ``"readwrite"``
                (writes go to the file) or ``"write"`` (a new file), as for ``numpy.memmap``.
            offset: Where in the file the elements start, in bytes.

        Raises:
            OSError: If the file cannot be opened; ``FileNotFoundError`` if there is none.
            ValueError: If the file is too short.
        """
        sizes = parse_shape([shape] if isinstance(shape, int) else shape)
        host, shared = map_file(filename, dtype, sizes, mode, offset)
        return Buffer._hold(host, CPU(), shared=shared)

    # ---------------------------------------------------------------- reading and writing

    def _view(self, recipe: Window | Recast, layout: Layout, dtype: DType) -> "Buffer":
        """A view of this Buffer."""
        if self._host is not None and self._shared:
            view = Buffer._hold(recipe.take(self._host), self._device, shared=True)
        else:
            view = object.__new__(Buffer)
            view._host = view._store = None
            view._base, view._recipe, view._layout = self, recipe, layout
            view._device = self.device
            view._shared = True
        view._dtype = dtype
        view._usage = self._usage
        return view

    def __getitem__(self, idx: int | slice | Sequence[int | slice]) -> "Buffer":
        layout = self._lies()
        window = Window(parse_index(idx, layout.shape))
        return self._view(window, window.layout(layout), self.dtype)

    def __setitem__(self, idx: int | slice | Sequence[int | slice], value: Any) -> None:
        index = parse_index(idx, self.shape)
        if any(isinstance(i, slice) for i in index):
            raise TypeError(
                "only single elements can be set, with one int per axis; for more, write "
                "buffer[...slices...].inplace_copy_from(other)"
            )
        element = number(value, self.dtype)
        if self.is_host:
            self._writable()[index] = element
        else:
            with moving, jax.enable_x64(True):
                self._put(Window(index).put(self._on_device(), element))

    def item(self) -> Any:
        """The only element, as a Python number.

        Raises:
            ValueError: If there is not exactly one element.
        """
        if self.num_elements != 1:
            raise ValueError(f"item() is for exactly one element, and {self!r} has another number")
        return self._ndarray().item()

    def view(self, dtype: DType, shape: Sequence[int] | None = None) -> "Buffer":
        """The same memory with another element type or shape.

        Args:
            dtype: The element type.
            shape: The sizes; if left out, the last axis is counted in elements of ``dtype``.

        Raises:
            TypeError: If ``dtype`` is no `DType`, or ``shape`` no sequence of ints.
            ValueError: If the bytes do not fit, or are not adjacent as the view needs them.

        Example:
            >>> import numpy as np
            >>> from maxjax.driver import Buffer
            >>> from maxjax.dtype import DType
            >>> b = Buffer.from_numpy(np.float32([1.0, 2.0]))
            >>> b.view(DType.uint8), b.view(DType.int32, [2, 1])[0, 0].item()
            (Buffer(uint8, (8,), cpu:0), 1065353216)
        """
        if not isinstance(dtype, DType):
            raise TypeError(f"a dtype is a DType, such as DType.float32, not {dtype!r}")
        sizes = None if shape is None else parse_shape(shape)
        recipe, layout = Recast.plan(self._lies(), self.dtype, dtype, sizes)
        return self._view(recipe, layout, dtype)

    def to_numpy(self) -> npt.NDArray[Any]:
        """The contents as a NumPy array.

        Host memory is shared: writes are seen on both sides. The contents of a program's result
        are shared too, and the array is read-only, as it is for the copy of an accelerator's.
        Types that NumPy lacks have the dtypes of ``ml_dtypes``.

        Example:
            >>> from maxjax.driver import Buffer
            >>> from maxjax.dtype import DType
            >>> Buffer.scalar(1.5, DType.bfloat16).to_numpy()
            array(1.5, dtype=bfloat16)
        """
        return self._ndarray(share=True).view()

    def contiguous(self) -> "Buffer":
        """A copy with its elements row after row."""
        return self.copy()

    def copy(self, device: Device | None = None) -> "Buffer":
        """A copy that shares nothing with this Buffer.

        Args:
            device: Where; the same device if left out.

        Raises:
            TypeError: If ``device`` is no `Device`.
        """
        if device is None:
            device = self.device
        elif not isinstance(device, Device):
            raise TypeError(f"expected a Device, got {type(device).__name__} {device!r}")
        return Buffer._hold(self._sent(device), device, shared=False)

    @overload
    def to(self, device: Device) -> "Buffer": ...
    @overload
    def to(self, device: Sequence[Device]) -> "list[Buffer]": ...
    def to(self, device: Any) -> Any:
        """The contents on another device; the Buffer itself if it is there.

        Args:
            device: The device, or a list of devices for a list of Buffers.

        Raises:
            TypeError: If it is neither.
        """
        if isinstance(device, Device):
            return self if device == self.device else self.copy(device)
        if isinstance(device, list | tuple) and all(isinstance(d, Device) for d in device):
            return [self.to(d) for d in device]
        raise TypeError(f"expected a Device or a list of them, got {device!r}")

    def inplace_copy_from(self, src: "Buffer") -> None:
        """Writes the elements of another Buffer to this one, in row order.

        Args:
            src: A Buffer with the same dtype and number of elements, on any device.

        Raises:
            TypeError: If ``src`` is no Buffer.
            ValueError: If the dtype or the number of elements is another, or one of the two is
                not contiguous.
        """
        self._check_source(src)
        if src is self:
            return
        if self.is_host:
            np.copyto(self._writable(), src._ndarray().reshape(self.shape))
            return
        with moving, jax.enable_x64(True):
            array = src._sent(self.device)
            assert isinstance(array, Array)
            self._put(array.reshape(self.shape))

    def _check_source(self, src: "Buffer") -> None:
        """Refuses to copy from what differs from this Buffer."""
        if not isinstance(src, Buffer):
            raise TypeError(
                f"expected a Buffer, got {type(src).__name__}; use Buffer.from_numpy(array)"
            )
        if self.dtype is not src.dtype or self.num_elements != src.num_elements:
            raise ValueError(
                f"cannot copy {src!r} to {self!r}: the dtype and the number of elements must be "
                "equal"
            )
        for buffer in (self, src):
            if not buffer.is_contiguous:
                raise ValueError(
                    f"cannot copy {src!r} to {self!r}: one with strides {list(buffer.strides)} "
                    "is not contiguous; use contiguous() of it"
                )

    # ---------------------------------------------------------------- protocols

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        return np.array(self.to_numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, *, stream: int | None = None, **kwargs: Any) -> Any:
        if self.is_host and self._store is None:
            host = self.to_numpy()
            # Read-only memory and the types of ml_dtypes are beyond NumPy's DLPack.
            if host.flags.writeable and host.dtype.type.__module__ == "numpy":
                return host.__dlpack__(stream=None, **kwargs)
        exporter: Any = self.jax()  # the stubs of JAX leave its DLPack methods out
        return exporter.__dlpack__(stream=stream, **kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.is_host:
            return (1, 0)
        exporter: Any = self._on_device()
        kind, number = exporter.__dlpack_device__()
        return (int(kind), number)

    def __str__(self) -> str:
        values = "..."
        if self.num_elements <= _PRINTED:
            values = np.array2string(self._ndarray(), separator=", ", prefix="Buffer(")
        about = f"dtype={self.dtype!r}, shape={self.shape}, device={self._where()}"
        return f"Buffer({values}, {about})"

    def __copy__(self) -> "Buffer":
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Buffer":
        return self.copy()

    def __reduce__(self) -> NoReturn:
        raise TypeError("Buffers are not pickled; save to_numpy() with numpy.save or safetensors")


def _device(device: Any) -> Device:
    if device is None:
        return CPU()
    if isinstance(device, DeviceQueue):
        return device.device
    if isinstance(device, Device):
        return device
    raise TypeError(
        f"expected a Device, such as CPU(), or a DeviceQueue, got {type(device).__name__} "
        f"{device!r}"
    )
