# SPDX-License-Identifier: Apache-2.0
"""Conditions on the sizes of dimensions, which a program relies on."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from maxjax.graph.dim import Dim, SymbolicDim, parse_dim

__all__ = ["Condition"]

_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
}
_TEXT = re.compile(r"(?P<left>.+?)(?:%\s*(?P<divisor>\d+))?\s*(?P<relation>>=|<=|==)(?P<right>.+)")


@dataclasses.dataclass(frozen=True)
class Condition:
    """What holds for the sizes of dimensions: ``n >= 2``, ``n % 4 == 0``, ``n == 2 * m``.

    Attributes:
        left: A dimension.
        relation: ``">="``, ``"<="`` or ``"=="``.
        right: Another.
        divisor: What the left side is divided by, to compare the remainder; 0 for none.

    >>> Condition.parse("n % 4 == 0").holds({"n": 6})
    False
    """

    left: Dim
    relation: str
    right: Dim
    divisor: int = 0

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Reads a condition from its text.

        Raises:
            ValueError: If it is none.
        """
        match = _TEXT.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise ValueError(
                f"{text!r:.80} is no condition on sizes; write such as 'n >= 2', 'n % 4 == 0' or "
                "'n == 2 * m'"
            )
        try:
            left, right = parse_dim(match["left"].strip()), parse_dim(match["right"].strip())
        except ValueError as e:
            raise ValueError(f"{text!r:.80} is no condition on sizes: {e}") from None
        return cls(left, match["relation"], right, int(match["divisor"] or 0))

    def __str__(self) -> str:
        left = str(self.left)
        if self.divisor:
            left = f"{left if type(self.left) is SymbolicDim else f'({left})'} % {self.divisor}"
        return f"{left} {self.relation} {self.right}"

    @property
    def names(self) -> set[str]:
        """The names in it."""
        return {p.name for dim in (self.left, self.right) for p in dim.parameters}

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is true of these sizes.

        Raises:
            KeyError: If a name in it has no size.
        """
        left, right = self.left.evaluate(sizes), self.right.evaluate(sizes)
        if self.divisor:
            left %= self.divisor
        return _RELATIONS[self.relation](left, right)

    def of_jax(self, sizes: Mapping[str, Any]) -> str:
        """It as JAX writes it, on JAX's names."""
        left = str(self.left.evaluate(sizes))
        if self.divisor:
            left = f"mod({left}, {self.divisor})"
        return f"{left} {self.relation} {self.right.evaluate(sizes)}"
