# SPDX-License-Identifier: Apache-2.0
"""Custom kernels with a declared signature."""

import numpy as np
import pytest

import maxjax
from maxjax.dtype import DType
from maxjax.experimental import compilation
from maxjax.experimental.custom import (
    DTypeVar,
    Param,
    Symbol,
    Symbols,
    TemplateType,
    declare,
)
from maxjax.experimental.tensor import Tensor
from maxjax.graph import DeviceRef, Graph, TensorType

n, w = Symbols("n", "w")
T = DTypeVar("T")


@maxjax.kernel("test_custom.pair")
def _pair(x, y):
    return x + y, x * 2


@maxjax.kernel("test_custom.pool")
def _pool(x, *, by):
    return x.reshape(x.shape[0], -1, by).max(-1)


PAIR = declare(
    "test_custom.pair",
    inputs={"x": TemplateType(T, [n]), "y": TemplateType(T, [n])},
    outputs=[TemplateType(T, [n])] * 2,
)
POOL = declare(
    "test_custom.pool",
    inputs={"x": TemplateType(DType.float32, [n, w])},
    outputs=[TemplateType(DType.float32, [n, w // Param("by")])],
    parameters={"by": None},
)


def test_eager_in_graphs_and_compiled():
    x, y = Tensor([1, 2, 3]), Tensor([10, 20, 30])
    total, double = PAIR(x, y=y)
    assert total.to_numpy().tolist() == [11, 22, 33]
    assert double.to_numpy().tolist() == [2, 4, 6]
    t = TensorType(DType.int32, ["k"], DeviceRef.CPU())
    with Graph("g", input_types=[t, t]) as g:
        a, b = PAIR(*g.inputs)
        g.output(a, b)
    assert [str(o.shape[0]) for o in g.output_types] == ["k", "k"]
    run = compilation.compile(lambda a, b: PAIR(a, b)[0])(x.layout, y.layout)
    assert run(x, y).to_numpy().tolist() == [11, 22, 33]


def test_parameters_are_given_later():
    assert not POOL.is_complete and POOL.token != POOL[{"by": 2}].token
    assert POOL[{"by": 2}] == POOL[{"by": 2}]
    x = Tensor(np.arange(12, dtype=np.float32).reshape(2, 6))
    assert POOL[{"by": 2}](x).shape == [2, 3]
    assert POOL[{"by": 3}](x).to_numpy().tolist() == [[2, 5], [8, 11]]
    with pytest.raises(ValueError, match="parameters without a value"):
        POOL(x)
    with pytest.raises(TypeError, match="'by' is a dimension, so an int"):
        POOL[{"by": "two"}]


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        (lambda: (Tensor([1, 2]),), TypeError, "missing a required argument"),
        (lambda: (Tensor([1, 2]), Tensor([1])), ValueError, "operand 'y' .* dimension 0 is 1"),
        (lambda: (Tensor([1]), Tensor([[1]])), ValueError, "its rank is not 1"),
        (
            lambda: (Tensor([1]), Tensor([1], dtype=DType.int32)),
            ValueError,
            "its element type is not float32",
        ),
    ],
)
def test_operands_that_do_not_fit(args, error, text):
    with pytest.raises(error, match=text):
        PAIR(*args())


def test_declarations_that_cannot_be():
    x = TemplateType(DType.float32, [n])
    for kwargs, error, text in (
        ({"inputs": {}, "outputs": [x]}, ValueError, "at least one operand"),
        ({"inputs": {"x": x}, "outputs": []}, ValueError, "at least one operand"),
    ):
        with pytest.raises(error, match=text):
            declare("test_custom.pair", **kwargs)
    with pytest.raises(ValueError, match=r"no kernel 'no\.such'"):
        declare("no.such", inputs={"x": x}, outputs=[x])
    with pytest.raises(TypeError, match="plain name 'n'"):
        TemplateType(DType.float32, ["n"])
    with pytest.raises(TypeError, match="a DType or a DTypeVar"):
        TemplateType("f32", [1])
    assert Symbol(n) == n and n.symbol_name == "n"
