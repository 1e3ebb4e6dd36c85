# SPDX-License-Identifier: Apache-2.0
"""The examples give the same in the process that built them and in one that loads their files.

MiniLM and Gemma have tests of their own beside them.
"""

import importlib.util
import pathlib
from typing import Any

import numpy as np
import pytest

from examples.decoder_nn.model import TOKENS, Config, build, random_weights
from examples.kernels import build as tool
from maxjax import compat, export
from maxjax.dtype import DType
from maxjax.engine import InferenceSession, Model
from maxjax.graph import DeviceRef, Graph, TensorType, ops
from tests.export.other_process import OtherProcess, Question, run

ROOT = pathlib.Path(__file__).parents[2]
CPU = DeviceRef.CPU()


def same(model: Model, path: pathlib.Path, calls: list[list[Any]], other: OtherProcess) -> None:
    buffers = tuple(i.is_buffer for i in model._inputs)
    other.send(Question(path, calls, buffers, {}))
    ours = [run(model, buffers, call) for call in calls]
    for mine, theirs in zip(ours, other.receive(), strict=True):
        assert not isinstance(mine, tuple) and not isinstance(theirs, tuple), (mine, theirs)
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_the_decoder_with_nn(other, tmp_path):
    config = Config()
    decoder = build(config)
    model = decoder.compile(TOKENS, weights=random_weights(decoder)).engine_model
    path = export.save(model, tmp_path / "decoder.maxjax", platforms=["cpu", "tpu"])
    calls = []
    for batch, seq in [(2, 17), (1, 1), (3, 5)]:
        calls.append([np.random.default_rng(seq).integers(0, config.vocab, (batch, seq))])
    same(model, path, calls, other)


@pytest.mark.parametrize(
    ("file", "name", "inputs", "outputs", "parameters"),
    [
        ("plain.py", "histogram", [["n"]], [(DType.int32, [7])],
         {"bins": 7, "low": -1.0, "high": 1.5}),
        ("pallas.py", "swiglu", [["n", 16]] * 2, [(DType.float32, ["n", 16])], {"rows": 4}),
    ],
)  # fmt: skip
def test_kernels(file, name, inputs, outputs, parameters, other, tmp_path):
    types = [TensorType(DType.float32, dims, CPU) for dims in inputs]
    results = [TensorType(dtype, dims, CPU) for dtype, dims in outputs]
    folder = pathlib.Path(tool.__file__).parent
    with Graph("g", input_types=types, custom_extensions=[folder / file]) as graph:
        graph.output(*ops.custom(name, CPU, graph.inputs, results, parameters))
    # Pallas kernels run in interpret mode, which is for the CPU.
    path = export.save(graph, tmp_path / "kernel.maxjax", platforms=["cpu"])
    shapes = [[16 if d == 16 else 8 for d in dims] for dims in inputs]
    calls = [[draw(*s, seed=k) for k, s in enumerate(shapes)]]
    same(InferenceSession().load(graph), path, calls, other)


@pytest.fixture
def program():
    """A program of ``examples/unmodified`` as a module."""

    def load(name: str) -> Any:
        file = ROOT / "examples" / "unmodified" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    compat.install()
    yield load
    compat.uninstall()


def test_a_decoder_that_imports_max(program, other, tmp_path):
    example = program("tiny_decoder")
    arrays = example.weights()
    graph = example.decoder(arrays)
    path = export.save(graph, tmp_path / "tiny.maxjax", weights_registry=arrays)
    model = InferenceSession().load(graph, weights_registry=arrays)
    caches = [np.zeros(t.shape.evaluate({}), np.float32) for t in graph.input_types[2:]]
    calls = [[np.arange(n), np.array(0), *caches] for n in (2, 5)]
    same(model, path, calls, other)


def test_a_classifier_that_imports_max(program, other, tmp_path):
    example = program("spiral_classifier")
    for graph in (example.training_step(), example.prediction()):
        path = export.save(graph, tmp_path / f"{graph.name}.maxjax")
        model = InferenceSession().load(graph)
        rng = np.random.default_rng(0)
        call = []
        for type_ in graph.input_types:
            shape = type_.shape.evaluate({p.name: 6 for p in type_.parameters})
            if type_.dtype.is_float():
                call.append(rng.normal(size=shape).astype(np.float32))
            else:
                call.append(rng.integers(0, 3, shape).astype(type_.dtype.np))
        same(model, path, [call], other)


def test_a_filter_that_imports_max(program, other, tmp_path):
    example = program("image_filter")
    blur, gradient = example.gaussian(5, 1.2), example.sobel()
    layouts = [["height" if d == 48 else "width" if d == 64 else d for d in (1, 48, 64, 1)]]
    layouts += [blur.shape, gradient.shape]
    specs = [example.TensorLayout(DType.float32, list(d), example.DEVICE) for d in layouts]
    model = example.compile(example.edges)(*specs).engine_model
    path = export.save(model, tmp_path / "filter.maxjax")
    pictures = [example.picture(*size) for size in ((48, 64), (24, 48))]
    same(model, path, [[picture, blur, gradient] for picture in pictures], other)
