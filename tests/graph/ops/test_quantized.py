# SPDX-License-Identifier: Apache-2.0
"""Packed weights decode to what the ``gguf`` package decodes, bit for bit, on every route."""

import json

import gguf
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.graph import DeviceRef, Graph, TensorType, ops
from maxjax.graph.quantization import GGUFEncoding, QuantizationConfig, QuantizationEncoding

Q4_0, Q4_K, Q5_K, Q6_K, GPTQ = QuantizationEncoding
ENCODINGS = [Q4_0, Q4_K, GGUFEncoding.Q5_0, Q5_K, Q6_K, GGUFEncoding.Q8_0]
# Where the float16 scales of a block are; all other bytes may have any value.
SCALES = {"Q4_0": [0], "Q4_K": [0, 2], "Q5_0": [0], "Q5_K": [0, 2], "Q6_K": [208], "Q8_0": [0]}

each = pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: e.name)


def packed(encoding, *shape, seed=0):
    """Random blocks with scales of every kind: normal, subnormal, huge, zero, negative."""
    *lead, count = shape
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (*lead, count, encoding.block_size), np.uint8)
    for at in SCALES[encoding.value]:
        scale = np.ldexp(
            rng.normal(size=(*lead, count, 1)), rng.integers(-24, 15, (*lead, count, 1))
        )
        scale.flat[:3] = 0, 6e-8, -6.5e4
        blocks[..., at : at + 2] = scale.astype(np.float16).view(np.uint8)
    return blocks.reshape(*lead, -1)


def decoded(encoding, array):
    if array.size == 0:
        columns = array.shape[-1] // encoding.block_size * encoding.elements_per_block
        return np.empty((*array.shape[:-1], columns), np.float32)
    return gguf.quants.dequantize(array, gguf.GGMLQuantizationType[encoding.value])


def bits(array):
    return array.view(np.uint32)


@each
@pytest.mark.parametrize("lead", [(), (1,), (7,), (2, 3), (0,)])
def test_bit_for_bit(run, encoding, lead):
    array = (
        packed(encoding, *lead, 3) if 0 not in lead else np.empty((0, encoding.block_size), "u1")
    )
    (out,) = run(lambda x: ops.dequantize(encoding, x), array)
    expected = decoded(encoding, array)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(bits(out), bits(expected), strict=True)


@each
def test_every_byte_value_and_no_finite_scale(run, encoding):
    size = encoding.block_size
    array = np.repeat(np.arange(256, dtype=np.uint8)[:, None], size, axis=1)
    array[:, ::3] = packed(encoding, 256, 1)[:, ::3]
    (out,) = run(lambda x: ops.dequantize(encoding, x), array)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, decoded(encoding, array), strict=True)


@each
def test_rows_known_when_it_runs(run, run_symbolic, encoding):
    last = 2 * encoding.block_size

    def build(x):
        return ops.dequantize(encoding, x)

    for rows in (0, 1, 5):
        array = packed(encoding, 5, 2)[:rows]
        (out,) = run(build, array, dims=[["n", last]])
        np.testing.assert_array_equal(bits(out), bits(decoded(encoding, array)), strict=True)
    array = packed(encoding, 2, 3, 2)
    (out,) = run_symbolic(build, array, dims=[["a", "b", last]])
    np.testing.assert_array_equal(bits(out), bits(decoded(encoding, array)), strict=True)


@each
def test_rows_picked_before_they_are_decoded(run, encoding):
    array, rows = packed(encoding, 9, 1), np.int64([[3, 8, 0], [3, 3, 1]])
    (out,) = run(lambda x, i: ops.dequantize(encoding, ops.gather(x, i, 0)), array, rows)
    np.testing.assert_array_equal(bits(out), bits(decoded(encoding, array)[rows]), strict=True)


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_0", "Q8_0"])
def test_quantized_numbers_come_back(run, kind):
    encoding = next(e for e in ENCODINGS if e.value == kind)
    numbers = np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32)
    array = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[kind])
    (out,) = run(lambda x: ops.dequantize(encoding, x), array)
    np.testing.assert_allclose(out, numbers, atol=0.3)


# ---------------------------------------------------------------- products


def product(encoding, x, array):
    return x.astype(np.float64) @ decoded(encoding, array).astype(np.float64).T


def weights(encoding, rows, blocks):
    """Blocks whose numbers are of ordinary size."""
    array = packed(encoding, rows, blocks).reshape(rows, blocks, -1)
    for at in SCALES[encoding.value]:
        scale = np.random.default_rng(2).normal(size=(rows, blocks, 1)) / 64
        array[..., at : at + 2] = scale.astype(np.float16).view(np.uint8)
    return array.reshape(rows, -1)


@each
@pytest.mark.parametrize("lead", [(), (1,), (5,), (2, 3), (0,)])
def test_product(run, encoding, lead):
    array = weights(encoding, 6, 2)
    inner = 2 * encoding.elements_per_block
    x = np.random.default_rng(3).normal(size=(*lead, inner)).astype(np.float32)
    (out,) = run(lambda x, w: ops.qmatmul(encoding, None, x, w), x, array)
    assert (out.dtype, out.shape) == (np.float32, (*lead, 6))
    expected = product(encoding, x, array)
    np.testing.assert_allclose(
        out, expected, rtol=0, atol=1e-4 * max(1, np.abs(expected).max(initial=0))
    )


@each
def test_product_with_symbolic_sizes(run, run_symbolic, encoding):
    array = weights(encoding, 6, 1)
    x = np.random.default_rng(3).normal(size=(2, 3, encoding.elements_per_block)).astype(np.float32)

    def build(x, w):
        return ops.qmatmul(encoding, None, x, w)

    dims = [["a", "b", encoding.elements_per_block], ["n", encoding.block_size]]
    expected = product(encoding, x, array)
    for outs in (run(build, x, array, dims=dims), run_symbolic(build, x, array, dims=dims)):
        np.testing.assert_allclose(outs[0], expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_inner_dimension_known_when_it_runs(run):
    array = weights(Q4_0, 6, 2)

    def build(x, w):
        return ops.qmatmul(Q4_0, QuantizationConfig("none", 4, 32), x, w)

    x = np.ones((3, 64), np.float32)
    (out,) = run(build, x, array, dims=[["n", "k"], [6, 36]])
    np.testing.assert_allclose(out, product(Q4_0, x, array), rtol=0, atol=1e-3)
    with pytest.raises(ValueError, match=r"qmatmul: inner dimensions differ, 32 against the 64"):
        run(build, x[:, :32], array, dims=[["n", "k"], [6, 36]])


# ---------------------------------------------------------------- what is refused


def build(op, *types):
    with Graph("g", input_types=[TensorType(d, s, DeviceRef.CPU()) for d, s in types]) as g:
        return op(*[v.tensor for v in g.inputs])


@pytest.mark.parametrize(
    ("encoding", "dtype", "shape", "error", "text"),
    [
        (Q4_0, "uint8", [2, 19], ValueError, r"rows of 19 bytes.* Q4_0 blocks.* 18"),
        (Q5_K, "uint8", [2, 36], ValueError, r"rows of 36 bytes.*Q5_K blocks.* 176 bytes"),
        (Q4_0, "uint8", [2, "k"], TypeError, r"last dimension must be a number, not k"),
        (Q4_0, "uint8", [], ValueError, r"a scalar holds no packed block"),
        (Q4_0, "int8", [2, 18], TypeError, r"packed bytes must be uint8, not int8"),
        (GPTQ, "uint8", [2, 18], ValueError, r"cannot decode the .*'GPTQ'; .*: Q4_0, .*Q8_0"),
        ("Q4_0", "uint8", [2, 18], ValueError, r"cannot decode the encoding 'Q4_0'"),
        (None, "uint8", [2, 18], ValueError, r"cannot decode the encoding None"),
    ],
)  # fmt: skip
def test_dequantize_refuses(encoding, dtype, shape, error, text):
    with pytest.raises(error, match=f"dequantize: .*{text}"):
        build(lambda x: ops.dequantize(encoding, x), (DType[dtype], shape))


@pytest.mark.parametrize(
    ("encoding", "lhs", "rhs", "error", "text"),
    [
        (Q4_0, "i4[3, 64]", "u1[8, 36]", TypeError, "left operand must be float32, not int32"),
        (Q4_0, "f2[3, 64]", "u1[8, 36]", TypeError, "left operand must be float32, not float16"),
        (Q4_0, "f4[]", "u1[8, 36]", ValueError, "left operand is a scalar"),
        (Q4_0, "f4[3, 64]", "f4[8, 36]", TypeError, "packed bytes must be uint8, not float32"),
        (Q4_0, "f4[3, 64]", "u1[36]", TypeError, "must be a matrix, not of rank 1"),
        (Q4_0, "f4[3, 64]", "u1[2, 8, 36]", TypeError, "must be a matrix, not of rank 3"),
        (Q4_0, "f4[3, 32]", "u1[8, 36]", ValueError, "inner dimensions differ, 32 against the 64"),
        (GPTQ, "f4[3, 64]", "u1[8, 36]", ValueError, "cannot decode the encoding 'GPTQ'"),
    ],
)
def test_qmatmul_refuses(encoding, lhs, rhs, error, text):
    types = [(DType.of(np.dtype(t[:2])), json.loads(t[2:])) for t in (lhs, rhs)]
    with pytest.raises(error, match=f"qmatmul: .*{text}"):
        build(lambda x, w: ops.qmatmul(encoding, None, x, w), *types)


def test_qmatmul_takes_one_packed_tensor():
    w = (DType.uint8, [8, 36])
    with pytest.raises(ValueError, match=r"one tensor, got 2 \(ui8\[8, 36\], ui8\[8, 36\]\)"):
        build(lambda x, *w: ops.qmatmul(Q4_0, None, x, *w), (DType.float32, [3, 64]), w, w)
    with pytest.raises(ValueError, match="one tensor, got 0"):
        build(lambda x: ops.qmatmul(Q4_0, None, x), (DType.float32, [3, 64]))
