# SPDX-License-Identifier: Apache-2.0
"""Choosing by element type: a declarative switch, and tables over all 256 codes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from maxjax.support.ml.dtype import DType

__all__ = ["DTypeSwitch", "code_table", "dispatch"]

Handler = Callable[..., Any]


class DTypeSwitch:
    """What to do for each element type; `dispatch` makes one.

    Cases are declared once, and the switch is called as often as needed. A handler is called
    with the type, then the other arguments of the call. A type for which no case was declared
    is an error, as are cases that no type can reach: nothing is silent.

    Args:
        purpose: What is done, for the error of a type that has no case.
        kinds: `DType`, or the subclass whose extended types have cases too.

    >>> one = (
    ...     DTypeSwitch("the bits of 1")
    ...     .when(DType.bf16, lambda t: 0x3F80)
    ...     .when(DType.is_bool, lambda t: 1)
    ...     .when(DType.f32, lambda t: 0x3F800000)
    ... )
    >>> one(DType.bf16), one(DType.kBool)
    (16256, 1)
    >>> one(DType.f64)
    Traceback (most recent call last):
    TypeError: the bits of 1: there is no case for f64; there are cases for bf16, is_bool, f32
    """

    __slots__ = ("_cases", "_handlers", "_kinds", "_purpose")

    def __init__(self, purpose: str, kinds: type[DType] = DType) -> None:
        self._purpose = purpose
        self._kinds = kinds
        self._cases: list[str] = []
        self._handlers: dict[int, Handler] = {}

    def when(
        self,
        types: DType | Iterable[DType] | Callable[[DType], bool],
        handler: Handler,
    ) -> Self:
        """Declares what is done for a type, for several, or for all that a predicate holds for.

        Where more than one case fits a type, the first is taken.

        Args:
            types: A type, some types, or a function of a type such as `DType.is_complex`.
            handler: What is called with the type and the arguments of the call.

        Raises:
            TypeError: An argument is of another kind.
            ValueError: Earlier cases have taken all of these types, or there is none.

        >>> DTypeSwitch("kind").when([DType.f32, DType.f64], lambda t: "C")(DType.f32)
        'C'
        """
        if isinstance(types, DType):
            return self._declare(types.name, [types], handler)
        if callable(types):
            chosen = [t for t in self._types() if types(t)]
            return self._declare(getattr(types, "__name__", "a predicate"), chosen, handler)
        chosen = list(types)
        strangers = [t for t in chosen if not isinstance(t, DType)]
        if strangers:
            raise TypeError(f"{self._purpose}: a case is for DTypes, not for {strangers[0]!r}")
        return self._declare(", ".join(t.name for t in chosen), chosen, handler)

    def when_int(self, handler: Handler) -> Self:
        """Declares what is done for the integers that C has: 8 to 64 bits, signed and unsigned.

        >>> DTypeSwitch("bits").when_int(lambda t: t.width)(DType.ui32)
        32
        """
        chosen = [t for t in self._types() if t.is_integer() and 8 <= t.width <= 64]
        return self._declare("integers of 8 to 64 bits", chosen, handler)

    def when_fp(self, handler: Handler) -> Self:
        """Declares what is done for the floats that C has, f32 and f64.

        >>> DTypeSwitch("bits").when_fp(lambda t: t.width)(DType.f64)
        64
        """
        return self._declare("f32, f64", [self._kinds(t) for t in (DType.f32, DType.f64)], handler)

    def otherwise(self, handler: Handler) -> Self:
        """Declares what is done for all other types; the last case.

        >>> DTypeSwitch("a").when(DType.f32, lambda t: 1).otherwise(lambda t: 0)(DType.si4)
        0
        """
        self._declare("all others", self._types(), handler)
        return self

    def _types(self) -> list[DType]:
        """All types there are."""
        return [self._kinds(code) for code in range(256) if self._kinds.is_valid(code)]

    def _declare(self, case: str, types: list[DType], handler: Handler) -> Self:
        """Adds a case."""
        if not callable(handler):
            raise TypeError(
                f"{self._purpose}: the handler of {case} is a function, not {handler!r}"
            )
        new = {t.value: handler for t in types if t.value not in self._handlers}
        if not new:
            raise ValueError(
                f"{self._purpose}: the case for {case} is never reached: "
                f"{'earlier ones took all of its types' if types else 'it is for no type'}"
            )
        self._handlers |= new
        self._cases.append(case)
        return self

    def __call__(self, dtype: DType, *args: Any, **kwargs: Any) -> Any:
        """What the handler of a type answers.

        Raises:
            TypeError: No case fits, or ``dtype`` is no `DType`.
        """
        if not isinstance(dtype, DType):
            raise TypeError(f"{self._purpose}: expected a DType, got {dtype!r}")
        handler = self._handlers.get(dtype.value)
        if handler is None:
            cases = ", ".join(self._cases) or "nothing"
            raise TypeError(
                f"{self._purpose}: there is no case for {dtype.name}; there are cases for {cases}"
            )
        return handler(dtype, *args, **kwargs)

    def lookup(
        self, codes: npt.ArrayLike, dtype: npt.DTypeLike | None = None, *args: Any
    ) -> npt.NDArray[Any]:
        """The answers for an array of codes; a handler is called once per type.

        Args:
            codes: Bytes, of any shape.
            dtype: The NumPy dtype of the answers; by default the one that they fit.
            *args: What the handlers are called with besides the type.

        Returns:
            An array of the shape of ``codes``.

        Raises:
            TypeError: There is no case for one of the types, or the codes are no bytes.
            ValueError: One of the codes is no type.

        >>> bits = DTypeSwitch("bits").when_int(lambda t: t.width).when_fp(lambda t: -t.width)
        >>> bits.lookup([81, 134, 81])
        array([-32,   8, -32])
        """
        given = np.asarray(codes)
        if given.size and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() > 255):
            raise TypeError(f"{self._purpose}: codes of element types are bytes, not {codes!r}")
        given = given.astype(np.uint8)
        present = np.flatnonzero(np.bincount(given.ravel(), minlength=256))
        answers = np.array([self(self._kinds(int(code)), *args) for code in present], dtype)
        place = np.zeros(256, np.intp)
        place[present] = np.arange(len(present))
        return answers[place[given]]


def dispatch(purpose: str, kinds: type[DType] = DType) -> DTypeSwitch:
    """A switch by element type, to which cases are added.

    Args:
        purpose: What is done, for the error of a type that has no case.
        kinds: `DType`, or the subclass whose extended types have cases too.

    >>> dispatch("sign").when_int(lambda t: t.name[0]).otherwise(lambda t: "-")(DType.f16)
    '-'
    """
    return DTypeSwitch(purpose, kinds)


_FIELDS = {
    "is_integer": DType.is_integer,
    "is_signed_integer": DType.is_signed_integer,
    "is_float": DType.is_float,
    "is_complex": DType.is_complex,
    "is_bool": DType.is_bool,
    "is_extended": DType.is_extended,
}


@functools.cache
def code_table(kinds: type[DType] = DType) -> npt.NDArray[Any]:
    """What each of the 256 codes is, for arrays of codes.

    Args:
        kinds: `DType`, or a subclass.

    Returns:
        A read-only structured array of shape ``(256,)``: ``valid``, ``width`` (bits, -1 where
        not known), and the answers of the predicates of `DType`, all false where not valid.

    >>> codes = np.array([DType.f32, DType.si4, DType.kBool], np.uint8)
    >>> code_table()["width"][codes], code_table()["is_integer"][codes]
    (array([32,  4,  8], dtype=int16), array([False,  True, False]))
    """
    table = np.zeros(256, [("valid", "?"), ("width", "i2"), *((name, "?") for name in _FIELDS)])
    table["width"] = -1
    for code in filter(kinds.is_valid, range(256)):
        dtype = kinds(code)
        answers = (predicate(dtype) for predicate in _FIELDS.values())
        table[code] = (True, dtype.width, *answers)
    table.flags.writeable = False
    return table
