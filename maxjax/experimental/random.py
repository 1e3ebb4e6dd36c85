# SPDX-License-Identifier: Apache-2.0
"""Random tensors, and the random state of eager ones."""

from maxjax.experimental.functional import gaussian, normal, uniform
from maxjax.experimental.realization_context import seed, set_seed

__all__ = ["gaussian", "normal", "seed", "set_seed", "uniform"]
