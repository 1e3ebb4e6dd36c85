# SPDX-License-Identifier: Apache-2.0
"""Meshes: their axes, the places of devices, and what is no mesh."""

import pytest

from maxjax import driver
from maxjax.driver import CPU
from maxjax.experimental.sharding import DeviceMesh
from maxjax.experimental.sharding._default import DEFAULT_MESH
from maxjax.experimental.sharding.mesh import get_default_mesh
from maxjax.graph import DeviceRef
from tests.experimental.sharding.simulated import mesh

c = CPU()


def test_a_mesh_is_a_value():
    m = mesh(2, 3)
    assert repr(m) == "DeviceMesh(dp=2, tp=3)" and m.ndim == 2 and m.num_devices == 6
    assert m == mesh(2, 3) and hash(m) == hash(mesh(2, 3))
    assert m != mesh(3, 2) and m != mesh(2, 3, names=("x", "y"))
    assert DeviceMesh([c, c], [2], ["a"]) == DeviceMesh((c, c), (2,), ("a",))
    with pytest.raises(AttributeError):
        m.mesh_shape = (6,)  # pyright: ignore[reportAttributeAccessIssue]


def test_a_device_is_a_mesh():
    assert DeviceMesh.single(c) == DeviceMesh((c,), (1,), ("_",))
    assert DeviceMesh((DeviceRef.CPU(),), (1,), ("_",)) == DeviceMesh.single(c)


@pytest.fixture
def gpus():
    driver.set_virtual_device_count(2)
    yield driver.Accelerator(0), driver.Accelerator(1)
    driver.set_virtual_device_count(0)


def test_devices_are_all_distinct_or_all_the_same(gpus):
    assert mesh(2).is_simulated and not mesh(1).is_simulated
    assert not DeviceMesh(gpus, (2,), ("tp",)).is_simulated
    with pytest.raises(ValueError, match="is in the mesh 2 times, beside others"):
        DeviceMesh((gpus[0], gpus[1], gpus[0]), (3,), ("tp",))


def test_sizes_of_axes():
    m = mesh(2, 3)
    assert [m.axis_size(a) for a in ("dp", 1, ("dp", "tp"), [0], ())] == [2, 3, 6, 2, 1]


def test_places_of_devices():
    m = mesh(2, 3)
    table = [[m.device_coord(d, a) for a in (0, "tp", ("dp", "tp"), (1, 0))] for d in range(6)]
    assert table == [
        [0, 0, 0, 0], [0, 1, 1, 2], [0, 2, 2, 4], [1, 0, 3, 1], [1, 1, 4, 3], [1, 2, 5, 5],
    ]  # fmt: skip


def test_groups_come_in_the_order_of_the_axes():
    m = mesh(2, 3)
    assert m.groups((0, 1)) == [(0, 1, 2, 3, 4, 5)]
    assert m.groups((1, 0)) == [(0, 3, 1, 4, 2, 5)]
    assert m.groups(()) == [(d,) for d in range(6)]


@pytest.mark.parametrize(
    ("axis", "error", "text"),
    [
        ("zz", ValueError, "has no axis 'zz'; its axes are"),
        (("dp", "zz"), ValueError, "has no axis 'zz'"),
        (2, IndexError, "has the axes 0 to 1, not 2"),
        (-1, IndexError, "not -1"),
        (1.5, TypeError, "an axis of a mesh is a name, a number or several"),
        ((1.5,), TypeError, "an axis of a mesh is a name or a number"),
    ],
)
def test_no_axis(axis, error, text):
    for ask in (mesh(2, 3).axis_size, lambda a: mesh(2, 3).device_coord(0, a)):
        with pytest.raises(error, match=text):
            ask(axis)


@pytest.mark.parametrize("device", [6, -1])
def test_no_device(device):
    with pytest.raises(IndexError, match=f"has the devices 0 to 5, not {device}"):
        mesh(2, 3).device_coord(device, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (((), (), ()), ValueError, "needs at least one device"),
        (((c, c), (3,), ("x",)), ValueError, "is for 3 devices, got 2"),
        (((c, c), (2,), ("x", "y")), ValueError, r"has 1 axes, and axis_names has 2 names"),
        (((c,) * 4, (2, 2), ("x", "x")), ValueError, "two axes of the mesh are named 'x'"),
        (((c, c), (-2, -1), ("x", "y")), ValueError, "has the size -2"),
        (((c, c), (2.0,), ("x",)), TypeError, "the size of a mesh axis is an int, got 2.0"),
        (((c, c), (2,), (3,)), TypeError, "the name of a mesh axis is a string, got 3"),
        ((("gpu",), (1,), ("x",)), TypeError, "a mesh is made of devices, got str 'gpu'"),
    ],
)
def test_no_mesh(arguments, error, text):
    with pytest.raises(error, match=text):
        DeviceMesh(*arguments)


def test_the_default_mesh_is_that_which_is_set():
    assert get_default_mesh() is None
    token = DEFAULT_MESH.set(mesh(2))
    assert get_default_mesh() == mesh(2)
    DEFAULT_MESH.reset(token)
