# SPDX-License-Identifier: Apache-2.0
"""What can be given as a weight."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from maxjax.driver import Buffer
from maxjax.dtype import DType
from maxjax.engine.weights import as_array, bind
from maxjax.graph import DeviceRef, TensorType

NARROW = np.arange(3).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    "value", [NARROW, jnp.asarray(NARROW), Buffer.from_numpy(NARROW)], ids=["numpy", "jax", "ours"]
)
def test_arrays_of_element_types_that_numpy_lacks(value):
    declared = {"w": TensorType(DType.bfloat16, [3], DeviceRef.CPU())}
    array = bind("g", declared, {"w": value})["w"]
    assert array.dtype == ml_dtypes.bfloat16
    assert np.asarray(array).astype(float).tolist() == [0, 1, 2]


def test_what_is_no_array():
    with pytest.raises(TypeError, match="expected an array, got list"):
        as_array([1.0])
