# SPDX-License-Identifier: Apache-2.0
"""Types: construction, value equality, derived types, and text both ways."""

import copy
import dataclasses
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxjax import driver
from maxjax.dtype import DType
from maxjax.graph.dim import Dim
from maxjax.graph.shape import Shape
from maxjax.graph.type import (
    BufferType,
    ConvInputLayout,
    DeviceRef,
    FilterLayout,
    TensorType,
    Type,
    parse_type,
)

CPU, GPU = DeviceRef.CPU(), DeviceRef.GPU()
F32 = DType.float32
x = Dim("x")


def test_parts():
    type = TensorType(F32, ("x", 3), driver.CPU())
    assert (type.dtype, type.shape, type.device, type.rank) == (F32, ["x", 3], CPU, 2)
    assert isinstance(type.shape, Shape) and isinstance(type, Type)
    assert [p.name for p in BufferType(F32, [x + "y", 2], GPU).parameters] == ["x", "y"]


def test_the_shape_is_a_copy():
    dims = Shape([2, 3])
    type = TensorType(F32, dims, CPU)
    dims.append(x)
    assert type.shape == [2, 3]


@pytest.mark.parametrize("kind", [TensorType, BufferType])
def test_refused_parts(kind):
    with pytest.raises(TypeError, match=r"the dtype of a type is a DType, .* not str 'float32'"):
        kind("float32", [2], CPU)
    with pytest.raises(TypeError, match=r"shape \[2, -3\] has the negative size -3"):
        kind(F32, [2, -3], CPU)
    with pytest.raises(TypeError, match="a dim is made from an int, a name or a Dim"):
        kind(F32, [1.5], CPU)
    for device in ("cpu", None):
        with pytest.raises(TypeError, match=r"expected a DeviceRef or a driver Device, not \w+ "):
            kind(F32, [2], device)


def test_equality_is_by_value():
    type = TensorType(F32, [2, "x"], CPU)
    assert type == TensorType(F32, [2, x], CPU) and hash(type) == hash(TensorType(F32, [2, x], CPU))
    for other in (
        TensorType(DType.int8, [2, "x"], CPU),
        TensorType(F32, ["x", 2], CPU),
        TensorType(F32, [2, "x"], GPU),
        TensorType(F32, [2, "x"], CPU, FilterLayout.RSCF),
        BufferType(F32, [2, "x"], CPU),
        (F32, [2, "x"], CPU),
        None,
    ):
        assert type != other and other != type
    assert TensorType(F32, [x + 1], CPU) == TensorType(F32, [1 + x], CPU)


def test_equality_and_hash_follow_a_changed_shape():
    a, b = TensorType(F32, [2], CPU), TensorType(F32, [2], CPU)
    b.shape[0] = Dim(5)
    assert a != b
    a.shape[0] = Dim(5)
    assert a == b and hash(a) == hash(b)


def test_a_subclass_is_another_type():
    class Special(TensorType):
        pass

    assert Special(F32, [2], CPU) != TensorType(F32, [2], CPU) == TensorType(F32, [2], CPU)


def test_derived_types():
    type = TensorType(F32, [2, "x"], GPU)
    assert type.cast(DType.int8) == TensorType(DType.int8, [2, "x"], GPU)
    assert type.as_buffer() == BufferType(F32, [2, "x"], GPU)
    assert type.as_buffer().as_tensor() == type
    assert type.as_buffer().cast(DType.bool) == BufferType(DType.bool, [2, "x"], GPU)
    assert not hasattr(type, "as_tensor") and not hasattr(type.as_buffer(), "as_buffer")
    derived = type.as_buffer()
    derived.shape[0] = Dim(9)
    assert type.shape == [2, "x"]


def test_num_elements():
    assert TensorType(F32, [2, 3, 4], CPU).num_elements() == 24
    assert TensorType(F32, [], CPU).num_elements() == 1
    assert BufferType(F32, [5, 0], CPU).num_elements() == 0
    with pytest.raises(RuntimeError, match=r"f32\[x, 3\] has no number of elements before"):
        TensorType(F32, ["x", 3], CPU).num_elements()


def test_trusted_parts_make_the_same_type():
    for kind in (TensorType, BufferType):
        made = kind._of(F32, Shape([2, "x"]), GPU)
        assert type(made) is kind and made == kind(F32, [2, "x"], GPU)
        assert str(made) == str(kind(F32, [2, "x"], GPU))


def test_copies():
    type = TensorType(F32, [2, x // 2], GPU, FilterLayout.FCRS)
    for other in (copy.deepcopy(type), pickle.loads(pickle.dumps(type))):
        assert other == type and other.shape is not type.shape
    assert dataclasses.replace(type, dtype=DType.int8).dtype is DType.int8
    match type:
        case TensorType(dtype, shape, device):
            assert (dtype, shape, device) == (F32, [2, x // 2], GPU)


def test_types_have_no_other_attributes():
    with pytest.raises(AttributeError):
        TensorType(F32, [2], CPU).rnak = 3  # type: ignore[attr-defined]


def test_generic():
    assert Type[int] is not None


# ---- text


@pytest.mark.parametrize(
    ("type", "text", "brief", "representation"),
    [
        (
            TensorType(F32, ["batch", 3], CPU),
            "!mo.tensor<[batch, 3], f32>",
            "f32[batch, 3]",
            "TensorType(float32, [batch, 3], cpu:0)",
        ),
        (
            TensorType(DType.bfloat16, [], DeviceRef.GPU(2)),
            "!mo.tensor<[], bf16, gpu:2>",
            "bf16[] gpu:2",
            "TensorType(bfloat16, [], gpu:2)",
        ),
        (
            BufferType(DType.int64, [(x + 7) // 8, 4], DeviceRef.CPU(1)),
            "!mo.buffer<[(x + 7) // 8, 4], si64, cpu:1>",
            "si64[(x + 7) // 8, 4] cpu:1",
            "BufferType(int64, [(x + 7) // 8, 4], cpu:1)",
        ),
        (
            TensorType(F32, [1, 1, 1, 1], GPU, FilterLayout.RSCF),
            "!mo.tensor<[1, 1, 1, 1], f32, gpu:0, RSCF>",
            "f32[1, 1, 1, 1] gpu:0",
            "TensorType(float32, [1, 1, 1, 1], gpu:0)",
        ),
    ],
)
def test_text(type, text, brief, representation):
    assert (str(type), type.brief(), repr(type)) == (text, brief, representation)
    assert parse_type(text) == type


types = st.builds(
    lambda kind, dtype, shape, device: kind(dtype, shape, device),
    st.sampled_from([TensorType, BufferType]),
    st.sampled_from(list(DType)),
    st.lists(st.sampled_from([0, 7, "n", x * 2 + 1, (x + 1) // Dim("y")]), max_size=4),
    st.builds(DeviceRef, st.sampled_from(["cpu", "gpu"]), st.integers(0, 12)),
)


@settings(max_examples=200, deadline=None)
@given(types)
def test_text_reads_back(type):
    assert parse_type(str(type)) == type


def test_text_with_other_spaces():
    assert parse_type(" !mo.tensor< [x ,2],f32 ,gpu:1 > ") == TensorType(
        F32, ["x", 2], DeviceRef.GPU(1)
    )
    assert parse_type("!mo.buffer<[2], f32, cpu:0>") == BufferType(F32, [2], CPU)


@pytest.mark.parametrize(
    ("text", "problem", "column"),
    [
        ("", "expected '!mo.tensor<' or '!mo.buffer<'", 1),
        ("  tensor<[2], f32>", "expected '!mo.tensor<' or '!mo.buffer<'", 3),
        ("!mo.tensor<2, f32>", "expected a shape in brackets", 12),
        ("!mo.tensor<[2, f32>", "expected a shape in brackets", 12),
        ("!mo.tensor<[2, 3x], f32>", "expected an operator or the end, found 'x'", 17),
        ("!mo.tensor<[2]>", "expected ',' and a dtype", 15),
        ("!mo.tensor<[2], f33>", "no DType has the MLIR name 'f33'", 17),
        ("!mo.tensor<[2], f32, tpu:0>", "unexpected 'tpu:0'", 22),
        ("!mo.tensor<[2], f32, gpu:0, XYZ>", "unexpected 'XYZ'", 29),
        ("!mo.buffer<[2], f32, RSCF>", "unexpected 'RSCF'", 22),
        ("!mo.tensor<[2], f32", "expected ',' or a final '>'", 20),
        ("!mo.tensor<[2], f32> x", "expected ',' or a final '>'", 20),
        ("!mo.tensor<[-2], f32>", r"shape \[-2\] has the negative size -2", 12),
    ],
)
def test_bad_text(text, problem, column):
    with pytest.raises(ValueError, match=f"cannot read .*{problem}.* at column {column}$"):
        parse_type(text)
    with pytest.raises(ValueError, match=f"at column {column + 10}$"):
        parse_type(text, column=11)


def test_layouts():
    assert [layout.value for layout in FilterLayout] == ["RSCF", "QRSCF", "FCRS", "FCQRS", "CFRS"]
    assert [layout.value for layout in ConvInputLayout] == ["NHWC", "NCHW"]
