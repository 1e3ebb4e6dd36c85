# SPDX-License-Identifier: Apache-2.0
"""What holds for every op.

Its type rule and its lowering agree, for numbers and for symbols; it lowers for every platform;
its text reads back and computes the same.

An op that is added without a sample here fails `test_every_op_has_a_sample`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import numpy as np
import pytest
from maxjax.driver import Buffer

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Dim, Graph, TensorType, Weight, ops, text
from maxjax.graph.ir import Node
from maxjax.graph.op import OPS, RegionOp, StateOp
from maxjax.graph.ops.constant import ConstantExternal
from maxjax.graph.type import parse_type
from maxjax.lower import to_jax

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
SIZES = {"n": 5, "m": 3, "k": 2}
CPU = DeviceRef.CPU()


@dataclasses.dataclass(frozen=True)
class Sample:
    """A use of an op: ``build`` is given values of ``types``."""

    build: Callable[..., Any]
    types: tuple[str, ...]
    # Values for the inputs, where random ones will not do.
    values: tuple[Any, ...] = ()
    # Whether the sizes can stay symbols while it is exported.
    symbolic: bool = True


def use(build, *types, values=(), symbolic=True):
    return Sample(build, types, values, symbolic)


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


def _create(x):
    b = ops.buffer_create(BufferType(DType.float32, x.shape, CPU), init_value=1.5)
    return b[...] + x


def _print(x):
    ops.print(x, "x")
    return x


UNARY = (
    "abs", "acos", "atanh", "ceil", "cos", "erf", "exp", "floor", "is_inf", "is_nan", "log", "log1p",
    "negate", "relu", "round", "rsqrt", "sigmoid", "silu", "sin", "sqrt", "tanh", "trunc",
)  # fmt: skip
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


def symbols():
    names = jax.export.symbolic_shape(", ".join(SIZES))
    return dict(zip(SIZES, names, strict=True))


def test_every_op_has_a_sample():
    assert sorted(OPS) == sorted(SAMPLES), "give each op a sample in SAMPLES, and each sample an op"


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_the_sample_uses_the_op(name, sample):
    assert name in [n.op.mnemonic for n in graph_of(sample).body.walk()]


@pytest.mark.parametrize("sizes", ["numbers", "symbols"])
@pytest.mark.parametrize(("name", "sample"), CASES)
def test_the_type_rule_and_the_lowering_agree(name, sample, sizes):
    if sizes == "symbols" and not sample.symbolic:
        pytest.skip("its result has a size that depends on sizes only known as numbers")
    env = SIZES if sizes == "numbers" else symbols()
    graph = graph_of(sample)
    with jax.enable_x64(True):
        for node in graph.body.walk():
            if not isinstance(node.op, (StateOp, RegionOp, ConstantExternal)):
                check_node(node, env)
        check_graph(graph, env)


def check_node(node: Node, env: dict[str, Any]) -> None:
    """``jax.eval_shape(op.lower)`` equals the declared result types."""
    lowered = jax.eval_shape(node.op.at(env).lower, *specs([v.type for v in node.operands], env))
    results = lowered if isinstance(lowered, (list, tuple)) else [lowered]
    declared = specs([r.type for r in node.results], env)
    assert [(r.shape, r.dtype) for r in results] == [(d.shape, d.dtype) for d in declared]


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
    env = symbols() if sample.symbolic else SIZES
    weights = {
        n: jax.ShapeDtypeStruct(t.shape.evaluate(env), t.dtype.np) for n, t in fn.weights.items()
    }
    arguments = [specs(graph.input_types, env, kind) for kind in (False, True)]
    with jax.enable_x64(True):
        exported = jax.export.export(jax.jit(fn.__call__), platforms=PLATFORMS)(weights, *arguments)
    assert exported.platforms == PLATFORMS
    assert len(exported.out_avals) == len(graph.outputs) + len(arguments[1])


def values_of(sample: Sample, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    found = []
    for i, description in enumerate(sample.types):
        t = _type(description)
        shape = t.shape.evaluate(SIZES)
        if sample.values and sample.values[i] is not None:
            array = np.asarray(sample.values[i], t.dtype.np)
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
