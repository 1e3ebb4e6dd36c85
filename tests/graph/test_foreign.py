# SPDX-License-Identifier: Apache-2.0
"""Shared libraries of kernels: manifests that are wrong, and libraries that cannot be loaded.

Handlers that work are in `tests/examples/kernels`.
"""

import _ctypes
import shutil

import pytest

from maxjax.graph import KernelLibrary

GOOD = "kernels: {k: {symbols: {cpu: K}}}"


@pytest.fixture
def library(tmp_path):
    """``library(manifest)``: a shared library of Python's, beside a manifest, as a path."""

    def library(manifest, content=None):
        path = tmp_path / "k.so"
        if content is None:
            shutil.copy(_ctypes.__file__, path)
        else:
            path.write_bytes(content)
        if manifest is not None:
            path.with_suffix(".yaml").write_text(manifest)
        return path

    return library


def test_a_library_needs_a_manifest(library):
    with pytest.raises(ValueError, match=r"(?s)k\.so needs the manifest .*k\.yaml.*such as\nkern"):
        KernelLibrary([library(None)])


def test_a_file_that_is_no_library(library):
    with pytest.raises(ValueError, match=r"k\.so cannot be loaded as a shared library: "):
        KernelLibrary([library(GOOD, b"no library")])


def test_a_symbol_that_is_not_there(library):
    match = r"k\.so has no symbol 'K', which k\.yaml names for kernel 'k'; define it in an `extern"
    with pytest.raises(ValueError, match=match):
        KernelLibrary([library(GOOD)])


def kernel(**entry):
    return f"kernels: {{k: {entry}}}".replace("'", "")


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        ("", "the manifest must be a mapping, not None"),
        ("[1]", r"the manifest must be a mapping, not \[1\]"),
        ("{", "expected"),
        ("kernels: {}\nmore: 1", "the manifest has 'more', where kernels are known"),
        ("kernels: [k]", r"kernels must be a mapping, not \['k'\]"),
        ("kernels: {1: {symbols: {cpu: K}}}", "the name of a kernel must be a string, not 1"),
        ("kernels: {k: K}", "kernel 'k' must be a mapping, not 'K'"),
        ("kernels: {k: {}}", "symbols of kernel 'k' must be a mapping, not None"),
        (kernel(symbols={}), "kernel 'k' names no symbols; write symbols:"),
        (kernel(symbols={"metal": "K"}), "'metal', where cpu, cuda, rocm, tpu are known"),
        (kernel(symbols={"cpu": 1}), "a symbol of kernel 'k' must be a string, not 1"),
        (kernel(symbols={"cpu": "K"}, threads=2), "kernel 'k' has 'threads', where aliases, attr"),
        (
            kernel(symbols={"cpu": "K"}, attributes={"e": "half"}),
            "attribute 'e' of kernel 'k' has the type 'half'; the types are bool, int8, ",
        ),
        (
            kernel(symbols={"cpu": "K"}, attributes={"a b": "int32"}),
            "'a b', an attribute of kernel 'k', cannot name a parameter",
        ),
        (
            kernel(symbols={"cpu": "K"}, aliases={"x": 0}),
            "aliases of kernel 'k' are numbers of operands to numbers of results",
        ),
        ("a: !!python/object/apply:os.system [echo]", "could not determine a constructor"),
    ],
)
def test_manifests_that_are_wrong(library, manifest, text):
    path = library(manifest)
    with pytest.raises(ValueError, match=rf"(?s)k\.yaml: .*{text}"):
        KernelLibrary([path])


def test_a_manifest_that_is_no_text(library):
    path = library(None)
    path.with_suffix(".yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"k\.yaml"):
        KernelLibrary([path])
