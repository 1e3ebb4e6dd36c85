# SPDX-License-Identifier: Apache-2.0
"""Devices: names, equality, what JAX knows of them, and that naming one starts nothing."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxjax.driver import (
    CPU,
    Accelerator,
    Device,
    DeviceQueue,
    accelerator_api,
    accelerator_architecture_name,
    accelerator_count,
    enable_all_peer_access,
)
from maxjax.driver.device import device_of


def test_the_host_is_one_device():
    assert CPU() == CPU(3) == CPU(-1) == Device.cpu(2)
    assert hash(CPU()) == hash(CPU(1))
    assert CPU() != "cpu"
    assert CPU().id == CPU(7).id == 0
    assert repr(CPU()) == "Device(type=cpu,id=0)"


def test_the_host_describes_itself():
    cpu = CPU()
    assert (cpu.label, cpu.api, cpu.model_name) == ("cpu", "cpu", "cpu")
    assert cpu.is_host and cpu.is_host_unified and cpu.is_compatible
    assert cpu.can_access(CPU())
    assert cpu.architecture_name
    stats = cpu.stats
    assert 0 < stats["free_memory"] <= stats["total_memory"] == cpu.max_single_alloc_size
    assert stats["graph_mem_reserved"] == stats["graph_mem_used"] == 0
    assert cpu.default_queue == DeviceQueue(cpu)
    assert cpu.jax is jax.local_devices(backend="cpu")[0]


def test_devices_are_immutable_and_travel():
    cpu = CPU()
    with pytest.raises(AttributeError):
        cpu.name = "x"
    with pytest.raises(AttributeError):
        cpu.id = 1
    assert pickle.loads(pickle.dumps(cpu)) == copy.deepcopy(cpu) == cpu


def test_a_device_needs_a_kind():
    with pytest.raises(TypeError, match=r"use CPU\(\) or Accelerator\(id\)"):
        Device()

    class Mine(Device):
        pass

    with pytest.raises(TypeError, match=r"Mine\(\) makes no device"):
        Mine()


@pytest.mark.parametrize("kind", [CPU, Accelerator])
def test_the_number_is_an_int(kind):
    with pytest.raises(TypeError, match="an int, not str 'a'"):
        kind("a")


def test_without_accelerators():
    assert accelerator_count() == 0
    assert accelerator_api() == "cpu"
    with pytest.raises(
        ValueError, match=r"no Accelerator\(2\): there is none; use CPU\(\), or call"
    ):
        Accelerator(2)
    with pytest.raises(ValueError, match="there is none"):
        accelerator_architecture_name()
    assert enable_all_peer_access() is None


def test_virtual_accelerators(gpus):
    gpu = gpus[3]
    assert (gpu.label, gpu.id, repr(gpu)) == ("gpu", 3, "Device(type=gpu,id=3)")
    assert not gpu.is_host and not gpu.is_host_unified and gpu.is_compatible
    assert gpu == Accelerator(3) != gpus[2]
    assert gpu != CPU() and hash(gpu) == hash(Accelerator(np.int64(3)))
    assert Accelerator(-1) == gpus[0]
    assert gpu.can_access(gpus[0]) and not gpu.can_access(CPU())
    assert gpu.api == accelerator_api() == "cpu"
    assert gpu.architecture_name == accelerator_architecture_name()
    assert gpu.model_name == "cpu"
    assert gpu.stats["total_memory"] == gpu.max_single_alloc_size > 0
    assert gpu.jax is jax.devices("cpu")[3]
    with pytest.raises(ValueError, match=r"no Accelerator\(8\): there are 8"):
        Accelerator(8)


def test_the_device_of_a_jax_device(gpus):
    devices = jax.devices("cpu")
    assert device_of(devices[0]) == CPU()
    assert device_of(devices[5]) == gpus[5]


def test_other_cpu_devices_are_the_host_outside_of_virtual_device_mode():
    assert device_of(jax.devices("cpu")[5]) == CPU()


def test_synchronize_waits_for_what_is_being_computed():
    cpu = CPU().jax
    x = jax.device_put(np.ones((600, 600), np.float32), cpu)
    y = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, c: jnp.sin(c @ x), x))(x)
    CPU().synchronize()
    assert y.is_ready()


def test_can_access_needs_a_device():
    with pytest.raises(TypeError, match="expected a Device, such as CPU"):
        CPU().can_access("cpu")


def test_naming_devices_and_host_memory_start_no_backend(run):
    program = """
import jax, numpy as np
from maxjax import driver
from maxjax.dtype import DType
driver.load_devices([driver.DeviceSpec.cpu()])
b = driver.Buffer.from_numpy(np.ones(3, np.float32))
driver.Buffer.zeros([3], DType.float32).inplace_copy_from(b[:].contiguous())
repr(b), str(b), b[1].item(), b.to(driver.CPU()), driver.CPU().stats, driver.CPU().default_queue
jax.config.update("jax_num_cpu_devices", 3)
print(len(jax.devices("cpu")), driver.CPU().jax.platform)
"""
    assert run(program) == "3 cpu"
