# SPDX-License-Identifier: Apache-2.0
"""Runs both decoders on the same tokens: ``python -m examples.decoder_nn``."""

import numpy as np

from maxjax.experimental.tensor import Tensor

from . import flax_baseline
from .model import TOKENS, Config, build, random_weights


def main() -> None:
    """Prints how far the logits of the two are apart."""
    config = Config()
    decoder = build(config)
    weights = random_weights(decoder)
    run = decoder.compile(TOKENS, weights=weights)
    tokens = np.random.default_rng(1).integers(0, config.vocab, (2, 48))
    logits = run(Tensor.from_dlpack(tokens)).to_numpy()
    expected = flax_baseline.build(config, weights)(tokens.astype(np.int32))
    print(f"{config.layers} layers, {sum(w.size for w in weights.values()):,} parameters")
    print(f"logits {logits.shape}, at most {np.abs(logits - expected).max():.1e} from Flax's")


if __name__ == "__main__":
    main()
