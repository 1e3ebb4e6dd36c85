# SPDX-License-Identifier: Apache-2.0
"""What is printed for people: every kind of thing, and never all of a large one."""

import io

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import maxjax.dtype
from maxjax.driver import Buffer
from maxjax.support.ml import (
    DType,
    NamedSpec,
    ShapeTable,
    TensorRankStyle,
    TensorShape,
    TensorSpec,
    debug_print,
    debug_string,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (TensorShape([1, None]), "x: shape 1x? (rank 2)"),
        (TensorShape(TensorRankStyle.kDynamicallyRanked), "x: shape * (any rank)"),
        (TensorSpec([2, 3], "bf16"), "x: spec 2x3xbf16 (12 bytes)"),
        (TensorSpec([None], "f32"), "x: spec ?xf32 (size not known)"),
        (TensorSpec([2**62, 2], "f32"), "x: spec 4611686018427387904x2xf32 (no size)"),
        (TensorSpec([], "si8"), "x: spec si8 (1 byte)"),
        (NamedSpec(["batch", 4], "f32"), "x: spec batchx4xf32"),
        (DType.f32, "x: type f32 (32 bits, code 0b01010001)"),
        (DType(2), "x: type extended_2 (unknown width, code 0b00000010)"),
        (ShapeTable([(1, 2)]), "x: table of 1 TensorShape (16 bytes each)\n  ShapeTable(['1x2'])"),
        (np.float32([[1, 2], [3, 4]]), "x: array 2x2xf32 (16 bytes)\n  [[1. 2.]\n   [3. 4.]]"),
        (np.int8(3), "x: array si8 (1 byte)\n  3"),
        (np.zeros(0, np.bool_), "x: array 0xbool (0 bytes)\n  []"),
        (np.array([1.5], ml_dtypes.bfloat16), "x: array 1xbf16 (2 bytes)\n  [1.5]"),
        (np.array(["ab"]), "x: array 1x<U2 (8 bytes)\n  ['ab']"),
        (jnp.arange(3), "x: array 3xsi32 (12 bytes) on cpu:0\n  [0 1 2]"),
        (
            Buffer.zeros([2], maxjax.dtype.DType.float32),
            "x: array 2xf32 (8 bytes) on cpu:0\n  [0. 0.]",
        ),
        ({"a": 1, "b": [TensorShape([2])]}, "x.a: 1\nx.b[0]: shape 2 (rank 1)"),
        ([1, 2], "x: [1, 2]"),
        ({}, "x: empty mapping"),
        ([], "x: []"),
        (None, "x: None"),
    ],
)
def test_each_kind(value, text) -> None:
    assert debug_string(value, "x") == text
    assert debug_string({"a": DType.f32}) == "a: type f32 (32 bits, code 0b01010001)"


def test_it_prints_beside_the_results(capsys) -> None:
    debug_print(TensorShape([2]), "x")
    assert tuple(capsys.readouterr()) == ("", "x: shape 2 (rank 1)\n")
    file = io.StringIO()
    debug_print(TensorShape([2]), file=file)
    assert file.getvalue() == "shape 2 (rank 1)\n"


def test_large_arrays_show_their_corners() -> None:
    array = np.arange(10_000).reshape(100, 100)
    told = debug_string(array)
    assert told.split("\n", 1)[1] == "\n".join("  " + line for line in str(array).splitlines())
    assert told.startswith("array 100x100xsi64 (80000 bytes)\n")
    assert debug_string(np.zeros((1, 10**6))).count("\n") == 1


def test_of_an_array_on_devices_only_the_corners_are_read(monkeypatch) -> None:
    mesh = jax.make_mesh((8,), ("x",))
    host = np.arange(64 * 5120, dtype=np.float32).reshape(64, 5120)
    array = jax.device_put(host, NamedSharding(mesh, PartitionSpec("x")))
    printed = []
    real = np.array2string
    monkeypatch.setattr(np, "array2string", lambda a, **kw: printed.append(a.size) or real(a, **kw))
    told = debug_string(array)
    assert "array 64x5120xf32 (1310720 bytes) on 8 devices" in told and "..." in told
    assert printed == [49]
    assert told.splitlines()[1:] == debug_string(host).splitlines()[1:]


def test_a_deleted_array() -> None:
    array = jnp.zeros(3)
    array.delete()
    assert debug_string(array) == "array 3xf32 (12 bytes)\n  deleted, or given to a program"
