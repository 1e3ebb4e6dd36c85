# SPDX-License-Identifier: Apache-2.0
"""The ops of the graph language."""

# ruff: noqa: F403 - each family file's __all__ is the public surface
import sys

from maxjax.graph.ops import allreduce as allreduce
from maxjax.graph.ops import bundled_allreduce as bundled_allreduce
from maxjax.graph.ops import complex as complex
from maxjax.graph.ops import random as random
from maxjax.graph.ops import reducescatter as reducescatter
from maxjax.graph.ops.activation import *
from maxjax.graph.ops.buffer import *
from maxjax.graph.ops.call import *
from maxjax.graph.ops.cast import *
from maxjax.graph.ops.collective import *
from maxjax.graph.ops.complex import as_interleaved_complex as as_interleaved_complex
from maxjax.graph.ops.constant import *
from maxjax.graph.ops.control import *
from maxjax.graph.ops.convolution import *
from maxjax.graph.ops.custom import *
from maxjax.graph.ops.debug import *
from maxjax.graph.ops.detection import *
from maxjax.graph.ops.elementwise import *
from maxjax.graph.ops.extend import *
from maxjax.graph.ops.fused_norm import *
from maxjax.graph.ops.gather import *
from maxjax.graph.ops.join import *
from maxjax.graph.ops.linalg import *
from maxjax.graph.ops.matrix import *
from maxjax.graph.ops.norm import *
from maxjax.graph.ops.pooling import *
from maxjax.graph.ops.quantized import *
from maxjax.graph.ops.range import *
from maxjax.graph.ops.rebind import *
from maxjax.graph.ops.reduction import *
from maxjax.graph.ops.resize import *
from maxjax.graph.ops.scatter import *
from maxjax.graph.ops.scatter_nd import *
from maxjax.graph.ops.select import *
from maxjax.graph.ops.shape import *
from maxjax.graph.ops.slicing import *
from maxjax.graph.ops.sort import *
from maxjax.graph.ops.spectral import *
from maxjax.graph.ops.streams import *
from maxjax.graph.ops.transcendental import *
from maxjax.graph.ops.unary import *
from maxjax.graph.value import TensorValue

# The operators of a tensor value are calls of these functions.
TensorValue._ops = sys.modules[__name__]
