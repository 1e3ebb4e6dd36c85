# SPDX-License-Identifier: Apache-2.0
"""Staging, compiling, subgraphs: beyond the recorded facts."""

import concurrent.futures

import numpy as np
import pytest

from maxjax import engine
from maxjax.driver import CPU
from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.experimental import compilation
from maxjax.experimental import functional as F
from maxjax.experimental.sharding import BufferLayout, TensorLayout
from maxjax.experimental.tensor import Tensor
from maxjax.graph import ops


def lay(*shape, dtype=DType.float32):
    return TensorLayout(dtype, list(shape), CPU())


def graphs(staged):
    text = str(staged)
    return [text.count("mo.graph @"), text.count("mo.call @")]


# ---------------------------------------------------------------- errors say which argument


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda run, x: run(x.to_numpy(), {"b": x}), TypeError, r"argument 0\.0: expected a"),
        (lambda run, x: run(x, {"b": x.cast(DType.int32)}), ValueError, r"argument 0\.1\.b: it is"),
        (lambda run, x: run(x, {"b": Tensor.ones([2, 4])}), ValueError, r"0\.1\.b: .*\[2, 4\]"),
        (lambda run, x: run(x, {"c": x}), ValueError, "expected the keys"),
        (lambda run, x: run(x), ValueError, "expected 2 children"),
    ],
)  # fmt: skip
def test_wrong_arguments(call, error, text):
    run = compilation.compile(lambda a, d: a + d["b"])(lay("n", 3), {"b": lay("n", 3)})
    with pytest.raises(error, match=text):
        call(run, Tensor.ones([2, 3]))


def test_two_sizes_of_one_dimension():
    run = compilation.compile(lambda a, b: a + b)(lay("n"), lay("n"))
    with pytest.raises(ValueError, match="dimension 'n' has two sizes"):
        run(Tensor.ones([2]), Tensor.ones([3]))


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda x: ops.relu(x), "the result is a TensorValue"),
        (lambda x: {"a": [ops.relu(x)]}, r"result a\.0 is a TensorValue"),
        (lambda x: x if x.sum() > 0 else -x, "no values while a function is traced"),
        (lambda x: float(x.item()), "no values while a function is traced"),
    ],
)
def test_what_cannot_be_traced(fn, text):
    with pytest.raises(TypeError, match=text):
        compilation.stage(fn)(lay(2))


def test_a_tensor_of_the_program_around_cannot_be_written():
    outside = Tensor.ones([2])

    def fn(x):
        outside[0] = x[0]
        return x

    with pytest.raises(TypeError, match="closes over"):
        compilation.stage(fn)(lay(2))


def test_a_tensor_that_leaked_out_of_its_trace_has_no_values():
    leaked = []
    compilation.stage(lambda x: leaked.append(x + 1) or x)(lay(2))
    with pytest.raises(TypeError, match="no values while a function is traced"):
        leaked[0].to_numpy()
    with pytest.raises(TypeError, match="no values while a function is traced"):
        Tensor([1.0, 2.0]) + leaked[0]


# ---------------------------------------------------------------- weights


def weighted(x):
    return x * F.constant_external("w", lay(3)) + F.constant_external("b", lay(3))


def test_weights_can_come_later_or_be_checked_at_once(tmp_path):
    staged = compilation.stage(weighted)(lay("n", 3))
    bare = staged.compile()
    bare.export_mef(tmp_path / "m.maxjax")
    with pytest.raises(ValueError, match=r"missing: w"):
        bare(Tensor.ones([1, 3]))
    with pytest.raises(ValueError, match=r"missing: b"):
        staged.compile({"w": Tensor.ones([3])})
    weights = {"w": np.float32([1, 2, 3]), "b": Tensor([1.0, 1, 1])}
    run = staged.compile(weights)
    assert run(Tensor.ones([1, 3])).to_numpy().tolist() == [[2, 3, 4]]
    with pytest.raises(TypeError):
        run.weights["w"] = 1  # pyright: ignore[reportIndexIssue]
    model = InferenceSession().init(
        engine.read(tmp_path / "m.maxjax"),
        weights_registry={"w": weights["w"], "b": np.ones(3, np.float32)},
    )
    assert model(np.ones((1, 3), np.float32))[0].to_numpy().tolist() == [[2, 3, 4]]


def test_buffers_are_written_for_the_caller():
    def push(cache, x):
        cache[0] = x
        return cache + 0

    run = compilation.compile(push)(BufferLayout(DType.float32, [2, 3], CPU()), lay(3))
    cache = Tensor.zeros([2, 3])
    out = run(cache, Tensor([1, 2, 3]))
    assert cache.to_numpy().tolist() == out.to_numpy().tolist() == [[1, 2, 3], [0, 0, 0]]


# ---------------------------------------------------------------- subgraphs


def block(x):
    return x * 2


def test_key_says_what_is_shared():
    double = compilation.as_subgraph(lambda x: x * 2, name="b", key="k")
    triple = compilation.as_subgraph(lambda x: x * 3, name="b", key="k")
    other = compilation.as_subgraph(lambda x: x * 3, name="b", key="other")
    assert graphs(compilation.stage(lambda x: triple(double(x)))(lay(4))) == [2, 2]
    assert graphs(compilation.stage(lambda x: other(double(x)))(lay(4))) == [3, 2]
    staged = compilation.stage(lambda x: triple(double(x)))(lay(4))
    assert staged.compile()(Tensor.ones([4])).to_numpy()[0] == 4  # one key is one body


def test_without_a_key_equal_traces_are_shared_and_others_are_not():
    def make(k):
        return compilation.as_subgraph(lambda x: x * k, name="b", key=None)

    assert graphs(compilation.stage(lambda x: make(2)(make(2)(x)))(lay(4))) == [2, 2]
    assert graphs(compilation.stage(lambda x: make(2)(make(3)(x)))(lay(4))) == [3, 2]


def test_what_a_function_depends_on_is_never_wrongly_shared():
    class Scale:
        def __init__(self, k):
            self.k = k

        def apply(self, x):
            return x * self.k

    def with_default(k):
        def body(x, by=k):
            return x * by

        return body

    for a, b in [
        (Scale(2).apply, Scale(3).apply),
        (with_default(2), with_default(3)),
    ]:
        fn = lambda x, a=a, b=b: compilation.as_subgraph(b)(compilation.as_subgraph(a)(x))  # noqa: E731
        run = compilation.compile(fn)(lay(4))
        assert run(Tensor.ones([4])).to_numpy()[0] == 6


def test_outside_of_a_trace_the_function_itself_is_to_be_called():
    shared = compilation.as_subgraph(block)
    with pytest.raises(TypeError, match=r"block: a subgraph is used while a function is traced"):
        shared(Tensor.ones([4]))
    with F.lazy():
        y = shared(shared(Tensor.ones([2])))
    assert y.to_numpy().tolist() == [4, 4]


def test_weights_of_a_shared_body_are_found_by_the_prefix_of_each_call():
    def body(x):
        return x * F.constant_external("w", lay(1), is_placeholder=True)

    def model(x):
        for layer in ("layers.0.", "layers.1."):
            x = compilation.as_subgraph(body, prefix=layer)(x)
        return x

    weights = {"layers.0.w": np.float32([2]), "layers.1.w": np.float32([10])}
    run = compilation.compile(model, weights=weights)(lay(1))
    assert run(Tensor.ones([1])).to_numpy().tolist() == [20]


def test_the_callers_values_cannot_be_used_in_a_body():
    def fn(x):
        y = x + 1
        return compilation.as_subgraph(lambda v: v * y)(x)

    with pytest.raises((TypeError, ValueError), match=r"graph|traced"):
        compilation.stage(fn)(lay(4))


def test_threads_share_a_compiled_function():
    run = compilation.compile(lambda x: x * 2)(lay("n"))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda n: float(run(Tensor.ones([n])).to_numpy().sum()), range(1, 20))
    assert list(results) == [2.0 * n for n in range(1, 20)]
