# SPDX-License-Identifier: Apache-2.0
"""Custom kernels: functions over arrays, registered under the names by which graphs use them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar

__all__ = ["Kernel", "add_kernel", "collecting", "kernel", "registered"]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A function under a name.

    Attributes:
        name: What ``ops.custom`` calls it.
        function: From arrays and keyword parameters to one array or a tuple of them.
        shape: From the same arguments to one result shape or a tuple of them, or None.
        origin: Where it was defined, for messages.
    """

    name: str
    function: Callable[..., Any]
    shape: Callable[..., Any] | None = None
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.name!r} ({self.origin})" if self.origin else repr(self.name)


# The kernels of the user's own program.
_PROGRAM: dict[str, Kernel] = {}
# Where `kernel` registers: a file that a library loads registers into that library.
_TARGET: ContextVar[dict[str, Kernel] | None] = ContextVar("_TARGET", default=None)


def kernel(name: str, *, shape: Callable[..., Any] | None = None) -> Callable[[_F], _F]:
    """Registers a function as a custom kernel, for ``ops.custom`` and ``ops.inplace_custom``.

    The function is given the operands as JAX arrays, positionally, and the op's parameters by
    keyword (``bool``, ``int``, ``float``, ``str`` or ``DType``); it returns one array or a tuple of
    them, of exactly the shapes and dtypes that the op declares. It is traced by JAX, with 64-bit
    types on, so it can call anything that JAX can trace: ``jax.numpy``, a Pallas kernel, a foreign
    function. A parameter called ``results`` is given what the op declares: a tuple with a
    ``jax.ShapeDtypeStruct`` for each array to return.

    In a file that is loaded as a custom extension the kernel belongs to the library that loads it;
    elsewhere every graph of the process can use it. The same function defined again, as when a
    notebook's cell is run twice, takes the place of the first.

    Args:
        name: The name to register it under.
        shape: Gives the shapes of the results from the same arguments: one shape, or a tuple of
            shapes. It is needed only by a kernel that asks for ``results`` and is used with
            dimensions that no operand has.

    Returns:
        A decorator that returns the function as it is.

    Raises:
        TypeError: If ``name`` is not a string, or what is registered or ``shape`` not a function.
        ValueError: If the name is empty, or another function is registered under it.

    >>> @kernel("documentation.scale")
    ... def scale(x, *, factor):
    ...     return x * factor
    >>> registered()["documentation.scale"].function is scale
    True
    """
    if not isinstance(name, str):
        hint = '; write @kernel("name")' if callable(name) else ""
        raise TypeError(f"the name of a kernel is a string, not {name!r:.60}{hint}")
    if not name:
        raise ValueError("the name of a kernel is empty")
    if shape is not None and not callable(shape):
        raise TypeError(f"the shape function of kernel {name!r} is not a function: {shape!r:.60}")

    def register(function: _F) -> _F:
        if not callable(function):
            raise TypeError(f"kernel {name!r} is not a function: {function!r:.60}")
        target = _TARGET.get()
        kernels = _PROGRAM if target is None else target
        add_kernel(kernels, Kernel(name, function, shape, _origin(function)))
        return function

    return register


def registered() -> Mapping[str, Kernel]:
    """The kernels of the program by name, those of libraries left out."""
    return MappingProxyType(_PROGRAM)


def add_kernel(kernels: dict[str, Kernel], new: Kernel) -> None:
    """Puts a kernel among others.

    Raises:
        ValueError: If another function has its name.
    """
    known = kernels.get(new.name)
    if known is not None and _definition(known.function) != _definition(new.function):
        raise ValueError(
            f"two kernels are called {new.name!r}: one from {known.origin}, one from "
            f"{new.origin}; rename one of them"
        )
    kernels[new.name] = new


@contextlib.contextmanager
def collecting() -> Iterator[dict[str, Kernel]]:
    """Kernels that are registered in the ``with`` block go into the dict it gives."""
    found: dict[str, Kernel] = {}
    token = _TARGET.set(found)
    try:
        yield found
    finally:
        _TARGET.reset(token)


def _plain(function: Any) -> Any:
    """The function that decorators and ``functools.partial`` were put around."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return function


def _definition(function: Callable[..., Any]) -> Any:
    """What stays the same when a program defines a function again."""
    plain = _plain(function)
    name = getattr(plain, "__qualname__", None)
    return (plain.__module__, name) if name is not None else id(plain)


def _origin(function: Callable[..., Any]) -> str:
    plain = _plain(function)
    code = getattr(plain, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    return f"{type(plain).__module__}.{type(plain).__qualname__}"
