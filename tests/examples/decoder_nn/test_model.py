# SPDX-License-Identifier: Apache-2.0
"""The decoder with ``nn`` equals the one with Flax, and is one body called once for each layer."""

import jax
import numpy as np
import pytest

from examples.decoder_nn import flax_baseline
from examples.decoder_nn.__main__ import main
from examples.decoder_nn.model import TOKENS, Config, build, random_weights
from maxjax.experimental.tensor import Tensor

CONFIG = Config()


@pytest.fixture(autouse=True)
def ordinary_jax():
    """The baseline is written for JAX as it comes, which broadcasts."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def decoder():
    return build(CONFIG)


@pytest.fixture(scope="module")
def weights(decoder):
    return random_weights(decoder)


def test_logits_equal_those_of_flax(decoder, weights):
    run = decoder.compile(TOKENS, weights=weights)
    with jax.numpy_rank_promotion("allow"):
        expected_model = flax_baseline.build(CONFIG, weights)
    for batch, seq in [(2, 17), (1, 1), (1, CONFIG.positions)]:
        tokens = np.random.default_rng(seq).integers(0, CONFIG.vocab, (batch, seq))
        logits = run(Tensor.from_dlpack(tokens)).to_numpy()
        expected = np.asarray(expected_model(tokens.astype(np.int32)))
        assert 0.5 < expected.std() < 5
        np.testing.assert_allclose(logits, expected, atol=1e-5, rtol=0)


def test_the_layers_are_one_body(decoder):
    text = str(decoder.trace(TOKENS))
    assert text.count("mo.graph @layer") == 1
    assert text.count("mo.call @layer") == CONFIG.layers == 4


def test_parameters_have_the_names_of_checkpoints(decoder):
    names = [n for n, _ in decoder.parameters]
    assert len(names) == 3 + 11 * CONFIG.layers
    assert {"embed_tokens.weight", "layers.3.self_attn.q_proj.weight", "lm_head.weight"} <= {*names}


def test_a_long_prompt_is_refused(decoder, weights):
    run = decoder.compile(TOKENS, weights=weights)
    tokens = np.zeros((1, CONFIG.positions + 1), np.int64)
    with pytest.raises(ValueError, match=str(CONFIG.positions)):
        run(Tensor.from_dlpack(tokens))


def test_at_once(weights):
    small = Config(layers=1, positions=4)
    decoder = build(small)
    own = {n: w for n, w in weights.items() if "layers." not in n or "layers.0." in n}
    decoder.load_state_dict(own)
    tokens = Tensor.from_dlpack(np.array([[1, 2, 3]]))
    compiled = decoder.compile(TOKENS)(tokens)
    np.testing.assert_allclose(decoder(tokens).to_numpy(), compiled.to_numpy(), atol=1e-5, rtol=0)


def test_main(capsys):
    main()
    assert "4 layers" in capsys.readouterr().out
