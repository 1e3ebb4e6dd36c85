# SPDX-License-Identifier: Apache-2.0
"""The base classes of ops: one class holds an op's type rule, its meaning and its placement.

A subclass is a frozen dataclass whose fields are the op's attributes::

    class TopK(Op):
        k: int
        axis: int

        def infer(self, x): ...  # TensorType in, TensorType(s) out; raises one short sentence
        def lower(self, x): ...  # jax.Array in, jax.Array(s) out; explicit dtypes

Calling an instance is the only way anything happens: it checks that the operands belong to the
graph being built, runs the type rule, and appends a node.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, dataclass_transform

import jax
import jax.numpy as jnp

from maxjax.dtype import DType
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import Dim, SymbolicDim
from maxjax.graph.ir import Node, caller, current_graph
from maxjax.graph.shape import Shape
from maxjax.graph.type import TensorType, Type
from maxjax.graph.value import Value, make_value

if TYPE_CHECKING:
    from maxjax.graph.ir import Block
    from maxjax.kernels import Kernel

__all__ = [
    "OPS",
    "Count",
    "Counted",
    "LoweringError",
    "Op",
    "RegionOp",
    "Runner",
    "SizeError",
    "State",
    "StateOp",
    "describe",
    "refused",
]

# Every concrete op class by its mnemonic, for the text parser and the tests over all ops.
OPS: dict[str, type[Op]] = {}

# What a type rule may raise to refuse its operands.
_REFUSALS = (ValueError, TypeError, IndexError, NotImplementedError, RuntimeError, AssertionError)


class LoweringError(ValueError):
    """An op cannot be lowered; raised by ``lower`` and ``at``.

    Its text is one short sentence: the lowering adds the op, its operands and its place.
    """


class SizeError(LoweringError):
    """A size that is known only now is not what the op needs."""


def describe(types: Any) -> str:
    """Operand types as a user would write them: ``f32[batch, 4], f32[3, 2]``."""
    return ", ".join(t.brief() for t in types)


def refused(who: str, error: type[Exception], sentence: str, *types: Type) -> Exception:
    """The exception for a refused use of op ``who``: op, reason, operand types, user's line."""
    given = f" (given {describe(types)})" if types else ""
    where = caller()
    return error(f"{who}: {sentence}{given}" + (f"\n  at {where}" if where else ""))


def _evaluated(field: Any, dims: Mapping[str, Any]) -> Any:
    """``field`` with each dimension in it replaced by its value; itself when it holds none."""
    if isinstance(field, Dim):
        return field.evaluate(dims)
    if isinstance(field, (tuple, Shape)):
        values = [_evaluated(f, dims) for f in field]
        if isinstance(field, Shape) or any(a is not b for a, b in zip(values, field, strict=True)):
            return tuple(values)
    elif isinstance(field, slice):
        parts = [_evaluated(p, dims) for p in (field.start, field.stop, field.step)]
        return slice(*parts)
    return field


@dataclass_transform(frozen_default=True)
class Op(ABC):
    """An op: its attributes (the fields), its type rule and its meaning.

    Class attributes:
        mnemonic: The name in text and messages, from the class name: ``TopK`` is ``top_k``.
    """

    mnemonic: ClassVar[str] = ""
    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own_eq = "__eq__" in cls.__dict__
        dataclasses.dataclass(frozen=True, eq=not own_eq, repr="__repr__" not in cls.__dict__)(cls)
        cls._names = tuple(f.name for f in dataclasses.fields(cls))  # pyright: ignore[reportArgumentType]
        if abstract:
            return
        if "mnemonic" not in cls.__dict__:
            cls.mnemonic = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        known = OPS.get(cls.mnemonic)
        # The same class again is its module being reloaded.
        if known is not None and (known.__module__, known.__qualname__) != (
            cls.__module__,
            cls.__qualname__,
        ):
            raise TypeError(f"two ops are called {cls.mnemonic}: {known} and {cls}")
        OPS[cls.mnemonic] = cls

    @abstractmethod
    def infer(self, *operands: Any) -> Any:
        """Result type(s) for operand types; raises an error of one short sentence otherwise."""

    @abstractmethod
    def lower(self, *operands: Any) -> Any:
        """Result array(s) for operand arrays; traced by JAX."""

    @property
    def title(self) -> str:
        """What XLA's tools show for it."""
        return self.mnemonic

    def at(self, dims: Mapping[str, Any]) -> Op:
        """This op with the dimensions among its fields evaluated.

        Args:
            dims: A number, or a JAX symbolic dimension, for each symbolic name.
        """
        fields = {name: getattr(self, name) for name in self._names}
        values = {name: _evaluated(field, dims) for name, field in fields.items()}
        if all(values[name] is fields[name] for name in fields):
            return self
        return type(self)(**values)

    @property
    def new_dims(self) -> tuple[Any, ...]:
        """The dims among the fields whose sizes :meth:`count` can tell from the operands."""
        return ()

    def count(self, *operands: Any) -> tuple[jax.Array, ...]:
        """The sizes of ``new_dims`` as ``int64`` scalars; -1 where the operands allow none.

        Traced by JAX, as :meth:`lower` is.
        """
        raise AssertionError(f"{self.mnemonic} makes no sizes")

    def counted(
        self, known: Container[str], types: Sequence[Type], kernel: Callable[[str], Kernel]
    ) -> Counted | None:
        """How sizes that depend on the operands' values are found; None where there are none.

        Args:
            known: The names of dimensions that have a size before the op runs.
            types: Those of the operands.
            kernel: Finds a custom kernel by its name.
        """
        places = _new(self.new_dims, known)
        if not places:
            return None
        return Counted(tuple(self.new_dims[p].name for p in places), Count(self, places), self)

    def with_graphs(self, replace: Callable[[Any], Any]) -> Op:
        """This op with each graph that it calls replaced; most ops call none."""
        return self

    def __call__(self, *operands: Value, regions: tuple[Block, ...] = ()) -> Any:
        """Appends this op to the graph being built.

        Args:
            operands: Values of that graph.
            regions: The blocks that the op owns.

        Returns:
            The result value, or a tuple of them when the type rule gives several types, or None
            when it gives none.

        Raises:
            LookupError: If no graph is being built.
            ValueError: If an operand belongs to another graph.
        """
        block = current_graph(self.mnemonic).block
        types = []
        for i, operand in enumerate(operands):
            home = operand._block
            if home is not block and not block.sees(home):
                raise _foreign(self.mnemonic, i, operand, block)
            types.append(operand._type)
        try:
            result = self.infer(*types)
        except _REFUSALS as e:
            raise refused(self.mnemonic, type(e), str(e), *types) from None
        node = Node(self, operands, caller(), block.graph.scope, regions)
        block.nodes.append(node)
        if isinstance(result, Type):
            value = make_value(result, block)
            node.results = (value,)
            return value
        if result is None:
            return None
        node.results = results = tuple(make_value(t, block) for t in result)
        return results


@dataclasses.dataclass(frozen=True)
class Counted:
    """An op in two parts, between which sizes of its results become known.

    Attributes:
        names: The names of dimensions that it makes.
        first: From the operands to an ``int64`` scalar for each name, then to what ``rest`` takes.
        rest: From what ``first`` gives after the sizes, or if that is nothing from the operands, to
            the results. Given larger sizes than they are, the results are right as far as the
            real sizes go, and anything behind.
        is_opaque: Whether only its author can tell that of ``rest``.
    """

    names: tuple[str, ...]
    first: Op
    rest: Op
    is_opaque: bool = False


def _new(dims: Sequence[Any], known: Container[str]) -> tuple[int, ...]:
    """The places of dims that are names without a size."""
    return tuple(
        i for i, d in enumerate(dims) if isinstance(d, SymbolicDim) and d.name not in known
    )


class Count(Op, abstract=True):
    """The sizes that another op makes, as ``int64`` scalars.

    Attributes:
        op: The other.
        places: Which of its ``new_dims``.
    """

    op: Op
    places: tuple[int, ...]

    @property
    def mnemonic(self) -> str:
        """That of the other: a message about counting is one about it."""
        return self.op.mnemonic

    @property
    def title(self) -> str:
        """What XLA's tools show for it."""
        return f"count({self.op.title})"

    def infer(self, *operands: Type) -> tuple[Type, ...]:
        """A scalar for each size."""
        return (TensorType._of(DType.int64, Shape([]), DeviceRef.CPU()),) * len(self.places)

    def at(self, dims: Mapping[str, Any]) -> Op:
        """The same for the op with its dimensions evaluated."""
        return Count(self.op.at(dims), self.places)

    def lower(self, *operands: Any) -> tuple[jax.Array, ...]:
        """What the op counts."""
        sizes = self.op.count(*operands)
        return tuple(jnp.asarray(sizes[p], jnp.int64) for p in self.places)


def _foreign(who: str, i: int, operand: Value, block: Any) -> Exception:
    home, here = operand._block.graph, block.graph
    if home is here:
        why = "is defined inside a branch or loop body that has ended; return it from there"
    else:
        why = (
            f"belongs to graph {home.name!r}, not to {here.name!r} which is being built; "
            "pass it in as an input"
        )
    return refused(who, ValueError, f"operand {i} {why}", operand._type)


class State(Protocol):
    """The current arrays of the buffers, while a graph is lowered."""

    def read(self, buffer: Any) -> Any:
        """The current array of the buffer with this handle."""
        ...

    def write(self, buffer: Any, array: Any) -> None:
        """Makes ``array`` the current array of the buffer with this handle."""
        ...

    def create(self, array: Any) -> Any:
        """The handle of a new buffer that holds ``array``."""
        ...


class Runner(Protocol):
    """Runs blocks, graphs and kernels, while the graph that owns or calls them is lowered."""

    @property
    def node(self) -> Node:
        """The node that is lowered."""
        ...

    @property
    def sizes(self) -> Mapping[str, Any]:
        """A number, or a JAX symbolic dimension, for each symbolic name that is known so far."""
        ...

    def agree(self, declared: Type, shape: tuple[Any, ...]) -> str | None:
        """Binds the names that are new in a type; what is wrong with a shape for it, or None."""
        ...

    def kernel(self, name: str) -> Kernel:
        """The custom kernel of that name.

        Raises:
            LoweringError: If there is none.
        """
        ...

    def block(self, index: int, *arguments: Any) -> tuple[Any, ...]:
        """The outputs of the op's block with this index."""
        ...

    def written(self) -> list[Any]:
        """The handles of the buffers outside that the op's blocks may write."""
        ...

    def graph(self, graph: Any, operands: Sequence[Any], prefix: str) -> tuple[Any, ...]:
        """The outputs of another graph, its placeholder weights looked up under ``prefix``."""
        ...


class StateOp(Op, abstract=True):
    """An op that reads or writes buffers."""

    @abstractmethod
    def lower(self, state: State, *operands: Any) -> Any:
        """As :meth:`Op.lower`, with the buffers' current arrays.

        Args:
            state: Gives and takes the current array of a buffer.
            operands: Arrays; in the place of a buffer its handle in ``state``.
        """


class RegionOp(Op, abstract=True):
    """An op that owns blocks, or calls another graph or a kernel."""

    @abstractmethod
    def lower(self, run: Runner, state: State, *operands: Any) -> Any:
        """As :meth:`StateOp.lower`, with a function that runs a block or a graph.

        Args:
            run: Runs a block on arrays.
            state: As for :class:`StateOp`.
            operands: Arrays and buffer handles.
        """
