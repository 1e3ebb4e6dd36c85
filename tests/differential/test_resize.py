# SPDX-License-Identifier: Apache-2.0
"""Resized integers at the edges of what floats hold, found by random programs."""

from typing import Any

import numpy as np

from maxjax.dtype import DType
from maxjax.engine import InferenceSession
from maxjax.graph import DeviceRef, Graph, TensorType, ops


def bicubic(image: np.ndarray[Any, Any], height: int, width: int) -> np.ndarray[Any, Any]:
    type_ = TensorType(DType.of(image.dtype), image.shape, DeviceRef.CPU())
    with Graph("g", input_types=[type_]) as g:
        g.output(ops.resize_bicubic(g.inputs[0].tensor, [*image.shape[:2], height, width]))
    return InferenceSession().load(g)(image)[0].to_numpy()


def test_an_image_of_equal_large_integers_stays_as_it_is():
    image = np.full((1, 1, 3, 1), 2**32 - 1, np.uint32)
    assert np.unique(bicubic(image, 5, 6)) == [2**32 - 1]


def test_a_byte_a_little_below_an_integer_is_cut_off():
    image = np.array([[[[2, 35, 215], [201, 169, 78]]]], np.uint8)
    assert bicubic(image, 5, 5)[0, 0, 3, 3] == 113
