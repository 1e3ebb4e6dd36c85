# SPDX-License-Identifier: Apache-2.0
"""Symbolic dimensions meet real sizes: binding names, and checking what they must equal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from maxjax.graph.dim import AlgebraicDim, StaticDim, SymbolicDim
from maxjax.graph.type import Type

__all__ = ["Sizes"]


class Sizes(dict[str, Any]):
    """The size of each symbolic name: a number, or a symbolic dimension of JAX."""

    __slots__ = ("_origin",)

    def __init__(self) -> None:
        super().__init__()
        self._origin: dict[str, str] = {}

    def bind_all(self, arguments: Iterable[tuple[str, Type, tuple[Any, ...]]]) -> None:
        """Binds the names in the types of arguments to the arguments' shapes.

        Args:
            arguments: For each: what to call it in messages, its declared type, its shape.

        Raises:
            ValueError: If a rank or size is not as declared, or a name has two sizes.
        """
        derived = []
        for who, declared, shape in arguments:
            if len(shape) != len(declared.shape):
                raise ValueError(
                    f"{who} has rank {len(shape)} (shape {_text(shape)}), expected "
                    f"{declared.brief()}"
                )
            for axis, (dim, size) in enumerate(zip(declared.shape, shape, strict=True)):
                if isinstance(dim, AlgebraicDim):
                    derived.append((who, declared, shape, dim, size))
                else:
                    self._bind(who, declared, shape, axis, dim, size)
        for who, declared, shape, dim, size in derived:
            expected = dim.evaluate(self)
            if not _equal(expected, size):
                raise ValueError(
                    f"{who} has shape {_text(shape)}, expected {declared.brief()}: "
                    f"{dim} is {expected} here"
                )

    def _bind(
        self, who: str, declared: Type, shape: tuple[Any, ...], axis: int, dim: Any, size: Any
    ) -> None:
        if isinstance(dim, StaticDim):
            if not _equal(size, dim.dim):
                raise ValueError(f"{who} has shape {_text(shape)}, expected {declared.brief()}")
        elif dim.name not in self:
            self[dim.name] = size
            self._origin[dim.name] = f"dimension {axis} of {who}"
        elif not _equal(self[dim.name], size):
            raise ValueError(
                f"dimension {dim.name!r} has two sizes: {self[dim.name]} from "
                f"{self._origin[dim.name]}, and {size} from dimension {axis} of {who}"
            )

    def agree(self, declared: Type, shape: tuple[Any, ...]) -> str | None:
        """Binds names that are new in a result's type; what is wrong with its shape, or None."""
        if len(shape) != len(declared.shape):
            return f"rank {len(shape)} instead of {len(declared.shape)}"
        for dim, size in zip(declared.shape, shape, strict=True):
            if isinstance(dim, SymbolicDim) and dim.name not in self:
                self[dim.name] = size
                self._origin[dim.name] = f"a result of type {declared.brief()}"
        # After the names: an expression may come before a new name that is in it.
        for dim, size in zip(declared.shape, shape, strict=True):
            if not _equal(dim.evaluate(self), size):
                return f"shape {_text(shape)} instead of {declared.brief()}"
        return None


def _equal(a: Any, b: Any) -> bool:
    return a is b or bool(a == b)


def _text(shape: tuple[Any, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
