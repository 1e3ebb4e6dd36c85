# SPDX-License-Identifier: Apache-2.0
"""Which JAX primitives keep padding apart from what is real.

Some axes are padded: those whose size is made of certain symbolic dimensions. Of every array the
elements that are real are a *prefix* along each padded axis, as long as the axis is without
padding, and they were computed from real elements only; whatever is behind may be anything, NaN
too. A rule says of an equation whether its results are such arrays where its operands are. What
has no rule is refused, unless none of its arrays is padded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from jax.export import is_symbolic_dim
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxprs_in_params
from jax.lax import GatherScatterMode

__all__ = ["RULES", "SIZE", "Equation", "Mixed", "Rule", "inner", "rule_for"]

MIXES = "mixes along {dims}"
BY_POSITION = "picks by position along {dims}"
SIZE = "computes with the size of {dims}"


class Mixed(Exception):
    """An equation's real results would depend on padding.

    Args:
        sizes: Of the axes along which.
        how: What it does there, with ``{dims}`` for the names.
    """

    def __init__(self, sizes: Iterable[Any], how: str = MIXES) -> None:
        super().__init__(how)
        self.sizes = tuple(sizes)
        self.how = how


class Equation:
    """An equation of a jaxpr, and which sizes are padded.

    Attributes:
        params: The primitive's parameters.
        operands: The shape of each operand.
        results: The shape of each result.
        is_padded: Whether a size is made of padded dimensions.
    """

    def __init__(self, eqn: JaxprEqn, is_padded: Callable[[Any], bool]) -> None:
        self.eqn = eqn
        self.params = eqn.params
        self.operands = [getattr(v.aval, "shape", ()) for v in eqn.invars]
        self.results = [getattr(v.aval, "shape", ()) for v in eqn.outvars]
        self.is_padded = is_padded

    def refuse(self, sizes: Iterable[Any], how: str = MIXES) -> None:
        """Raises `Mixed` if one of the sizes is padded."""
        found = [n for n in sizes if self.is_padded(n)]
        if found:
            raise Mixed(found, how)

    def is_zero(self, operand: int) -> bool:
        """Whether an operand is the number 0, written in the program."""
        v = self.eqn.invars[operand]
        return isinstance(v, Literal) and v.val == 0


Rule: TypeAlias = Callable[[Equation], None]
# The rules by the names of primitives.
RULES: dict[str, Rule] = {}
# The parameters in which a rule expects padded sizes.
_SIZED: dict[str, frozenset[str]] = {}


def _rule(*names: str, sized: Sequence[str] = ()) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for name in " ".join(names).split():
            RULES[name] = rule
            _SIZED[name] = frozenset(sized)
        return rule

    return add


def rule_for(equation: Equation) -> Rule:
    """The rule for an equation's primitive."""
    name = equation.eqn.primitive.name
    rule = RULES.get(name, _unknown)
    if rule is not _unknown:
        rest = [p for key, p in equation.params.items() if key not in _SIZED[name]]
        equation.refuse(_sizes(rest), SIZE)
    return rule


def inner(eqn: JaxprEqn) -> list[Jaxpr]:
    """The programs that an equation runs."""
    return [j.jaxpr if isinstance(j, ClosedJaxpr) else j for j in jaxprs_in_params(eqn.params)]


def _sizes(value: Any) -> list[Any]:
    """The symbolic sizes in a parameter, those in jaxprs left out."""
    if isinstance(value, (tuple, list)):
        return [n for each in value for n in _sizes(each)]
    if isinstance(value, dict):
        return _sizes(list(value.values()))
    return [value] if is_symbolic_dim(value) else []


def _unknown(e: Equation) -> None:
    padded = [n for shape in (*e.operands, *e.results) for n in shape]
    padded += _sizes(list(e.params.values()))
    for jaxpr in inner(e.eqn):
        padded += _all_sizes(jaxpr)
    e.refuse(padded, f"runs {e.eqn.primitive.name!r}, which may mix along {{dims}}")


def _all_sizes(jaxpr: Jaxpr) -> list[Any]:
    found = [n for v in jaxpr.invars for n in getattr(v.aval, "shape", ())]
    for eqn in jaxpr.eqns:
        found += [n for v in eqn.outvars for n in getattr(v.aval, "shape", ())]
        for each in inner(eqn):
            found += _all_sizes(each)
    return found


# ---------------------------------------------------------------- each element by itself


@_rule(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil
    clamp clz complex conj copy cos cosh digamma div eq eq_to erf erf_inv erfc exp exp2
    expm1 floor ge gt igamma igammac imag integer_pow is_finite le le_to lgamma log log1p logistic
    lt lt_to max min mul name ne neg nextafter not optimization_barrier or polygamma
    population_count pow real reduce_precision regularized_incomplete_beta rem round rsqrt
    select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square
    stop_gradient sub tan tanh threefry2x32 xor zeta convert_element_type device_put""",
    # Keys and bits have more axes or fewer behind those that are shared.
    "random_fold_in random_seed random_unwrap random_wrap bitcast_convert_type",
    # Which axis goes where is all that these say.
    "squeeze transpose",
)
def _elementwise(e: Equation) -> None:
    pass


@_rule("broadcast_in_dim", "iota", sized=["shape"])
def _made_of_positions(e: Equation) -> None:
    # What is at a position does not depend on the size.
    pass


@_rule("dim_as_value", sized=["dim"])
def _number(e: Equation) -> None:
    e.refuse([e.params["dim"]], SIZE)


@_rule("random_bits", sized=["shape"])
def _random(e: Equation) -> None:
    shape = [n for n in e.params["shape"] if n != 1]
    # Only then are an element's bits those of its row-major position.
    key = getattr(e.eqn.invars[0].aval, "dtype", None)
    by_position = str(key) == "key<fry>" and e.eqn.ctx.threefry_partitionable
    e.refuse(shape[1:] if by_position else shape, "draws numbers across {dims}")


# ---------------------------------------------------------------- shapes


@_rule("reshape", sized=["new_sizes"])
def _reshape(e: Equation) -> None:
    old, new = e.operands[0], e.results[0]
    if 0 in old:
        return
    for a, b in _groups(old, new):
        # In row-major order the real elements are the first ones if that axis is the outermost.
        if a != b:
            e.refuse([*a[1:], *b[1:]], "moves {dims} to the inside of another dimension")


def _groups(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[list[Any], list[Any]]]:
    """The smallest runs of sizes that are reshaped into each other; sizes 1 are left out."""
    a, b = [n for n in old if n != 1], [n for n in new if n != 1]
    groups: list[tuple[list[Any], list[Any]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        ends = (
            (k, m)
            for k in range(i, len(a) + 1)
            for m in range(j, len(b) + 1)
            if k + m > i + j and _same(math.prod(a[i:k]), math.prod(b[j:m]))
        )
        k, m = next(ends, (len(a), len(b)))
        groups.append((a[i:k], b[j:m]))
        i, j = k, m
    return groups


def _same(a: Any, b: Any) -> bool:
    return bool(a == b)


@_rule("concatenate")
def _concatenate(e: Equation) -> None:
    # Padding may only come last.
    axis = e.params["dimension"]
    e.refuse([shape[axis] for shape in e.operands[:-1]], "joins along {dims}")


@_rule("stack", "unstack")
def _stack(e: Equation) -> None:
    # Along an axis whose size is a number.
    pass


@_rule("split", sized=["sizes"])
def _split(e: Equation) -> None:
    e.refuse(e.params["sizes"][:-1], "splits along {dims}")


@_rule("pad", sized=["padding_config"])
def _pad(e: Equation) -> None:
    for size, (low, high, between) in zip(e.operands[0], e.params["padding_config"], strict=True):
        e.refuse([low, between], "pads along {dims}")
        if e.is_padded(size) and not (isinstance(high, int) and high <= 0):
            raise Mixed([size], "pads behind {dims}")


@_rule("rev")
def _rev(e: Equation) -> None:
    e.refuse([e.operands[0][i] for i in e.params["dimensions"]], "reverses {dims}")


@_rule("tile")
def _tile(e: Equation) -> None:
    sizes = zip(e.operands[0], e.params["reps"], strict=True)
    e.refuse([n for n, times in sizes if times != 1], "repeats {dims}")


# ---------------------------------------------------------------- parts


@_rule("slice", sized=["limit_indices"])
def _slice(e: Equation) -> None:
    # Where it ends is within the real size: the program without padding is a valid one.
    pass


@_rule("dynamic_slice", sized=["slice_sizes"])
def _dynamic_slice(e: Equation) -> None:
    # A start too large is moved to the last possible one, which depends on the size.
    parts = zip(e.operands[0], e.params["slice_sizes"], strict=True)
    for axis, (size, part) in enumerate(parts):
        if not _same(size, part) and not e.is_zero(1 + axis):
            e.refuse([size, part], BY_POSITION)


@_rule("dynamic_update_slice")
def _dynamic_update_slice(e: Equation) -> None:
    for axis, (size, part) in enumerate(zip(e.operands[0], e.operands[1], strict=True)):
        if _same(size, part):
            continue
        e.refuse([part], "writes what is padded along {dims} into the middle")
        if not e.is_zero(2 + axis):
            e.refuse([size], BY_POSITION)


@_rule("gather", sized=["slice_sizes"])
def _gather(e: Equation) -> None:
    operand, indices = e.operands
    dims = e.params["dimension_numbers"]
    parts = e.params["slice_sizes"]
    _indices(e, indices)
    for axis, (size, part) in enumerate(zip(operand, parts, strict=True)):
        if axis in dims.start_index_map and not _same(size, part):
            e.refuse([size, part], BY_POSITION)


@_rule("scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max")
def _scatter(e: Equation) -> None:
    operand, indices, updates = e.operands
    dims = e.params["dimension_numbers"]
    _indices(e, indices)
    # A row of updates that is padding would be written somewhere.
    e.refuse(
        [n for i, n in enumerate(indices[:-1]) if i not in dims.scatter_indices_batching_dims],
        "writes a row for each of {dims}",
    )
    windows = iter(updates[i] for i in dims.update_window_dims)
    outside = (*dims.inserted_window_dims, *dims.operand_batching_dims)
    dropped = e.params["mode"] == GatherScatterMode.FILL_OR_DROP
    for axis, size in enumerate(operand):
        if axis in dims.operand_batching_dims:
            continue
        part = 1 if axis in outside else next(windows)
        if _same(size, part):
            continue
        e.refuse([part], "writes what is padded along {dims} into the middle")
        # Beyond the real size a single element is dropped, or written into the padding.
        if not (dropped and part == 1):
            e.refuse([size], BY_POSITION)


def _indices(e: Equation, indices: Sequence[Any]) -> None:
    """Refuses promises about indices that those in the padding may break, and padded vectors."""
    e.refuse(indices[-1:], BY_POSITION)
    if e.params["unique_indices"] or e.params["indices_are_sorted"]:
        e.refuse(indices, "relies on the order of indices along {dims}")


# ---------------------------------------------------------------- along an axis


@_rule(
    *[f"reduce_{how}" for how in ("sum", "max", "min", "prod", "and", "or", "xor")],
    "argmax",
    "argmin",
)
def _reduce(e: Equation) -> None:
    e.refuse(e.operands[0][i] for i in e.params["axes"])


@_rule("reduce")
def _reduce_by(e: Equation) -> None:
    e.refuse(shape[i] for shape in e.operands if shape for i in e.params["dimensions"])


@_rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(e: Equation) -> None:
    if e.params["reverse"]:
        e.refuse([e.operands[0][e.params["axis"]]], "accumulates backwards along {dims}")


@_rule("sort")
def _sort(e: Equation) -> None:
    e.refuse([e.operands[0][e.params["dimension"]]], "sorts along {dims}")


@_rule("top_k")
def _top_k(e: Equation) -> None:
    e.refuse([e.operands[0][e.params.get("axis", -1)]])


@_rule("dot_general")
def _dot(e: Equation) -> None:
    (left, right), _ = e.params["dimension_numbers"]
    e.refuse([e.operands[0][i] for i in left] + [e.operands[1][i] for i in right])


@_rule("conv_general_dilated")
def _convolution(e: Equation) -> None:
    image, kernel = e.operands
    dims = e.params["dimension_numbers"]
    free = e.params["feature_group_count"] == 1 and e.params["batch_group_count"] == 1
    batch = dims.lhs_spec[:1] if e.params["batch_group_count"] == 1 else ()
    channels = dims.rhs_spec[:1] if free else ()
    e.refuse([n for i, n in enumerate(image) if i not in batch])
    e.refuse([n for i, n in enumerate(kernel) if i not in channels])


@_rule("reduce_window", *[f"reduce_window_{how}" for how in ("sum", "max", "min")])
def _window(e: Equation) -> None:
    p = e.params
    for axis, size in enumerate(e.operands[0]):
        alone = p["window_dimensions"][axis] == 1 and p["base_dilation"][axis] == 1
        if not (alone and tuple(p["padding"][axis]) == (0, 0)):
            e.refuse([size])


@_rule("fft")
def _fft(e: Equation) -> None:
    count = len(e.params["fft_lengths"])
    e.refuse(n for shape in (*e.operands, *e.results) for n in shape[len(shape) - count :])


@_rule("cholesky eig eigh geqrf hessenberg householder_product lu qr schur svd triangular_solve")
def _matrices(e: Equation) -> None:
    batch = len(e.operands[0]) - 2
    e.refuse(n for shape in (*e.operands, *e.results) for n in shape[batch:])


# ---------------------------------------------------------------- programs in programs


@_rule(
    "jit closed_call call remat2",
    "custom_jvp_call custom_vjp_call cond while",
)
def _program(e: Equation) -> None:
    # What runs, and how often, is decided by scalars, and no scalar depends on padding.
    pass


@_rule("scan", sized=["length"])
def _scan(e: Equation) -> None:
    if e.params["num_carry"]:
        e.refuse([e.params["length"]], "carries a value along {dims}")
