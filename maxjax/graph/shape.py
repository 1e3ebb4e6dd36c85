# SPDX-License-Identifier: Apache-2.0
"""Shapes: lists of dims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeGuard

from maxjax.graph.dim import Dim, DimLike, StaticDim, SymbolicDim, parse_dim

__all__ = ["Shape", "ShapeLike", "StaticShape", "parse_shape"]

ShapeLike: TypeAlias = "Iterable[DimLike]"
"""What a shape can be made from."""

StaticShape: TypeAlias = "list[StaticDim]"
"""A shape whose dims are all numbers."""


class Shape(list[Dim]):
    """The dims of a tensor, a list in which everything is a `Dim`.

    Being a list it can be changed, equals a list of the same dims (and never a tuple), and
    cannot be hashed; slices and sums of shapes are plain lists.

    Args:
        dims: Anything to iterate over that gives ints, names and dims.

    Raises:
        TypeError: If ``dims`` cannot be iterated over, or an element cannot be a dim.
        ValueError: If a name is malformed.

    Example:
        >>> from maxjax.graph.shape import Shape
        >>> shape = Shape(["batch", 3])
        >>> shape
        [Dim('batch'), Dim(3)]
        >>> shape == ["batch", 3], shape.rank, shape.static_dims
        (True, 2, [3])
    """

    __slots__ = ()

    def __init__(self, dims: ShapeLike = ()) -> None:
        if not isinstance(dims, Iterable):
            raise TypeError(
                f"a shape is made from dims to iterate over, like [2, 'n'], not from "
                f"{type(dims).__name__} {dims!r}"
            )
        super().__init__([d if isinstance(d, Dim) else Dim(d) for d in dims])

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self)

    @property
    def static_dims(self) -> list[int]:
        """The numbers among the dims, in order."""
        return [dim.dim for dim in self if isinstance(dim, StaticDim)]

    @property
    def parameters(self) -> Iterable[SymbolicDim]:
        """The symbolic dims that each dim is made of, in order."""
        return (parameter for dim in self for parameter in dim.parameters)

    @staticmethod
    def is_static(shape: Iterable[Any]) -> TypeGuard[StaticShape]:
        """Whether every dim is a number that can be a size (not negative)."""
        return all(isinstance(dim, StaticDim) and dim.dim >= 0 for dim in shape)

    def evaluate(self, env: Mapping[str, Any]) -> tuple[Any, ...]:
        """The size of each dim when its names have the given sizes; see `Dim.evaluate`.

        Example:
            >>> from maxjax.graph.shape import Shape
            >>> Shape(["batch", 3]).evaluate({"batch": 4})
            (4, 3)
        """
        return tuple([dim.evaluate(env) for dim in self])

    def brief(self) -> str:
        """The shape as short text, ``[batch, 3]``; `parse_shape` reads it back."""
        return f"[{', '.join(map(str, self))}]"


def parse_shape(text: str, *, column: int = 1) -> Shape:
    """Reads a shape from the text that `Shape.brief` writes.

    Args:
        text: Dims in brackets, with commas between them.
        column: The column of the text's first character, for error messages.

    Raises:
        ValueError: If the text is no shape; names the column.

    Example:
        >>> from maxjax.graph.shape import parse_shape
        >>> parse_shape("[batch, (n + 1) // 2]")
        [Dim('batch'), (Dim('n') + Dim(1)) // Dim(2)]
    """
    inner = text.strip()
    column += len(text) - len(text.lstrip())
    if not inner.startswith("["):
        raise ValueError(f"cannot read shape {text!r}: expected '[' at column {column}")
    if len(inner) == 1 or not inner.endswith("]"):
        raise ValueError(
            f"cannot read shape {text!r}: expected ']' at column {column + len(inner)}"
        )
    dims = []
    if inner[1:-1].strip():
        column += 1
        for piece in inner[1:-1].split(","):
            dims.append(parse_dim(piece, column=column))
            column += len(piece) + 1
    return Shape(dims)
