# SPDX-License-Identifier: Apache-2.0
"""A hostile environment for the tests: JAX in its strict mode, on eight CPU devices.

Warnings are errors too (`pyproject.toml`). None of this is ever done by maxjax itself,
whose import changes nothing in the process.
"""

from collections.abc import Iterator
from typing import Any

import hypothesis
import jax
import pytest

from maxjax import driver
from maxjax.engine import session
from maxjax.graph import Graph, text
from maxjax.lower import LoweredFunction, Manner

# Promotion and broadcasting are maxjax's own; where JAX would do either silently, a test fails.
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Takes effect only before the backend starts, hence here and not in a fixture.
jax.config.update("jax_num_cpu_devices", 8)

# No deadline: the first example of a test pays for a compile. The same examples in every run;
# `--hypothesis-profile=long` looks for new ones.
# Drawing examples is slow where the machine is busy, which says nothing of the test.
_SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile(
    "short", deadline=None, derandomize=True, max_examples=50, suppress_health_check=_SLOW
)
hypothesis.settings.register_profile(
    "long", deadline=None, max_examples=1000, suppress_health_check=_SLOW
)
hypothesis.settings.load_profile("short")


@pytest.fixture(autouse=True)
def virtual_devices_are_put_back() -> Iterator[None]:
    """What a test changes about them, recorded facts and pages of the docs too, ends with it."""
    known = (
        (driver.get_virtual_device_count, driver.set_virtual_device_count),
        (driver.get_virtual_device_api, driver.set_virtual_device_api),
        (driver.get_virtual_device_target_arch, driver.set_virtual_device_target_arch),
        (driver.get_virtual_cpu_target, driver.set_virtual_cpu_target),
    )
    before: list[Any] = [get() for get, _ in known]
    yield
    for (get, put), value in zip(known, before, strict=True):
        if get() != value:
            put(value)


@pytest.fixture(autouse=True)
def graphs_go_through_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph a test loads is written as text, read back, and run from there.

    So each assertion about a model's results is one about the graph that its text gives.
    """
    real = session.to_jax

    def lower(graph: Graph, manner: Manner | None = None) -> LoweredFunction:
        written = text.dump(graph, locations=True)
        (again,) = text.parse(written).graphs
        assert text.dump(again, locations=True) == written
        return real(again, manner)

    monkeypatch.setattr(session, "to_jax", lower)
