# SPDX-License-Identifier: Apache-2.0
"""Custom kernels as ops: functions over arrays, called by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from maxjax.driver import Device
from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import SymbolicDim
from maxjax.graph.ir import current_graph
from maxjax.graph.op import Counted, LoweringError, RegionOp, Runner, State, refused
from maxjax.graph.operand import either
from maxjax.graph.type import BufferType, TensorType, Type
from maxjax.graph.value import Value
from maxjax.kernels import Kernel

__all__ = ["custom", "inplace_custom"]

# What JAX raises when Python asks for the value of an array that is being traced.
_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


class Custom(RegionOp):
    """What a kernel computes from tensors."""

    name: str
    device: DeviceRef
    out_types: tuple[Type, ...]
    parameters: tuple[tuple[str, Any], ...] = ()

    @property
    def title(self) -> str:
        return f"{self.mnemonic}({self.name})"

    def infer(self, *operands: Type) -> tuple[Type, ...]:
        wrong = self.misplaced(operands)
        if wrong:
            raise TypeError(wrong)
        return self.out_types

    @staticmethod
    def misplaced(operands: Sequence[Type]) -> str | None:
        """What is wrong with the kinds of the operands."""
        for i, t in enumerate(operands):
            if isinstance(t, BufferType):
                return (
                    f"operand {i} is a buffer; kernels that change buffers are ops.inplace_custom"
                )
        return None

    def lower(self, run: Runner, state: State, *operands: Any) -> tuple[Any, ...]:
        types = [v.type for v in run.node.operands]
        handles = [o for o, t in zip(operands, types, strict=True) if isinstance(t, BufferType)]
        arrays = [
            state.read(o) if isinstance(t, BufferType) else o
            for o, t in zip(operands, types, strict=True)
        ]
        call = _Call(self, run, arrays, types)
        results = call.results()
        count = len(self.out_types)
        for handle, array in zip(handles, results[count:], strict=True):
            state.write(handle, array)
        return results[:count]

    def counted(
        self, known: Container[str], types: Sequence[Type], kernel: Callable[[str], Kernel]
    ) -> Counted | None:
        dims = [d for t in self.out_types for d in t.shape]
        new = {
            d.name: i
            for i, d in enumerate(dims)
            if isinstance(d, SymbolicDim) and d.name not in known
        }
        if not new:
            return None
        found = kernel(self.name)
        if found.shape is None or not _wants_results(found.function):
            return None  # the kernel itself tells, by what it returns
        if not _needs_values(self, found.shape, types):
            return None
        first = _Sizes(self.name, self.device, self.out_types, self.parameters, tuple(new.values()))
        return Counted(tuple(new), first, self, is_opaque=True)


def _needs_values(op: Custom, function: Callable[..., Any], types: Sequence[Type]) -> bool:
    """Whether a shape function needs the values of arrays, not their sizes alone.

    It is called with arrays of some sizes. Where that fails it may need them.
    """
    sizes = {p.name: 8 for t in types for p in t.shape.parameters}
    found = []

    def shapes(*arrays: Any) -> None:
        returned = function(*arrays, **dict(op.parameters))
        found.extend(n for shape in _shapes(returned) for n in shape)

    try:
        with jax.enable_x64(True):
            jax.eval_shape(
                shapes, *[jax.ShapeDtypeStruct(t.shape.evaluate(sizes), t.dtype.np) for t in types]
            )
    except _NEEDS_VALUES:
        return False  # no program can have such sizes: the error comes when it is compiled
    except Exception:
        return True
    return any(isinstance(n, jax.Array) for n in found)


class _Sizes(Custom, abstract=True):
    """The sizes that a kernel's shape function computes, of the results' dims in ``places``."""

    places: tuple[int, ...] = ()

    def infer(self, *operands: Type) -> tuple[Type, ...]:
        return (TensorType(DType.int64, [], DeviceRef.CPU()),) * len(self.places)

    def lower(self, run: Runner, state: State, *operands: Any) -> tuple[Any, ...]:
        types = [v.type for v in run.node.operands]
        arrays = [
            state.read(o) if isinstance(t, BufferType) else o
            for o, t in zip(operands, types, strict=True)
        ]
        call = _Call(self, run, arrays, types)
        shapes = call.shapes()
        for i, (t, shape) in enumerate(zip(self.out_types, shapes, strict=True)):
            if len(shape) != len(t.shape):
                raise LoweringError(
                    f"the shape function of kernel {call.kernel} gave rank {len(shape)} instead of "
                    f"{len(t.shape)} for result {i}"
                )
        sizes = [n for shape in shapes for n in shape]
        for n in sizes:
            if isinstance(n, jax.Array) and (n.shape or not jnp.issubdtype(n.dtype, jnp.integer)):
                raise LoweringError(
                    f"the shape function of kernel {call.kernel} gave {_brief(n)} as a size, where "
                    "an integer is expected"
                )
        return tuple(jnp.asarray(sizes[p]).astype(jnp.int64) for p in self.places)


class InplaceCustom(Custom):
    """What a kernel computes from tensors and buffers, and its new contents for each buffer."""

    @staticmethod
    def misplaced(operands: Sequence[Type]) -> str | None:
        if not any(isinstance(t, BufferType) for t in operands):
            return "no operand is a buffer; kernels that only compute are ops.custom"
        return None


class _Call:
    """One call of a kernel, while it is lowered."""

    def __init__(self, op: Custom, run: Runner, arrays: list[Any], types: list[Type]) -> None:
        self.kernel = run.kernel(op.name)
        self.run = run
        self.arrays = arrays
        self.parameters = dict(op.parameters)
        self.count = len(op.out_types)
        self.declared = [
            *((f"result {i}", t) for i, t in enumerate(op.out_types)),
            *(
                (f"the new contents of operand {i}", t)
                for i, t in enumerate(types)
                if isinstance(t, BufferType)
            ),
        ]
        unfit = _unfit(self.kernel, len(arrays), self.parameters)
        if unfit:
            raise LoweringError(unfit)

    def results(self) -> tuple[Any, ...]:
        """What the kernel returns, of exactly the declared types."""
        wanted = {"results": self.specs()} if _wants_results(self.kernel.function) else {}
        returned = self.call(self.kernel.function, **wanted)
        arrays = _as_tuple(returned)
        if len(arrays) != len(self.declared):
            contents = len(self.declared) - self.count
            raise LoweringError(
                f"kernel {self.kernel} gave {_count(len(arrays), 'array')}, but out_types declares "
                + _count(self.count, "result")
                + (f", and {_count(contents, 'buffer')} must have new contents" if contents else "")
            )
        return tuple(
            self.checked(who, t, a) for (who, t), a in zip(self.declared, arrays, strict=True)
        )

    def call(self, function: Callable[..., Any], **more: Any) -> Any:
        try:
            return function(*self.arrays, **self.parameters, **more)
        except _NEEDS_VALUES as e:
            raise LoweringError(
                f"kernel {self.kernel} needs the values of an array while it is compiled. Sizes "
                "are fixed then, so give results a size that does not depend on values, as "
                "jnp.nonzero(x, size=...) does, and write branches with jnp.where or jax.lax.cond"
            ) from e
        except Exception as e:
            e.add_note(f"in kernel {self.kernel}, called at {self.run.node.location}")
            raise

    def specs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """The declared types with their dimensions evaluated."""
        types = [t for _, t in self.declared]
        new = {p.name for t in types for p in t.shape.parameters} - self.run.sizes.keys()
        if new:
            self.bind(types, sorted(new))
        return tuple(
            jax.ShapeDtypeStruct(tuple(t.shape.evaluate(self.run.sizes)), t.dtype.np) for t in types
        )

    def bind(self, types: list[Type], new: list[str]) -> None:
        """Finds the sizes of names that no operand has from the kernel's shape function."""
        if self.kernel.shape is None:
            raise LoweringError(
                f"out_types has {' and '.join(map(repr, new))}, which no operand has as a "
                f"dimension; kernel {self.kernel} asks for `results`, so it needs a shape "
                "function: @maxjax.kernel(name, shape=...)"
            )
        shapes = self.shapes()
        for i, (t, s) in enumerate(zip(types, shapes, strict=False)):
            if any(isinstance(n, jax.Array) for n in s):
                raise LoweringError(
                    f"the sizes {' and '.join(map(repr, new))} that kernel {self.kernel} gives "
                    "depend on values, so they are not known before the graph runs. A model of the "
                    "graph computes them; one program, as in an artifact, needs bounds={...}"
                )
            wrong = self.run.agree(t, s)
            if wrong:
                raise LoweringError(
                    f"the shape function of kernel {self.kernel} gave {wrong} for result {i}"
                )

    def shapes(self) -> list[tuple[Any, ...]]:
        """What the shape function gives: a shape for each result."""
        assert self.kernel.shape is not None
        returned = self.call(self.kernel.shape)
        if not isinstance(returned, (tuple, list)):
            raise LoweringError(
                f"the shape function of kernel {self.kernel} gave {returned!r:.60}, where a tuple "
                "is expected"
            )
        shapes = _shapes(returned)
        if len(shapes) != self.count:
            raise LoweringError(
                f"the shape function of kernel {self.kernel} gave {_count(len(shapes), 'shape')} "
                f"for {_count(self.count, 'result')}"
            )
        return shapes

    def checked(self, who: str, declared: Type, array: Any) -> jax.Array:
        """``array``, if it is one of the declared type."""
        if not isinstance(array, (jax.Array, np.ndarray, np.generic)):
            raise LoweringError(
                f"kernel {self.kernel} gave {type(array).__name__} {array!r:.60} as {who}, "
                "where an array is expected"
            )
        same = array.dtype == declared.dtype.np
        if same and self.run.agree(declared, array.shape) is None:
            return jnp.asarray(array)
        sizes = ", ".join(
            f"{p.name} = {self.run.sizes[p.name]}"
            for p in dict.fromkeys(declared.shape.parameters)
            if p.name in self.run.sizes
        )
        hint = "" if same else "; 64-bit types are on in kernels, so give dtypes explicitly"
        raise LoweringError(
            f"kernel {self.kernel} gave {_brief(array)} as {who}, declared as {declared.brief()}"
            + (f" with {sizes}" if sizes else "")
            + (hint if array.dtype.itemsize == 8 else "")
        )


def _as_tuple(returned: Any) -> tuple[Any, ...]:
    if returned is None:
        return ()
    return tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)


def _shapes(returned: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What a shape function returned, one shape or several, as a list of shapes."""
    several = returned and all(isinstance(s, (tuple, list)) for s in returned)
    return [tuple(s) for s in returned] if several else [tuple(returned)]


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _brief(array: Any) -> str:
    try:
        dtype = DType.of(array.dtype).short
    except (KeyError, TypeError, ValueError):
        dtype = str(array.dtype)
    return f"{dtype}[{', '.join(map(str, array.shape))}]"


# ---------------------------------------------------------------- signatures


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None  # some functions written in C say nothing


def _wants_results(function: Callable[..., Any]) -> bool:
    signature = _signature(function)
    parameter = signature.parameters.get("results") if signature else None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return parameter is not None and parameter.kind in named


def _unfit(kernel: Kernel, operands: int, parameters: Mapping[str, Any]) -> str | None:
    """Why a kernel cannot be called with these, or None."""
    signature = _signature(kernel.function)
    if signature is None:
        return None
    more = {"results": None} if _wants_results(kernel.function) else {}
    try:
        if more.keys() & parameters.keys():
            raise TypeError("`results` is what the op declares, and no parameter")
        signature.bind(*[None] * operands, **parameters, **more)
    except TypeError as e:
        names = ", ".join(parameters) or "no parameters"
        return (
            f"kernel {kernel} is a function of {signature}, but is called with "
            f"{_count(operands, 'value')} and {names}: {e}"
        )
    return None


# ---------------------------------------------------------------- public


def custom(
    name: str,
    device: Device | DeviceRef,
    values: Sequence[Value],
    out_types: Sequence[Type],
    parameters: Mapping[str, bool | int | float | str | DType] | None = None,
) -> list[Value]:
    """Calls a custom kernel.

    The kernel is a function registered with ``maxjax.kernel``: by the program, or in a file among
    the graph's ``custom_extensions``. It is given the values as arrays and the parameters by
    keyword, and returns an array for each of ``out_types``.

    Args:
        name: The name it is registered under.
        device: Where it runs.
        values: Tensors.
        out_types: The results' types. A dimension's name that no operand has stands for the size
            that the kernel returns; it must not depend on the values of an array, unless the kernel
            asks for ``results`` and its shape function computes it.
        parameters: What it is given by keyword, fixed when the graph is compiled.

    Returns:
        One value per type in ``out_types``.

    Raises:
        TypeError: If a value is a buffer or no graph value, an out type no type, a parameter
            of another kind, or ``device`` no device.
        ValueError: If no such kernel is registered, or its parameters are others. When the graph
            is compiled: if it returns other types than ``out_types``.

    >>> import maxjax, numpy as np
    >>> from maxjax.dtype import DType
    >>> from maxjax.engine import InferenceSession
    >>> from maxjax.graph import DeviceRef, Graph, TensorType, ops
    >>> @maxjax.kernel("add_constant")
    ... def add_constant(x, *, value):
    ...     return x + value
    >>> x = TensorType(DType.int32, ["n"], DeviceRef.CPU())
    >>> with Graph("g", input_types=[x]) as g:
    ...     (y,) = ops.custom("add_constant", x.device, g.inputs, [x], {"value": 5})
    ...     g.output(y)
    >>> InferenceSession().load(g)(np.int32([1, 2]))[0].to_numpy()
    array([6, 7], dtype=int32)
    """
    return _custom(Custom, name, device, values, out_types, parameters)


def inplace_custom(
    name: str,
    device: Device | DeviceRef,
    values: Sequence[Value],
    out_types: Sequence[Type] | None = None,
    parameters: Mapping[str, bool | int | float | str | DType] | None = None,
) -> list[Value]:
    """Calls a custom kernel that changes buffers.

    The kernel is given the buffers' contents among the other arrays, in their positions. Arrays
    do not change, so it returns the new contents: first an array for each of ``out_types``, then
    one for each buffer, in order. Where a graph's inputs are buffers XLA writes them in place.

    Args:
        name: The name it is registered under.
        device: Where it runs.
        values: Tensors and buffers, each buffer once.
        out_types: The results' types, as for :func:`custom`; None for no results.
        parameters: What it is given by keyword.

    Returns:
        One value per type in ``out_types``.

    Raises:
        TypeError: If no value is a buffer; otherwise as for :func:`custom`.
        ValueError: If a buffer is given twice; otherwise as for :func:`custom`.

    >>> import maxjax, jax.numpy as jnp
    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import BufferType, DeviceRef, Graph, TensorType, ops
    >>> @maxjax.kernel("push")
    ... def push(queue, x):
    ...     return queue[0], jnp.concatenate([queue[1:], x[None]])
    >>> x = TensorType(DType.float32, [], DeviceRef.CPU())
    >>> queue = BufferType(DType.float32, [8], DeviceRef.CPU())
    >>> with Graph("g", input_types=[queue, x]) as g:
    ...     ops.inplace_custom("push", x.device, g.inputs, [x])
    [TensorValue(float32, [], cpu:0)]
    """
    return _custom(InplaceCustom, name, device, values, out_types or (), parameters)


def _custom(
    cls: type[Custom],
    name: str,
    device: Device | DeviceRef,
    values: Sequence[Value],
    out_types: Sequence[Type],
    parameters: Mapping[str, Any] | None,
) -> list[Value]:
    who = cls.mnemonic
    if not isinstance(name, str):
        raise refused(who, TypeError, f"the kernel's name is a string, not {name!r:.60}")
    try:
        where = DeviceRef.from_device(device)
    except TypeError as e:
        raise refused(who, TypeError, str(e)) from None
    operands = [either(who, v, f"value {i}") for i, v in enumerate(values)]
    types = [v.type for v in operands]
    wrong = cls.misplaced(types)
    if wrong:
        raise refused(who, TypeError, wrong, *types)
    buffers = [id(v) for v in operands if isinstance(v.type, BufferType)]
    if len(set(buffers)) < len(buffers):
        raise refused(who, ValueError, "a buffer is given twice, so it has no one content", *types)
    for i, t in enumerate(out_types):
        _check_out_type(who, i, t)
    given = tuple((k, _parameter(who, k, v)) for k, v in (parameters or {}).items())
    try:
        kernel = current_graph(who).kernels.find(name)
    except ValueError as e:
        raise refused(who, ValueError, str(e), *types) from None
    unfit = _unfit(kernel, len(operands), dict(given))
    if unfit:
        raise refused(who, ValueError, unfit, *types)
    return list(cls(name, where, tuple(out_types), given)(*operands))


def _check_out_type(who: str, i: int, type_: Any) -> None:
    if isinstance(type_, BufferType):
        raise refused(
            who, ValueError, f"out type {i} is a buffer's; kernels make tensors only", type_
        )
    if not isinstance(type_, TensorType):
        raise refused(who, TypeError, f"out type {i} is a TensorType, not {type_!r:.60}")


def _parameter(who: str, name: Any, value: Any) -> bool | int | float | str | DType:
    """A parameter's value as a plain one of its kind."""
    if not isinstance(name, str):
        raise refused(who, TypeError, f"a parameter's name is a string, not {name!r:.60}")
    if isinstance(value, (bool, DType)):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise refused(
        who,
        TypeError,
        f"parameter {name!r} is a bool, int, float, str or DType, not "
        f"{type(value).__name__} {value!r:.60}",
    )
