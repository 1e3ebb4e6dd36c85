# SPDX-License-Identifier: Apache-2.0
"""Random numbers: ``ops.random``.

The numbers are a function of the seed and of how many draws came before in the graph, on every
device and any number of them. Bits come from Threefry-2x32 with 20 rounds (Salmon et al.,
"Parallel random numbers: as easy as 1, 2, 3", SC 2011), written here ``T(key, counter)`` on pairs
of 32-bit words. With the seed's high and low word as ``seed``:

- the key of draw c (0, 1, ... after each :func:`set_seed`) is ``T(seed, (0, c))``;
- element i, in row-major order, has the words ``a, b = T(key, (i >> 32, i & 0xffffffff))``; its
  32 bits are ``a ^ b``, its 64 bits ``a << 32 | b``;
- ``u``, in [0, 1), is the top bits times a power of two: as many as the dtype has digits (24 for
  ``float32``), of 64 bits for ``float64`` and of 32 for the others;
- a uniform float is ``low + u * (high - low)``; a uniform integer ``low`` and the remainder of the
  64 bits divided by ``high - low``;
- a normal number is ``mean + std * sqrt(2) * erfinv(v)``, with v in (-1, 1) the odd multiple of
  2**-23 (2**-52 for ``float64``) that the top bits make.

This is the stream of ``jax.random.bits`` for ``jax.random.fold_in(key, c)``. Numbers narrower than
32 bits are computed in ``float32``. What follows the bits is exact for a uniform draw from
``(0, 1)`` and for integers, else up to rounding.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dtype_promotion import weak_dtype
from maxjax.graph.ir import current_graph
from maxjax.graph.op import Op, refused
from maxjax.graph.ops._operands import is_strong, tensor
from maxjax.graph.ops._unary import wide_dtype
from maxjax.graph.ops.cast import convert, transfer_to
from maxjax.graph.ops.constant import literal
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue, TensorValueLike

__all__ = ["SeedType", "assert_scalar", "gaussian", "normal", "set_seed", "uniform"]


def SeedType(device: DeviceRef) -> TensorType:
    """The type of a seed on a device: one ``uint64``, shape ``(1,)``.

    >>> from maxjax.graph import DeviceRef, ops
    >>> ops.random.SeedType(DeviceRef.CPU())
    TensorType(uint64, [1], cpu:0)
    """
    return TensorType(DType.uint64, [1], device)


# ---------------------------------------------------------------- the stream of a graph


@dataclasses.dataclass(slots=True)
class _Stream:
    """A seed that was set, and the number of draws made from it."""

    # Weak, as the value holds its graph: the graph holds the value.
    seed: weakref.ref[TensorValue]
    draws: int = 0


_STREAMS: weakref.WeakKeyDictionary[Any, list[_Stream]] = weakref.WeakKeyDictionary()


def _next_draw(who: str, device: DeviceRef) -> tuple[TensorValue, int]:
    """The seed in force where the graph is being built, and the number of the next draw.

    Raises:
        LookupError: If no graph is being built.
        RuntimeError: If no seed was set in it.
    """
    graph = current_graph(who)
    for stream in reversed(_STREAMS.get(graph, ())):
        seed = stream.seed()
        if seed is not None and graph.block.sees(seed._block):
            draw = stream.draws
            stream.draws += 1
            return _on(seed, device), draw
    raise refused(
        who,
        RuntimeError,
        f"no seed is set in graph {graph.name!r}; call ops.random.set_seed in it first",
    )


def _on(x: TensorValue, device: DeviceRef) -> TensorValue:
    return x if x._type.device == device else transfer_to(x, device)


def _bits(seed: jax.Array, draw: int, shape: Any, dtype: DType) -> jax.Array:
    """The bits of a draw, ``uint32`` or ``uint64``, a number for each element."""
    words = [lax.shift_right_logical(seed, jnp.uint64(32)), seed & jnp.uint64(0xFFFFFFFF)]
    key = lax.concatenate([w.astype(jnp.uint32) for w in words], 0)
    key = jax.random.fold_in(jax.random.wrap_key_data(key, impl="threefry2x32"), draw)
    # With this each element depends on its own position alone, so that any split over devices
    # gives the same numbers; a user may have switched it off.
    with jax.threefry_partitionable(True):
        return jax.random.bits(key, shape, dtype.np)


def _top(bits: jax.Array, digits: int, dtype: DType) -> jax.Array:
    """The top bits as a whole number, exact in the float ``dtype``."""
    width = 8 * bits.dtype.itemsize
    return convert(lax.shift_right_logical(bits, bits.dtype.type(width - digits)), dtype)


def _wide(dtype: DType) -> tuple[DType, DType]:
    """The float dtype in which numbers of ``dtype`` are computed, and that of its bits."""
    wide = DType.of(wide_dtype(dtype.np))
    return wide, DType.uint64 if wide is DType.float64 else DType.uint32


# ---------------------------------------------------------------- ops


class RandomSeed(Op):
    """An integer as a seed."""

    def infer(self, seed: TensorType) -> TensorType:
        if not seed.dtype.is_integral():
            raise ValueError(f"a seed is an integer, not {seed.dtype.name}")
        if list(seed.shape) not in ([], [1]):
            raise ValueError(f"a seed is one number, not {seed.brief()}")
        return SeedType(seed.device)

    def lower(self, seed: jax.Array) -> jax.Array:
        return jnp.reshape(convert(seed, DType.uint64), (1,))


class _Draw(Op, abstract=True):
    """Random numbers of a type; the operands are the seed and two numbers."""

    dtype: DType
    shape: Shape
    device: DeviceRef
    draw: int

    def infer(self, seed: TensorType, a: TensorType, b: TensorType) -> TensorType:
        if self.dtype is DType.bool:
            raise ValueError("there are no random bools; compare random floats, as in u < 0.5")
        names = self.names()
        for name, number in zip(names, (a, b), strict=True):
            if number.shape:
                raise ValueError(f"{name} is a scalar, not {number.brief()}")
            self.check_dtype(name, number.dtype)
        return TensorType._of(self.dtype, self.shape, self.device)

    def names(self) -> tuple[str, str]:
        """What the numbers are called."""
        raise AssertionError

    def check_dtype(self, name: str, dtype: DType) -> None:
        """Refuses a number of another dtype than is needed."""


class RandomUniform(_Draw):
    """Numbers from the first up to the second, which is not included."""

    def names(self) -> tuple[str, str]:
        return "the start of the range", "the end of the range"

    def check_dtype(self, name: str, dtype: DType) -> None:
        if dtype is not self.dtype:
            raise ValueError(f"{name} is {dtype.name}, not {self.dtype.name}; cast it")

    def lower(self, seed: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
        if not self.dtype.is_float():
            return self._integers(seed, low, high)
        wide, word = _wide(self.dtype)
        digits = int(jnp.finfo(self.dtype.np).nmant) + 1
        bits = _bits(seed, self.draw, self.shape, word)
        u = _top(bits, digits, wide) * jnp.asarray(2.0**-digits, wide.np)
        first, last = convert(low, wide), convert(high, wide)
        return convert(first + u * (last - first), self.dtype)

    def _integers(self, seed: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
        # Two's complement: the distance is right also where it is beyond the dtype.
        bits = _bits(seed, self.draw, self.shape, DType.uint64)
        first, last = convert(low, DType.uint64), convert(high, DType.uint64)
        distance = jnp.where(low < high, last - first, jnp.uint64(1))
        return convert(first + bits % distance, self.dtype)


class RandomNormal(_Draw):
    """Normally distributed numbers; the numbers are the mean and the standard deviation."""

    def names(self) -> tuple[str, str]:
        return "the mean", "the standard deviation"

    def lower(self, seed: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
        wide, word = _wide(self.dtype)
        digits = 52 if wide is DType.float64 else 23
        bits = _bits(seed, self.draw, self.shape, word)
        two, one = jnp.asarray(2, wide.np), jnp.asarray(1, wide.np)
        v = (two * _top(bits, digits, wide) + one) * jnp.asarray(2.0**-digits, wide.np) - one
        z = lax.erf_inv(v) * jnp.asarray(np.sqrt(2.0), wide.np)
        return convert(convert(mean, wide) + convert(std, wide) * z, self.dtype)


# ---------------------------------------------------------------- functions


def assert_scalar(value: TensorValueLike) -> None:
    """Refuses what is not a scalar: a number, or of shape ``()``.

    Raises:
        ValueError: If it has dimensions.

    >>> from maxjax.graph import ops
    >>> ops.random.assert_scalar(2.5)
    """
    given: Any = value
    shape = tensor("assert_scalar", given)._type.shape if is_strong(given) else np.shape(given)
    if len(shape):
        sizes = ", ".join(map(str, shape))
        raise refused("assert_scalar", ValueError, f"a scalar is needed, got shape [{sizes}]")


def set_seed(seed: TensorValueLike | int = 0) -> None:
    """Sets the seed of the random numbers drawn after this in the graph being built.

    A seed holds for one graph, not for the graphs it calls; set in a branch or in the body of a
    loop, it holds to the end of that. Setting a seed starts the stream anew. A loop whose seed is
    set outside draws the same numbers in each round: set it inside, from a value that changes.

    Args:
        seed: A number from 0 to 2**64 - 1, or an integer tensor of shape ``()`` or ``(1,)``, whose
            ``int64`` negative numbers are those plus 2**64.

    Raises:
        LookupError: If no graph is being built.
        TypeError: If ``seed`` is neither.
        ValueError: If it is out of range, not an integer, or not one number.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("g", input_types=[TensorType(DType.int64, [], DeviceRef.CPU())]) as g:
    ...     ops.random.set_seed(g.inputs[0].tensor)
    ...     ops.random.uniform(TensorType(DType.float32, [2, 3], DeviceRef.CPU()))
    TensorValue(float32, [2, 3], cpu:0)
    """
    graph = current_graph("set_seed")
    if isinstance(seed, (int, np.integer)):
        if not 0 <= seed < 2**64:
            raise refused("set_seed", ValueError, f"a seed is from 0 to 2**64 - 1, got {seed}")
        value = literal(int(seed), DType.uint64, DeviceRef.CPU())
    else:
        value = tensor("set_seed", seed)
    # A value of its own for each call, made where the seed is set.
    made = RandomSeed()(value)
    _STREAMS.setdefault(graph, []).append(_Stream(weakref.ref(made)))


def _like(who: str, like: TensorType) -> TensorType:
    if not isinstance(like, TensorType):
        raise refused(who, TypeError, f"expected a TensorType, got {like!r:.60}")
    return like


def _check_numbers(who: str, dtype: DType, *numbers: Any) -> None:
    """Refuses Python numbers and arrays that are not scalars which ``dtype`` holds."""
    for number in numbers:
        if not is_strong(number):
            try:
                weak_dtype(number, dtype)
            except TypeError as e:
                raise refused(who, TypeError, str(e)) from None
            except ValueError:
                sentence = f"{number!r:.60} does not fit {dtype.name}"
                raise refused(who, ValueError, sentence) from None
            assert_scalar(number)


def _number(who: str, number: Any, dtype: DType, device: DeviceRef) -> TensorValue:
    """A scalar for a draw on ``device``; a Python number as ``dtype``."""
    if is_strong(number):
        return _on(tensor(who, number), device)
    return literal(number, dtype, device)


def uniform(
    like: TensorType, range: tuple[TensorValueLike, TensorValueLike] = (0, 1)
) -> TensorValue:
    """Random numbers of a type, all equally likely from the start of a range up to its end.

    The end is not included, except where rounding gives it. For integers each one of the range is
    as likely, up to the size of the range divided by 2**64.

    Args:
        like: The type of the result. Its names are those of inputs.
        range: Start and end, numbers or scalars of the dtype of ``like``. Tensors are taken as
            they are; if start is not less than end, integers are all start.

    Returns:
        A tensor of the type ``like``.

    Raises:
        LookupError: If no graph is being built.
        RuntimeError: If no seed was set in it.
        TypeError: If ``like`` is not a ``TensorType``, or a number none.
        ValueError: If there are not two numbers, one is not a scalar or of another dtype, start is
            not less than end, or the type is of bools.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("dice") as g:
    ...     ops.random.set_seed(7)
    ...     ops.random.uniform(TensorType(DType.int32, [10], DeviceRef.CPU()), range=(1, 7))
    TensorValue(int32, [10], cpu:0)
    """
    who = "uniform"
    type_ = _like(who, like)
    if not isinstance(range, (tuple, list)) or len(range) != 2:
        raise refused(who, ValueError, f"a range is a start and an end, got {range!r:.60}")
    low: Any
    high: Any
    low, high = range
    _check_numbers(who, type_.dtype, low, high)
    if not is_strong(low) and not is_strong(high) and not low < high:
        raise refused(who, ValueError, f"the range starts at {low}, not before its end {high}")
    seed, draw = _next_draw(who, type_.device)
    bounds = [_number(who, n, type_.dtype, type_.device) for n in (low, high)]
    return RandomUniform(type_.dtype, type_.shape, type_.device, draw)(seed, *bounds)


def normal(like: TensorType, mean: TensorValueLike = 0, std: TensorValueLike = 1) -> TensorValue:
    """Random numbers of a type with a normal (Gaussian) distribution.

    Of integers the numbers are converted as :func:`~maxjax.graph.ops.cast` does.

    Args:
        like: The type of the result. Its names are those of inputs.
        mean: The mean, a number or a scalar.
        std: The standard deviation, likewise; a number is greater than 0.

    Returns:
        A tensor of the type ``like``.

    Raises:
        LookupError: If no graph is being built.
        RuntimeError: If no seed was set in it.
        TypeError: If ``like`` is not a ``TensorType``, or a number none.
        ValueError: If a number is not a scalar, ``std`` not greater than 0, or the type is of
            bools.

    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("noise") as g:
    ...     ops.random.set_seed(7)
    ...     ops.random.normal(TensorType(DType.bfloat16, [10], DeviceRef.CPU()), std=0.02)
    TensorValue(bfloat16, [10], cpu:0)
    """
    who = "normal"
    type_ = _like(who, like)
    wide, _ = _wide(type_.dtype)
    _check_numbers(who, wide, mean, std)
    deviation: Any = std
    if not is_strong(deviation) and not deviation > 0:
        raise refused(who, ValueError, f"the standard deviation is {std}, not greater than 0")
    seed, draw = _next_draw(who, type_.device)
    numbers = [_number(who, n, wide, type_.device) for n in (mean, std)]
    return RandomNormal(type_.dtype, type_.shape, type_.device, draw)(seed, *numbers)


gaussian = normal
