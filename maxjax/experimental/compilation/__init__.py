# SPDX-License-Identifier: Apache-2.0
"""Functions over tensors, traced once and compiled.

``compile(fn)(*specs)`` traces ``fn``, with a layout in the place of each tensor argument, and gives
a function that runs the compiled program; all other arguments are fixed by the trace.
``stage`` stops after the trace. ``as_subgraph`` makes a function one body of the graph that is
called wherever the function is used.

>>> from maxjax.driver import CPU
>>> from maxjax.dtype import DType
>>> from maxjax.experimental import compilation
>>> from maxjax.experimental.sharding import TensorLayout
>>> from maxjax.experimental.tensor import Tensor
>>> def step(x, *, gain):
...     return x * gain
>>> run = compilation.compile(step)(TensorLayout(DType.float32, ["batch", 2], CPU()), gain=3.0)
>>> run(Tensor.ones([4, 2], device=CPU()), gain=3.0).to_numpy().shape
(4, 2)
"""

from maxjax.experimental.compilation.callable import CompiledCallable, compile
from maxjax.experimental.compilation.staged import StagedGraph, stage
from maxjax.experimental.compilation.subgraph import as_subgraph

__all__ = ["CompiledCallable", "StagedGraph", "as_subgraph", "compile", "stage"]
