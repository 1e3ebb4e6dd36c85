# SPDX-License-Identifier: Apache-2.0
"""What XLA keeps to itself is refused, or is nothing on CPUs."""

import pytest

from maxjax import driver
from maxjax.driver import CPU, LaunchTraceEntry, SymmetricPool, tracing
from maxjax.dtype import DType


def test_nothing_is_launched_on_cpus(gpus):
    driver.begin_launch_trace()
    assert driver.take_launch_trace() == []
    with driver.launch_trace() as launched:
        driver.Buffer.zeros([2], DType.int8, gpus[1]).to(CPU())
    assert launched == []


def test_launches_on_real_accelerators_are_not_known(monkeypatch):
    monkeypatch.setattr(tracing, "accelerator_count", lambda: 1)
    with pytest.raises(RuntimeError, match=r"record a profile with jax\.profiler\.trace"):
        driver.begin_launch_trace()
    with pytest.raises(RuntimeError, match="JAX does not tell"), driver.launch_trace():
        pass


def test_an_entry_is_a_record():
    kind = LaunchTraceEntry.OperationKind.MEMCPY
    entry = LaunchTraceEntry(kind, "copy", memcpy_kind=LaunchTraceEntry.MemcpyKind.DTOH)
    assert (entry.kind, entry.memcpy_kind.name, entry.grid_x) == (kind, "DTOH", 0)


def test_there_are_no_symmetric_pools():
    assert not SymmetricPool.is_supported([CPU()])
    assert SymmetricPool.lookup([CPU()]) is None
    with pytest.raises(RuntimeError, match=r"no memory that 2 devices map at once \(10 bytes"):
        SymmetricPool.allocate([CPU(), CPU()], 10)


def test_a_hazard_is_a_runtime_error():
    assert issubclass(driver.HostHazardError, RuntimeError)
