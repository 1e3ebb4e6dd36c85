# SPDX-License-Identifier: Apache-2.0
"""Device references: one object for each device, made from names and from devices."""

import copy
import pickle

import numpy as np
import pytest

from maxjax import driver
from maxjax.graph.device import DeviceKind, DeviceRef


def test_kinds_differ():
    assert DeviceKind.CPU != DeviceKind.GPU
    assert DeviceKind.CPU == "cpu" and str(DeviceKind.GPU) == f"{DeviceKind.GPU}" == "gpu"
    assert {DeviceKind.CPU: 1, DeviceKind.GPU: 2}["gpu"] == 2  # type: ignore[index]


def test_kinds_by_name():
    assert DeviceKind.from_string("cpu") is DeviceKind("cpu") is DeviceKind.CPU
    for name in ("tpu", "GPU", "", None):
        with pytest.raises(ValueError, match="is not a kind of device: expected 'cpu' or 'gpu'"):
            DeviceKind.from_string(name)  # type: ignore[arg-type]


def test_one_object_for_each_device():
    assert DeviceRef.GPU(2) is DeviceRef("gpu", 2) is DeviceRef(DeviceKind.GPU, id=np.int64(2))
    assert DeviceRef.CPU() is DeviceRef("cpu") and DeviceRef.CPU(-3) is DeviceRef.CPU()
    assert len({DeviceRef.GPU(), DeviceRef.GPU(1), DeviceRef.CPU(), DeviceRef.CPU(1)}) == 4
    assert DeviceRef.CPU() != "cpu:0"
    ref = DeviceRef.GPU(5)
    assert copy.copy(ref) is copy.deepcopy(ref) is pickle.loads(pickle.dumps(ref)) is ref


def test_what_a_reference_says_of_itself():
    ref = DeviceRef.GPU(3)
    assert (str(ref), repr(ref), ref.id, ref.device_type) == ("gpu:3", "gpu:3", 3, DeviceKind.GPU)
    assert ref.is_gpu() and not ref.is_cpu() and DeviceRef.CPU().is_cpu()


def test_references_are_immutable():
    ref = DeviceRef.GPU(1)
    with pytest.raises(AttributeError, match="immutable: cannot set 'id'"):
        ref.id = 2
    with pytest.raises(AttributeError, match="immutable: cannot delete 'id'"):
        del ref.id
    assert DeviceRef.GPU(1).id == 1


@pytest.mark.parametrize("kind", ["tpu", "CPU", "", "gpu:0", None, 3])
def test_no_such_kind(kind):
    with pytest.raises(ValueError, match=r"is not a kind of device: expected 'cpu' or 'gpu'"):
        DeviceRef(kind)


@pytest.mark.parametrize("number", [1.0, "1", None, True])
def test_the_number_is_an_int(number):
    DeviceRef.GPU(1)  # a number equal to a known one is no excuse
    with pytest.raises(TypeError, match=r"the number of a device is an int, not \w+ "):
        DeviceRef("gpu", number)


def test_from_a_device():
    assert DeviceRef.from_device(driver.CPU()) is DeviceRef.CPU()
    assert DeviceRef.from_device(DeviceRef.GPU(2)) is DeviceRef.GPU(2)
    for other in ("cpu", None, 0, DeviceKind.CPU):
        with pytest.raises(TypeError, match=r"expected a DeviceRef or a driver Device, not \w+ "):
            DeviceRef.from_device(other)


def test_to_a_device():
    assert DeviceRef.CPU().to_device() == driver.CPU()
    with pytest.raises(ValueError):
        DeviceRef.GPU(1000).to_device()
