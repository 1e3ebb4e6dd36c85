# SPDX-License-Identifier: Apache-2.0
"""One body for several launches, and work set apart: values, order of writes, refusals."""

import numpy as np
import pytest

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops

CPU, GPU0, GPU1 = DeviceRef.CPU(), DeviceRef.GPU(0), DeviceRef.GPU(1)


def f32(*dims, device=CPU):
    return TensorType(DType.float32, dims, device)


N = f32("n")


def built(build, *types):
    with Graph("g", input_types=types) as g:
        return build(*g.inputs)


def run(build, types, *arrays):
    with Graph("g", input_types=types) as g:
        g.output(*build(*g.inputs))
    return [o.to_numpy().tolist() for o in InferenceSession().load(g)(*arrays)]


def _parallel(inputs, body=lambda x: x + x, result_types=((N, N),), **options):
    return lambda *v: ops.parallel(inputs(*v), body, result_types=result_types, **options)


A, B, C, D = (np.float32(v) for v in ([1, 2], [3, 4], [10, 20], [30, 40]))


# ---------------------------------------------------------------- parallel


def test_each_launch_has_its_own_values():
    def build(a, b, c, d):
        sums, products = ops.parallel(
            [[a, b], [c, d]], lambda x, y: (x + y, x * y), result_types=[[N, N], [N, N]]
        )
        return [*sums, *products]

    assert run(build, [N] * 4, A, B, C, D) == [[11, 22], [33, 44], [10, 40], [90, 160]]


def test_one_launch_and_what_stands_outside():
    def build(a, b):
        ((out,),) = ops.parallel([[a]], lambda x: x + b, result_types=[[N]])
        return [out * 2]

    assert run(build, [N, N], A, B) == [[8, 12]]


def test_bodies_nest():
    def build(a, b):
        def body(x):
            (inner,) = ops.parallel([[x, -x]], lambda v: v * 10, result_types=[[N, N]])
            return inner[0] - inner[1] + 1

        return ops.parallel([[a, b]], body, result_types=[[N, N]])[0]

    assert run(build, [N, N], A, B) == [[21, 41], [61, 81]]


def test_launches_write_buffers_in_order():
    def build(a, b, s):
        def body(x, state):
            old = state[...]
            state[...] = old * 2 + x
            return old

        return ops.parallel([[a, b]], body, buffers=[s, s], result_types=[[N, N]])[0]

    state = Buffer.from_numpy(np.float32([1, 1]))
    assert run(build, [N, N, N.as_buffer()], A, B, state) == [[1, 1], [3, 4]]
    assert state.to_numpy().tolist() == [9, 12]


def test_each_launch_has_its_own_buffer_and_a_chain_goes_through():
    def build(a, b, s, t):
        def body(x, state, chain):
            state[...] = state[...] + x
            return x * 2, chain + 1

        (out,), chain = ops.parallel([[a, b]], body, buffers=[s, t], chain=5, result_types=[[N, N]])
        assert chain == 6
        return out

    states = [Buffer.from_numpy(np.float32([v, v])) for v in (0, 100)]
    assert run(build, [N, N, N.as_buffer(), N.as_buffer()], A, B, *states) == [[2, 4], [6, 8]]
    assert [s.to_numpy().tolist() for s in states] == [[1, 2], [103, 104]]


def test_in_a_branch_with_writes():
    def build(p, a, s):
        def then():
            def body(x, state):
                state[...] = state[...] + x
                return x

            return ops.parallel([[a, a]], body, buffers=[s, s], result_types=[[N, N]])[0]

        return ops.cond(p, [N, N], then, lambda: (-a, a))

    for flag, first, after in ((True, [1, 2], [2, 4]), (False, [-1, -2], [0, 0])):
        state = Buffer.from_numpy(np.float32([0, 0]))
        types = [TensorType(DType.bool, [], CPU), N, N.as_buffer()]
        assert run(build, types, np.bool_(flag), A, state) == [first, [1, 2]]
        assert state.to_numpy().tolist() == after


def test_types_follow_the_device_of_a_launch():
    types = [f32("n", device=GPU0), f32("n", device=GPU1)]
    (out,) = built(
        lambda a, b: ops.parallel([[a, b]], lambda x: x + x, result_types=[types]), *types
    )
    assert [v.type for v in out] == types


@pytest.mark.parametrize(
    ("build", "types", "text"),
    [
        (_parallel(lambda a, b: []), [N, N], "there must be a bundle"),
        (_parallel(lambda a, b: [[]]), [N, N], "there must be a bundle, and a value in it"),
        (
            _parallel(lambda a, b: [[a, b], [a]], lambda x, y: x),
            [N, N],
            "bundle 1 has 1 values, bundle 0 has 2",
        ),
        (
            _parallel(lambda a, b: [[a, a]], lambda x, s: x, buffers=[]),
            [N, N],
            "buffers has 0 values, bundle 0 has 2",
        ),
        (
            _parallel(lambda a, b: [[a, b]]),
            [N, f32("m")],
            r"launch 1 gives f32\[m\] for input 0, but should give f32\[n\], as launch 0 gives",
        ),
        (
            _parallel(lambda a, b: [[a, b]], result_types=[[N]]),
            [N, N],
            r"result_types\[0\] has 1 types for 2 launches",
        ),
        (
            _parallel(lambda a, b: [[a, b]], lambda x: (x, x)),
            [N, N],
            "body_fn gives 2 values, result_types 1 bundles",
        ),
        (_parallel(lambda a, b: [[a, b]], lambda x: None), [N, N], "body_fn gives 0 values"),
        (
            _parallel(lambda a, b: [[a, b]], result_types=[[N, f32(2)]]),
            [N, N],
            r"launch 1 makes f32\[n\] as output 0, but result_types declares f32\[2\]",
        ),
        (
            _parallel(lambda a, b: [[a, b]], result_types=[[f32("n", device=GPU0)] * 2]),
            [f32("n", device=GPU0), f32("n", device=GPU1)],
            r"launch 1 makes f32\[n\] gpu:1 as output 0, .* f32\[n\] gpu:0",
        ),
        (_parallel(lambda a, b: [[a, b]], chain=1), [N, N], "a chain is for the writes to buffers"),
    ],
)
def test_parallel_refuses(build, types, text):
    with pytest.raises(ValueError, match=f"parallel: .*{text}"):
        built(build, *types)


def test_parallel_refuses_what_is_no_value():
    with pytest.raises(TypeError, match="parallel: expected a tensor value, got float"):
        built(lambda a: ops.parallel([[1.0]], lambda x: x, result_types=[[N]]), N)
    with pytest.raises(TypeError, match="parallel: expected a buffer value"):
        built(lambda a: ops.parallel([[a]], lambda x, s: x, buffers=[a], result_types=[[N]]), N)


# ---------------------------------------------------------------- side_stream


def test_a_side_stream_computes_in_place():
    def build(a, b):
        return [
            *ops.side_stream([a], lambda x: (x * 2, x + b), result_types=[N, N], stream_id=3),
            *ops.side_stream([], lambda: a - 1, result_types=[N]),
            *ops.side_stream([a], lambda x: None, result_types=[]),
        ]

    assert run(build, [N, N], A, B) == [[2, 4], [4, 6], [0, 1]]


def test_a_side_stream_writes_in_program_order():
    def build(a, s):
        def body(x):
            s[...] = s[...] + x
            return s[...]

        s[...] = s[...] * 10
        (out,) = ops.side_stream([a], body, result_types=[N])
        s[...] = s[...] * 10
        return [out]

    state = Buffer.from_numpy(np.float32([1, 1]))
    assert run(build, [N, N.as_buffer()], A, state) == [[11, 12]]
    assert state.to_numpy().tolist() == [110, 120]


def test_a_dimension_can_be_a_result():
    (out,) = built(
        lambda a: ops.side_stream(
            [], lambda: Dim("n"), result_types=[TensorType(DType.int64, [], CPU)]
        ),
        N,
    )
    assert out.dtype is DType.int64


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"result_types": [N, N]}, ValueError, "body_fn gives 1 values, result_types 2"),
        (
            {"result_types": [f32(2)]},
            ValueError,
            r"body_fn makes f32\[n\] as result 0, but result_types declares f32\[2\]",
        ),
        ({"result_types": [N], "stream_id": -1}, ValueError, "stream_id is 0 or more, not -1"),
        ({"result_types": [N], "stream_id": 1.5}, TypeError, "stream_id is an int, not 1.5"),
    ],
)
def test_a_side_stream_refuses(options, error, text):
    with pytest.raises(error, match=f"side_stream: {text}"):
        built(lambda a: ops.side_stream([a], lambda x: x * 2, **options), N)


def test_a_side_stream_refuses_numbers():
    with pytest.raises(TypeError, match="side_stream: expected a tensor value, got float"):
        built(lambda a: ops.side_stream([2.0], lambda x: x, result_types=[N]), N)
    with pytest.raises(TypeError, match="side_stream: expected a tensor value, got int"):
        built(lambda a: ops.side_stream([a], lambda x: 3, result_types=[N]), N)
