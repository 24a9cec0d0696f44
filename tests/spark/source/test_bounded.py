"""A topic read as a table: what is there between two positions, no more and no less."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import HeadwaterError, SchemaConflict
from headwater.log import Log
from headwater.log.embedded import local_log
from headwater.log.errors import OffsetExpired
from headwater.spark.datasource import HeadwaterSource
from tests.spark.source.planner import Row, plan, table
from tests.spark.source.tasks import in_task

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def ids(rows: list[Row]) -> list[int]:
    return sorted(row["id"] for row in rows)


def test_a_topic_is_a_table(orders: Log) -> None:
    assert plan(orders).columns == ["id", "name"]
    assert ids(table(orders)) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": 3}, [3, 4, 13, 14]),
        ({"start": -1}, [4, 14]),
        ({"stop": 1}, [0, 10]),
        ({"start": 1, "stop": 2}, [1, 11]),
        ({"start": "latest"}, []),
        ({"start": json.dumps({"orders": {"0": 4, "1": 5}})}, [4]),
        ({"start": "2020-01-01", "stop": "2021-01-01T00:00:00Z"}, []),
        ({"start": "2020-01-01T00:00:00+00:00", "stop": json.dumps({"orders": {"0": 0, "1": 1}})}, [10]),
    ],
)
def test_positions_are_offsets_times_and_words(orders: Log, options: dict[str, Any], expected: list[int]) -> None:
    assert ids(table(orders, **options)) == expected


@pytest.mark.parametrize("compact", [False, True])
def test_deletions_of_keyed_topics_are_seen(log: Log, compact: bool) -> None:
    log.create("rates", {"country": "string", "percent": "int64"}, key="country", compact=compact)
    log.append("rates", [{"country": "DE", "percent": 19}, {"country": "DE", "_tombstone": True}])
    assert [row["_tombstone"] for row in table(log, "rates", metadata="all")] == [False, True]


def test_columns_and_system_columns_come_as_asked_for(orders: Log) -> None:
    assert plan(orders, columns="name,_offset").columns == ["name", "_offset"]
    assert plan(orders, columns="name", metadata="position").columns == ["name", "_partition", "_offset"]
    default = {"log": orders.address, "path": "orders"}
    assert HeadwaterSource(default).schema().fieldNames() == ["id", "name", "_partition", "_offset"]
    assert HeadwaterSource({**default, "columns": "name"}).schema().fieldNames() == ["name"]
    everything = ["id", "name", "_partition", "_offset", "_appended_at", "_sent_at", "_headers"]
    assert plan(orders, metadata=True).columns == everything
    rows = table(orders, metadata=True)
    assert [list(row) for row in rows] == [everything] * 10
    assert {(row["_partition"], row["_offset"]) for row in rows} == {
        (partition, offset) for partition in (0, 1) for offset in range(5)
    }


def test_headers_are_a_map(log: Log) -> None:
    log.create("orders", {"id": "int64"})
    log.append("orders", [{"id": 1}], headers=[{"trace": b"abc"}])
    assert table(log, columns="_headers") == [{"_headers": {"trace": b"abc"}}]


def test_rows_of_a_range_of_event_times_are_read(log: Log) -> None:
    log.create("orders", {"id": "int64", "at": "timestamp"}, time="at")
    for hour in range(4):
        log.append("orders", [{"id": hour, "at": NEW_YEAR + timedelta(hours=hour)}])
    log.append("orders", [{"id": 9, "at": None}])
    rows = table(log, since="2026-01-01T01:00:00Z", until="2026-01-01T03:00:00Z", columns="id")
    assert rows == [{"id": 1}, {"id": 2}]


def test_several_topics_share_a_read_and_each_row_says_whose_it_is(log: Log) -> None:
    log.create("orders.eu", {"id": "int64"})
    log.create("orders.us", {"id": "int64", "state": "string"})
    log.create("returns", {"id": "int64"})
    log.append("orders.eu", [{"id": 1}])
    log.append("orders.us", [{"id": 2, "state": "NY"}])
    log.append("returns", [{"id": 3}])
    assert sorted((row["_topic"], row["id"], row["state"]) for row in table(log, "orders.*")) == [
        ("orders.eu", 1, None),
        ("orders.us", 2, "NY"),
    ]
    assert ids(table(log, "orders.eu,returns")) == [1, 3]


def test_topics_whose_columns_differ_in_type_are_refused(log: Log) -> None:
    log.create("a", {"id": "int64"})
    log.create("b", {"id": "string"})
    with pytest.raises(SchemaConflict, match="in another topic of the same read"):
        plan(log, "a,b")


def test_a_partition_is_cut_where_more_tasks_are_wanted(orders: Log) -> None:
    planned = plan(orders, partitions_min=4)
    assert len(planned.source.reader(planned.schema).partitions()) == 4
    assert ids(table(orders, partitions_min=4)) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


@pytest.mark.parametrize(
    ("topic", "options", "problem"),
    [
        ("ordres", {}, "Did you mean 'orders'"),
        ("orders", {"column": "id"}, "did you mean `columns`"),
        ("orders", {"columns": "id,nmae"}, "no column 'nmae'"),
        ("orders", {"start": "soon"}, "'earliest', 'latest', an offset"),
        ("orders", {"start": '{"orders": [1]}'}, "'earliest', 'latest', an offset"),
        ("orders", {"start": '{"orders": {"7": 1}}'}, "a partition that exists"),
        ("orders", {"on_expired": "ignore"}, "fail or skip"),
        ("orders", {"since": "2026-01-01"}, "a topic with an event time"),
        ("orders", {"since": "yesterday"}, "an ISO 8601 time"),
        ("orders", {"rows_max": "0"}, "a whole number of at least 1"),
        ("orders", {"punctuations": "maybe"}, "true or false"),
        ("orders", {"metadata": "some"}, "none, position or all"),
        ("orders", {"asks": "questions"}, "a topic and the name of a query"),
        ("orders", {"format": "json"}, "needs the option `schema`"),
        ("", {}, "at least one topic"),
    ],
)
def test_a_wrong_option_is_named(orders: Log, topic: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(HeadwaterError, match=problem):
        table(orders, topic, **options)


def test_a_read_without_a_log_says_how_to_name_one() -> None:
    with pytest.raises(HeadwaterError, match=r"\.option\('log', './data'\)"):
        HeadwaterSource({"path": "orders"}).schema()


def test_a_session_may_know_the_log(orders: Log, tmp_path: Path) -> None:
    source = HeadwaterSource.bound(state=tmp_path, log=orders.address)
    assert source({"path": "orders"}).schema().fieldNames() == ["id", "name", "_partition", "_offset"]


def test_expired_rows_fail_or_are_skipped(log: Log) -> None:
    log.create("orders", {"id": "int64"}, segment_bytes_max="4 KiB", retention="4 KiB")
    for first in range(0, 2_000, 500):
        log.append("orders", [{"id": first + n} for n in range(500)])
    local_log(log).maintain()
    oldest = log.start_offsets("orders")[0]
    assert oldest > 0
    start = json.dumps({"orders": {"0": 0}})
    with pytest.raises(OffsetExpired, match="now begins at offset"):
        table(log, start=start)
    assert min(ids(table(log, start=start, on_expired="skip"))) == oldest


def test_a_table_inside_of_a_stream_ends_at_the_same_offset_in_all_tasks_of_a_batch(
    orders: Log, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"stop": "now", "state": tmp_path / "state"}
    with in_task(MicroBatch(query="q", number=0)):
        assert len(table(orders, **options)) == 10
    orders.append("orders", [{"id": 5}], partition=0)
    with in_task(MicroBatch(query="q", number=0, attempt=1)):
        assert len(table(orders, **options)) == 10
    with in_task(MicroBatch(query="q", number=1)):
        assert len(table(orders, **options)) == 11
    assert len(table(orders, **options)) == 11
