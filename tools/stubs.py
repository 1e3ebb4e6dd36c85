# SPDX-License-Identifier: Apache-2.0
"""Writes ``maxjax/experimental/functional.pyi``: what editors and type checkers see of it.

Most functions there are made by one adapter when the module is imported, from the ops of
``maxjax.graph``. ``python -m tools.stubs`` writes the file anew; with ``--check`` it says whether
the file is as it would be written, which ``make check`` asks.
"""

from __future__ import annotations

import enum
import inspect
import pathlib
import re
import sys

__all__ = ["main", "written"]

PATH = pathlib.Path(__file__).parent.parent / "maxjax" / "experimental" / "functional.pyi"

HEAD = """# SPDX-License-Identifier: Apache-2.0
# Written by `python -m tools.stubs`; do not edit.

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from maxjax.dtype import DType
from maxjax.experimental.sharding import DeviceMapping, DeviceMesh
from maxjax.experimental.tensor import Tensor
from maxjax.driver import Device
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import DimLike
from maxjax.graph.ops.resize import InterpolationMode
from maxjax.graph.ops.spectral import Normalization
from maxjax.graph.shape import Shape, ShapeLike
from maxjax.graph.type import BufferType, ConvInputLayout, FilterLayout, TensorType
from maxjax.graph.value import BufferValue, TensorValue

TensorLike: TypeAlias = Tensor | TensorValue | int | float | Any
_Place: TypeAlias = Device | DeviceRef | DeviceMesh | DeviceMapping | None
"""

# What an annotation over graph values is over tensors.
OVER_TENSORS = (
    (r"\bStrongTensorValueLike\b|\bTensorValueLike\b|\bBufferValueLike\b", "TensorLike"),
    (r"\bTensorValue\b|\bBufferValue\b|\bValue(\[Any\])?", "Tensor"),
)
KNOWN = {
    "Any", "BufferType", "Callable", "ConvInputLayout", "DType", "Device", "DeviceMapping",
    "DeviceMesh", "DeviceRef", "DimLike", "FilterLayout", "InterpolationMode", "Iterable",
    "Mapping", "None", "Normalization", "Sequence", "Shape", "ShapeLike", "Tensor", "TensorLike",
    "TensorType", "bool", "dict", "float", "int", "list", "str", "tuple",
}  # fmt: skip


def written() -> str:
    """The text of the stub."""
    from maxjax.experimental import functional as F

    parts = [HEAD]
    for name in sorted(vars(F)["__all__"]):
        if name in ("ensure_context", "lazy"):
            parts.append(f"def {name}() -> AbstractContextManager[None]: ...")
        elif name == "in_graph_context":
            parts.append("def in_graph_context() -> bool: ...")
        elif name == "functional":
            parts.append(
                "def functional(graph_op: Callable[..., Any], rule: Any = None) -> "
                "Callable[..., Any]: ..."
            )
        else:
            parts.append(_function(name, getattr(F, name)))
    return "\n".join(parts) + "\n"


def _function(name: str, function: object) -> str:
    signature = inspect.signature(function)  # pyright: ignore[reportArgumentType]
    texts, kinds = [], [p.kind for p in signature.parameters.values()]
    starred = False
    for i, p in enumerate(signature.parameters.values()):
        if p.kind is p.KEYWORD_ONLY and not starred and p.VAR_POSITIONAL not in kinds:
            texts.append("*")
            starred = True
        prefix = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        text = f"{prefix}{p.name}: {_annotation(p.annotation, p.name)}"
        if p.default is not p.empty:
            text += f" = {_default(p.default)}"
        texts.append(text)
        last_positional_only = p.kind is p.POSITIONAL_ONLY and (
            i + 1 == len(kinds) or kinds[i + 1] is not p.POSITIONAL_ONLY
        )
        if last_positional_only:
            texts.append("/")
    result = _annotation(signature.return_annotation, "return")
    result = "Tensor" if result == "Any" and name not in ("cond", "while_loop") else result
    one_line = f"def {name}({', '.join(texts)}) -> {result}: ..."
    if len(one_line) <= 100:
        return one_line
    inner = "".join(f"    {t},\n" for t in texts)
    return f"def {name}(\n{inner}) -> {result}: ..."


def _annotation(annotation: object, name: str) -> str:
    """An annotation over tensors; ``Any`` where it has names that the stub lacks."""
    if annotation is inspect.Parameter.empty:
        return "Any"
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "Any")
    if name == "device":
        return "_Place"
    for pattern, replacement in OVER_TENSORS:
        text = re.sub(pattern, replacement, text)
    names = set(re.findall(r"[A-Za-z_]\w*", text))
    return text if names <= KNOWN else "Any"


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return repr(value)


def main(arguments: list[str]) -> int:
    """Writes the stub, or compares it; returns the exit status."""
    text = written()
    if "--check" not in arguments:
        PATH.write_text(text)
        return 0
    if PATH.read_text() == text:
        return 0
    print(f"{PATH.name} is not as `python -m tools.stubs` writes it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
