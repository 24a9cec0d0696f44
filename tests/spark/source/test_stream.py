"""A topic read as a stream: every row once and in order, in batches as large as allowed, whatever happens in between."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from headwater.engine import open_logs
from headwater.engine.micro_batch import BATCHES_KEPT, MicroBatch, questions_of, recorded, records_named, time_folder
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.embedded import local_log
from headwater.log.errors import OffsetExpired, ReadOnly
from headwater.spark import lag_of
from headwater.spark.errors import SourceChanged
from headwater.spark.source import reader as module
from tests.conditions import until
from tests.spark.source.planner import Checkpoint, as_json, limit_of, plan
from tests.spark.source.tasks import in_task

ALL = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


def ids(checkpoint: Checkpoint) -> list[int]:
    return sorted(row["id"] for row in checkpoint.rows)


def test_a_query_reads_what_is_there_and_later_what_has_come(orders: Log, checkpoint: Checkpoint) -> None:
    checkpoint(plan(orders))
    assert ids(checkpoint) == ALL
    orders.append("orders", [{"id": 5}], partition=0)
    assert checkpoint(plan(orders)) == [[{"id": 5, "name": None}]]
    assert checkpoint(plan(orders)) == []


def test_a_run_that_ends_when_it_has_caught_up_leaves_what_comes_meanwhile(orders: Log, checkpoint: Checkpoint) -> None:
    run = checkpoint.start(plan(orders, rows_max=8), available_now=True)
    run.trigger()
    orders.append("orders", [{"id": 5}], partition=0)
    while run.trigger() is not None:
        pass
    assert ids(checkpoint) == ALL
    checkpoint(plan(orders))
    assert ids(checkpoint) == sorted([*ALL, 5])


def test_batches_are_no_larger_than_allowed_and_all_rows_come(orders: Log, checkpoint: Checkpoint) -> None:
    assert [len(batch) for batch in checkpoint(plan(orders, rows_max=4))] == [4, 4, 2]
    assert ids(checkpoint) == ALL


def test_bytes_limit_a_batch_too(orders: Log, checkpoint: Checkpoint) -> None:
    size = sum(info.bytes for info in orders.describe("orders").partitions)
    batches = checkpoint(plan(orders, rows_max="none", bytes_max=size // 2))
    assert len(batches) >= 2
    assert ids(checkpoint) == ALL


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"rows_max": 7}, ReadMaxRows(7)),
        ({"rows_max": 7, "bytes_max": 9}, ReadMaxRows(7)),
        ({"rows_max": "none", "bytes_max": "1 KiB"}, ReadMaxBytes(1024)),
        ({"rows_max": "none"}, ReadAllAvailable()),
    ],
)
def test_the_reader_asks_spark_for_the_limit_of_its_options(
    orders: Log, checkpoint: Checkpoint, options: dict[str, Any], limit: ReadLimit
) -> None:
    assert limit_of(checkpoint.start(plan(orders, **options)).reader) == limit


def test_a_stream_that_is_given_a_stop_reads_no_further(orders: Log, checkpoint: Checkpoint) -> None:
    planned = plan(orders, stop=json.dumps({"orders": {"0": 2, "1": 1}}))
    run = checkpoint.start(planned)
    run.trigger()
    assert ids(checkpoint) == [0, 1, 10]
    assert run.trigger() is None
    beyond = Checkpoint()
    assert beyond(plan(orders, start=3, stop=json.dumps({"orders": {"0": 2, "1": 1}}))) == [[]], "it never goes back"


def test_new_partitions_and_topics_are_picked_up_from_their_beginning(orders: Log, checkpoint: Checkpoint) -> None:
    checkpoint(plan(orders, "ord*", start="latest"))
    assert ids(checkpoint) == []
    orders.alter("orders", partitions=3)
    orders.append("orders", [{"id": 20}], partition=2)
    orders.create("ordered", {"id": "int64"})
    orders.append("ordered", [{"id": 30}])
    checkpoint(plan(orders, "ord*", start="latest"))
    assert ids(checkpoint) == [20, 30]


def test_a_partition_is_cut_where_more_tasks_are_wanted(orders: Log, checkpoint: Checkpoint) -> None:
    run = checkpoint.start(plan(orders, partitions_min=4))
    start = as_json(run.reader.initialOffset())
    end = as_json(run.reader.latestOffset(start, limit_of(run.reader)))
    assert len(run.reader.partitions(start, end)) == 4
    run.trigger()
    assert ids(checkpoint) == ALL


def test_the_latest_offset_that_is_reported_says_how_far_behind_a_query_is(orders: Log, checkpoint: Checkpoint) -> None:
    run = checkpoint.start(plan(orders, rows_max=4), available_now=True)
    lags = []
    while run.trigger() is not None:
        source = {"endOffset": checkpoint.offsets[-1], "latestOffset": json.dumps(run.reader.reportLatestOffset())}
        lags.append(lag_of({"sources": [source]}))
    assert lags == [{"orders": 6}, {"orders": 2}, {"orders": 0}]
    assert lag_of(None) == {}


def test_an_append_ends_the_sleep_of_a_stream_without_news(
    orders: Log, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = checkpoint.start(plan(orders))
    run.trigger()
    asleep, wait = threading.Event(), type(orders).wait

    # Any: whatever `wait` takes.
    def told(log: Log, *arguments: Any, **options: Any) -> Any:
        asleep.set()
        return wait(log, *arguments, **options)

    monkeypatch.setattr(type(orders), "wait", told)
    monkeypatch.setattr(module, "WAIT_SECONDS", 3600)  # longer than `until` waits
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run.trigger()), daemon=True)
    thread.start()
    until(asleep.is_set, "the stream sleeps")
    orders.append("orders", [{"id": 5}], partition=0)
    until(lambda: found, "the stream has seen the append")
    thread.join()
    assert found == [[{"id": 5, "name": None}]]


# -- batches that are repeated -------------------------------------------------------------------------------------


def test_a_repeated_batch_reads_the_same_rows_even_the_first_from_a_moving_start(
    orders: Log, checkpoint: Checkpoint
) -> None:
    [first] = checkpoint(plan(orders, start=-2))
    assert [row["id"] for row in first] == [3, 4, 13, 14]
    checkpoint.forget_commit()
    orders.append("orders", [{"id": n} for n in range(20, 25)], partition=0)
    again, rest = checkpoint(plan(orders, start=-2))
    assert again == first
    assert [row["id"] for row in rest] == [20, 21, 22, 23, 24]


def test_a_batch_that_is_repeated_under_another_limit_keeps_its_end(orders: Log, checkpoint: Checkpoint) -> None:
    run = checkpoint.start(plan(orders, rows_max=4))
    first = run.trigger()
    checkpoint.forget_commit()
    batches = checkpoint(plan(orders, rows_max=100))
    assert batches[0] == first
    assert [len(batch) for batch in batches] == [4, 6]


# -- topics that are not what they were ----------------------------------------------------------------------------


def test_a_topic_deleted_under_a_query_is_named(orders: Log, checkpoint: Checkpoint) -> None:
    planned = plan(orders)
    checkpoint(planned)
    orders.delete("orders")
    with pytest.raises(SourceChanged, match="Topic 'orders' is not what this query has been reading: it has been del"):
        checkpoint(planned)


def test_a_topic_deleted_while_a_query_runs_stops_it(orders: Log, checkpoint: Checkpoint) -> None:
    run = checkpoint.start(plan(orders))
    run.trigger()
    orders.delete("orders")
    with pytest.raises(SourceChanged, match="it has been deleted"):
        run.trigger()


def test_a_topic_made_again_between_the_plan_and_the_read_of_a_batch_is_named(
    orders: Log, checkpoint: Checkpoint
) -> None:
    reader = checkpoint.start(plan(orders)).reader
    start = as_json(reader.initialOffset())
    parts = reader.partitions(start, as_json(reader.latestOffset(start, ReadAllAvailable())))
    orders.delete("orders")
    orders.create("orders", {"id": "int64", "name": "string"}, partitions=2)
    with pytest.raises(SourceChanged, match="it has been deleted and made again"):
        list(reader.read(parts[1]))


def test_a_topic_of_a_pattern_that_was_deleted_stops_the_query(orders: Log, checkpoint: Checkpoint) -> None:
    orders.create("ordered", {"id": "int64"})
    checkpoint(plan(orders, "ord*"))
    orders.delete("ordered")
    with pytest.raises(SourceChanged, match=r"Topic 'ordered' is not what .* it has been deleted"):
        checkpoint(plan(orders, "ord*"))


def test_a_topic_made_again_is_another_topic(orders: Log, checkpoint: Checkpoint) -> None:
    checkpoint(plan(orders))
    orders.delete("orders")
    orders.create("orders", {"id": "int64", "name": "string"}, partitions=2)
    with pytest.raises(SourceChanged, match="it was deleted and made again"):
        checkpoint(plan(orders))


def test_a_checkpoint_of_another_topic_is_refused(orders: Log, checkpoint: Checkpoint) -> None:
    checkpoint(plan(orders))
    orders.create("returns", {"id": "int64", "name": "string"})
    with pytest.raises(SourceChanged, match="the checkpoint is of a query that read another topic"):
        checkpoint(plan(orders, "returns"))


# -- rows that have expired ----------------------------------------------------------------------------------------


@pytest.fixture
def expiring(log: Log) -> Log:
    log.create("orders", {"id": "int64"}, segment_bytes_max="4 KiB", retention="4 KiB")
    log.append("orders", [{"id": 0}])
    return log


def expire(log: Log) -> int:
    for first in range(0, 2_000, 500):
        log.append("orders", [{"id": first + n} for n in range(500)])
    local_log(log).maintain()
    return log.start_offsets("orders")[0]


def test_rows_that_expired_before_they_were_read_stop_the_query(expiring: Log, checkpoint: Checkpoint) -> None:
    checkpoint(plan(expiring))
    oldest = expire(expiring)
    with pytest.raises(OffsetExpired, match=f"now begins at offset {oldest}, but a reader asked for 1"):
        checkpoint(plan(expiring))


def test_rows_that_expired_are_skipped_on_request_and_counted(expiring: Log, checkpoint: Checkpoint) -> None:
    checkpoint(plan(expiring, on_expired="skip"))
    oldest = expire(expiring)
    checkpoint(plan(expiring, on_expired="skip"))
    assert len(ids(checkpoint)) == 1 + 2_001 - oldest
    folder = time_folder(expiring.home.parent / "state", checkpoint.query)
    [record] = records_named(folder, "skipped-")
    assert record == {"start": 1, "stop": oldest}


# -- the schema changes under a query ------------------------------------------------------------------------------


def test_a_query_keeps_its_schema_until_it_is_restarted(orders: Log, checkpoint: Checkpoint) -> None:
    planned = plan(orders)
    checkpoint(planned)
    orders.alter("orders", schema="id int64, name string, note string")
    orders.append("orders", [{"id": 5, "name": "y", "note": "new"}], partition=0)
    assert checkpoint(planned) == [[{"id": 5, "name": "y"}]]
    orders.append("orders", [{"id": 6, "note": "newer"}], partition=0)
    assert checkpoint(plan(orders)) == [[{"id": 6, "name": None, "note": "newer"}]]


def test_a_widened_column_is_read_as_long_as_its_values_fit(log: Log, checkpoint: Checkpoint) -> None:
    log.create("orders", {"id": "int32"})
    log.append("orders", [{"id": 1}])
    planned = plan(log)
    checkpoint(planned)
    log.alter("orders", schema="id int64")
    log.append("orders", [{"id": 2}])
    checkpoint(planned)
    assert ids(checkpoint) == [1, 2]
    log.append("orders", [{"id": 2**40}])
    with pytest.raises(SourceChanged, match="column 'id' has become int64, and the query began with int32"):
        checkpoint(planned)
    checkpoint(plan(log))
    assert ids(checkpoint) == [1, 2, 2**40]


# -- questions to a query ------------------------------------------------------------------------------------------


def test_a_question_makes_a_batch_that_says_which_questions_it_answers(orders: Log, checkpoint: Checkpoint) -> None:
    state = orders.home.parent / "state"
    orders.create("questions", {"text": "string"})
    run = checkpoint.start(plan(orders, asks="questions/spend"))
    run.trigger()
    assert run.trigger() is None
    orders.append("questions", [{"text": "how much?"}])
    assert run.trigger() == []
    asked = questions_of(state, MicroBatch(query=checkpoint.query, number=1))
    assert asked is not None
    assert (asked["topic"], asked["query"], asked["start"], asked["stop"]) == (
        "questions", "spend", {"0": 0}, {"0": 1},
    )  # fmt: skip
    assert run.trigger() is None


def test_a_run_up_to_given_offsets_answers_no_questions(orders: Log, checkpoint: Checkpoint) -> None:
    orders.create("questions", {"text": "string"})
    run = checkpoint.start(plan(orders, asks="questions/spend", stop=json.dumps({"orders": {"0": 5, "1": 5}})))
    run.trigger()
    orders.append("questions", [{"text": "how much?"}])
    assert run.trigger() is None


# -- what tasks record ---------------------------------------------------------------------------------------------


def test_records_of_batches_long_past_are_removed(orders: Log, checkpoint: Checkpoint) -> None:
    reader = checkpoint.start(plan(orders)).reader
    start = as_json(reader.initialOffset())
    [first, _] = reader.partitions(start, as_json(reader.latestOffset(start, ReadAllAvailable())))
    folder = time_folder(orders.home.parent / "state", "q")
    for number in (0, 1, BATCHES_KEPT):
        with in_task(MicroBatch(query="q", number=number)):
            list(reader.read(first))
    names = {name.split("-")[1] for name in folder.names("time-")}
    assert names == {"1", str(BATCHES_KEPT)}
    assert recorded(folder, "time-0") is None


def test_a_log_that_cannot_be_written_can_be_read(
    orders: Log, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    # Any: whatever `open` takes.
    def opened(address: str, **options: Any) -> Log:
        asked.append(options.get("read_only", False))
        if not asked[-1]:
            raise ReadOnly(path=address)
        return open_log(address, **options)

    monkeypatch.setattr(open_logs, "open_log", opened)
    checkpoint(plan(orders))
    assert ids(checkpoint) == ALL
    assert asked == [False, True]
