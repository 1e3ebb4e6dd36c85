# SPDX-License-Identifier: Apache-2.0
"""Buckets: inputs are padded to a few sizes, so that a few programs serve all sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from maxjax.engine.programs import Programs, Shapes
from maxjax.lower import Function, LoweredFunction
from maxjax.lower.padding import padding

__all__ = ["Bucket", "Buckets", "Plan", "next_size"]

# "pow2", or the sizes there are programs for.
Bucket: TypeAlias = Literal["pow2"] | Iterable[int]


def next_size(bucket: Bucket, n: int) -> int:
    """The size that ``n`` is padded to; ``n`` itself where no bucket is as large, and for 0.

    >>> [next_size("pow2", n) for n in (1, 2, 3, 5, 9)]
    [1, 2, 4, 8, 16]
    >>> [next_size((8, 32), n) for n in (1, 8, 9, 33)]
    [8, 8, 32, 33]
    """
    if n < 1:
        return n
    if bucket == "pow2":
        return 1 << (n - 1).bit_length()
    return min((b for b in bucket if b >= n), default=n)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a call is padded.

    Attributes:
        shapes: The shape of each input with padding.
        real: The real shape of each output.
    """

    shapes: Shapes
    real: Shapes

    def pad(self, arrays: Sequence[Any], on_host: bool) -> list[Any]:
        """The arrays with zeros behind them; those that need none as they are."""
        return [
            a if tuple(a.shape) == shape else _padded(a, shape, on_host)
            for a, shape in zip(arrays, self.shapes, strict=True)
        ]

    def cut(self, outputs: Sequence[jax.Array], on_host: bool) -> list[Any]:
        """The real parts of the outputs; on the host those that were cut are NumPy arrays."""
        return [
            a if a.shape == shape else _cut(a, shape, on_host)
            for a, shape in zip(outputs, self.real, strict=True)
        ]


# On the host NumPy pads and cuts: XLA would compile a program for each size.


def _part(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple([slice(n) for n in shape])


def _padded(array: Any, shape: tuple[int, ...], on_host: bool) -> Any:
    if not on_host and isinstance(array, jax.Array):
        behind = [(0, n - m, 0) for n, m in zip(shape, array.shape, strict=True)]
        return jax.lax.pad(array, np.zeros((), array.dtype), behind)
    result = np.zeros(shape, array.dtype)
    result[_part(array.shape)] = np.asarray(array)
    return result


def _cut(array: jax.Array, shape: tuple[int, ...], on_host: bool) -> Any:
    if not on_host:
        return jax.lax.slice(array, (0,) * len(shape), shape)
    # A copy, because the memory of a result can be written.
    return np.asarray(array)[_part(shape)].copy()


class Buckets:
    """The buckets of a model.

    Args:
        function: A graph that padding leaves the results of as they are.
        buckets: For names of dimensions of its inputs ``"pow2"``, or sizes.

    Raises:
        TypeError: If ``buckets`` is no mapping, or a bucket neither the word nor numbers.
        ValueError: If padding might change results (the op is named), a name is unknown, or a size
            is less than 1.
    """

    def __init__(self, function: Function, buckets: Mapping[str, Bucket]) -> None:
        rules = _checked(buckets)
        if not isinstance(function, LoweredFunction):
            raise ValueError(
                f"model {function.signature.name!r} is an artifact, which is not padded: its ops "
                "are compiled already; load its graph with buckets=..., or save it with "
                "specialize=..."
            )
        self._function = function
        self._proof = padding(function, rules)
        self._rules: dict[str, Bucket] = {}
        for name, rule in rules.items():
            known = self._rules.setdefault(self._proof.dims[name], rule)
            if known != rule:
                raise ValueError(
                    f"graph {function.signature.name!r} needs {name!r} to be equal to another "
                    f"dimension in buckets, so they need the same sizes, not {known} and {rule}"
                )
        self._plans: dict[Shapes, Plan | None] = {}

    def forget(self) -> None:
        """Drops what was found out so far, as when weights have other sizes."""
        self._plans.clear()

    def plan(self, shapes: Shapes, programs: Programs) -> Plan | None:
        """How a call with inputs of these shapes is padded; None if it runs as it is.

        Raises:
            ValueError: If a shape is not as declared, or a symbolic name has two sizes.
        """
        try:
            return self._plans[shapes]
        except KeyError:
            plan = self._plans[shapes] = self._planned(dict(programs.sizes(shapes)))
            return plan

    def _planned(self, sizes: dict[str, int]) -> Plan | None:
        proof = self._proof
        # By JAX's names; those that are computed from others are none of them.
        real = {s.text: sizes[name] for name, s in proof.sizes.items() if s.text in s.names}
        padded = {n: next_size(self._rules[n], m) if n in self._rules else m
                  for n, m in real.items()}  # fmt: skip
        larger = {name: s.at(padded) for name, s in proof.sizes.items()}
        if larger == sizes or not (
            proof.holds(sizes) and proof.holds(larger) and proof.may_become(real, padded)
        ):
            return None
        return Plan(
            tuple(t.shape.evaluate(larger) for t in self._function.signature.inputs),
            tuple(tuple(n.at(real) for n in shape) for shape in proof.outputs),
        )


def _checked(buckets: Any) -> dict[str, Bucket]:
    if not isinstance(buckets, Mapping) or not buckets:
        raise TypeError(
            f'buckets are a mapping such as {{"batch": "pow2"}} or {{"batch": [1, 8, 32]}}, not '
            f"{buckets!r:.60}"
        )
    return {str(name): _rule(name, bucket) for name, bucket in buckets.items()}


def _rule(name: Any, bucket: Any) -> Bucket:
    if bucket == "pow2":
        return "pow2"
    if isinstance(bucket, str) or not isinstance(bucket, Iterable):
        raise TypeError(f'the buckets of {name!r} are "pow2" or sizes, not {bucket!r:.60}')
    sizes = list(bucket)
    for n in sizes:
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
            raise ValueError(f"a bucket of {name!r} is a number from 1 up, not {n!r:.60}")
    if not sizes:
        raise ValueError(f"{name!r} has no buckets; leave it out")
    return tuple(sorted({int(n) for n in sizes}))
