# SPDX-License-Identifier: Apache-2.0
"""GGUF headers: what a real writer writes is read, and what is damaged is named."""

import struct
import tracemalloc

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxjax.graph.weights.gguf_file import _KINDS, GGUFFile

UINT8, UINT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 0, 4, 6, 7, 8, 9, 10


def text(s):
    data = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def strings(*values, count=None):
    head = struct.pack("<IQ", STRING, len(values) if count is None else count)
    return head + b"".join(map(text, values))


def tensor(name, shape, kind, offset):
    return (
        text(name)
        + struct.pack("<I", len(shape))
        + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        + struct.pack("<IQ", kind, offset)
    )


def gguf_bytes(entries=(), tensors=(), data=b"", *, magic=b"GGUF", version=3, counts=None):
    """A file of these parts, which may be wrong in any way."""
    n, m = counts or (len(tensors), len(entries))
    head = magic + struct.pack("<IQQ", version, n, m) + b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


@pytest.fixture
def opened(tmp_path):
    """Opens a file of those bytes."""

    def opened(data):
        path = tmp_path / "m.gguf"
        path.write_bytes(data)
        return GGUFFile(path)

    return opened


def test_types_are_those_of_gguf():
    for code, kind in _KINDS.items():
        theirs = gguf.GGMLQuantizationType(code)
        assert kind.name == theirs.name
        assert (kind.numbers, kind.size) == gguf.GGML_QUANT_SIZES[theirs]
    assert {t.value for t in gguf.GGMLQuantizationType} - set(_KINDS) == set()


# ---------------------------------------------------------------- metadata


def test_metadata_of_every_type(tmp_path):
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("s", "né\n")
    writer.add_bool("b", True)
    writer.add_array("strings", ["a", "", "ccc"])
    writer.add_array("floats", [1.5, -2.0])
    writer.add_array("ints", [1, -2, 3])
    writer.add_array("flags", [True, False])
    expected = {}
    for bits in (8, 16, 32, 64):
        getattr(writer, f"add_uint{bits}")(f"u{bits}", 2**bits - 1)
        getattr(writer, f"add_int{bits}")(f"i{bits}", -(2 ** (bits - 1)))
        expected |= {f"u{bits}": 2**bits - 1, f"i{bits}": -(2 ** (bits - 1))}
    writer.add_float32("f32", 0.1)
    writer.add_float64("f64", 0.1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    metadata = GGUFFile(path).metadata
    for key, value in expected.items():
        assert metadata[key] == value and type(metadata[key]) is int, key
    assert metadata["s"] == "né\n" and metadata["b"] is True
    assert (metadata["f32"], metadata["f64"]) == (float(np.float32(0.1)), 0.1)
    assert metadata["strings"] == ["a", "", "ccc"]
    for key, value in (
        ("floats", np.float32([1.5, -2])),
        ("ints", np.int32([1, -2, 3])),
        ("flags", np.bool_([True, False])),
    ):
        np.testing.assert_array_equal(metadata[key], value, strict=True)
    assert metadata["strings"] is metadata["strings"]
    assert set(metadata) > {"general.architecture", "s"} and len(metadata) == len(set(metadata))
    assert "no such key" not in metadata
    with pytest.raises(KeyError):
        metadata["no such key"]


def test_arrays_of_arrays(opened):
    inner = [struct.pack("<IQ2B", UINT8, 2, 1, 2), strings("x", "yz")]
    value = struct.pack("<IQ", ARRAY, 2) + b"".join(inner)
    first, second = opened(gguf_bytes([entry("a", ARRAY, value)])).metadata["a"]
    assert first.tolist() == [1, 2] and second == ["x", "yz"]


def test_bytes_that_are_no_utf8_come_back(opened):
    (token,) = opened(gguf_bytes([entry("t", ARRAY, strings(b"\xff\x41"))])).metadata["t"]
    assert token.encode("utf-8", "surrogateescape") == b"\xff\x41"


def test_version_2_is_read_too(opened):
    assert opened(gguf_bytes([entry("a", UINT32, b"\1\0\0\0")], version=2)).metadata["a"] == 1


# ---------------------------------------------------------------- tensors


def test_alignment_of_the_file(opened):
    entries = [entry("general.alignment", UINT32, struct.pack("<I", 64))]
    infos = [tensor("a", [3], 24, 0), tensor("b", [2], 0, 64)]
    data = gguf_bytes(entries, infos)
    data += bytes(-len(data) % 64) + b"\1\2\3".ljust(64, b"\0") + np.float32([1, 2]).tobytes()
    file = opened(data)
    assert file.alignment == 64
    assert file.array("a").tolist() == [1, 2, 3] and file.array("b").tolist() == [1, 2]


def test_odd_alignment_and_empty_tensors(opened):
    entries = [entry("general.alignment", UINT32, struct.pack("<I", 1))]
    infos = [tensor("a", [3], 24, 0), tensor("none", [0, 4], 0, 3), tensor("b", [2], 0, 3)]
    head = gguf_bytes(entries, infos).rstrip(b"\0")
    # `rstrip` cut the last tensor's place, whose bytes are 3 and zeros.
    head += bytes(7)
    file = opened(head + b"\1\2\3" + np.float32([1, 2]).tobytes())
    assert file.array("b").tolist() == [1, 2] and file.array("none").shape == (0, 4)


def test_scalars(opened):
    file = opened(gguf_bytes([], [tensor("s", [], 0, 0)], np.float32(7).tobytes()))
    assert file.array("s").shape == () and file.array("s") == 7


def test_arrays_outlive_the_file(opened):
    file = opened(gguf_bytes([], [tensor("a", [3], 24, 0)], b"\1\2\3"))
    array = file.array("a")
    del file
    assert array.tolist() == [1, 2, 3]


# ---------------------------------------------------------------- damage

F4 = [tensor("w", [2, 2], 0, 0)]
SIXTEEN = bytes(16)

DAMAGED = {
    "empty": (b"", r"m\.gguf is empty"),
    "no gguf": (b"PK\3\4 and more", r"is no GGUF file: it begins with b'PK\\x03\\x04'"),
    "cut in the version": (b"GGUF\3\0", r"the header needs 4 bytes at byte 4 of 6; if the file"),
    "version 1": (gguf_bytes(version=1), r"it has version 1; convert it"),
    "big-endian": (gguf_bytes(version=3 << 24), r"bytes are in big-endian order; convert it"),
    "many entries": (gguf_bytes(counts=(0, 2**60)), r"counts 1152921504606846976 metadata entries"),
    "many tensors": (gguf_bytes(counts=(2**60, 0)), r"counts \d+ tensors, more than fit in"),
    "huge key": (
        gguf_bytes([struct.pack("<Q", 2**63) + b"0123456789"]),
        r"metadata entry 0 needs \d+ bytes at byte 32",
    ),
    "huge string": (
        gguf_bytes([entry("k", STRING, struct.pack("<Q", 2**62))]),
        r"metadata 'k' needs 4611686018427387904 bytes",
    ),
    "huge array": (
        gguf_bytes([entry("k", ARRAY, struct.pack("<IQ", UINT64, 2**61))]),
        r"metadata 'k' needs \d+ bytes",
    ),
    "huge array of strings": (
        gguf_bytes([entry("k", ARRAY, strings("a", count=2**50))]),
        r"metadata 'k' needs \d+ bytes",
    ),
    "array of strings past the end": (
        gguf_bytes([entry("k", ARRAY, strings("a" * 20, "b" * 500, count=3))])[:-500],
        r"metadata 'k' needs 8 bytes",
    ),
    "huge string in an array": (
        gguf_bytes([entry("k", ARRAY, strings(count=2) + struct.pack("<Q", 2**63) + SIXTEEN)]),
        r"metadata 'k' needs 8 bytes",
    ),
    "deep": (
        gguf_bytes([entry("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 50)]),
        r"metadata 'k' has more than 8 arrays inside each other",
    ),
    "unknown metadata type": (
        gguf_bytes([entry("k", 99, SIXTEEN)]),
        r"metadata 'k' has a value of type 99, which is unknown",
    ),
    "key twice": (
        gguf_bytes([entry("k", UINT32, b"\1\0\0\0")] * 2),
        r"metadata 'k' is there twice",
    ),
    **{
        f"alignment {value}": (
            gguf_bytes([entry("general.alignment", kind, value)]),
            r"'general\.alignment' is .*must be a power of two",
        )
        for kind, value in ((UINT32, b"\0\0\0\0"), (UINT32, b"\x18\0\0\0"), (BOOL, b"\1"))
    },
    "alignment of text": (
        gguf_bytes([entry("general.alignment", STRING, text("32"))]),
        r"'general\.alignment' is '32', and must be a power of two",
    ),
    "many dimensions": (
        gguf_bytes([], [tensor("w", [1] * 5, 0, 0)], SIXTEEN),
        r"tensor 'w' has 5 dimensions; the most that the format allows is 4",
    ),
    "tensor twice": (gguf_bytes([], F4 * 2, SIXTEEN), r"tensor 'w' is there twice"),
    "cut off": (
        gguf_bytes([], F4, SIXTEEN[:-1]),
        r"tensor 'w' of shape \[2, 2\] and type F32 lies at bytes 96 to 112 of 111; .*cut off",
    ),
    "huge": (
        gguf_bytes([], [tensor("w", [2**40, 2**40], 0, 0)], SIXTEEN),
        r"tensor 'w' of shape .* lies at bytes 96 to \d+ of 112",
    ),
    "far away": (gguf_bytes([], [tensor("w", [4], 0, 2**63)], SIXTEEN), r"'w' of .* of 80"),
    "unknown and far away": (
        gguf_bytes([], [tensor("w", [4], 77, 2**63)], SIXTEEN),
        r"'w' of shape \[4\] and type 77 lies at bytes",
    ),
    "misplaced": (
        gguf_bytes([], [tensor("w", [2], 0, 8)], SIXTEEN),
        r"tensor 'w' begins at byte 8, no multiple of the alignment 32",
    ),
    "overlap": (
        gguf_bytes([], [tensor("a", [16], 0, 0), tensor("b", [4], 0, 32)], bytes(64)),
        r"tensor 'b' at byte 128 overlaps tensor 'a', which ends at 160",
    ),
    "part of a block": (
        gguf_bytes([], [tensor("w", [2, 33], 8, 0)], bytes(99)),
        r"tensor 'w' has rows of 33 numbers, no whole number of Q8_0 blocks, which hold 32",
    ),
    "scalar block": (
        gguf_bytes([], [tensor("w", [], 8, 0)], bytes(99)),
        r"tensor 'w' has rows of 1 numbers, no whole number of Q8_0 blocks",
    ),
    "cut in the tensors": (
        gguf_bytes([], [*F4, tensor("b", [4], 0, 32)])[:90],
        r"tensor 'b' needs \d+ bytes at byte \d+ of 90",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named_before_memory_is_taken(opened, name):
    data, message = DAMAGED[name]
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            opened(data)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert "m.gguf" in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read .*none\.gguf: No such file"):
        GGUFFile(tmp_path / "none.gguf")


def test_unknown_types_hinder_no_others(opened):
    infos = [tensor("new", [4], 77, 0), tensor("old", [32], 3, 32), tensor("w", [4], 0, 64)]
    file = opened(gguf_bytes([], infos, bytes(64) + np.float32([1, 2, 3, 4]).tobytes()))
    assert file.array("w").tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"tensor 'new' has the type number 77, which is unknown"):
        file.array("new")
    with pytest.raises(ValueError, match=r"tensor 'old' has the type Q4_1; read here are: F32, F1"):
        file.array("old")


WHOLE = gguf_bytes(
    [entry("a", ARRAY, strings("x", "yy")), entry("b", FLOAT32, bytes(4))],
    [tensor("w", [2, 2], 0, 0), tensor("q", [32], 8, 32)],
    bytes(32 + 34),
)


@given(st.integers(0, len(WHOLE) - 1))
def test_cut_anywhere(tmp_path_factory, length):
    path = tmp_path_factory.mktemp("cut") / "m.gguf"
    path.write_bytes(WHOLE[:length])
    with pytest.raises(ValueError, match=r"m\.gguf"):
        GGUFFile(path)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1))
def test_any_bytes_are_read_or_refused(tmp_path_factory, changes):
    data = bytearray(WHOLE)
    for at, value in changes:
        data[at] = value
    path = tmp_path_factory.mktemp("changed") / "m.gguf"
    path.write_bytes(data)
    try:
        file = GGUFFile(path)
    except ValueError as e:
        assert "m.gguf" in str(e)
        return
    dict(file.metadata)
    for name in file.tensors:
        try:
            file.array(name)
        except ValueError as e:
            assert name in str(e) or repr(name) in str(e)
