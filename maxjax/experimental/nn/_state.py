# SPDX-License-Identifier: Apache-2.0
"""Arrays by name against the tensors of a module: which are missing, extra, or do not fit."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from maxjax.dtype import DType
from maxjax.experimental._construct import buffer_of, is_array
from maxjax.experimental.tensor import Tensor
from maxjax.graph.weights import WeightData, Weights

__all__ = ["MissingParameterError", "fitted"]

# The only element types that auto_cast changes into each other.
_CAST = {DType.float32, DType.bfloat16}


class MissingParameterError(KeyError):
    """A parameter of a module has no array; the text is shown as it is, not as a key."""

    __str__ = Exception.__str__


def fitted(
    owner: str,
    parameters: Mapping[str, Tensor],
    state: Mapping[str, Any],
    *,
    strict: bool,
    auto_cast: bool,
) -> dict[str, Tensor]:
    """A tensor for each parameter, from arrays by name.

    Args:
        owner: The module's class, for messages.
        parameters: The module's tensors by name.
        state: Arrays by name.
        strict: Whether names that no parameter has are an error.
        auto_cast: Whether to cast ``float32`` to ``bfloat16``, and the other way round, where the
            parameter is that.

    Raises:
        MissingParameterError: If a parameter has no array.
        ValueError: If a name is of no parameter while ``strict``, or an array has another shape
            or element type. One message lists all problems, with the nearest names.
    """
    extra = [n for n in state if n not in parameters]
    problems: list[str] = []
    is_missing, found = False, {}
    for name, parameter in parameters.items():
        if name not in state:
            is_missing = True
            problems.append(f"missing: {name} ({_brief(parameter)}){_nearest(name, extra)}")
            continue
        tensor = _tensor(state[name])
        wrong = _mismatch(parameter, tensor, auto_cast)
        if wrong:
            problems.append(f"{name}: {wrong}")
        elif tensor.dtype is not parameter.dtype:
            found[name] = tensor.cast(parameter.dtype)
        else:
            found[name] = tensor
    if extra and (strict or is_missing):
        named = [n + ("" if is_missing else _nearest(n, parameters)) for n in extra[:5]]
        more = f" and {len(extra) - 5} more" if len(extra) > 5 else ""
        problems.append(f"no parameter is called: {', '.join(named)}{more}")
    if problems:
        error = MissingParameterError if is_missing else ValueError
        raise error(f"the weights of {owner} do not fit:\n  " + "\n  ".join(problems))
    return found


def _tensor(value: Any) -> Tensor:
    # A protocol is checked by reading attributes, and bfloat16 arrays of NumPy have no `data`.
    if not is_array(value) and isinstance(value, Weights):
        value = value.data()
    if isinstance(value, WeightData):
        value = value.to_buffer()
    return value if isinstance(value, Tensor) else Tensor._of((buffer_of(value),))


def _mismatch(parameter: Tensor, tensor: Tensor, auto_cast: bool) -> str:
    """What is wrong with an array for a parameter; nothing if it fits."""
    text = f"expected {_brief(parameter)}, got {_brief(tensor)}"
    if list(parameter.shape) != list(tensor.shape):
        return text
    if tensor.dtype is parameter.dtype:
        return ""
    if {tensor.dtype, parameter.dtype} == _CAST:
        return "" if auto_cast else f"{text}; auto_cast=True casts it"
    return f"{text}; cast it first"


def _brief(tensor: Tensor) -> str:
    return f"{tensor.dtype.name}[{', '.join(map(str, tensor.shape))}]"


def _nearest(name: str, candidates: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(candidates), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""
