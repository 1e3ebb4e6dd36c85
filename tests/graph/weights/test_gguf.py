# SPDX-License-Identifier: Apache-2.0
"""Weights of GGUF files: every type, views without copies, packed bytes that stay packed."""

import gguf
import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, TensorType, Weight, ops
from maxjax.graph.quantization import GGUFEncoding, QuantizationEncoding
from maxjax.graph.weights import GGUFWeights, Weights, load_weights

CPU = DeviceRef.CPU()
NUMBERS = np.random.default_rng(0).normal(size=(4, 256)).astype(np.float32)
PLAIN = {
    "f32": NUMBERS,
    "f16": NUMBERS.astype(np.float16),
    "f64": NUMBERS.astype(np.float64),
    "i8": np.arange(6, dtype=np.int8),
    "i16": np.arange(6, dtype=np.int16).reshape(3, 2),
    "i32": np.arange(6, dtype=np.int32).reshape(1, 2, 3),
    "i64": np.arange(6, dtype=np.int64),
}
PACKED = {
    e.value: np.random.default_rng(1).integers(0, 256, (4, e.block_size), np.uint8)
    for e in (*QuantizationEncoding, *GGUFEncoding)
    if e.is_gguf
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name, array in PLAIN.items():
        writer.add_tensor(f"blk.0.{name}", array)
    for name, array in PACKED.items():
        writer.add_tensor(f"blk.1.{name}", array, raw_dtype=gguf.GGMLQuantizationType[name])
    bf16 = gguf.quants.quantize(NUMBERS, gguf.GGMLQuantizationType.BF16)
    writer.add_tensor("bf16", bf16, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.add_tensor("old", bytes_of(4, 20), raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def bytes_of(*shape):
    return np.zeros(shape, np.uint8)


@pytest.fixture
def weights(path):
    return load_weights([path])


def test_kind(weights):
    assert type(weights) is GGUFWeights and isinstance(weights, Weights)
    assert weights.name == "" and weights.blk[0].f32.exists() and not weights.blk.exists()
    assert repr(weights.blk[1]).startswith("GGUFWeights('blk.1', 6 weights of ")


@pytest.mark.parametrize("name", PLAIN)
def test_numbers(weights, name):
    data = weights.blk[0][name].data()
    assert (data.dtype, data.quantization_encoding) == (DType.of(PLAIN[name].dtype), None)
    np.testing.assert_array_equal(data.to_buffer().to_numpy(), PLAIN[name], strict=True)


def test_bfloat16(weights):
    data = weights.bf16.data()
    assert (data.dtype, data.shape) == (DType.bfloat16, [4, 256])
    bits = data.to_buffer().view(DType.uint16).to_numpy()
    expected = NUMBERS.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(bits, expected.view(np.uint16), strict=True)


@pytest.mark.parametrize("name", PACKED)
def test_packed_bytes(weights, name):
    data = weights.blk[1][name].data()
    assert (data.dtype, data.quantization_encoding.value) == (DType.uint8, name)
    np.testing.assert_array_equal(data.to_buffer().to_numpy(), PACKED[name], strict=True)
    with pytest.raises(ValueError, match=rf"is quantized as {name}.*ops\.dequantize"):
        data.astype(DType.float32)


def test_data_is_not_copied_and_the_file_never_changes(path, weights):
    before = path.read_bytes()
    one, two = (weights.blk[0].f32.data() for _ in range(2))
    assert np.shares_memory(one.data, two.data)
    assert not one.data.flags.writeable
    buffer = one.to_buffer()
    buffer[0, 0] = 99.0
    assert buffer[0, 0].item() == 99.0 and one.to_buffer() is buffer
    assert two.data[0, 0] == NUMBERS[0, 0]
    assert path.read_bytes() == before


def test_a_cpu_uses_the_data_where_it_lies(weights):
    w = weights.blk[1].Q6_K.allocate()
    array = weights.allocated_weights[w.name]
    assert isinstance(array, np.ndarray) and not array.flags.owndata
    with Graph("g", input_types=[]) as graph:
        graph.output(ops.dequantize(w.quantization_encoding, w))
    model = InferenceSession().load(graph, weights_registry=weights.allocated_weights)
    (bound,) = model._weights
    # JAX shares what is aligned to 64 bytes; the file aligns to 32.
    aligned = array.ctypes.data % 64 == 0
    assert (bound.unsafe_buffer_pointer() == array.ctypes.data) is aligned


def test_types_that_are_not_decoded(weights):
    assert weights.old.exists()
    with pytest.raises(ValueError, match=r"m\.gguf: tensor 'old' has the type Q4_1; read here"):
        weights.old.allocate()


def test_missing_names(weights):
    with pytest.raises(KeyError, match=r"no weight is called 'blk\.1\.q4_0'; close.*'blk\.1\.Q4_0"):
        weights.blk[1].q4_0.data()


# ---------------------------------------------------------------- allocation


def test_allocate(weights):
    weight = weights.blk[1].Q4_K.allocate()
    assert isinstance(weight, Weight)
    assert (weight.name, weight.dtype, weight.shape) == ("blk.1.Q4_K", DType.uint8, [4, 144])
    assert weight.quantization_encoding is QuantizationEncoding.Q4_K
    assert (weight.align, weight.device) == (32, CPU)
    assert list(weights.allocated_weights) == ["blk.1.Q4_K"]
    assert weights.blk[1].Q8_0.allocate().quantization_encoding is GGUFEncoding.Q8_0


def test_allocate_checked(weights):
    packed = weights.blk[1].Q4_0
    # A shape is one of numbers, also where bytes are stored.
    packed.allocate(DType.uint8, [4, 32], QuantizationEncoding.Q4_0)
    with pytest.raises(ValueError, match=r"has the shape \[4, 32\], not \[4, 18\]"):
        packed.allocate(shape=[4, 18])
    with pytest.raises(ValueError, match=r"quantized as Q4_0, not as Q4_K"):
        packed.allocate(quantization_encoding=QuantizationEncoding.Q4_K)
    with pytest.raises(ValueError, match=r"is uint8, not float32"):
        packed.allocate(DType.float32)
    with pytest.raises(ValueError, match=r"is not quantized, not as Q4_0"):
        weights.blk[0].f32.allocate(quantization_encoding=QuantizationEncoding.Q4_0)


def test_a_model_of_packed_weights(weights):
    x_type = TensorType(DType.float32, ["n", 256], CPU)
    with Graph("g", input_types=[x_type]) as graph:
        x = graph.inputs[0].tensor
        outs = []
        for name in ("Q4_K", "Q6_K"):
            w = weights.blk[1][name].allocate()
            outs.append(ops.qmatmul(w.quantization_encoding, None, x, w))
        graph.output(*outs, ops.dequantize(GGUFEncoding.Q8_0, weights.blk[1].Q8_0.allocate()))
    model = InferenceSession().load(graph, weights_registry=weights.allocated_weights)
    *products, eight = model(NUMBERS)
    decode = gguf.quants.dequantize
    kind = gguf.GGMLQuantizationType
    for out, name in zip(products, ("Q4_K", "Q6_K"), strict=True):
        with np.errstate(all="ignore"):
            expected = NUMBERS @ decode(PACKED[name], kind[name]).T
        finite = np.isfinite(expected)
        scale = np.abs(expected[finite]).max(initial=1)
        np.testing.assert_allclose(out.to_numpy()[finite], expected[finite], atol=1e-4 * scale)
    np.testing.assert_array_equal(eight.to_numpy(), decode(PACKED["Q8_0"], kind.Q8_0))


# ---------------------------------------------------------------- sources


@pytest.fixture
def reader(path):
    return gguf.GGUFReader(path)


def test_a_reader_is_a_source(path, reader):
    weights = GGUFWeights(reader)
    np.testing.assert_array_equal(weights.blk[0].f32.data().to_buffer().to_numpy(), NUMBERS)
    some = GGUFWeights(reader, {t.name: t for t in reader.tensors[:2]})
    assert [name for name, _ in some.items()] == ["blk.0.f16", "blk.0.f32"]
    with pytest.raises(ValueError, match=r"m\.gguf: no weight is called 'nope'"):
        GGUFWeights(str(path), {"nope": reader.tensors[0]})


def test_prefix_and_registry_of_ones_own(path):
    mine = {}
    weights = GGUFWeights(path, prefix="blk.0", allocated=mine)
    weights.i8.allocate()
    assert list(mine) == ["blk.0.i8"]


def test_other_sources():
    with pytest.raises(TypeError, match=r"a path or a gguf\.GGUFReader of a file, not int"):
        GGUFWeights(3)  # pyright: ignore[reportArgumentType]


def test_damage_is_named(tmp_path, path):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"cut\.gguf is damaged: tensor 'old'.*cut off"):
        load_weights([cut])


def test_one_file_is_a_checkpoint(path):
    with pytest.raises(ValueError, match=r"a GGUF checkpoint is one file, got 2: .*--merge"):
        load_weights([path, path])
