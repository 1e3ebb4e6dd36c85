# SPDX-License-Identifier: Apache-2.0
"""Random programs over every op: where padding is accepted, the results are those without.

Only the last line of a program is its output, so that more of them are accepted.
"""

import collections

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from maxjax.lower import to_jax
from maxjax.lower.padding import padding
from tests.differential.program import Program
from tests.differential.registry import OPS
from tests.differential.running import graph_of, programs
from tests.lower.test_padding import check

# How often the results of an op were compared.
COMPARED: collections.Counter[str] = collections.Counter()


def compare(name: str, program: Program) -> None:
    """Compares a program's results for each of its symbols, and for all, where that is accepted."""
    real = {n: program.symbols[n].size for n in sorted(program.used)}
    if not real or min(real.values()) < 1:
        return
    graph = graph_of(program, program.steps[-1:])
    fn = to_jax(graph)
    rng = np.random.default_rng(program.turn)
    for names in {*[(n,) for n in real], tuple(real)}:
        try:
            proof = padding(fn, names)
        except ValueError:
            continue
        more = int(rng.integers(1, 5))
        small = {s.text: real[n] for n, s in proof.sizes.items() if s.text in s.names}
        large = {n: size + more * (n in proof.dims.values()) for n, size in small.items()}
        padded = {n: s.at(large) for n, s in proof.sizes.items()}
        if not (proof.holds(real) and proof.holds(padded) and proof.may_become(small, large)):
            continue
        arrays = [np.zeros(list(real.values()), bool), *(v.array for v, _ in program.inputs)]
        weights = {n: program.weights[n] for n in fn.signature.weights}
        check(fn, proof, real, padded, rng, arrays, weights)
        COMPARED[name] += 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OPS))
@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(st.data())
def test_programs_compute_the_same_with_padding(name: str, data: st.DataObject):
    compare(name, data.draw(programs(name)))


@pytest.mark.parametrize("name", ["layer_norm", "transpose"])
def test_some_are_accepted(name):
    @settings(max_examples=6, database=None, phases=[Phase.generate])
    @given(st.data())
    def draw(data):
        compare(name, data.draw(programs(name)))

    draw()
    assert COMPARED[name]
