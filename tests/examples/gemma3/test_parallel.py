# SPDX-License-Identifier: Apache-2.0
"""The network on several virtual devices: the same scores and text, and what they exchange."""

import re

import numpy as np
import pytest

from examples.gemma3.generate import Generator
from maxjax import driver
from tests.examples.gemma3.test_generate import CONTEXT, IDS, RECORDED, close

LAYERS = 18


@pytest.fixture(autouse=True, scope="module")
def eight_accelerators():
    driver.set_virtual_device_count(8)
    yield
    driver.set_virtual_device_count(0)


def scores(generator, ids):
    given = [*generator.caches(1, CONTEXT), *generator.signals]
    found, _ = generator.models["prefill"](np.array([ids]), np.zeros(1, np.int64), *given)
    return found.to_numpy()[0]


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_it_writes_the_recorded_text(count):
    generator = Generator(devices=[driver.Accelerator(i) for i in range(count)])
    written = [token for (token,) in generator.tokens([IDS[0]], 16)]
    assert written == RECORDED["greedy0"].tolist()
    close(scores(generator, IDS[0]), 0)
    for model in generator.models.values():
        plan = model.plan
        assert plan.path == "one program on all devices"
        # Each device has its share of what is shared out, and the little that is not.
        each = set(plan.weight_bytes.values())
        shared = sum(w.bytes["gpu:0"] for w in plan.weights if "part" in w.where)
        assert len(each) == 1
        assert shared > 0.9 * each.pop()
        for program in model._programs.compiled.values():
            text = program.args[0].as_text()
            found = re.findall(r"= \S+ (all-\w+|collective-\w+|reduce-scatter)\(", text)
            # Two in each layer and one of the embedding; the scores are put together.
            assert sorted(found) == ["all-gather"] + ["all-reduce"] * (2 * LAYERS + 1)


@pytest.mark.slow
def test_scores_are_those_of_one_device():
    one = scores(Generator(), IDS[0])
    for count in (2, 4):
        many = scores(Generator(devices=[driver.Accelerator(i) for i in range(count)]), IDS[0])
        np.testing.assert_allclose(many, one, rtol=1e-4, atol=1e-4)


def test_heads_that_cannot_be_shared_out():
    with pytest.raises(ValueError, match="4 query heads cannot be shared out to 3 devices"):
        Generator(devices=[driver.Accelerator(i) for i in range(3)])
