# SPDX-License-Identifier: Apache-2.0
"""The switch by element type: no type is passed over in silence."""

import numpy as np
import pytest

from maxjax.support.ml import DType, code_table, dispatch, extended


class MyDType(DType):
    kString = extended(0, "string")
    kF80 = extended(1, "f80", width=80)


VALID = [DType(code) for code in range(256) if DType.is_valid(code)]


def kind():
    return (
        dispatch("kind")
        .when(DType.kBool, lambda t: "bool")
        .when([DType.bf16, DType.f16], lambda t: "half")
        .when(DType.is_complex, lambda t: "complex")
        .when_int(lambda t: "int")
        .when_fp(lambda t: "fp")
    )


def test_each_type_goes_to_the_first_case_that_fits() -> None:
    switch = kind().otherwise(lambda t: "other")
    for t in VALID:
        if t.is_complex():
            expected = "complex"
        elif t in (DType.f16, DType.bf16):
            expected = "half"
        elif t in (DType.f32, DType.f64):
            expected = "fp"
        elif t.is_integer() and t.width in (8, 16, 32, 64):
            expected = "int"
        else:
            expected = "bool" if t.is_bool() else "other"
        assert switch(t) == expected


def test_every_unhandled_type_is_an_error() -> None:
    switch = kind()
    unhandled = 0
    for t in VALID:
        try:
            switch(t)
        except TypeError as e:
            unhandled += 1
            assert f"kind: there is no case for {t.name}; there are cases for bool, bf16" in str(e)
    assert unhandled == 9 + 10 + 30  # floats, integers beyond C's, extended


def test_handlers_get_the_arguments() -> None:
    switch = dispatch("add").when_int(lambda t, a, b=0: (t, a + b))
    assert switch(DType.si8, 1, b=2) == (DType.si8, 3)


def test_cases_that_nothing_reaches_are_refused() -> None:
    with pytest.raises(ValueError, match="kind: the case for f32 is never reached: earlier ones"):
        kind().when(DType.f32, lambda t: 0)
    with pytest.raises(ValueError, match="the case for all others is never reached"):
        dispatch("a").otherwise(lambda t: 0).otherwise(lambda t: 0)
    with pytest.raises(ValueError, match="never reached: it is for no type"):
        dispatch("a").when(lambda t: t.width == 3, lambda t: 0)
    with pytest.raises(TypeError, match="a case is for DTypes, not for 81"):
        dispatch("a").when([81], lambda t: 0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="the handler of f32 is a function, not 1"):
        dispatch("a").when(DType.f32, 1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="expected a DType, got 81"):
        kind()(81)  # pyright: ignore[reportArgumentType]


def test_extended_types_have_cases() -> None:
    switch = dispatch("text", MyDType).when(MyDType.kString, lambda t: "s")
    assert switch(MyDType.kString) == "s"
    with pytest.raises(TypeError, match="no case for complex_f80"):
        switch(MyDType.parse("complex_f80"))
    assert switch.otherwise(lambda t: t.name)(MyDType.parse("complex_f80")) == "complex_f80"


def test_lookup_answers_for_arrays() -> None:
    calls = []

    def width(t):
        calls.append(t)
        return t.width

    switch = dispatch("width").otherwise(width)
    codes = np.array([[81, 134, 81], [1, 81, 145]], np.uint8)
    found = switch.lookup(codes, np.int32)
    assert found.tolist() == [[32, 8, 32], [8, 32, 256]] and found.dtype == np.int32
    assert len(calls) == 4
    assert switch.lookup(np.zeros((0, 2), np.uint8)).shape == (0, 2)
    everything = np.array([t.value for t in VALID])
    assert switch.lookup(everything).tolist() == [t.width for t in VALID]


def test_lookup_is_never_silent() -> None:
    with pytest.raises(TypeError, match="no case for si4"):
        kind().lookup([81, DType.si4.value])
    with pytest.raises(ValueError, match="no element type has the value 0"):
        kind().lookup([81, 0])
    for codes in ([256], [-1], [81.0]):
        with pytest.raises(TypeError, match="codes of element types are bytes"):
            kind().lookup(codes)


def test_the_table_of_codes() -> None:
    table = code_table()
    assert table.shape == (256,) and not table.flags.writeable
    for code in range(256):
        row = table[code]
        assert row["valid"] == DType.is_valid(code)
        if not row["valid"]:
            assert row["width"] == -1 and not any(row[n] for n in table.dtype.names[2:])
            continue
        assert row["width"] == DType(code).width
        for name in table.dtype.names[2:]:
            assert row[name] == getattr(DType(code), name)()
    assert code_table(MyDType)["width"][[2, 3, 35]].tolist() == [-1, 80, 160]
    assert code_table(MyDType) is code_table(MyDType)
