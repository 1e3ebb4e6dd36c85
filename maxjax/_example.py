# SPDX-License-Identifier: Apache-2.0
"""The examples, as the command line runs them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

__all__ = ["load_example"]


def load_example(name: str) -> Any:
    """The package of an example: inside an installed maxjax, or beside it in a checkout.

    Args:
        name: The example's folder.

    Raises:
        ModuleNotFoundError: If it is in neither place.
    """
    # Not below `maxjax` and not `examples`: an example's frames are a user's, for locations, and
    # any project may have a package called examples.
    package = f"maxjax_{name}"
    if package in sys.modules:
        return sys.modules[package]
    here = Path(__file__).parent
    for folder in (here / "_examples" / name, here.parent / "examples" / name):
        spec = importlib.util.spec_from_file_location(
            package, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if (folder / "__init__.py").is_file() and spec is not None and spec.loader is not None:
            module = sys.modules[package] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ModuleNotFoundError(
        f"this installation of maxjax lacks the example {name!r}; install maxjax again, or run "
        "from a checkout",
        name="examples",
    )
