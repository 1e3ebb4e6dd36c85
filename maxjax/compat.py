# SPDX-License-Identifier: Apache-2.0
"""Programs that say ``import max`` run on maxjax.

While it is installed, ``max`` and every module below it that maxjax mirrors are found here before
anywhere else, and are maxjax's own module objects: ``max.graph is maxjax.graph``.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.abc
import importlib.machinery
import os
import pkgutil
import sys
import threading
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence

import maxjax

__all__ = ["install", "installed", "uninstall"]

# What of maxjax mirrors MAX. The rest is maxjax's alone and is reached as `maxjax` only.
_ROOTS = ("driver", "dtype", "engine", "experimental", "graph", "profiler", "tree")


def install() -> None:
    """Makes ``max`` and its mirrored submodules name maxjax's, whether or not MAX is installed.

    Modules of the real package that were imported before are set aside until ``uninstall``; what
    was taken from them goes on working. A second call does nothing.

    >>> install()
    >>> import max.graph
    >>> import maxjax.graph
    >>> max.graph is maxjax.graph
    True
    >>> uninstall()
    """
    with _lock:
        if _finder in sys.meta_path:
            return
        found = _take_out()
        if not isinstance(found.get("max"), _Max):  # else whoever took the finder away left them
            _aside.clear()
            _aside.update(found)
        sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """Restores the import system as it was before ``install``, and the modules set aside.

    What a program imported in between it keeps. Does nothing where nothing is installed.
    """
    with _lock:
        if _finder not in sys.meta_path:
            return
        sys.meta_path.remove(_finder)
        _take_out()
        sys.modules.update(_aside)
        _aside.clear()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """``install`` for the length of a ``with`` block.

    A block inside another one, or after ``install``, leaves on its exit what it found.

    >>> with installed():
    ...     from max.dtype import DType
    >>> DType.float32.name
    'float32'
    """
    before = _finder in sys.meta_path
    install()
    try:
        yield
    finally:
        if not before:
            uninstall()


# ---------------------------------------------------------------- the import system


class _Max(types.ModuleType):
    """The package ``max``: a namespace with nothing but the mirrored modules."""

    def __getattr__(self, name: str) -> types.ModuleType:
        # With MAX itself, importing one module brings in others, whose names programs then use.
        if f"max.{name}" in _mirrored():
            return importlib.import_module(f"maxjax.{name}")
        if name.startswith("__"):
            raise AttributeError(f"module 'max' has no attribute {name!r}")
        text = _not_mirrored(f"max.{name}")
        # `from max import NAME` asks for the attribute, then for the module, and drops the text
        # of both failures; an exception of another class here it lets through.
        if sys._getframe(1).f_code.co_name == "_handle_fromlist":
            raise ModuleNotFoundError(text, name=f"max.{name}")
        raise AttributeError(text, name=name, obj=self)

    def __dir__(self) -> list[str]:
        roots = (name.removeprefix("max.") for name in _mirrored() if name.count(".") == 1)
        return sorted({*super().__dir__(), *roots})


class _Loader(importlib.abc.Loader):
    """Answers a name below ``max`` with the module of maxjax, which is not run again."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        if spec.name == "max":
            return _Max("max", "maxjax under the name of the package that it mirrors.")
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        # What is in `sys.modules` afterwards is what the import gives. The module itself never
        # passes through the import system, which would write this loader's spec into it.
        if not isinstance(module, _Max):
            name = module.__name__
            __import__(_ours(name))  # not import_module, whose frames stay in an error's trace
            sys.modules[name] = sys.modules[_ours(name)]
            _alias_loaded()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds ``max`` and what is below it."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == "max":
            return _spec(fullname, True)
        if not fullname.startswith("max."):
            return None
        mirrored = _mirrored()
        if fullname in mirrored:
            return _spec(fullname, mirrored[fullname])
        # `importlib.util.find_spec` asks whether there is such a module: the answer is None.
        asking = sys._getframe(1).f_back
        if asking is not None and asking.f_code.co_name == "find_spec":
            return None
        raise ModuleNotFoundError(_not_mirrored(fullname), name=fullname)


def _spec(name: str, is_package: bool) -> importlib.machinery.ModuleSpec:
    return importlib.machinery.ModuleSpec(name, _loader, origin=_ours(name), is_package=is_package)


def _ours(name: str) -> str:
    """The module of maxjax that a name below ``max`` stands for."""
    return f"maxjax{name.removeprefix('max')}"


def _alias_loaded() -> None:
    """Enters maxjax's loaded modules under their names below ``max``.

    The import system sets what it loads as an attribute of the parent. A package may have put
    something else there, as ``graph.ops`` has functions named like the modules that they are from,
    so a module that is loaded is not to be loaded under its other name.
    """
    for name in _mirrored():
        module = sys.modules.get(_ours(name))
        initializing = getattr(getattr(module, "__spec__", None), "_initializing", False)
        if module is not None and not initializing:
            sys.modules.setdefault(name, module)


def _take_out() -> dict[str, types.ModuleType]:
    """Removes ``max`` and what is below it from the loaded modules."""
    names = [name for name in sys.modules if name == "max" or name.startswith("max.")]
    return {name: sys.modules.pop(name) for name in names}


# ---------------------------------------------------------------- what is mirrored


@functools.cache
def _mirrored() -> Mapping[str, bool]:
    """The names below ``max`` that maxjax has, and whether each is a package."""
    return {
        name: is_package
        for name, is_package in _modules(maxjax.__path__, "max.")
        if name.split(".")[1] in _ROOTS
    }


def _modules(folders: Iterable[str], prefix: str) -> Iterator[tuple[str, bool]]:
    """The public modules in folders and below, none of them imported."""
    for info in pkgutil.iter_modules(folders, prefix):
        name = info.name.rpartition(".")[2]
        if not name.startswith("_"):
            yield info.name, info.ispkg
            if info.ispkg:
                inside = [os.path.join(folder, name) for folder in folders]
                yield from _modules(inside, f"{info.name}.")


def _not_mirrored(name: str) -> str:
    """What is said of a module that maxjax lacks."""
    near = _nearest(name)
    if near is None:
        near = ", ".join(sorted(n for n in _mirrored() if n.count(".") == 1))
        return f"no module {name!r} in maxjax, which has {near} (see docs/porting.md)"
    return f"no module {name!r} in maxjax; the nearest it has is {near!r} (see docs/porting.md)"


def _nearest(name: str) -> str | None:
    """The mirrored module that a name is most like, if any is like it; what it is in is mirrored.

    One of the same name elsewhere comes first, then one beside it that is longer by an ending or
    spelled alike, then what it is in.
    """
    parent, _, last = name.rpartition(".")
    same = [other for other in _mirrored() if other.rpartition(".")[2] == last]
    beside = {o.rpartition(".")[2]: o for o in _mirrored() if o.rpartition(".")[0] == parent}
    longer = [other for other in beside if len(last) > 3 and other.startswith(last)]
    if same:
        return difflib.get_close_matches(name, same, n=1, cutoff=0.0)[0]
    for close in (longer, difflib.get_close_matches(last, beside)):
        if close:
            return beside[close[0]]
    return parent if parent in _mirrored() else None


_lock = threading.RLock()
_loader = _Loader()
_finder = _Finder()
# Modules of the real package, by name, while ours stand in for them.
_aside: dict[str, types.ModuleType] = {}
