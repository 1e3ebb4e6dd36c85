# SPDX-License-Identifier: Apache-2.0
"""A graph as a pure JAX function of its weights, inputs and buffers."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax

from maxjax.graph.dim import UnboundDimError
from maxjax.graph.graph import Graph
from maxjax.graph.ir import Block, Node
from maxjax.graph.op import LoweringError, RegionOp, StateOp, describe
from maxjax.graph.ops.buffer import written
from maxjax.graph.ops.call import Call
from maxjax.graph.ops.constant import ConstantExternal
from maxjax.graph.ops.debug import Print
from maxjax.graph.type import BufferType, TensorType, Type
from maxjax.graph.value import Value
from maxjax.kernels import Kernel
from maxjax.lower.dims import Sizes
from maxjax.lower.repeat import Repeat, lower_repeat, repeats
from maxjax.lower.signature import Signature

__all__ = ["LoweredFunction", "Manner", "to_jax"]


# Each called graph by identity: its jitted function, and the weights that one needs.
_Bodies: TypeAlias = dict[int, tuple[Callable[..., Any], dict[str, ConstantExternal]]]


@dataclasses.dataclass(frozen=True)
class Manner:
    """How a graph is lowered.

    Attributes:
        prints: Whether ``ops.print`` prints; a program in a file cannot.
        locations: Whether the names that XLA's tools show end in the user's file and line.
        mark: What these names end in instead, by which an analysis finds the node again.
        loop: From how many calls of one body in a row, each fed by the one before, they become a
            loop over their stacked weights; 0 for never.
    """

    prints: bool = True
    locations: bool = False
    mark: Callable[[Node], str] | None = None
    loop: int = 0


@dataclasses.dataclass(frozen=True)
class LoweredFunction:
    """A graph as a pure function, traceable by ``jax.jit``, ``jax.grad``, ``jax.export``.

    Trace and run it inside ``jax.enable_x64(True)`` when the graph has 64-bit types.

    Attributes:
        graph: What it was lowered from.
        signature: Its name and types; full names of weights include the prefixes of calls.
        manner: How it is lowered.
        repeats: The runs of calls that become loops, by the identity of their first node.
    """

    graph: Graph
    signature: Signature
    manner: Manner = Manner()
    repeats: Mapping[int, Repeat] = dataclasses.field(repr=False, default_factory=dict)
    _bodies: _Bodies = dataclasses.field(repr=False, default_factory=dict)

    @property
    def weights(self) -> Mapping[str, TensorType]:
        """The type of each weight by its full name."""
        return self.signature.weights

    @property
    def weight_keys(self) -> tuple[Any, ...]:
        """The keys of ``weights`` in a call: a name, or the names of weights that are stacked.

        A weight that is stacked and used otherwise too has both keys.
        """
        if not self.repeats:
            return tuple(self.signature.weights)
        stacks = [stack for repeat in self.repeats.values() for stack in repeat.stacks]
        loops = {id(n) for repeat in self.repeats.values() for n in repeat.nodes}
        alone = _weights_of(n for n in self.graph.body.walk() if id(n) not in loops)
        stacked = {name for stack in stacks for name in stack} - alone.keys()
        keys = (n for n in self.signature.weights if n not in stacked)
        return (*keys, *dict.fromkeys(stacks))

    def __call__(
        self, weights: Mapping[Any, Any], inputs: Sequence[Any], buffers: Sequence[Any] = ()
    ) -> tuple[list[Any], list[Any]]:
        """The outputs, and the buffers' contents afterwards.

        Args:
            weights: An array per name in ``self.weights``; in the place of weights that are
                stacked (``self.weight_keys``) there can be the stack, by the tuple of their names.
            inputs: An array per tensor input, in order.
            buffers: An array per buffer input, in order.

        Returns:
            Two lists: the outputs in order (of a buffer that is an output its final contents),
            and the buffers' final contents in order.

        Raises:
            ValueError: If a shape is not as declared, or a symbolic name has two sizes.
            KeyError: If a weight is missing.
        """
        tensors, states = iter(inputs), iter(buffers)
        arguments = [
            next(states if isinstance(t, BufferType) else tensors) for t in self.graph.input_types
        ]
        run = _Run(self.graph, weights, self.manner, self._bodies, self.repeats)
        outputs, finals = run.body(arguments)
        return outputs, finals


def to_jax(graph: Graph, manner: Manner | None = None) -> LoweredFunction:
    """Lowers a graph to a pure JAX function.

    Subgraphs become nested jitted functions: one private function in the StableHLO for each
    body, and a call for each use.

    Args:
        graph: A finished graph.
        manner: How, if not as usual.

    Raises:
        TypeError: If the graph, or one it calls, has no outputs yet.

    >>> import numpy as np
    >>> from maxjax.dtype import DType
    >>> from maxjax.graph import DeviceRef, Graph, TensorType
    >>> x = TensorType(DType.float32, ["n"], DeviceRef.CPU())
    >>> fn = to_jax(Graph("double", lambda x: x * 2, [x]))
    >>> outputs, buffers = fn({}, [np.float32([1, 2])])
    >>> outputs[0].tolist()
    [2.0, 4.0]
    """
    weights = {name: op.type for name, op in external_weights(graph).items()}
    manner = manner or Manner()
    found = repeats(graph.body, manner.loop, external_weights) if manner.loop else {}
    return LoweredFunction(graph, Signature.of(graph, weights), manner, found)


def external_weights(graph: Graph) -> dict[str, ConstantExternal]:
    """The weights a graph needs, those of the graphs it calls included, by full name.

    Raises:
        ValueError: If one name stands for two types.
    """
    return _weights_of(graph.body.walk())


def _weights_of(nodes: Iterable[Node]) -> dict[str, ConstantExternal]:
    found: dict[str, ConstantExternal] = {}
    for node in nodes:
        if isinstance(node.op, ConstantExternal):
            _merge(found, node.op.name, node.op)
        elif isinstance(node.op, Call):
            for name, op in external_weights(node.op.callee).items():
                _merge(found, node.op.prefix + name if op.is_placeholder else name, op)
    return found


def _merge(found: dict[str, ConstantExternal], name: str, op: ConstantExternal) -> None:
    known = found.setdefault(name, op)
    if known.type != op.type:
        raise ValueError(
            f"weight {name!r} is declared twice with different types, "
            f"{known.type.brief()} and {op.type.brief()}"
        )


class _Run:
    """One run of a graph's lowering, while JAX traces it."""

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[Any, Any],
        manner: Manner,
        bodies: _Bodies,
        repeats: Mapping[int, Repeat] | None = None,
    ) -> None:
        self.repeats = repeats or {}
        self.graph = graph
        self.weights = weights
        self.manner = manner
        self.bodies = bodies
        self.sizes = Sizes()
        self.arrays: dict[int, Any] = {}
        self.state = _State()

    def body(self, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Outputs and final buffer contents of the graph for these arguments."""
        values = self.graph.inputs
        self.sizes.bind_all(
            (
                *(
                    (f"input {i}", v.type, a.shape)
                    for i, (v, a) in enumerate(zip(values, arguments, strict=True))
                ),
                *self.declared_weights(),
            )
        )
        handles = []
        for value, array in zip(values, arguments, strict=True):
            if isinstance(value.type, BufferType):
                array = self.state.create(array)
                handles.append(array)
            self.arrays[id(value)] = array
        outputs = [self.contents(v) for v in self.block(self.graph.body)]
        return outputs, [self.state.read(h) for h in handles]

    def declared_weights(self) -> Iterator[tuple[str, Type, tuple[Any, ...]]]:
        """Name, type and shape of the weights that this graph itself declares."""
        for node in self.graph.body.nodes:
            if not isinstance(node.op, ConstantExternal):
                break  # they stand at the head
            name = node.op.name
            yield f"weight {name!r}", node.op.type, self.weights[name].shape

    def contents(self, value: Any) -> Any:
        return self.state.read(value) if isinstance(value, _Handle) else value

    def block(self, block: Block) -> list[Any]:
        done: set[int] = set()
        for node in block.nodes:
            if id(node) in self.repeats:
                done |= self.repeat(self.repeats[id(node)])
            if id(node) not in done:
                self.node(node)
        return [self.arrays[id(v)] for v in block.outputs or ()]

    def repeat(self, repeat: Repeat) -> set[int]:
        """Runs calls as a loop; gives the identities of their nodes."""
        first, last = repeat.nodes[0], repeat.nodes[-1]
        callee = first.op.callee  # pyright: ignore[reportAttributeAccessIssue]
        body, needed = self.called(callee)
        shared = {n: self.weights[n] for n, op in needed.items() if not op.is_placeholder}
        operands = [self.arrays[id(v)] for v in first.operands]
        with _scope(first, self.manner):
            fed = lower_repeat(repeat, body, self.weights, shared, operands)
        for k, array in zip(repeat.fed, fed, strict=True):
            if k is not None:
                self.arrays[id(last.results[k])] = array
        return {id(n) for n in repeat.nodes}

    def called(self, graph: Graph) -> tuple[Callable[..., Any], dict[str, ConstantExternal]]:
        """The jitted function of a graph that is called, and the weights it needs."""
        body = self.bodies.get(id(graph))
        if body is None:
            body = _jitted(graph, self.manner, self.bodies), external_weights(graph)
            self.bodies[id(graph)] = body
        return body

    def node(self, node: Node) -> None:
        op = node.op
        if isinstance(op, ConstantExternal):
            self.arrays[id(node.results[0])] = self.weights[op.name]
            return
        if isinstance(op, Print) and not self.manner.prints:
            return
        operands = [self.arrays[id(v)] for v in node.operands]
        try:
            at = op.at(self.sizes)
            with _scope(node, self.manner):
                if isinstance(at, RegionOp):
                    result = at.lower(_Runner(self, node), self.state, *operands)
                elif isinstance(at, StateOp):
                    result = at.lower(self.state, *operands)
                else:
                    result = at.lower(*operands)
        except LoweringError as e:
            raise _failed(node, str(e)) from e.__cause__
        except UnboundDimError as e:
            raise _failed(node, f"{e}: use a number or a dimension of an input") from None
        if len(node.results) == 1 and not isinstance(result, (tuple, list)):
            result = (result,)
        for value, array in zip(node.results, result or (), strict=True):
            self.check(node, value, array)
            self.arrays[id(value)] = array

    def check(self, node: Node, value: Value, array: Any) -> None:
        """What an op computes must be what its type rule said; new dimension names are bound."""
        contents, declared = self.contents(array), value.type
        wrong = self.sizes.agree(declared, contents.shape)
        if wrong is None and contents.dtype != declared.dtype.np:
            wrong = f"{contents.dtype} instead of {declared.dtype.name}"
        if wrong is not None:
            raise AssertionError(
                f"{node.op.mnemonic} gave {wrong}: its type rule and its lowering disagree "
                f"({node.op}, at {node.location})"
            )


class _Handle:
    """A buffer, while a graph is lowered."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array


class _State:
    """The current arrays of the buffers. Program order is effect order."""

    def read(self, buffer: _Handle) -> Any:
        return buffer.array

    def write(self, buffer: _Handle, array: Any) -> None:
        buffer.array = array

    def create(self, array: Any) -> _Handle:
        return _Handle(array)


class _Runner:
    """Runs the blocks, graphs and kernels of one node."""

    def __init__(self, run: _Run, node: Node) -> None:
        self._run = run
        self.node = node

    @property
    def sizes(self) -> Mapping[str, Any]:
        return self._run.sizes

    def agree(self, declared: Type, shape: tuple[Any, ...]) -> str | None:
        return self._run.sizes.agree(declared, shape)

    def kernel(self, name: str) -> Kernel:
        try:
            return self._run.graph.kernels.find(name)
        except ValueError as e:
            raise LoweringError(str(e)) from None

    def block(self, index: int, *arguments: Any) -> tuple[Any, ...]:
        block = self.node.regions[index]
        for value, array in zip(block.arguments, arguments, strict=True):
            self._run.arrays[id(value)] = array
        return tuple(self._run.block(block))

    def written(self) -> list[_Handle]:
        values = (v for region in self.node.regions for v in written(region))
        handles = [self._run.arrays[id(v)] for v in values]
        return list({id(h): h for h in handles}.values())

    def graph(self, graph: Graph, operands: Sequence[Any], prefix: str) -> tuple[Any, ...]:
        run = self._run
        body = run.bodies.get(id(graph))
        if body is None:
            body = run.bodies[id(graph)] = (
                _jitted(graph, run.manner, run.bodies),
                external_weights(graph),
            )
        fn, needed = body
        weights = {
            name: run.weights[prefix + name if op.is_placeholder else name]
            for name, op in needed.items()
        }
        outputs, finals = fn(weights, [run.contents(o) for o in operands])
        handles = [o for o in operands if isinstance(o, _Handle)]
        for handle, array in zip(handles, finals, strict=True):
            run.state.write(handle, array)
        return tuple(outputs)


def _jitted(graph: Graph, manner: Manner, bodies: _Bodies) -> Callable[..., Any]:
    def body(weights: Mapping[str, Any], arguments: Sequence[Any]) -> Any:
        return _Run(graph, weights, manner, bodies).body(arguments)

    body.__name__ = body.__qualname__ = re.sub(r"\W", "_", graph.symbol) or "body"
    return jax.jit(body)


def _failed(node: Node, sentence: str) -> ValueError:
    """The error for an op that cannot be lowered for these sizes."""
    given = describe(v.type for v in node.operands)
    where = f"\n  at {node.location}" if node.location else ""
    return ValueError(f"{node.op.mnemonic}: {sentence} (given {given}){where}")


def _scope(node: Node, manner: Manner) -> Any:
    """The name XLA's tools show for a node: profile scopes, then the op."""
    name = node.op.title
    if manner.locations and node.location:
        # A slash would begin another scope.
        name = f"{name} at {str(node.location).replace('/', chr(0x2215))}"
    if manner.mark:
        name += manner.mark(node)
    if not node.scope:
        return jax.named_scope(name)
    stack = contextlib.ExitStack()
    for each in (*node.scope, name):
        stack.enter_context(jax.named_scope(each))
    return stack
