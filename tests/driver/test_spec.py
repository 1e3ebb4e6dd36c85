# SPDX-License-Identifier: Apache-2.0
"""Device specs, and how many virtual devices they ask for."""

import dataclasses

import pytest

from maxjax.driver import (
    CPU,
    DeviceSpec,
    calculate_virtual_device_count,
    calculate_virtual_device_count_from_cli,
    devices_exist,
    load_devices,
    scan_available_devices,
)

GPU = DeviceSpec.accelerator


def test_specs_are_values():
    assert DeviceSpec(1) == DeviceSpec(1, "cpu") == DeviceSpec.cpu(1) != GPU(1)
    assert len({GPU(), GPU(0), GPU(1)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        GPU().id = 2


def test_impossible_specs():
    with pytest.raises(ValueError, match="0 or more, not -1"):
        GPU(-1)
    with pytest.raises(ValueError, match=r"'cpu' or 'gpu' \(any accelerator\), not 'tpu'"):
        DeviceSpec(0, "tpu")


def test_what_there_is():
    assert scan_available_devices() == [DeviceSpec.cpu()]
    assert load_devices([DeviceSpec.cpu(), DeviceSpec.cpu(4)]) == [CPU(), CPU()]
    assert devices_exist([DeviceSpec.cpu(9)])
    assert not devices_exist([DeviceSpec.cpu(), GPU(0)])
    with pytest.raises(ValueError, match=r"no Accelerator\(98\)"):
        load_devices([GPU(98)])
    for refuse in (load_devices, devices_exist):
        with pytest.raises(TypeError, match=r"expected a DeviceSpec, .* got str 'cpu'"):
            refuse(["cpu"])


def test_what_there_is_in_virtual_device_mode(gpus):
    assert scan_available_devices() == [GPU(i) for i in range(8)]
    assert load_devices([GPU(7), DeviceSpec.cpu()]) == [gpus[7], CPU()]
    assert devices_exist([GPU(7)])
    assert not devices_exist([GPU(8)])


def test_counting_specs():
    assert calculate_virtual_device_count() == 1
    assert calculate_virtual_device_count([GPU(3), GPU(0)], [DeviceSpec.cpu(9)]) == 4


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (["gpu:0,2", "cpu"], 3),
        (["GPU: 4"], 5),
        (["gpu:all"], 2),
        (["gpu:1,", "default", ""], 2),
        ([[1, 5], "gpu"], 6),
        ([[]], 1),
        ([], 1),
    ],
)
def test_counting_devices_of_a_command_line(given, count):
    assert calculate_virtual_device_count_from_cli(*given) == count


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("gpu:x", "ints with commas, as in 'gpu:0,2', not 'gpu:x'"),
        ("0,3", "devices are named as"),
        ("tpu", "devices are named as"),
        ("gpu:-1", "0 or more, got 'gpu:-1'"),
        ([-1], r"0 or more, got \[-1\]"),
    ],
)
def test_command_lines_that_say_something_else(given, text):
    with pytest.raises(ValueError, match=text):
        calculate_virtual_device_count_from_cli(given)
