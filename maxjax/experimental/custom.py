# SPDX-License-Identifier: Apache-2.0
"""Custom kernels with a declared signature: called like any function over tensors.

A signature is written with symbols, which are bound to the sizes of the operands at each call, and
with parameters of the kernel, which are bound when it is declared.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maxjax import kernels
from maxjax.dtype import DType
from maxjax.experimental._dispatch import functional
from maxjax.graph import ops
from maxjax.graph.dim import Dim, DimLike, SymbolicDim
from maxjax.graph.ir import current_graph
from maxjax.graph.kernels import KernelLibrary, default_custom_extensions
from maxjax.graph.type import TensorType
from maxjax.graph.value import TensorValue

__all__ = ["CustomOp", "DTypeVar", "Param", "Symbol", "Symbols", "TemplateType", "declare"]

_SYMBOL, _PARAM = "symbol__", "param__"


class Symbol(SymbolicDim):
    """A dimension of one signature, bound to a size at each call.

    Args:
        name: Its name, or a symbol.

    >>> n = Symbol("n")
    >>> n.symbol_name, isinstance(n // 2, Dim)
    ('n', True)
    """

    __slots__ = ()
    _prefix = _SYMBOL

    def __new__(cls, name: str | Symbol) -> Symbol:
        """The symbol of a name."""
        text = name.symbol_name if isinstance(name, Symbol) else name
        plain = SymbolicDim(cls._prefix + text)
        self = object.__new__(cls)
        object.__setattr__(self, "name", plain.name)
        object.__setattr__(self, "_hash", hash(plain))
        return self

    @property
    def symbol_name(self) -> str:
        """The name that it was given."""
        return self.name.removeprefix(self._prefix)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.symbol_name,)


class Param(Symbol):
    """A dimension of a signature that is an int parameter of the kernel."""

    __slots__ = ()
    _prefix = _PARAM


def Symbols(*names: str) -> tuple[Symbol, ...]:
    """A symbol for each name.

    >>> n, w = Symbols("n", "w")
    """
    return tuple(Symbol(name) for name in names)


@dataclasses.dataclass(frozen=True)
class DTypeVar:
    """An element type of a signature: operands that share it must have one."""

    name: str


@dataclasses.dataclass(frozen=True, init=False)
class TemplateType:
    """The type of an operand or result of a signature.

    Args:
        dtype: The element type, or a variable for it.
        shape: Sizes, symbols, parameters, and expressions of them.

    Raises:
        TypeError: If a dimension has a name that is no :class:`Symbol` or :class:`Param`.
    """

    dtype: DType | DTypeVar
    shape: tuple[Dim, ...]

    def __init__(self, dtype: DType | DTypeVar, shape: Sequence[DimLike]) -> None:
        if not isinstance(dtype, DType | DTypeVar):
            raise TypeError(f"an element type is a DType or a DTypeVar, not {dtype!r:.60}")
        dims = tuple(d if isinstance(d, Dim) else Dim(d) for d in shape)
        for dim in dims:
            for p in dim.parameters:
                if not p.name.startswith((_SYMBOL, _PARAM)):
                    raise TypeError(
                        f"the dimension {dim} has the plain name {p.name!r}; make it with "
                        f"Symbol({p.name!r}) or Param({p.name!r})"
                    )
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", dims)

    def __str__(self) -> str:
        kind = self.dtype.name
        return f"{kind}[{', '.join(_shown(d) for d in self.shape)}]"


def _shown(dim: Dim) -> str:
    return str(dim).replace(_SYMBOL, "").replace(_PARAM, "")


@dataclasses.dataclass(frozen=True)
class CustomOp:
    """A custom kernel with its signature; made by :func:`declare`.

    Called with tensors it runs at once, or joins the graph that is being traced; called with graph
    values it is an op of their graph. Operands can be given by their names.

    Attributes:
        name: The kernel's name.
        inputs: The type of each operand by its name.
        outputs: The types of the results.
        parameters: The kernel's parameters; None where one has no value yet.
        custom_extensions: Paths of the files that register it.
    """

    name: str
    inputs: tuple[tuple[str, TemplateType], ...]
    outputs: tuple[TemplateType, ...]
    parameters: tuple[tuple[str, Any], ...] = ()
    custom_extensions: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all parameters have values."""
        known = dict(self.parameters)
        named = {
            p.name.removeprefix(_PARAM)
            for t in (*dict(self.inputs).values(), *self.outputs)
            for dim in t.shape
            for p in dim.parameters
            if p.name.startswith(_PARAM)
        }
        return None not in known.values() and named <= known.keys()

    @property
    def token(self) -> str:
        """A digest of the declaration."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(n, kind) for n, _ in self.inputs])

    def __getitem__(self, params: Mapping[str, Any]) -> CustomOp:
        """The op with more parameters given.

        Raises:
            ValueError, TypeError: As :func:`declare` does.
        """
        return declare(
            self.name,
            inputs=dict(self.inputs),
            outputs=self.outputs,
            parameters={**dict(self.parameters), **params},
            custom_extensions=self.custom_extensions,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result, or a tuple of several.

        Raises:
            TypeError: If operands are missing or too many, or no tensors.
            ValueError: If an operand's type does not fit the signature, or a parameter has no
                value.
        """
        if not self.is_complete:
            missing = [n for n, v in self.parameters if v is None]
            raise ValueError(
                f"{self.name}: parameters without a value ({', '.join(missing) or 'of its dims'}); "
                "give them: op[{'name': value}](...)"
            )
        bound = self.__signature__.bind(*args, **kwargs)
        return _staged(self, *bound.args)

    def _place(self, *operands: TensorValue) -> Any:
        """The op in the graph being built."""
        if self.custom_extensions:
            library = current_graph(self.name).kernels
            known = set(map(str, library.library_paths()))
            library.load_paths([p for p in self.custom_extensions if p not in known])
        values = [TensorValue(v) for v in operands]
        types = self._results([v.type for v in values])
        made = ops.custom(self.name, values[0].device, values, types, dict(self.parameters) or None)
        return made[0] if len(made) == 1 else tuple(made)

    def _results(self, types: list[TensorType]) -> list[TensorType]:
        """The types of the results for operands of these types.

        Raises:
            ValueError: If one does not fit.
        """
        dims: dict[str, Dim] = {
            _PARAM + n: Dim(v) for n, v in self.parameters if isinstance(v, int)
        }
        dtypes: dict[DTypeVar, DType] = {}
        for (name, template), given in zip(self.inputs, types, strict=True):
            wrong = self._bind(template, given, dims, dtypes)
            if wrong:
                raise ValueError(
                    f"{self.name}: operand {name!r} is {given.brief()}, declared is {template}: "
                    f"{wrong}"
                )
        device = types[0].device
        return [
            TensorType(
                t.dtype if isinstance(t.dtype, DType) else dtypes[t.dtype],
                [_plain(d.substitute(dims)) for d in t.shape],
                device,
            )
            for t in self.outputs
        ]

    @staticmethod
    def _bind(
        template: TemplateType,
        given: TensorType,
        dims: dict[str, Dim],
        dtypes: dict[DTypeVar, DType],
    ) -> str | None:
        """Binds the names of a declared type to a given one; what does not fit, or None."""
        want = template.dtype
        if isinstance(want, DTypeVar):
            want = dtypes.setdefault(want, given.dtype)
        if want is not given.dtype:
            return f"its element type is not {want.name}"
        if len(template.shape) != len(given.shape):
            return f"its rank is not {len(template.shape)}"
        for dim, size in zip(template.shape, given.shape, strict=True):
            if isinstance(dim, SymbolicDim):
                dims.setdefault(dim.name, size)
        for i, (dim, size) in enumerate(zip(template.shape, given.shape, strict=True)):
            expected = dim.substitute(dims)
            if expected != size:
                return f"dimension {i} is {size}, and {_shown(dim)} is {_shown(expected)} here"
        return None


def _plain(dim: Dim) -> Dim:
    """A dimension of a result, symbols that no operand binds as plain names."""
    names = {p.name: SymbolicDim(p.name.removeprefix(_SYMBOL)) for p in dim.parameters}
    return dim.substitute({n: d for n, d in names.items() if n.startswith(_SYMBOL)})


def _stage(op: CustomOp, *operands: TensorValue) -> Any:
    return op._place(*operands)


_staged = functional(_stage)


def declare(
    name: str,
    *,
    inputs: Mapping[str, TemplateType],
    outputs: Sequence[TemplateType],
    parameters: Mapping[str, bool | int | float | str | DType | None] | None = None,
    custom_extensions: Sequence[Path | str] = (),
) -> CustomOp:
    """Declares a custom kernel's signature.

    Args:
        name: The name under which it is registered with ``maxjax.kernel``.
        inputs: The type of each operand by its name, in order.
        outputs: The types of the results. A symbol that no operand has is a size that depends on
            values: the kernel must have a shape function.
        parameters: The kernel's parameters; None for one that is to be given later.
        custom_extensions: Paths of the files that register it.

    Raises:
        ValueError: If there is no operand or result, or no such kernel.
        TypeError: If a parameter that is a dimension is no int.

    >>> import maxjax
    >>> from maxjax.experimental.tensor import Tensor
    >>> @maxjax.kernel("documentation.halve")
    ... def halve(x):
    ...     return x[::2]
    >>> n = Symbol("n")
    >>> op = declare(
    ...     "documentation.halve",
    ...     inputs={"x": TemplateType(DType.float32, [n * 2])},
    ...     outputs=[TemplateType(DType.float32, [n])],
    ... )
    Traceback (most recent call last):
    ValueError: documentation.halve: no operand has the symbol n as a dimension of its own
    >>> op = declare(
    ...     "documentation.halve",
    ...     inputs={"x": TemplateType(DType.float32, [n])},
    ...     outputs=[TemplateType(DType.float32, [(n + 1) // 2])],
    ... )
    >>> op(Tensor([1, 2, 3])).to_numpy()
    array([1., 3.], dtype=float32)
    """
    if not inputs or not outputs:
        raise ValueError(f"{name}: a custom op has at least one operand and one result")
    paths = tuple(str(p) for p in custom_extensions)
    if name not in kernels.registered():
        library = KernelLibrary([*default_custom_extensions(), *paths])
        if name not in library:
            raise ValueError(
                f"no kernel {name!r} is registered by maxjax.kernel or in custom_extensions"
            )
    for key, value in (parameters or {}).items():
        used = any(
            p.name == _PARAM + key
            for t in (*inputs.values(), *outputs)
            for dim in t.shape
            for p in dim.parameters
        )
        if used and value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{name}: parameter {key!r} is a dimension, so an int, not {value!r}")
    _check_bound(name, inputs)
    return CustomOp(
        name, tuple(inputs.items()), tuple(outputs), tuple((parameters or {}).items()), paths
    )


def _check_bound(name: str, inputs: Mapping[str, TemplateType]) -> None:
    """Each symbol within an expression must be a dimension of its own somewhere."""
    alone = {d.name for t in inputs.values() for d in t.shape if isinstance(d, SymbolicDim)}
    for t in inputs.values():
        for dim in t.shape:
            for p in dim.parameters:
                if p.name.startswith(_SYMBOL) and p.name not in alone:
                    raise ValueError(
                        f"{name}: no operand has the symbol {_shown(p)} as a dimension of its own"
                    )
