# SPDX-License-Identifier: Apache-2.0
"""Blurs a picture, finds its edges, and draws both with characters.

Written only against ``max``: a function over tensors, compiled once for pictures of every size,
with a blur and its strength as parameters.
"""

import sys

import numpy as np
from max.driver import CPU
from max.dtype import DType
from max.experimental import functional as F
from max.experimental.compilation import compile
from max.experimental.sharding import TensorLayout
from max.experimental.tensor import Tensor

SHADES = " .:-=+*#"
DEVICE = CPU()


def picture(height: int, width: int) -> np.ndarray:
    """A disc and a stripe on a slope of gray, ``(1, height, width, 1)``, with some noise."""
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    gray = 0.2 + 0.1 * x
    gray = np.where(x**2 + y**2 < 0.5, 0.9, gray)
    gray = np.where(abs(y - x / 2) < 0.12, 0.1, gray)
    gray += np.random.default_rng(5).normal(0, 0.02, gray.shape)
    return gray.astype(np.float32)[None, :, :, None]


def gaussian(size: int, sigma: float) -> np.ndarray:
    """A bell over ``size`` by ``size`` pixels that adds up to 1: ``(size, size, 1, 1)``."""
    bell = np.exp(-0.5 * ((np.arange(size) - size // 2) / sigma) ** 2)
    bell = np.outer(bell, bell) / bell.sum() ** 2
    return bell.astype(np.float32)[:, :, None, None]


def sobel() -> np.ndarray:
    """How a picture changes downward and to the right, as two filters: ``(3, 3, 1, 2)``."""
    down = np.outer([-1, 0, 1], [1, 2, 1])
    return (np.stack([down, down.T], axis=-1) / 8).astype(np.float32)[:, :, None, :]


def edges(image: Tensor, blur: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A smaller blurred picture, a smaller one of its edges, and the mean of all edges."""
    smooth = F.conv2d(image, blur, padding=(2, 2, 2, 2))
    change = F.conv2d(smooth, gradient, padding=(1, 1, 1, 1))
    strength = F.sqrt(F.sum(change * change, axis=-1))
    small = F.avg_pool2d(smooth, kernel_size=(4, 2), stride=(4, 2))
    strongest = F.max_pool2d(strength, kernel_size=(4, 2), stride=(4, 2))
    return small, strongest, F.mean(F.mean(F.mean(strength, axis=-1), axis=-2), axis=-3)


def drawn(image: np.ndarray) -> str:
    """A picture ``(1, rows, columns, 1)`` as lines of characters, the brightest as ``#``."""
    levels = image[0, :, :, 0] / image.max() * (len(SHADES) - 1)
    return "\n".join("".join(SHADES[round(float(v))] for v in row).rstrip() for row in levels)


def main(sizes: list[tuple[int, int]]) -> None:
    """Filters pictures of several sizes; the program is the same."""
    image_layout = TensorLayout(DType.float32, [1, "height", "width", 1], DEVICE)
    filters = [Tensor(gaussian(5, 1.2), device=DEVICE), Tensor(sobel(), device=DEVICE)]
    find = compile(edges)(image_layout, *(f.layout for f in filters))
    for height, width in sizes:
        small, strongest, mean = find(Tensor(picture(height, width), device=DEVICE), *filters)
        print(f"{height} by {width}: mean {mean.item():.6f}")
        for name, result in (("blurred", small), ("edges", strongest)):
            array = result.to_numpy()
            print(f"{name}, from {array.min():.6f} to {array.max():.6f}")
            print(drawn(array))


if __name__ == "__main__":
    given = [int(a) for a in sys.argv[1:]]
    main(list(zip(given[::2], given[1::2], strict=True)) or [(48, 64), (24, 48)])
