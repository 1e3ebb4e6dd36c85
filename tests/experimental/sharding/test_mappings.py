# SPDX-License-Identifier: Apache-2.0
"""Mappings, by placements and by names."""

import pytest

from maxjax.driver import CPU
from maxjax.experimental.sharding import (
    ConversionError,
    DeviceMapping,
    NamedMapping,
    Replicated,
    as_device_mapping,
)
from maxjax.experimental.sharding._default import DEFAULT_MESH
from maxjax.graph import DeviceRef
from tests.experimental.sharding.simulated import P, R, S, mesh, short

m, line = mesh(2, 2), mesh(2)


def named(*spec, **unreduced):
    return " ".join(map(short, NamedMapping(m, spec, **unreduced).placements))


def test_a_mapping_is_a_value():
    rows = DeviceMapping(m, (S(0), R))
    assert repr(rows) == "DeviceMapping(DeviceMesh(dp=2, tp=2), [Sharded(axis=0), Replicated()])"
    assert rows == DeviceMapping(m, [S(0), R])  # pyright: ignore[reportArgumentType]
    assert hash(rows) == hash(DeviceMapping(m, (S(0), R))) and rows != DeviceMapping(m, (R, S(0)))
    copies = DeviceMapping.replicated(m)
    assert copies.is_fully_replicated and not rows.is_fully_replicated
    assert not DeviceMapping(m, (R, P)).is_fully_replicated


@pytest.mark.parametrize(
    ("mesh", "placements", "error", "text"),
    [
        (m, (R,), ValueError, r"has 2 axes and needs a placement for each, got 1"),
        (line, ("x",), TypeError, r"expected a placement, such as .*, got 'x'"),
        (line, (Replicated,), TypeError, r"; write Replicated\(\)"),
        (CPU(), (R,), TypeError, r"a mapping is over a DeviceMesh, got Device"),
    ],
)
def test_no_mapping(mesh, placements, error, text):
    with pytest.raises(error, match=text):
        DeviceMapping(mesh, placements)


def test_the_axes_that_a_tensor_needs():
    DeviceMapping(line, (S(1),)).check_shape([2, 2])
    for placement, shape in ((S(1), [2]), (S(-1), [2]), (S(0), [])):
        with pytest.raises(ValueError, match="on mesh axis 'tp' splits an axis"):
            DeviceMapping(line, (placement,)).check_shape(shape)
    with pytest.raises(ValueError, match="splits an axis"):
        NamedMapping(line, (None, "tp")).check_shape([4])


def test_names():
    assert named("dp") == "S0 R" and named(None, "tp") == "R S1" and named("dp", "tp") == "S0 S1"
    assert named(("dp", "tp")) == named(("tp", "dp")) == named(["tp", "dp"]) == "S0 S0"
    assert named() == "R R" and named((), "tp") == "R S1"
    assert named("dp", unreduced=["tp"]) == "S0 P" and named(unreduced=["dp", "tp"]) == "P P"


def test_names_that_the_mesh_has_not_are_left_out():
    assert named("ep", "tp") == "R S1" and named("dp", unreduced=["zz"]) == "S0 R"
    assert named("zz", "zz") == "R R"


def test_a_named_mapping_is_another_kind_of_value():
    rows = NamedMapping(m, ("dp", None))
    plain = DeviceMapping(m, (S(0), R))
    assert rows == NamedMapping(m, ("dp",)) and hash(rows) == hash(NamedMapping(m, ("dp",)))
    assert rows != plain and plain != rows and rows.placements == plain.placements
    assert NamedMapping.replicated(m) == DeviceMapping.replicated(m)


def test_repr():
    head = "NamedMapping(DeviceMesh(dp=2, tp=2), "
    assert repr(NamedMapping(m, ("dp", "tp"))) == f"{head}('dp', 'tp'))"
    assert repr(NamedMapping(m, (None, ("dp", "tp")))) == f"{head}(None, ('dp', 'tp')))"
    assert (
        repr(NamedMapping(m, (), unreduced=["tp", "dp"])) == f"{head}(), unreduced={{'dp', 'tp'}})"
    )
    assert repr(NamedMapping(m, ("tp",), unreduced=["dp"])) == f"{head}('tp'), unreduced={{'dp'}})"


@pytest.mark.parametrize(
    ("spec", "unreduced"),
    [(("dp", "dp"), ()), ((("dp", "dp"),), ()), (("dp",), ["dp"]), ((), ["dp", "dp"])],
)
def test_an_axis_of_the_mesh_is_used_once(spec, unreduced):
    with pytest.raises(ConversionError, match="mesh axis 'dp' cannot be both"):
        NamedMapping(m, spec, unreduced=unreduced)
    assert ConversionError.__mro__[1] is Exception


def test_bad_entries():
    with pytest.raises(TypeError, match="a tuple of names or None, got 3"):
        NamedMapping(line, (3,))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="a tuple with an entry for each axis, got 'tp'"):
        NamedMapping(line, "tp")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="got 'tp'"):
        NamedMapping(line, (), unreduced="tp")


def test_the_default_mesh():
    with pytest.raises(ValueError, match="no mesh is given, and none is in force"):
        NamedMapping(None, ("tp",))
    token = DEFAULT_MESH.set(line)
    assert NamedMapping(spec=("tp",)) == NamedMapping(line, ("tp",))
    DEFAULT_MESH.reset(token)


def test_what_says_where():
    single = DeviceMapping.replicated(mesh(1, names=("_",)))
    assert as_device_mapping(CPU()) == as_device_mapping(DeviceRef.CPU()) == single
    assert as_device_mapping(line) == DeviceMapping(line, (R,))
    by_name = NamedMapping(line, ("tp",))
    assert as_device_mapping(by_name) is by_name
    for other in (3, None, "cpu", [CPU()]):
        with pytest.raises(TypeError, match=f"or a DeviceMapping, got {type(other).__name__}"):
            as_device_mapping(other)
