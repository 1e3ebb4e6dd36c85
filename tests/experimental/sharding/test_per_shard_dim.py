# SPDX-License-Identifier: Apache-2.0
"""Dims with a size for each device."""

import copy
import operator
import pickle

import pytest

from maxjax.experimental.sharding.per_shard_dim import (
    PerShardDim,
    global_dim,
    global_shape,
    is_one,
    is_per_shard_dim,
    is_static,
    is_symbolic,
    local_dim_at,
    local_shape_at,
    make_per_shard_dim,
)
from maxjax.graph import Dim, Shape

parts = PerShardDim([3, 2])
five = PerShardDim([3, 2], global_dim=5)
names = PerShardDim(["a", "b"])
n = PerShardDim(["a", "b"], global_dim="n")


def test_text():
    assert [str(d) for d in (parts, five, names, n)] == ["(3 | 2)", "5", "(a | b)", "n"]
    assert repr(five) == "PerShardDim((Dim(3), Dim(2)), global=Dim(5))"
    assert repr(names) == "PerShardDim((Dim('a'), Dim('b')))"


def test_the_whole_is_what_it_is_compared_by():
    assert five == 5 and five == Dim(5) and five != 6 and n == "n" and n == Dim("n")
    assert Shape([five, n]) == [5, "n"]
    assert parts != 5 and parts == five and hash(parts) == hash(five) == hash(Dim(5))
    assert five != PerShardDim([4, 1], global_dim=5)
    assert PerShardDim([3, 3], global_dim=3) != PerShardDim([3, 3])


def test_as_a_number():
    assert int(five) == 5 and list(range(five)) == [0, 1, 2, 3, 4]
    with pytest.raises(TypeError, match=r"\(3 \| 2\) has a size on each device and none"):
        int(parts)
    with pytest.raises(TypeError, match="only a static dim converts"):
        int(n)


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.floordiv])
@pytest.mark.parametrize("other", [2, "k", Dim("k") + 1])
def test_arithmetic_is_that_of_each_size(op, other):
    for left, right in ((n, other), (other, n)):
        if isinstance(left, Dim) and not is_per_shard_dim(left):
            continue  # a plain dim on the left has arithmetic of its own
        result = op(left, right)
        assert isinstance(result, PerShardDim)
        for i in range(2):
            here = op(Dim(local_dim_at(Dim(left), i)), local_dim_at(Dim(right), i))
            assert result.per_shard[i] == here
        assert global_dim(result) == op(global_dim(Dim(left)), global_dim(Dim(right)))


def test_arithmetic_without_a_whole_gives_none():
    assert repr(parts + 1) == "PerShardDim((Dim(4), Dim(3)))"
    assert repr(five + parts) == "PerShardDim((Dim(6), Dim(4)))"
    assert repr(-five) == "PerShardDim((Dim(-3), Dim(-2)), global=Dim(-5))"


def test_sizes_of_different_meshes():
    with pytest.raises(ValueError, match="meshes with different numbers of devices: 2, 3"):
        five + PerShardDim([1, 1, 1])
    with pytest.raises(TypeError):
        five + 1.5
    with pytest.raises(ValueError, match="needs at least one size"):
        PerShardDim([])


def test_names_in_it():
    assert list(n.parameters) == ["a", "b"]
    assert n.substitute({"a": 3, "n": 7}) == PerShardDim([3, "b"], global_dim=7)
    assert n.evaluate({"n": 7}) == 7 and names.evaluate({"a": 3, "b": 4}) == 7


def test_what_it_is():
    assert [d.is_static for d in (parts, names)] == [True, False]
    assert is_static(five) and is_static(Dim(2)) and not is_static(n)
    assert is_symbolic(n) and is_symbolic(Dim("n")) and not is_symbolic(names)
    assert is_one(PerShardDim([1, 0], global_dim=1)) and is_one(1) and not is_one(five)


def test_one_size_for_all_is_that_size():
    assert make_per_shard_dim([Dim(3), Dim(3)]) is Dim(3)
    assert repr(make_per_shard_dim([Dim(3), Dim(3)], global_dim=Dim(6))) == (
        "PerShardDim((Dim(3), Dim(3)), global=Dim(6))"
    )
    assert is_per_shard_dim(make_per_shard_dim([Dim(3), Dim(3)], force_wrap=True))
    assert make_per_shard_dim([five, parts]).per_shard == (3, 2)


def test_shapes():
    shape = [five, Dim(4), names]
    assert local_shape_at(shape, 0) == [3, 4, "a"] and local_shape_at(shape, 1) == [2, 4, "b"]
    assert global_shape(shape) == [5, 4, Dim("a") + "b"]
    with pytest.raises(IndexError):
        local_shape_at(shape, 2)


@pytest.mark.parametrize("dim", [parts, five, n])
def test_copies(dim):
    for same in (copy.deepcopy(dim), pickle.loads(pickle.dumps(dim)), Dim(dim)):
        assert repr(same) == repr(dim)
    with pytest.raises(AttributeError, match="immutable"):
        dim.per_shard = ()
