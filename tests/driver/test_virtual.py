# SPDX-License-Identifier: Apache-2.0
"""Virtual devices: asked for before JAX starts, refused after, reported as named."""

import pytest

from maxjax import driver

FLAG = "--xla_force_host_platform_device_count"


def test_the_mode_is_entered_and_left():
    assert not driver.is_virtual_device_mode()
    driver.set_virtual_device_count(2)
    assert driver.is_virtual_device_mode()
    assert driver.get_virtual_device_count() == driver.accelerator_count() == 2
    kept = driver.Accelerator(1)
    driver.set_virtual_device_count(0)
    assert not driver.is_virtual_device_mode()
    assert driver.accelerator_count() == 0
    assert kept.label == "gpu" and kept.jax.platform == "cpu"


def test_a_count_is_a_natural_number():
    with pytest.raises(ValueError, match="0 or more, not -1"):
        driver.set_virtual_device_count(-1)
    with pytest.raises(TypeError):
        driver.set_virtual_device_count("2")
    with pytest.raises(TypeError):
        driver.set_virtual_device_count(2.0)


def test_more_than_jax_started_with_is_refused():
    driver.CPU().synchronize()
    with pytest.raises(RuntimeError) as caught:
        driver.set_virtual_device_count(9)
    assert "9 virtual devices need 9 CPU devices" in str(caught.value)
    assert "already started with 8" in str(caught.value)
    assert f"XLA_FLAGS={FLAG}=9" in str(caught.value)
    assert not driver.is_virtual_device_mode()


def test_names_are_reported():
    driver.set_virtual_device_api("cuda")
    driver.set_virtual_device_target_arch("sm_90a")
    driver.set_virtual_cpu_target("zen9")
    driver.set_virtual_device_count(2)
    try:
        assert driver.get_virtual_device_api() == driver.accelerator_api() == "cuda"
        assert driver.accelerator_architecture_name() == "sm_90a"
        assert driver.get_virtual_device_target_arch() == "sm_90a"
        assert driver.get_virtual_cpu_target() == driver.CPU().architecture_name == "zen9"
        assert driver.Accelerator(1).api == "cuda"
    finally:
        for put_back in (
            driver.set_virtual_device_api,
            driver.set_virtual_device_target_arch,
            driver.set_virtual_cpu_target,
        ):
            put_back("")
        driver.set_virtual_device_count(0)
    assert driver.CPU().architecture_name != "zen9"


def test_with_an_api_devices_may_lack_what_they_would_run_on():
    driver.CPU().synchronize()
    driver.set_virtual_device_api("tpu")
    try:
        driver.set_virtual_device_count(12)
        device = driver.Accelerator(11)
        assert (device.label, device.api) == ("gpu", "tpu")
        assert driver.Accelerator(7).jax.id == 7
        with pytest.raises(RuntimeError, match=r"virtual Accelerator\(11\) has no CPU device"):
            _ = device.jax
    finally:
        driver.set_virtual_device_count(0)
        driver.set_virtual_device_api("")


def test_eight_devices_in_a_new_process(run):
    program = """
import numpy as np
from maxjax import driver
from maxjax.dtype import DType
driver.set_virtual_device_count(8)
import jax
print(driver.accelerator_count(), len(jax.devices()))
b = driver.Buffer.zeros([2], DType.int64, driver.Accelerator(7))
b[0] = 2**63 - 1
print(b, b.jax().device.id, b.to(driver.CPU()).to_numpy().tolist())
"""
    lines = run(program).splitlines()
    assert lines[0] == "8 8"
    assert lines[1] == (
        "Buffer([9223372036854775807,                   0], dtype=int64, shape=(2,), "
        "device=gpu:7) 7 [9223372036854775807, 0]"
    )


def test_too_late_in_a_new_process(run):
    program = """
import jax.numpy as jnp
from maxjax import driver
jnp.zeros(1)
try:
    driver.set_virtual_device_count(4)
except RuntimeError as error:
    print(error)
print(driver.is_virtual_device_mode(), driver.accelerator_count())
"""
    text = run(program)
    assert "call set_virtual_device_count(4) before anything that makes an array" in text
    assert text.endswith("False 0")


@pytest.mark.parametrize("before", ["", "import jax; jax.devices()"])
def test_devices_forced_by_the_environment_are_kept(run, before):
    program = f"""
{before}
from maxjax import driver
driver.set_virtual_device_count(4)
import jax
print(driver.accelerator_count(), len(jax.devices()))
"""
    assert run(program, XLA_FLAGS=f"{FLAG}=6") == "4 6"


def test_leaving_the_mode_before_jax_starts_puts_its_option_back(run):
    program = """
from maxjax import driver
import jax
driver.set_virtual_device_count(4)
driver.set_virtual_device_count(6)
driver.set_virtual_device_count(0)
print(len(jax.devices()), jax.config.jax_num_cpu_devices)
"""
    assert run(program) == "1 -1"
