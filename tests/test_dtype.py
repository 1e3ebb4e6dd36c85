# SPDX-License-Identifier: Apache-2.0
"""`DType`: values, names, predicates, conversions, errors; `finfo`."""

import copy
import operator
import pickle
import subprocess
import sys

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from maxjax.dtype import DType, finfo

# name: (value, MLIR name, bits, bytes)
TABLE = {
    "bool": (1, "bool", 8, 1),
    "int8": (135, "si8", 8, 1),
    "int16": (137, "si16", 16, 2),
    "int32": (139, "si32", 32, 4),
    "int64": (141, "si64", 64, 8),
    "uint8": (134, "ui8", 8, 1),
    "uint16": (136, "ui16", 16, 2),
    "uint32": (138, "ui32", 32, 4),
    "uint64": (140, "ui64", 64, 8),
    "float16": (79, "f16", 16, 2),
    "float32": (81, "f32", 32, 4),
    "float64": (82, "f64", 64, 8),
    "bfloat16": (80, "bf16", 16, 2),
    "float4_e2m1fn": (64, "f4e2m1fn", 4, 1),
    "float6_e2m3fn": (65, "f6e2m3fn", 6, 1),
    "float6_e3m2fn": (66, "f6e3m2fn", 6, 1),
    "float8_e8m0fnu": (73, "f8e8m0fnu", 8, 1),
    "float8_e4m3fn": (75, "f8e4m3fn", 8, 1),
    "float8_e4m3fnuz": (76, "f8e4m3fnuz", 8, 1),
    "float8_e5m2": (77, "f8e5m2", 8, 1),
    "float8_e5m2fnuz": (78, "f8e5m2fnuz", 8, 1),
}
NUMPY_OWN = [n for n in TABLE if hasattr(np, n)]


def test_the_members_are_those_of_the_reference():
    assert [d.name for d in DType] == list(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_values_names_and_sizes(name):
    value, short, bits, size = TABLE[name]
    d = DType[name]
    assert (d.value, d.short, d.size_in_bits, d.size_in_bytes, d.align) == (
        value,
        short,
        bits,
        size,
        size,
    )
    assert DType(value) is d
    assert DType("i1" if short == "bool" else short) is d
    assert DType.from_short(short) is d
    assert (repr(d), str(d), f"{d}") == (name, f"DType.{name}", f"DType.{name}")


@pytest.mark.parametrize("name", TABLE)
def test_predicates(name):
    d = DType[name]
    assert d.is_signed_integral() == name.startswith("int")
    assert d.is_unsigned_integral() == name.startswith("uint")
    assert d.is_integral() == (d.is_signed_integral() or d.is_unsigned_integral())
    assert d.is_float() == ("float" in name)
    assert d.is_float8() == name.startswith("float8")
    assert d.is_half() == (name in ("float16", "bfloat16"))


@pytest.mark.parametrize("name", TABLE)
def test_every_dtype_is_one_that_numpy_ml_dtypes_and_jax_know(name):
    d = DType[name]
    assert isinstance(d.np, np.dtype)
    assert d.np.name == name
    assert d.np.itemsize == d.size_in_bytes
    assert DType.of(d.np) is d
    assert DType.of(d.np.type) is d
    assert DType.of(d) is d
    assert DType.of(np.zeros(2, d.np)) is d
    assert DType.from_numpy(d.np) is d
    assert DType.of(getattr(jnp, name)) is d
    assert DType.of(jnp.dtype(name)) is d


def test_of_a_jax_array():
    assert DType.of(jnp.zeros(3, jnp.bfloat16)) is DType.bfloat16
    assert DType.of(jnp.zeros(3, jnp.float8_e5m2)) is DType.float8_e5m2


@pytest.mark.parametrize("name", NUMPY_OWN)
def test_to_numpy_and_back(name):
    d = DType[name]
    assert d.to_numpy() == np.dtype(name)
    assert DType.from_numpy(d.to_numpy()) is d


def test_to_numpy_gives_small_floats_as_bytes_or_refuses():
    for d in DType:
        if d.is_float8():
            assert d.to_numpy() == np.uint8
        elif d.name not in NUMPY_OWN:
            with pytest.raises(ValueError, match=rf"NumPy itself has no {d.name}; .*{d.name}\.np"):
                d.to_numpy()


def test_c_names_of_one_width_are_one_dtype():
    assert DType.from_numpy(np.longlong) is DType.int64
    assert DType.from_numpy(np.dtype(np.ulonglong)) is DType.uint64
    assert DType.from_numpy(np.intc) is DType.int32


@pytest.mark.parametrize(
    "spelling", ["c8", "c16", "S4", "U3", "O", "M8[s]", "m8[s]", "V2", [("a", "f4")]]
)
def test_from_numpy_refuses_what_is_no_element_type(spelling):
    with pytest.raises(ValueError, match=r"no DType corresponds to the NumPy dtype .*; there are"):
        DType.from_numpy(np.dtype(spelling))


@pytest.mark.parametrize("name", ["int16", "uint32", "float64"])
def test_from_numpy_refuses_the_other_byte_order(name):
    swapped = np.dtype(name).newbyteorder()
    with pytest.raises(ValueError, match=rf"other byte order.*astype\('{name}'\)"):
        DType.from_numpy(swapped)
    with pytest.raises(ValueError, match="other byte order"):
        DType.of(np.zeros(2, swapped))


@pytest.mark.parametrize("thing", [float, int, bool, "float32", 3, None, ml_dtypes, np.zeros])
def test_from_numpy_and_of_refuse_other_things(thing):
    for convert in (DType.from_numpy, DType.of):
        with pytest.raises(ValueError, match=r"expected a NumPy dtype or scalar type"):
            convert(thing)


def test_dtypes_narrower_than_ours_are_refused():
    for narrow in (ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.float8_e3m4):
        with pytest.raises(ValueError, match="no DType corresponds"):
            DType.of(narrow)


def test_unknown_keys_and_values():
    with pytest.raises(KeyError, match=r"no DType has the MLIR name 'i8'"):
        DType("i8")
    with pytest.raises(KeyError, match=r"write DType\['float32'\]"):
        DType("float32")
    with pytest.raises(KeyError, match=r"write DType\['bool'\]"):
        DType("bool")
    with pytest.raises(KeyError, match="no DType has the MLIR name 'i1'"):
        DType.from_short("i1")
    with pytest.raises(ValueError, match=r"no DType has the value 2; the values are 1=bool, 135="):
        DType(2)
    with pytest.raises(ValueError, match="no DType has the value None"):
        DType(None)
    with pytest.raises(KeyError, match="half"):
        DType["half"]


@pytest.mark.parametrize("attribute", ["size_in_bytes", "size_in_bits", "align", "np", "short"])
def test_attributes_are_read_only(attribute):
    with pytest.raises(AttributeError, match=rf"DType.float32.{attribute} is read-only"):
        setattr(DType.float32, attribute, 3)


def test_identity_equality_and_hash():
    assert DType.int8 == DType.int8
    assert DType.int8 != DType.uint8
    assert DType.int8 != 135
    assert DType.bool not in (True, 1)
    assert {DType.int8: 1, DType.int16: 2}[DType.int16] == 2
    assert all(bool(d) for d in DType)
    with pytest.raises(TypeError, match="not supported"):
        operator.lt(DType.int8, DType.int16)


def test_members_survive_copies_and_pickles():
    for d in DType:
        assert copy.copy(d) is copy.deepcopy(d) is pickle.loads(pickle.dumps(d)) is d


@pytest.mark.parametrize("name", [n for n in TABLE if "float" in n])
def test_finfo_agrees_with_the_numbers_themselves(name):
    d = DType[name]
    f = finfo(d)
    assert (f.dtype, f.bits, f.smallest_normal) == (d, d.size_in_bits, f.tiny)
    assert all(type(v) is float for v in (f.eps, f.max, f.min, f.tiny))
    one = np.ones((), np.float64)
    assert float((one + f.eps).astype(d.np)) == 1 + f.eps
    for limit in (f.max, f.min, f.tiny):
        assert float(np.float64(limit).astype(d.np)) == limit
    if d is DType.float8_e8m0fnu:
        assert f.min == f.tiny == 2.0**-127
    else:
        assert f.min == -f.max


def test_finfo_values():
    assert finfo(DType.float16).max == 65504.0
    assert finfo(DType.float32).eps == 2.0**-23
    assert finfo(DType.float8_e4m3fnuz).max == 240.0
    assert finfo(DType.float4_e2m1fn).max == 6.0
    assert repr(finfo(DType.float4_e2m1fn)) == (
        "finfo(dtype=float4_e2m1fn, bits=4, eps=0.5, max=6.0, min=-6.0, tiny=1.0)"
    )
    assert DType.finfo is finfo


@pytest.mark.parametrize("what", [DType.bool, DType.int64, np.float32, None])
def test_finfo_refuses_what_is_no_float(what):
    with pytest.raises(TypeError, match="finfo describes floating-point dtypes, got"):
        finfo(what)


def test_importing_does_not_import_jax():
    code = "import sys, maxjax.dtype; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
