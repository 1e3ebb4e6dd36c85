# SPDX-License-Identifier: Apache-2.0
"""Where maxjax's public names and signatures differ from the reference's.

`tests/data/max_api.json` lists the reference's names; `tests/data/gaps.toml` holds one
line and a reason for each that maxjax does not have, or has with another signature.
`tests/test_public_api.py` compares the two. To write the file anew, keeping the reasons
that are there:

    python -m tools.gaps
"""

import ast
import dataclasses
import functools
import importlib
import inspect
import json
import operator
import pathlib
import re
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

__all__ = ["MODULES", "Parameter", "load_gaps", "main", "names", "parse_signature", "signatures"]

DATA = pathlib.Path(__file__).parent.parent / "tests" / "data"
GAPS = DATA / "gaps.toml"

# The modules compared, by their path below the root package. A later stage adds its own here.
MODULES = (
    "dtype",
    "tree",
    "driver",
    "graph",
    "graph.ops",
    "graph.weights",
    "graph.quantization",
    "graph.dtype_promotion",
    "engine",
    "experimental.tensor",
    "experimental.functional",
    "experimental.realization_context",
    "experimental.executor",
    "experimental.random",
    "experimental.custom",
    "experimental.compilation",
    "experimental.nn",
)

_MLIR = "there is no MLIR here"
_POINTERS = "takes raw pointers into the memory of other GPUs; XLA has no such pointers"
_SWITCH = "a switch of MAX's own compiler or kernels; XLA has its own (XLA_FLAGS)"

# The reason for a difference that has no line yet: that of the first pattern found in
# "names.MODULE.NAME" or "signatures.MODULE.NAME". No reason is given where none matches.
RULES: tuple[tuple[str, str], ...] = (
    (r"(to|from)_mlir$|mlir_block|ops\.Operation$|always_ready_chain|\.opaque$", _MLIR),
    (r"verify_custom_op$", _MLIR),
    (r"AlgebraicDim|signatures\.graph\.(Module|Value|GraphBlock\.output)$", _MLIR),
    (r"LazyRealizationContext\.subgraph_", "its own attributes: the bodies are in subgraph_cache"),
    (r"signatures\.engine\.InferenceSession$", "one more keyword: the folder of compiled programs"),
    (r"experimental\.\w+\.as_subgraph$", "as the seed document has it: a key, and prefix as text"),
    (r"distributed_ep\.", _POINTERS),
    (r"SymmetricPool", "no devices can have such a pool with XLA, so that none is ever made"),
    (r"signatures\.engine\.InferenceSession\.load", "more keywords: recompiles, buckets"),
    (r"CompileOnly", "virtual devices run here, so no model is only compiled"),
    (r"CompilationStopped", "raised where MAX's compiler is told to stop half-way (pre_jit)"),
    (r"CompiledModel$", "it wraps MAX's own compiled code; here the functions themselves"),
    (r"(MefStore|Error|Mismatch)$", "made by its own constructors, not by its fields"),
    (r"Debug|set_mojo_|enable_per_tensor|gpu_profiling|split_k|use_fi_topk|set_debug_", _SWITCH),
    (r"Model\.\w*(capture|replay)|kernel_summaries", "XLA captures device graphs by itself"),
    (r"ops\.DType$", "it is maxjax.dtype.DType, and no op"),
    (r"weights\.Weights\.allocate$", "a protocol: the default device is each implementation's own"),
    (r"__dlpack__$", "the DLPack protocol of today has more keywords"),
)


# ---------------------------------------------------------------- the reference's signatures


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter as text: a prefix (``*``, ``**`` or none), a name, a default or None."""

    prefix: str
    name: str
    default: str | None

    def __str__(self) -> str:
        return f"{self.prefix}{self.name}" + ("" if self.default is None else f"={self.default}")


def _split(text: str, separator: str) -> Iterator[str]:
    """The parts of ``text`` between separators that stand outside brackets and quotes."""
    depth, quote, start = 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{<":
            depth += 1
        elif c in ")]}>":
            depth -= 1
        elif depth == 0 and text.startswith(separator, i):
            yield text[start:i].strip()
            start = i + len(separator)
    yield text[start:].strip()


def parse_signature(text: str) -> list[Parameter] | None:
    """Reads a signature's text; None when it says nothing (``(*args, **kwargs)``).

    >>> [str(p) for p in parse_signature("(x: 'int', *, axis: int = -1) -> 'None'")]
    ['x', '*', 'axis=-1']
    """
    closed = (i for i in range(1, len(text) + 1) if text[:i].count("(") == text[:i].count(")"))
    parameters = []
    for part in _split(text[1 : next(closed) - 1], ","):
        if not part:
            continue
        # Without an annotation, no spaces are written.
        declaration, *default = _split(part, " = " if ":" in part else "=")
        name = declaration.split(":")[0].strip()
        if name.startswith("_"):  # not for users, on either side
            continue
        stars = len(name) - len(name.lstrip("*"))
        parameters.append(Parameter("*" * stars, name[stars:], default[0] if default else None))
    if [str(p) for p in parameters if p.name not in ("self", "cls")] == ["*args", "**kwargs"]:
        return None
    return parameters


# ---------------------------------------------------------------- ours


def _own_parameters(function: Any) -> list[tuple[Parameter, Any]]:
    """Parameters of one of our functions, each with its default, `/` and `*` written out."""
    kinds = inspect.Parameter
    found: list[tuple[Parameter, Any]] = []
    previous = None
    for p in inspect.signature(function).parameters.values():
        if p.name.startswith("_"):
            continue
        if previous == kinds.POSITIONAL_ONLY and p.kind != kinds.POSITIONAL_ONLY:
            found.append((Parameter("", "/", None), None))
        starred = previous in (kinds.VAR_POSITIONAL, kinds.KEYWORD_ONLY)
        if p.kind == kinds.KEYWORD_ONLY and not starred:
            found.append((Parameter("*", "", None), None))
        prefix = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = None if p.default is kinds.empty else repr(p.default)
        found.append((Parameter(prefix, p.name, default), p.default))
        previous = p.kind
    if previous == kinds.POSITIONAL_ONLY:
        found.append((Parameter("", "/", None), None))
    return found


def _same_default(want: str | None, ours: str | None, value: Any) -> bool:
    """Whether a default is the one the reference prints as ``want``."""
    if want is None or ours is None:
        return want is ours
    texts = {ours, str(value), f"{type(value).__name__}.{getattr(value, 'name', '')}"}
    if want in {text.replace("maxjax", "max") for text in texts}:
        return True
    try:
        literal = ast.literal_eval(want)
    except (SyntaxError, ValueError):
        return False
    if isinstance(literal, list):  # a tuple is the same default without the shared mutable list
        return isinstance(value, list | tuple) and literal == list(value)
    return type(literal) is type(value) and literal == value


_ABSENT: Any = object()


def _static(cls: type, name: str) -> Any:
    """A class's member as it was written; a field that is only annotated counts as a member."""
    annotated = any(name in inspect.get_annotations(c) for c in cls.__mro__)
    return inspect.getattr_static(cls, name, None if annotated else _ABSENT)


def _is_routine(member: Any) -> bool:
    return callable(member) or isinstance(member, classmethod | staticmethod)


# ---------------------------------------------------------------- the comparison


@functools.cache
def _reference() -> dict[str, dict[str, Any]]:
    return json.loads((DATA / "max_api.json").read_text())


def _pairs(module: str, root: str) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Each public name of the reference's module, what is said of it, and ours or None."""
    ours = importlib.import_module(f"{root}.{module}")
    for name, entry in _reference()[f"max.{module}"].items():
        try:
            yield name, entry, operator.attrgetter(name)(ours)  # "random.normal" has a dot
        except AttributeError:
            yield name, entry, None


def _class_names(name: str, entry: dict[str, Any], ours: Any) -> Iterator[tuple[str, str]]:
    for base in entry.get("bases", []):
        # What an `except` clause may name; other bases are the reference's own affair.
        error = base.endswith(("Error", "Exception"))
        if error and base not in {c.__name__ for c in ours.__mro__}:
            yield name, f"is not a subclass of {base}"
    if entry["kind"] == "enum":
        values = {m.name: m.value for m in ours}
        for key, value in entry["members"].items():
            if key not in values:
                yield f"{name}.{key}", "does not exist"
            elif (type(values[key]), values[key]) != (type(value), value):
                yield f"{name}.{key}", f"has the value {values[key]!r} instead of {value!r}"
        return
    for key, text in entry.get("members", {}).items():
        member = _static(ours, key)
        if member is _ABSENT:
            yield f"{name}.{key}", "does not exist"
        elif text.startswith("property") and _is_routine(member):
            yield f"{name}.{key}", "is a method instead of a property"
        elif "method" in text.split(" ")[0] and not _is_routine(member):
            yield f"{name}.{key}", "is not a method"


def names(module: str, root: str = "maxjax") -> dict[str, str]:
    """What the reference's module has and ours has not: a name or ``Class.member``, and why."""
    found: dict[str, str] = {}
    for name, entry, ours in _pairs(module, root):
        if ours is None and entry["kind"] != "value":
            found[name] = "does not exist"
        elif entry["kind"] in ("class", "enum"):
            if isinstance(ours, type):
                found.update(_class_names(name, entry, ours))
            else:
                found[name] = "is not a class"
        elif entry["kind"] == "function" and not callable(ours):
            found[name] = "is not a function"
    return found


def _routines(module: str, root: str) -> Iterator[tuple[str, str, Any]]:
    """Each function and method on both sides: its name, the reference's signature, ours."""
    for name, entry, ours in _pairs(module, root):
        if ours is None:
            continue
        if entry.get("sig") and entry["kind"] != "enum":
            yield name, entry["sig"], ours
        for key, text in entry.get("members", {}).items():
            if not isinstance(text, str) or "(" not in text or not isinstance(ours, type):
                continue
            member = _static(ours, key)
            kind, signature = text.split(" ", 1)
            if kind == "classmethod":  # called like a static method, so it may be either
                signature = re.sub(r"^\(cls(, )?", "(", signature)
            if isinstance(member, classmethod | staticmethod):
                member = getattr(ours, key)
            if callable(member) and not isinstance(member, type):
                yield f"{name}.{key}", signature, member


def signatures(module: str, root: str = "maxjax") -> dict[str, str]:
    """Functions and methods whose parameters differ in name, order or default, and how."""
    found: dict[str, str] = {}
    for name, text, ours in _routines(module, root):
        want = parse_signature(text)
        if want is None:
            continue
        own = _own_parameters(ours)
        same = len(want) == len(own) and all(
            (w.prefix, w.name) == (o.prefix, o.name) and _same_default(w.default, o.default, value)
            for w, (o, value) in zip(want, own, strict=True)
        )
        if not same:
            given = ", ".join(str(o) for o, _ in own)
            found[name] = f"({given}) instead of ({', '.join(map(str, want))})"
    return found


# ---------------------------------------------------------------- the file of gaps


def load_gaps(kind: str, module: str) -> dict[str, str]:
    """The reasons in `gaps.toml` for one module; ``kind`` is "names" or "signatures"."""
    return tomllib.loads(GAPS.read_text()).get(kind, {}).get(module, {})


def _reason(kind: str, module: str, name: str) -> str:
    for pattern, reason in RULES:
        if re.search(pattern, f"{kind}.{module}.{name}"):
            return reason
    return ""


def main() -> int:
    """Writes `gaps.toml`; returns 1 when a line has no reason and needs one by hand."""
    header, *_ = GAPS.read_text().split("\n[", 1)
    lines, without = [header.rstrip()], []
    for kind, compare in (("names", names), ("signatures", signatures)):
        for module in MODULES:
            found, reasons = compare(module), load_gaps(kind, module)
            if found:
                lines += ["", f'[{kind}."{module}"]']
            for name in sorted(found):
                reason = reasons.get(name) or _reason(kind, module, name)
                lines.append(f'"{name}" = {json.dumps(reason)}')
                if not reason:
                    without.append(f"{module}.{name} {found[name]}")
    GAPS.write_text("\n".join(lines) + "\n")
    for line in without:
        print(f"no reason yet: {line}", file=sys.stderr)
    return int(bool(without))


if __name__ == "__main__":
    sys.exit(main())
