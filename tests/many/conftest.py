# SPDX-License-Identifier: Apache-2.0
"""Eight virtual accelerators for the tests of programs over many devices."""

from collections.abc import Iterator

import pytest

from maxjax import driver


@pytest.fixture(autouse=True, scope="module")
def eight_accelerators() -> Iterator[None]:
    driver.set_virtual_device_count(8)
    yield
    driver.set_virtual_device_count(0)
