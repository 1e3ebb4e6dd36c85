# SPDX-License-Identifier: Apache-2.0
"""The language model as two files: equal at every size, caches written in place."""

import numpy as np
import pytest

from examples.gemma3.generate import Generator
from maxjax import export
from maxjax.driver import Buffer
from tests.export.memory import peak_of_loading
from tests.export.other_process import OtherProcess, Question

# Texts, tokens of each, places in the caches.
SIZES = [(1, 3, 8), (2, 5, 16), (1, 1, 1), (3, 2, 4), (1, 9, 64)]


@pytest.fixture(scope="module")
def generator():
    return Generator()


@pytest.fixture(scope="module")
def paths(generator, tmp_path_factory):
    """The program of each graph, and that of one with the weights."""
    folder = tmp_path_factory.mktemp("gemma")
    found = {}
    for name, model in generator.models.items():
        graph = model.function.graph
        registry = model.weights if name == "decode" else None
        found[name] = export.save(graph, folder / f"{name}.maxjax", weights_registry=registry)
    return found


def call(generator, name, batch, length, context):
    """Inputs of a graph, caches included."""
    chance = np.random.default_rng(batch + length)
    caches = [
        chance.normal(size=c.shape).astype(np.float32) / 4 for c in generator.caches(batch, context)
    ]
    starts = np.minimum(np.arange(batch, dtype=np.int64), length - 1)
    if name == "prefill":
        return [chance.integers(2, 9000, (batch, length)), starts, *caches]
    return [chance.integers(2, 9000, (batch, 1)), starts, np.int64(length - 1), *caches]


def check(generator, paths, name, sizes):
    model = generator.models[name]
    calls = [call(generator, name, *size) for size in sizes]
    weights = {} if name == "decode" else {n: np.asarray(w) for n, w in model.weights.items()}
    buffers = tuple(i.is_buffer for i in model._inputs)
    other = OtherProcess()
    other.send(Question(paths[name], calls, buffers, weights))
    for arrays, found in zip(calls, other.receive(), strict=True):
        given = [
            Buffer.from_numpy(a.copy()) if b else a for a, b in zip(arrays, buffers, strict=True)
        ]
        outputs = model(*given)
        wanted = [*outputs, *(g for g in given if isinstance(g, Buffer))]
        assert not isinstance(found, tuple), found
        for i, (a, b) in enumerate(zip(wanted, found, strict=True)):
            # Scores reach hundreds.
            np.testing.assert_allclose(a.to_numpy(), b, rtol=1e-5, atol=1e-5, err_msg=f"{i}")
    other.close()


@pytest.mark.parametrize("name", [pytest.param("prefill", marks=pytest.mark.slow), "decode"])
def test_from_the_file_in_another_process(generator, paths, name):
    check(generator, paths, name, SIZES[:1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_more_sizes_from_the_file_in_another_process(generator, paths, name):
    check(generator, paths, name, SIZES[1:])


def test_the_programs_are_small_and_the_weights_are_mapped(generator, paths):
    weights = sum(w.nbytes for w in generator.models["decode"].weights.values())
    for path in paths.values():
        sizes = export.inspect(path).sizes
        assert sum(size for name, size in sizes.items() if name.startswith("module")) < 1_000_000
    assert weights < peak_of_loading(paths["decode"]) < 1.2 * weights


def test_caches_are_written_in_place(generator, paths):
    model = export.load(paths["decode"])
    arrays = call(generator, "decode", 1, 3, 8)
    caches = [Buffer.from_numpy(a) for a in arrays[3:]]
    before = [c.to_numpy().copy() for c in caches]
    model(*arrays[:3], *caches)
    for i, (cache, old) in enumerate(zip(caches, before, strict=True)):
        others = (0, 1, 2) if i % 2 else (0, 1, 3)  # places of values come last, those of keys not
        changed = (cache.to_numpy() != old).any(axis=others)
        assert np.flatnonzero(changed).tolist() == [2]
    (program,) = model._programs.compiled.values()
    sizes = program.memory_analysis()
    assert sizes.alias_size_in_bytes == sum(c.num_elements * 4 for c in caches)
