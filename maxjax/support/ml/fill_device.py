# SPDX-License-Identifier: Apache-2.0
"""`maxjax.support.ml.fill` on devices, for `jax.Array`.

Arrays do not change: each function gives a new one, made where the given one is, shard by shard,
without a copy of it on the host. Elements are those that `fill` writes: `fill_random` with the
same seed gives the same ones, but for the last bit of floats between bounds that are no powers
of two.

It is a module of its own so that `maxjax.support.ml` does without JAX.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.support.ml import fill
from maxjax.support.ml.draws import Draw, key_of, plan
from maxjax.support.ml.dtype import DType

__all__ = ["fill_homogeneous", "fill_random", "get_scalar_negative_one", "get_scalar_one"]


def get_scalar_one(dtype: Any, device: Any = None) -> Any:
    """A single 1 on a device.

    Args:
        dtype: The element type, or what `DType.of` takes.
        device: A device or sharding; JAX's default if left out.

    Returns:
        A ``jax.Array`` of shape ``()``.

    Raises:
        TypeError: The type has no 1.
        ValueError: JAX has no such type.

    >>> get_scalar_one(DType.bf16)
    Array(1, dtype=bfloat16)
    """
    return _scalar(fill.get_scalar_one, dtype, device)


def get_scalar_negative_one(dtype: Any, device: Any = None) -> Any:
    """A single -1 on a device; for unsigned integers, all bits.

    Args:
        dtype: The element type, or what `DType.of` takes.
        device: A device or sharding; JAX's default if left out.

    Returns:
        A ``jax.Array`` of shape ``()``.

    Raises:
        TypeError: The type has no -1.
        ValueError: JAX has no such type.

    >>> get_scalar_negative_one("ui8")
    Array(255, dtype=uint8)
    """
    return _scalar(fill.get_scalar_negative_one, dtype, device)


def fill_homogeneous(array: jax.Array, element: Any) -> jax.Array:
    """An array like another, with one element over and over.

    Args:
        array: What shape, type and place are taken from.
        element: A number, or the bytes of one.

    Raises:
        TypeError: ``array`` is no array of JAX, or its elements take less than a byte.
        ValueError: The element is not one of its type.

    >>> fill_homogeneous(jnp.zeros((2, 3), jnp.int16), -7)
    Array([[-7, -7, -7],
           [-7, -7, -7]], dtype=int16)
    """
    _check(array)
    one = np.zeros((), array.dtype)
    fill.fill_homogeneous(one, element)
    with jax.enable_x64(True):
        return _full(array.shape, array.sharding)(one)


def fill_random(
    array: jax.Array,
    *,
    low: float | None = None,
    high: float | None = None,
    probability: float = 0.5,
    seed: int = 0,
) -> jax.Array:
    """An array like another, of random elements.

    Args:
        array: What shape, type and place are taken from.
        low: By default -10 for signed integers, 0 for unsigned ones, -1 for floats.
        high: The highest integer, by default 10; what floats are below, by default 1.
        probability: How often a bool is true.
        seed: Any integer.

    Raises:
        TypeError: ``array`` is no array of JAX, or not one of bools or numbers of a byte or
            more; a bound is no number.
        ValueError: A bound is beyond the type, or there is no number between them.

    >>> fill_random(jnp.zeros(6, jnp.int8), low=1, high=3, seed=7)
    Array([3, 2, 2, 2, 2, 1], dtype=int8)
    """
    kind = _check(array)
    draw = plan(kind, low, high, probability)
    key = np.uint64(key_of(seed))
    with jax.enable_x64(True):
        return _random(array.shape, array.sharding, draw, kind.is_complex())(key)


def _check(array: Any) -> DType:
    """The element type of what is to be filled.

    Raises:
        TypeError: It is no array of JAX, or one of keys.
    """
    if not isinstance(array, jax.Array):
        raise TypeError(f"expected a jax.Array, got {type(array).__name__}; fill writes to memory")
    if not isinstance(array.dtype, np.dtype):
        raise TypeError(f"an array of {array.dtype} holds keys, not elements")
    return DType.of(array.dtype)


def _scalar(write: Any, dtype: Any, device: Any) -> jax.Array:
    value = np.zeros((), (dtype if isinstance(dtype, DType) else DType.of(dtype)).np)
    write(value)
    with jax.enable_x64(True):
        return jax.device_put(value, device)


@functools.lru_cache(maxsize=64)
def _full(shape: tuple[int, ...], sharding: jax.sharding.Sharding) -> Any:
    """The program that repeats an element; one per shape and place."""
    return jax.jit(lambda one: jnp.broadcast_to(one, shape), out_shardings=sharding)


@functools.lru_cache(maxsize=64)
def _random(
    shape: tuple[int, ...], sharding: jax.sharding.Sharding, draw: Draw, is_complex: bool
) -> Any:
    """The program that makes random elements; one per shape, place and kind of number."""

    def make(key: jax.Array) -> jax.Array:
        # The position of each element; a dim at a time, so that each shard counts its own.
        index = jnp.zeros(shape, np.uint64)
        stride = 1
        for axis in reversed(range(len(shape))):
            index += jax.lax.broadcasted_iota(np.uint64, shape, axis) * np.uint64(stride)
            stride *= shape[axis]
        if is_complex:
            real, imaginary = (draw(key, index * np.uint64(2) + np.uint64(i)) for i in (0, 1))
            return jax.lax.complex(real, imaginary)
        drawn = draw(key, index)
        return drawn.astype(np.bool_) if draw.kind == "bool" else drawn

    return jax.jit(make, out_shardings=sharding)
