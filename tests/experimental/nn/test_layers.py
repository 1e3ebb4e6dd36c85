# SPDX-License-Identifier: Apache-2.0
"""The layers' values, against NumPy, JAX and Flax, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from maxjax.driver import CPU
from maxjax.dtype import DType
from maxjax.experimental import functional as F
from maxjax.experimental import nn
from maxjax.experimental.sharding import TensorLayout
from maxjax.experimental.tensor import Tensor

rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def ordinary_jax():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def lay(*shape, dtype=DType.float32):
    return TensorLayout(dtype, list(shape), CPU())


def put(a, dtype=np.float32):
    return Tensor.from_dlpack(np.ascontiguousarray(a, dtype))


def draw(*shape):
    return rng.normal(size=shape).astype(np.float32)


def lazy(build):
    with F.lazy():
        return build()


def filled(module):
    """Random values for a module's parameters."""
    weights = {n: draw(*map(int, t.shape)) for n, t in module.parameters}
    module.load_state_dict(weights)
    return weights


def close(a, b, atol=2e-5):
    np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b), atol=atol, rtol=1e-5)


def test_parameters_are_drawn_from_the_normal_distribution():
    weight = nn.Linear(200, 100).weight.to_numpy()
    assert abs(weight.mean()) < 0.05 and abs(weight.std() - 1) < 0.05
    assert not np.array_equal(weight, nn.Linear(200, 100).weight.to_numpy())


def test_linear():
    layer = lazy(lambda: nn.Linear(3, 2))
    w = filled(layer)
    x = draw(4, 5, 3)
    run = layer.compile(lay("a", "b", 3))
    close(run(put(x)).to_numpy(), x @ w["weight"].T + w["bias"])
    close(layer(put(x)).to_numpy(), x @ w["weight"].T + w["bias"])
    with pytest.raises(TypeError, match="takes no quant_config"):
        nn.Linear(3, 2, quant_config=object())
    with pytest.raises(ValueError, match="matmul"):
        layer.trace(lay("n", 4))


def test_embedding_of_several_dimensions():
    table = lazy(lambda: nn.Embedding(10, dims=[2, 3]))
    w = filled(table)["weight"]
    run = table.compile(lay("n", 2, dtype=DType.int64))
    ids = rng.integers(0, 10, (4, 2))
    close(run(put(ids, np.int64)).to_numpy(), w[ids])
    assert repr(table) == "Embedding(vocab_size=Dim(10), dims=[Dim(2), Dim(3)])"
    with pytest.raises(TypeError, match="see dims"):
        _ = table.dim
    with pytest.raises(TypeError, match="either dim"):
        nn.Embedding(10)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_norms_of_the_last_axis(dtype):
    x = draw(5, 8).astype(dtype)
    wide = x.astype(np.float32)
    tolerance = 2e-5 if dtype is np.float32 else 0.06
    weight, bias = draw(8), draw(8)
    root = np.sqrt(np.square(wide).mean(-1, keepdims=True) + 1e-6)
    plain = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    cases = [
        (nn.RMSNorm(8), wide / root * weight),
        (nn.GemmaRMSNorm(8), wide / root * (1 + weight)),
        (nn.LayerNorm(8), plain * weight + bias),
        (nn.LayerNorm(8, keep_dtype=False), plain * weight + bias),
        (nn.LayerNorm(8, use_bias=False), plain * weight),
        (nn.LayerNorm(8, elementwise_affine=False), plain),
    ]
    for norm, expected in cases:
        norm.load_state_dict({"weight": weight, "bias": bias} if list(norm.parameters) else {},
                             strict=False)  # fmt: skip
        out = norm.compile(lay("n", 8, dtype=DType.from_numpy(x.dtype)))(put(x, dtype))
        assert out.dtype == DType.from_numpy(x.dtype)
        close(out.to_numpy(), expected, tolerance)


def test_group_norm():
    x, weight, bias = draw(2, 6, 3, 3), draw(6), draw(6)
    groups = x.reshape(2, 2, -1)
    groups = groups - groups.mean(-1, keepdims=True)
    plain = (groups / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    norm = nn.GroupNorm(2, 6)
    norm.load_state_dict({"weight": weight, "bias": bias})
    expected = plain * weight[:, None, None] + bias[:, None, None]
    close(norm.compile(lay("n", 6, "h", "w"))(put(x)).to_numpy(), expected)
    bare = nn.GroupNorm(2, 6, affine=False)
    close(bare.compile(lay("n", 6, "h", "w"))(put(x)).to_numpy(), plain)
    with pytest.raises(ValueError, match="4 channels do not divide into 3 groups"):
        nn.GroupNorm(3, 4)


def test_conv2d_in_both_layouts():
    options = {"stride": 2, "padding": (1, 2), "num_groups": 2, "has_bias": True}
    conv = lazy(lambda: nn.Conv2d((3, 5), 4, 8, **options))
    w = filled(conv)
    x = draw(2, 9, 10, 4)
    out = conv.compile(lay("n", 9, 10, 4))(put(x)).to_numpy()
    expected = jax.lax.conv_general_dilated(
        x, w["weight"], (2, 2), [(1, 1), (2, 2)], feature_group_count=2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ) + w["bias"]  # fmt: skip
    close(out, expected)
    torch_like = lazy(lambda: nn.Conv2d((3, 5), 4, 8, **options, permute=True))
    torch_like.load_state_dict({"weight": w["weight"].transpose(3, 2, 0, 1), "bias": w["bias"]})
    permuted = torch_like.compile(lay("n", 4, 9, 10))(put(x.transpose(0, 3, 1, 2)))
    close(permuted.to_numpy().transpose(0, 2, 3, 1), out)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_groups": 3}, "do not divide into 3 groups"),
        ({"stride": (1, 2, 3)}, "stride is a number, or one for height"),
        ({"padding": (1, 2, 3)}, "padding is a number, two or four"),
    ],
)
def test_conv2d_refuses(options, text):
    with pytest.raises(ValueError, match=text):
        nn.Conv2d(3, 4, 8, **options)


def rotary_table(length, dim):
    angles = np.outer(np.arange(length), 100.0 ** -np.linspace(0, 1, dim // 2, endpoint=False))
    return np.stack([np.cos(angles), np.sin(angles)], -1).astype(np.float32)


@pytest.mark.parametrize("kind", [nn.RotaryEmbedding, nn.TransposedRotaryEmbedding])
def test_rotary(kind):
    table = rotary_table(16, 8)
    rope = kind(put(table))
    x = draw(2, 5, 3, 8)
    if kind is nn.RotaryEmbedding:
        pairs = x[..., 0::2] + 1j * x[..., 1::2]
    else:
        pairs = x[..., :4] + 1j * x[..., 4:]
    turned = pairs * (table[3:8, None, :, 0] + 1j * table[3:8, None, :, 1])
    parts = np.stack([turned.real, turned.imag], -1)
    if kind is nn.TransposedRotaryEmbedding:
        parts = np.moveaxis(parts, -1, -2)
    out = rope.compile(lay("b", "s", 3, 8), 3)(put(x), 3).to_numpy()
    close(out, parts.reshape(x.shape))
    close(rope(put(x), 3).to_numpy(), parts.reshape(x.shape))


def test_rotary_keeps_the_type_and_takes_symbolic_starts():
    rope = nn.RotaryEmbedding(put(rotary_table(16, 8)))
    assert rope.trace(lay(1, 4, 2, 8, dtype=DType.bfloat16)).out_layouts[0].dtype is DType.bfloat16

    class Cached(nn.Module):
        def __init__(self):
            self.rope = rope

        def forward(self, x, cache):
            return self.rope(x, cache.shape[0])

    x = draw(1, 4, 2, 8)
    out = Cached().compile(lay("b", "s", 2, 8), lay("past"))(put(x), put(np.zeros(5)))
    close(out.to_numpy(), rope(put(x), 5).to_numpy())


def test_rotary_refuses():
    rope = nn.RotaryEmbedding(put(rotary_table(16, 8)))
    with pytest.raises(ValueError, match=r"expected a tensor of shape \(..., seq, heads, 8\)"):
        rope.trace(lay("b", "s", 2, 6))
    with pytest.raises(ValueError, match="17"):
        rope.trace(lay(1, 17, 2, 8))


# ---------------------------------------------------------------- adapters


class Adapted(nn.Module):
    """A model that takes its adapters as arguments."""

    def __init__(self):
        self.q = nn.LoRA(nn.Linear(4, 6), max_num_loras=3, max_lora_rank=2, max_lora_seq_len=8)

    def forward(self, x, ids, offsets, end, a, b):
        slots = dict(nn.lora_parameters(self))
        slots["q.lora_a"].set(a)
        slots["q.lora_b"].set(b)
        for _, layer in nn.lora_layers(self):
            layer.set_lora_batch_info(ids, offsets, end)
        return self.q(x)


ROUTING = (
    lay("groups", dtype=DType.int32),
    lay("bounds", dtype=DType.uint32),
    lay("end", dtype=DType.int64),
)


def test_each_row_has_its_adapter():
    model = lazy(Adapted)
    w = filled(model)
    a, b, x = draw(3, 2, 4), draw(3, 6, 2), draw(9, 4)
    run = model.compile(lay("rows", 4), *ROUTING, lay(3, 2, 4), lay(3, 6, 2))
    for ids, bounds in [([2, 0], [0, 3, 7]), ([1], [0, 9]), ([0, -1, 2], [0, 2, 5, 8])]:
        expected = x @ w["q.weight"].T + w["q.bias"]
        for i, begin, end in zip(ids, bounds, bounds[1:], strict=False):
            if i >= 0:
                expected[begin:end] += x[begin:end] @ a[i].T @ b[i].T
        out = run(
            put(x), put(ids, np.int32), put(bounds, np.uint32), put([bounds[-1]], np.int64),
            put(a), put(b),
        )  # fmt: skip
        close(out.to_numpy(), expected)
    # The slots belong to the copy that was traced.
    with pytest.raises(RuntimeError, match="the adapters are not set"):
        model.q.lora_a.get()


def test_adapters_refuse():
    model = lazy(Adapted)
    layer = model.q
    with pytest.raises(TypeError, match="for a Linear layer, not for RMSNorm"):
        nn.LoRA(nn.RMSNorm(4), max_num_loras=1, max_lora_rank=1, max_lora_seq_len=1)
    with pytest.raises(TypeError, match="an adapter is a tensor"):
        layer.lora_a.set(1)
    with pytest.raises(ValueError, match=r"expected .*3, 2, 4.*got .*3, 2, 5"):
        layer.lora_a.set(put(draw(3, 2, 5)))
    with pytest.raises(RuntimeError, match="call set_lora_batch_info"):
        layer(put(draw(2, 4)))
    with pytest.raises(ValueError, match=r"shape \(rows, in_dim\)"):
        model.trace(lay("b", "s", 4), *ROUTING, lay(3, 2, 4), lay(3, 6, 2))


# ---------------------------------------------------------------- streams


def test_hyper_connection():
    gates = lazy(lambda: nn.HyperConnection(8, 3, hc_sinkhorn_iters=4, hc_eps=1e-2))
    w = filled(gates)
    x = draw(5, 3, 8)
    post, comb, y = gates.compile(lay("n", 3, 8))(put(x))
    flat = x.reshape(5, 24)
    mixes = flat @ w["hc_fn"].T / np.sqrt(np.square(flat).mean(-1, keepdims=True) + 1e-6)
    scale, base = w["hc_scale"], w["hc_base"]
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    pre = sigmoid(mixes[:, :3] * scale[0] + base[:3]) + 1e-2
    close(post.to_numpy(), 2 * sigmoid(mixes[:, 3:6] * scale[1] + base[3:6]), 1e-4)
    m = (mixes[:, 6:] * scale[2] + base[6:]).reshape(5, 3, 3)
    m = np.exp(m - m.max(-1, keepdims=True))
    m = m / m.sum(-1, keepdims=True) + 1e-2
    for i in range(4):
        if i:
            m = m / (m.sum(-1, keepdims=True) + 1e-2)
        m = m / (m.sum(-2, keepdims=True) + 1e-2)
    close(comb.to_numpy(), m, 1e-4)
    close(y.to_numpy(), np.einsum("nk,nkd->nd", pre, x), 1e-4)


def test_hyper_connection_mixes_without_growth():
    gates = lazy(lambda: nn.HyperConnection(8, 4))
    filled(gates)
    _, comb, _ = gates.compile(lay("n", 4, 8))(put(draw(6, 4, 8)))
    np.testing.assert_allclose(comb.to_numpy().sum(1), 1, atol=1e-3)
    with pytest.raises(ValueError, match=r"expected streams of shape \(rows, 4, 8\)"):
        gates.trace(lay("n", "s", 4, 8))


def test_layers_equal_those_of_flax():
    x = draw(3, 8)
    flax_layer = nnx.Linear(8, 5, rngs=nnx.Rngs(0))
    ours = nn.Linear(8, 5)
    ours.load_state_dict({"weight": flax_layer.kernel[...].T, "bias": flax_layer.bias[...]})
    close(ours(put(x)).to_numpy(), flax_layer(x))
