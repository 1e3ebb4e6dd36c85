# SPDX-License-Identifier: Apache-2.0
"""The process that loads what the tests save."""

from collections.abc import Iterator

import pytest

from tests.export.other_process import OtherProcess


@pytest.fixture(scope="session")
def other() -> Iterator[OtherProcess]:
    process = OtherProcess()
    yield process
    process.close()
