from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, Closed, UsageError
from headwater.log import Log
from headwater.log.errors import OffsetAhead


@pytest.fixture
def filled(log: Log, clock: ManualClock) -> Log:
    """Ten rows, one each ten seconds, in small segments."""
    log.create("t", {"id": "int64"}, segment_bytes_max=1024)
    for number in range(10):
        log.append("t", [{"id": number}])
        clock.advance(seconds=10)
    return log


def ids(log: Log, **options: object) -> list[int]:
    return [row["id"] for row in log.read("t", columns=["id"], **options).rows()]  # type: ignore[arg-type]


def test_reading_starts_where_it_is_told(filled: Log) -> None:
    assert ids(filled) == list(range(10))
    assert ids(filled, start=7) == [7, 8, 9]
    assert ids(filled, start="latest") == []
    assert ids(filled, start=-3) == [7, 8, 9]
    assert ids(filled, start=3, stop=5) == [3, 4]
    assert ids(filled, start={0: 8}) == [8, 9]
    assert ids(filled, start=2, limit=3) == [2, 3, 4]


def test_reading_starts_at_a_time(filled: Log, clock: ManualClock) -> None:
    began = clock.now_us() - 100_000_000
    assert ids(filled, start=datetime.fromtimestamp((began + 35_000_000) / 1e6, tz=UTC)) == [4, 5, 6, 7, 8, 9]
    assert filled.offset_at("t", began) == {0: 0}
    assert filled.offset_at("t", began + 30_000_000) == {0: 3}
    assert filled.offset_at("t", began - 1) == {0: 0}
    assert filled.offset_at("t", clock.now_us()) == {0: 10}


def test_an_offset_never_given_out_is_refused(filled: Log) -> None:
    with pytest.raises(OffsetAhead):
        filled.read("t", start=11)
    assert ids(filled, start=10) == []


@pytest.mark.parametrize("start", ["middle", 1.5, True, None])
def test_a_start_that_means_nothing_is_refused(filled: Log, start: object) -> None:
    with pytest.raises(ArgumentInvalid):
        filled.read("t", start=start)  # type: ignore[arg-type]


def test_only_the_columns_asked_for_are_read(filled: Log) -> None:
    reader = filled.read("t", columns=["_offset", "id", "_partition"])
    assert reader.schema.names == ["_offset", "id", "_partition"]
    assert reader.rows()[3] == {"_offset": 3, "id": 3, "_partition": 0}
    with pytest.raises(UsageError, match="no column 'nope'"):
        filled.read("t", columns=["nope"])


def test_a_read_is_bounded_by_the_end_when_it_began(filled: Log) -> None:
    reader = filled.read("t")
    filled.append("t", [{"id": 10}])
    assert reader.count() == 10


def test_rows_come_out_as_arrow_pandas_polars_and_dicts(filled: Log) -> None:
    reader = filled.read("t", columns=["id"])
    assert reader.table().num_rows == 10
    assert reader.pandas()["id"].tolist() == list(range(10))
    assert reader.polars()["id"].to_list() == list(range(10))


def test_a_batch_outlives_its_topic(filled: Log) -> None:
    batches = list(filled.read("t", columns=["id"]))
    filled.delete("t")
    assert [value for batch in batches for value in batch.column("id").to_pylist()] == list(range(10))


def test_wait_returns_at_once_when_there_is_something(filled: Log) -> None:
    assert filled.wait("t", after={0: 5}, seconds=0)
    assert not filled.wait("t", after={0: 10}, seconds=0)


def test_a_waiting_reader_is_woken_by_an_append(filled: Log) -> None:
    woken = threading.Event()

    def wait() -> None:
        if filled.wait("t", after={0: 10}, seconds=30):
            woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    filled.append("t", [{"id": 10}])
    thread.join(timeout=30)
    assert woken.is_set()


def test_a_closed_log_says_so(filled: Log) -> None:
    filled.close()
    filled.close()
    with pytest.raises(Closed):
        filled.read("t")
    with pytest.raises(Closed):
        filled.append("t", [{"id": 1}])
