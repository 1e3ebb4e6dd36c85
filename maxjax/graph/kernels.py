# SPDX-License-Identifier: Apache-2.0
"""Libraries of custom kernels: the files they come from, and the kernels a graph can use."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import pkgutil
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from maxjax.graph._foreign import LIBRARY_SUFFIXES, load_library
from maxjax.kernels import Kernel, add_kernel, collecting, registered

__all__ = [
    "CustomExtensions",
    "KernelLibrary",
    "absolute",
    "default_custom_extensions",
    "default_custom_extensions_scope",
]

CustomExtensions: TypeAlias = Iterable[Path | str] | Path | str

_MOJO = (".mojo", ".mojoc", ".mojopkg", ".🔥")
# How a Mojo source names its kernels.
_REGISTER = re.compile(r"register\(\s*\"([^\"]+)\"")

_DEFAULT: ContextVar[tuple[Path, ...]] = ContextVar("_DEFAULT", default=())

# What the files of a path held when they were last loaded, and the kernels they gave.
_LOADED: dict[Path, tuple[Any, dict[str, Kernel]]] = {}
_LOADING = threading.RLock()


class KernelLibrary:
    """The custom kernels that graphs can use, by name.

    A path is a ``.py`` file that registers kernels with ``maxjax.kernel``, a folder of such files
    (loaded as a package, so that they can import each other relatively), or a shared library with
    XLA FFI handlers and its manifest beside it (see :mod:`maxjax.graph._foreign`).

    Kernels that the program registers itself are in no library: every graph can use them.

    Args:
        paths: Where to load kernels from.

    Raises:
        ValueError: As for :meth:`load_paths`.

    >>> library = KernelLibrary()
    >>> "scale" in library, list(library)
    (False, [])
    """

    def __init__(self, paths: CustomExtensions = ()) -> None:
        self._kernels: dict[str, Kernel] = {}
        self._paths: list[Path] = []
        self._waiting: list[Path] = []
        self.load_paths(paths)

    def load_paths(self, custom_extensions: CustomExtensions) -> None:
        """Loads kernels; a path that is loaded already is passed over.

        Args:
            custom_extensions: The paths, or one path.

        Raises:
            ValueError: If a path does not exist or is of another kind, registers no kernel, or
                registers one under a name that is taken.
        """
        for path in absolute(custom_extensions):
            self.add_path(path)

    def add_path(self, path: Path) -> None:
        """Loads the kernels of one path; see :meth:`load_paths`."""
        (path,) = absolute(path)
        if path in self._paths:
            return
        together = dict(self._kernels)
        for kernel in _kernels_of(path).values():
            add_kernel(together, kernel)
        self._kernels = together
        self._paths.append(path)
        if path in self._waiting:
            self._waiting.remove(path)

    def defer_paths(self, paths: CustomExtensions) -> None:
        """Remembers paths, to load them in order until a kernel that is wanted is there."""
        for path in absolute(paths):
            if path not in (*self._paths, *self._waiting):
                self._waiting.append(path)

    def library_paths(self) -> list[Path]:
        """The paths, absolute, in the order they were added."""
        return [*self._paths, *self._waiting]

    def __getitem__(self, kernel: str) -> Kernel:
        """The kernel of that name.

        Raises:
            KeyError: If there is none.
        """
        if kernel not in self:
            raise KeyError(f"no kernel {kernel!r} in this library; it has {_listed(self)}")
        return self._kernels[kernel]

    def __contains__(self, kernel: object) -> bool:
        if kernel not in self._kernels:
            self._load_until(kernel)
        return kernel in self._kernels

    def __iter__(self) -> Iterator[str]:
        self._load_until(None)
        return iter(self._kernels)

    def _load_until(self, kernel: object) -> None:
        with _LOADING:
            while self._waiting and kernel not in self._kernels:
                self.add_path(self._waiting[0])

    def has_shape_function(self, kernel: str) -> bool:
        """Whether a kernel has a function that gives the shapes of its results.

        Raises:
            KeyError: If there is no such kernel.
        """
        return self[kernel].shape is not None

    def find(self, name: str) -> Kernel:
        """A kernel of this library, or else one that the program registered.

        Raises:
            ValueError: If there is none.
        """
        if name in self:
            return self._kernels[name]
        known = registered()
        if name in known:
            return known[name]
        near = difflib.get_close_matches(name, [*self._kernels, *known], 3)
        hint = f"; the nearest is {' or '.join(map(repr, near))}" if near else ""
        raise ValueError(
            f"no kernel is registered as {name!r}{hint}. Register a function over arrays with "
            f'@maxjax.kernel("{name}"), or give the path of the file that does as '
            "Graph(..., custom_extensions=[path])"
        )

    def __repr__(self) -> str:
        return f"KernelLibrary({[str(p) for p in self.library_paths()]})"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def absolute(paths: CustomExtensions) -> list[Path]:
    """The paths, or the one path, made absolute.

    Raises:
        TypeError: If one is no path.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return [Path(os.path.abspath(os.fspath(p))) for p in given]


# ---------------------------------------------------------------- defaults


def default_custom_extensions() -> tuple[Path, ...]:
    """The paths that every new graph loads kernels from, besides its own.

    >>> default_custom_extensions()
    ()
    """
    return _DEFAULT.get()


@contextlib.contextmanager
def default_custom_extensions_scope(*paths: Path) -> Iterator[None]:
    """Adds to the paths that graphs made in the ``with`` block load kernels from.

    Args:
        paths: Paths as for :class:`KernelLibrary`; each counts once.

    >>> from pathlib import Path
    >>> with default_custom_extensions_scope(Path("kernels.py")):
    ...     [p.name for p in default_custom_extensions()]
    ['kernels.py']
    """
    together = dict.fromkeys((*_DEFAULT.get(), *map(Path, paths)))
    token = _DEFAULT.set(tuple(together))
    try:
        yield
    finally:
        _DEFAULT.reset(token)


# ---------------------------------------------------------------- loading


def _kernels_of(path: Path) -> dict[str, Kernel]:
    """The kernels of a path; its files are run once, and again after they have changed.

    Raises:
        ValueError: See :meth:`KernelLibrary.load_paths`.
    """
    load = _loader(path)
    with _LOADING:
        state = _state(path)
        known = _LOADED.get(path)
        if known is None or known[0] != state:
            known = _LOADED[path] = state, load(path)
        return known[1]


def _loader(path: Path) -> Any:
    """The function that loads a path of this kind."""
    if path.suffix in _MOJO:
        raise ValueError(_to_port(path, [path] if path.is_file() else []))
    if not path.exists():
        raise ValueError(
            f"the custom extension {path} does not exist; where it is now can be given as "
            "custom_extensions"
        )
    if path.is_dir():
        mojo = [p for p in sorted(path.iterdir()) if p.suffix in _MOJO]
        if any(path.glob("*.py")):
            return _load_source
        if mojo:
            raise ValueError(_to_port(path, mojo))
        raise ValueError(f"the custom extension {path} is a folder without .py files")
    if path.suffix == ".py":
        return _load_source
    if path.suffix in LIBRARY_SUFFIXES:
        return load_library
    raise ValueError(
        f"the custom extension {path} is of an unknown kind; it can be a .py file, a folder of "
        "them, or a shared library (.so) with XLA FFI handlers and a .yaml manifest"
    )


def _to_port(path: Path, sources: list[Path]) -> str:
    """What to do about kernels in Mojo."""
    names = []
    for source in sources:
        if source.suffix in (".mojo", ".🔥"):
            names += _REGISTER.findall(source.read_text(encoding="utf-8", errors="replace"))
    example = names[0] if names else "name"
    what = f"its kernels ({_listed(names)})" if names else "each kernel that its source registers"
    return (
        f"the custom extension {path} holds Mojo kernels, which only MAX's compiler builds. Port "
        f"{what}: write the function over JAX arrays or as a Pallas kernel in a .py file,\n"
        f'    @maxjax.kernel("{example}")\n'
        "    def kernel(x, *, parameter):  # the op's values, and its parameters by keyword\n"
        "        return ...  # an array for each of out_types\n"
        "and give that file's path instead; examples/kernels/README.md shows one ported"
    )


def _state(path: Path) -> Any:
    """What differs after a file of a path has changed."""
    manifest = [path.with_suffix(".yaml")] if path.suffix in LIBRARY_SUFFIXES else []
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path, *manifest]
    stats = [(str(f), f.stat()) for f in files if f.is_file()]
    return [(name, s.st_mtime_ns, s.st_size) for name, s in stats]


def _load_source(path: Path) -> dict[str, Kernel]:
    """Runs a file, or each file of a folder, and gives the kernels they register."""
    name = f"_maxjax_kernels_{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"
    for module in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
        del sys.modules[module]
    importlib.invalidate_caches()  # for files that are new in a folder
    with collecting() as found:
        try:
            if path.is_dir():
                _run(name, path / "__init__.py", [os.fspath(path)])
                for sub in sorted(pkgutil.iter_modules([os.fspath(path)]), key=lambda m: m.name):
                    importlib.import_module(f"{name}.{sub.name}")
            else:
                _run(name, path, None)
        except Exception as e:
            e.add_note(f"while loading the custom extension {path}")
            raise
    if not found:
        raise ValueError(
            f"the custom extension {path} registers no kernel; put @maxjax.kernel(name) on a "
            "function in it"
        )
    return found


class _Source(importlib.machinery.SourceFileLoader):
    """Compiles a file each time: cached bytecode misses a change within the same second."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _run(name: str, file: Path, folder: list[str] | None) -> ModuleType:
    """Runs a source file as a module, or a folder's (empty when it is not there) as a package."""
    if file.is_file():
        loader = _Source(name, os.fspath(file))
        spec = importlib.util.spec_from_file_location(
            name, file, loader=loader, submodule_search_locations=folder
        )
    else:
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = folder
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        if spec.loader is not None:
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
