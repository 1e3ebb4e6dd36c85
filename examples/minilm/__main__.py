# SPDX-License-Identifier: Apache-2.0
"""Which sentences mean the same: ``python -m examples.minilm "A sentence." "Another one."``."""

import sys

from maxjax.engine import InferenceSession

from .model import load_model
from .tokenizer import encode


def main(sentences: list[str]) -> None:
    """Prints the cosine similarity of every pair, the most alike first."""
    if len(sentences) < 2:
        sys.exit('give two sentences or more: python -m examples.minilm "One." "Another."')
    model = load_model(InferenceSession())
    embeddings = model.execute(*encode(sentences))[0].to_numpy()
    similarity = embeddings @ embeddings.T
    pairs = [(i, j) for j in range(len(sentences)) for i in range(j)]
    for i, j in sorted(pairs, key=lambda pair: -similarity[pair]):
        print(f"{similarity[i, j]:6.3f}  {sentences[i]}  |  {sentences[j]}")


if __name__ == "__main__":
    main(sys.argv[1:])
