# SPDX-License-Identifier: Apache-2.0
"""What holds for every op.

Its type rule and its lowering agree, for numbers and for symbols; it lowers for every platform;
its text reads back and computes the same.

An op that is added without a sample here fails `test_every_op_has_a_sample`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.export
import numpy as np
import pytest

import maxjax
from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import (
    BufferType,
    DeviceRef,
    Dim,
    Graph,
    SymbolicDim,
    TensorType,
    Weight,
    ops,
    text,
)
from maxjax.graph.ir import Node
from maxjax.graph.op import OPS, RegionOp, StateOp
from maxjax.graph.ops.constant import ConstantExternal
from maxjax.graph.quantization import GGUFEncoding, QuantizationEncoding
from maxjax.graph.type import ConvInputLayout, FilterLayout, parse_type
from maxjax.lower import to_jax

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
SIZES = {"n": 5, "m": 3, "k": 2}
CPU = DeviceRef.CPU()


@maxjax.kernel("every_op.double")
def _double(x, *, offset):
    return x * 2 + offset


@maxjax.kernel("every_op.push")
def _push(state, x, *, results):
    return x - state, (state + x).astype(results[1].dtype)


@dataclasses.dataclass(frozen=True)
class Sample:
    """A use of an op: ``build`` is given values of ``types``."""

    build: Callable[..., Any]
    types: tuple[str, ...]
    # Values for the inputs, where random ones will not do.
    values: tuple[Any, ...] = ()
    # Whether it calls back into Python, which a program in a file cannot do.
    calls_back: bool = False


def use(build, *types, values=(), calls_back=False):
    return Sample(build, types, values, calls_back)


def _call(x):
    body = Graph.current.add_subgraph("body", lambda v: v * 2 + 1, [x.type])
    (x,) = ops.call(body, x)
    return ops.call(body, x)


def _store(b, x):
    ops.buffer_store(b, x)
    return b[...] + 1


def _store_slice(b, x):
    ops.buffer_store_slice(b, x, [slice(1, 3)])
    return b[...]


def _store_at(b, x, k):
    ops.buffer_store_slice(b, x, [(slice(k, k + 2), 2)])
    return b[...]


def _branch(p, x):
    return ops.cond(
        p, [x.type], lambda: x * 2, lambda: ops.cond(~p, [x.type], lambda: -x, lambda: x)[0]
    )


def _loop(n, x, b):
    def body(i, v):
        b[...] = b[...] + 1
        return i - 1, v * 0.5

    return [*ops.while_loop([n, x], lambda i, v: i > 0, body), b]


def _create(x):
    b = ops.buffer_create(BufferType(DType.float32, x.shape, CPU), init_value=1.5)
    return b[...] + x


def _print(x):
    ops.print(x, "x")
    return x


def _drawn(draw, description):
    """Two draws of that type, seeded with the first input."""

    def build(seed, *rest):
        ops.random.set_seed(seed)
        return draw(_type(description)), draw(_type(description))

    return build


def _kernel(x):
    return ops.custom("every_op.double", CPU, [x], [x.type], {"offset": 1.5})


def _kernel_in_place(b, x):
    return [*ops.inplace_custom("every_op.push", CPU, [b, x], [x.type]), b]


def _launches(x, y, b):
    def body(v, state):
        state[...] = state[...] + v
        return v * 2

    return [*ops.parallel([[x, y]], body, buffers=[b, b], result_types=[[x.type] * 2])[0], b]


def _on_devices(f, *, spread=True):
    """``f`` of the inputs, each on a device of its own or all on the first, and of signals."""

    def build(*xs):
        devices = [DeviceRef.GPU(i) for i in range(len(xs))]
        signals = [ops.buffer_create(BufferType(DType.uint8, [1], d)) for d in devices]
        places = devices if spread else devices[:1] * len(xs)
        out = f([x.to(d) for x, d in zip(xs, places, strict=True)], signals)
        # Those of a fused op come in several lists.
        return [v for part in out for v in (part if isinstance(part, list) else [part])]

    return build


def _quantized(x, w, f):
    signal = ops.buffer_create(BufferType(DType.uint8, [1], CPU))
    return [v for part in f([x], [signal], [w], 1e-6)[1:3] for v in part]


UNARY = (
    "abs", "acos", "atanh", "ceil", "cos", "erf", "exp", "floor", "is_inf", "is_nan", "log",
    "log1p", "negate", "relu", "round", "rsqrt", "sigmoid", "silu", "sin", "sqrt", "tanh", "trunc",
)  # fmt: skip
QUANTIZED = [e for e in (*QuantizationEncoding, *GGUFEncoding) if e.is_gguf]
FLOATS, INTS, BOOLS = "f32[n, 4]", "si32[n, 4]", "bool[n, 4]"

SAMPLES: dict[str, list[Sample]] = {
    # elementwise, two operands
    **{
        name: [
            use(lambda x, y, f=f: f(x, y), FLOATS, "f32[4]"),
            use(lambda x, y, f=f: f(x, y), "si32[n, 1]", "si32[m]"),
            use(lambda x, f=f: f(x, x), "bf16[n]"),
        ]
        for name, f in {
            "add": ops.add,
            "sub": ops.sub,
            "mul": ops.mul,
            "floor_div": ops.floor_div,
            "mod": ops.mod,
            "pow": ops.pow,
            "maximum": ops.max,
            "minimum": ops.min,
            "equal": ops.equal,
            "not_equal": ops.not_equal,
            "greater": ops.greater,
            "greater_equal": ops.greater_equal,
        }.items()
    },
    "div": [use(ops.div, FLOATS, "f32[4]"), use(ops.div, INTS, INTS), use(ops.div, BOOLS, BOOLS)],
    **{
        name: [use(f, BOOLS, "bool[4]"), use(f, "bool[n, 1]", "bool[m]")]
        for name, f in {
            "logical_and": ops.logical_and,
            "logical_or": ops.logical_or,
            "logical_xor": ops.logical_xor,
        }.items()
    },
    # elementwise, one operand
    **{
        name: [use(getattr(ops, name), t) for t in (FLOATS, "bf16[n]", "f64[m, n]", "si64[n]")]
        for name in UNARY
    },
    "logical_not": [use(ops.logical_not, BOOLS)],
    "gelu": [use(lambda x, a=a: ops.gelu(x, a), FLOATS) for a in ("none", "tanh", "quick")],
    "cast": [
        use(lambda x, d=d: ops.cast(x, d), t)
        for t in (FLOATS, INTS, BOOLS)
        for d in (DType.int8, DType.uint32, DType.float64, DType.bfloat16, DType.bool)
        if not t.startswith(d.short)
    ],
    "transfer_to": [use(lambda x: ops.transfer_to(x, DeviceRef.GPU()).to(CPU), FLOATS)],
    # constants
    "constant": [
        use(lambda x: (x + 1, ops.constant(np.arange(6.0).reshape(2, 3))), FLOATS),
        use(lambda x: x + ops.constant([[1, 2, 3, 4]], DType.int32, CPU), INTS),
    ],
    "constant_external": [use(lambda x: x @ Weight("w", DType.float32, [4, 2], CPU), FLOATS)],
    "shape_to_tensor": [
        use(lambda x: ops.shape_to_tensor([*x.shape, Dim("n") * 2 + 1, 7]), FLOATS)
    ],
    # linear algebra
    "matmul": [
        use(ops.matmul, FLOATS, "f32[4, m]"),
        use(ops.matmul, "f32[k, n, 4]", "f32[4, m]"),
        use(ops.matmul, "f32[n]", "f32[n, m]"),
        use(ops.matmul, "f32[k, m, n]", "f32[n]"),
        use(ops.matmul, "bf16[n, m]", "bf16[m, n]"),
        use(ops.matmul, "si64[n, m]", "si64[m, n]"),
    ],
    "call": [use(_call, FLOATS)],
    # buffers
    "buffer_create": [use(_create, FLOATS)],
    "buffer_store_slice": [
        use(_store_slice, "buffer f32[6, 4]", "f32[2, 4]"),
        use(_store_at, "buffer f32[6, 4]", "f32[2, 4]", "si64[]", values=(None, None, 2)),
    ],
    "print": [use(_print, "f32[2, 2]", calls_back=True)],
    # reductions along an axis
    **{
        name: [
            use(lambda x, f=f: f(x), FLOATS),
            use(lambda x, f=f: f(x, axis=0), "f32[n, m]"),
            use(lambda x, f=f: f(x, axis=-2), "si32[n, m, 2]"),
            use(lambda x, f=f: f(x), "bf16[n]"),
        ]
        for name, f in {
            "argmax": ops.argmax,
            "argmin": ops.argmin,
            "cumsum": ops.cumsum,
            "max": ops.max,
            "mean": ops.mean,
            "min": ops.min,
            "prod": ops.prod,
            "softmax": ops.softmax,
            "logsoftmax": ops.logsoftmax,
            "sum": ops.sum,
        }.items()
    },
    # norms
    "layer_norm": [use(lambda x, g, b: ops.layer_norm(x, g, b, 1e-5), FLOATS, "f32[4]", "f32[4]")],
    "rms_norm": [
        use(lambda x, w: ops.rms_norm(x, w, 1e-6), FLOATS, "f32[4]"),
        use(lambda x, w: ops.rms_norm(x, w, 1e-6, 1.0, True), "bf16[n, m, 4]", "bf16[4]"),
    ],
    "group_norm": [
        use(lambda x, g, b: ops.group_norm(x, g, b, 2, 1e-5), "f32[n, 4, m]", "f32[4]", "f32[4]")
    ],
    # shapes
    "reshape": [
        use(lambda x: x.reshape([-1]), FLOATS),
        use(lambda x: x.reshape(["n", 2, -1]), FLOATS),
        use(lambda x: x.reshape([Dim("n") * Dim("m"), 4]), "f32[n, m, 4]"),
    ],
    "broadcast_to": [use(lambda x, y: x.broadcast_to(["m", "n", 4]), "f32[n, 1]", "f32[m]")],
    "permute": [use(lambda x: x.permute([2, 0, 1]), "f32[n, m, 4]"), use(lambda x: x.T, FLOATS)],
    "squeeze": [use(lambda x: ops.squeeze(x, 1), "f32[n, 1, 4]")],
    "unsqueeze": [use(lambda x: ops.unsqueeze(x, -1), FLOATS)],
    "rebind": [
        use(lambda x: x.rebind(["rows", 4]) + 1, FLOATS),
        use(lambda x: x.rebind(["n", 4], "four"), FLOATS),
    ],
    # joining and extending
    "concat": [
        use(lambda x, y: ops.concat([x, y, x]), "f32[n, 4]", "f32[m, 4]"),
        use(lambda x, y: ops.concat([x, y], axis=-1), "si8[n, 4]", "si8[n, 2]"),
    ],
    "stack": [use(lambda x, y: ops.stack([x, y], axis=1), FLOATS, FLOATS)],
    "split": [use(lambda x: ops.split(x, [1, 3], axis=1), FLOATS)],
    "pad": [
        use(lambda x: ops.pad(x, [1, 2, 0, 3], value=7.0), FLOATS),
        use(lambda x: ops.pad(x, [0, 0, 1, 2], mode="reflect"), FLOATS),
        use(lambda x: ops.pad(x, [2, 1, 0, 0], mode="edge"), INTS),
    ],
    "tile": [
        use(lambda x: ops.tile(x, [2, 3]), FLOATS),
        use(lambda x, y: ops.tile(x, ["n"]), "f32[3]", "f32[n]"),
    ],
    "repeat_interleave": [
        use(lambda x: ops.repeat_interleave(x, 2, axis=1), FLOATS),
        use(
            lambda x, r: ops.repeat_interleave(x, r, axis=0, out_dim=6),
            "f32[3, 2]",
            "si64[3]",
            values=(None, [1, 2, 3]),
        ),
    ],
    # picking
    "slice_tensor": [
        use(lambda x: (x[1:], x[:, ::2], x[-1], x[..., None, 0]), FLOATS),
        use(lambda x: x[1:-1, 1], "f32[n, m, 2]"),
        use(lambda x: x[(slice(None, None, -1), "n"), :], FLOATS),
        use(
            lambda x, k: (x[k], x[(slice(k, k + 2), 2), 1:]),
            "f32[5, 4]",
            "si64[]",
            values=(None, 1),
        ),
    ],
    "gather": [
        use(lambda x, i: ops.gather(x, i, axis=0), FLOATS, "si64[m]"),
        use(lambda x, i: ops.gather(x, i, axis=-1), FLOATS, "si32[k, 2]"),
    ],
    "gather_nd": [
        use(ops.gather_nd, FLOATS, "si64[m, 1]"),
        use(ops.gather_nd, "si32[n, 4, 2]", "si32[k, m, 3]"),
        use(lambda x, i: ops.gather_nd(x, i, batch_dims=1), "f32[n, 4, m]", "si64[n, 3, 1]"),
        use(lambda x, i: ops.gather_nd(x, i, batch_dims=1), FLOATS, "ui8[n, m, 0]"),
    ],
    "where": [
        use(ops.where, BOOLS, FLOATS, "f32[4]"),
        use(lambda c, x: ops.where(c, x, 0), "bool[n, 1]", INTS),
    ],
    "outer": [use(ops.outer, "f32[n]", "f32[m]")],
    # quantized weights
    "dequantize": [
        use(lambda x, e=e: ops.dequantize(e, x), f"ui8[n, m, {2 * e.block_size}]")
        for e in QUANTIZED
    ],
    "qmatmul": [
        use(
            lambda x, w, e=e: ops.qmatmul(e, None, x, w),
            f"f32[n, {e.elements_per_block}]",
            f"ui8[m, {e.block_size}]",
        )
        for e in QUANTIZED
    ],
    "range": [
        use(lambda: ops.range(0, 10, 3, dtype=DType.int32, device=CPU)),
        use(lambda x: ops.range(0, Dim("n") * 2, 2, dtype=DType.int64, device=CPU), FLOATS),
        use(lambda x: ops.range(0, Dim("n"), dtype=DType.float32, device=CPU), FLOATS),
    ],
    # putting
    **{
        name: [
            use(lambda x, u, i, f=f: f(x, u, i, axis=0), FLOATS, "f32[m, 4]", "si64[m, 4]"),
            use(f, "bf16[n, m, 4]", "bf16[n, m, k]", "si32[n, m, k]"),
            use(lambda x, u, i, f=f: f(x, u, i, 0), "bool[n]", "bool[m]", "si64[m]"),
        ]
        for name, f in {
            "scatter": ops.scatter,
            "scatter_add": ops.scatter_add,
            "scatter_max": ops.scatter_max,
            "scatter_min": ops.scatter_min,
            "scatter_mul": ops.scatter_mul,
        }.items()
    },
    **{
        name: [
            use(f, FLOATS, "f32[m, 4]", "si64[m, 1]"),
            use(f, "f16[n, 4, m]", "f16[k, 2, m]", "si32[k, 2, 2]"),
            use(f, "si64[n, m]", "si64[k]", "si64[k, 2]"),
            use(f, FLOATS, "f32[3, n, 4]", "si64[3, 0]"),
        ]
        for name, f in {
            "scatter_nd": ops.scatter_nd,
            "scatter_nd_add": ops.scatter_nd_add,
            "scatter_nd_max": ops.scatter_nd_max,
            "scatter_nd_min": ops.scatter_nd_min,
            "scatter_nd_mul": ops.scatter_nd_mul,
        }.items()
    },
    "masked_scatter": [
        use(lambda x, m, u: ops.masked_scatter(x, m, u, "m"), FLOATS, "bool[4]", "f32[m]"),
        use(lambda x, m, u: ops.masked_scatter(x, m, u, "hits"), INTS, INTS, "si32[m, 2]"),
    ],
    # sorting
    **{
        name: [
            use(lambda x, f=f: f(x, 2), FLOATS),
            use(lambda x, f=f: f(x, 2, axis=0), "f64[n, m]"),
            use(lambda x, f=f: f(x, 2, axis=-2), "si32[n, m, 2]"),
            use(lambda x, f=f: f(x, 1), "bf16[n]"),
            use(lambda x, f=f: f(x, 3), BOOLS),
            use(lambda x, f=f: f(x, 0), "ui64[n, 4]"),
        ]
        for name, f in {"top_k": ops.top_k, "bottom_k": ops.bottom_k}.items()
    },
    "argsort": [
        use(lambda x: (ops.argsort(x), ops.argsort(x, ascending=False)), t)
        for t in ("f32[n]", "f16[n]", "f64[5]", "si64[n]", "bool[n]")
    ],
    # matrices
    "band_part": [
        use(lambda x: ops.band_part(x, 1, 0), FLOATS),
        use(lambda x: ops.band_part(x, num_upper=1, exclude=True), "si8[k, n, m]"),
    ],
    "nonzero": [
        use(lambda x: ops.nonzero(x, 7), FLOATS),
        use(lambda x: ops.nonzero(x, "n"), "si32[n, m, 2]"),
    ],
    # complex numbers and spectra
    "complex_mul": [
        use(ops.complex.mul, "f32[n, 4, 2]", "f32[4, 2]"),
        use(ops.complex.mul, "si32[n, 1, 2]", "si32[m, 2]"),
    ],
    "irfft": [
        use(lambda x: (ops.irfft(x), ops.irfft(x, 3, normalization="ortho")), FLOATS),
        use(lambda x: ops.irfft(x, axis=0, input_is_complex=True), "f32[3, n, 2]"),
    ],
    # random numbers
    "random_seed": [use(_drawn(ops.random.uniform, "f32[n, m]"), "si64[]", "f32[n, m]")],
    "random_uniform": [
        use(_drawn(ops.random.uniform, t), "ui64[1]", "f32[n]")
        for t in ("f32[n, 4]", "f64[n]", "bf16[n, 2]", "si8[n, n]")
    ],
    "random_normal": [
        use(_drawn(ops.random.normal, t), "ui64[1]", "f32[n]")
        for t in ("f32[n, 4]", "f64[n]", "f16[3]", "si32[n]")
    ],
    # images
    "conv2d": [
        use(lambda x, f: ops.conv2d(x, f), "f32[k, n, m, 4]", "f32[2, 1, 4, 6]"),
        use(
            lambda x, f, b: ops.conv2d(x, f, (2, 1), (1, 2), (1, 0, 2, 1), 2, b),
            "bf16[k, n, 7, 4]",
            "bf16[2, 3, 2, 6]",
            "bf16[6]",
        ),
        use(
            lambda x, f: ops.conv2d(
                x,
                f,
                padding=(1, 1, 1, 1),
                input_layout=ConvInputLayout.NCHW,
                filter_layout=FilterLayout.FCRS,
            ),
            "f32[k, 4, n, m]",
            "f32[6, 4, 3, 3]",
        ),
        use(lambda x, f: ops.conv2d(x, f, stride=(2, 2)), "si8[k, n, m, 4]", "si8[2, 1, 4, 6]"),
    ],
    "conv3d": [
        use(
            lambda x, f: ops.conv3d(x, f, padding=(0, 1, 1, 0, 0, 0)),
            "f32[k, n, m, 5, 2]",
            "f32[2, 2, 3, 2, 4]",
        ),
    ],
    "conv2d_transpose": [
        use(
            lambda x, f: ops.conv2d_transpose(x, f, (2, 3), (1, 2), (1, 0, 0, 1), (1, 0)),
            "f32[k, n, m, 4]",
            "f32[3, 2, 6, 4]",
        ),
        use(
            lambda x, f, b: ops.conv2d_transpose(
                x,
                f,
                bias=b,
                input_layout=ConvInputLayout.NCHW,
                filter_layout=FilterLayout.CFRS,
            ),
            "si32[k, 4, n, m]",
            "si32[4, 6, 3, 3]",
            "si32[6]",
        ),
    ],
    **{
        name: [
            use(lambda x, f=f: f(x, (2, 2)), "f32[k, n, m, 4]"),
            use(lambda x, f=f: f(x, (3, 2), (2, 1), (1, 2), 1, True), "bf16[k, n, 7, 4]"),
            use(lambda x, f=f: f(x, ("n", "m")), "si32[k, n, m, 4]"),
        ]
        for name, f in {
            "max_pool2d": ops.max_pool2d,
            "avg_pool2d": lambda *xs: ops.avg_pool2d(*xs, count_boundary=False),
        }.items()
    },
    "fold": [
        use(lambda x: ops.fold(x, (4, 4), (2, 2)), "f32[n, 12, 9]"),
        use(lambda x: ops.fold(x, (7, 5), (3, 2), (2, 1), (1, 2), 1), "si32[n, 12, 20]"),
    ],
    "resize_nearest": [
        use(lambda x: ops.resize_nearest(x, ["n", 7, 4]), "f32[n, m, 4]"),
        use(lambda x: ops.resize_nearest(x, ["m", "n"], 1, 3), "bool[n, m]"),
    ],
    "resize_linear": [
        use(lambda x: ops.resize_linear(x, ["m", 7, 4], 2), "f32[n, m, 4]"),
        use(lambda x: ops.resize_linear(x, [3, "n"], antialias=True), "bf16[n, m]"),
        use(lambda x: ops.resize_linear(x, [3, "n"]), "ui8[n, m]"),
    ],
    "resize_bicubic": [
        use(lambda x: ops.resize_bicubic(x, ["k", 2, 7, "n"]), f"{t}[k, 2, n, m]")
        for t in ("f32", "si32")
    ],
    "roi_align": [
        use(
            lambda x, r: ops.roi_align(x, r, 2, 3, 0.5, 2),
            "f32[1, n, m, 2]",
            "f32[k, 5]",
            values=(None, [[0, 1, 1, 8, 6], [0, 0, 2, 3, 9]]),
        ),
        use(lambda x, r: ops.roi_align(x, r, 2, 2, mode="MAX"), "bf16[n, 4, 4, 2]", "f32[k, 5]"),
    ],
    "non_maximum_suppression": [
        use(
            lambda b, s, n, x, rows=rows: ops.non_maximum_suppression(b, s, n, x, x, rows),
            "f32[k, n, 4]",
            "f32[k, m, n]",
            "si64[]",
            "f32[]",
            values=(None, None, 2, 0.2),
        )
        for rows in (7, "n")
    ],
    # control flow
    "cond": [use(_branch, "bool[]", FLOATS)],
    "while_loop": [use(_loop, "si64[]", FLOATS, "buffer f32[4]")],
    "parallel": [use(_launches, FLOATS, FLOATS, "buffer f32[n, 4]")],
    # several devices
    "allreduce": [
        use(_on_devices(ops.allreduce.sum), FLOATS, FLOATS),
        use(_on_devices(lambda x, s: ops.allreduce.sum(x, s, 2)), *[BOOLS] * 2, *["bool[k]"] * 2),
    ],
    "reducescatter": [
        use(_on_devices(ops.reducescatter.sum), FLOATS, FLOATS),
        use(_on_devices(lambda x, s: ops.reducescatter.sum(x, s, 1, 2)), *["bf16[k, n, 2]"] * 4),
    ],
    "allgather": [
        use(_on_devices(ops.allgather), FLOATS, "f32[m, 4]"),
        use(_on_devices(lambda x, s: ops.allgather(x, s, -1, 2)), *["bool[k, n]"] * 4),
    ],
    "distributed_scatter": [
        use(_on_devices(ops.distributed_scatter, spread=False), FLOATS, "f32[k]"),
        use(_on_devices(lambda x, s: ops.distributed_broadcast(x[0], s)), FLOATS, INTS),
    ],
    "shard_and_stack": [
        use(lambda *xs: ops.shard_and_stack(xs, [CPU], 1), FLOATS, FLOATS),
        use(lambda *xs: ops.shard_and_stack(xs, [DeviceRef.GPU(i) for i in (0, 1)], 1), FLOATS),
    ],
    "mx_quantize": [
        use(lambda x, w, f=f: _quantized(x, w, f), f"{t}[n, 64]", f"{t}[64]")
        for t in ("bf16", "f32")
        for f in (
            ops.allgather_rms_norm_quant_mxfp8,
            ops.allgather_rms_norm_quant_mxfp6,
            lambda *xs: ops.allgather_rms_norm_quant_mxfp6(*xs, fp6_format="e3m2"),
        )
    ],
    # custom kernels
    "custom": [use(_kernel, FLOATS)],
    "inplace_custom": [use(_kernel_in_place, "buffer f32[n, 4]", FLOATS)],
    "buffer_load": [use(lambda b: b[...] * 2, "buffer f32[n, 4]")],
    "buffer_store": [use(_store, "buffer f32[n, 4]", FLOATS)],
}


def _type(description):
    """``f32[n, 4]`` as a type; ``buffer f32[n, 4]`` as a buffer's."""
    kind, _, rest = description.rpartition("buffer ")
    short, _, dims = rest.partition("[")
    return parse_type(
        f"!mo.{'buffer' if kind or description.startswith('buffer') else 'tensor'}"
        f"<[{dims}, {short}>"
    )


CASES = [
    pytest.param(name, sample, id=f"{name}-{i}")
    for name, samples in SAMPLES.items()
    for i, sample in enumerate(samples)
]


def graph_of(sample: Sample) -> Graph:
    with Graph("sample", input_types=[_type(t) for t in sample.types]) as g:
        inputs = [v.tensor if isinstance(v.type, TensorType) else v.buffer for v in g.inputs]
        out = sample.build(*inputs)
        g.output(*(out if isinstance(out, (list, tuple)) else [out]))
    return g


def is_buffer(t):
    return isinstance(t, BufferType)


def specs(types, sizes, kind=None):
    """The arrays' descriptions for types at these sizes."""
    return [
        jax.ShapeDtypeStruct(t.shape.evaluate(sizes), t.dtype.np)
        for t in types
        if kind is None or is_buffer(t) == kind
    ]


def weights_of(fn, sizes, make=jax.ShapeDtypeStruct):
    return {n: make(t.shape.evaluate(sizes), t.dtype.np) for n, t in fn.weights.items()}


def symbols(graph):
    """A symbolic size for each name in the graph's inputs."""
    names = sorted({p.name for t in graph.input_types for p in t.parameters})
    # Slices such as x[1:-1] need sizes that have an inside.
    bounds = [f"{name} >= 2" for name in names]
    sizes = jax.export.symbolic_shape(", ".join(names), constraints=bounds) if names else ()
    return dict(zip(names, sizes, strict=True))


def test_every_op_has_a_sample():
    assert sorted(OPS) == sorted(SAMPLES), "give each op a sample in SAMPLES, and each sample an op"


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_the_sample_uses_the_op(name, sample):
    assert name in [n.op.mnemonic for n in graph_of(sample).body.walk()]


@pytest.mark.parametrize("sizes", ["numbers", "symbols"])
@pytest.mark.parametrize(("name", "sample"), CASES)
def test_the_type_rule_and_the_lowering_agree(name, sample, sizes):
    graph = graph_of(sample)
    env = SIZES if sizes == "numbers" else symbols(graph)
    known = env
    with jax.enable_x64(True):
        for node in graph.body.walk():
            if not isinstance(node.op, (StateOp, RegionOp, ConstantExternal)):
                known = check_node(node, known)
        check_graph(graph, known)


def check_node(node: Node, env: dict[str, Any]) -> dict[str, Any]:
    """``jax.eval_shape(op.lower)`` equals the declared result types; gives the sizes known now."""
    lowered = jax.eval_shape(node.op.at(env).lower, *specs([v.type for v in node.operands], env))
    results = lowered if isinstance(lowered, (list, tuple)) else [lowered]
    # A name that is new in a result stands for the size it has there.
    for result, value in zip(results, node.results, strict=True):
        new = [
            (d, n)
            for d, n in zip(value.type.shape, result.shape, strict=True)
            if type(d) is SymbolicDim
        ]
        env = {d.name: n for d, n in new} | env
    declared = specs([r.type for r in node.results], env)
    assert [(r.shape, r.dtype) for r in results] == [(d.shape, d.dtype) for d in declared]
    return env


def check_graph(graph: Graph, env: dict[str, Any]) -> None:
    """The lowered graph's outputs have the declared types, buffers keep theirs."""
    fn = to_jax(graph)
    weights = {
        n: jax.ShapeDtypeStruct(t.shape.evaluate(env), t.dtype.np) for n, t in fn.weights.items()
    }
    inputs = specs(graph.input_types, env, kind=False)
    buffers = specs(graph.input_types, env, kind=True)
    outputs, finals = jax.eval_shape(fn, weights, inputs, buffers)
    declared = specs(graph.output_types, env)
    assert [(o.shape, o.dtype) for o in outputs] == [(d.shape, d.dtype) for d in declared]
    assert [(o.shape, o.dtype) for o in finals] == [(d.shape, d.dtype) for d in buffers]


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_it_lowers_for_every_platform(name, sample):
    graph = graph_of(sample)
    fn = to_jax(graph)
    env = SIZES if sample.calls_back else symbols(graph)
    weights = weights_of(fn, env)
    arguments = [specs(graph.input_types, env, kind) for kind in (False, True)]
    jitted = jax.jit(fn.__call__)
    with jax.enable_x64(True):
        if sample.calls_back:
            # JAX lowers a call back into Python for the platform that is there, for no other.
            assert jitted.trace(weights, *arguments).lower(lowering_platforms=("cpu",))
            return
        exported = jax.export.export(jitted, platforms=PLATFORMS)(weights, *arguments)
    assert exported.platforms == PLATFORMS
    assert len(exported.out_avals) == len(graph.outputs) + len(arguments[1])


def values_of(
    sample: Sample, seed: int = 0, sizes: Mapping[str, int] = MappingProxyType(SIZES)
) -> list[Any]:
    rng = np.random.default_rng(seed)
    found = []
    for i, description in enumerate(sample.types):
        t = _type(description)
        shape = t.shape.evaluate(sizes)
        if sample.values and sample.values[i] is not None:
            array = np.resize(np.asarray(sample.values[i], t.dtype.np), shape)
        elif t.dtype is DType.bool:
            array = rng.integers(0, 2, shape).astype(bool)
        elif t.dtype.is_float():
            array = rng.uniform(0.1, 0.9, shape).astype(t.dtype.np)
        else:
            array = rng.integers(1, 4, shape).astype(t.dtype.np)
        found.append(Buffer.from_numpy(array.copy()) if is_buffer(t) else array)
    return found


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_its_text_reads_back_and_computes_the_same(name, sample):
    graph = graph_of(sample)
    written = text.dump(graph)
    (again,) = text.parse(written).graphs
    assert text.dump(again) == written
    if any(t.device.is_gpu() for n in graph.body.walk() for t in [r.type for r in n.results]):
        return
    weights = {
        n: np.ones(t.shape.evaluate(SIZES), t.dtype.np) for n, t in to_jax(graph).weights.items()
    }
    results = []
    for g in (graph, again):
        model = InferenceSession().load(g, weights_registry=weights)
        arguments = values_of(sample)
        outputs = model(*arguments)
        states = [a for a in arguments if isinstance(a, Buffer)]
        results.append([np.array(o.to_numpy()) for o in (*outputs, *states)])
    for a, b in zip(*results, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.tobytes() == b.tobytes()
