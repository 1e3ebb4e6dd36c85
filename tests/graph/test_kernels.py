# SPDX-License-Identifier: Apache-2.0
"""Libraries of kernels: what a path can be, what is loaded when, and whose kernels a graph has."""

import contextvars
import os
import threading

import numpy as np
import pytest

import maxjax
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import (
    DeviceRef,
    Graph,
    KernelLibrary,
    Module,
    TensorType,
    default_custom_extensions,
    default_custom_extensions_scope,
    ops,
    text,
)

CPU = DeviceRef.CPU()
X = TensorType(DType.float32, ["n"], CPU)
SCALE = """
import maxjax

@maxjax.kernel("{name}")
def scale(x):
    return x * {factor}
"""


@pytest.fixture
def write(tmp_path):
    """``write(file, text)``: a file in a folder of its own, as a path."""

    def write(file, content=None, name="scale", factor=2):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SCALE.format(name=name, factor=factor) if content is None else content)
        return path

    return write


def scaled(name="scale", **options):
    """A graph that calls a kernel, and its outputs for [1, 2]."""
    with Graph("g", input_types=[X], **options) as g:
        g.output(*ops.custom(name, CPU, g.inputs, [X]))
    return g, run(g)


def run(graph, **options):
    (out,) = InferenceSession().load(graph, **options)(np.float32([1, 2]))
    return out.to_numpy().tolist()


# ---------------------------------------------------------------- files and folders


def test_a_file_of_kernels(write):
    path = write("k.py")
    library = KernelLibrary([path])
    assert list(library) == ["scale"]
    assert "scale" in library and "other" not in library
    assert library["scale"].origin == f"{path}:4"
    assert library.library_paths() == [path]
    assert not library.has_shape_function("scale")
    assert repr(library) == f"KernelLibrary(['{path}'])"


def test_unknown_names_say_what_there_is(write):
    library = KernelLibrary(write("k.py"))
    with pytest.raises(KeyError, match="no kernel 'other' in this library; it has 'scale'"):
        library["other"]
    with pytest.raises(KeyError, match="it has none"):
        KernelLibrary().has_shape_function("other")


def test_shape_functions_are_known(write):
    content = "import maxjax\nmaxjax.kernel('k', shape=lambda x: x.shape)(lambda x: x)"
    assert KernelLibrary(write("k.py", content)).has_shape_function("k")


def test_a_path_is_run_once_and_again_after_a_change(write):
    count = "import maxjax, builtins\nbuiltins._runs = getattr(builtins, '_runs', 0) + 1\n"
    path = write("k.py", count + "maxjax.kernel('k')(lambda x: x)\n")
    import builtins

    try:
        library = KernelLibrary([path])
        library.load_paths([path])
        KernelLibrary([os.path.relpath(path)])
        assert builtins._runs == 1
        path.write_text(path.read_text() + "# changed\n")
        KernelLibrary([path])
        assert builtins._runs == 2
    finally:
        del builtins._runs


def test_a_change_within_a_second_is_seen(write):
    results = [scaled(custom_extensions=[write("k.py", factor=f)])[1] for f in (2, 3, 4)]
    assert results == [[2, 4], [3, 6], [4, 8]]


def test_relative_paths_are_kept_absolute(write, monkeypatch):
    path = write("k.py")
    monkeypatch.chdir(path.parent)
    library = KernelLibrary(["./k.py"])
    monkeypatch.chdir("/")
    assert library.library_paths() == [path]


@pytest.mark.parametrize("package", [True, False])
def test_a_folder_is_a_package(write, package):
    if package:
        write("kernels/__init__.py", "FACTOR = 5\n")
    write("kernels/_helper.py", "def times(x):\n    return x * 5\n")
    write("kernels/a.py", name="a")
    folder = write(
        "kernels/b.py",
        "import maxjax\nfrom ._helper import times\nfrom . import a\n"
        "maxjax.kernel('b')(lambda x: times(a.scale(x)))\n",
    ).parent
    library = KernelLibrary([folder])
    assert sorted(library) == ["a", "b"]
    assert scaled("b", kernel_library=library)[1] == [10, 20]
    if package:
        # A changed folder is run anew as a whole.
        write("kernels/_helper.py", "def times(x):\n    return x * 70\n")
        assert scaled("b", custom_extensions=[folder])[1] == [140, 280]


def test_kernels_of_a_file_are_in_no_other_graph(write):
    path = write("k.py", name="private")
    assert scaled("private", custom_extensions=path)[1] == [2, 4]
    with Graph("g", input_types=[X]) as g, pytest.raises(ValueError, match="as 'private'"):
        ops.custom("private", CPU, g.inputs, [X])


def test_two_files_may_not_share_a_name(write):
    library = KernelLibrary([write("a.py", factor=2)])
    second = write("b.py", factor=3)
    with pytest.raises(ValueError, match=r"called 'scale': one from .*a\.py:4, one from .*b\.py:4"):
        library.add_path(second)
    assert library.library_paths() == [write("a.py", factor=2)]
    assert run(scaled(kernel_library=library)[0]) == [2, 4]


# ---------------------------------------------------------------- paths of the wrong kind


def refused(path, match):
    for load in (KernelLibrary().add_path, KernelLibrary().load_paths):
        with pytest.raises(ValueError, match=match):
            load(path)
    with pytest.raises(ValueError, match=match):
        Graph("g", custom_extensions=[path])


def test_a_path_that_is_not_there(tmp_path):
    refused(tmp_path / "k.py", r"k\.py does not exist")


def test_a_file_of_an_unknown_kind(write):
    refused(write("k.cu", ""), r"k\.cu is of an unknown kind; it can be a \.py file, a folder")


def test_an_empty_folder(tmp_path):
    refused(tmp_path, r"is a folder without \.py files")


def test_a_file_without_kernels(write):
    refused(write("k.py", "x = 1\n"), r"k\.py registers no kernel; put @maxjax\.kernel")


MOJO = """
@compiler.register("first")
struct First: ...
@compiler.register(
    "second")
struct Second: ...
"""


def test_mojo_sources_are_to_be_ported_by_name(write):
    path = write("ops/k.mojo", MOJO)
    for given in (path, path.parent):
        refused(given, r"(?s)Mojo.*its kernels \('first', 'second'\).*@maxjax\.kernel\(\"first\"\)")


@pytest.mark.parametrize("suffix", ["mojoc", "mojopkg"])
@pytest.mark.parametrize("there", [True, False])
def test_compiled_mojo_is_to_be_ported(tmp_path, suffix, there):
    path = tmp_path / f"k.{suffix}"
    if there:
        path.write_bytes(b"\x00\xff")
    refused(path, r"(?s)Mojo kernels.*Port each kernel that its source registers.*README\.md")


def test_an_error_in_a_file_keeps_its_kind_and_names_the_file(write):
    path = write("k.py", "import maxjax\n1 / 0\n")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError) as caught:
            KernelLibrary([path])
        assert caught.value.__notes__ == [f"while loading the custom extension {path}"]
    with pytest.raises(SyntaxError):
        KernelLibrary([write("k.py", "def\n")])
    assert list(KernelLibrary([write("k.py")])) == ["scale"]


def test_what_is_no_path_is_refused():
    with pytest.raises(TypeError):
        KernelLibrary([3])


# ---------------------------------------------------------------- graphs


def test_a_graph_loads_into_the_library_it_is_given(write):
    library = KernelLibrary([write("a.py", name="a")])
    g = Graph("g", kernel_library=library, custom_extensions=[write("b.py", name="b")])
    assert sorted(library) == ["a", "b"]
    assert g.kernel_libraries_paths == library.library_paths()


def test_subgraphs_and_copies_have_the_kernels(write):
    with Graph("g", input_types=[X], custom_extensions=[write("a.py", name="a")]) as g:
        call = lambda name: lambda x: ops.custom(name, CPU, [x], [X])  # noqa: E731
        a = g.add_subgraph("a", call("a"), [X])
        b = g.add_subgraph("b", call("b"), [X], custom_extensions=[write("b.py", name="b")])
        (y,) = ops.call(a, g.inputs[0])
        g.output(*ops.call(b, y))
    assert run(g) == [4, 8]
    assert run(g.copy()) == [4, 8]
    assert g.copy().kernel_libraries_paths == g.kernel_libraries_paths


def test_the_nearest_names_are_given(write):
    library = KernelLibrary([write("k.py", name="rms_norm")])
    with Graph("g", input_types=[X], kernel_library=library) as g:
        match = r"as 'rmsnorm'; the nearest is 'rms_norm'\. .*\(given f32\[n\]\)\n  at .*test_kern"
        with pytest.raises(ValueError, match=match):
            ops.custom("rmsnorm", CPU, g.inputs, [X])


@maxjax.kernel("test_kernels.shadowed")
def shadowed(x):
    return x - 1


def test_a_librarys_kernel_goes_before_the_programs(write):
    path = write("k.py", name="test_kernels.shadowed")
    assert scaled("test_kernels.shadowed")[1] == [0, 1]
    assert scaled("test_kernels.shadowed", custom_extensions=[path])[1] == [2, 4]


# ---------------------------------------------------------------- text


def test_text_names_the_paths_and_runs_nothing_until_it_must(write):
    path = write("k.py")
    g, _ = scaled(custom_extensions=[path])
    written = text.dump(g)
    assert f'attributes {{custom_extensions = ("{path}",)}}' in written
    path.unlink()
    (again,) = text.parse(written).graphs
    assert again.kernel_libraries_paths == [path]
    assert text.dump(again) == written
    with pytest.raises(ValueError, match=r"custom: the custom extension .*k\.py does not exist"):
        run(again)
    moved = write("moved.py", factor=9)
    assert run(again, custom_extensions=[moved]) == [9, 18]
    model = InferenceSession(custom_extensions=moved).load(text.parse(written).graphs[0])
    assert model(np.float32([1]))[0].to_numpy().tolist() == [9]


def test_a_file_of_text_can_be_given_kernels(write, tmp_path):
    g, _ = scaled(custom_extensions=[write("k.py")])
    text.save(g, tmp_path / "g.mlir")
    library = KernelLibrary()
    again = Graph("g", path=tmp_path / "g.mlir", kernel_library=library)
    assert again.kernels is library
    assert run(again) == [2, 4]
    with pytest.raises(ValueError, match="does not exist"):
        Graph("g", path=tmp_path / "g.mlir", custom_extensions=["/no/such.py"])


def test_graphs_of_a_module_keep_their_own_kernels(write):
    module = Module()
    for name, factor in (("a", 2), ("b", 3)):
        with Graph(
            name,
            input_types=[X],
            module=module,
            custom_extensions=[write(f"{name}.py", factor=factor)],
        ) as g:
            g.output(*ops.custom("scale", CPU, g.inputs, [X]))
    again = text.parse(text.dump(module))
    assert [run(g) for g in again.graphs] == [[2, 4], [3, 6]]


def test_malformed_paths_in_text():
    bad = "mo.graph @g() -> () attributes {custom_extensions = (1,)} { mo.output }"
    with pytest.raises(ValueError, match=r"line 1.*custom_extensions are paths in a tuple"):
        text.parse(bad)


# ---------------------------------------------------------------- defaults


def test_default_paths_reach_new_graphs_and_end_with_the_scope(write):
    path = write("k.py")
    with default_custom_extensions_scope(path):
        g, result = scaled()
        assert result == [2, 4]
        assert default_custom_extensions() == (path,)
    assert g.kernel_libraries_paths == [path]
    assert default_custom_extensions() == ()
    assert Graph("g").kernel_libraries_paths == []


def test_a_path_among_the_defaults_can_be_given_again(write):
    path = write("k.py")
    with default_custom_extensions_scope(path):
        assert scaled(custom_extensions=[path])[1] == [2, 4]


def test_defaults_are_of_one_thread_and_context(write):
    path = write("k.py")
    seen = []
    with default_custom_extensions_scope(path):
        thread = threading.Thread(target=lambda: seen.append(default_custom_extensions()))
        thread.start()
        thread.join()
        seen.append(contextvars.copy_context().run(default_custom_extensions))
    assert seen == [(), (path,)]


def test_threads_load_a_file_once(write):
    path = write("k.py", "import time\ntime.sleep(0.05)\n" + SCALE.format(name="k", factor=2))
    kernels = []
    threads = [
        threading.Thread(target=lambda: kernels.append(KernelLibrary([path])["k"]))
        for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(kernels) == 4 and all(k is kernels[0] for k in kernels)
