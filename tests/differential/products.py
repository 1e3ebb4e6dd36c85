# SPDX-License-Identifier: Apache-2.0
"""Products of matrices and of complex numbers, spectra, packed weights."""

from typing import Any

import gguf
import numpy as np

from tests.differential.program import Program
from tests.differential.registry import op
from tests.differential.values import (
    F32,
    F64,
    FLOATS,
    NUMBERS,
    U8,
    Array,
    Size,
    Type,
    Value,
    broadcast,
    finite,
    joint,
    sizes,
    small,
    with_size,
)

# ---------------------------------------------------------------- matrices


def _matmul_dims(a: list[Size], b: list[Size]) -> list[Size] | None:
    if not a or not b or (b[-2] if len(b) > 1 else b[0]) != a[-1]:
        return None
    leading = broadcast(a[:-2], b[:-2])
    return None if leading is None else [*leading, *a[-2:-1], *(b[-1:] if len(b) > 1 else [])]


@op("matmul")
def matmul(p: Program) -> None:
    x = p.tame(p.some(rank=(1, 4)))
    fits = [lambda v: _matmul_dims(x.dims, v.dims) is not None,
            lambda v: joint(x.dtype, v.dtype) is not None]  # fmt: skip
    y = p.pick(small, *fits)
    if y is None or p.number(0, 2) == 2:
        leading = (
            [p.dim()] if x.rank < 3 and p.flip() else x.dims[: p.number(0, max(x.rank - 2, 0))]
        )
        own = [x.dims[-1], *[p.dim() for _ in range(p.number(0, 1))]]
        dims = [*(leading if len(own) > 1 else []), *own]
        y = p.fresh([x.dtype], dims=dims if _matmul_dims(x.dims, dims) is not None else own)
    y = p.tame(y)
    dims, dtype = _matmul_dims(x.dims, y.dims), joint(x.dtype, y.dtype)
    assert dims is not None and dtype is not None
    wide = F64 if dtype in FLOATS else dtype
    p.emit(p.chance(f"ops.matmul({x.name}, {y.name})", f"{x.name} @ {y.name}"), [x, y],
           lambda a, b: np.matmul(a.astype(wide), b.astype(wide)), dims, False, dtype)  # fmt: skip


@op("outer")
def outer(p: Program) -> None:
    x = p.tame(p.some(rank=(1, 1)))
    y = p.pick(small, lambda v: v.rank == 1 and joint(x.dtype, v.dtype) is not None)
    y = p.tame(y or p.fresh([x.dtype], rank=(1, 1)))
    dtype = joint(x.dtype, y.dtype)
    assert dtype is not None
    wide = F64 if dtype in FLOATS else dtype
    p.emit(f"ops.outer({x.name}, {y.name})", [x, y],
           lambda a, b: np.outer(a.astype(wide), b.astype(wide)), [*x.dims, *y.dims],
           True, dtype)  # fmt: skip


# ---------------------------------------------------------------- complex numbers


def _pairs(p: Program, dtypes: tuple[Type, ...] | list[Type]) -> Value:
    """A value whose last dimension is 2."""
    found = p.pick(small, lambda v: v.dims[-1:] == [Size.of(2)] and v.dtype in dtypes)
    more = [p.dim() for _ in range(p.number(0, 2))] if found is None else []
    return found or p.fresh(dtypes, dims=[*more, Size.of(2)])


@op("complex.mul")
def complex_mul(p: Program) -> None:
    x = p.tame(_pairs(p, NUMBERS))
    fitting = [d for d in NUMBERS if joint(x.dtype, d) is not None]
    y = p.tame(_pairs(p, fitting))
    dims, dtype = broadcast(x.dims, y.dims), joint(x.dtype, y.dtype)
    if dims is None or p.number(0, 2) == 2:
        y = p.tame(p.fresh(fitting, dims=x.dims[p.number(0, x.rank - 1) :]))
        dims, dtype = broadcast(x.dims, y.dims), joint(x.dtype, y.dtype)
    assert dims is not None and dtype is not None
    wide = F64 if dtype in FLOATS else dtype

    def apply(x: Array, y: Array) -> Array:
        (a, b), (c, d) = [(v.astype(wide)[..., 0], v.astype(wide)[..., 1]) for v in (x, y)]
        return np.stack([a * c - b * d, a * d + b * c], -1)

    p.emit(f"ops.complex.mul({x.name}, {y.name})", [x, y], apply, dims, False, dtype)


@op("as_interleaved_complex")
def as_interleaved_complex(p: Program) -> None:
    x = p.pick(small, lambda v: v.rank > 0 and v.dims[-1].static and v.dims[-1].size % 2 == 0)
    if x is None or p.number(0, 2) == 2:
        more = [p.dim() for _ in range(p.number(0, 2))]
        x = p.fresh(dims=[*more, Size.of(p.chance(2, 4, 0, 6))])
    n = x.dims[-1].size // 2
    p.emit(f"ops.as_interleaved_complex({x.name})", [x],
           lambda a: a.reshape(*a.shape[:-1], n, 2), [*x.dims[:-1], Size.of(n), Size.of(2)],
           )  # fmt: skip


@op("irfft")
def irfft(p: Program) -> None:
    is_complex = p.flip()
    least = 2 if is_complex else 1

    def fits(v: Value) -> bool:
        dims = v.dims[:-1] if is_complex else v.dims
        pairs = not is_complex or v.dims[-1:] == [Size.of(2)]
        return v.dtype == F32 and pairs and any(d.static and d.size for d in dims)

    x = p.pick(small, finite, fits)
    if x is None or p.number(0, 2) == 2:
        dims = [p.dim() for _ in range(p.number(0, 2))]
        dims.insert(p.number(0, len(dims)), Size.of(p.number(1, 5)))
        x = p.fresh([F32], dims=[*dims, *[Size.of(2)] * (least - 1)], finite=True)
    x = p.tame(x)
    rank = x.rank - (least - 1)
    axis = p.chance(*[i for i, d in enumerate(x.dims[:rank]) if d.static and d.size])
    axis -= p.chance(0, rank)
    m = x.dims[:rank][axis].size
    n = p.chance(*([None] if m > 1 else []), *range(1, 8))
    norm = p.chance("backward", "ortho", "forward")

    def apply(a: Array) -> Array:
        return np.fft.irfft(a[..., 0] + 1j * a[..., 1] if is_complex else a, n, axis, norm)

    p.emit(f"ops.irfft({x.name}, {n}, {axis}, {norm!r}, {is_complex})", [x], apply,
           with_size(x.dims[:rank], axis, n or 2 * (m - 1)), False)  # fmt: skip


@op("hann_window")
def hann_window(p: Program) -> None:
    n, periodic, dtype = p.number(0, 7), p.flip(), p.chance(*FLOATS)
    period = n if periodic else n - 1
    window = np.ones(1) if n == 1 else 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / period)
    p.emit(f"ops.hann_window({n}, CPU, {periodic}, DType.{dtype.name})", [], lambda: window,
           [Size.of(n)], False, dtype)  # fmt: skip


# ---------------------------------------------------------------- packed weights

# Where the scales of a block are, each two bytes.
SCALES = {"Q4_0": [0], "Q4_K": [0, 2], "Q5_0": [0], "Q5_K": [0, 2], "Q6_K": [208], "Q8_0": [0]}
_ENCODINGS = {
    name: f"{'GGUF' if name in ('Q5_0', 'Q8_0') else 'Quantization'}Encoding.{name}"
    for name in SCALES
}


def _packed(p: Program, name: str, rows: list[Size], blocks: int) -> Value:
    """Packed bytes, scaled so that their numbers are few bits."""
    _, block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    given = p.rng.integers(0, 256, (*sizes(rows), blocks, block), U8, endpoint=False)
    scale = np.frombuffer(np.array(2.0 ** -p.number(8, 11), np.float16).tobytes(), U8)
    for at in SCALES[name]:
        given[..., at : at + 2] = scale
    dims = [*rows, Size.of(blocks * block)]
    return p.given(given.reshape(sizes(dims)), dims)


def _decoded(name: str, packed: Array) -> Array:
    kind = gguf.GGMLQuantizationType[name]
    elements, block = gguf.GGML_QUANT_SIZES[kind]
    shape = *packed.shape[:-1], packed.shape[-1] // block * elements
    if not packed.size:
        return np.zeros(shape)
    return gguf.quants.dequantize(packed, kind).reshape(shape).astype(np.float64)


@op("dequantize")
def dequantize(p: Program) -> None:
    name, blocks = p.chance(*SCALES), p.number(0, 2)
    elements, block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    rows = [p.dim() for _ in range(p.number(0, 2))]
    # Any bytes stand for numbers.
    size = Size.of(blocks * block)
    x = _packed(p, name, rows, blocks) if p.flip() else p.fresh([U8], dims=[*rows, size])
    p.emit(f"ops.dequantize({_ENCODINGS[name]}, {x.name})", [x], lambda a: _decoded(name, a),
           [*rows, Size.of(blocks * elements)], False, F32, equal=True)  # fmt: skip


@op("qmatmul")
def qmatmul(p: Program) -> None:
    name = p.chance(*SCALES)
    elements, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = p.number(0, 2)
    rows = [p.dim() for _ in range(p.number(0, 2))]
    x = p.fresh([F32], dims=[*rows, Size.of(blocks * elements)], finite=True)
    w = _packed(p, name, [p.dim()], blocks)

    def apply(a: Array, packed: Array) -> Any:
        return np.matmul(a, _decoded(name, packed).T)

    p.emit(f"ops.qmatmul({_ENCODINGS[name]}, None, {x.name}, {w.name})", [x, w], apply,
           [*rows, w.dims[0]], False, F32)  # fmt: skip
