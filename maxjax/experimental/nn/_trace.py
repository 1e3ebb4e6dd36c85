# SPDX-License-Identifier: Apache-2.0
"""Modules under trace: copies that declare their weights, and errors that say where they arose."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from maxjax import tree
from maxjax.experimental._context import CONTEXT
from maxjax.experimental.realization_context import GraphRealizationContext
from maxjax.experimental.support import contextvar_context
from maxjax.experimental.tensor import Tensor

__all__ = ["PATHS", "name_place", "nodes", "traced"]

PATHS: ContextVar[dict[int, str] | None] = ContextVar("PATHS", default=None)
"""Where each part of the module being traced lies in it, by identity; None outside of a trace."""


def traced(module: Any) -> Callable[..., Any]:
    """A function that computes what a module does, with weights declared in place of its tensors.

    It is to be called while a function is traced, and leaves the module as it is.

    Raises:
        ValueError: If the module contains itself, or two of its tensors have one name.
    """
    names = tree.paths(module, leaf=Tensor)

    def run(*args: Any, **kwargs: Any) -> Any:
        context = CONTEXT.get()
        assert isinstance(context, GraphRealizationContext)
        treedef = tree.flatten(module, leaf=Tensor)[1]
        weights = [context.weight(name, tensor) for name, tensor in names.items()]
        copy = tree.unflatten(treedef, weights)
        with contextvar_context(PATHS, {id(node): path for path, node in nodes(copy)}):
            return copy(*args, **kwargs)

    functools.update_wrapper(run, module.forward, updated=())
    run.__name__ = run.__qualname__ = type(module).__qualname__
    return run


def nodes(root: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each node of a tree with its path, outer ones first; tensors are none.

    Two nodes may have one path, where a module adds nothing to names.
    """
    if isinstance(root, Tensor) or not tree.is_node(root):
        return
    yield path, root
    children, keys, _ = tree.flatten_one_level(root)
    for key, child in zip(keys or range(len(children)), children, strict=True):
        yield from nodes(child, tree.extend_path(path, key))


def name_place(error: Exception, module: Any, paths: dict[int, str]) -> None:
    """Adds to an error in which module of the traced one it arose, once.

    The line joins the message where the error has one that it shows as it is, and is a note
    otherwise.
    """
    if getattr(error, "_in_module", False) or id(module) not in paths:
        return
    where = paths[id(module)]
    line = f"in module {where} ({type(module).__name__})" if where else ""
    try:
        error._in_module = True  # pyright: ignore[reportAttributeAccessIssue]
    except AttributeError:
        return  # an error of a class without attributes: better bare than told at every level
    if not line:
        return
    if len(error.args) == 1 and isinstance(error.args[0], str) and str(error) == error.args[0]:
        error.args = (f"{error.args[0]}\n  {line}",)
    else:
        error.add_note(line)
