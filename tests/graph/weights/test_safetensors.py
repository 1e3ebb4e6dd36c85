# SPDX-License-Identifier: Apache-2.0
"""Safetensors files: every element type, views without copies, names, and damage."""

import copy
import json
import struct

import ml_dtypes
import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Weight
from maxjax.graph.quantization import QuantizationEncoding
from maxjax.graph.weights import SafetensorWeights, load_weights
from maxjax.graph.weights.safetensors_file import DTYPES, SafetensorsFile, _parse, content, laid_out

LAYERS = {f"layers.{i}.weight": np.full((2, 3), i, np.float32) for i in (0, 1, 10)}
TENSORS = {**LAYERS, "norm.scale": np.ones(4, np.float16), "ids": np.int64([5, -6, 7])}


def write(path, header, data=b""):
    """A file of that header, which may be wrong in any way."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def tensor(code, shape, begin, end):
    return {"dtype": code, "shape": shape, "data_offsets": [begin, end]}


def raw(buffer: Buffer) -> bytes:
    return buffer.view(DType.of(np.dtype(f"u{buffer.element_size}"))).to_numpy().tobytes()


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file(TENSORS, path)
    return load_weights([path])


# ---------------------------------------------------------------- data


@pytest.mark.parametrize("code", sorted(DTYPES))
def test_every_element_type(tmp_path, code):
    dtype = DTYPES[code]
    # Bytes that differ, and that are 0 or 1 where only these are booleans.
    data = bytes((i % 2 if code == "BOOL" else 17 * i % 256) for i in range(6 * 8))
    data = data[: 6 * dtype.size_in_bits // 8]
    path = write(tmp_path / "m.safetensors", {"w": tensor(code, [2, 3], 0, len(data))}, data)
    with safetensors.safe_open(path, "numpy") as theirs:
        assert theirs.get_slice("w").get_shape() == [2, 3]
    found = load_weights([path]).w.data()
    assert (found.name, found.dtype, found.shape) == ("w", dtype, [2, 3])
    assert found.to_buffer().dtype is dtype
    if code != "F4":
        assert raw(found.to_buffer()) == data


def test_four_bit_numbers_take_a_byte_each(tmp_path):
    path = write(tmp_path / "m.safetensors", {"w": tensor("F4", [3, 2], 0, 3)}, b"\x21\x43\xf5")
    weights = load_weights([path])
    bits = np.array([[1, 2], [3, 4], [5, 15]], np.uint8)
    assert raw(weights.w.data().to_buffer()) == bits.tobytes()
    # 5 is 0 10 1 in e2m1: 2 ** (2 - 1) * 1.5.
    assert bits.view(ml_dtypes.float4_e2m1fn)[2, 0] == 3.0
    packed = weights.w.allocate_as_bytes()
    assert (packed.dtype, packed.shape) == (DType.uint8, [3, 1])
    assert raw(weights.allocated_weights["w"]) == b"\x21\x43\xf5"


def test_rows_of_odd_length_are_no_bytes(tmp_path):
    path = write(tmp_path / "m.safetensors", {"w": tensor("F4", [2, 3], 0, 3)}, b"abc")
    with pytest.raises(ValueError, match="a row of 3 numbers of 4 bits is no whole number"):
        load_weights([path]).w.allocate_as_bytes()


def test_types_not_read_here_fail_when_used(tmp_path):
    header = {"c": tensor("C64", [1], 0, 8), "w": tensor("U8", [2], 8, 10)}
    weights = load_weights([write(tmp_path / "m.safetensors", header, bytes(8) + b"ok")])
    assert raw(weights.w.data().to_buffer()) == b"ok"
    for use in (weights.c.data, weights.c.allocate, weights.c.allocate_as_bytes):
        with pytest.raises(ValueError, match=r"m\.safetensors: tensor 'c' .* C64, .*BF16"):
            use()


def test_misaligned_data(tmp_path):
    header = {"a": tensor("U8", [1], 0, 1), "w": tensor("F32", [2], 1, 9)}
    data = b"x" + np.float32([1.5, -2]).tobytes()
    found = load_weights([write(tmp_path / "m.safetensors", header, data)]).w.data()
    assert found.to_buffer().to_numpy().tolist() == [1.5, -2]


def test_empty_tensors_and_files(tmp_path):
    path = write(tmp_path / "m.safetensors", {"w": tensor("F32", [0, 3], 0, 0)})
    assert load_weights([path]).w.data().to_buffer().shape == (0, 3)
    assert load_weights([path]).w.allocate_as_bytes().shape == [0, 12]
    path = write(tmp_path / "n.safetensors", {"__metadata__": {"format": "pt"}})
    assert list(load_weights([path]).items()) == []


def test_data_is_mapped_and_not_copied(weights):
    first, second = (weights.ids.data().to_buffer() for _ in range(2))
    first[1] = 42
    assert second.to_numpy().tolist() == [5, 42, 7]


def test_writing_to_data_leaves_the_file_alone(tmp_path, weights):
    before = (tmp_path / "m.safetensors").read_bytes()
    weights.ids.data().to_buffer()[0] = -1
    weights.close()
    assert (tmp_path / "m.safetensors").read_bytes() == before


def test_files_larger_than_memory(tmp_path):
    path = tmp_path / "m.safetensors"
    size = 1 << 40  # a terabyte that is nowhere on the disk
    write(path, {"big": tensor("U8", [size], 0, size), "w": tensor("I8", [1], size, size + 1)})
    with path.open("r+b") as file:
        end = file.seek(0, 2) + size
        file.truncate(end + 1)
        file.seek(end)
        file.write(b"\x07")
    assert load_weights([path]).w.data().to_buffer().to_numpy().tolist() == [7]


def test_file_cut_off_after_opening(tmp_path, weights):
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"m\.safetensors: cannot map tensor 'ids'"):
        weights.ids.data()


def test_later_files_win(tmp_path):
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_file({"both": np.float32([1]), "first": np.float32([2])}, a)
    save_file({"both": np.float32([3]), "second": np.int32([4])}, b)
    weights = load_weights([a, b])
    assert [name for name, _ in weights.items()] == ["both", "first", "second"]
    assert weights.both.data().to_buffer().item() == 3
    assert weights.first.data().to_buffer().item() == 2
    chosen = SafetensorWeights([a, b], tensors={"both"}, tensors_to_file_idx={"both": 0})
    assert [name for name, _ in chosen.items()] == ["both"]
    assert chosen.both.data().to_buffer().item() == 1
    with pytest.raises(ValueError, match="weight 'second' is in file 0, and it is not there"):
        SafetensorWeights([a, b], tensors_to_file_idx={"second": 0})
    with pytest.raises(ValueError, match=r"a\.safetensors: no weight is called 'second'"):
        SafetensorWeights([a], tensors={"second"})


def test_close(weights):
    buffer = weights.ids.data().to_buffer()
    view = weights.layers
    weights.close()
    assert buffer.to_numpy().tolist() == [5, -6, 7]
    assert weights.ids.exists()
    assert len(list(weights.items())) == len(TENSORS)
    for use in (weights.ids.data, view[0].weight.allocate, weights.ids.allocate_as_bytes):
        with pytest.raises(KeyError, match=r"is read after close\(\)"):
            use()


# ---------------------------------------------------------------- names


def test_names(weights):
    assert weights.name == ""
    assert weights.layers[0].weight.name == "layers.0.weight"
    assert weights["layers"]["10"].weight.exists()
    assert weights["norm.scale"].exists()
    assert not weights.layers.exists()
    assert [n for n, _ in weights.layers[1].items()] == ["layers.1.weight", "layers.10.weight"]
    assert all(w.name == n and w.exists() for n, w in weights.items())


def test_prefix(tmp_path, weights):
    view = SafetensorWeights([tmp_path / "m.safetensors"], prefix="layers")
    assert view[10].weight.exists()
    assert len(list(view.items())) == 3


def test_python_protocols_are_no_names(weights):
    assert not hasattr(weights, "__array__")
    assert copy.copy(weights.layers).name == "layers"


def test_missing_names(weights):
    with pytest.raises(KeyError, match=r"m\.safetensors: no weight is called 'layers\.2\.weight'"):
        weights.layers[2].weight.data()
    with pytest.raises(KeyError, match=r"close to it: 'layers\.1\.weight'"):
        weights.layers[1].weights.allocate()
    with pytest.raises(KeyError, match=r"it is the beginning of 'layers\.0\.weight' and 2 more"):
        weights.layers.data()
    with pytest.raises(KeyError, match=r"no weight is called 'norm'; .* of 'norm\.scale'"):
        weights.norm.allocate_as_bytes()
    with pytest.raises(KeyError, match="no weight is called ''"):
        weights.data()


def test_repr(weights):
    assert repr(weights.layers).startswith("SafetensorWeights('layers', 3 weights of ")
    assert repr(weights.ids.data()) == "WeightData('ids', int64, [3])"


# ---------------------------------------------------------------- allocating


def test_allocate(weights):
    weight = weights.norm.scale.allocate(DType.float16, [4], device=DeviceRef.GPU(1))
    assert isinstance(weight, Weight)
    assert (weight.name, weight.dtype, weight.shape) == ("norm.scale", DType.float16, [4])
    assert (weight.device, weight.align) == (DeviceRef.GPU(1), 1)
    weights.ids.allocate()
    assert set(weights.layers.allocated_weights) == {"norm.scale", "ids"}
    assert weights.allocated_weights["ids"].to_numpy().tolist() == [5, -6, 7]


def test_allocate_as_bytes(weights):
    weight = weights.layers[10].weight.allocate_as_bytes()
    assert (weight.dtype, weight.shape, weight.device) == (DType.uint8, [2, 12], DeviceRef.CPU())
    bits = weights.allocated_weights["layers.10.weight"].to_numpy()
    np.testing.assert_array_equal(bits.view(np.float32), TENSORS["layers.10.weight"])


def test_a_scalar_as_bytes_is_a_vector(tmp_path):
    save_file({"s": np.array(2.5, np.float32)}, tmp_path / "m.safetensors")
    weights = load_weights([tmp_path / "m.safetensors"])
    assert weights.s.allocate_as_bytes().shape == [4]
    assert weights.s.data().shape == []


def test_what_was_asked_for_is_checked(weights):
    weight = weights.layers[0].weight
    with pytest.raises(ValueError, match=r"'layers\.0\.weight' is float32, not float16; .* cast"):
        weight.allocate(dtype=DType.float16)
    with pytest.raises(ValueError, match=r"has the shape \[2, 3\], not \[6\]; .* reshape"):
        weight.allocate(shape=[6])
    with pytest.raises(ValueError, match=r"\[2, 3\], not \[n, 3\]"):
        weight.allocate(shape=["n", 3])
    with pytest.raises(ValueError, match="is not quantized, not as Q4_0; leave out"):
        weight.allocate(quantization_encoding=QuantizationEncoding.Q4_0)
    assert weights.allocated_weights == {}


# ---------------------------------------------------------------- damage

ONE = {"w": tensor("F32", [2], 0, 8)}
DAMAGED = {
    "empty": (b"", "has 0 bytes, too few for its header"),
    "short": (b"\x01\x02", "has 2 bytes, too few"),
    "header longer than the file": (struct.pack("<Q", 40), "has 8 bytes, too few"),
    "header absurdly long": (struct.pack("<Q", 1 << 62) + b"{}", "has 10 bytes, too few"),
    "not JSON": (b"abcd", "its header is no proper JSON"),
    "not UTF-8": (b'{"\xff\xfe": 1}', "its header is no proper JSON"),
    "nested without end": (b"[" * 100_000, "its header is no proper JSON"),
    "a list": ([1], "its header is no JSON object"),
    "a name twice": (b'{"w": 1, "w": 2}', "'w' is there twice"),
    "no dict": ({"w": 3}, "tensor 'w' has no proper dtype, shape and data_offsets: 3"),
    "no shape": ({"w": {"dtype": "F32", "data_offsets": [0, 8]}}, "tensor 'w' has no proper"),
    "three offsets": ({"w": {**ONE["w"], "data_offsets": [0, 4, 8]}}, "tensor 'w' has no proper"),
    "negative dim": ({"w": tensor("F32", [-2], 0, 8)}, r"'w' has a shape .* no sizes: \[-2\]"),
    "fractional dim": ({"w": tensor("F32", [2.0], 0, 8)}, "'w' has a shape or data_offsets"),
    "boolean dim": ({"w": tensor("F32", [True], 0, 4)}, "'w' has a shape or data_offsets"),
    "negative offset": ({"w": tensor("F32", [2], -8, 0)}, "'w' has a shape or data_offsets"),
    "end before begin": ({"w": tensor("F32", [0], 8, 4)}, "'w' lies at bytes 8 to 4 of 8"),
    "beyond the file": ({"w": tensor("F32", [3], 0, 12)}, "'w' lies at bytes 0 to 12 of 8"),
    "wrong length": ({"w": tensor("F32", [3], 0, 8)}, r"'w' has 8 bytes, and F32 of .*\[3\].* 12"),
    "huge shape": ({"w": tensor("F32", [1 << 40, 1 << 40], 0, 8)}, "'w' has 8 bytes, and F32"),
    "gap": ({"w": tensor("F32", [1], 4, 8)}, "'w' begins at byte 4 .* gap after the header"),
    "overlap": (
        {"v": tensor("F32", [1], 0, 4), "w": tensor("U8", [6], 2, 8)},
        "'w' begins at byte 2 of the data and so overlaps tensor 'v', which ends at 4",
    ),
    "bytes left over": (
        {"w": tensor("U8", [4], 0, 4)},
        "its data has 8 bytes, and tensor 'w' ends at 4",
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_files(tmp_path, kind):
    header, text = DAMAGED[kind]
    path = tmp_path / "m.safetensors"
    if kind in ("empty", "short") or kind.startswith("header"):
        path.write_bytes(header)
    else:
        write(path, header, bytes(8))
    with pytest.raises(ValueError, match=rf"m\.safetensors is damaged.*{text}"):
        load_weights([path])


def test_cut_off_file_names_the_tensor(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file(TENSORS, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"m\.safetensors is damaged: tensor '.*if the file was"):
        load_weights([path])


def test_not_a_file(tmp_path):
    with pytest.raises(ValueError, match=f"cannot read {tmp_path}: Is a directory"):
        SafetensorWeights([tmp_path])


@given(
    st.binary(max_size=40)
    | st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["F32", "U8", "w"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "w"]), inner)
        ),
    ).map(lambda header: json.dumps(header).encode())
)
def test_no_header_does_worse_than_a_value_error(tmp_path_factory, header):
    try:
        entries = _parse(tmp_path_factory.getbasetemp() / "m.safetensors", header, 8)
    except ValueError as e:
        assert "m.safetensors is damaged" in str(e)
    else:
        assert all(0 <= entry.begin <= entry.end <= 8 for entry in entries.values())


# ---------------------------------------------------------------- writing


def test_what_is_written_reads_back(tmp_path):
    arrays = {dtype.name: np.arange(15).reshape(3, 5).astype(dtype.np) for dtype in DTYPES.values()}
    tensors = {name: (DType[name], array.shape) for name, array in arrays.items()}
    header, order = laid_out(tensors)
    assert len(header) % 64 == 0
    path = tmp_path / "m.safetensors"
    parts = [content(arrays[name], DType[name]).tobytes() for name in order]
    path.write_bytes(b"before" + header + b"".join(parts) + b"after")
    file = SafetensorsFile(path, 6, len(header) + sum(map(len, parts)))
    assert file.header == header
    for name, array in arrays.items():
        read = file.array(name)
        assert read.dtype == array.dtype and read.tobytes() == array.tobytes()


def test_types_that_the_format_has_not():
    with pytest.raises(ValueError, match="'w' is float6_e2m3fn"):
        laid_out({"w": (DType.float6_e2m3fn, (2,))})
