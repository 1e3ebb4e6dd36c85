# SPDX-License-Identifier: Apache-2.0
"""``maxjax run SCRIPT.py``: a program written for MAX runs on maxjax, as Python would run it."""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import sys
import types
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from maxjax import compat

__all__ = ["RunCommand", "run_script"]

_ARGUMENTS = "maxjax.script"


class _Unreadable(click.ClickException):
    """A program that cannot be read: Python exits with 2 then."""

    exit_code = 2


class RunCommand(click.Command):
    """A command whose first argument may be a Python file: then the rest are that program's.

    With any other arguments it is the command that it was declared as.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keeps a program's arguments from being read as the command's options."""
        if args and args[0].endswith(".py"):
            ctx.meta[_ARGUMENTS] = list(args)
            return []
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the program, or else the command."""
        if _ARGUMENTS in ctx.meta:
            path, *args = ctx.meta[_ARGUMENTS]
            run_script(path, args)
        return super().invoke(ctx)


def run_script(path: str, args: Sequence[str]) -> NoReturn:
    """Runs a program with ``max`` standing for maxjax and exits as it exits.

    ``sys.argv``, ``sys.path[0]`` and the module ``__main__`` are what Python makes them for
    ``python SCRIPT.py ARGS``, and stay so until the process ends. Traces show none of maxjax's
    frames above the program's.

    Args:
        path: The program's file.
        args: Its arguments.

    Raises:
        click.ClickException: If the file cannot be read; the exit code is 2.
        SystemExit: When the program ends, with its exit code: 1 after an exception, 130 after
            Ctrl-C.
    """
    try:
        # `open_code` is what Python opens programs with: audit hooks see it.
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
    except OSError as e:
        raise _Unreadable(f"cannot read {path}: {e.strerror or e}") from None
    compat.install()
    name = os.path.abspath(path)
    main = types.ModuleType("__main__", None)
    main.__dict__.update(
        __file__=name,
        __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", name),
        __package__=None,
        __builtins__=builtins,
    )
    sys.modules["__main__"] = main
    sys.argv[:] = [path, *args]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    try:
        exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)
    except SystemExit:
        raise
    except BaseException as e:
        e.__traceback__ = _programs_own(e.__traceback__)
        sys.excepthook(type(e), e, e.__traceback__)
        sys.exit(130 if isinstance(e, KeyboardInterrupt) else 1)
    sys.exit(0)


def _programs_own(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A trace without this module's frames and without those of an import that was refused."""
    if trace is None:
        return None
    rest = _programs_own(trace.tb_next)
    if trace.tb_frame.f_code.co_filename in (__file__, compat.__file__):
        return rest
    trace.tb_next = rest
    return trace
