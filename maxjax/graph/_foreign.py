# SPDX-License-Identifier: Apache-2.0
"""Kernels in shared libraries: XLA FFI handlers, described by a manifest beside the library.

``libname.so`` has its manifest in ``libname.yaml``::

    kernels:
      rms_norm:                     # the name for ops.custom
        symbols: {cpu: RmsNorm}     # for each platform its handler (XLA_FFI_DEFINE_HANDLER_SYMBOL)
        attributes: {eps: float32}  # the parameters and the types that the handler wants them in
      append:
        symbols: {cpu: AppendCpu, cuda: AppendCuda}
        aliases: {1: 0}             # operand 1 is written in place, and is array 0 of the results

Platforms are JAX's: cpu, cuda, rocm, tpu. An attribute is a number type (``bool``, ``int64``,
``float32``, ...), ``string``, or ``dtype``, which the handler gets as a string such as
``"float32"``. A handler's results are in the order that a kernel returns them in: the results,
then the new contents of each buffer.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import yaml

from maxjax.dtype import DType
from maxjax.kernels import Kernel

__all__ = ["LIBRARY_SUFFIXES", "load_library"]

LIBRARY_SUFFIXES = (".so", ".dylib", ".dll")

_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_KEYS = {"symbols", "attributes", "aliases"}
_NUMBERS = {
    d.name: d.np
    for d in DType
    if d is DType.bool or d.name.removeprefix("u").startswith(("int", "float32", "float64"))
}
_TYPES = (*_NUMBERS, "string", "dtype")

# Handlers stay in memory for as long as programs may call them: for good.
_OPEN: dict[Path, tuple[str, ctypes.CDLL]] = {}
_REGISTERED: set[str] = set()


def load_library(path: Path) -> dict[str, Kernel]:
    """The kernels of a shared library, registered with XLA.

    Args:
        path: The library; its manifest is beside it.

    Raises:
        ValueError: If the manifest is missing or malformed, or the library cannot be loaded or
            lacks a symbol.
    """
    described = _manifest(path)
    content = hashlib.sha256(path.read_bytes())
    library = _open(path, content.hexdigest())
    handlers = {
        name: {p: _handler(library, path, name, s) for p, s in entry["symbols"].items()}
        for name, entry in described.items()
    }
    kernels = {}
    for name, entry in described.items():
        # XLA knows a handler by this name alone, in the whole process and in saved programs.
        digest = content.copy()
        digest.update(repr(sorted(entry["symbols"].items())).encode())
        target = f"{name}@{digest.hexdigest()[:16]}"
        if target not in _REGISTERED:
            for platform, handler in handlers[name].items():
                jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform=platform)
            _REGISTERED.add(target)
        function = _function(name, target, entry["attributes"], entry["aliases"])
        kernels[name] = Kernel(name, function, None, os.fspath(path))
    return kernels


def _open(path: Path, digest: str) -> ctypes.CDLL:
    """A library, opened.

    Raises:
        ValueError: If it cannot be.
    """
    known = _OPEN.get(path)
    if known is not None and known[0] == digest:
        return known[1]
    try:
        if known is None:
            library = ctypes.CDLL(os.fspath(path))
        else:
            # The system goes by the path, and would give back what was there before.
            with tempfile.TemporaryDirectory() as folder:
                library = ctypes.CDLL(shutil.copy(path, folder))
    except OSError as e:
        raise ValueError(f"{path} cannot be loaded as a shared library: {e}") from None
    _OPEN[path] = digest, library
    return library


def _handler(library: ctypes.CDLL, path: Path, name: str, symbol: str) -> Any:
    try:
        return getattr(library, symbol)
    except AttributeError:
        raise ValueError(
            f"{path} has no symbol {symbol!r}, which {_beside(path).name} names for kernel "
            f'{name!r}; define it in an `extern "C"` scope, as XLA_FFI_DEFINE_HANDLER_SYMBOL does'
        ) from None


# ---------------------------------------------------------------- the manifest


def _beside(path: Path) -> Path:
    return path.with_suffix(".yaml")


def _manifest(path: Path) -> dict[str, dict[str, Any]]:
    """The kernels described beside a library, each with all its keys."""
    manifest = _beside(path)
    try:
        text = manifest.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(
            f"{path} needs the manifest {manifest} that describes its kernels, such as\n"
            "kernels:\n"
            "  my_kernel:\n"
            "    symbols: {cpu: MyKernel}\n"
            "    attributes: {scale: float32}"
        ) from None
    except UnicodeDecodeError as e:
        raise ValueError(f"{manifest}: {e}") from None
    try:
        content = yaml.safe_load(text)
        kernels = _mapping(content, "the manifest").get("kernels")
        _only(content, {"kernels"}, "the manifest")
        return {
            _string(name, "the name of a kernel"): _entry(name, entry)
            for name, entry in _mapping(kernels, "kernels").items()
        }
    except (yaml.YAMLError, ValueError) as e:
        raise ValueError(f"{manifest}: {e}") from None


def _entry(name: str, entry: Any) -> dict[str, Any]:
    who = f"kernel {name!r}"
    found = _mapping(entry, who)
    _only(found, _KEYS, who)
    symbols = _mapping(found.get("symbols"), f"symbols of {who}")
    if not symbols:
        raise ValueError(f"{who} names no symbols; write symbols: {{cpu: NameOfTheHandler}}")
    _only(symbols, _PLATFORMS, f"symbols of {who}")
    for symbol in symbols.values():
        _string(symbol, f"a symbol of {who}")
    attributes = _mapping(found.get("attributes", {}), f"attributes of {who}")
    for attribute, type_ in attributes.items():
        if not isinstance(attribute, str) or not attribute.isidentifier():
            raise ValueError(f"{attribute!r}, an attribute of {who}, cannot name a parameter")
        if type_ not in _TYPES:
            raise ValueError(
                f"attribute {attribute!r} of {who} has the type {type_!r}; the types are "
                f"{', '.join(_TYPES)}"
            )
    aliases = _mapping(found.get("aliases", {}), f"aliases of {who}")
    if not all(type(n) is int and n >= 0 for pair in aliases.items() for n in pair):
        raise ValueError(f"aliases of {who} are numbers of operands to numbers of results")
    return {"symbols": symbols, "attributes": attributes, "aliases": aliases}


def _mapping(value: Any, who: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{who} must be a mapping, not {value!r:.60}")
    return value


def _only(mapping: Mapping[Any, Any], known: Any, who: str) -> None:
    for key in mapping:
        if key not in known:
            raise ValueError(f"{who} has {key!r}, where {', '.join(sorted(known))} are known")


def _string(value: Any, who: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{who} must be a string, not {value!r:.60}")
    return value


# ---------------------------------------------------------------- the call


def _function(
    name: str, target: str, attributes: Mapping[str, str], aliases: dict[int, int]
) -> Callable[..., Any]:
    """The kernel function that calls a handler."""

    def call(*arrays: Any, results: tuple[jax.ShapeDtypeStruct, ...], **parameters: Any) -> Any:
        converted = {
            key: _attribute(name, key, attributes[key], value) for key, value in parameters.items()
        }
        return jax.ffi.ffi_call(
            target,
            results,
            vmap_method="sequential",
            input_output_aliases=aliases or None,
            # XLA leaves out calls whose results nobody uses.
            has_side_effect=not results,
        )(*arrays, **converted)

    # The parameters by name, so that a call is checked as that of any other kernel is.
    kinds = inspect.Parameter
    call.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [
            kinds("arrays", kinds.VAR_POSITIONAL),
            kinds("results", kinds.KEYWORD_ONLY),
            *(kinds(key, kinds.KEYWORD_ONLY) for key in attributes if key != "results"),
        ]
    )
    return call


def _attribute(kernel: str, key: str, type_: str, value: Any) -> Any:
    """A parameter as the handler wants it.

    Raises:
        TypeError: If it is of another kind.
        ValueError: If it does not fit.
    """
    wanted = str if type_ == "string" else DType if type_ == "dtype" else None
    if wanted is not None:
        if not isinstance(value, wanted):
            raise TypeError(
                f"parameter {key!r} of kernel {kernel!r} must be a {type_}, not {value!r}"
            )
        return value if isinstance(value, str) else value.name
    real = type_.startswith("float")
    kinds: Any = bool if type_ == "bool" else (int, float) if real else int
    if not isinstance(value, kinds) or (type_ != "bool" and isinstance(value, bool)):
        raise TypeError(f"parameter {key!r} of kernel {kernel!r} must be {type_}, not {value!r}")
    try:
        with np.errstate(over="raise"):
            return _NUMBERS[type_].type(value)
    except (OverflowError, FloatingPointError):
        raise ValueError(
            f"parameter {key!r} of kernel {kernel!r} is {value}, which {type_} does not hold"
        ) from None
