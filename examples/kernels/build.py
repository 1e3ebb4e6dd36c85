# SPDX-License-Identifier: Apache-2.0
"""Compiles foreign.cc: ``python -m examples.kernels.build FOLDER``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax.ffi

__all__ = ["build", "compiler"]

_HERE = Path(__file__).parent


def compiler() -> str | None:
    """The system's C++ compiler, or the one that ``CXX`` names, or None."""
    names = [os.environ.get("CXX", "c++"), "g++", "clang++"]
    return next((path for path in map(shutil.which, names) if path), None)


def build(folder: Path) -> Path:
    """Makes ``foreign.so`` in a folder, with its manifest beside it.

    Raises:
        RuntimeError: If there is no compiler, or it fails; with what it printed.
    """
    found = compiler()
    if found is None:
        raise RuntimeError("no C++ compiler: install g++ or clang++, or name one as CXX")
    library = folder / "foreign.so"
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-isystem", jax.ffi.include_dir()]
    source = os.fspath(_HERE / "foreign.cc")
    done = subprocess.run(
        [found, *flags, "-o", os.fspath(library), source], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{found} failed:\n{done.stderr}")
    shutil.copy(_HERE / "foreign.yaml", folder)
    return library


if __name__ == "__main__":
    print(build(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
