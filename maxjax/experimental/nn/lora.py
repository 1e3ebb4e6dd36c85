# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters around layers (Hu et al. 2021, arXiv:2106.09685), many at once.

Each row of a batch may have an adapter of its own: rows of one adapter stand together, and the
model says for each group which adapter it has. Adapters are no parameters but arguments, so that
they can be exchanged without another compile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from maxjax.dtype import DType
from maxjax.experimental import functional as F
from maxjax.experimental.nn.linear import Linear
from maxjax.experimental.nn.module import Module, TransparentModule
from maxjax.experimental.tensor import Tensor
from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import DimLike
from maxjax.graph.type import TensorType

__all__ = ["LoRA", "LoRAWeight", "lora_layers", "lora_parameters"]


class LoRAWeight:
    """The place of one factor of all adapters of a layer, set anew for each call.

    Attributes:
        type: What it takes: ``(num_loras, ...)``.
    """

    def __init__(self, type: TensorType) -> None:
        self.type = type
        self._tensor: Tensor | None = None

    def set(self, tensor: Tensor) -> None:
        """Sets the factors of all adapters.

        Raises:
            TypeError: If it is no tensor.
            ValueError: If it has another element type or shape.
        """
        if not isinstance(tensor, Tensor):
            raise TypeError(f"an adapter is a tensor, not {type(tensor).__name__}")
        if tensor.dtype is not self.type.dtype or list(tensor.shape) != list(self.type.shape):
            raise ValueError(
                f"expected {self.type.brief()} for the adapters, got {tensor.type.brief()}"
            )
        self._tensor = tensor

    def get(self) -> Tensor:
        """The factors of all adapters.

        Raises:
            RuntimeError: If they have not been set.
        """
        if self._tensor is None:
            raise RuntimeError(
                "the adapters are not set: before the layer is called, the model has to set each "
                "slot that lora_parameters(model) gives"
            )
        return self._tensor

    def copy(self) -> LoRAWeight:
        """Another slot with the same in it."""
        other = LoRAWeight(self.type)
        other._tensor = self._tensor
        return other

    def __repr__(self) -> str:
        return f"LoRAWeight({self.type})"


class _Routing(NamedTuple):
    """Which rows have which adapter."""

    ids: Tensor
    offsets: Tensor
    end: Tensor


class LoRA(TransparentModule[[Tensor], Tensor]):
    """A layer with adapters: ``module(x) + x @ a.T @ b.T``, with ``a`` and ``b`` of each row.

    The names of the layer's parameters are what they are without it.

    Args:
        module: A :class:`Linear`.
        max_num_loras: How many adapters there are.
        max_lora_rank: Their rank; of one with a smaller rank, the rest is zeros.
        max_lora_seq_len: The most rows of one group; kept, as nothing depends on it here.

    Attributes:
        lora_a: The slot of ``a``: ``(max_num_loras, max_lora_rank, in_dim)``.
        lora_b: The slot of ``b``: ``(max_num_loras, out_dim, max_lora_rank)``.
        fused: Whether the layer is several in one: False.

    Raises:
        TypeError: If the module is no :class:`Linear`.

    >>> import numpy as np
    >>> layer = LoRA(Linear(2, 2), max_num_loras=2, max_lora_rank=1, max_lora_seq_len=4)
    >>> layer.load_state_dict({"weight": np.zeros((2, 2), "f"), "bias": np.zeros(2, "f")})
    >>> layer.lora_a.set(Tensor.ones([2, 1, 2]))
    >>> layer.lora_b.set(Tensor([[[1], [1]], [[5], [5]]]))
    >>> group = Tensor([1], dtype=DType.int32), Tensor([0, 2], dtype=DType.uint32)
    >>> layer.set_lora_batch_info(*group, Tensor([2], dtype=DType.int64))
    >>> layer(Tensor.ones([3, 2])).to_numpy().tolist()
    [[10.0, 10.0], [10.0, 10.0], [0.0, 0.0]]
    """

    def __init__(
        self,
        module: Module[..., Any],
        *,
        max_num_loras: int,
        max_lora_rank: int,
        max_lora_seq_len: int,
    ) -> None:
        if not isinstance(module, Linear):
            raise TypeError(f"adapters are for a Linear layer, not for {type(module).__name__}")
        # The wrapper has a name in its model; the layer inside adds nothing to it.
        self.module = module
        self.name_transparent = False
        module.name_transparent = True
        self.max_lora_rank = max_lora_rank
        self.max_lora_seq_len = max_lora_seq_len
        self.fused = False
        in_dim, out_dim = module.in_dim, module.out_dim
        self.lora_a = self._slot(max_num_loras, max_lora_rank, in_dim)
        self.lora_b = self._slot(max_num_loras, out_dim, max_lora_rank)
        self._routing: _Routing | None = None

    def _slot(self, *shape: DimLike) -> LoRAWeight:
        weight = self.module.weight
        where = DeviceRef.from_device(weight.mesh.devices[0])
        return LoRAWeight(TensorType(weight.dtype, list(shape), where))

    def __tree_setattr__(self, key: Any, value: Any) -> None:
        # A copy, as that which is traced, has slots of its own.
        super().__tree_setattr__(key, value.copy() if isinstance(value, LoRAWeight) else value)

    def __rich_repr__(self) -> Iterator[Any]:
        yield "module", self.module

    def set_lora_batch_info(
        self, lora_ids: Tensor, grouped_offsets: Tensor, end_idx: Tensor
    ) -> None:
        """Says which rows of the next call have which adapter.

        Args:
            lora_ids: The adapter of each group: integers of shape ``(groups,)``; -1 is for none.
            grouped_offsets: Where each group begins, and the last ends: integers of shape
                ``(groups + 1,)``. Rows outside have no adapter.
            end_idx: Where the last group ends; it is in ``grouped_offsets`` already.
        """
        self._routing = _Routing(lora_ids, grouped_offsets, end_idx)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's result with that of each row's adapter added.

        Args:
            x: A tensor of shape ``(rows, in_dim)``.

        Raises:
            RuntimeError: If the adapters, or which rows have them, have not been set.
            ValueError: If ``x`` has another shape.
        """
        if self._routing is None:
            raise RuntimeError(
                "which rows have which adapter is not set: call set_lora_batch_info() before "
                "the layer"
            )
        if x.rank != 2:
            raise ValueError(f"expected a tensor of shape (rows, in_dim), got {x.shape.brief()}")
        a, b = self.lora_a.get(), self.lora_b.get()
        # All adapters at once, as two products, the other adapters' part of the first being zero.
        count, rank, in_dim = a.shape
        out_dim = b.shape[1]
        chosen = _chosen(self._routing, x, count).unsqueeze(2)
        low = x @ a.reshape([count * rank, in_dim]).T
        low = low.reshape([x.shape[0], count, rank]) * chosen
        high = b.transpose(1, 2).reshape([count * rank, out_dim])
        return self.module(x) + low.reshape([x.shape[0], count * rank]) @ high


def _chosen(routing: _Routing, x: Tensor, count: Any) -> Tensor:
    """1 where a row has an adapter, else 0: of shape ``(rows, count)``, as the type of ``x``."""
    device = x.device
    ids = routing.ids.to(device).cast(DType.int64)
    offsets = routing.offsets.to(device).cast(DType.int64)
    groups = ids.shape[0]
    offsets = F.rebind(offsets, [groups + 1])
    rows = F.range(0, x.shape[0], 1, x.shape[0], dtype=DType.int64, device=device).unsqueeze(1)
    begins, ends = offsets[:groups].unsqueeze(0), offsets[1:].unsqueeze(0)
    ends = F.rebind(ends, [1, groups])
    inside = F.logical_and(rows >= begins, rows < ends).cast(x.dtype)
    numbers = F.range(0, count, 1, count, dtype=DType.int64, device=device).unsqueeze(0)
    return inside @ (ids.unsqueeze(1) == numbers).cast(x.dtype)


def lora_layers(model: Module[..., Any]) -> Iterator[tuple[str, LoRA]]:
    """The layers in a model that have adapters, with their names.

    >>> from maxjax.experimental.nn import Sequential
    >>> layer = LoRA(Linear(2, 2), max_num_loras=2, max_lora_rank=1, max_lora_seq_len=4)
    >>> [name for name, _ in lora_layers(Sequential(layer))]
    ['0']
    """
    return ((n, m) for n, m in model.descendants if isinstance(m, LoRA))


def lora_parameters(model: Module[..., Any]) -> Iterator[tuple[str, LoRAWeight]]:
    """The slots of all adapters in a model, with their names.

    >>> from maxjax.experimental.nn import Sequential
    >>> layer = LoRA(Linear(2, 2), max_num_loras=2, max_lora_rank=1, max_lora_seq_len=4)
    >>> dict(lora_parameters(Sequential(layer)))["0.lora_a"].type
    TensorType(float32, [2, 1, 2], cpu:0)
    """
    for name, layer in lora_layers(model):
        yield f"{name}.lora_a", layer.lora_a
        yield f"{name}.lora_b", layer.lora_b
