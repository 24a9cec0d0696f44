"""A changelog, written to a topic, is the table that it tells of."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import RowInvalid
from headwater.log import Topic
from headwater.spark.changelog import applied

KEYED = Topic(name="table", id="1", schema=pa.schema([("id", pa.int64()), ("v", pa.int64())]), key=("id",))
KEYLESS = replace(KEYED, key=())

Change = tuple[str, int, int]


def rows(*changes: Change) -> pa.RecordBatch:
    operations, keys, values = zip(*changes, strict=True) if changes else ((), (), ())
    return pa.record_batch(
        {"id": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64()), "_op": pa.array(operations, pa.string())}
    )


def upserts(*changes: Change) -> list[tuple[int, int, bool]]:
    found = applied(rows(*changes), KEYED).to_pylist()
    return [(row["id"], row["v"], row.get("_tombstone", False)) for row in found]


def test_insertions_pass_and_deletions_become_tombstones() -> None:
    assert upserts(("+I", 1, 10), ("-D", 1, 10)) == [(1, 10, False), (1, 10, True)]


def test_the_old_row_of_an_update_is_left_out() -> None:
    assert upserts(("+I", 1, 10), ("-U", 1, 10), ("+U", 1, 11)) == [(1, 10, False), (1, 11, False)]


def test_an_update_that_moves_a_row_to_another_key_deletes_the_old_key() -> None:
    assert upserts(("-U", 1, 10), ("+U", 2, 10)) == [(1, 10, True), (2, 10, False)]


@st.composite
def changelogs(draw: st.DrawFn) -> tuple[list[Change], dict[int, int]]:
    """Changes that a table may go through, and the table after them; an update may change the key."""
    table: dict[int, int] = {}
    changes: list[Change] = []
    for kind, key, value in draw(st.lists(st.tuples(st.sampled_from("IUD"), st.integers(0, 4), st.integers(0, 99)))):
        if kind == "I" and key not in table:
            changes.append(("+I", key, value))
            table[key] = value
        elif kind == "U" and table:
            old = sorted(table)[value % len(table)]
            if key == old or key not in table:
                changes += [("-U", old, table.pop(old)), ("+U", key, value)]
                table[key] = value
        elif kind == "D" and key in table:
            changes.append(("-D", key, table.pop(key)))
    return changes, table


@given(made=changelogs(), cut=st.integers(0, 40))
def test_the_last_row_of_each_key_is_the_table_however_the_changes_are_cut(
    made: tuple[list[Change], dict[int, int]], cut: int
) -> None:
    changes, table = made
    found: dict[int, int] = {}
    for part in (changes[:cut], changes[cut:]):
        for key, value, gone in upserts(*part):
            if gone:
                found.pop(key, None)
            else:
                found[key] = value
    assert found == table


def test_without_a_key_every_change_is_kept_with_its_operation_as_a_header() -> None:
    changes: list[Change] = [("+I", 1, 10), ("-U", 1, 10), ("+U", 1, 11), ("-D", 1, 11)]
    found = applied(rows(*changes), KEYLESS).to_pylist(maps_as_pydicts="strict")
    assert [(row["id"], row["v"], row["_headers"]) for row in found] == [
        (key, value, {"_op": operation.encode()}) for operation, key, value in changes
    ]


@given(headers=st.lists(st.none() | st.dictionaries(st.sampled_from("abc"), st.binary(max_size=3)), max_size=6))
def test_headers_that_are_there_stay_in_front(headers: list[dict[str, bytes] | None]) -> None:
    kind = pa.map_(pa.string(), pa.binary())
    given_headers = pa.array([None if one is None else list(one.items()) for one in headers], kind)
    batch = rows(*[("+I", number, 0) for number in range(len(headers))]).append_column("_headers", given_headers)
    found = applied(batch, KEYLESS).column("_headers").to_pylist(maps_as_pydicts="strict")
    assert found == [{**(one or {}), "_op": b"+I"} for one in headers]


def test_an_operation_that_is_none_is_refused_with_its_row() -> None:
    with pytest.raises(RowInvalid, match=r"Row 1 .* column '_op' is 'upsert'"):
        upserts(("+I", 1, 1), ("upsert", 1, 1))


def test_a_row_without_an_operation_is_an_insertion() -> None:
    batch = rows(("+I", 1, 1)).set_column(2, "_op", pa.array([None], pa.string()))
    assert applied(batch, KEYED).to_pylist() == [{"id": 1, "v": 1}]
