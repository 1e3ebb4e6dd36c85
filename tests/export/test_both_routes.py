# SPDX-License-Identifier: Apache-2.0
"""Every op gives the same in the process that built it and in one that loads its artifact.

The artifacts are for all sizes and platforms. JAX takes symbolic sizes to be 1 or more and not to
be 1, so 1 is among the sizes, and 0 must be refused by name.
"""

import warnings
from typing import Any

import numpy as np
import pytest

from maxjax import export
from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import Graph
from maxjax.lower import to_jax
from tests.export.other_process import Asked, OtherProcess, Question, devices, run
from tests.test_every_op import CASES, Sample, graph_of, is_buffer, values_of

SIZES = [{"n": 5, "m": 3, "k": 2}, {"n": 1, "m": 1, "k": 1}]
MORE_SIZES = [{"n": 1, "m": 4, "k": 3}, {"n": 6, "m": 1, "k": 1}, {"n": 9, "m": 8, "k": 7}]
FIRST = [c for c in CASES if str(c.id).endswith("-0")]
REST = [c for c in CASES if c not in FIRST]


def in_process(
    graph: Graph,
    calls: list[list[Any]],
    buffers: tuple[bool, ...],
    weights: Any,
    accelerators: bool,
) -> list[Asked]:
    """What the graph gives here."""
    with devices(accelerators) as there:
        model = InferenceSession(there).load(graph, weights_registry=weights)
        return [run(model, buffers, call) for call in calls]


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal, and floats to a few units in the last place: fusions differ between programs."""
    assert not isinstance(ours, tuple) and not isinstance(theirs, tuple), (ours, theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        dtype = DType.of(a.dtype)
        if not dtype.is_float():
            np.testing.assert_array_equal(a, b)
            continue
        digits = float(np.finfo(a.dtype).eps) if dtype in _WIDE else 2.0**-7
        wide = [x.astype(np.float64) for x in (a, b)]
        np.testing.assert_allclose(*wide, rtol=8 * digits, atol=8 * digits)


_WIDE = (DType.float32, DType.float64)


def arrays_of(sample: Sample, seed: int, sizes: dict[str, int]) -> list[Any]:
    values = values_of(sample, seed, sizes)
    return [v.to_numpy() if isinstance(v, Buffer) else v for v in values]


def check(sample: Sample, sizes: list[dict[str, int]], other: OtherProcess, folder: Any) -> None:
    graph = graph_of(sample)
    buffers = tuple(map(is_buffer, graph.input_types))
    weights = {
        n: np.ones(t.shape.evaluate(sizes[0]), t.dtype.np) for n, t in to_jax(graph).weights.items()
    }
    nodes = graph.body.walk()
    accelerators = any(r.type.device.is_gpu() for node in nodes for r in node.results)
    with warnings.catch_warnings():
        if sample.calls_back:
            warnings.filterwarnings("ignore", "an artifact does not print", UserWarning)
        path = export.save(graph, folder / "op.maxjax")
    manifest = export.inspect(path).manifest
    assert manifest.platforms == export.PLATFORMS
    names = {p.name for t in graph.input_types for p in t.parameters}
    refused = [
        env
        for env in sizes
        if not all(c.holds({n: env[n] for n in c.names}) for c in manifest.conditions)
    ]
    kept = [env for env in sizes if env not in refused]
    zeros = [sizes[0] | {n: 0} for n in sorted(names)]
    calls = [arrays_of(sample, i, env) for i, env in enumerate([*kept, *refused, *zeros])]
    other.send(Question(path, calls, buffers, weights, accelerators))
    wanted = in_process(graph, calls[: len(kept)], buffers, weights, accelerators)
    found = other.receive()
    for ours, theirs in zip(wanted, found[: len(kept)], strict=True):
        assert_same(ours, theirs)
    for error in found[len(kept) :]:
        assert isinstance(error, tuple) and error[0] == "ValueError"
        assert f"model {graph.name!r} is for sizes with " in error[1]


@pytest.mark.parametrize(("name", "sample"), FIRST)
def test_a_use_of_each_op(name, sample, other, tmp_path):
    check(sample, SIZES, other, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sample"), FIRST)
def test_a_use_of_each_op_at_more_sizes(name, sample, other, tmp_path):
    check(sample, MORE_SIZES, other, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sample"), REST)
def test_other_uses(name, sample, other, tmp_path):
    check(sample, [*SIZES, *MORE_SIZES[:2]], other, tmp_path)
