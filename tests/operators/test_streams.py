"""Keyed operators in real streaming queries: several partitions, several batches, one of them done again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater.log import EmbeddedLog
from headwater.log import open as open_log
from headwater.operators import Dedupe, Process, Sides, rebuild
from headwater.operators.keyed import BatchTime, Broadcast, Stepped, apply, due_keys
from headwater.operators.keyed.inspect import rescale, rows_of, states

SCHEMA = {"user": "string", "amount": "int64", "at": "timestamp"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with open_log(tmp_path / "log") as opened:
        opened.create("in", SCHEMA, partitions=4, key="user", durability="os")
        yield opened


def state_of(spark: SparkSession) -> Path:
    return Path(str(spark.conf.get("spark.headwater.state")))


def total(state: pa.Table, rows: pa.Table, _time: BatchTime) -> tuple[pa.Table, pa.Table]:
    """A running total per user."""
    parts = [state.select(["_key", "total"]), rows.select(["_key", "amount"]).rename_columns(["_key", "total"])]
    sums = pa.concat_tables(parts).group_by("_key").aggregate([("total", "sum")]).rename_columns(["_key", "total"])
    fresh = np.isin(np.asarray(sums.column("_key")), np.asarray(rows.column("_key")))
    return sums, sums.filter(pa.array(fresh))


def totals(**changes: Any) -> Process:
    given: dict[str, Any] = {"by": "user", "state": {"total": "int64"}, "output": {"user": "string", "total": "int64"}}
    return Process(step=total, **{**given, **changes})


class Query:
    """A streaming query over the topic, run until it has caught up, whose outputs are collected per batch."""

    def __init__(
        self,
        spark: SparkSession,
        log: EmbeddedLog,
        folder: Path,
        build: Callable[[DataFrame], DataFrame],
        sink: Callable[[DataFrame, int], None] | None = None,
        **options: Any,
    ) -> None:
        self.spark = spark
        self.log = log
        self.checkpoint = folder / "checkpoint"
        self.build = build
        self.options = options
        self.sink = sink
        self.batches: dict[int, list[dict[str, Any]]] = {}

    def source(self) -> DataFrame:
        reader = self.spark.readStream.format("headwater").option("log", str(self.log.path))
        for name, value in self.options.items():
            reader = reader.option(name, value)
        return reader.load("in")

    def run(self) -> None:
        def collect(rows: DataFrame, number: int) -> None:
            self.batches[number] = [row.asDict(recursive=True) for row in rows.collect()]

        query = (
            self.build(self.source())
            .writeStream.foreachBatch(self.sink or collect)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def forget_last_commit(self) -> None:
        """As if the driver had died after the batch was computed and before Spark wrote that down."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink(missing_ok=True)

    def query_id(self) -> str:
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])

    def rows(self) -> list[dict[str, Any]]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


def append(log: EmbeddedLog, rows: list[tuple[str | None, int, int]]) -> None:
    log.append("in", [{"user": user, "amount": amount, "at": at * 1_000_000} for user, amount, at in rows])


ROWS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(-9, 9), st.integers(0, 50)), min_size=1, max_size=30)


@given(batches=st.lists(ROWS, min_size=3, max_size=4), replay=st.integers(0, 2), partitions=st.sampled_from([2, 4]))
def test_the_stream_gives_what_the_batch_gives_over_any_split_and_replay(
    spark: SparkSession,
    log: EmbeddedLog,
    tmp_path: Path,
    batches: list[list[tuple[str, int, int]]],
    replay: int,
    partitions: int,
) -> None:
    shutil.rmtree(tmp_path / "query", ignore_errors=True)
    log.delete("in")
    log.create("in", SCHEMA, partitions=4, key="user", durability="os")
    query = Query(spark, log, tmp_path / "query", lambda rows: rows.transform(totals(partitions=partitions)))
    for number, rows in enumerate(batches):
        append(log, rows)  # type: ignore[arg-type]
        query.run()
        if number == replay:
            before = dict(query.batches)
            query.forget_last_commit()
            query.run()
            assert query.batches == before
    everything = log.read("in", columns=["user", "amount"]).table()  # noqa: F841 - DuckDB finds it by its name
    expected = duckdb.execute("SELECT user, sum(amount)::BIGINT AS total FROM everything GROUP BY user").fetchall()
    latest = {row["user"]: row["total"] for row in query.rows()}
    assert sorted(latest.items()) == sorted(expected)
    bounded = (
        spark.read.format("headwater").option("log", str(log.path)).load("in").transform(totals(partitions=partitions))
    )
    assert sorted((row.user, row.total) for row in bounded.collect()) == sorted(expected)


def test_dedupe_lets_one_row_of_each_id_pass_over_batches(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    build = lambda rows: rows.transform(Dedupe(by="user", on="at", within="1 hour", late_by="10 minutes"))  # noqa: E731
    query = Query(spark, log, tmp_path, build)
    for start in range(3):
        append(log, [(f"u{number}", start, 10 * start) for number in range(20)])
        query.run()
    passed = query.rows()
    assert sorted(row["user"] for row in passed) == sorted(f"u{number}" for number in range(20))
    assert {row["amount"] for row in passed} == {0}
    append(log, [("u1", 9, 3 * 3600)])
    query.run()
    append(log, [("u1", 10, 3 * 3600)])
    query.run()
    assert [row["amount"] for row in query.rows() if row["user"] == "u1"] == [0, 9]


def test_operators_chain_before_and_after_sparks_own(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    def build(rows: DataFrame) -> DataFrame:
        once = rows.filter("amount > 0").transform(Dedupe(by="user", on="at", within="1 hour", late_by="1 hour"))
        doubled = once.withColumn("amount", F.col("amount") * 2)
        return doubled.transform(totals()).filter("total < 100")

    query = Query(spark, log, tmp_path, build)
    append(log, [("a", 1, 1), ("a", 5, 2), ("b", -1, 1), ("b", 3, 3), ("c", 60, 1)])
    query.run()
    append(log, [("a", 7, 4), ("d", 4, 4)])
    query.run()
    assert sorted((row["user"], row["total"]) for row in query.rows()) == [("a", 2), ("b", 6), ("d", 8)]


def both(state: pa.Table, rows: pa.Table, _time: BatchTime) -> tuple[pa.Table, pa.Table]:
    """How many rows each of two inputs has had, per user."""
    inputs = np.asarray(rows.column("_input"))
    counted = pa.table(
        {
            "_key": rows.column("_key"),
            "left": pa.array((inputs == 0).astype(np.int64)),
            "right": pa.array((inputs == 1).astype(np.int64)),
        }
    )
    summed = (
        pa.concat_tables([state.select(["_key", "left", "right"]), counted])
        .group_by("_key")
        .aggregate([("left", "sum"), ("right", "sum")])
    )
    named = summed.rename_columns(["_key", "left", "right"])
    return named, named


def test_several_inputs_meet_by_key(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    operator = Process(
        step=both,
        by="user",
        state={"left": "int64", "right": "int64"},
        output={"user": "string", "left": "int64", "right": "int64"},
    )
    query = Query(spark, log, tmp_path, lambda rows: operator(rows.filter("amount < 5"), rows.filter("amount >= 5")))
    append(log, [("a", 1, 1), ("a", 7, 1), ("b", 9, 1)])
    query.run()
    append(log, [("a", 2, 1)])
    query.run()
    latest = {row["user"]: (row["left"], row["right"]) for row in query.rows()}
    assert latest == {"a": (2, 1), "b": (0, 1)}


def rated(state: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
    rules = {row["key"].decode(): int(row["value"]) for row in time.broadcast["rates"].to_pylist()}
    rates = pa.array(
        [
            rules.get(user, 1) * amount
            for user, amount in zip(rows.column("user").to_pylist(), rows.column("amount").to_pylist(), strict=True)
        ],
        pa.int64(),
    )
    return state.select(["nothing", "_key"]), pa.table({"_key": rows.column("_key"), "amount": rates})


def test_a_broadcast_table_has_one_version_per_batch(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    log.create("rates", durability="os")
    log.append("rates", [(b"a", b"10")])
    operator = Process(
        step=rated,
        by="user",
        state={"nothing": "int64"},
        output={"user": "string", "amount": "int64"},
        tables={"rates": Broadcast(log=str(log.path), topic="rates")},
    )
    query = Query(spark, log, tmp_path, lambda rows: rows.transform(operator))
    append(log, [("a", 1, 1)])
    query.run()
    log.append("rates", [(b"a", b"100")])
    query.forget_last_commit()
    query.run()
    assert [row["amount"] for row in query.batches[0]] == [10]
    append(log, [("a", 1, 1)])
    query.run()
    assert [row["amount"] for row in query.batches[1]] == [100]


def ring(state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:
    """Say so when a user has been silent for five seconds of processing time."""
    ringing = np.setdiff1d(due_keys(state, time), np.asarray(rows.column("_key")))
    touched = np.unique(np.asarray(rows.column("_key")))
    waiting = state.filter(pa.array(~np.isin(np.asarray(state.column("_key")), np.union1d(ringing, touched))))
    now = time.processing_us or 0
    fresh = pa.table(
        {"_wake_at_processing": pa.array(np.full(len(touched), now + 5_000_000)), "_key": pa.array(touched)}
    )
    silent = pa.table({"_key": pa.array(ringing), "silent": pa.array([True] * len(ringing), pa.bool_())})
    return Stepped(pa.concat_tables([waiting.select(["_wake_at_processing", "_key"]), fresh]), silent)


def test_timers_fire_without_new_input_by_the_clock_of_the_source(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    clock = tmp_path / "clock"
    clock.write_text("1000000")
    operator = Process(
        step=ring, by="user", state={"_wake_at_processing": "int64"}, output={"user": "string", "silent": "bool"}
    )
    query = Query(spark, log, tmp_path, lambda rows: rows.transform(operator), tick="1 second", clock=str(clock))
    append(log, [("a", 1, 1), ("b", 1, 1)])
    query.run()
    clock.write_text("3000000")
    append(log, [("b", 1, 1)])
    query.run()
    clock.write_text("7000000")
    query.run()
    assert [row["user"] for row in query.rows()] == ["a"]
    clock.write_text("9000000")
    query.run()
    assert sorted(row["user"] for row in query.rows()) == ["a", "b"]


def test_late_rows_are_put_aside_once_and_can_be_read(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    query = Query(spark, log, tmp_path, lambda rows: rows.transform(totals(on="at", late_by="5 seconds", name="t")))
    append(log, [(user, 1, 100) for user in "abcdefgh"])
    query.run()
    append(log, [("a", 1, 96), ("b", 1, 90)])
    query.run()
    query.forget_last_commit()
    query.run()
    side = state_of(spark) / query.query_id() / "t" / "sides" / "late"
    late = [row for path in side.iterdir() for row in pa.ipc.open_file(str(path)).read_all().to_pylist()]
    assert [(row["user"], row["_late_by_us"]) for row in late] == [("b", 5_000_000)]


def test_late_rows_and_output_reach_their_topics_in_one_transaction(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    from headwater.sinks import TopicSink

    log.create("out", {"user": "string", "total": "int64"}, key="user", durability="os")
    log.create("late", {**SCHEMA, "late_by_us": "int64"}, durability="os")
    sides = Sides(state=state_of(spark), operator="t", topics={"late": "late"})
    sink = TopicSink(log=log.path, topic="out", extra_parts=sides)
    query = Query(
        spark, log, tmp_path, lambda rows: rows.transform(totals(on="at", late_by="5 seconds", name="t")), sink=sink
    )
    append(log, [(user, 1, 100) for user in "abcdefgh"])
    query.run()
    append(log, [("a", 1, 96), ("b", 1, 90)])
    query.run()
    query.forget_last_commit()
    query.run()
    assert [(row["user"], row["amount"], row["late_by_us"]) for row in log.read("late").rows()] == [("b", 1, 5_000_000)]
    assert [row["total"] for row in log.read("out").rows() if row["user"] == "a"] == [1, 2]


def partial(rows: pa.Table) -> pa.Table:
    """Sums per user before the shuffle."""
    return rows.group_by("user").aggregate([("amount", "sum")]).rename_columns(["user", "amount"])


def test_a_combine_step_runs_before_the_shuffle_and_changes_nothing(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    schema = pa.schema([("user", pa.string()), ("amount", pa.int64())])
    operator = totals(name="t")
    query = Query(spark, log, tmp_path, lambda rows: apply(operator.contract, rows, combine=(partial, schema)))
    for start in range(2):
        append(log, [(f"u{number % 5}", number, 1) for number in range(start, start + 40)])
        query.run()
    everything = log.read("in", columns=["user", "amount"]).table()  # noqa: F841 - DuckDB finds it by its name
    expected = duckdb.execute("SELECT user, sum(amount)::BIGINT AS total FROM everything GROUP BY user").fetchall()
    assert sorted({row["user"]: row["total"] for row in query.rows()}.items()) == sorted(expected)


def test_state_can_be_seen_and_spread_over_other_partitions(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    few = Query(spark, log, tmp_path, lambda rows: rows.transform(totals(partitions=2, name="t")))
    append(log, [(f"u{number}", number, 1) for number in range(50)])
    few.run()
    folder = state_of(spark)
    found = list(states(folder, query=few.query_id()))
    assert [(one.operator, one.partition) for one in found] == [("t", 0), ("t", 1)]
    assert sum(one.rows for one in found) == 50
    assert rescale(folder, query=few.query_id(), operator="t", partitions=5) == 50
    many = Query(spark, log, tmp_path, lambda rows: rows.transform(totals(partitions=5, name="t")))
    append(log, [("u7", 1, 1)])
    many.run()
    assert [row["total"] for row in many.rows()] == [8]
    kept = rows_of(folder, query=few.query_id(), operator="t").to_pylist()
    assert sorted((row["user"], row["total"]) for row in kept) == sorted(
        (f"u{number}", number + (number == 7)) for number in range(50)
    )


def test_a_query_never_begins_again_with_empty_state_in_silence(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    query = Query(spark, log, tmp_path, lambda rows: rows.transform(totals(name="t")))
    append(log, [("a", 1, 1)])
    query.run()
    shutil.rmtree(state_of(spark) / query.query_id())
    append(log, [("a", 1, 1)])
    with pytest.raises(StreamingQueryException, match="The state of operator 't' before batch 1 is gone"):
        query.run()


def test_a_deleted_state_folder_is_rebuilt_from_the_input(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    def build(rows: DataFrame) -> DataFrame:
        return rows.transform(Dedupe(by="user", on="at", within="1 hour", late_by="1 hour")).transform(totals(name="t"))

    query = Query(spark, log, tmp_path, build)
    for start in range(3):
        append(log, [(f"u{number}", number, start) for number in range(10 * start, 10 * start + 20)])
        query.run()
    folder = state_of(spark)
    before = sorted(map(str, rows_of(folder, query=query.query_id(), operator="t").to_pylist()))
    shutil.rmtree(folder / query.query_id())
    options = {"log": str(log.path)}
    assert rebuild(spark, build, checkpoint=query.checkpoint, topic="in", options=options) == 3
    assert sorted(map(str, rows_of(folder, query=query.query_id(), operator="t").to_pylist())) == before
    append(log, [("u3", 100, 5), ("new", 1, 5)])
    query.run()
    assert [(row["user"], row["total"]) for row in query.batches[3]] == [("new", 1)]


def test_an_error_in_a_step_reaches_the_user_in_words(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    def fail(_state: pa.Table, _rows: pa.Table, _time: BatchTime) -> tuple[pa.Table, pa.Table]:
        raise ZeroDivisionError("oh")

    failing = Process(step=fail, by="user", state={"total": "int64"}, output={"user": "string"}, name="t")
    query = Query(
        spark,
        log,
        tmp_path,
        lambda rows: rows.transform(failing),
    )
    append(log, [("a", 1, 1)])
    with pytest.raises(StreamingQueryException, match="Operator 't' failed in batch 0, on keys such as"):
        query.run()


def test_a_step_that_does_not_pickle_is_refused_at_once(spark: SparkSession, log: EmbeddedLog) -> None:
    import threading

    lock = threading.Lock()

    def holds(state: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
        with lock:
            return total(state, rows, time)

    rows = spark.read.format("headwater").option("log", str(log.path)).load("in")
    with pytest.raises(Exception, match="pickle"):
        rows.transform(Process(step=holds, by="user", state={"total": "int64"}, output={"total": "int64"})).collect()


def test_two_operators_of_one_name_in_a_query_are_refused(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    def build(rows: DataFrame) -> DataFrame:
        cheap = rows.filter("amount < 5").transform(totals(name="both"))
        return cheap.unionByName(rows.filter("amount >= 5").transform(totals(name="both")))

    append(log, [("a", 1, 1), ("b", 9, 1)])
    with pytest.raises(StreamingQueryException, match="Two operators of this query are called 'both'"):
        Query(spark, log, tmp_path, build).run()
