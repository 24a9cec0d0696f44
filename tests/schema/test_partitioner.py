"""A key's partition never changes: not between releases, not when its column is widened, not with its neighbours."""

from __future__ import annotations

import datetime
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ArgumentInvalid
from headwater.schema import conform, key_hash, partition_of
from headwater.schema.evolution import widens

from .strategies import FLAT_TYPES, values

KEY_TYPES = [kind for kind in FLAT_TYPES if not pa.types.is_nested(kind)]

NOON = datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC)

# These values are the format of every log on disk. If one of them changes, rows of a key go to two partitions.
GOLDEN: list[tuple[pa.Array, str]] = [
    (pa.array([0]), "34c96acdcadb1bbb"),
    (pa.array([1]), "9f29cb17a2a49995"),
    (pa.array([-1]), "85d136adb773c6c9"),
    (pa.array([2**63 - 1]), "ff70cc60366e770c"),
    (pa.array([2**64 - 1], pa.uint64()), "85d136adb773c6c9"),
    (pa.array([73314510714175488]), "b4f1c94c7a5bae90"),
    (pa.array([0.0]), "34c96acdcadb1bbb"),
    (pa.array([1.5]), "49f7b96b6b5ccaf9"),
    (pa.array([math.nan]), "e9adb09fee122aac"),
    (pa.array([""]), "ef46db3751d8e999"),
    (pa.array(["a"]), "d24ec4f1a98c6e5b"),
    (pa.array(["žluťoučký kůň"]), "b6fc2f0be538ad41"),
    (pa.array([b"\x00\xff"]), "e0d97d9a03131d7d"),
    (pa.array([True]), "8a4127811b21e730"),
    (pa.array([False]), "e934a84adb052768"),
    (pa.array([Decimal("1.50")], pa.decimal128(5, 2)), "7599cf6a858394dd"),
    (pa.array([datetime.date(2024, 1, 31)]), "02e9f0dec14ab084"),
    (pa.array([NOON], pa.timestamp("us", tz="UTC")), "d8a882c6cda2ca3b"),
    (pa.array([None], pa.string()), "1001cce85ebbe3c1"),
]
GOLDEN_COMPOSITE = "ad3c24650075ce43"


def one_hash(*keys: pa.Array) -> str:
    return f"{key_hash(keys)[0]:016x}"


@pytest.mark.parametrize(("key", "expected"), GOLDEN)
def test_the_hash_of_a_key_is_pinned_for_ever(key: pa.Array, expected: str) -> None:
    assert one_hash(key) == expected


def test_the_hash_of_a_composite_key_is_pinned_for_ever() -> None:
    assert one_hash(pa.array(["ada"]), pa.array([7], pa.int8()), pa.array([None], pa.date32())) == GOLDEN_COMPOSITE


def test_partitions_are_pinned_for_ever() -> None:
    assert partition_of([pa.array(range(16))], 8).tolist() == [3, 5, 0, 1, 3, 5, 3, 5, 6, 4, 2, 7, 1, 3, 2, 0]
    assert partition_of([pa.array([f"user-{i}" for i in range(16)])], 8).tolist() == [
        0,
        0,
        1,
        6,
        0,
        3,
        0,
        5,
        2,
        0,
        4,
        6,
        0,
        2,
        2,
        7,
    ]


# -- the canonical form, written a second time and plainly ------------------------------------------------------------


def canonical(value: Any, kind: pa.DataType) -> bytes:
    if value is None:
        return b"\0nul"
    if isinstance(value, bool):
        return b"\1" if value else b"\0"
    if isinstance(value, int):
        return struct.pack("<Q" if value > 2**63 - 1 else "<q", value)
    if isinstance(value, float):
        return struct.pack("<d", math.nan if math.isnan(value) else value + 0.0)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Decimal):
        text = f"{value:f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return b"0" if text == "-0" else text.encode()
    return value if isinstance(value, bytes) else struct.pack("<q", microseconds(value, kind))


def microseconds(value: Any, kind: pa.DataType) -> int:
    one = datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // one
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)) // one
    if isinstance(value, datetime.time):
        return (datetime.datetime.combine(datetime.date.min, value) - datetime.datetime.min) // one
    assert pa.types.is_duration(kind)
    return int(value // one)


@st.composite
def key_columns(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    kind = draw(st.sampled_from(KEY_TYPES))
    return kind, draw(st.lists(values(kind), max_size=8))


@given(key_columns())
def test_a_hash_is_xxhash_of_the_canonical_bytes(column: tuple[pa.DataType, list[Any]]) -> None:
    kind, listed = column
    expected = [xxhash.xxh64_intdigest(canonical(value, kind)) for value in listed]
    assert key_hash([pa.array(listed, kind)]).tolist() == expected


@given(
    st.lists(
        st.tuples(
            *(st.one_of(st.none(), part) for part in (st.text(max_size=5), st.integers(-5, 5), st.binary(max_size=3)))
        ),
        max_size=8,
    )
)
def test_a_composite_hash_covers_each_part_with_its_length(rows: list[tuple[Any, ...]]) -> None:
    kinds = [pa.string(), pa.int64(), pa.binary()]
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    expected = [
        xxhash.xxh64_intdigest(
            b"".join(
                b"\xff\xff\xff\xff"
                if part is None
                else struct.pack("<I", len(canonical(part, kind))) + canonical(part, kind)
                for part, kind in zip(row, kinds, strict=True)
            )
        )
        for row in rows
    ]
    assert key_hash(arrays).tolist() == expected


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_vectorised_xxhash_is_the_library_s(words: list[int]) -> None:
    expected = [xxhash.xxh64_intdigest(struct.pack("<Q", word)) for word in words]
    assert key_hash([pa.array(words, pa.uint64())]).tolist() == expected


@given(st.sampled_from(KEY_TYPES), st.sampled_from(KEY_TYPES), st.data())
def test_widening_a_key_moves_no_row(old: pa.DataType, new: pa.DataType, data: st.DataObject) -> None:
    # An integer that becomes a float is another key; altering a key column so must raise.
    if not widens(old, new) or (pa.types.is_integer(old) and pa.types.is_floating(new)):
        return
    batch = pa.record_batch([pa.array(data.draw(st.lists(values(old), max_size=5)), old)], names=["a"])
    wide = conform(batch, pa.schema([("a", new)]))
    assert key_hash([wide.column(0)]).tolist() == key_hash([batch.column(0)]).tolist()


@given(key_columns(), st.integers(1, 1000), st.data())
def test_the_partition_of_a_key_does_not_depend_on_other_rows(
    column: tuple[pa.DataType, list[Any]], partitions: int, data: st.DataObject
) -> None:
    kind, listed = column
    array = pa.array(listed, kind)
    together = partition_of([array], partitions)
    assert together.dtype == np.int32
    assert ((together >= 0) & (together < partitions)).all()
    alone = [int(partition_of([pa.array([value], kind)], partitions)[0]) for value in listed]
    assert together.tolist() == alone
    start = data.draw(st.integers(0, len(listed)))
    assert partition_of([array[start:]], partitions).tolist() == alone[start:]


def test_zeros_and_nans_of_every_kind_are_one_key() -> None:
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    assert len(set(key_hash([pa.array([0.0, -0.0])]).tolist())) == 1
    assert len(set(key_hash([pa.array(nans)]).tolist())) == 1


def test_a_date_and_its_midnight_are_one_key() -> None:
    day = datetime.date(1900, 2, 28)
    midnight = datetime.datetime(1900, 2, 28, tzinfo=datetime.UTC)
    kinds = [pa.timestamp(unit, tz=zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")]
    hashes = {one_hash(pa.array([midnight], kind)) for kind in kinds}
    assert hashes == {one_hash(pa.array([day]))} == {one_hash(pa.array([day]).cast(pa.date64()))}


def test_parts_of_a_composite_key_do_not_run_together() -> None:
    one = key_hash([pa.array(["ab"]), pa.array(["c"])])
    other = key_hash([pa.array(["a"]), pa.array(["bc"])])
    assert one[0] != other[0]


def test_chunks_and_dictionaries_hash_as_their_values() -> None:
    plain = pa.array(["a", "b", None, "a"])
    expected = key_hash([plain]).tolist()
    assert key_hash([plain.dictionary_encode()]).tolist() == expected
    assert key_hash([pa.chunked_array([plain[:1], plain[1:]])]).tolist() == expected
    assert key_hash([plain.cast(pa.large_string())]).tolist() == expected


def test_one_partition_needs_no_hash() -> None:
    assert partition_of([pa.array([{"a": 1}])], 1).tolist() == [0]


def test_no_rows_have_no_partitions() -> None:
    assert partition_of([pa.array([], pa.string())], 4).tolist() == []
    assert partition_of([pa.array([], pa.string()), pa.array([], pa.int8())], 4).tolist() == []


@pytest.mark.parametrize(
    ("keys", "partitions"),
    [
        ([], 2),
        ([pa.array([1])], 0),
        ([pa.array([1])], -1),
        ([pa.array([[1]])], 2),
        ([pa.array([1]), pa.array([1, 2])], 2),
    ],
)
def test_what_cannot_be_a_key_is_refused(keys: list[pa.Array], partitions: int) -> None:
    with pytest.raises(ArgumentInvalid):
        partition_of(keys, partitions)


def test_keys_spread_evenly() -> None:
    counts = np.bincount(partition_of([pa.array(range(100_000))], 10), minlength=10)
    assert counts.min() > 9_500
    assert counts.max() < 10_500
