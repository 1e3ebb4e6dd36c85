# SPDX-License-Identifier: Apache-2.0
"""Shapes and specs in YAML: plain scalars, and errors that keep what parsing said."""

import itertools

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from maxjax.support.ml import (
    DType,
    NamedSpec,
    TensorRankStyle,
    TensorShape,
    TensorSpec,
    yaml_loader,
)

EDGES = [-1, 0, 1, 127, 128, 32767, 32768, 2**31 - 1, 2**31, 2**62]
DYNAMIC = TensorShape(TensorRankStyle.kDynamicallyRanked)
DUMPERS = [yaml.SafeDumper, yaml.Dumper]
LOADERS = [yaml.SafeLoader, yaml.FullLoader, yaml.Loader]
if yaml.__with_libyaml__:
    DUMPERS += [yaml.CSafeDumper, yaml.CDumper]
    LOADERS += [yaml.CSafeLoader, yaml.CFullLoader, yaml.CLoader]


@pytest.mark.parametrize("dumper", DUMPERS)
@pytest.mark.parametrize(
    ("value", "line"),
    [
        (TensorShape([1, 256, 256, 3]), "v: 1x256x256x3"),
        (TensorShape([None, 3]), "v: ?x3"),
        (TensorShape([0, 0xAB]), "v: 0x171"),
        (TensorSpec([1, 2, 3, 4], "bf16"), "v: 1x2x3x4xbf16"),
        (TensorSpec([], "bool"), "v: bool"),
        (TensorSpec([2], "complex_f32"), "v: 2xcomplex_f32"),
        (TensorSpec([None], "f32"), "v: ?xf32"),
        (TensorSpec([0, 10], "f32"), "v: 0x10xf32"),
        (NamedSpec(["batch", 128], "f32"), "v: batchx128xf32"),
        (NamedSpec(["2*batch + 1", "maxlen"], "f32"), "v: (2*batch + 1)x(maxlen)xf32"),
        (DType.si8, "v: si8"),
    ],
)
def test_plain_scalars(dumper, value, line) -> None:
    quoted = line == "v: 0x171"  # a hexadecimal number to YAML: see below
    text = yaml.dump({"v": value}, Dumper=dumper)
    assert text == ("v: '0x171'\n" if quoted else line + "\n")
    assert type(value).parse(yaml.safe_load(text)["v"]) == value
    assert yaml.load(line, Loader=yaml_loader(v=type(value)))["v"] == value


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (TensorShape([]), "''"),
        (TensorShape([3]), "'3'"),
        (TensorShape([0, 10]), "'0x10'"),
        (TensorShape([None]), "'?'"),
        (DYNAMIC, "'*'"),
    ],
)
def test_quotes_where_yaml_would_read_something_else(shape, text) -> None:
    assert yaml.safe_dump({"shape": shape}) == f"shape: {text}\n"
    assert TensorShape.parse(yaml.safe_load(text)) == shape


def test_every_shape_of_rank_two_comes_back() -> None:
    shapes = [TensorShape(d) for r in range(3) for d in itertools.product(EDGES, repeat=r)]
    back = yaml.safe_load(yaml.safe_dump([*shapes, DYNAMIC]))
    assert [TensorShape.parse(s) for s in back] == [*shapes, DYNAMIC]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(EDGES), max_size=8))
def test_round_trips(dims) -> None:
    shape, spec = TensorShape(dims), TensorSpec(dims, "complex_f32")
    named = NamedSpec(["n" if d == 127 else d for d in dims], "f32")
    values = {"shape": shape, "spec": spec, "named": named}
    text = yaml.safe_dump(values)
    for key, value in yaml.safe_load(text).items():
        assert isinstance(value, str) and type(values[key]).parse(value) == values[key]
    loader = yaml_loader(shape=TensorShape, spec=TensorSpec, named=NamedSpec)
    assert yaml.load(text, Loader=loader) == values


@pytest.mark.parametrize("loader", LOADERS)
def test_tags_give_types(loader) -> None:
    text = "[!TensorShape 0x10, !TensorShape '', !TensorSpec 4xf32, !NamedSpec bx4xf32, !DType f32]"
    assert yaml.load(text, Loader=loader) == [
        TensorShape([0, 10]),
        TensorShape([]),
        TensorSpec([4], "f32"),
        NamedSpec(["b", 4], "f32"),
        DType.f32,
    ]
    with pytest.raises(ValueError, match="the piece '2y'"):
        yaml.load("!TensorShape 1x2y", Loader=loader)


def test_a_typed_loader_reads_the_text() -> None:
    loader = yaml_loader(shape=TensorShape, inputs=TensorSpec)
    text = """
    shape: 0x10
    inner: {shape: 3, other: 3}
    list: [{shape: }, {shape: ''}]
    inputs: [4xf32, [bf16]]
    base: &b 4
    again: {shape: *b}
    """
    assert yaml.load(text, Loader=loader) == {
        "shape": TensorShape([0, 10]),
        "inner": {"shape": TensorShape([3]), "other": 3},
        "list": [{"shape": TensorShape([])}, {"shape": TensorShape([])}],
        "inputs": [TensorSpec([4], "f32"), [TensorSpec([], "bf16")]],
        "base": 4,
        "again": {"shape": TensorShape([4])},
    }
    # It changes no other loader.
    assert yaml.safe_load("shape: 0x10") == {"shape": 16}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nshape: 1x2y", r"the piece '2y' \(bytes 32 79\) at byte 2: a dim is a number or \?"),
        ("a: 1\nshape: 1x2x", r"the piece '' \(empty\) at byte 4"),
        ("a: 1\nshape: ~", "the piece '~'"),
        ("a: 1\nshape: {a: 1}", "expected the text of a TensorShape, found a MappingNode"),
        ("a: 1\nshape: -3", "a dim is not negative"),
        ("a: 1\ninputs: [4xf32, 4xf33]", "the piece 'f33'"),
    ],
)
def test_the_error_of_parsing_is_kept(text, said) -> None:
    loader = yaml_loader(shape=TensorShape, inputs=TensorSpec)
    with pytest.raises(ValueError, match=said) as caught:
        yaml.load(text, Loader=loader)
    assert isinstance(caught.value, yaml.YAMLError) and "line 2, column" in str(caught.value)


def test_a_document_can_not_name_the_inner_tags() -> None:
    with pytest.raises(yaml.YAMLError, match="could not determine a constructor"):
        yaml.load("!field%20other 3", Loader=yaml_loader(shape=TensorShape))


class Mine(TensorSpec):
    __slots__ = ()


def test_subclasses_are_written_too() -> None:
    assert yaml.safe_dump([Mine([4], "f32")]) == "- 4xf32\n"
