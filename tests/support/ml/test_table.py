# SPDX-License-Identifier: Apache-2.0
"""Tables of shapes and of specs do what their rows do one by one."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxjax.support.ml import (
    SHAPE_DTYPE,
    DType,
    RepKind,
    ShapeTable,
    SpecTable,
    TensorRankStyle,
    TensorShape,
    TensorSpec,
)

EDGES = [-1, 0, 1, 127, 128, 32767, 32768, 2**31 - 1, 2**31, 2**62]
DYNAMIC = TensorShape(TensorRankStyle.kDynamicallyRanked)
TYPES = [DType.f32, DType.bf16, DType.ui1, DType.f4e2m1fn, DType.complex_f64]
sizes = st.lists(st.sampled_from(EDGES), max_size=8)
shapes = st.one_of(st.just(DYNAMIC), sizes.map(TensorShape))
many = st.lists(shapes, max_size=12)
specs = st.builds(lambda s, t: TensorSpec(s, t) if s.has_rank() else TensorSpec(
    TensorRankStyle.kDynamicallyRanked, t), shapes, st.sampled_from(TYPES))  # fmt: skip
many_specs = st.lists(specs, max_size=12)


def check(table, rows):
    assert len(table) == len(rows) and list(table) == rows
    assert table.rows.dtype == SHAPE_DTYPE and table.rows.dtype.itemsize == 16
    assert table.ranks.tolist() == [s.rank for s in rows]
    assert table.dims.tolist() == [
        [*(s.dims if s.has_rank() else ()), *[0] * (8 - max(s.rank, 0))] for s in rows
    ]
    for row, shape in zip(table.rows, rows, strict=True):
        assert row["kind"] == shape.representation
        if shape.representation is not RepKind.kOutOfLine:
            assert row.tobytes() == shape.to_bytes()
    again = type(table).from_bytes(table.to_bytes(), len(rows))
    assert again.equals(table) and (again == table).all() and table.equals(again)
    assert pickle.loads(pickle.dumps(table)).equals(table)
    # 16 bytes a row, and the dims of those out of line.
    assert len(table.to_bytes()) == sum(len(s.to_bytes()) for s in rows)


@settings(max_examples=200)
@given(many)
def test_rows_are_the_shapes(rows) -> None:
    check(ShapeTable(rows), rows)


@settings(max_examples=200)
@given(st.lists(sizes, max_size=12))
def test_tuples_of_integers_take_the_fast_way_to_the_same(rows) -> None:
    tuples = [tuple(r) for r in rows]
    check(ShapeTable(tuples), [TensorShape(r) for r in rows])
    assert ShapeTable(rows).equals(ShapeTable(tuples))
    ranks = [len(r) for r in rows]
    dims = np.full((len(rows), 8), -77)  # beyond the rank anything may be
    for row, given_dims in zip(dims, rows, strict=True):
        row[: len(given_dims)] = given_dims
    assert ShapeTable.from_arrays(dims, ranks).equals(ShapeTable(tuples))


@given(many_specs)
def test_rows_are_the_specs(rows) -> None:
    table = SpecTable(rows)
    check(table, rows)
    assert table.dtypes.tolist() == [s.dtype.value for s in rows]
    assert table.shapes.equals(ShapeTable([s.shape for s in rows]))
    assert SpecTable.of(table.shapes, table.dtypes).equals(table)
    assert SpecTable.of(table.shapes, [s.dtype for s in rows]).equals(table)


@settings(max_examples=200)
@given(many, many, st.randoms())
def test_comparing(left, right, random) -> None:
    right = [random.choice([a, b]) for a, b in zip(left, right, strict=False)]
    left = left[: len(right)]
    a, b = ShapeTable(left), ShapeTable(right)
    expected = [x == y for x, y in zip(left, right, strict=True)]
    assert (a == b).tolist() == expected and (b == a).tolist() == expected
    assert (a != b).tolist() == [not e for e in expected]
    assert a.equals(b) == all(expected) == b.equals(a)
    for shape in left[:3]:
        assert (b == shape).tolist() == [y == shape for y in right]
    # Parts of one table share what is out of line.
    assert (a[::-1] == a[::-1]).all() and (a == a[::-1]).tolist() == [
        x == y for x, y in zip(left, left[::-1], strict=True)
    ]


@settings(max_examples=200)
@given(many, many_specs)
def test_sorting(rows, spec_rows) -> None:
    for table, given_rows in ((ShapeTable(rows), rows), (SpecTable(spec_rows), spec_rows)):
        order = sorted(range(len(given_rows)), key=given_rows.__getitem__)
        assert table.argsort().tolist() == order
        assert list(table.sorted()) == sorted(given_rows)
        different, which = table.unique()
        assert list(different) == sorted(set(given_rows))
        assert different[which].equals(table)


@given(many, many_specs)
def test_counting(rows, spec_rows) -> None:
    def every(call, items):
        try:
            return [call(i) for i in items]
        except ValueError:
            return None

    table, spec_table = ShapeTable(rows), SpecTable(spec_rows)
    counts = every(lambda s: s.num_elements, rows)
    if counts is None:
        with pytest.raises(ValueError, match=r"row \d+: the shape .* elements, more than"):
            table.num_elements()
    else:
        assert table.num_elements().tolist() == counts
    bytes_ = every(lambda s: s.size_in_bytes, spec_rows)
    if bytes_ is None:
        with pytest.raises(ValueError, match=r"row \d+: the spec "):
            spec_table.size_in_bytes()
    else:
        assert spec_table.size_in_bytes().tolist() == bytes_


def test_chunks_do_not_show() -> None:
    n = 150_000
    dims = np.arange(3 * n).reshape(n, 3) % 40_000
    a, b = ShapeTable.from_arrays(dims), ShapeTable.from_arrays(dims.copy())
    assert (a == b).all() and a.equals(b)
    for row in (0, 65535, 65536, 131071, 131072, n - 1):
        other = dims.copy()
        other[row, 2] += 1
        c = ShapeTable.from_arrays(other)
        assert np.flatnonzero(a != c).tolist() == [row] and not a.equals(c)
    assert np.array_equal(a == a[7], (dims == dims[7]).all(axis=1))


def test_sizes_at_the_limit() -> None:
    table = ShapeTable([(2**63 - 1,), (2**62, 2, 0), (2**62, 2, None)])
    assert table.num_elements().tolist() == [2**63 - 1, 0, -1]
    with pytest.raises(ValueError, match=r"row 1: the shape 4611686018427387904x2 has 9223372036"):
        ShapeTable([(1,), (2**62, 2)]).num_elements()
    limit = SpecTable([TensorSpec([2**63 - 1], "ui8"), TensorSpec([2**63 - 1], "ui1")])
    assert limit.size_in_bytes().tolist() == [2**63 - 1, 2**60]
    for bad in (TensorSpec([2**62], "ui16"), TensorSpec([3], DType(5))):
        with pytest.raises(ValueError, match="row 2: the spec "):
            SpecTable([*limit, bad]).size_in_bytes()  # pyright: ignore[reportArgumentType]


# ---------------------------------------------------------------- bad input


def test_rows_that_are_none() -> None:
    for bad, error in (
        ((1, -2), "row 1: dim 1 of a shape is -2"),
        ((1, 2**63), "row 1: dim 1 of a shape is 9223372036854775808"),
        ((1,) * 9, "row 1: a shape has at most 8 dims"),
    ):
        for rows in ([(1, 2), bad], [TensorShape([1]), bad]):
            with pytest.raises(ValueError, match=error):
                ShapeTable(rows)
    for bad in ((1, 2.0), (1, True), "1x2", (1, "2"), 3):
        with pytest.raises(TypeError):
            ShapeTable([(1, 2), bad])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="row 0: expected a TensorSpec"):
        SpecTable([TensorShape([1])])  # pyright: ignore[reportArgumentType]


def test_arrays_that_are_none() -> None:
    for dims, ranks, kind, error in (
        ([[1.0]], None, TypeError, "dims are integers, not float64"),
        ([[1]], [1.0], TypeError, "ranks are integers, not float64"),
        ([1], None, ValueError, r"the shape \(n, r\), r at most 8, and not \(1,\)"),
        ([[1] * 9], None, ValueError, "r at most 8"),
        ([[1]], [1, 2], ValueError, r"ranks have the shape \(1,\), and not \(2,\)"),
        ([[1], [1]], [1, 2], ValueError, "row 1: the rank 2 is not from -1 to 1"),
        ([[1], [1]], [1, -2], ValueError, "row 1: the rank -2 is not"),
        ([[1, 1], [1, -2]], None, ValueError, "row 1: dim 1 of a shape is -2"),
    ):
        with pytest.raises(kind, match=error):
            ShapeTable.from_arrays(dims, ranks)
    huge = np.array([[1], [2**63]], np.uint64)
    with pytest.raises(ValueError, match="row 1: dim 0 of a shape is 9223372036854775808"):
        ShapeTable.from_arrays(huge)
    assert len(ShapeTable.from_arrays(np.zeros((0, 3), int))) == 0
    assert list(ShapeTable.from_arrays(np.array([[3]], np.uint8), [-1])) == [DYNAMIC]


def test_what_is_not_comparable() -> None:
    shape, spec = TensorShape([1]), TensorSpec([1], "f32")
    table, spec_table = ShapeTable([shape]), SpecTable([spec])
    with pytest.raises(ValueError, match="tables of 1 and 2 shapes are not comparable"):
        _ = table == ShapeTable([shape, shape])
    for a, b in ((table, spec), (spec_table, shape), (table, spec_table), (table, (1,))):
        with pytest.raises(TypeError, match="compared with"):
            _ = a == b
    assert not table.equals(spec)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="unhashable"):
        hash(table)


def test_tables_do_not_change() -> None:
    table = ShapeTable([(2**40,), (1,)])
    for array in (table.rows, table.outlying, table[:1].rows, table.ranks):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError, match="no setting of 'rows'"):
        table.rows = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_indexing() -> None:
    table = ShapeTable([(1,), (2, 2**40), (3,)])
    assert table[-2] == TensorShape([2, 2**40]) and isinstance(table[1:], ShapeTable)
    assert list(table[[2, 0]]) == [table[2], table[0]]
    assert list(table[table == table[1]]) == [table[1]]
    with pytest.raises(IndexError):
        table[3]
    with pytest.raises(IndexError):
        table[np.zeros((1, 1), int)]
    assert repr(table) == "ShapeTable(['1', '2x1099511627776', '3'])"
    assert repr(ShapeTable([()] * 9)) == "ShapeTable(['', '', '', '', '', ''] and 3 more)"


def test_damaged_bytes() -> None:
    table = ShapeTable([(1, 2), (2**40, 3), (4,) * 5])
    good = table.to_bytes()
    with pytest.raises(ValueError, match="too few for 5 rows"):
        ShapeTable.from_bytes(good, 5)
    with pytest.raises(ValueError, match="too few"):
        ShapeTable.from_bytes(good, -1)
    for data in (good[:-1], good + b"\0"):
        with pytest.raises(ValueError, match=r"these 3 rows has 64 bytes, not 6[35]"):
            ShapeTable.from_bytes(data, 3)
    for at, value, error in (
        (12, 9, "row 0: byte 12 of a stored shape is 0x09"),
        (3, 0x80, "row 0: dim 0 of a stored shape is -2147483647"),
        (14, 9, "row 0: byte 14 of a stored shape is 0, 1 or 2, not 9"),
        (16, 1, "row 1: byte 0 of a stored shape is 0x01"),
        (29, 9, "row 1: byte 13 of a stored shape, its rank, is at most 8"),
        (53, 0, "row 1: byte 14 of a stored shape is 0x02, and the form of '0x3'"),
        (63, 0x80, "row 1: dim 1 of a stored shape is -9223372036854775805"),
        (45, 7, "row 2: byte 13 of a stored shape, its rank, is at most 6"),
    ):
        bad = bytearray(good)
        bad[at] = value
        with pytest.raises(ValueError, match=error):
            ShapeTable.from_bytes(bad, 3)
    spec_bytes = SpecTable([TensorSpec([1], "f32")] * 2).to_bytes()
    with pytest.raises(ValueError, match="row 1: byte 15 of a stored spec: no element type has"):
        SpecTable.from_bytes(spec_bytes[:31] + b"\0", 2)
    assert (ShapeTable.from_bytes(spec_bytes, 2) == TensorShape([1])).all()
    assert len(ShapeTable.from_bytes(b"", 0)) == 0


def test_codes_that_are_none() -> None:
    shapes_ = ShapeTable([(1,), (2,)])
    with pytest.raises(ValueError, match="row 1: byte 15 of a stored spec: no element type has"):
        SpecTable.of(shapes_, [81, 83])
    with pytest.raises(ValueError, match="2 shapes have as many dtypes"):
        SpecTable.of(shapes_, [81])
    for bad in ([81, 256], [81.0, 81.0], [-1, 81]):
        with pytest.raises(ValueError, match="the codes of element types are bytes"):
            SpecTable.of(shapes_, bad)
    assert list(SpecTable.of(shapes_, DType.f32)) == [
        TensorSpec([1], "f32"),
        TensorSpec([2], "f32"),
    ]


def test_a_table_of_every_kind_of_row() -> None:
    rows = [TensorShape(d) for r in range(3) for d in itertools.product(EDGES, repeat=r)]
    check(ShapeTable(rows), rows)
