# SPDX-License-Identifier: Apache-2.0
"""Slices against NumPy, for sizes known or not, and what is refused."""

import math
import re

import numpy as np
import pytest

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Dim, Graph, TensorType, ops, text

CPU = DeviceRef.CPU()


class At:
    """``at[1:, ...]`` is the index that NumPy would be given."""

    def __getitem__(self, index):
        return index


at = At()


def values(*shape):
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def f32(*dims):
    return TensorType(DType.float32, dims, CPU)


@pytest.fixture
def g():
    scalar = {d: TensorType(DType[d], [], CPU) for d in ("int64", "int32", "bool", "float32")}
    types = [f32("batch", "seq", 8), f32(4, 6), f32("n"), *scalar.values(), f32()]
    types.append(TensorType(DType.int64, [3], CPU))
    with Graph("g", input_types=types) as graph:
        graph.x, graph.m, graph.n, graph.k, graph.k32, graph.kb, graph.kf, graph.sc, graph.v = (
            v.tensor for v in graph.inputs
        )
        yield graph


def shape(value):
    return [str(d) for d in value.shape]


# ---------------------------------------------------------------- values

# In range for every size from 1 up.
ALWAYS = [
    at[0], at[-1], at[...], at[:], at[None], at[:, None], at[..., None], at[None, 0, None], at[:1],
    at[1:], at[:-1], at[0:0], at[::2], at[::3], at[..., 1], at[:, -2:], at[:, 1:3], at[:, ::2],
    at[..., 0, :], at[0, ..., -1], at[:, 1::2], at[0, 0, 0], at[-1, 1:, None, ::2], at[()],
    at[[0, 1]], at[1::2], at[0, 3:3],
]  # fmt: skip
# In range from that size up; refused when run with a smaller one.
FROM = [
    (at[:5], 5), (at[-3:], 3), (at[2:4], 4), (at[3], 4), (at[-4], 4), (at[1:-1], 2), (at[2::2], 2),
    (at[-3:-1], 3), (at[5:5], 5), (at[1:-2:2], 3), (at[4:, 0], 4),
]  # fmt: skip


def numpy(x, index):
    return x[tuple(index) if isinstance(index, list) else index]


@pytest.mark.parametrize(
    ("n", "dims"),
    [*((n, [["n", 4, "m"]]) for n in range(1, 9)), *((n, None) for n in (1, 2, 5, 8))],
    ids=str,
)
def test_against_numpy(run, n, dims):
    x = values(n, 4, 2)
    got = run(lambda x: [x[i] for i in ALWAYS], x, dims=dims)
    for index, result in zip(ALWAYS, got, strict=True):
        np.testing.assert_array_equal(result, numpy(x, index), err_msg=str(index))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_what_needs_a_larger_size_is_numpys_or_refused_when_run(n):
    for index, smallest in FROM:
        with Graph("g", input_types=[f32("n", 3)]) as g:
            g.output(g.inputs[0].tensor[index])
        model = InferenceSession().load(g)
        if n >= smallest:
            np.testing.assert_array_equal(model(values(n, 3))[0].to_numpy(), values(n, 3)[index])
        else:
            with pytest.raises(ValueError, match=rf"(?s)slice_tensor: .*size {n} \(.*\n  at .*:\d"):
                model(values(n, 3))


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        (at[100], "index 100 is out of range for dimension 0, which has size 3"),
        (at[-4], "index -4 is out of range for dimension 0, which has size 3"),
        (at[2:5], "the slice from 2 to 5 is not inside dimension 0, which has size 3"),
        (at[-4:], "the slice from -1 to 3 is not inside dimension 0, which has size 3"),
        (at[: Dim("n") - 4], "the slice from 0 to -1 is not inside dimension 0, which has size 3"),
        (at[2 : Dim("n") - 2], "the slice from 2 to 1 is not inside"),
    ],
)
def test_an_index_out_of_range_when_run_says_so(run, index, problem):
    with pytest.raises(ValueError, match=rf"slice_tensor: {re.escape(problem)}"):
        run(lambda x: x[index], values(3, 2), dims=[["n", 2]])


def test_size_0(run):
    x = values(0, 3)
    got = run(lambda x: [x[:], x[:0], x[::2], x[:, 1], x[None]], x, dims=[["n", 3]])
    assert [a.shape for a in got] == [(0, 3), (0, 3), (0, 3), (0,), (1, 0, 3)]
    with pytest.raises(ValueError, match=r"index 0 is out of range for dimension 0.* size 0"):
        run(lambda x: x[0], x, dims=[["n", 3]])
    with pytest.raises(ValueError, match="dimension 0 has size 0, so no index is in range"):
        run(lambda x, k: x[k], x, np.int64(0), dims=[["n", 3], []])


def test_dims_and_names_are_bounds(run):
    x, y = values(5, 4), values(3)
    got = run(
        lambda x, y: [
            x[: x.shape[0] - 1], x[x.shape[0] - 1 :], x[: y.shape[0]], x["m":],
            x[: x.shape[0] // 2], x[-x.shape[0] :], x[-2 : x.shape[0]], x[np.int64(1) : Dim(3)],
            x[x.shape[0] - y.shape[0] :],
        ],
        x, y, dims=[["n", 4], ["m"]],
    )  # fmt: skip
    want = [x[:4], x[4:], x[:3], x[3:], x[:2], x, x[3:5], x[1:3], x[2:]]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)
def test_an_index_by_value(dtype):
    def build(x, k):
        return [x[k], x[0, k % 3], x[..., k % 2], x[k, None, 0, k % 2]]

    with Graph("g", input_types=[f32("n", 3, 2), TensorType(DType[dtype], [], CPU)]) as g:
        g.output(*build(*[v.tensor for v in g.inputs]))
    model = InferenceSession().load(g)
    x = values(4, 3, 2)
    for k in [0, 3] if dtype.startswith("u") else [0, 3, -1, -4]:
        for a, b in zip(model(x, np.array(k, dtype)), build(x, k), strict=True):
            np.testing.assert_array_equal(a.to_numpy(), b)


def test_an_index_by_value_out_of_range_is_the_nearest_in_range(run):
    x = values(4, 3)
    for k, nearest in [(4, 3), (100, 3), (-5, 0), (-100, 0)]:
        (got,) = run(lambda x, k: x[k], x, np.int64(k))
        np.testing.assert_array_equal(got, x[nearest])
    (got,) = run(lambda x, k: x[k], x, np.uint64(2**64 - 1))
    np.testing.assert_array_equal(got, x[3])


def test_a_vector_of_one_is_an_index(run):
    (got,) = run(lambda x, k: x[k], values(4, 3), np.array([2]))
    np.testing.assert_array_equal(got, values(4, 3)[2])


PAIRS = [
    (slice(None, None, -1), 5), (slice(0, 100), 5), (slice(-1, None), 1), (slice(-3, -1), 2),
    (slice(3, 0, -1), 3), (slice(3, None, -2), 2), (slice(4, 0, -3), 2), (slice(0, 0), 0),
    (slice(3, 1), 0), (slice(0, 3, -1), 0), (slice(None, None, 2), 3), (slice(-100, 2), 2),
    (slice(100, None, -4), 2), (slice(None, -2, -1), 1), (slice(1, Dim("n") - 1), 3),
]  # fmt: skip


@pytest.mark.parametrize("dims", [[[5, 2], ["n"]], [["n", 2], ["n"]]], ids=["static", "symbolic"])
def test_a_pair_is_a_slice_of_python_with_a_given_size(run, dims):
    x = values(5, 2)

    def build(x, _):
        return [x[(cut, size),] for cut, size in PAIRS] + [
            x[(cut, f"p{i}"), 0] for i, (cut, _) in enumerate(PAIRS)
        ]

    got = run(build, x, values(5), dims=dims)
    cuts = [slice(1, 4) if isinstance(cut.stop, Dim) else cut for cut, _ in PAIRS]
    for result, cut in zip(got, cuts * 2, strict=True):
        want = x[cut] if result.ndim == 2 else x[cut, 0]
        np.testing.assert_array_equal(result, want, err_msg=str(cut))


def test_a_pair_whose_size_is_wrong(run, g):
    with pytest.raises(ValueError, match="out_dim is 3, but the slice takes 2 elements"):
        g.m[(slice(0, 2), 3),]
    with pytest.raises(ValueError, match="slice takes 2 elements of dimension 0, out_dim says 3"):
        run(lambda x: x[(slice(0, 2), 3),], values(5), dims=[["n"]])
    with pytest.raises(ValueError, match="slice takes 2 elements of dimension 0, out_dim says 5"):
        run(lambda x: x[(slice(0, 2), "n"),], values(5), dims=[["n"]])
    with pytest.raises(ValueError, match="slice takes 1 elements of dimension 1, out_dim says 2"):
        run(lambda x: x[(slice(0, 2), "p"), (slice(0, 1), "p")], values(3, 3), dims=[["n", 3]])
    with pytest.raises(ValueError, match=r"out_dim q \* 2 has no size .* use a new name"):
        run(lambda x: x[(slice(0, 2), Dim("q") * 2),], values(5), dims=[["n"]])


def test_a_pair_by_value():
    with Graph("g", input_types=[f32("n", 2), TensorType(DType.int32, [], CPU)]) as g:
        x, k = (v.tensor for v in g.inputs)
        g.output(
            x[(slice(k, None), 2),], x[(slice(k, k + 2), Dim(2)), 1], x[(slice(0, k), 3),],
            x[(slice(None, k, -1), 2),], x[(slice(k, None, 2), 2),], x[(slice(-2, k, -2), 2),],
            x[(slice(k, 9), 0),], x[:, (slice(k, None, -1), 1)],
        )  # fmt: skip
    model = InferenceSession().load(g)
    for n, k in [(5, 0), (5, 1), (5, 2), (5, -3), (7, 0), (7, 2), (7, -3)]:
        x, i = values(n, 2), k % n
        want = [
            x[i : i + 2], x[i : i + 2, 1], x[:3], x[::-1][:2], x[i : i + 3 : 2], x[-2::-2][:2],
            x[:0], x[:, min(max(k if k >= 0 else k + 2, 0), 1)][:, None],
        ]  # fmt: skip
        for j, (a, b) in enumerate(zip(model(x, np.int32(k)), want, strict=True)):
            np.testing.assert_array_equal(a.to_numpy(), b, err_msg=f"{j} for {k}")


def test_a_step_by_value(run):
    x = values(7)
    for s in (1, 2, 3, -1, -3):
        (a, b) = run(
            lambda x, s: [x[(slice(None, None, s), 2),], x[(slice(3, None, s), 2),]], x, np.int64(s)
        )
        np.testing.assert_array_equal(a, x[::s][:2])
        np.testing.assert_array_equal(b, x[3::s][:2])


def test_a_window_by_value_is_moved_into_the_axis(run):
    x = values(5)
    for k, first in [(4, 3), (9, 3), (-9, 0)]:
        (got, back) = run(
            lambda x, k: [x[(slice(k, None), 2),], x[(slice(k, None, -1), 2),]], x, np.int64(k)
        )
        np.testing.assert_array_equal(got, x[first : first + 2])
        last = max(1, min(k + 5 if k < 0 else k, 4))
        np.testing.assert_array_equal(back, [x[last], x[last - 1]])
    with pytest.raises(ValueError, match="3 elements with step 3 do not fit into dimension 0"):
        run(lambda x, k: x[(slice(k, None, 3), 3),], x, np.int64(0))


@pytest.mark.parametrize("n", [0, 1, 5])
def test_slices_by_value_are_as_long_as_pythons(n):
    cuts = [
        lambda a, b, s: slice(a, b), lambda a, b, s: slice(a, None),
        lambda a, b, s: slice(None, b),
        lambda a, b, s: slice(a, b, s), lambda a, b, s: slice(None, None, s),
        lambda a, b, s: slice(a, b, -2), lambda a, b, s: slice(a, 3, s),
        lambda a, b, s: slice(2, b),
    ]  # fmt: skip
    scalar = TensorType(DType.int64, [], CPU)
    with Graph("g", input_types=[f32("n", 2), scalar, scalar, scalar]) as g:
        x, *bounds = (v.tensor for v in g.inputs)
        g.output(*[x[(cut(*bounds), f"d{i}"), 1] for i, cut in enumerate(cuts)])
    model = InferenceSession().load(g)
    x = values(n, 2)
    for a in (-7, -2, 0, 1, 4, 9):
        for b, s in [(-9, 1), (-1, -1), (0, 3), (3, -2), (8, 2)]:
            got = model(x, *map(np.int64, (a, b, s)))
            for cut, result in zip(cuts, got, strict=True):
                np.testing.assert_array_equal(result.to_numpy(), x[cut(a, b, s), 1])


def test_a_size_that_depends_on_a_value(run, run_symbolic):
    with pytest.raises(ValueError, match="slice_tensor: its operands' values allow no size 'p'"):
        run(lambda x, k: x[(slice(None, None, k), "p"),], values(5), np.int64(0))
    (got,) = run(
        lambda x, k: x[(slice(k, None), "p"), (slice(k, None), "p")], values(4, 4), np.int64(1)
    )
    np.testing.assert_array_equal(got, values(4, 4)[1:, 1:])
    with pytest.raises(ValueError, match="dimension 'p' has two sizes: 3 from slice_tensor, and 2"):
        run(lambda x, k: x[(slice(k, None), "p"), (slice(k, 3), "p")], values(4, 4), np.int64(1))
    message = r"(?s)slice_tensor: the size rest depends on values.*bounds=.*\n  at .*test_slicing"
    with pytest.raises(ValueError, match=message):
        run_symbolic(
            lambda x, k: x[(slice(k, None), "rest"),], values(5), np.int64(1), dims=[["n"], []]
        )
    # A name that an input has is known.
    (got, _) = run(
        lambda x, k, y: [x[(slice(k, None), "m"),], y], values(5), np.int64(1), values(3),
        dims=[["n"], [], ["m"]],
    )  # fmt: skip
    np.testing.assert_array_equal(got, values(5)[1:4])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_traced_with_symbolic_dims(run_symbolic, n):
    x = values(n, 4)
    index = [
        at[0], at[-1], at[1:], at[:-1], at[::2], at[1::2], at[::3], at[None, 0], at[:, ::2],
        at[..., 1:3],
    ]  # fmt: skip
    pairs = [slice(None, None, -1), slice(0, None), slice(1, None), slice(None, None, -2)]
    got = run_symbolic(
        lambda x, k: [
            *[x[i] for i in index],
            *[x[(cut, f"p{j}"),] for j, cut in enumerate(pairs)],
            x[k],
            x[:, (slice(k, None), 2)],
            x[(slice(k, None, 2), 1),],
        ],
        x,
        np.int64(-1),
        dims=[["n", 4], []],
    )
    want = [*[x[i] for i in index], *[x[cut] for cut in pairs], x[-1], x[:, 2:4], x[-1:]]
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=str(i))


def test_what_not_every_symbolic_size_allows_asks_for_a_constraint(run_symbolic):
    with pytest.raises(ValueError, match=r"(?s)for some sizes \(.*'n' >= '5'.*constraint"):
        run_symbolic(lambda x: x[2:5], values(6), dims=[["n"]])


# ---------------------------------------------------------------- types


def test_sizes_of_symbolic_slices(g):
    assert shape(g.x[1:]) == ["batch + -1", "seq", "8"]
    assert shape(g.x[2:5]) == ["3", "seq", "8"]
    assert g.x[::2].shape[0] == (Dim("batch") + 1) // 2
    assert g.x[3:-2:2].shape[0] == (Dim("batch") - 4) // 2
    assert g.x[Dim("batch") - Dim("seq") :].shape[0] == "seq"
    assert shape(g.m[: Dim("k")]) == ["k", "6"]
    # Exact divisions stay exact.
    twice = ops.concat([g.n, g.n])
    assert twice[::2].shape[0] == "n"


def test_everything_is_the_tensor_itself(g):
    assert g.x[...] is g.x and g.x[:, :] is g.x and g.x[()] is g.x


@pytest.mark.parametrize(
    ("index", "error", "problem"),
    [
        (at[1.5], TypeError, "1.5 is not an index: expected an int, a slice"),
        (
            at["a"],
            TypeError,
            r"to name a dimension of the result, write x\[\(slice\(0, k\), 'a'\),",
        ),
        (at[slice(0, 2), "a"], TypeError, "'a' is not an index"),
        (at[True], TypeError, "True is not an index"),
        (at[np.int64(1)], TypeError, r"write int\(1\)"),
        (at[Dim(1)], TypeError, "take a slice and squeeze it"),
        (at[np.array(1)], TypeError, "is not an index"),
        (at[[[0, 1]]], TypeError, r"\[0, 1\] is not an index"),
        (at[1.5:], TypeError, "1.5 is not a bound of a slice"),
        (at[:"a b"], ValueError, "'a b' is not a bound of a slice"),
        (at[0, 0, 0], ValueError, r"3 indices are too many for rank 2 \(given f32\[4, 6\]\)"),
        (at[..., ...], ValueError, r"only one ellipsis \(\.\.\.\)"),
        (at[4], ValueError, "index 4 is out of range for dimension 0 of size 4"),
        (at[0, -7], ValueError, "index -7 is out of range for dimension 1 of size 6"),
        (at[1:10], ValueError, "the slice from 1 to 10 is not inside dimension 0 of size 4"),
        (at[-10:], ValueError, "the slice from -6 to 4 is not inside dimension 0 of size 4"),
        (at[5:], ValueError, "not inside dimension 0 of size 4|ends at 4, before its start 5"),
        (at[3:1], ValueError, "the slice of dimension 0 ends at 1, before its start 3"),
        (at[::-1], ValueError, "step of a slice is a positive int, got -1; for another one give"),
        (at[::0], ValueError, "step of a slice is a positive int, got 0"),
        (at[::1.0], ValueError, "step of a slice is a positive int, got 1.0"),
        (at[:, :: Dim("q")], ValueError, "step of a slice is a positive int"),
        (((slice(0, 2, 0), 2),), ValueError, "step of a slice is an int other than 0"),
        (((slice(0, 2), None),), ValueError, "out_dim: "),
        (((slice(0, 2), -1),), TypeError, "out_dim is the negative size -1"),
        (((0, 2),), ValueError, r"a pair \(slice, out_dim\), got \(0, 2\)"),
    ],
)
def test_what_is_refused(g, index, error, problem):
    with pytest.raises(error, match=problem):
        g.m[index]


def test_what_symbolic_sizes_refuse(g):
    with pytest.raises(ValueError, match="the size of -2:1 would shrink as batch grows"):
        g.x[-2:1]
    with pytest.raises(ValueError, match="ends at seq \\+ -5, before its start seq \\+ -3"):
        g.x[:, -3:-5]
    with pytest.raises(ValueError, match="ends at 2, before its start 5"):
        g.n[5:2]
    with pytest.raises(ValueError, match="not inside dimension 0 of size batch"):
        g.x[: Dim("batch") + 1]
    with pytest.raises(ValueError, match="index 8 is out of range for dimension 2 of size 8"):
        g.x[..., 8]


def test_what_values_refuse(g):
    for k in (g.kb, g.kf, g.v):
        with pytest.raises(ValueError, match="an index that is a value is an integer scalar, not"):
            g.m[k]
    with pytest.raises(ValueError, match=r"known only when the graph runs; give it with \(slice"):
        g.m[: g.k]
    assert shape(g.m[g.k32]) == ["6"]
    with pytest.raises(ValueError, match="2 indices are too many for rank 1"):
        g.v[g.k, g.k]
    with pytest.raises(ValueError, match="1 indices are too many for rank 0"):
        g.sc[:]


def test_slice_tensor_takes_a_list(g):
    assert shape(ops.slice_tensor(g.m, [0])) == shape(ops.slice_tensor(g.m, (0,))) == ["6"]
    with pytest.raises(TypeError, match=r"indices are a list, got 0; write \[index\]"):
        ops.slice_tensor(g.m, 0)
    with pytest.raises(TypeError, match=r"slice_tensor: expected a tensor value, got float 1\.0"):
        ops.slice_tensor(1.0, [0])


def test_a_dim_called_value_is_a_dim(run):
    (got,) = run(lambda x, y: x[: Dim("value")], values(5), values(2), dims=[["n"], ["value"]])
    np.testing.assert_array_equal(got, values(5)[:2])


def test_indices_read_back_from_text():
    with Graph("g", input_types=[f32("n", 4, "m"), TensorType(DType.int64, [], CPU)]) as g:
        x, k = (v.tensor for v in g.inputs)
        g.output(x[-1, k], x[1:, None, ::2], x[(slice(k, None), 2), ..., 0], x[(at[::-1], "r"),])
    written = text.dump(g)
    (again,) = text.parse(written).graphs
    assert text.dump(again) == written
    inputs = values(5, 4, 3), np.int64(1)
    first, second = (InferenceSession().load(graph)(*inputs) for graph in (g, again))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.to_numpy(), b.to_numpy())
