# SPDX-License-Identifier: Apache-2.0
"""Meshes for the tests, and tensors over them as a NumPy array for each device."""

import math
from collections.abc import Sequence

import numpy as np

from maxjax.driver import CPU
from maxjax.dtype import DType
from maxjax.experimental.sharding import (
    DeviceMapping,
    DeviceMesh,
    Partial,
    Placement,
    Replicated,
    Sharded,
    TensorLayout,
    Unknown,
)
from maxjax.experimental.sharding.placements import Collective, even_shard_sizes, sharding_axes
from maxjax.experimental.sharding.transfer import Step, shard_windows

R, P, U, S = Replicated(), Partial(), Unknown(), Sharded
Parts = list[np.ndarray]


def mesh(*shape: int, names: Sequence[str] | None = None) -> DeviceMesh:
    """One CPU, several times."""
    known = ("tp",) if len(shape) == 1 else ("dp", "tp", "pp")[: len(shape)]
    return DeviceMesh((CPU(),) * math.prod(shape), shape, tuple(names or known))


def layout(shape: Sequence, on: DeviceMesh, *placements: Placement) -> TensorLayout:
    """The layout of a float tensor."""
    return TensorLayout(DType.float32, shape, DeviceMapping(on, placements or (R,) * on.ndim))


def short(placement: Placement) -> str:
    """R, P, U, S0, S1, ..."""
    axis = placement.localized_axis()
    return type(placement).__name__[0] + ("" if axis is None else str(axis))


def spread(array: np.ndarray, on: DeviceMesh, placements: Sequence[Placement]) -> Parts:
    """An array as its parts; a sum is made of terms that are all different."""
    terms = [array] * on.num_devices
    for axis, placement in enumerate(placements):
        if isinstance(placement, Partial):
            n = on.mesh_shape[axis]
            for d in range(on.num_devices):
                k = on.device_coord(d, axis)
                terms[d] = terms[d] * 0 - k if k else terms[d] + n * (n - 1) / 2
    whole = TensorLayout(DType.float64, array.shape, DeviceMapping(on, tuple(placements)))
    return [
        term[tuple(slice(int(w.start), int(w.stop)) for w in own)]
        for term, own in zip(terms, shard_windows(whole), strict=True)
    ]


def joined(parts: Parts, on: DeviceMesh, placements: Sequence[Placement]) -> np.ndarray:
    """What parts make up together; copies must agree."""
    left = dict(enumerate(parts))
    for axis, placement in enumerate(placements):
        if isinstance(placement, Partial):
            left = {d: sum(left[g] for g in _group(on, axis, d)) for d in left}
    split = sharding_axes(placements)
    for axis, over in split.items():
        left = {d: np.concatenate([left[g] for g in _group(on, over, d)], axis) for d in left}
    for value in left.values():
        np.testing.assert_allclose(value, left[0], atol=1e-9)
    return left[0]


def _group(on: DeviceMesh, axes: int | tuple[int, ...], device: int) -> tuple[int, ...]:
    return next(g for g in on.groups(axes) if device in g)


def run(step: Step, parts: Parts, on: DeviceMesh) -> Parts:
    """The parts after a collective."""
    result = []
    for d, own in enumerate(parts):
        group = _group(on, step.mesh_axes, d)
        at, n = group.index(d), len(group)
        if step.collective in (Collective.ALLREDUCE, Collective.REDUCE_SCATTER):
            own = sum(parts[g] for g in group)
        if step.collective in (Collective.ALLGATHER, Collective.ALL_TO_ALL):
            own = np.concatenate([parts[g] for g in group], step.tensor_axis)
        if step.collective is Collective.KEEP_ONE_COPY and at:
            own = own * 0
        cut = step.split_axis if step.collective is Collective.ALL_TO_ALL else step.tensor_axis
        if step.collective in (
            Collective.LOCAL_SLICE, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL
        ):  # fmt: skip
            ends = np.cumsum(even_shard_sizes(own.shape[cut], n))[:-1]
            own = np.split(own, ends, cut)[at]
        result.append(own)
    return result
