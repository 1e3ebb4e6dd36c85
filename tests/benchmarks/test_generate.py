# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of the language model says about memory."""

from benchmarks.generate import memory


def test_memory_in_words():
    sizes = {"peak": 400_000_000, "mapped": 250_000_000, "file": 253_000_000, "device": 247_000_000}
    assert "400 MB more memory at most, of which 250 MB are the mapped" in memory(sizes)
    assert memory(sizes).endswith("the file of 253 MB and the device arrays: held)")
    assert memory({**sizes, "peak": 600_000_000}).endswith("missed)")
