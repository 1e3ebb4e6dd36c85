# SPDX-License-Identifier: Apache-2.0
"""``Module``: tensors and a function over them, with names, weights, and a compiled form."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, ParamSpec, Self, TypeVar, dataclass_transform, overload

from maxjax import tree
from maxjax.driver import Device
from maxjax.engine import InferenceSession
from maxjax.experimental import compilation
from maxjax.experimental._defaults import defaults
from maxjax.experimental.nn._state import fitted
from maxjax.experimental.nn._trace import PATHS, name_place, nodes, traced
from maxjax.experimental.sharding import DeviceMapping, DeviceMesh
from maxjax.experimental.tensor import Tensor
from maxjax.lower import to_jax

__all__ = ["Module", "PinnedDeviceTensor", "TransparentModule", "module_dataclass"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_M = TypeVar("_M", bound="type[Module[..., Any]]")


class _Pinned:
    """What marks an annotation as that of a tensor that stays where it is."""

    def __repr__(self) -> str:
        return "PinnedDeviceTensor"


PinnedDeviceTensor = Annotated[Tensor, _Pinned()]
"""The annotation of an attribute whose tensor ``Module.to`` leaves where it is."""


@dataclasses.dataclass(frozen=True)
class _Unnamed:
    """The key of a child that adds nothing to names."""

    name: str

    def __str__(self) -> str:
        return ""


class Module(Generic[_P, _R]):
    """Tensors and modules as attributes, and a function over them.

    A subclass sets its attributes in ``__init__`` and computes in ``forward``. The tensors found in
    them, in lists, tuples and dicts too, are its parameters; a parameter's name is the path to it,
    joined by dots. A module is called as its ``forward`` is, and computes at once; ``compile``
    gives a program for inputs of some layouts.

    Attributes:
        name_transparent: Whether it adds nothing to the names of what is in it.

    >>> from maxjax.driver import CPU
    >>> from maxjax.dtype import DType
    >>> from maxjax.experimental.sharding import TensorLayout
    >>> class Scale(Module):
    ...     def __init__(self, size):
    ...         self.weight = Tensor.full([size], 3, device=CPU())
    ...
    ...     def forward(self, x):
    ...         return x * self.weight
    >>> class Model(Module):
    ...     def __init__(self):
    ...         self.layers = [Scale(2), Scale(2)]
    ...
    ...     def forward(self, x):
    ...         for layer in self.layers:
    ...             x = layer(x)
    ...         return x
    >>> model = Model()
    >>> [name for name, _ in model.parameters]
    ['layers.0.weight', 'layers.1.weight']
    >>> run = model.compile(TensorLayout(DType.float32, ["n", 2], CPU()))
    >>> run(Tensor.ones([1, 2], device=CPU())).to_numpy().tolist()
    [[9.0, 9.0]]
    """

    name_transparent: bool = False

    def forward(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """What the module computes; a subclass defines it.

        Raises:
            NotImplementedError: If the class does not define it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} is no function: its class does not define forward(self, ...)"
        )

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """What ``forward`` gives."""
        paths = PATHS.get()
        if paths is None:
            return self.forward(*args, **kwargs)
        try:
            return self.forward(*args, **kwargs)
        except Exception as error:
            name_place(error, self, paths)
            raise

    # ---------------------------------------------------------------- what is in it

    @property
    def local_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that are attributes of its own, with their names."""
        return ((n, v) for n, v in self._own() if isinstance(v, Tensor))

    @property
    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """All tensors in it with their names; one that is in two places is there twice.

        Raises:
            ValueError: If the module contains itself, or two tensors have one name.
        """
        return iter(tree.paths(self, leaf=Tensor).items())

    @property
    def children(self) -> Iterator[tuple[str, Module[..., Any]]]:
        """The modules that are attributes of its own, with their names."""
        return ((n, v) for n, v in self._own() if isinstance(v, Module))

    @property
    def descendants(self) -> Iterator[tuple[str, Module[..., Any]]]:
        """Its children and theirs in turn; what a transparent one is called is left out of names.

        Raises:
            ValueError: If the module contains itself.
        """
        return self._descend("", (id(self),))

    def _descend(
        self, path: str, within: tuple[int, ...]
    ) -> Iterator[tuple[str, Module[..., Any]]]:
        for name, child in self.children:
            own = tree.extend_path(path, name)
            if id(child) in within:
                raise ValueError(f"the module contains itself, at {own}")
            yield own, child
            yield from child._descend(path if child.name_transparent else own, (*within, id(child)))

    def _own(self) -> Iterator[tuple[str, Any]]:
        """Its attributes, and items if it has any, under their own names."""
        for key, value in self.__tree_flatten__()[0].items():
            yield key.name if isinstance(key, _Unnamed) else str(key), value

    # ---------------------------------------------------------------- where it is

    @property
    def device(self) -> Device:
        """Where its parameters are; the default device if it has none. It is set as by ``to``."""
        for tensor in self._movable().values():
            return tensor.mesh.devices[0]
        return defaults()[1].devices[0]

    @device.setter
    def device(self, device: Device) -> None:
        self.to(device)

    def to(self, target: Device | DeviceMesh | DeviceMapping) -> Self:
        """Moves its parameters to a device, but those annotated as ``PinnedDeviceTensor``.

        Args:
            target: A device, or a mesh or mapping of one.

        Returns:
            The module.

        Raises:
            TypeError: If it is something else.
            ValueError: If it is several devices.
        """
        if isinstance(target, DeviceMapping):
            target = target.mesh
        if isinstance(target, DeviceMesh):
            if target.num_devices != 1:
                raise ValueError(
                    f"a module is moved to one device, not to the {target.num_devices} of "
                    f"{target}; spread its tensors one by one: m.weight = m.weight.to(mapping)"
                )
            target = target.devices[0]
        if not isinstance(target, Device):
            raise TypeError(
                "a module is moved to a Device, or a DeviceMesh or DeviceMapping of one, not to "
                f"{type(target).__name__} {target!r:.60}"
            )
        moved = {n: t.to(target) for n, t in self._movable().items()}
        tree.update(self, moved, leaf=Tensor)
        return self

    def _movable(self) -> dict[str, Tensor]:
        """The parameters that are not pinned."""
        found = dict(self.parameters)
        for path, node in nodes(self):
            for name in _pinned(type(node)):
                found.pop(tree.extend_path(path, name), None)
        return found

    # ---------------------------------------------------------------- weights

    def load_state_dict(
        self, state: Mapping[str, Any], strict: bool = True, *, auto_cast: bool = False
    ) -> None:
        """Replaces its parameters by arrays; if any does not fit, by none.

        Args:
            state: An array for each parameter, by name: of NumPy, JAX or any library that exports
                DLPack, a tensor, or a weight of a file. Memory is shared where that can be.
            strict: Whether names that no parameter has are an error.
            auto_cast: Whether to cast ``float32`` to ``bfloat16``, and the other way round, where
                the parameter is that.

        Raises:
            KeyError: If a parameter has no array.
            ValueError: If a name is of no parameter while ``strict``, or an array has another
                shape or element type. One message lists all problems, with the nearest names.

        >>> import numpy as np
        >>> from maxjax.experimental.nn import RMSNorm
        >>> norm = RMSNorm(2)
        >>> norm.load_state_dict({"weight": np.float32([1, 2])})
        >>> norm.weight.to_numpy().tolist()
        [1.0, 2.0]
        """
        own = dict(self.parameters)
        new = fitted(type(self).__name__, own, state, strict=strict, auto_cast=auto_cast)
        placed = {n: t if own[n].is_distributed else t.to(own[n].device) for n, t in new.items()}
        tree.update(self, placed, leaf=Tensor)

    # ---------------------------------------------------------------- compiling

    def trace(
        self,
        *input_types: Any,
        name: str | None = None,
        custom_extensions: Iterable[Path] = (),
        allow_subgraphs: bool = True,
        is_device_graph: bool = False,
        signal_buffer_index: int | None = None,
    ) -> compilation.StagedGraph:
        """Traces ``forward``, with a weight of the parameter's name in the place of each.

        Args:
            input_types: A layout for each tensor argument; other arguments as they are.
            name: The graph's name; the class's if left out.
            custom_extensions: Paths of custom kernels.
            allow_subgraphs: Whether ``as_subgraph`` functions are bodies of their own.
            is_device_graph: Accepted: XLA records device graphs by itself.
            signal_buffer_index: Accepted; it must be the place of an input or after the last.

        Raises:
            TypeError, ValueError: As ``forward`` does; the message names the module in which.
        """
        return compilation.stage(
            traced(self),
            name=name or type(self).__qualname__,
            custom_extensions=custom_extensions,
            allow_subgraphs=allow_subgraphs,
            is_device_graph=is_device_graph,
            signal_buffer_index=signal_buffer_index,
        )(*input_types)

    def compile(
        self,
        *input_types: Any,
        weights: Mapping[str, Any] | None = None,
        session: InferenceSession | None = None,
        name: str | None = None,
        custom_extensions: Iterable[Path] = (),
        auto_cast: bool = False,
        allow_subgraphs: bool = True,
        is_device_graph: bool = False,
        signal_buffer_index: int | None = None,
    ) -> compilation.CompiledCallable:
        """Traces ``forward`` and compiles it; the module itself stays as it is.

        To compile, or export, before there are weights: ``module.trace(...).compile()``.

        Args:
            input_types: A layout for each tensor argument; other arguments as they are.
            weights: An array for each parameter, by name; the module's own tensors if left out.
                Other names count if ``forward`` declares them, by ``F.constant_external``.
            session: The session it runs in.
            name: The graph's name; the class's if left out.
            custom_extensions: Paths of custom kernels.
            auto_cast: Whether to cast ``float32`` to ``bfloat16``, and the other way round, where
                the parameter is that.
            allow_subgraphs: Whether ``as_subgraph`` functions are bodies of their own.
            is_device_graph: Accepted: XLA records device graphs by itself.
            signal_buffer_index: Accepted; it must be the place of an input or after the last.

        Raises:
            KeyError: If a parameter has no array.
            ValueError: If an array has another shape or element type, or as ``forward`` does.
            TypeError: As ``forward`` does; the message names the module in which.
        """
        own = dict(self.parameters)
        given: Mapping[str, Any] = own if weights is None else weights
        known: dict[str, Any] = dict(own)
        if weights is not None:
            owner = type(self).__name__
            known |= fitted(owner, own, weights, strict=False, auto_cast=auto_cast)
        staged = self.trace(
            *input_types,
            name=name,
            custom_extensions=custom_extensions,
            allow_subgraphs=allow_subgraphs,
            is_device_graph=is_device_graph,
            signal_buffer_index=signal_buffer_index,
        )
        if given.keys() - own.keys():
            declared = to_jax(staged.graph).weights
            known |= {n: w for n, w in given.items() if n not in own and n in declared}
        return compilation.CompiledCallable(staged, known, session=session)

    # ---------------------------------------------------------------- as a node of a tree

    def __tree_flatten__(self) -> tuple[dict[Any, Any], Any]:
        return {_key(name, value): value for name, value in vars(self).items()}, None

    @classmethod
    def __tree_empty__(cls, meta: Any) -> Self:
        return object.__new__(cls)

    def __tree_setattr__(self, key: Any, value: Any) -> None:
        vars(self)[key.name if isinstance(key, _Unnamed) else key] = value

    # ---------------------------------------------------------------- shown

    def __rich_repr__(self) -> Iterator[Any]:
        """What is shown of it: pairs of a name and a value, with a third, the usual value."""
        yield from self.children

    def __repr__(self) -> str:
        parts = []
        for part in self.__rich_repr__():
            name, value, *usual = part if isinstance(part, tuple) else (None, part)
            if not usual or value != usual[0]:
                parts.append(repr(value) if name is None else f"{name}={value!r}")
        text = ", ".join(parts)
        if len(text) > 80 or "\n" in text:
            lines = ",\n".join(parts).replace("\n", "\n  ")
            return f"{type(self).__name__}(\n  {lines},\n)"
        return f"{type(self).__name__}({text})"


def _key(name: str, value: Any) -> Any:
    is_unnamed = isinstance(value, Module) and value.name_transparent
    return _Unnamed(name) if is_unnamed else name


@functools.cache
def _pinned(cls: type) -> frozenset[str]:
    """The attributes of a class that are annotated as ``PinnedDeviceTensor``."""
    try:
        texts = {n: repr(h) for n, h in typing.get_type_hints(cls, include_extras=True).items()}
    except Exception:  # an annotation that names what is not there at run time
        texts = {n: str(a) for n, a in getattr(cls, "__annotations__", {}).items()}
    return frozenset(n for n, text in texts.items() if "PinnedDeviceTensor" in text)


class TransparentModule(Module[_P, _R]):
    """A module that adds nothing to the names of what is in it, as a wrapper of another.

    In lists and dicts its place counts nevertheless.

    >>> from maxjax.experimental.nn import Linear
    >>> class Logged(TransparentModule):
    ...     def __init__(self, inner):
    ...         self.inner = inner
    >>> class Model(Module):
    ...     def __init__(self):
    ...         self.query = Logged(Linear(2, 2, bias=False))
    >>> [name for name, _ in Model().parameters]
    ['inner.weight']
    """

    name_transparent = True


@overload
def module_dataclass(cls: _M, /) -> _M: ...
@overload
def module_dataclass(
    cls: None = None, /, *, repr: bool = False, **kwargs: Any
) -> Callable[[_M], _M]: ...
@dataclass_transform(eq_default=False)
def module_dataclass(cls: Any = None, /, *, repr: bool = False, **kwargs: Any) -> Any:
    """Makes a module's class a dataclass: its fields are its attributes.

    Modules are compared by identity, unless ``eq=True`` is given.

    Args:
        cls: The class, where the decorator stands without parentheses.
        repr: Whether it is shown as a dataclass is, rather than as modules are.
        **kwargs: Other arguments of ``dataclasses.dataclass``.

    Raises:
        TypeError: If ``slots=True`` is given: parameters are found among attributes.

    >>> @module_dataclass
    ... class Scale(Module):
    ...     weight: Tensor
    ...     by: float = 2.0
    ...
    ...     def forward(self, x):
    ...         return x * self.weight * self.by
    >>> Scale(Tensor([1, 2]))(Tensor([10, 10])).to_numpy().tolist()
    [20.0, 40.0]
    """
    if kwargs.get("slots"):
        raise TypeError(
            "a module's parameters are found among its attributes, which slots=True takes away"
        )
    options = {"eq": False, **kwargs, "repr": repr}
    if cls is None:
        return dataclasses.dataclass(**options)
    return dataclasses.dataclass(cls, **options)
