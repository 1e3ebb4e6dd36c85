# SPDX-License-Identifier: Apache-2.0
"""Random graphs: where padding is accepted, the results are those without."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from maxjax.dtype import DType
from maxjax.graph import Graph, TensorType, ops
from maxjax.lower import to_jax
from maxjax.lower.padding import padding
from tests.lower.test_padding import CPU, called, check, either, loop, seeded, table


def last(x):
    return x.rank - 1


def flat(x):
    """Numbers as many as the last axis has."""
    return ops.broadcast_to(table(1, dtype=np.float64), [x.shape[last(x)]])


# What one step may do with a value; some fit only some shapes, or mix. In float64 no rounding comes
# near the tolerance.
STEPS = [
    lambda x: ops.relu(x) + 1,
    lambda x: ops.tanh(x) / (ops.abs(x) + 2),
    lambda x: ops.softmax(x),
    lambda x: ops.softmax(x, axis=0),
    lambda x: ops.sum(x, axis=0),
    lambda x: ops.sum(x, axis=last(x)),
    lambda x: ops.mean(x, axis=last(x)),
    lambda x: ops.max(x, axis=last(x)),
    lambda x: ops.cumsum(x, axis=0),
    lambda x: ops.cumsum(x, axis=last(x), reverse=True),
    lambda x: ops.cumsum(x, axis=last(x), exclusive=True),
    lambda x: ops.transpose(x, 0, last(x)),
    lambda x: ops.reshape(x, [-1]),
    lambda x: ops.reshape(x, [-1, *x.shape[2:]]),
    lambda x: ops.unsqueeze(x, 0),
    lambda x: ops.unsqueeze(x, -1),
    lambda x: x[1:],
    lambda x: x[..., :1],
    lambda x: x[::2],
    lambda x: x[..., ::-1],
    lambda x: x[0],
    lambda x: ops.concat([x, x], axis=0),
    lambda x: ops.concat([x, x], axis=last(x)),
    lambda x: ops.concat([x[:1], x], axis=0),
    lambda x: ops.pad(x, [1, 0] + [0, 0] * last(x)),
    lambda x: ops.pad(x, [0, 0] * last(x) + [0, 1]),
    lambda x: ops.tile(x, [2] + [1] * last(x)),
    lambda x: ops.repeat_interleave(x, 2, axis=0),
    lambda x: ops.broadcast_to(ops.unsqueeze(x, 0), [3, *x.shape]),
    lambda x: ops.matmul(x, ops.transpose(x, x.rank - 2, last(x))),
    lambda x: ops.matmul(ops.transpose(x, x.rank - 2, last(x)), x),
    lambda x: ops.gather(x, ops.constant([0, 0], DType.int32, CPU), axis=last(x)),
    lambda x: ops.gather(table(6, 2, dtype=np.float64), (x * 2 + 0.3).cast(DType.int32), axis=0),
    lambda x: ops.where(x > 0.77, x, -x),
    lambda x: ops.top_k(x, 1)[0],
    lambda x: ops.layer_norm(x, flat(x) + 1, flat(x), 1e-3),
    lambda x: ops.split(x, [1, x.shape[last(x)] - 1], axis=last(x))[1],
    lambda x: ops.split(x, [1, x.shape[0] - 1], axis=0)[0],
    lambda x: ops.band_part(x, 1, 0),
    lambda x: x * seeded(*x.shape).cast(DType.float64),
    lambda x: x.shape[0] // 2 + x if x.rank > 5 else x[: x.shape[0] // 2],
    loop,
    either,
    called(lambda x: x * 3),
]  # fmt: skip
SHAPES = [("n",), ("n", 3), (3, "n"), (2, "n", 3), ("n", 2, "m"), ("m", "n"), ("n", "n")]


def drawn(shape, steps, join):
    """A graph of steps, those left out that do not fit; its results are those in ``join``."""

    def build(x):
        values = [x]
        for step in steps:
            try:
                values.append(STEPS[step](values[-1]))
            except (ValueError, TypeError, IndexError):
                continue
            if values[-1].rank > 4 or values[-1].rank == 0:
                values.pop()
        return [values[-1], *([values[0] * 2] if join else [])]

    return to_jax(Graph("g", build, [TensorType(DType.float64, shape, CPU)]))


def brute(shape, steps, join, n, more, m, seed):
    fn = drawn(shape, steps, join)
    try:
        proof = padding(fn, ["n"])
    except ValueError as e:
        assert "cannot be followed" in str(e) or "leave 'n' out of buckets" in str(e)
        return False
    real, padded = {"n": n, "m": m}, {"n": n + more, "m": m}
    if not (proof.holds(real) and proof.holds(padded) and proof.may_become(real, padded)):
        return False
    check(fn, proof, real, padded, np.random.default_rng(seed))
    return True


GRAPHS = {
    "shape": st.sampled_from(SHAPES),
    "steps": st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=4),
    "join": st.booleans(),
    "n": st.integers(1, 9),
    "more": st.integers(1, 4),
    "m": st.integers(1, 4),
    "seed": st.integers(0, 99),
}


@settings(max_examples=20)
@given(**GRAPHS)
def test_what_is_accepted_is_right(**graph):
    assume(brute(**graph))


@pytest.mark.slow
@settings(max_examples=400)
@given(**GRAPHS)
def test_much_that_is_accepted_is_right(**graph):
    assume(brute(**graph))


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_each_step_alone(step):
    brute(SHAPES[step % len(SHAPES)], [step], False, 3, 2, 2, step)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_each_step_on_each_shape(shape, step):
    for n in range(1, 10):
        brute(shape, [step], False, n, 1 + n % 3, 2, step)
