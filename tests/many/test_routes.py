# SPDX-License-Identifier: Apache-2.0
"""Random programs over several devices: the same as NumPy as one program, and as one for each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxjax.driver import Accelerator, Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession, Model
from maxjax.engine import lanes as engine_lanes
from maxjax.lower.fold import NotFolded
from tests.many.programs import Program


def load(program: Program) -> Model:
    session = InferenceSession([Accelerator(i) for i in range(program.lanes)])
    return session.load(program.graph, weights_registry=program.weights)


def check(program: Program, model: Model) -> None:
    n = program.lanes
    devices = [Accelerator(i) for i in range(n)]
    given = [
        Buffer.from_numpy(a.copy()).to(d) for a, d in zip(program.inputs[:n], devices, strict=True)
    ]
    signals = [Buffer.zeros([1], DType.uint8, d) for d in devices]
    states = [
        Buffer.from_numpy(s.copy()).to(d) for s, d in zip(program.state, devices, strict=True)
    ]
    outputs = model(*given, program.inputs[n], *signals, *states)
    for i, (out, want) in enumerate(zip(outputs, program.expected, strict=True)):
        where = f"output {i} of {program.done}"
        np.testing.assert_allclose(out.to_numpy(), want, rtol=2e-5, atol=2e-5, err_msg=where)
        assert out.device == devices[i % n], where
    for state, want in zip(states, program.kept, strict=True):
        np.testing.assert_allclose(state.to_numpy(), want, rtol=2e-5, atol=2e-5)


def refuse(graph):
    raise NotFolded("the test wants it so")


@pytest.mark.parametrize("route", ["as it comes", "for each device"])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), lanes=st.sampled_from([2, 3, 4]))
def test_random_programs(route, seed, lanes):
    program = Program(seed, lanes, steps=6)
    with pytest.MonkeyPatch.context() as patch:
        if route == "for each device":
            patch.setattr(engine_lanes, "fold", refuse)
        model = load(program)
    if route == "for each device":
        assert model.plan.path == "a program for each device"
    check(program, model)
