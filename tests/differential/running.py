# SPDX-License-Identifier: Apache-2.0
"""A program as a graph, run and compared with NumPy line by line."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Dim, Graph, TensorType, ops
from maxjax.graph.quantization import GGUFEncoding, QuantizationEncoding
from maxjax.graph.type import ConvInputLayout, FilterLayout
from tests.differential import (
    axes,
    control,
    convolution,
    detection,
    elementwise,
    images,
    picking,
    products,
    putting,
    shapes,
    sources,
)
from tests.differential.program import Program, Step
from tests.differential.registry import draw_line
from tests.differential.values import converted, differs, sizes, widened

# Each adds its ops to the registry when it is imported.
FAMILIES = (
    axes, control, convolution, detection, elementwise, images, picking, products, putting, shapes,
    sources,
)  # fmt: skip
CPU = DeviceRef.CPU()
SCOPE: dict[str, Any] = {
    c.__name__: c
    for c in (
        BufferType, ConvInputLayout, DType, Dim, FilterLayout, GGUFEncoding, Graph,
        QuantizationEncoding, TensorType,
    )
} | {"ops": ops, "np": np, "CPU": CPU, "nan": np.nan, "inf": np.inf}  # fmt: skip


@st.composite
def programs(draw: Callable[..., Any], last: str) -> Program:
    """Programs of up to ten ops, the last of which is given, and of what these need."""
    p = Program(draw)
    for _ in range(p.number(0, 9)):
        draw_line(p)
    draw_line(p, last)
    return p


def graph_of(p: Program, steps: Sequence[Step] | None = None) -> Graph:
    """The program's text as a graph whose outputs are all its values, or those of some steps.

    Its first input gives the symbols their sizes.
    """
    types: list[Any] = [TensorType(DType.bool, sorted(p.used), CPU)]
    for v, is_buffer in p.inputs:
        cls = BufferType if is_buffer else TensorType
        types.append(cls(DType.of(v.dtype), [d.size if d.static else str(d) for d in v.dims], CPU))
    with Graph("program", input_types=types) as graph:
        names = SCOPE | {name: Dim(name) for name in p.used}
        for (v, is_buffer), value in zip(p.inputs, graph.inputs[1:], strict=True):
            names[v.name] = value.buffer if is_buffer else value.tensor
        exec("\n".join(p.lines), names)
        outputs = p.steps if steps is None else steps
        graph.output(*[names[v.name] for s in outputs for v in s.results])
    return graph


def check(p: Program) -> None:
    """Runs the program; raises where a line differs from NumPy.

    A line is compared with its NumPy function of the values that maxjax computed for its operands,
    so errors do not add up.
    """
    graph = graph_of(p)
    model = InferenceSession().load(graph, weights_registry=p.weights)
    arguments = [Buffer.from_numpy(v.array.copy()) if b else v.array for v, b in p.inputs]
    symbols = {name: p.symbols[name].size for name in sorted(p.used)}
    outputs = [o.to_numpy() for o in model(np.zeros(list(symbols.values()), bool), *arguments)]
    results = [v for s in p.steps for v in s.results]
    for v, got, type_ in zip(results, outputs, graph.output_types, strict=True):
        assert type_.dtype.np == got.dtype == v.dtype, f"{v.name} is {got.dtype}, not {v.dtype}"
        shape = tuple(type_.shape.evaluate(symbols))
        assert shape == got.shape == tuple(sizes(v.dims)), (
            f"{v.name} has shape {got.shape}, declared {shape}, not {v.array.shape}"
        )
    actual = {v.name: v.array for v, _ in p.inputs}
    actual |= {v.name: got for v, got in zip(results, outputs, strict=True)}
    for s in p.steps:
        operands = [widened(actual.get(v.name, v.array)) for v in s.operands]
        with np.errstate(all="ignore"):
            wanted = s.reference(*operands)
        for v, want in zip(s.results, wanted, strict=True):
            got, want = actual[v.name], converted(want, v.dtype)
            shown = f"{v.name} is {got.tolist()}, NumPy says {want.tolist()}"
            assert not differs(v, got, want, operands), f"{shown}, in\n{p.leading_to(v.name)}"
    for (v, is_buffer), argument in zip(p.inputs, arguments, strict=True):
        if is_buffer:
            last = p.buffers[v.name]
            assert isinstance(argument, Buffer)
            left = argument.to_numpy()
            same = np.array_equal(left, actual[last.name], equal_nan=last.is_float)
            assert same, f"{v.name} is left as {left.tolist()}"
