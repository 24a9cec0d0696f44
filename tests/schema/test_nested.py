"""Nested arrays taken apart and put together again, nulls within them found, and casts that lose nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.schema.cast import Misfit, cast_array, castable
from headwater.schema.nested import breach, holds_not_null, taken_apart, to_values
from headwater.schema.values import to_array

from .strategies import FLAT_TYPES, types, values


@st.composite
def arrays(draw: st.DrawFn) -> pa.Array:
    """An array of any type, perhaps a slice of a longer one."""
    kind = draw(types)
    array = to_array(draw(st.lists(values(kind), max_size=6)), kind)
    start = draw(st.integers(0, len(array)))
    return array[start:]


@given(arrays())
def test_values_of_an_array_are_those_that_arrow_gives(array: pa.Array) -> None:
    assert to_values(array, lambda flat: list(flat.to_pylist())) == array.to_pylist()


@pytest.mark.parametrize("start", [0, 1, 2])
def test_arrays_of_other_kinds_have_their_values_too(start: int) -> None:
    """Databases give lists of a fixed length, structs without fields, and unions."""
    pairs = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2))
    codes, numbers, words = pa.array([0, 1, 0], pa.int8()), pa.array([1, 2, 3]), pa.array(["a", "b", "c"])
    for array in (
        pairs,
        pa.array([None, [[1, 2]], [[3, 4]]], pa.list_(pa.list_(pa.int8(), 2), 1)),
        pa.array([{}, None, {}], pa.struct([])),
        pa.StructArray.from_arrays([pairs], names=["pair"]),
        pa.UnionArray.from_sparse(codes, [numbers, words]),
        pa.UnionArray.from_dense(codes, pa.array([1, 0, 0], pa.int32()), [numbers, words]),
    ):
        assert to_values(array[start:], lambda flat: list(flat.to_pylist())) == array[start:].to_pylist()


@given(types, st.data())
def test_values_become_the_array_that_arrow_would_make(kind: pa.DataType, data: st.DataObject) -> None:
    listed = data.draw(st.lists(values(kind), max_size=6))
    array = to_array(listed, kind)
    array.validate(full=True)
    assert array.equals(pa.array(listed, kind))


@given(arrays())
def test_a_cast_to_the_same_type_is_the_same_array(array: pa.Array) -> None:
    assert cast_array(array, array.type) is array


@given(arrays())
def test_whatever_fits_fits_as_nothing_but_itself(array: pa.Array) -> None:
    wrapped = pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)
    cast = cast_array(wrapped, pa.large_list(array.type))
    cast.validate(full=True)
    assert cast.to_pylist() == wrapped.to_pylist()


@given(st.sampled_from(FLAT_TYPES), st.sampled_from(FLAT_TYPES), st.data())
def test_a_cast_either_keeps_each_value_or_is_refused(old: pa.DataType, new: pa.DataType, data: st.DataObject) -> None:
    if not castable(old, new) or not castable(new, old) or pa.types.is_float32(new):
        return
    array = to_array(data.draw(st.lists(values(old), max_size=5)), old)
    try:
        there = cast_array(array, new)
    except Misfit:
        return
    if pa.types.is_temporal(new):
        assert cast_array(there, old).equals(array)
    else:
        assert plain(there) == plain(array)


def plain(array: pa.Array) -> list[Any]:
    """Values that Python compares across types: numbers as they are, text as its bytes."""
    return [value.encode() if isinstance(value, str) else value for value in array.to_pylist()]


def test_a_null_list_may_point_at_items_that_mean_nothing() -> None:
    offsets = pa.array([0, 2, 3], pa.int32())
    array = pa.ListArray.from_arrays(offsets, pa.array([1, None, 3]), mask=pa.array([True, False]))
    [items], counts = taken_apart(array)
    assert items.to_pylist() == [3]
    assert counts.tolist() == [0, 1]
    strict = pa.list_(pa.field("item", pa.int64(), nullable=False))
    assert breach(cast_array(array, strict)) is None


def has_breach(value: Any, kind: pa.DataType) -> bool:
    """The naive model: walk one Python value."""
    if value is None:
        return False
    if pa.types.is_struct(kind):
        parts = [(value.get(part.name), part) for part in kind]
    elif pa.types.is_map(kind):
        parts = [(item, kind.item_field) for _, item in value]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = [(item, kind.value_field) for item in value]
    else:
        return False
    return any((part is None and not field.nullable) or has_breach(part, field.type) for part, field in parts)


def loose(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values with nulls at every depth, whatever the type says."""
    if pa.types.is_struct(kind):
        return st.one_of(st.none(), st.fixed_dictionaries({part.name: loose(part.type) for part in kind}))
    if pa.types.is_map(kind):
        pairs = st.dictionaries(values(kind.key_type, nullable=False), loose(kind.item_type), max_size=2)
        return st.one_of(st.none(), pairs.map(lambda entries: list(entries.items())))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.one_of(st.none(), st.lists(loose(kind.value_type), max_size=2))
    return values(kind)


@given(types, st.data())
def test_a_null_that_must_not_be_is_found_wherever_it_is(kind: pa.DataType, data: st.DataObject) -> None:
    listed = data.draw(st.lists(loose(kind), max_size=4))
    found = breach(to_array(listed, kind))
    bad = [i for i, value in enumerate(listed) if has_breach(value, kind)]
    assert (found is None) == (not bad)
    if found is not None:
        assert found.row in bad
        assert found.where
    if bad:
        assert holds_not_null(kind)


def test_sixty_four_bit_words_of_numpy_are_read_exactly() -> None:
    far = np.datetime64(10**15, "s")
    assert to_array([far], pa.timestamp("s"))[0].value == 10**15
    with pytest.raises(Misfit):
        to_array([far], pa.timestamp("us"))
