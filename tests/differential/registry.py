# SPDX-License-Identifier: Apache-2.0
"""Which ops random programs are made of, and which not and why.

Each op has a generator, in the file of its family: it draws operands that fit, from the program
or as new inputs, and adds a line with the op beside the same in NumPy. It always succeeds, so that
how often an op is drawn does not depend on how hard it is to please.
"""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from maxjax.graph import ops
from tests.differential.program import Program

Generator = Callable[[Program], Any]
OPS: dict[str, Generator] = {}

_SEVERAL = "needs several devices: tests/graph/ops/test_collective.py"
_RANDOM = "draws from a stream of its own, which NumPy has not: tests/graph/ops/test_random.py"
_KERNEL = "computes what the kernel does: tests/graph/ops/test_custom.py"
# Public functions of `ops` that no program has, and why.
NOT_HERE = {
    "allgather": _SEVERAL,
    "allgather_rms_norm": _SEVERAL,
    "allgather_rms_norm_quant_mxfp6": _SEVERAL,
    "allgather_rms_norm_quant_mxfp8": _SEVERAL,
    "allreduce.sum": _SEVERAL,
    "assert_same_device": "computes nothing: tests/graph/ops/test_debug.py",
    "bundled_allreduce.sum": _SEVERAL,
    "custom": _KERNEL,
    "distributed_broadcast": _SEVERAL,
    "distributed_scatter": _SEVERAL,
    "inplace_custom": _KERNEL,
    "print": "has no result: tests/graph/ops/test_debug.py",
    "random.SeedType": "computes nothing: tests/graph/ops/test_random.py",
    "random.assert_scalar": "computes nothing: tests/graph/ops/test_random.py",
    "random.gaussian": _RANDOM,
    "random.normal": _RANDOM,
    "random.set_seed": _RANDOM,
    "random.uniform": _RANDOM,
    "reduce_scatter_rms_norm": _SEVERAL,
    "reducescatter.sum": _SEVERAL,
    "transfer_to": "moves to another device: tests/graph/ops/test_cast.py",
}


def op(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The generator of an op; of several it is given the name, too."""

    def add(generator: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name not in OPS, f"{name} has two generators"
            many = len(names) > 1
            OPS[name] = (lambda p, name=name: generator(p, name)) if many else generator
        return generator

    return add


def public_functions() -> set[str]:
    """The functions of `ops`, and those of its modules that are reached by the module's name."""
    own = {n: f for n, f in vars(ops).items() if inspect.isfunction(f) and n[0] != "_"}
    found = set(own)
    for name, module in vars(ops).items():
        if name[0] == "_" or not isinstance(module, ModuleType):
            continue
        for n in getattr(module, "__all__", ()):
            f = getattr(module, n)
            if inspect.isfunction(f) and own.get(n) is not f:
                found.add(f"{name}.{n}")
    return found


def draw_line(p: Program, name: str | None = None) -> None:
    """Adds a line to a program, and what it needs: with the op, or one of which each is as likely.

    Args:
        p: The program.
        name: The op.
    """
    if name is None:
        names = sorted(OPS)
        # Hypothesis prefers the first choice by far, so that is another op in each program.
        name = names[(p.number(0, len(names) - 1) + p.turn) % len(names)]
    OPS[name](p)
    p.drawn[name] += 1
