# SPDX-License-Identifier: Apache-2.0
"""Artifacts that are damaged, or made to do harm, are refused with a message.

Random damage is done in a process of its own with little memory: none of it may end the process.
"""

import json
import random
import re
import struct
import subprocess
import sys
import warnings
import zipfile
import zlib
from typing import Any

import pytest
import yaml

from maxjax import export
from maxjax.artifact import Manifest
from maxjax.artifact.archive import Archive
from tests.export.other_process import ROOT
from tests.export.tampering import changed, members, rewritten, small


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    return small(tmp_path_factory.mktemp("artifact") / "small.maxjax", platforms=["cpu"])


def load_fails(path):
    """Loading fails as it must; gives the message."""
    with pytest.raises((ValueError, OSError)) as caught:
        export.inspect(path).verify()
    with pytest.raises(type(caught.value)):
        export.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------- at random


@pytest.mark.parametrize(
    ("first", "last"), [(0, 300), pytest.param(300, 5300, marks=pytest.mark.slow)]
)
def test_random_damage(artifact, tmp_path, first, last):
    command = [sys.executable, "-m", "tests.export.mutate", str(artifact), str(tmp_path)]
    done = subprocess.run(
        [*command, str(first), str(last)], capture_output=True, text=True, cwd=ROOT
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"ended with {done.returncode} after {lines}: {done.stderr}"
    *wrong, counts = map(json.loads, lines)
    assert not wrong
    assert sum(counts.values()) == last - first
    assert counts["ValueError"] > 0.8 * (last - first) and counts["the same"] > 0


@pytest.mark.parametrize("trials", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_random_manifests(artifact, trials):
    """Whatever the text, it is a manifest or no manifest."""
    original = members(artifact)["manifest.yaml"].decode()
    signs = "0123456789-[]{}:,\"'&*!|>%@` \n\t\0abn\N{GREEK SMALL LETTER ALPHA}"
    read = 0
    for number in range(trials):
        chance = random.Random(number)
        text = list(original)
        for _ in range(chance.choice([1, 1, 1, 2, 5])):
            at, kind = chance.randrange(len(text)), chance.random()
            if kind < 0.5:
                text[at] = chance.choice(signs)
            elif kind < 0.75:
                del text[at : at + chance.randrange(1, 20)]
            else:
                start = chance.randrange(len(text))
                text[at:at] = text[start : start + chance.randrange(1, 30)]
        try:
            manifest = Manifest.parse("".join(text))
        except ValueError as e:
            assert str(e)
        else:
            assert Manifest.parse(manifest.dump()) == manifest
            read += 1
    assert 0 < read < trials


# ---------------------------------------------------------------- archives


def crafted(path: Any, entries: list[dict[str, Any]]) -> Any:
    """A zip archive as nobody writes them: each entry says what its two heads say."""
    body, table = b"", b""
    for e in entries:
        name, content = e["name"].encode(), e.get("content", b"")
        size, packed = e.get("size", len(content)), e.get("packed", e.get("size", len(content)))
        crc, method, flags = (
            e.get("crc", zlib.crc32(content)),
            e.get("method", 0),
            e.get("flags", 0),
        )
        at = e.get("at", len(body))
        common = struct.pack("<5H3L", 20, flags, method, 0, 33, crc, packed, size)
        inner = e.get("inner", e["name"]).encode()
        if "at" not in e:
            body += b"PK\3\4" + common + struct.pack("<2H", len(inner), 0) + inner + content
        table += b"PK\1\2" + struct.pack("<H", 20) + common
        table += struct.pack("<5H2L", len(name), 0, 0, 0, 0, 0, at) + name
    end = struct.pack("<4H2LH", 0, 0, len(entries), len(entries), len(table), len(body), 0)
    path.write_bytes(body + table + b"PK\5\6" + end)
    return path


def of(artifact):
    """Its members as entries."""
    return [{"name": name, "content": content} for name, content in members(artifact).items()]


def test_the_crafted_archive_is_read_when_it_is_proper(artifact, tmp_path):
    path = crafted(tmp_path / "x", of(artifact))
    export.inspect(path).verify()


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/passwd",
        "a//b",
        "a\\b",
        "..",
        "a/./b",
        "a/",
        "",
        "C:x",
        "a b",
        "a\0b",
        "\u00e4",
    ],
)
def test_names_that_are_no_plain_paths(artifact, tmp_path, name):
    path = crafted(tmp_path / "x", [*of(artifact), {"name": name}])
    assert re.search(
        "no plain path inside it|another name where it begins|damaged", load_fails(path)
    )


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ({"name": "manifest.yaml"}, "'manifest.yaml' is there twice"),
        ({"name": "x", "inner": "y"}, "'x' has another name where it begins"),
        ({"name": "x", "size": 2**31}, "'x' ends beyond the end of the file"),
        ({"name": "x", "size": 2**31, "packed": 0}, "'x' has two sizes"),
        ({"name": "x", "at": 2**31}, "damaged"),
        ({"name": "x", "at": 0}, "damaged: what is before member 'x' is not|overlaps|another name"),
        ({"name": "x", "flags": 1}, "'x' is compressed or encrypted"),
        (
            {"name": "x", "content": zlib.compress(bytes(10**6)), "method": 8, "size": 10**6},
            "'x' is compressed",
        ),
        ({"name": "x", "method": 99}, "'x' is compressed|damaged"),
        ({"name": "extra"}, r"members that its manifest lacks: \['extra'\]"),
    ],
)
def test_members_that_are_not_as_they_must_be(artifact, tmp_path, entry, match):
    path = crafted(tmp_path / "x", [*of(artifact), entry])
    if entry["name"] == "extra":
        with pytest.raises(ValueError, match=match):
            export.inspect(path).verify()
        return
    assert re.search(match, load_fails(path))


def test_a_compressed_archive(artifact, tmp_path):
    with zipfile.ZipFile(tmp_path / "x", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members(artifact).items():
            archive.writestr(name, content)
    assert "'manifest.yaml' is compressed" in load_fails(tmp_path / "x")


def test_members_inside_of_each_other(artifact, tmp_path):
    inner = {"name": "inner", "content": b"abc"}
    whole = crafted(tmp_path / "one", [inner]).read_bytes()
    head = whole[: whole.index(b"PK\1\2")]
    entries = [{"name": "outer", "content": head}, *of(artifact)]
    entries.append({**inner, "at": 30 + len("outer")})
    path = crafted(tmp_path / "x", entries)
    assert "'inner' overlaps the one before it" in load_fails(path)


def test_a_great_many_members(tmp_path):
    path = crafted(tmp_path / "x", [{"name": f"m{i}"} for i in range(10_001)])
    assert "it lists 10001 members" in load_fails(path)


@pytest.mark.parametrize("name", ["manifest.yaml", "module.jax_export", "weights.safetensors"])
def test_a_member_that_is_missing(artifact, tmp_path, name):
    parts = members(artifact)
    del parts[name]
    assert f"it has no member {name!r}" in load_fails(rewritten(tmp_path / "x", parts))


def test_files_of_another_kind(tmp_path):
    path = tmp_path / "x"
    for content in (b"", b"PK", b"GGUF" + bytes(100)):
        path.write_bytes(content)
        assert "is no artifact: it does not begin as a zip archive does" in load_fails(path)
    path.write_bytes(b"PK\3\4" + bytes(100))
    assert "File is not a zip file; if it was cut off, copy it again" in load_fails(path)
    with warnings.catch_warnings():
        zipfile.ZipFile(path, "w").close()
    assert "it does not begin as a zip archive" in load_fails(path)


def test_the_head_of_a_member_is_compared_with_the_table(artifact, tmp_path):
    content = bytearray(artifact.read_bytes())
    at = Archive(artifact).members["module.jax_export"].start
    content[at + 100] ^= 1
    (tmp_path / "x").write_bytes(content)
    assert "the content of member 'module.jax_export' does not have its checksum" in load_fails(
        tmp_path / "x"
    )


# ---------------------------------------------------------------- hashes and weights


@pytest.mark.parametrize("name", ["module.jax_export", "module.mlirbc"])
def test_a_program_with_another_hash(artifact, tmp_path, name):
    other = members(artifact)[name] + b"\0"
    path = changed(artifact, tmp_path / "x", contents={name: other}, rehash=False)
    with pytest.raises(ValueError, match=f"member '{name}' does not have its hash"):
        export.inspect(path).verify()
    if name == "module.jax_export":
        load_fails(path)


@pytest.mark.parametrize("content", [b"", b"x" * 1000, bytes(64)])
def test_a_program_that_is_none(artifact, tmp_path, content):
    path = changed(artifact, tmp_path / "x", contents={"module.jax_export": content})
    with pytest.raises(ValueError, match=r"'module.jax_export' is no program that JAX .* reads"):
        export.load(path)


@pytest.mark.parametrize(
    ("place", "text", "match"),
    [
        (("inputs", 0, "type"), "batchx6xf64", r"its inputs are float32\[batch,6\]"),
        (("inputs", 0, "type"), "batchx7xf32", "its inputs are"),
        (("inputs", 0, "type"), "batchxotherxf32", "its inputs are"),
        (("inputs", 0, "type"), "6xf32", "the condition 'batch >= 1' is about batch"),
        (("inputs", 0, "type"), "batchxf32", "its inputs are"),
        (("inputs", 1, "type"), "2xsi32", r"its buffers are int32\[1\]"),
        (("inputs", 1, "kind"), "tensor", "its inputs are"),
        (("outputs", 0, "type"), "batchx4xf32", r"its outputs are float64\[batch,4\]"),
        (("platforms", 0), "tpu", "it is for cpu"),
    ],
)
def test_a_program_that_is_not_what_the_manifest_says(artifact, tmp_path, place, text, match):
    def edit(document):
        for key in place[:-1]:
            document = document[key]
        document[place[-1]] = text

    path = changed(artifact, tmp_path / "x", edit)
    with pytest.raises(ValueError, match=f"is not what the manifest says: {match}"):
        export.load(path)


def test_the_program_for_one_size_in_the_place_of_that_for_all(artifact, tmp_path):
    one = members(artifact)["specialized/batch=2/module.jax_export"]
    path = changed(artifact, tmp_path / "x", contents={"module.jax_export": one})
    with pytest.raises(
        ValueError, match=r"not what the manifest says: its inputs are float32\[2,6"
    ):
        export.load(path)


def test_a_program_for_more_devices(artifact, tmp_path):
    path = changed(artifact, tmp_path / "x", lambda d: d.update(devices=4))
    with pytest.raises(ValueError, match="runs on 4 devices, and lays out 1"):
        export.load(path)


def header_changed(artifact, edit):
    content = members(artifact)["weights.safetensors"]
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    edit(header)
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text + content[end:]


def renamed(header):
    header["layer.x"] = header.pop("layer.w")


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (renamed, "disagree about layer.w, layer.x"),
        (lambda h: h["layer.w"].update(shape=[4, 6]), r"'layer.w' has shape \[4, 6\]"),
        (lambda h: h["layer.w"].update(dtype="I32"), r"'layer.w' is int32\[6, 4\] in the weights"),
        (lambda h: h["layer.w"].update(shape=[2**40, 2**40]), "'layer.w' has 96 bytes, and F32"),
        (lambda h: h["layer.w"].update(shape=[-6, -4]), "that are no sizes"),
        (lambda h: h["layer.w"].update(data_offsets=[0, 2**60]), "'layer.w' lies at bytes"),
        (lambda h: h["layer.w"].update(dtype="F9"), "element type F9|disagree"),
        (lambda h: h.pop("scale"), "gap|its data has"),
        (lambda h: h.update(scale=3), "'scale' has no proper dtype"),
    ],
)
def test_weights_that_the_manifest_tells_otherwise(artifact, tmp_path, edit, match):
    content = header_changed(artifact, edit)
    path = changed(artifact, tmp_path / "x", contents={"weights.safetensors": content})
    assert re.search(match, load_fails(path))


def test_weights_with_another_hash(artifact, tmp_path):
    content = bytearray(members(artifact)["weights.safetensors"])
    content[-1] ^= 1
    path = changed(
        artifact, tmp_path / "x", contents={"weights.safetensors": bytes(content)}, rehash=False
    )
    assert re.search("bytes of weight '.*' do not have their hash", load_fails(path))
    export.load(path, verify=False)
    path = changed(
        artifact,
        tmp_path / "x",
        contents={"weights.safetensors": header_changed(artifact, lambda h: None)},
        rehash=False,
    )
    assert "the header of its weights file does not have its hash" in load_fails(path)
    for claimed in (2**63, 10**8):
        content[:8] = claimed.to_bytes(8, "little")
        parts = {**members(artifact), "weights.safetensors": bytes(content)}
        assert "too few for its header" in load_fails(rewritten(tmp_path / "x", parts))


def test_weights_that_the_manifest_says_nothing_of(artifact, tmp_path):
    path = changed(artifact, tmp_path / "x", lambda d: d.update(weights_sha256=""))
    assert "says nothing of its weights file" in load_fails(path)


# ---------------------------------------------------------------- manifests


def places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """Where there is something in a document."""
    if path:
        yield path
    pairs: Any = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else pairs:
        yield from places(inner, (*path, key))


def edited(document: Any, path: tuple[Any, ...], value: Any) -> str:
    at = document = json.loads(json.dumps(document))
    for key in path[:-1]:
        at = at[key]
    if value is Ellipsis:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return yaml.safe_dump(document)


WRONG = (..., None, True, -1, 2**70, 1.5, "", "x", "../x", [], {}, [[]], {"x": {}}, [1], {1: 2})


def test_a_wrong_value_in_each_place_of_a_manifest(artifact):
    """Each is refused by name, or a manifest that says something else and reads back."""
    document = yaml.safe_load(members(artifact)["manifest.yaml"])
    refused = 0
    for path in places(document):
        for value in WRONG:
            text = edited(document, path, value)
            try:
                manifest = Manifest.parse(text)
            except ValueError as e:
                refused += 1
                assert "manifest" in str(e) or "format version" in str(e), (path, value, str(e))
            else:
                assert Manifest.parse(manifest.dump()) == manifest
    assert refused > 400
    for key in document:
        with pytest.raises(ValueError, match=f"'{key}' is to be of type"):
            Manifest.parse(edited(document, (key,), None))


def test_a_weight_that_is_a_buffer(artifact, tmp_path):
    path = changed(artifact, tmp_path / "x", lambda d: d["weights"]["scale"].update(kind="buffer"))
    assert "weights 'scale': a weight is a tensor, not a 'buffer'" in load_fails(path)


@pytest.mark.parametrize("version", [0, -1, 2, 10**30])
def test_another_version_of_the_format(artifact, tmp_path, version):
    path = changed(artifact, tmp_path / "x", lambda d: d.update(format=version))
    message = load_fails(path)
    assert f"has format version {version}, and this maxjax reads version 1; update" in message


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: [*a, *a]",
        "[" * 100_000,
        "{a: " * 1000,
        "format: 1\nname: !!python/object/apply:os.system [ls]",
        "format: !!int 'x'",
        "? [a]\n: 1",
        "format: 1\n<<: {name: x}",
        "a: 2026-99-99",
        "a: \x01",
        "format: " + "9" * 5000,
        "- 1",
        "",
        "---\na: 1\n---\nb: 2",
    ],
)
def test_yaml_that_is_no_manifest(artifact, tmp_path, text):
    path = changed(artifact, tmp_path / "x", lambda d: text)
    assert "manifest" in load_fails(path)


def test_a_manifest_that_is_no_text(artifact, tmp_path):
    parts = {**members(artifact), "manifest.yaml": b"\xff\xfe\x00"}
    assert "codec can't decode" in load_fails(rewritten(tmp_path / "x", parts))


@pytest.mark.parametrize(
    "member", ["../module", "manifest.yaml", "nowhere", "weights.safetensors", "/etc/passwd"]
)
def test_a_program_somewhere_else(artifact, tmp_path, member):
    path = changed(artifact, tmp_path / "x", lambda d: d["programs"][0].update(member=member))
    assert re.search("it has no member|does not have its hash", load_fails(path))
