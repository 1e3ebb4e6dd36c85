# SPDX-License-Identifier: Apache-2.0
"""Dims: the sizes in a shape, as numbers, names, or arithmetic over names.

A `Dim` is a `StaticDim` (a number), a `SymbolicDim` (a name whose size is known when the
graph runs) or an `AlgebraicDim` (an expression). Dims are immutable and hashable;
arithmetic keeps a normal form, so that equal expressions are equal dims. `Dim.evaluate`
is the one bridge from dims to numbers, `parse_dim` the way back from text.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np

from maxjax.graph import polynomial
from maxjax.graph.polynomial import Terms, UnboundDimError

__all__ = [
    "AlgebraicDim",
    "Dim",
    "DimLike",
    "StaticDim",
    "SymbolicDim",
    "UnboundDimError",
    "parse_dim",
]

DimLike: TypeAlias = "int | str | Dim | np.integer[Any]"
"""What a dim can be made from: a number, a name, or a dim."""

_NAME = re.compile(r"[A-Za-z_]\w*")
# Building a graph makes the same few dims again and again. Past this many distinct ones new
# dims are made each time; nothing relies on two equal dims being one object.
_MAX_INTERNED = 1 << 16
_static_dims: dict[int, StaticDim] = {}
_symbolic_dims: dict[str, SymbolicDim] = {}
_set = object.__setattr__


class Dim:
    """A size in a shape: ``Dim(3)``, ``Dim("batch")``, ``Dim("batch") * 2``.

    Calling ``Dim`` picks the class: an int (or NumPy integer) gives a `StaticDim`, a name
    a `SymbolicDim`, and a dim is returned as it is. ``+``, ``-``, ``*`` and ``//`` (floor)
    take dims, ints and names. A static dim equals its number, a symbolic dim its name.

    Args:
        value: An int in the int64 range, a name (a letter or ``_``, then letters, digits
            and ``_``), or a dim.

    Raises:
        TypeError: If ``value`` is something else.
        ValueError: If a number is beyond int64, or a name is malformed.

    Example:
        >>> from maxjax.graph.dim import Dim
        >>> batch = Dim("batch")
        >>> (batch * 6 + 4) // 2
        (Dim('batch') * Dim(3)) + Dim(2)
        >>> str((batch + 1) // 2)
        '(batch + 1) // 2'
        >>> batch * 2 - batch == "batch"
        True
    """

    __slots__ = ()
    # NumPy scalars on the left leave the arithmetic to the dim.
    __array_ufunc__ = None

    def __new__(cls, value: DimLike) -> Dim:
        """The dim of a number or a name; a dim as it is."""
        dim = _coerce(value)
        if dim is None:
            raise TypeError(
                f"a dim is made from an int, a name or a Dim, "
                f"not from {type(value).__name__} {value!r}"
            )
        return dim

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"dims are immutable: make a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"dims are immutable: cannot delete {name!r}")

    def __str__(self) -> str:
        return polynomial.text(_terms(self))

    def __repr__(self) -> str:
        return polynomial.text(_terms(self), lambda leaf: f"Dim({leaf!r})")

    @property
    def parameters(self) -> Iterable[SymbolicDim]:
        """The symbolic dims this dim is made of, each once, in the order of its text."""
        return map(_symbolic, dict.fromkeys(polynomial.names(_terms(self))))

    def substitute(self, mapping: Mapping[str, DimLike]) -> Dim:
        """Replaces names by dims, all at once.

        Args:
            mapping: What to put in the place of each name; other names stay.

        Raises:
            ZeroDivisionError: If that makes a divisor zero.
            OverflowError: If a number leaves the int64 range.

        Example:
            >>> x = Dim("x")
            >>> ((x + 1) // 2).substitute({"x": Dim("y") * 2 + 1})
            Dim('y') + Dim(1)
        """
        terms = _terms(self)
        values = {n: _terms(Dim(mapping[n])) for n in polynomial.names(terms) if n in mapping}
        return _wrap(polynomial.substitute(terms, values)) if values else self

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """The size this dim has when its names have the given sizes.

        Only ``+``, ``*`` and ``//`` are applied to the sizes, so ints give an int and the
        symbolic dims of ``jax.export.symbolic_shape`` give such a symbolic dim (or an int).

        Args:
            env: The size of each name; more names than needed are fine.

        Raises:
            UnboundDimError: If a name has no size (a `KeyError`).
            ZeroDivisionError: If a divisor is zero.
            TypeError: If a size is not a number that can be a size.

        Example:
            >>> ((Dim("batch") + 7) // 8).evaluate({"batch": 20})
            3
        """
        return polynomial.evaluate(_terms(self), env)

    # An unknown operand is answered with NotImplemented, never an error: a graph value on the
    # other side has its own idea of what adding a dim means.

    def __add__(self, other: DimLike) -> Dim:
        dim = _coerce(other)
        return NotImplemented if dim is None else _add(self, dim)

    __radd__ = __add__

    def __sub__(self, other: DimLike) -> Dim:
        dim = _coerce(other)
        return NotImplemented if dim is None else _subtract(self, dim)

    def __rsub__(self, other: DimLike) -> Dim:
        dim = _coerce(other)
        return NotImplemented if dim is None else _subtract(dim, self)

    def __mul__(self, other: DimLike) -> Dim:
        dim = _coerce(other)
        return NotImplemented if dim is None else _multiply(self, dim)

    __rmul__ = __mul__

    def __floordiv__(self, other: DimLike) -> Dim:
        dim = _coerce(other)
        return NotImplemented if dim is None else _floor_divide(self, dim)

    def __rfloordiv__(self, other: DimLike) -> Dim:
        dim = _coerce(other)
        return NotImplemented if dim is None else _floor_divide(dim, self)

    def __neg__(self) -> Dim:
        return _subtract(_static(0), self)

    def __int__(self) -> int:
        raise TypeError(
            f"dim {self} has no size before the graph runs; only a static dim converts to int"
        )

    def __index__(self) -> int:
        raise TypeError(f"dim {self} is not an index; write int(dim) for a static dim's number")

    def _unordered(self, other: object) -> bool:
        raise TypeError(
            f"dims {self} and {other} have no order before the graph runs; only static dims do"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _unordered


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[[StaticDim, Any], bool]:
    """An order method of static dims, which compare like their numbers."""

    def method(self: StaticDim, other: Any) -> bool:
        if isinstance(other, StaticDim):
            return compare(self.dim, other.dim)
        if isinstance(other, (int, float, np.integer, np.floating)):
            return bool(compare(self.dim, other))
        return NotImplemented

    return method


class StaticDim(Dim):
    """A dim whose size is a number.

    Args:
        dim: An int in the int64 range, or a static dim. Negative numbers are dims, but not
            sizes of a tensor.

    Attributes:
        dim: The number.

    Raises:
        TypeError: If ``dim`` is neither.
        ValueError: If the number is beyond int64.

    Example:
        >>> from maxjax.graph.dim import StaticDim
        >>> int(StaticDim(7) // 2)
        3
    """

    __slots__ = ("dim",)
    __match_args__ = ("dim",)
    dim: int

    def __new__(cls, dim: int | np.integer[Any] | StaticDim) -> StaticDim:
        """The dim of a number."""
        if isinstance(dim, StaticDim):
            return dim
        if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)):
            raise TypeError(
                f"a static dim is made from an int, not from {type(dim).__name__} {dim!r}"
            )
        number = int(dim)
        if not -(2**63) <= number < 2**63:
            raise ValueError(f"dim {number} is beyond the int64 range")
        return _static(number)

    def __reduce__(self) -> tuple[Any, ...]:
        return StaticDim, (self.dim,)

    def __str__(self) -> str:
        return str(self.dim)

    def __hash__(self) -> int:
        return hash(self.dim)

    def __bool__(self) -> bool:
        return self.dim != 0

    def __int__(self) -> int:
        return self.dim

    def __eq__(self, other: object) -> bool:
        if type(other) is StaticDim:
            return self.dim == other.dim
        if isinstance(other, (int, float, np.number)):
            return bool(self.dim == other)
        return False if isinstance(other, Dim) else NotImplemented

    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __ge__ = _comparison(operator.ge)

    @property
    def parameters(self) -> Iterable[SymbolicDim]:
        """Nothing: a number has no names in it."""
        return ()

    def evaluate(self, env: Mapping[str, Any]) -> int:
        """The number: a static dim has one size in every environment."""
        return self.dim


class SymbolicDim(Dim):
    """A dim known by its name until the graph runs; one name is one size in a graph.

    Args:
        name: A letter or ``_``, then letters, digits and ``_``; or a symbolic dim.

    Attributes:
        name: The name.

    Raises:
        TypeError: If ``name`` is neither.
        ValueError: If the name is malformed.

    Example:
        >>> from maxjax.graph.dim import SymbolicDim
        >>> SymbolicDim("batch") == "batch"
        True
    """

    __slots__ = ("_hash", "name")
    __match_args__ = ("name",)
    name: str
    _hash: int

    def __new__(cls, name: str | SymbolicDim) -> SymbolicDim:
        """The dim of a name."""
        if isinstance(name, SymbolicDim):
            return name
        if not isinstance(name, str):
            raise TypeError(
                f"a symbolic dim is made from a name, not from {type(name).__name__} {name!r}"
            )
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not the name of a dim: expected a letter or '_', "
                "then letters, digits and '_'"
            )
        return _symbolic(str(name))

    def __reduce__(self) -> tuple[Any, ...]:
        return SymbolicDim, (self.name,)

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, SymbolicDim):
            return self.name == other.name
        if isinstance(other, str):
            return self.name == other
        return False if isinstance(other, Dim) else NotImplemented

    @property
    def parameters(self) -> Iterable[SymbolicDim]:
        """The dim itself."""
        return (self,)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """The size given for the name; see `Dim.evaluate`."""
        return polynomial.lookup(self.name, env)


class AlgebraicDim(Dim):
    """An expression over symbolic dims, in normal form; made by arithmetic on dims.

    Sums and products are multiplied out and sorted, and factors common to both sides of a
    ``//`` are cancelled (as if they were not zero). Other divisions are kept as they are:
    ``(x + 2) // 2`` is not ``x // 2 + 1``.

    Args:
        value: An algebraic dim, which is returned.

    Raises:
        TypeError: If it is anything else.

    Example:
        >>> from maxjax.graph.dim import AlgebraicDim, Dim
        >>> isinstance(Dim("x") + 1, AlgebraicDim), isinstance(Dim("x") + 0, AlgebraicDim)
        (True, False)
    """

    __slots__ = ("_hash", "_terms")
    _terms: Terms
    _hash: int

    def __new__(cls, value: AlgebraicDim) -> AlgebraicDim:
        """The dim itself: only arithmetic makes one."""
        if isinstance(value, AlgebraicDim):
            return value
        raise TypeError(
            f"an algebraic dim is made by arithmetic, like Dim('x') + 1, not from "
            f"{type(value).__name__} {value!r}"
        )

    @classmethod
    def _of(cls, terms: Terms) -> AlgebraicDim:
        self = object.__new__(cls)
        _set(self, "_terms", terms)
        _set(self, "_hash", hash(terms))
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_dim, (str(self),)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is AlgebraicDim:
            return self._hash == other._hash and self._terms == other._terms
        return False if isinstance(other, (Dim, str, int)) else NotImplemented


def parse_dim(text: str, *, column: int = 1) -> Dim:
    """Reads a dim from the text that ``str(dim)`` writes.

    Args:
        text: Names, integers, ``+``, ``-``, ``*``, ``//`` and parentheses.
        column: The column of the text's first character, for error messages.

    Raises:
        ValueError: If the text is no dim; names the column.

    Example:
        >>> from maxjax.graph.dim import parse_dim
        >>> parse_dim("((batch + 7) // 8) * 8")
        ((Dim('batch') + Dim(7)) // Dim(8)) * Dim(8)
    """
    return _wrap(polynomial.parse(text, column))


def _static(number: int) -> StaticDim:
    dim = _static_dims.get(number)
    if dim is None:
        dim = object.__new__(StaticDim)
        _set(dim, "dim", number)
        if len(_static_dims) < _MAX_INTERNED:
            _static_dims[number] = dim
    return dim


def _symbolic(name: str) -> SymbolicDim:
    dim = _symbolic_dims.get(name)
    if dim is None:
        dim = object.__new__(SymbolicDim)
        _set(dim, "name", name)
        _set(dim, "_hash", hash((SymbolicDim, name)))
        if len(_symbolic_dims) < _MAX_INTERNED:
            _symbolic_dims[name] = dim
    return dim


def _coerce(value: Any) -> Dim | None:
    """The dim that an operand stands for; None if it stands for none."""
    if isinstance(value, Dim):
        return value
    if type(value) is int and value in _static_dims:
        return _static_dims[value]
    if type(value) is str and value in _symbolic_dims:
        return _symbolic_dims[value]
    if isinstance(value, str):
        return SymbolicDim(value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return StaticDim(value)
    return None


def _terms(dim: Dim) -> Terms:
    if isinstance(dim, AlgebraicDim):
        return dim._terms
    if isinstance(dim, SymbolicDim):
        return polynomial.symbol(dim.name)
    return polynomial.constant(int(dim))


def _wrap(terms: Terms) -> Dim:
    """The dim of a normal form: a number or a name where the form is one."""
    if not terms:
        return _static(0)
    if len(terms) == 1:
        monomial, coefficient = terms[0]
        if not monomial:
            return _static(coefficient)
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], str):
            return _symbolic(monomial[0])
    return AlgebraicDim._of(terms)


def _operation(
    on_numbers: Callable[[int, int], int], on_terms: Callable[[Terms, Terms], Terms]
) -> Callable[[Dim, Dim], Dim]:
    """A binary operation on dims."""

    # A model repeats the same few expressions in every layer.
    @functools.lru_cache(maxsize=4096)
    def remembered(left: Dim, right: Dim) -> Dim:
        return _wrap(on_terms(_terms(left), _terms(right)))

    def operation(left: Dim, right: Dim) -> Dim:
        if type(left) is StaticDim and type(right) is StaticDim:
            # What is not an interned number goes on to where overflow and division by zero
            # are refused.
            known = _static_dims.get(on_numbers(left.dim, right.dim)) if right.dim else None
            if known is not None:
                return known
        return remembered(left, right)

    return operation


_add = _operation(operator.add, polynomial.add)
_subtract = _operation(operator.sub, polynomial.subtract)
_multiply = _operation(operator.mul, polynomial.multiply)
_floor_divide = _operation(operator.floordiv, polynomial.floor_divide)
