# SPDX-License-Identifier: Apache-2.0
"""Runs the sentence encoder: a line when the first result is there, then one run per line.

Run as ``python -m benchmarks._encoder_worker ROOT WEIGHTS INPUTS``, where ROOT is ``jax`` (the
plain JAX encoder), ``maxjax``, or ``max`` with the example's imports changed to it.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._measure import stopwatch
from examples.minilm.assets import Config

__all__ = ["load"]


def load(root: str, weights: Path) -> Callable[..., Any]:
    """The encoder: three int64 arrays in, one float32 NumPy array out."""
    if root == "jax":
        baseline = importlib.import_module("examples.minilm.jax_baseline")
        config = Config()
        params = baseline.load_params(config, weights)
        return lambda *inputs: np.asarray(baseline.embed(params, *inputs, config=config))
    program = importlib.import_module("examples.minilm.model")
    driver = importlib.import_module(f"{root}.driver")
    engine = importlib.import_module(f"{root}.engine")
    session = engine.InferenceSession(devices=[driver.CPU()])
    model = program.load_model(session, weights, Config())
    return lambda *inputs: model.execute(*inputs)[0].to_numpy()


def main(root: str, weights: str, inputs: str) -> None:
    """Computes once, says so, and then once more for every line."""
    encoder = load(root, Path(weights))
    with np.load(inputs) as file:
        arrays = [file[name] for name in ("input_ids", "attention_mask", "token_type_ids")]
    checksum = float(np.abs(encoder(*arrays)).sum())
    print(json.dumps(checksum), flush=True)
    run = stopwatch(lambda: encoder(*arrays))
    for _ in sys.stdin:
        print(json.dumps(run()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
