# SPDX-License-Identifier: Apache-2.0
"""Layouts, which say where elements lie without looking at memory."""

import numpy as np
from hypothesis import given
from hypothesis.extra import numpy as hnp

from maxjax.driver.views import Layout


@given(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
def test_a_packed_layout_is_contiguous(shape):
    layout = Layout.packed(shape)
    assert layout.is_contiguous()
    if 0 not in shape:
        assert Layout.of(np.zeros(shape, np.int16)) == layout


def test_one_sized_axes_do_not_count():
    assert Layout((1, 2), (9, 1)).is_contiguous()
    assert not Layout((2, 2), (9, 1)).is_contiguous()
    assert not Layout((3,), (-1,)).is_contiguous()
    assert Layout((), ()).is_contiguous()
