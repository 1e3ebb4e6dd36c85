# SPDX-License-Identifier: Apache-2.0
"""Meshes for the tests, and tensors over them that are placed in any way."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from maxjax.driver import CPU, Accelerator
from maxjax.experimental.sharding import (
    DeviceMapping,
    DeviceMesh,
    Partial,
    Placement,
    Replicated,
    Sharded,
    Unknown,
)
from maxjax.experimental.tensor import Tensor

R, P, U, S = Replicated(), Partial(), Unknown(), Sharded


_NAMES = {1: ("tp",), 2: ("dp", "tp"), 3: ("dp", "tp", "pp")}


def mesh(*shape: int, names: Sequence[str] | None = None) -> DeviceMesh:
    """One CPU, several times."""
    return DeviceMesh((CPU(),) * math.prod(shape), shape, tuple(names or _NAMES[len(shape)]))


def accelerators(*shape: int) -> DeviceMesh:
    """Accelerators, each once."""
    devices = tuple(Accelerator(i) for i in range(math.prod(shape)))
    return DeviceMesh(devices, shape, _NAMES[len(shape)])


def spread(array: np.ndarray, on: DeviceMesh, *placements: Placement) -> Tensor:
    """An array over a mesh; of a sum, each device has a term of its own."""
    whole = DeviceMapping(on, tuple(R if isinstance(p, Partial) else p for p in placements))
    sums = [axis for axis, p in enumerate(placements) if isinstance(p, Partial)]
    if not sums:
        return Tensor.from_dlpack(array).to(whole)
    count = on.axis_size(sums)
    # Terms that differ and add up: device k has k, and the first what is left.
    terms = [np.full_like(array, k) for k in range(count)]
    terms[0] = array - array.dtype.type(count * (count - 1) // 2)
    split = [Tensor.from_dlpack(t).to(whole).local_shards for t in terms]
    parts = [split[on.device_coord(d, sums)][d] for d in range(on.num_devices)]
    return Tensor.from_shard_values(parts, DeviceMapping(on, placements))


def every_way(
    shapes: Sequence[tuple[int, ...]], sums: bool = True
) -> Iterator[tuple[Placement, ...]]:
    """Each combination of placements of operands of these shapes, along one axis of a mesh."""
    ways = []
    for shape in shapes:
        own: list[Placement] = [R, *(S(a) for a, n in enumerate(shape) if n > 1)]
        ways.append([*own, P] if sums else own)
    return itertools.product(*ways)
