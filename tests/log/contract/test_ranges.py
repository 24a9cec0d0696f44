"""Ranges of one partition, as tasks of Spark read them: each row once, and each punctuation once, however they are cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import NotFound
from headwater.log import Log
from headwater.log.errors import OffsetAhead
from headwater.log.port import Batch
from tests.laws import costly
from tests.log.adapters import Logs
from tests.log.adapters import all_logs as all_logs

SECOND = 1_000_000
names = itertools.count()


@pytest.fixture
def log(all_logs: Logs) -> Iterator[Log]:
    with all_logs() as opened:
        yield opened


def seen(batches: list[Batch]) -> list[int | str]:
    """Rows by their ids, punctuations by their times as text."""
    found: list[int | str] = []
    for batch in batches:
        found += [row["id"] for row in batch.rows()] if batch.punctuation_us is None else [f"p{batch.punctuation_us}"]
    return found


@costly(8)
@given(
    history=st.lists(st.one_of(st.integers(1, 4), st.just("p")), max_size=12),
    cuts=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=4),
)
def test_adjacent_ranges_give_each_row_and_each_punctuation_once(
    log: Log, history: list[int | str], cuts: list[tuple[int, int]]
) -> None:
    topic = f"t{next(names)}"
    log.create(topic, {"id": "int64"})
    expected: list[int | str] = []
    punctuations: dict[int, int] = {}
    rows = 0
    for step in history:
        if isinstance(step, int):
            log.append(topic, [{"id": rows + number} for number in range(step)])
            expected += range(rows, rows + step)
            rows += step
        else:
            at = len(expected)
            log.punctuate(topic, at)
            expected.append(f"p{at}")
            punctuations[rows] = punctuations.get(rows, 0) + 1
    assert {at: len(log.punctuations_at(topic, 0, at)) for at in range(rows + 1)} == {
        at: punctuations.get(at, 0) for at in range(rows + 1)
    }
    # A border is an offset, and how many of the punctuations there belong to the range before it.
    borders = sorted({(min(at, rows), min(told, punctuations.get(min(at, rows), 0))) for at, told in cuts})
    borders = [(0, 0), *borders, (rows, punctuations.get(rows, 0))]
    found: list[int | str] = []
    for (start, told), (stop, told_stop) in itertools.pairwise(borders):
        found += seen([*log.read_range(topic, 0, start=start, stop=stop, punctuations=(told, told_stop))])
    assert found == expected
    assert seen([*log.read_range(topic, 0, start=0, stop=rows)]) == list(range(rows))


def test_a_range_of_event_times_holds_all_of_its_rows(log: Log) -> None:
    log.create("t", {"id": "int64", "at": "timestamp[us]"}, time="at")
    for number in range(10):
        log.append("t", [{"id": number, "at": number * SECOND}])
    batches = [*log.read_range("t", 0, start=1, stop=9, columns=["id"], since_us=3 * SECOND, until_us=6 * SECOND)]
    found = [row["id"] for batch in batches for row in batch.rows()]
    assert {3, 4, 5} <= set(found) <= set(range(1, 9))
    assert all(batch.data.schema.names == ["id"] for batch in batches)


def test_a_punctuation_counts_up_to_the_end_of_the_range_and_moves_the_tail(log: Log) -> None:
    log.create("t", {"at": "timestamp"}, time="at", partitions=2)
    log.append("t", [{"at": 5}, {"at": 6}], partition=1)
    before = log.tails("t")
    log.punctuate("t", 9, partition=1)
    after = log.tails("t")
    assert (after[0], after[1] != before[1]) == (before[0], True)
    log.append("t", [{"at": 10}], partition=1)
    log.punctuate("t", 20, partition=1)
    found = [log.event_times("t", 1, start=0, stop=stop) for stop in (0, 1, 2, 3)]
    assert found == [(None, None), (5, None), (6, 9), (10, 20)]
    assert log.event_times("t", 1, start=0, stop=3, until_us=5) == (5, 20)


def test_a_range_outside_the_partition_is_refused(log: Log) -> None:
    log.create("t", {"id": "int64"})
    log.append("t", [{"id": 1}])
    with pytest.raises(OffsetAhead):
        list(log.read_range("t", 0, start=2, stop=3))
    for topic, partition in (("t", 5), ("u", 0)):
        with pytest.raises(NotFound):
            list(log.read_range(topic, partition, start=0, stop=1))
        with pytest.raises(NotFound):
            log.event_times(topic, partition, start=0, stop=1)
    with pytest.raises(NotFound):
        log.tails("u")


def test_a_watch_sees_rows_behind_its_positions(log: Log) -> None:
    log.create("t", {"id": "int64"}, partitions=2)
    log.append("t", [{"id": 1}], partition=0)
    watch = log.row_watch({"t": {0: 1, 1: 0}})
    assert not watch.arrived()
    log.append("t", [{"id": 2}], partition=1)
    assert watch.arrived()
    assert log.row_watch({"t": {0: 0}}).arrived()


def test_a_watch_sees_that_its_topic_was_deleted(log: Log) -> None:
    log.create("t", {"id": "int64"})
    watch = log.row_watch({"t": {0: 0}})
    log.delete("t")
    assert watch.arrived()
