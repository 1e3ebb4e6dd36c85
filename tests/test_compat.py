# SPDX-License-Identifier: Apache-2.0
"""``max`` names maxjax's modules while it is installed, and nothing of it is left afterwards."""

import importlib
import importlib.util
import json
import pathlib
import pickle
import re
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator

import pytest

import maxjax.experimental
import maxjax.graph
from maxjax import compat
from maxjax.dtype import DType

ROOT = pathlib.Path(__file__).parents[1]
API = json.loads((ROOT / "tests/data/max_api.json").read_text(encoding="utf-8"))
PUBLIC = sorted(API.get("modules", API))
MIRRORED = [n for n in PUBLIC if importlib.util.find_spec(n.replace("max", "maxjax", 1))]


def below_max() -> dict[str, types.ModuleType]:
    return {n: m for n, m in sys.modules.items() if n == "max" or n.startswith("max.")}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = list(sys.meta_path), list(sys.path), list(sys.path_hooks), below_max()
    yield
    assert before == (list(sys.meta_path), list(sys.path), list(sys.path_hooks), below_max())


def run(program: str) -> str:
    """What a program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---------------------------------------------------------------- what is found


@pytest.mark.parametrize("name", MIRRORED)
def test_every_module_that_both_have_is_one_module(name: str) -> None:
    with compat.installed():
        theirs = importlib.import_module(name)
        assert theirs is importlib.import_module(name.replace("max", "maxjax", 1))
        assert sys.modules[name] is theirs
        assert theirs.__name__ == theirs.__spec__.name == name.replace("max", "maxjax", 1)  # pyright: ignore[reportOptionalMemberAccess]


def test_most_of_max_is_mirrored() -> None:
    assert set(PUBLIC) - set(MIRRORED) <= {"max.experimental.nn", "max.nn", "max.profiler"}


def test_every_form_of_import() -> None:
    with compat.installed():
        import max
        import max.graph as g
        from max import engine, graph
        from max.engine import InferenceSession
        from max.graph import ops
        from max.graph.weights import load_weights

    assert g is graph is maxjax.graph
    assert ops is maxjax.graph.ops
    assert engine.InferenceSession is InferenceSession
    assert load_weights.__module__.startswith("maxjax.graph.weights")
    # MAX's modules bring each other in: a program may use one that it did not import itself.
    assert max.dtype.DType is DType  # pyright: ignore[reportAttributeAccessIssue]
    assert "tree" in dir(max) and "lower" not in dir(max)


def test_classes_are_the_same_under_both_names() -> None:
    with compat.installed():
        from max.graph import DeviceRef, TensorType
    assert isinstance(TensorType(DType.int8, [2], DeviceRef.CPU()), maxjax.graph.TensorType)


def test_a_module_does_not_hide_the_function_of_its_name() -> None:
    with compat.installed():
        import max.graph.ops.cast  # noqa: F401
        from max.experimental import random, tensor

        assert callable(maxjax.graph.ops.cast)
        assert random is maxjax.experimental.random
        assert tensor.Tensor is maxjax.experimental.Tensor


def test_pickles_name_maxjax() -> None:
    with compat.installed():
        from max.dtype import DType as theirs

        data = pickle.dumps(theirs.float32)
    assert b"maxjax.dtype" in data
    assert pickle.loads(data) is DType.float32
    with compat.installed():
        assert pickle.loads(b"cmax.dtype\nDType\n.") is DType


def test_find_spec_answers_without_importing() -> None:
    with compat.installed():
        spec = importlib.util.find_spec("max.graph.ops")
        assert spec is not None and spec.submodule_search_locations is not None
        assert importlib.util.find_spec("max.tree") is not None
        assert importlib.util.find_spec("max.pipelines") is None
        assert importlib.util.find_spec("max") is not None
        assert importlib.util.find_spec("maximum") is None


def test_reload() -> None:
    printed = run("""
        import importlib
        from maxjax import compat

        compat.install()
        import max.tree
        before = max.tree
        print(importlib.reload(max) is max, importlib.reload(max.tree) is before)
        print(max.tree.__spec__.name, max.tree.__spec__.loader.__class__.__name__)
    """)
    assert printed == "True True\nmaxjax.tree SourceFileLoader\n"


def test_many_threads_import_at_once() -> None:
    printed = run("""
        import importlib, sys, threading
        from maxjax import compat

        compat.install()
        names = ["max.graph.ops", "max.graph", "max.graph.weights", "max.dtype", "max.tree"] * 4
        start, failed, seen = threading.Barrier(len(names)), [], []

        def load(name):
            start.wait()
            try:
                module = importlib.import_module(name)
                assert module is sys.modules[name.replace("max", "maxjax", 1)]
                seen.append(module)
            except BaseException as e:
                failed.append(e)

        threads = [threading.Thread(target=load, args=(n,)) for n in names]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(failed, len(seen), len(set(seen)))
    """)
    assert printed == "[] 20 5\n"


# ---------------------------------------------------------------- what is not


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("max.grpah", "max.graph"),
        ("max.graph.opps", "max.graph.ops"),
        ("max.ops", "max.graph.ops"),  # the same name elsewhere
        ("max.tensor", "max.experimental.tensor"),
        ("max.graph.ops.conv", "max.graph.ops.convolution"),
        ("max.graph.xyzzy", "max.graph"),  # like none: what it is in
    ],
)
def test_a_module_that_is_missing_is_told_the_nearest(name: str, near: str) -> None:
    text = re.escape(f"no module '{name}' in maxjax; the nearest it has is '{near}' (see docs/")
    with compat.installed(), pytest.raises(ModuleNotFoundError, match=text) as caught:
        importlib.import_module(name)
    assert caught.value.name == name


@pytest.mark.parametrize("name", ["max.serve.api", "max._core", "max.lower", "max.artifact"])
def test_what_is_like_none_is_told_all(name: str) -> None:
    first = ".".join(name.split(".")[:2])
    text = rf"no module '{first}' in maxjax, which has max.driver, max.dtype, .*, max.tree \(see"
    with compat.installed(), pytest.raises(ModuleNotFoundError, match=text):
        importlib.import_module(name)


def test_from_max_import_and_attributes_say_the_same() -> None:
    with compat.installed():
        with pytest.raises(ModuleNotFoundError, match=r"'max\.grpah'.*nearest it has is 'max\.gr"):
            from max import grpah  # noqa: F401  # pyright: ignore[reportAttributeAccessIssue]
        import max

        with pytest.raises(AttributeError, match=r"'max\.grpah'.*nearest it has is 'max\.graph'"):
            max.grpah  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
        assert not hasattr(max, "grpah")
        assert not hasattr(max, "__file__")


def test_private_modules_are_not_given_away() -> None:
    with compat.installed(), pytest.raises(ModuleNotFoundError, match=r"no module 'max\.graph\._"):
        importlib.import_module("max.graph._printer")


def test_an_error_while_a_module_loads_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "maxjax.tree", None)  # how Python blocks an import
    with compat.installed():
        with pytest.raises(ModuleNotFoundError, match=r"import of maxjax\.tree halted"):
            import max.tree  # noqa: F401
        assert "max.tree" not in sys.modules


# ---------------------------------------------------------------- installing and not


def test_installing_twice_is_installing_once() -> None:
    before = list(sys.meta_path)
    compat.install()
    compat.install()
    assert len(sys.meta_path) == len(before) + 1
    compat.uninstall()
    assert sys.meta_path == before
    compat.uninstall()
    assert sys.meta_path == before


def test_a_block_leaves_what_it_found() -> None:
    with compat.installed():
        with compat.installed():
            pass
        import max.tree  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match="No module named 'max'"):
        importlib.import_module("max.tree")
    with pytest.raises(RuntimeError, match="out"), compat.installed():
        raise RuntimeError("out")
    assert below_max() == {}


@pytest.fixture
def real_max(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another package called ``max`` that can be imported."""
    (tmp_path / "max/graph").mkdir(parents=True)
    (tmp_path / "max/graph/__init__.py").write_text("which = 'real'\n", encoding="utf-8")
    (tmp_path / "max/serve.py").write_text("which = 'real'\n", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        yield
        for name in below_max():
            del sys.modules[name]


@pytest.mark.usefixtures("real_max")
def test_the_real_package_is_not_taken() -> None:
    with compat.installed():
        assert importlib.import_module("max.graph") is maxjax.graph
        with pytest.raises(ModuleNotFoundError, match=r"no module 'max\.serve' in maxjax"):
            importlib.import_module("max.serve")
    assert importlib.import_module("max.graph").which == "real"


@pytest.mark.usefixtures("real_max")
def test_the_real_package_comes_back_as_it_was() -> None:
    real, serve = importlib.import_module("max.graph"), importlib.import_module("max.serve")
    before, attributes = below_max(), dict(vars(sys.modules["max"]))
    with compat.installed():
        assert "max" not in sys.modules
        assert importlib.import_module("max.graph") is maxjax.graph
        assert importlib.import_module("max.engine") is maxjax.engine
        assert real.which == serve.which == "real"  # what was taken from it goes on working
    assert below_max() == before
    assert vars(sys.modules["max"]) == attributes
    assert importlib.reload(real).which == "real"


def test_finders_of_others_stay() -> None:
    class Other:
        def find_spec(self, *_: object) -> None:
            return None

    other = Other()
    compat.install()
    sys.meta_path.insert(0, other)  # pyright: ignore[reportArgumentType]
    compat.uninstall()
    assert sys.meta_path[0] is other
    sys.meta_path.remove(other)  # pyright: ignore[reportArgumentType]


def test_a_finder_that_was_taken_away_is_put_back() -> None:
    before = list(sys.meta_path)
    compat.install()
    import max.tree

    sys.meta_path[:] = before
    compat.install()
    assert "max" not in sys.modules
    assert importlib.import_module("max.tree") is max.tree
    compat.uninstall()
    assert below_max() == {}
