# SPDX-License-Identifier: Apache-2.0
"""Modules: names, weights, moves, traces and what they are called by in errors."""

import copy
import typing

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from maxjax import tree
from maxjax.driver import CPU
from maxjax.dtype import DType
from maxjax.experimental import compilation, nn
from maxjax.experimental import functional as F
from maxjax.experimental.nn import module as module_file
from maxjax.experimental.sharding import DeviceMapping, DeviceMesh, Replicated, TensorLayout
from maxjax.experimental.tensor import Tensor
from maxjax.graph.weights import WeightData


def lay(*shape, dtype=DType.float32):
    return TensorLayout(dtype, list(shape), CPU())


def ones(*shape):
    return Tensor.from_dlpack(np.ones(shape, np.float32))


class Scale(nn.Module):
    def __init__(self, *shape):
        self.weight = ones(*shape)

    def forward(self, x):
        return x * self.weight


class Stack(nn.Module):
    def __init__(self, size, count, use=lambda i, layer: layer):
        self.layers = nn.ModuleList([Scale(size) for _ in range(count)])
        self.use = use

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = self.use(i, layer)(x)
        return x


# ---------------------------------------------------------------- names


def test_names_of_parameters_in_any_attribute():
    model = nn.Module()
    model.a = {"k": (ones(1), [ones(2)])}
    model.b = Scale(3)
    model.text, model.number = "no", 3
    assert [n for n, _ in model.parameters] == ["a.k.0", "a.k.1.0", "b.weight"]
    assert [n for n, _ in model.children] == ["b"]
    assert not list(model.local_parameters)
    assert [n for n, _ in model.b.local_parameters] == ["weight"]


def test_two_parameters_of_one_name():
    model = nn.Module()
    model.a = Scale(2)
    model.a.name_transparent = True
    model.weight = ones(2)
    with pytest.raises(ValueError, match="two leaves have the path 'weight'"):
        list(model.parameters)


def test_two_transparent_modules_side_by_side():
    model = nn.Module()
    model.a, model.b = nn.TransparentModule(), nn.TransparentModule()
    model.a.x, model.b.y = ones(1), ones(2)
    assert [n for n, _ in model.parameters] == ["x", "y"]
    model.load_state_dict({"x": np.float32([5]), "y": np.float32([6, 7])})
    assert model.a.x.item() == 5 and model.b.y.to_numpy().tolist() == [6, 7]
    assert [n for n, _ in model.descendants] == ["a", "b"]


def test_a_module_that_contains_itself():
    model = nn.Module()
    model.inner = nn.Module()
    model.inner.outer = model
    with pytest.raises(ValueError, match="contains itself"):
        list(model.parameters)
    with pytest.raises(ValueError, match=r"contains itself, at inner\.outer"):
        list(model.descendants)
    with pytest.raises(ValueError, match="contains itself"):
        model.trace()


def test_list_as_a_tree():
    layers = nn.ModuleList([Scale(2), Scale(2)])
    layers.extra = ones(1)
    doubled = tree.map(lambda t: t * 2, layers, leaf=Tensor)
    assert type(doubled) is nn.ModuleList and len(doubled) == 2
    assert doubled[1].weight.to_numpy().tolist() == [2, 2] and doubled.extra.item() == 2
    assert layers[1].weight.to_numpy().tolist() == [1, 1]
    tied = tree.map(lambda t: t, nn.ModuleList([layers[0]] * 2), leaf=Tensor, shared=True)
    assert tied[0] is tied[1]
    assert copy.deepcopy(layers)[0] is not layers[0]


def test_repr():
    assert repr(Stack(2, 1)) == "Stack(layers=ModuleList(Scale()))"
    assert repr(nn.Linear(2, 3, bias=False)) == "Linear(in_dim=Dim(2), out_dim=Dim(3), bias=False)"
    text = repr(nn.Sequential(*[nn.RMSNorm(4, eps=1e-5) for _ in range(4)]))
    assert text.splitlines()[:2] == ["Sequential(", "  RMSNorm(dim=Dim(4), eps=1e-05),"]


# ---------------------------------------------------------------- weights


def test_all_that_is_wrong_with_weights_in_one_message():
    model = Stack(2, 3)
    state = {
        "layers.0.weigth": np.ones(2, np.float32),
        "layers.1.weight": np.ones(3, np.float32),
        "layers.2.weight": np.ones(2, np.float64),
    }
    with pytest.raises(KeyError) as e:
        model.load_state_dict(state)
    assert str(e.value).splitlines() == [
        "the weights of Stack do not fit:",
        "  missing: layers.0.weight (float32[2]); did you mean layers.0.weigth?",
        "  layers.1.weight: expected float32[2], got float32[3]",
        "  layers.2.weight: expected float32[2], got float64[2]; cast it first",
        "  no parameter is called: layers.0.weigth",
    ]
    with pytest.raises(KeyError, match=r"missing: layers\.0\.weight"):
        model.compile(lay("n", 2), weights=state)


def test_names_that_no_parameter_has():
    state = {"weight": np.ones(2, np.float32), "wieght": np.ones(2, np.float32)}
    with pytest.raises(ValueError, match=r"no parameter is called: wieght; did you mean weight\?"):
        Scale(2).load_state_dict(state)
    Scale(2).load_state_dict(state, strict=False)
    many = {f"x{i}": np.ones(1, np.float32) for i in range(9)} | {"weight": state["weight"]}
    with pytest.raises(ValueError, match="x4 and 4 more"):
        Scale(2).load_state_dict(many)


def test_auto_cast_is_between_float32_and_bfloat16():
    model = Scale(2)
    half = {"weight": np.array([1.5, 2], ml_dtypes.bfloat16)}
    with pytest.raises(ValueError, match="auto_cast=True casts it"):
        model.load_state_dict(half)
    model.load_state_dict(half, auto_cast=True)
    assert model.weight.dtype is DType.float32
    run = model.compile(lay(2), weights=half, auto_cast=True)
    assert run(ones(2)).to_numpy().tolist() == [1.5, 2]
    with pytest.raises(ValueError, match="expected float32"):
        model.load_state_dict({"weight": np.ones(2, np.float16)}, auto_cast=True)


def test_weights_of_any_library():
    model = Scale(2)
    for array in (jnp.array([3.0, 4.0], jnp.float32), Tensor([3.0, 4.0])):
        model.load_state_dict({"weight": array})
        assert model.weight.to_numpy().tolist() == [3, 4]
    data = WeightData.from_numpy(np.float32([5, 6]), "weight")
    model.load_state_dict({"weight": data})
    assert model.weight.to_numpy().tolist() == [5, 6]


def test_weights_that_forward_declares_itself():
    class Own(Scale):
        def forward(self, x):
            return x * self.weight + F.constant_external("shift", lay(2))

    weights = {"weight": np.float32([2, 2]), "shift": np.float32([1, 2]), "other": np.ones(1)}
    run = Own(2).compile(lay(2), weights=weights)
    assert run(ones(2)).to_numpy().tolist() == [3, 4]
    assert sorted(run.weights) == ["shift", "weight"]


def test_a_module_is_exported_before_it_has_weights(tmp_path):
    bare = Scale(2).trace(lay(2)).compile()
    bare.export_mef(tmp_path / "m.maxjax")
    assert (tmp_path / "m.maxjax").stat().st_size
    with pytest.raises(ValueError, match="missing: weight"):
        bare(ones(2))


# ---------------------------------------------------------------- moving


class Table(nn.Module):
    table: nn.PinnedDeviceTensor
    other: "nn.PinnedDeviceTensor | None"
    weight: Tensor

    def __init__(self):
        self.table, self.other, self.weight = ones(1), ones(2), ones(3)


def test_pinned_tensors_stay():
    model = nn.ModuleList([Table()])
    assert list(model._movable()) == ["0.weight"]


class Unresolved(nn.Module):
    table: "nn.PinnedDeviceTensor"
    weight: "ThatIsNowhere"  # noqa: F821 # pyright: ignore[reportUndefinedVariable]


def test_pinned_beside_an_annotation_that_cannot_be_read():
    with pytest.raises(NameError):
        typing.get_type_hints(Unresolved)
    assert module_file._pinned(Unresolved) == {"table"}


def test_moves():
    model = Scale(2)
    mesh = DeviceMesh.single(CPU())
    assert model.to(DeviceMapping(mesh, (Replicated(),))) is model
    model.device = CPU()
    assert model.device == CPU()
    assert nn.Module().device == CPU()
    with pytest.raises(ValueError, match="not to the 2 of"):
        model.to(DeviceMesh((CPU(), CPU()), (2,), ("x",)))
    with pytest.raises(TypeError, match=r"moved to a Device.*not to str 'cpu'"):
        model.to("cpu")


# ---------------------------------------------------------------- traces


def test_only_weights_that_are_used_are_declared_and_each_once():
    class Part(nn.Module):
        def __init__(self):
            self.used, self.unused = ones(2), ones(3)

        def forward(self, x):
            return x * self.used + self.used

    text = str(Part().trace(lay(2)))
    assert text.count('name = "used"') == 1 and '"unused"' not in text
    assert Part().compile(lay(2))(ones(2)).to_numpy().tolist() == [2, 2]


def test_a_weight_first_used_in_a_branch_is_seen_after_it():
    class Branch(Scale):
        def forward(self, x):
            (y,) = F.cond(x.sum().reshape([]) > 0, [lay(2)], lambda: x * self.weight, lambda: x)
            return y + self.weight

    run = Branch(2).compile(lay(2), weights={"weight": np.float32([3, 4])})
    assert run(ones(2)).to_numpy().tolist() == [6, 8]
    assert run(-ones(2)).to_numpy().tolist() == [2, 3]


def test_static_arguments_and_results():
    class Power(Scale):
        def forward(self, x, n, *, names=("a",)):
            return {names[0]: x * self.weight**n, "n": n}

    run = Power(2).compile(lay(2), 2, weights={"weight": np.float32([3, 4])})
    out = run(ones(2), 2)
    assert out["a"].to_numpy().tolist() == [9, 16] and out["n"] == 2
    with pytest.raises(ValueError, match="expected 2, got 3"):
        run(ones(2), 3)


def test_what_a_trace_leaves_behind():
    kept = []

    class Keep(Scale):
        def forward(self, x):
            self.seen = x
            kept.append(self.weight)
            return x * self.weight

    model = Keep(2)
    model.trace(lay(2))
    assert not hasattr(model, "seen") and model.weight.real
    with pytest.raises(TypeError, match="no values while a function is traced"):
        kept[0].to_numpy()
    with F.lazy(), pytest.raises(TypeError, match="the weight 'weight' has no values while"):
        kept[0] + 1


def test_a_weight_is_not_written():
    class Write(Scale):
        def forward(self, x):
            self.weight[0] = x[0]
            return x

    with pytest.raises(TypeError, match="the weight 'weight' cannot be written"):
        Write(2).trace(lay(2))


class Failing(Scale):
    def forward(self, x):
        return x @ self.weight


class Coded(Exception):
    def __init__(self, code):
        super().__init__(code, "text")


@pytest.mark.parametrize("error", [Coded(3), KeyError("k"), RuntimeError("plain")])
def test_errors_name_the_module_in_which_they_arose(error):
    class Raising(Scale):
        def forward(self, x):
            raise error

    model = Stack(2, 2)
    model.layers[1] = Raising(2)
    with pytest.raises(type(error)) as e:
        model.trace(lay("n", 2))
    text = "\n".join([str(e.value), *getattr(e.value, "__notes__", [])])
    assert text.count("in module") == 1 and "in module layers.1 (Raising)" in text
    assert isinstance(error, RuntimeError) == ("layers.1" in str(e.value))


def test_errors_of_ops_name_the_module():
    model = Stack(2, 2)
    model.layers[1] = Failing(3, 3)
    with pytest.raises(ValueError, match=r"matmul[\s\S]*in module layers\.1 \(Failing\)"):
        model.trace(lay("n", 2))
    with pytest.raises(ValueError) as e:
        model(ones(1, 2))
    assert "in module" not in str(e.value)


def test_a_module_whose_class_is_no_function():
    with pytest.raises(NotImplementedError, match=r"ModuleList is no function: .*forward"):
        nn.ModuleList([])(1)


# ---------------------------------------------------------------- shared bodies


def counts(staged, name):
    text = str(staged)
    return text.count(f"mo.graph @{name}"), text.count("mo.call @")


WEIGHTS = {f"layers.{i}.weight": np.float32([i + 2, 1]) for i in range(3)}


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda i, layer: nn.as_subgraph(layer, name="body"), (1, 3)),
        (lambda i, layer: nn.as_subgraph(layer, name="body", prefix=None), (1, 3)),
        (lambda i, layer: nn.as_subgraph(layer, name="body", prefix=f"layers.{i}."), (1, 3)),
        (lambda i, layer: nn.as_subgraph(layer.forward, name="body"), (1, 3)),
        (lambda i, layer: nn.as_subgraph(layer, name="body", key="k"), (1, 3)),
        (lambda i, layer: nn.as_subgraph(lambda x: layer(x), name="body"), (3, 3)),
        (
            lambda i, layer: nn.as_subgraph(lambda x: layer(x), name="body", prefix=f"layers.{i}."),
            (1, 3),
        ),
    ],
)
def test_layers_are_one_body_with_weights_of_their_own(use, expected):
    model = Stack(2, 3, use)
    assert counts(model.trace(lay("n", 2)), "body") == expected
    run = model.compile(lay("n", 2), weights=WEIGHTS)
    assert run(ones(1, 2)).to_numpy().tolist() == [[24, 1]]
    assert counts(model.trace(lay("n", 2), allow_subgraphs=False), "body") == (0, 0)


def test_layers_that_differ_are_never_one_body():
    class Shifted(Scale):
        by = 0.0

        def forward(self, x):
            return x * self.weight + self.by

    model = Stack(2, 0, lambda i, layer: nn.as_subgraph(layer, name="body"))
    model.layers.extend([Shifted(2), Shifted(2)])
    model.layers[1].by = 10.0
    assert counts(model.trace(lay("n", 2)), "body") == (2, 2)
    assert model.compile(lay("n", 2))(ones(1, 2)).to_numpy().tolist() == [[11, 11]]


def test_a_layer_that_changes_between_its_calls():
    class Turn(nn.Module):
        def __init__(self):
            self.layer = Scale(2)

        def forward(self, x):
            x = nn.as_subgraph(self.layer)(x)
            self.layer.forward = lambda y: y * 5
            return nn.as_subgraph(self.layer)(x)

    assert Turn().compile(lay(2))(ones(2)).to_numpy().tolist() == [5, 5]


def test_a_weight_from_elsewhere_in_a_body():
    class Model(nn.Module):
        def __init__(self):
            self.shared = ones(2)
            self.layers = nn.ModuleList([Scale(2), Scale(2)])

        def forward(self, x):
            for i, layer in enumerate(self.layers):
                body = nn.as_subgraph(
                    lambda x, layer=layer: layer(x) + self.shared,
                    name="body",
                    prefix=f"layers.{i}.",
                )
                x = body(x)
            return x

    staged = Model().trace(lay(2))
    assert counts(staged, "body") == (1, 2)
    weights = {"shared": np.float32([1, 2])} | {
        f"layers.{i}.weight": np.float32([i + 2, 3]) for i in range(2)
    }
    assert Model().compile(lay(2), weights=weights)(ones(2)).to_numpy().tolist() == [10, 17]


def test_a_module_as_an_argument_of_a_body():
    class Model(nn.Module):
        def __init__(self):
            self.a, self.b = Scale(2), Scale(2)

        def forward(self, x):
            apply = nn.as_subgraph(lambda layer, x: layer(x), name="apply")
            return apply(self.b, apply(self.a, x))

    weights = {"a.weight": np.float32([2, 3]), "b.weight": np.float32([5, 7])}
    assert counts(Model().trace(lay(2)), "apply") == (1, 2)
    assert Model().compile(lay(2), weights=weights)(ones(2)).to_numpy().tolist() == [10, 21]


# ---------------------------------------------------------------- dataclasses


def test_dataclasses():
    @nn.module_dataclass
    class Block(nn.Module):
        weight: Tensor
        inner: nn.Module | None = None

    block = Block(ones(2), Scale(3))
    assert block == block and block != Block(block.weight, block.inner) and hash(block)
    assert repr(block) == "Block(inner=Scale())"

    @nn.module_dataclass(frozen=True, repr=True)
    class Fixed(nn.Module):
        weight: Tensor
        by: int = 3

        def forward(self, x):
            return x * self.weight * self.by

    fixed = Fixed(ones(2))
    fixed.load_state_dict({"weight": np.float32([2, 3])})
    assert fixed.compile(lay(2))(ones(2)).to_numpy().tolist() == [6, 9]
    assert "by=3" in repr(fixed)
    with pytest.raises(TypeError, match="slots=True takes away"):
        nn.module_dataclass(slots=True)


def test_compiling_a_plain_function_embeds_a_modules_tensors():
    layer = Scale(2)
    run = compilation.compile(lambda x: layer(x))(lay(2))
    assert run(ones(2)).to_numpy().tolist() == [1, 1] and not run.weights
