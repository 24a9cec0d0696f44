"""Pages of rows: each row once, in the order of the appends, forwards and backwards, over gaps that compaction has left."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import ManualClock
from headwater.config import Config
from headwater.errors import NotFound
from headwater.log import Batch, Log
from headwater.log import open as open_log
from headwater.log.embedded import local_log
from headwater.services.row_pages import last_offsets, read_page

Place = tuple[int, int, int]
#: Appends: how many microseconds after the one before, to which partition, and how many rows.
APPENDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 4)), max_size=12)


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def log(clock: ManualClock) -> Iterator[Log]:
    with (
        tempfile.TemporaryDirectory() as folder,
        open_log(Path(folder) / "log", config=Config(maintenance="manual"), clock=clock) as opened,
    ):
        yield opened


def filled(log: Log, clock: ManualClock, appends: list[tuple[int, int, int]], *, compact: bool) -> list[Place]:
    """A topic of three partitions, made again; gives the places of its rows in the order of the appends.

    Compaction joins the appends of a partition in one batch, and leaves gaps between its rows.
    """
    if "rows" in log.topics():
        log.delete("rows")
    log.create("rows", "id int64", key="id", partitions=3, compact=compact, durability="memory")
    number = 0
    for micros, partition, count in appends:
        clock.advance(seconds=micros / 1_000_000)
        rows = [{"id": (number + one) % 7} for one in range(count)]
        number += count
        log.append("rows", rows, partition=partition)
    if compact:
        local_log(log).maintain("rows", seal=True)
    found = log.read("rows", columns=["_appended_at", "_partition", "_offset"]).table().to_pydict()
    times = [int(time.timestamp() * 1_000_000) for time in found["_appended_at"]]
    return sorted(zip(times, found["_partition"], found["_offset"], strict=True))


def places(batches: list[Batch]) -> list[tuple[int, int]]:
    return [(batch.partition, row["_offset"]) for batch in batches for row in batch.rows()]


@given(appends=APPENDS, rows_max=st.integers(1, 6), compact=st.booleans())
def test_pages_give_each_row_once_in_the_order_of_the_appends(
    log: Log, clock: ManualClock, appends: list[tuple[int, int, int]], rows_max: int, compact: bool
) -> None:
    expected = [(partition, offset) for _, partition, offset in filled(log, clock, appends, compact=compact)]
    start, found, more = log.start_offsets("rows"), list[tuple[int, int]](), True
    while more:
        page = read_page(log, "rows", start=start, columns=["id", "_offset"], rows_max=rows_max)
        assert all(batch.data.schema.names == ["id", "_offset"] for batch in page.batches)
        assert sum(batch.data.num_rows for batch in page.batches) <= rows_max
        found, start, more = found + places(page.batches), page.next, page.more
    assert found == expected
    assert start == log.end_offsets("rows")


@given(appends=APPENDS, rows=st.integers(0, 9), compact=st.booleans(), data=st.data())
def test_the_last_rows_before_any_offsets_are_found(
    log: Log,
    clock: ManualClock,
    appends: list[tuple[int, int, int]],
    rows: int,
    compact: bool,
    data: st.DataObject,
) -> None:
    known = filled(log, clock, appends, compact=compact)
    before = {number: data.draw(st.integers(0, end)) for number, end in log.end_offsets("rows").items()}
    expected = [place for place in known if place[2] < before[place[1]]]
    begins = last_offsets(log, "rows", before, rows=rows)
    found = [place for place in expected if place[2] >= begins[place[1]]]
    assert found == (expected[-rows:] if rows else [])
    if len(expected) < rows:
        assert begins == dict.fromkeys(before, 0)


def test_a_page_ends_at_about_a_number_of_bytes(log: Log) -> None:
    log.create("large", {"text": "string"}, partitions=2, durability="memory")
    for number in range(8):
        log.append("large", [{"text": "x" * 1_000}], partition=number % 2)
    page = read_page(log, "large", start="earliest", rows_max=100, bytes_max=2_500)
    assert sum(batch.data.num_rows for batch in page.batches) == 3
    assert page.more
    rest = read_page(log, "large", start=page.next, rows_max=100)
    assert sum(batch.data.num_rows for batch in rest.batches) == 5


def test_without_order_one_partition_comes_after_the_other_as_it_is_stored(log: Log) -> None:
    log.create("stored", "id int64", partitions=2, durability="memory")
    for number in range(6):
        log.append("stored", [{"id": number}], partition=number % 2)
    page = read_page(log, "stored", start="earliest", rows_max=100, ordered=False)
    assert [batch.partition for batch in page.batches] == [0, 0, 0, 1, 1, 1]
    with pytest.raises(NotFound):
        read_page(log, "stored", start="earliest", partitions=[2], rows_max=1)
