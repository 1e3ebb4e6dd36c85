# SPDX-License-Identifier: Apache-2.0
"""Where tensors that have no values yet are collected: the context in force."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from maxjax.graph.graph import Graph
from maxjax.graph.ir import CURRENT_GRAPH

if TYPE_CHECKING:
    from maxjax.experimental.sharding import DeviceMapping
    from maxjax.experimental.tensor import Tensor

__all__ = ["CONTEXT", "RealizationContext", "RealizationState", "in_graph_context"]


class RealizationState(NamedTuple):
    """What a tensor is that has no values yet.

    Attributes:
        values: A value of a graph for each device.
        ctx: The context that owns the graph.
    """

    values: tuple[Any, ...]
    ctx: RealizationContext

    @property
    def value(self) -> Any:
        """The only value.

        Raises:
            ValueError: If there are several, of a distributed tensor.
        """
        if len(self.values) != 1:
            raise ValueError(
                f"a tensor on {len(self.values)} devices has a value on each; use its local_shards"
            )
        return self.values[0]

    @property
    def num_values(self) -> int:
        """On how many devices it is."""
        return len(self.values)


class RealizationContext(Protocol):
    """Collects what is computed, and turns it into values."""

    graph: Graph

    def add_source(self, tensor: Tensor) -> RealizationState:
        """A tensor that has values, as values of the context's graph."""
        ...

    def add_mutable_source(self, tensor: Tensor) -> RealizationState:
        """A tensor that has values, as buffers of the context's graph, to be written."""
        ...

    def create_unrealized(
        self, values: tuple[Any, ...], *, mapping: DeviceMapping | None = None
    ) -> Tensor:
        """A tensor of values of the context's graph."""
        ...

    def realize_all(self) -> list[Tensor]:
        """Gives values to all tensors of the context that are still in use."""
        ...

    def __enter__(self) -> RealizationContext: ...

    def __exit__(self, *exc: Any) -> Any: ...


CONTEXT: ContextVar[RealizationContext | None] = ContextVar("CONTEXT", default=None)


def in_graph_context() -> bool:
    """Whether a graph is being built.

    >>> from maxjax.graph import Graph
    >>> in_graph_context()
    False
    >>> with Graph("g"):
    ...     in_graph_context()
    True
    """
    return CURRENT_GRAPH.get() is not None
