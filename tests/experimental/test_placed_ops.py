# SPDX-License-Identifier: Apache-2.0
"""Ops on distributed tensors give what they give on one device, however operands are placed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.experimental import functional as F
from maxjax.experimental.sharding import ALL_TRANSITIONS, ShardingError, auto_reshard
from maxjax.experimental.tensor import Tensor
from tests.experimental.spread import R, S, every_way, mesh, spread

Shapes = list[tuple[int, ...]]


def index(values: Any) -> Tensor:
    """Indices, on the CPU."""
    return Tensor.from_dlpack(np.array(values, np.int64))


# A function over float tensors, and shapes for it. Sizes are such that parts differ.
CASES: dict[str, tuple[Callable[..., Tensor], Shapes]] = {
    "relu": (F.relu, [(5, 4)]),
    "negate": (F.negate, [(5, 4)]),
    "cast": (lambda x: F.cast(x, DType.float64), [(5, 4)]),
    "cast to the same": (lambda x: F.cast(x, DType.float32), [(5, 4)]),
    "is_nan": (F.is_nan, [(5, 4)]),
    "add": (F.add, [(5, 4), (5, 4)]),
    "add a row": (F.add, [(5, 4), (4,)]),
    "add a row of rank 2": (F.add, [(5, 4), (1, 4)]),
    "sub": (F.sub, [(5, 4), (5, 4)]),
    "mul": (F.mul, [(5, 4), (5, 4)]),
    "div": (F.div, [(5, 4), (5, 4)]),
    "a number less": (lambda x: 2 - x, [(5, 4)]),
    "over a number": (lambda x: x / 2, [(5, 4)]),
    "a number over": (lambda x: 2 / x, [(5, 4)]),
    "pow": (lambda x: F.pow(x, 2), [(5, 4)]),
    "equal": (F.equal, [(5, 4), (5, 4)]),
    "max of two": (F.max, [(5, 4), (5, 4)]),
    "where": (lambda x, y: F.where(x > 0, x, y), [(5, 4), (5, 4)]),
    "clamp": (lambda x: F.clamp(x, -1, 1), [(5, 4)]),
    "complex_mul": (F.complex_mul, [(5, 4, 2), (4, 2)]),
    "matmul": (F.matmul, [(5, 4), (4, 6)]),
    "matmul of batches": (F.matmul, [(3, 5, 4), (3, 4, 6)]),
    "matmul of a batch": (F.matmul, [(3, 5, 4), (4, 6)]),
    "vector by matrix": (F.matmul, [(4,), (4, 6)]),
    "matrix by vector": (F.matmul, [(5, 4), (4,)]),
    "outer": (F.outer, [(5,), (4,)]),
    "sum of rows": (lambda x: F.sum(x, 0), [(5, 4)]),
    "sum of columns": (lambda x: F.sum(x, 1), [(5, 4)]),
    "sum of all": (lambda x: F.sum(x, None), [(5, 4)]),
    "mean": (lambda x: F.mean(x, 0), [(5, 4)]),
    "mean of all": (lambda x: F.mean(x, None), [(5, 4)]),
    "max": (lambda x: F.max(x, axis=0), [(5, 4)]),
    "argmax": (lambda x: F.argmax(x, 1), [(5, 4)]),
    "softmax": (lambda x: F.softmax(x, 0), [(5, 4)]),
    "cumsum": (lambda x: F.cumsum(x, 0), [(5, 4)]),
    "top_k": (lambda x: F.top_k(x, 2, 0)[0], [(5, 4)]),
    "top_k places": (lambda x: F.top_k(x, 2)[1], [(5, 4)]),
    "argsort": (F.argsort, [(6,)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, w, b, 1e-5), [(5, 4), (4,), (4,)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, w, 1e-5), [(5, 4), (4,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, w, b, 2, 1e-5), [(3, 4, 2), (4,), (4,)]),
    "transpose": (lambda x: x.T, [(5, 4)]),
    "permute": (lambda x: F.permute(x, [2, 0, 1]), [(5, 4, 3)]),
    "unsqueeze": (lambda x: F.unsqueeze(x, 1), [(5, 4)]),
    "squeeze": (lambda x: F.squeeze(x, 1), [(5, 1, 4)]),
    "reshape to one": (lambda x: F.reshape(x, [20]), [(5, 4)]),
    "reshape to three": (lambda x: F.reshape(x, [5, 2, 2]), [(5, 4)]),
    "reshape with -1": (lambda x: F.reshape(x, [-1, 2]), [(4, 6)]),
    "flatten": (lambda x: F.flatten(x, 1), [(4, 3, 2)]),
    "broadcast_to": (lambda x: F.broadcast_to(x, [2, 5, 3]), [(5, 1)]),
    "rebind": (lambda x: F.rebind(x, [5, 4]), [(5, 4)]),
    "concat of columns": (lambda x, y: F.concat([x, y], 1), [(5, 1), (5, 1)]),
    "stack": (lambda x, y: F.stack([x, y]), [(5, 4), (5, 4)]),
    "chunk": (lambda x: F.chunk(x, 2, 1)[1], [(5, 4)]),
    "split": (lambda x: F.split(x, [1, 3], 1)[1], [(5, 4)]),
    "tile": (lambda x: F.tile(x, [2, 1]), [(5, 4)]),
    "repeat_interleave": (lambda x: F.repeat_interleave(x, 2, 0), [(5, 4)]),
    "pad": (lambda x: F.pad(x, [1, 0, 0, 0]), [(5, 4)]),
    "pad with a number": (lambda x: F.pad(x, [1, 0, 0, 0], value=2), [(5, 4)]),
    "an index": (lambda x: x[0], [(5, 4)]),
    "a tensor as index": (lambda x: x[index(1)], [(5, 4)]),
    "a slice": (lambda x: x[:, 1:3], [(5, 4)]),
    "a new axis": (lambda x: x[None, ..., 0], [(5, 4)]),
    "gather": (lambda x: F.gather(x, index([0, 2, 4]), 0), [(5, 4)]),
    "gather_nd": (lambda x: F.gather_nd(x, index([[0, 2], [1, 1]])), [(5, 4)]),
    "scatter": (lambda x, u: F.scatter(x, u, index([[0] * 4]), 0), [(5, 4), (1, 4)]),
    "scatter_nd": (lambda x, u: F.scatter_nd(x, u, index([[0], [2]])), [(5, 4), (2, 4)]),
    "masked_scatter": (lambda x: F.masked_scatter(x, x > 0, x, "k"), [(5, 4)]),
    "band_part": (lambda x: F.band_part(x, 1, 0), [(3, 5, 5)]),
    "conv2d": (F.conv2d, [(2, 5, 5, 4), (3, 3, 4, 6)]),
    "conv2d_transpose": (F.conv2d_transpose, [(2, 4, 4, 4), (3, 3, 6, 4)]),
    "conv2d in groups": (lambda x, w: F.conv2d(x, w, groups=2), [(2, 5, 5, 4), (3, 3, 2, 6)]),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (2, 2), 2), [(2, 4, 4, 3)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, (2, 2), 2), [(2, 4, 4, 3)]),
    "resize": (lambda x: F.resize_linear(x, [3, 2, 6, 6]), [(3, 2, 4, 4)]),
    "fold": (lambda x: F.fold(x, (4, 4), (2, 2), stride=2), [(2, 12, 4)]),
}


def arrays(shapes: Shapes) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=s).astype(np.float32) for s in shapes]


def check(name: str, ways: tuple, given: list[np.ndarray], want: np.ndarray, devices: int) -> bool:
    """Whether an op takes operands placed so; what it gives is compared."""
    try:
        operands = [spread(a, mesh(devices), p) for a, p in zip(given, ways, strict=True)]
        got = CASES[name][0](*operands)
    except ShardingError:
        return False
    np.testing.assert_allclose(got.to_numpy(), want, atol=1e-4, rtol=1e-4, err_msg=str(ways))
    return True


@pytest.mark.parametrize("name", CASES)
def test_an_op_gives_the_same_on_two_devices(name: str) -> None:
    op, shapes = CASES[name]
    given = arrays(shapes)
    want = op(*map(Tensor.from_dlpack, given)).to_numpy()
    taken = [ways for ways in every_way(shapes) if check(name, ways, given, want, 2)]
    assert (R,) * len(shapes) in taken


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_an_op_gives_the_same_when_it_may_move_its_operands(name: str, devices: int) -> None:
    op, shapes = CASES[name]
    given = arrays(shapes)
    want = op(*map(Tensor.from_dlpack, given)).to_numpy()
    with auto_reshard(ALL_TRANSITIONS, mode="silent"):
        for ways in every_way(shapes):
            axes = [p.localized_axis() for p in ways]
            if all(a is None or s[a] >= devices for a, s in zip(axes, shapes, strict=True)):
                assert check(name, ways, given, want, devices), ways


def test_parts_that_are_joined_along_the_split_axis_stay_on_their_devices() -> None:
    x, y = arrays([(4, 2), (2, 2)])
    grid = mesh(2)
    both = F.concat([spread(x, grid, S(0)), spread(y, grid, S(0))], 0)
    assert both.placements == (S(0),)
    np.testing.assert_array_equal(both.buffers[0].to_numpy(), np.concatenate([x[:2], y[:1]]))
    back = F.split(both, [4, 2], 0)
    for got, want in zip(back, (x, y), strict=True):
        np.testing.assert_array_equal(got.to_numpy(), want)
