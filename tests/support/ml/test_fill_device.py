# SPDX-License-Identifier: Apache-2.0
"""Filling on devices gives what filling memory gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from maxjax.support.ml import DType, fill, fill_device

TYPES = [
    DType.parse(name)
    for name in (
        *("si8", "ui8", "si16", "ui16", "si32", "ui32", "si64", "ui64", "bool"),
        *("f8e8m0fnu", "f8e3m4", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"),
        *("f16", "bf16", "f32", "f64", "complex_f32", "complex_f64"),
    )
]


def zeros(dtype, shape=(5, 7)):
    with jax.enable_x64(True):
        return jax.device_put(np.zeros(shape, dtype.np))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_same_random_numbers(dtype) -> None:
    host = np.zeros((5, 7), dtype.np)
    fill.fill_random(host, seed=11)
    device = fill_device.fill_random(zeros(dtype), seed=11)
    assert device.dtype == dtype.np and device.shape == (5, 7)
    assert np.asarray(device).tobytes() == host.tobytes()
    again = fill_device.fill_random(zeros(dtype), seed=12)
    assert np.asarray(again).tobytes() != host.tobytes()


@pytest.mark.parametrize(
    ("dtype", "bounds"),
    [
        ("si8", {"low": -128, "high": 127}),
        ("ui64", {"low": 3, "high": 2**64 - 1}),
        ("si64", {"low": -(2**40), "high": 2**50}),
        ("bool", {"probability": 0.1}),
    ],
)
def test_the_same_integers_between_bounds(dtype, bounds) -> None:
    kind = DType.parse(dtype)
    host = np.zeros(1000, kind.np)
    fill.fill_random(host, **bounds)
    assert np.array_equal(fill_device.fill_random(zeros(kind, 1000), **bounds), host)


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f8e4m3fn"])
def test_floats_between_bounds(dtype) -> None:
    kind = DType.parse(dtype)
    host = np.zeros(10_000, kind.np)
    fill.fill_random(host, low=0.1, high=0.7)
    device = np.asarray(fill_device.fill_random(zeros(kind, 10_000), low=0.1, high=0.7))
    ours, theirs = device.astype(np.float64), host.astype(np.float64)
    assert ours.min() >= 0.1 and ours.max() < 0.7
    np.testing.assert_allclose(ours, theirs, rtol=float(jnp.finfo(kind.np).eps))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_one_element(dtype) -> None:
    got = fill_device.fill_homogeneous(zeros(dtype), 1)
    host = np.zeros((5, 7), dtype.np)
    fill.fill_homogeneous(host, 1)
    assert got.dtype == dtype.np and np.asarray(got).tobytes() == host.tobytes()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_scalars(dtype) -> None:
    if dtype is not DType.f8e8m0fnu:
        one = np.zeros((), dtype.np)
        fill.get_scalar_one(one)
        got = fill_device.get_scalar_one(dtype)
        assert got.dtype == dtype.np and np.asarray(got).tobytes() == one.tobytes()
    with pytest.raises(TypeError, match="has no -1"):
        fill_device.get_scalar_negative_one("bool")


def test_arrays_stay_where_they_are() -> None:
    mesh = jax.make_mesh((4,), ("x",))
    place = NamedSharding(mesh, PartitionSpec(None, "x"))
    array = jax.device_put(np.zeros((3, 8), np.float32), place)
    for got in (fill_device.fill_random(array, seed=2), fill_device.fill_homogeneous(array, 2.0)):
        assert got.sharding.is_equivalent_to(place, 2)
        assert {s.data.shape for s in got.addressable_shards} == {(3, 2)}
    host = np.zeros((3, 8), np.float32)
    fill.fill_random(host, seed=2)
    assert np.array_equal(fill_device.fill_random(array, seed=2), host)
    second = jax.devices()[1]
    moved = jax.device_put(np.zeros(3, np.int8), second)
    assert fill_device.fill_random(moved).devices() == {second}
    assert fill_device.get_scalar_one("f32", second).devices() == {second}
    assert not array.is_deleted() and not np.asarray(array).any()


def test_empty_and_scalar_arrays() -> None:
    assert fill_device.fill_random(jnp.zeros((0, 3))).shape == (0, 3)
    assert fill_device.fill_random(jnp.zeros(())).shape == ()
    assert float(fill_device.fill_homogeneous(jnp.zeros(()), 2.5)) == 2.5


def test_bad_input() -> None:
    for bad in (np.zeros(3), [1.0], None):
        with pytest.raises(TypeError, match=r"expected a jax\.Array, got"):
            fill_device.fill_random(bad)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="holds keys, not elements"):
        fill_device.fill_random(jax.random.key(0))
    with pytest.raises(ValueError, match="300 is no si8"):
        fill_device.fill_homogeneous(jnp.zeros(3, "int8"), 300)
    with pytest.raises(ValueError, match="the bounds of random si8"):
        fill_device.fill_random(jnp.zeros(3, "int8"), high=300)
    with pytest.raises(TypeError, match="si4 takes 4 bits"):
        fill_device.fill_homogeneous(jnp.zeros(3, "int4"), b"1")
    with pytest.raises(TypeError, match="random elements are"):
        fill_device.fill_random(jnp.zeros(3, "int4"))
    with pytest.raises(ValueError, match="neither NumPy nor ml_dtypes has si128"):
        fill_device.get_scalar_one("si128")
