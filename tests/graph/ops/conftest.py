# SPDX-License-Identifier: Apache-2.0
"""Runs what a test builds, for real sizes and traced with symbolic ones."""

import jax
import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, TensorType
from maxjax.lower import to_jax


def _graph(build, arrays, dims):
    types = [
        TensorType(DType.of(a.dtype), a.shape if dims is None else d, DeviceRef.CPU())
        for a, d in zip(arrays, dims or [None] * len(arrays), strict=True)
    ]
    with Graph("test", input_types=types) as graph:
        out = build(*[v.tensor for v in graph.inputs])
        graph.output(*(out if isinstance(out, (list, tuple)) else [out]))
    return graph


@pytest.fixture
def run():
    """``run(build, *arrays, dims=None)``: the outputs, as NumPy arrays, in a list.

    ``build`` takes a tensor value per array and returns one or several; ``dims`` gives a list of
    dims per array where they are not the array's own sizes.
    """

    def run(build, *arrays, dims=None):
        arrays = [np.asarray(a) for a in arrays]
        model = InferenceSession().load(_graph(build, arrays, dims))
        return [b.to_numpy() for b in model(*arrays)]

    return run


@pytest.fixture
def run_symbolic():
    """As ``run``, but traced once with JAX's symbolic dims (all at least 1), then called."""

    def run(build, *arrays, dims):
        arrays = [np.asarray(a) for a in arrays]
        graph = _graph(build, arrays, dims)
        scope = jax.export.SymbolicScope()
        specs = [
            jax.ShapeDtypeStruct(
                jax.export.symbolic_shape(",".join(map(str, t.shape)), scope=scope), t.dtype.np
            )
            for t in graph.input_types
        ]
        with jax.enable_x64(True):
            function = to_jax(graph)
            exported = jax.export.export(jax.jit(lambda *xs: function({}, xs)[0]))(*specs)
            return [np.asarray(o) for o in exported.call(*arrays)]

    return run
