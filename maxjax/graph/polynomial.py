# SPDX-License-Identifier: Apache-2.0
"""The normal form of dim arithmetic: a sum of products with integer coefficients.

A factor of a product is an *atom*: the name of a symbol, or the floor division of two
normal forms that have no common factor. Values are nested tuples, so two expressions
with one normal form are equal and hash alike:

    ``2*x*y + (x + 1)//2 - 3``  is  ``(((Floor,), 1), (("x", "y"), 2), ((), -3))``

`maxjax.graph.dim` wraps these in its public classes; nothing here knows of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "Floor",
    "Terms",
    "UnboundDimError",
    "add",
    "constant",
    "evaluate",
    "floor_divide",
    "lookup",
    "multiply",
    "names",
    "parse",
    "substitute",
    "subtract",
    "symbol",
    "text",
]

Atom: TypeAlias = "str | Floor"
Monomial: TypeAlias = "tuple[Atom, ...]"
Terms: TypeAlias = "tuple[tuple[Monomial, int], ...]"

_LIMIT = 2**63
_ONE: Terms = (((), 1),)
_MAX_NESTING = 100
_MAX_DIGITS = len(str(_LIMIT))


class UnboundDimError(KeyError):
    """A dim was evaluated without a size for one of its names."""

    def __str__(self) -> str:  # KeyError's own text is the repr of its message
        return str(self.args[0])


class Floor:
    """The floor division of two normal forms, as one factor of a product."""

    __slots__ = ("_hash", "denominator", "key", "numerator")

    def __init__(self, numerator: Terms, denominator: Terms) -> None:
        self.numerator = numerator
        self.denominator = denominator
        self.key = (0, _sum_key(numerator), _sum_key(denominator))
        self._hash = hash((numerator, denominator))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Floor):
            return NotImplemented
        return self.numerator == other.numerator and self.denominator == other.denominator

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Floor({self.numerator!r}, {self.denominator!r})"


# The order of terms and factors, which is the order they are printed in: floor divisions,
# sums, products (those of more factors first), names, numbers.


def _atom_key(atom: Atom) -> tuple[Any, ...]:
    return (3, atom) if isinstance(atom, str) else atom.key


def _term_key(term: tuple[Monomial, int]) -> tuple[Any, ...]:
    monomial, coefficient = term
    if not monomial:
        return (4, coefficient)
    if coefficient == 1 and len(monomial) == 1:
        return _atom_key(monomial[0])
    factors = [_atom_key(atom) for atom in monomial]
    if coefficient != 1:
        factors.append((4, coefficient))
    return (2, -len(factors), tuple(factors))


def _sum_key(terms: Terms) -> tuple[Any, ...]:
    if not terms:
        return (4, 0)
    if len(terms) == 1:
        return _term_key(terms[0])
    return (1, -len(terms), tuple(_term_key(term) for term in terms))


def _canonical(coefficients: Mapping[Monomial, int]) -> Terms:
    terms = [term for term in coefficients.items() if term[1]]
    for _, coefficient in terms:
        if not -_LIMIT <= coefficient < _LIMIT:
            raise OverflowError(
                f"dim arithmetic gave {coefficient}, which is beyond the int64 range of a dim"
            )
    if len(terms) > 1:
        terms.sort(key=_term_key)
    return tuple(terms)


def constant(value: int) -> Terms:
    """The normal form of a number."""
    return _canonical({(): value})


def symbol(name: str) -> Terms:
    """The normal form of a name."""
    return (((name,), 1),)


def add(left: Terms, right: Terms) -> Terms:
    """The normal form of ``left + right``."""
    total = dict(left)
    for monomial, coefficient in right:
        total[monomial] = total.get(monomial, 0) + coefficient
    return _canonical(total)


def subtract(left: Terms, right: Terms) -> Terms:
    """The normal form of ``left - right``."""
    total = dict(left)
    for monomial, coefficient in right:
        total[monomial] = total.get(monomial, 0) - coefficient
    return _canonical(total)


def multiply(left: Terms, right: Terms) -> Terms:
    """The normal form of ``left * right``: products of sums are multiplied out."""
    total: dict[Monomial, int] = {}
    for a, p in left:
        for b, q in right:
            monomial = tuple(sorted(a + b, key=_atom_key)) if a and b else a or b
            total[monomial] = total.get(monomial, 0) + p * q
    return _canonical(total)


def floor_divide(numerator: Terms, denominator: Terms) -> Terms:
    """The normal form of ``numerator // denominator``.

    Factors common to all terms are cancelled, and the sign is moved to the numerator;
    what then is not a division by 1 becomes one `Floor` atom.

    Raises:
        ZeroDivisionError: If the denominator is zero.
    """
    if not denominator:
        raise ZeroDivisionError(f"cannot divide dim {text(numerator)} by zero")
    if not numerator:
        return ()
    divisor = math.gcd(*(c for _, c in numerator), *(c for _, c in denominator))
    # The sign is read off the term that comes first when coefficients are left out, so that it
    # does not depend on the sign itself: (a // (x - y)) and (-a // (y - x)) are one form.
    if min(denominator, key=lambda term: _term_key((term[0], 1)))[1] < 0:
        divisor = -divisor
    common = list(denominator[0][0])
    for monomial, _ in (*denominator[1:], *numerator):
        if not common:
            break
        common = _shared(common, monomial)
    if divisor != 1 or common:
        numerator = _cancel(numerator, divisor, common)
        denominator = _cancel(denominator, divisor, common)
    if len(numerator) == len(denominator) == 1 and not (numerator[0][0] or denominator[0][0]):
        return constant(numerator[0][1] // denominator[0][1])
    return numerator if denominator == _ONE else (((Floor(numerator, denominator),), 1),)


def _shared(atoms: list[Atom], monomial: Monomial) -> list[Atom]:
    rest = list(monomial)
    found = []
    for atom in atoms:
        if atom in rest:
            rest.remove(atom)
            found.append(atom)
    return found


def _cancel(terms: Terms, divisor: int, common: list[Atom]) -> Terms:
    quotient = {}
    for monomial, coefficient in terms:
        rest = list(monomial)
        for atom in common:
            rest.remove(atom)
        quotient[tuple(rest)] = coefficient // divisor
    return _canonical(quotient)


def names(terms: Terms) -> Iterator[str]:
    """The names in a normal form, in the order of its text, with repetitions."""
    for monomial, _ in terms:
        for atom in monomial:
            if isinstance(atom, Floor):
                yield from names(atom.numerator)
                yield from names(atom.denominator)
            else:
                yield atom


def substitute(terms: Terms, values: Mapping[str, Terms]) -> Terms:
    """The normal form with some names replaced by normal forms."""
    total: Terms = ()
    for monomial, coefficient in terms:
        product = constant(coefficient)
        for atom in monomial:
            if isinstance(atom, Floor):
                factor = floor_divide(
                    substitute(atom.numerator, values), substitute(atom.denominator, values)
                )
            else:
                factor = values[atom] if atom in values else symbol(atom)
            product = multiply(product, factor)
        total = add(total, product)
    return total


def lookup(name: str, env: Mapping[str, Any]) -> Any:
    """The size of one name: an int, or whatever else in ``env`` computes like one."""
    try:
        size = env[name]
    except KeyError:
        known = ", ".join(map(str, env)) or "none"
        raise UnboundDimError(
            f"dim {name!r} has no size here (sizes known: {known}); bind it before evaluating"
        ) from None
    if type(size) is int:
        return size
    if isinstance(size, np.integer):
        return int(size)
    if size is None or isinstance(size, (bool, float, complex, str, bytes, np.generic)):
        raise TypeError(f"dim {name!r} is given the size {size!r}: expected an int")
    return size


def evaluate(terms: Terms, env: Mapping[str, Any]) -> Any:
    """The value of a normal form, computed with ``+``, ``*`` and ``//`` on the sizes."""
    total: Any = None
    for monomial, coefficient in terms:
        value: Any = None
        for atom in monomial:
            if isinstance(atom, Floor):
                above = evaluate(atom.numerator, env)
                below = evaluate(atom.denominator, env)
                try:
                    factor = above // below
                except ZeroDivisionError:
                    form = text((((atom,), 1),))
                    raise ZeroDivisionError(
                        f"dim {form} divides by zero: {text(atom.denominator)} is 0"
                    ) from None
            else:
                factor = lookup(atom, env)
            value = factor if value is None else value * factor
        if value is None:
            value = coefficient
        elif coefficient != 1:
            value = value * coefficient
        total = value if total is None else total + value
    return 0 if total is None else total


def text(terms: Terms, leaf: Callable[[str | int], str] = str) -> str:
    """A normal form as text that `parse` reads back; ``leaf`` writes names and numbers."""
    if not terms:
        return leaf(0)
    parts = []
    for monomial, coefficient in terms:
        part, atomic = _product_text(monomial, coefficient, leaf)
        parts.append(part if atomic or len(terms) == 1 else f"({part})")
    return " + ".join(parts)


def _product_text(
    monomial: Monomial, coefficient: int, leaf: Callable[[str | int], str]
) -> tuple[str, bool]:
    """One term's text, and whether it is a single name or number."""
    if not monomial:
        return leaf(coefficient), True
    if coefficient == 1 and len(monomial) == 1:
        atom = monomial[0]
        if isinstance(atom, Floor):
            above, below = _operand(atom.numerator, leaf), _operand(atom.denominator, leaf)
            return f"{above} // {below}", False
        return leaf(atom), True
    factors = [_operand((((atom,), 1),), leaf) for atom in monomial]
    if coefficient != 1:
        factors.append(leaf(coefficient))
    return " * ".join(factors), False


def _operand(terms: Terms, leaf: Callable[[str | int], str]) -> str:
    if len(terms) == 1:
        part, atomic = _product_text(*terms[0], leaf)
        return part if atomic else f"({part})"
    return f"({text(terms, leaf)})"


_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9]+)|(?P<name>[A-Za-z_]\w*)|(?P<sign>//|[-+*()]))")


def parse(source: str, column: int = 1) -> Terms:
    """Reads a normal form from text: names, integers, ``+ - * //`` and parentheses.

    Args:
        source: The text.
        column: The column of its first character, for error messages.

    Raises:
        ValueError: If the text is no such expression; names the column.
    """
    return _Parser(source, column).run()


class _Parser:
    def __init__(self, source: str, column: int) -> None:
        self.source = source
        self.column = column
        self.depth = 0
        self.end = 0
        self.advance()

    def fail(self, problem: str, position: int | None = None) -> ValueError:
        at = self.column + (self.start if position is None else position)
        return ValueError(f"cannot read dim {self.source!r}: {problem} at column {at}")

    def found(self) -> str:
        return repr(self.token) if self.token else "the end"

    def advance(self) -> None:
        match = _TOKEN.match(self.source, self.end)
        if match is None:
            rest = self.source[self.end :]
            self.start = self.end + len(rest) - len(rest.lstrip())
            if rest.strip():
                raise self.fail(f"unexpected {self.source[self.start]!r}")
            self.kind, self.token = None, ""
            return
        self.kind = match.lastgroup
        self.token = match[self.kind or 0]
        self.end = match.end()
        self.start = self.end - len(self.token)

    def run(self) -> Terms:
        terms = self.sum()
        if self.token:
            raise self.fail(f"expected an operator or the end, found {self.found()}")
        return terms

    def apply(self, position: int, op: Callable[..., Terms], *operands: Any) -> Terms:
        try:
            return op(*operands)
        except ArithmeticError as error:
            raise self.fail(str(error), position) from None

    def sum(self) -> Terms:
        total = self.product()
        while self.token in ("+", "-"):
            op, position = add if self.token == "+" else subtract, self.start
            self.advance()
            total = self.apply(position, op, total, self.product())
        return total

    def product(self) -> Terms:
        total = self.factor()
        while self.token in ("*", "//"):
            op, position = multiply if self.token == "*" else floor_divide, self.start
            self.advance()
            total = self.apply(position, op, total, self.factor())
        return total

    def factor(self) -> Terms:
        sign, position = 1, self.start
        while self.token == "-":
            sign = -sign
            self.advance()
        token = self.token
        if self.kind == "number":
            if len(token.lstrip("0")) > _MAX_DIGITS:
                raise self.fail("a number beyond the int64 range", position)
            self.advance()
            return self.apply(position, constant, sign * int(token))
        if self.kind == "name":
            self.advance()
            terms = symbol(token)
        elif token == "(":
            self.depth += 1
            if self.depth > _MAX_NESTING:
                raise self.fail(f"more than {_MAX_NESTING} nested parentheses")
            self.advance()
            terms = self.sum()
            if self.token != ")":
                raise self.fail(f"expected ')', found {self.found()}")
            self.depth -= 1
            self.advance()
        else:
            raise self.fail(f"expected a name, a number or '(', found {self.found()}")
        return terms if sign > 0 else self.apply(position, subtract, (), terms)
