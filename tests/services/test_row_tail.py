"""Following a topic: every row that comes is given or counted, over partitions that are added and gaps in the offsets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.config import Config
from headwater.log import Batch, Log
from headwater.log import open as open_log
from headwater.log.embedded import local_log
from headwater.services.row_tail import Follower, TailPage, tail_page

BEHIND_MAX = 100


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with (
        tempfile.TemporaryDirectory() as folder,
        open_log(Path(folder) / "log", config=Config(maintenance="manual")) as opened,
    ):
        yield opened


def empty(log: Log, *, partitions: int = 3) -> None:
    if "names" in log.topics():
        log.delete("names")
    log.create("names", "id int64", partitions=partitions, durability="memory")


def add(log: Log, partitions: list[int]) -> None:
    for partition in partitions:
        log.append("names", [{"id": 1}], partition=partition)


def places(batches: list[Batch]) -> list[tuple[int, int]]:
    return [(batch.partition, row["_offset"]) for batch in batches for row in batch.rows()]


def following(log: Log, last: TailPage, *, rows_max: int, behind_max: int = BEHIND_MAX) -> TailPage:
    return tail_page(log, last_topic(last), last.next, topic_id=last.topic_id, rows_max=rows_max, behind_max=behind_max)


def last_topic(last: TailPage) -> str:
    return last.batches[0].topic if last.batches else "names"


@given(
    first=st.lists(st.integers(0, 2), max_size=9),
    then=st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=6),
    most=st.integers(1, 9),
    data=st.data(),
)
def test_a_tail_gives_or_counts_every_row_that_comes(
    log: Log, first: list[int], then: list[list[int]], most: int, data: st.DataObject
) -> None:
    empty(log)
    add(log, first)
    before = log.end_offsets("names")
    page = tail_page(log, "names", rows_max=1, behind_max=most)
    assert (page.batches, page.next) == ([], before)
    given, skipped, came = list[tuple[int, int]](), 0, 0
    for partitions in then:
        add(log, partitions)
        came += len(partitions)
        if data.draw(st.booleans()):
            page = following(log, page, rows_max=data.draw(st.integers(1, 4)), behind_max=most)
            given, skipped = given + places(page.batches), skipped + page.skipped
            assert page.waiting == came - len(given) - skipped
        assert following(log, page, rows_max=0).waiting == came - len(given) - skipped
    while following(log, page, rows_max=0).waiting:
        page = following(log, page, rows_max=3, behind_max=most)
        given, skipped = given + places(page.batches), skipped + page.skipped
    assert len(given) + skipped == came
    assert len(set(given)) == len(given)
    assert all(offset >= before[partition] for partition, offset in given)


def test_a_tail_begins_with_the_last_rows(log: Log) -> None:
    empty(log)
    add(log, [0, 1, 0, 2])
    page = tail_page(log, "names", rows_max=100, behind_max=100, context_rows=2)
    assert places(page.batches) == [(0, 1), (2, 0)]
    assert page.next == log.end_offsets("names")


def test_the_last_rows_of_a_compacted_topic_are_given_though_they_lie_far_apart(log: Log) -> None:
    log.create("cards", {"key": "int64"}, key="key", compact=True, durability="os", segment_bytes_max=4096)
    log.append("cards", [{"key": number} for number in range(30)])
    for _ in range(20):
        log.append("cards", [{"key": 99}] * 100)
    log.append("cards", [{"key": number} for number in range(30, 39)])
    local_log(log).maintain("cards", seal=True)
    kept = [(0, row["_offset"]) for row in log.read("cards").rows()]
    assert len(kept) == 40
    assert log.end_offsets("cards")[0] > 20 * BEHIND_MAX
    page = tail_page(log, "cards", rows_max=25, behind_max=BEHIND_MAX, context_rows=50)
    assert (places(page.batches), page.skipped, page.waiting) == (kept, 0, 0)
    log.append("cards", [{"key": 7}])
    assert places(following(log, page, rows_max=25).batches) == [(0, log.end_offsets("cards")[0] - 1)]


def test_what_is_too_much_is_left_out_and_counted(log: Log) -> None:
    empty(log, partitions=1)
    page = tail_page(log, "names", rows_max=500, behind_max=BEHIND_MAX)
    log.append("names", [{"id": number} for number in range(300)])
    page = following(log, page, rows_max=500)
    assert (page.skipped, places(page.batches)) == (200, [(0, offset) for offset in range(200, 300)])


def test_a_topic_that_was_created_again_is_followed_from_its_start(log: Log) -> None:
    empty(log)
    add(log, [0, 0, 0])
    page = tail_page(log, "names", rows_max=10, behind_max=100)
    follower = Follower(log, "names", page.next)
    assert follower.read(rows_max=10) == []
    empty(log, partitions=2)
    add(log, [1, 0])
    assert places(following(log, page, rows_max=10).batches) == [(1, 0), (0, 0)]
    assert (follower.read(rows_max=10), follower.change) == ([], "created again")
    assert places(follower.read(rows_max=10)) == [(1, 0), (0, 0)]


@given(
    appends=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=10),
    rows_max=st.integers(1, 7),
    bytes_max=st.sampled_from([1, 50, 10_000]),
    chosen=st.booleans(),
)
def test_a_follower_gives_each_row_once_also_of_partitions_that_are_added(
    log: Log, appends: list[tuple[int, int]], rows_max: int, bytes_max: int, chosen: bool
) -> None:
    empty(log, partitions=2)
    follower = Follower(log, "names", {0: 0, 1: 0}, columns=["_offset"], chosen=chosen, rows_at_once_max=3)
    found: list[tuple[int, int]] = []

    def read() -> None:
        while (batches := follower.read(rows_max=rows_max, bytes_max=bytes_max)) or follower.change:
            assert sum(batch.data.num_rows for batch in batches) <= rows_max
            found.extend(places(batches))

    for partition, count in appends:
        if partition >= log.topic("names").partitions:
            log.alter("names", partitions=4)
        log.append("names", [{"id": 1}] * count, partition=partition)
        read()
        ends = {number: end for number, end in log.end_offsets("names").items() if number < 2 or not chosen}
        assert follower.positions == ends
        assert sorted(found) == [(number, offset) for number, end in ends.items() for offset in range(end)]


def test_a_follower_does_not_stop_at_the_bound_of_what_it_reads_at_once(log: Log) -> None:
    empty(log)
    for partition in range(3):
        log.append("names", [{"id": 1}] * 100, partition=partition)
    for rows_max in (1, 7, 10, 30):
        follower = Follower(log, "names", {0: 0, 1: 0, 2: 0}, rows_at_once_max=10)
        count = 0
        while batches := follower.read(rows_max=rows_max):
            count += sum(batch.data.num_rows for batch in batches)
        assert count == 300
