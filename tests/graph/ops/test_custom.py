# SPDX-License-Identifier: Apache-2.0
"""Custom kernels in graphs: what they are given, what they may return, and what is refused."""

import enum

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxjax import kernels
from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import BufferType, DeviceRef, Dim, Graph, TensorType, Weight, ops

CPU = DeviceRef.CPU()


@pytest.fixture
def kernel(monkeypatch):
    """Registers a function for one test: ``kernel(function, shape=None)``, under the name "k"."""

    def register(function, shape=None, name="k"):
        made = kernels.Kernel(name, function, shape, "here.py:1")
        monkeypatch.setitem(kernels._PROGRAM, name, made)

    return register


def f32(*dims):
    return TensorType(DType.float32, dims, CPU)


def i32(*dims):
    return TensorType(DType.int32, dims, CPU)


def graph(in_types, out_types, parameters=None, op=ops.custom, name="k"):
    with Graph("g", input_types=in_types) as g:
        g.output(*op(name, CPU, g.inputs, out_types, parameters))
    return g


def run(g, *arrays):
    outputs = InferenceSession().load(g)(*arrays)
    return [o.to_numpy().tolist() for o in outputs]


X = np.float32([1, 2, 3])


# ---------------------------------------------------------------- values


def test_one_array_or_several(kernel):
    kernel(lambda x: x * 2)
    assert run(graph([f32("n")], [f32("n")]), X) == [[2, 4, 6]]
    kernel(lambda x, y: (y, x, x + y))
    g = graph([f32("n"), f32("n")], [f32("n")] * 3)
    assert run(g, X, X * 10) == [[10, 20, 30], [1, 2, 3], [11, 22, 33]]
    kernel(lambda x: [x[0]])
    assert run(graph([f32("n")], [f32()]), X) == [1]


@pytest.mark.parametrize("n", [0, 1, 4])
def test_sizes_are_known_in_the_kernel(kernel, n):
    kernel(lambda x: jnp.full(x.shape, x.shape[0], jnp.int32))
    assert run(graph([f32("n", 2)], [i32("n", 2)]), np.zeros((n, 2), np.float32)) == [[[n, n]] * n]


def test_dims_of_out_types_are_evaluated(kernel):
    kernel(lambda x: jnp.concatenate([x, x, x[:1]]))
    assert run(graph([f32("n")], [f32(Dim("n") * 2 + 1)]), X) == [[1, 2, 3, 1, 2, 3, 1]]


def test_parameters_of_every_kind(kernel):
    class Mode(enum.StrEnum):
        FAST = "fast"

    seen = []

    def k(x, **parameters):
        seen.append(parameters)
        return x

    kernel(k)
    given = {
        "flag": True,
        "count": -3,
        "scale": 1e-300,
        "limit": float("inf"),
        "name": 'a "b"\n\\',
        "dtype": DType.bfloat16,
        "mode": Mode.FAST,
        "wide": np.float64(0.1),
    }
    assert run(graph([f32("n")], [f32("n")], given), X) == [[1, 2, 3]]
    assert seen == [given]
    kinds = [bool, int, float, float, str, DType, str, float]
    assert [type(v) for v in seen[0].values()] == kinds


def test_a_parameter_may_be_positional_or_have_a_default(kernel):
    def k(x, factor, offset=1):
        return x * factor + offset

    kernel(k)
    assert run(graph([f32("n")], [f32("n")], {"factor": 2}), X) == [[3, 5, 7]]


def test_results_says_what_to_return(kernel):
    seen = []

    def k(x, *, results):
        seen.extend(results)
        return tuple(jnp.zeros(r.shape, r.dtype) for r in results)

    kernel(k)
    run(graph([f32("n", 2)], [i32(Dim("n") + 1), f32()]), np.zeros((3, 2), np.float32))
    assert [(s.shape, s.dtype) for s in seen] == [((4,), np.int32), ((), np.float32)]
    assert all(isinstance(s, jax.ShapeDtypeStruct) for s in seen)


def test_64_bit_types_are_on(kernel):
    kernel(lambda x: x + jnp.int64(2**40))
    t = TensorType(DType.int64, ["n"], CPU)
    assert run(graph([t], [t]), np.int64([1])) == [[2**40 + 1]]


def test_weights_and_no_operands(kernel):
    kernel(lambda: jnp.arange(3, dtype=jnp.int32))
    assert run(graph([], [i32(3)])) == [[0, 1, 2]]
    kernel(lambda w: w * 2)
    with Graph("g") as g:
        g.output(*ops.custom("k", CPU, [Weight("w", DType.float32, [2], CPU)], [f32(2)]))
    model = InferenceSession().load(g, weights_registry={"w": np.float32([3, 4])})
    assert model()[0].to_numpy().tolist() == [6, 8]


def test_numpy_results_become_arrays(kernel):
    kernel(lambda x: np.full(x.shape, 7, np.int32))
    assert run(graph([f32("n")], [i32("n")]), X) == [[7, 7, 7]]


def test_a_driver_device_is_a_device_too(kernel):
    kernel(lambda x: x)
    with Graph("g", input_types=[f32("n")]) as g:
        g.output(*ops.custom("k", CPU.to_device(), g.inputs, [f32("n")]))
    assert g.body.nodes[0].op.device == CPU


def test_in_branches_and_subgraphs(kernel):
    kernel(lambda x: x * 10)
    with Graph("g", input_types=[f32("n"), TensorType(DType.bool, [], CPU)]) as g:
        x, p = (v.tensor for v in g.inputs)
        sub = g.add_subgraph("s", lambda v: ops.custom("k", CPU, [v], [v.type]), [f32("n")])
        call = lambda: ops.call(sub, x)  # noqa: E731
        g.output(*ops.cond(p, [f32("n")], call, lambda: ops.custom("k", CPU, [-x], [f32("n")])))
    assert run(g, X, np.bool_(True)) == [[10, 20, 30]]
    assert run(g, X, np.bool_(False)) == [[-10, -20, -30]]


def test_a_kernel_without_results_runs(kernel):
    seen = []
    kernel(lambda x: seen.append(x.shape))
    with Graph("g", input_types=[f32("n")]) as g:
        assert ops.custom("k", CPU, g.inputs, []) == []
        g.output()
    run(g, X)
    assert seen == [(3,)]


def test_graphs_are_differentiable_through_a_kernel(kernel):
    from maxjax.lower import to_jax

    kernel(lambda x: x**3)
    fn = to_jax(graph([f32("n")], [f32("n")]))
    gradient = jax.grad(lambda x: fn({}, [x])[0][0].sum())(jnp.float32([1, 2]))
    assert gradient.tolist() == [3, 12]


# ---------------------------------------------------------------- names that are new


def test_a_new_name_is_bound_from_the_result(kernel, run_symbolic):
    kernel(lambda x: x[::2])
    g = graph([f32("n")], [f32("half")])
    assert g.output_types == [f32("half")]
    with Graph("g", input_types=[f32("n")]) as g:
        (y,) = ops.custom("k", CPU, g.inputs, [f32("half")])
        g.output(y + 1, ops.shape_to_tensor(y.shape))
    for n in (0, 1, 5):
        x = np.arange(n, dtype=np.float32)
        assert run(g, x) == [(x[::2] + 1).tolist(), [len(x[::2])]]


def test_a_new_name_is_one_size(kernel):
    kernel(lambda x: (x[1:], x[2:]))
    with pytest.raises(ValueError, match=r"gave f32\[1\] as result 1, declared as f32\[m\] with m"):
        run(graph([f32("n")], [f32("m"), f32("m")]), X)


def test_a_new_name_for_a_kernel_that_asks_for_results(kernel):
    def k(x, *, times, results):
        return jnp.zeros(results[0].shape, results[0].dtype)

    g_of = lambda: graph([f32("n")], [f32("m")], {"times": 2})  # noqa: E731
    kernel(k)
    with pytest.raises(ValueError, match=r"out_types has 'm', which no operand.*needs a shape fun"):
        run(g_of(), X)
    kernel(k, shape=lambda x, *, times: (x.shape[0] * times,))
    assert run(g_of(), X) == [[0] * 6]
    kernel(k, shape=lambda x, *, times: [[4]])
    assert run(g_of(), X) == [[0] * 4]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (
            lambda x: (1, 2),
            r"the shape function of kernel 'k' \(here.py:1\) gave rank 2 instead of",
        ),
        (lambda x: ((1,), (2,)), "gave 2 shapes for 1 result"),
        (lambda x: 3, "gave 3, where a tuple is expected"),
        (lambda x: (x.argmax().item(),), "needs the values of an array while it is compiled"),
    ],
)
def test_a_shape_function_that_is_wrong(kernel, shape, text):
    def k(x, results):
        return jnp.zeros(results[0].shape, results[0].dtype)

    kernel(k, shape=shape)
    with pytest.raises(ValueError, match=text):
        run(graph([f32("n")], [f32("m")]), X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.nonzero(x)[0],
        lambda x: x[x > 1],
        lambda x: x if x[0] > 0 else -x,
        lambda x: jnp.zeros(np.asarray(x).size),
        lambda x: x[range(x.argmax())],
    ],
)
def test_sizes_from_values_are_refused(kernel, function):
    kernel(function)
    match = r"custom: kernel 'k' \(here\.py:1\) needs the values.*fixed.*\(given f32\[n\]\)\n  at "
    with pytest.raises(ValueError, match=match) as caught:
        run(graph([f32("n")], [f32("m")]), X)
    assert caught.value.__cause__ is not None


def test_traced_with_symbolic_sizes(kernel, run_symbolic):
    def k(x, *, results):
        return jnp.concatenate([x, x]).astype(results[0].dtype)

    kernel(k)
    call = lambda x: ops.custom("k", CPU, [x], [i32(Dim("n") * 2)])  # noqa: E731
    for n in (1, 3):
        (out,) = run_symbolic(call, np.arange(n, dtype=np.float32), dims=[["n"]])
        assert out.tolist() == [*range(n), *range(n)]


# ---------------------------------------------------------------- in place


def in_place(kernel_types, out_types=None, parameters=None):
    return graph(kernel_types, out_types, parameters, ops.inplace_custom)


def test_buffers_get_the_arrays_behind_the_results(kernel):
    kernel(lambda a, x, b: (a + b, a + x, b * x))
    g = in_place([f32("n").as_buffer(), f32("n"), f32("n").as_buffer()], [f32("n")])
    a, b = (Buffer.from_numpy(np.float32(v)) for v in ([1, 2, 3], [4, 5, 6]))
    assert run(g, a, X, b) == [[5, 7, 9]]
    assert a.to_numpy().tolist() == [2, 4, 6]
    assert b.to_numpy().tolist() == [4, 10, 18]


def test_effects_are_in_program_order(kernel):
    kernel(lambda a: a * 2)
    with Graph("g", input_types=[f32(2).as_buffer()]) as g:
        b = g.inputs[0].buffer
        b[...] = b[...] + 1
        assert ops.inplace_custom("k", CPU, [b]) == []
        before = b[...]
        b[...] = b[...] + 1
        ops.inplace_custom("k", CPU, [b])
        g.output(before)
    state = Buffer.from_numpy(np.float32([0, 1]))
    assert run(g, state) == [[2, 4]]
    assert state.to_numpy().tolist() == [6, 10]


def test_buffers_in_loops_and_branches(kernel):
    kernel(lambda a, i: a + i)
    with Graph("g", input_types=[i32(2).as_buffer(), i32()]) as g:
        b, n = g.inputs[0].buffer, g.inputs[1].tensor

        def body(i):
            add = lambda: (ops.inplace_custom("k", CPU, [b, i]), ())[1]  # noqa: E731
            ops.cond(i > 1, None, add, lambda: ())
            return i - 1

        ops.while_loop(n, lambda i: i > 0, body)
        g.output()
    state = Buffer.from_numpy(np.int32([0, 100]))
    run(g, state, np.int32(4))
    assert state.to_numpy().tolist() == [9, 109]


def test_results_counts_the_buffers(kernel):
    seen = []

    def k(a, x, *, results):
        seen.extend((r.shape, r.dtype) for r in results)
        return x, a

    kernel(k)
    g = in_place([f32("n").as_buffer(), i32("n")], [i32("n")])
    run(g, Buffer.from_numpy(X.copy()), np.int32([1, 2, 3]))
    assert seen == [((3,), np.int32), ((3,), np.float32)]


def test_buffer_inputs_are_written_in_place(kernel):
    from maxjax.lower import to_jax

    kernel(lambda a, x: a.at[0].set(x))
    fn = to_jax(in_place([f32(1024).as_buffer(), f32()]))
    jitted = jax.jit(lambda x, s: fn({}, [x], [s]), donate_argnums=1)
    array = jax.ShapeDtypeStruct((1024,), np.float32)
    memory = jitted.lower(jax.ShapeDtypeStruct((), np.float32), array).compile().memory_analysis()
    assert memory.alias_size_in_bytes == 4096
    assert memory.temp_size_in_bytes < 4096


# ---------------------------------------------------------------- what a kernel returns


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (lambda x: x[:2], r"gave f32\[2\] as result 0, declared as f32\[n\] with n = 3 \(given"),
        (lambda x: x[None], r"gave f32\[1, 3\] as result 0, declared as f32\[n\] with n = 3 \("),
        (lambda x: x.astype(jnp.int32), r"gave si32\[3\] as result 0, declared as f32\[n\]"),
        (lambda x: x.astype(jnp.float64), r"gave f64\[3\].*64-bit types are on in kernels, so giv"),
        (lambda x: 3.0, "gave float 3.0 as result 0, where an array is expected"),
        (lambda x: (x, x), r"gave 2 arrays, but out_types declares 1 result \(given f32\[n\]\)"),
        (lambda x: None, "gave 0 arrays, but out_types declares 1 result"),
        (lambda x: {"y": x}, "gave dict .* as result 0, where an array is expected"),
        (lambda x: jax.random.key(0), r"gave key<fry>\[\] as result 0"),
    ],
)
def test_other_results_than_declared(kernel, returned, text):
    kernel(returned)
    with pytest.raises(ValueError, match=rf"custom: kernel 'k' \(here\.py:1\) {text}") as caught:
        run(graph([f32("n")], [f32("n")]), X)
    assert "test_custom.py" in str(caught.value)


def test_other_contents_than_the_buffers(kernel):
    kernel(lambda x, a: x)
    g = in_place([f32("n"), f32("n").as_buffer()], [f32("n")])
    arguments = X, Buffer.from_numpy(X.copy())
    with pytest.raises(ValueError, match=r"gave 1 array, but.*1 result, and 1 buffer must have"):
        run(g, *arguments)
    kernel(lambda x, a: (x, a[1:]))
    with pytest.raises(ValueError, match=r"gave f32\[2\] as the new contents of operand 1, decl"):
        run(g, *arguments)


def test_an_error_of_the_kernel_is_its_own_and_says_where(kernel):
    def k(x):
        raise ZeroDivisionError("mine")

    kernel(k)
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        run(graph([f32("n")], [f32("n")]), X)
    (note,) = [n for n in caught.value.__notes__ if "kernel" in n]
    assert note.startswith("in kernel 'k' (here.py:1), called at ") and "test_custom.py" in note


# ---------------------------------------------------------------- what is refused while building


def build(*args, inputs=None, op=ops.custom, **options):
    with Graph("g", input_types=inputs or [f32("n")]) as g:
        return op(*[a(g) if callable(a) else a for a in args], **options)


def all_of(g):
    return g.inputs


BUFFER = f32("n").as_buffer()


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: build(3, CPU, [], []), TypeError, "custom: the kernel's name is a string, not 3"),
        (lambda: build("k", "cpu", [], []), TypeError, "custom: expected a DeviceRef or"),
        (lambda: build("k", CPU, [1.0], []), TypeError, "custom: value 0: expected a tensor value"),
        (lambda: build("k", CPU, all_of, [3]), TypeError, "out type 0 is a TensorType, not 3"),
        (lambda: build("k", CPU, all_of, [BUFFER]), ValueError, "out type 0 is a buffer's; ker"),
        (
            lambda: build("k", CPU, all_of, [], inputs=[f32(), BUFFER]),
            TypeError,
            r"operand 1 is a buffer; kernels that change.*inplace_custom \(given f32\[\], f32\[n\]",
        ),
        (
            lambda: build("k", CPU, all_of, op=ops.inplace_custom),
            TypeError,
            r"inplace_custom: no operand is a buffer; kernels that only compute are ops\.custom",
        ),
        (
            lambda: build(
                "k", CPU, lambda g: [*g.inputs] * 2, inputs=[BUFFER], op=ops.inplace_custom
            ),
            ValueError,
            "inplace_custom: a buffer is given twice",
        ),
        (
            lambda: build("k", CPU, all_of, [], {"a": [1]}),
            TypeError,
            r"parameter 'a' is a bool, int, float, str or DType, not list \[1\]",
        ),
        (lambda: build("k", CPU, all_of, [], {"a": None}), TypeError, "not NoneType None"),
        (lambda: build("k", CPU, all_of, [], {"a": Dim("n")}), TypeError, "not SymbolicDim"),
        (lambda: build("k", CPU, all_of, [], {1: 1}), TypeError, "parameter's name is a string"),
        (lambda: build("no_such", CPU, all_of, []), ValueError, "no kernel is registered as 'no_s"),
        (
            lambda: build("k", CPU, lambda g: [*g.inputs] * 2, []),
            ValueError,
            r"is a function of \(x, \*, scale=1\.0\), but is called with 2 values and no param.*: "
            "too many positional",
        ),
        (
            lambda: build("k", CPU, all_of, [], {"scael": 2.0}),
            ValueError,
            "called with 1 value and scael: got an unexpected keyword argument 'scael'",
        ),
        (lambda: ops.custom("k", CPU, [], []), LookupError, "custom: no graph is being built"),
    ],
)
def test_refused_while_building(kernel, make, error, text):
    def k(x, *, scale=1.0):
        return x

    kernel(k)
    with pytest.raises(error, match=text):
        make()


def test_results_is_no_parameter(kernel):
    kernel(lambda x, *, results: x)
    with pytest.raises(ValueError, match="`results` is what the op declares, and no parameter"):
        build("k", CPU, all_of, [f32("n")], {"results": 1})
    kernel(lambda x, **parameters: x * parameters["results"])
    assert run(graph([f32("n")], [f32("n")], {"results": 2}), X) == [[2, 4, 6]]


def test_an_out_dim_that_nothing_gives(kernel):
    kernel(lambda x: x)
    with pytest.raises(ValueError, match="'m'"):
        run(graph([f32("n")], [f32(Dim("m") * 2)]), X)


def test_a_kernel_that_is_gone_when_the_graph_is_compiled(kernel, monkeypatch):
    kernel(lambda x: x)
    g = graph([f32("n")], [f32("n")])
    monkeypatch.delitem(kernels._PROGRAM, "k")
    match = r"^custom: no kernel is registered as 'k'.*\(given f32\[n\]\)\n  at .*test_custom\.py"
    with pytest.raises(ValueError, match=match):
        run(g, X)
    kernel(lambda x, y: x)
    with pytest.raises(ValueError, match=r"is a function of \(x, y\).*1 value.*missing"):
        run(g, X)


def test_state_types_of_a_buffer(kernel):
    kernel(lambda b: b + 1)
    t = BufferType(DType.int64, [2], CPU)
    with Graph("g", input_types=[]) as g:
        b = ops.buffer_create(t, 5)
        ops.inplace_custom("k", CPU, [b])
        g.output(b[...])
    assert run(g) == [[6, 6]]
