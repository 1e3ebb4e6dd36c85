# SPDX-License-Identifier: Apache-2.0
"""Modules that hold others in order: ``ModuleList`` and ``Sequential``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Self, TypeVar

from maxjax.experimental.nn.module import Module, _key, _Unnamed

__all__ = ["ModuleList", "Sequential"]

_T = TypeVar("_T", bound=Module[..., Any])


class ModuleList(list[_T], Module[..., Any], Generic[_T]):
    """A list of modules, named by their places; slices of it are plain lists.

    >>> from maxjax.experimental.nn import RMSNorm
    >>> layers = ModuleList([RMSNorm(2)])
    >>> layers.append(RMSNorm(3))
    >>> [(name, list(t.shape)) for name, t in layers.parameters]
    [('0.weight', [Dim(2)]), ('1.weight', [Dim(3)])]
    """

    def __tree_flatten__(self) -> tuple[dict[Any, Any], Any]:
        attributes = {_key(name, value): value for name, value in vars(self).items()}
        return {**dict(enumerate(self)), **attributes}, None

    @classmethod
    def __tree_empty__(cls, meta: Any) -> Self:
        return list.__new__(cls)

    def __tree_setattr__(self, key: Any, value: Any) -> None:
        if not isinstance(key, int):
            vars(self)[key.name if isinstance(key, _Unnamed) else key] = value
        elif key < len(self):
            self[key] = value
        else:
            self.append(value)

    def __rich_repr__(self) -> Iterator[Any]:
        yield from self

    __repr__ = Module.__repr__


class Sequential(ModuleList[_T]):
    """Modules applied one after the other, each to what the one before gives.

    Args:
        modules: The modules.

    >>> from maxjax.experimental.nn import Linear, RMSNorm
    >>> Sequential(Linear(3, 4), RMSNorm(4))
    Sequential(Linear(in_dim=Dim(3), out_dim=Dim(4)), RMSNorm(dim=Dim(4)))
    """

    def __init__(self, *modules: _T) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        """What the last module gives; ``x`` if there is none."""
        for module in self:
            x = module(x)
        return x
