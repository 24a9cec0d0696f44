"""What Spark adds to operators: chains with its own, clocks of the source, sinks, state between queries, and errors.

That operators give the same rows in a stream, in a batch job and by an oracle is proved in `test_contract.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater import EventTime
from headwater.engine.contract import Broadcast, StepResult
from headwater.engine.event_time import BatchTime
from headwater.engine.spark_plan import apply
from headwater.engine.state_maintenance import rows_of, states
from headwater.engine.step import due_keys
from headwater.operators import Dedupe, Process, Session, SideOutputs, TableJoin, Tumbling, agg, rebuild
from headwater.sinks import TopicSink
from tests.operators.batches import final_table
from tests.operators.registry.windows import ORDERS, closed, orders, own
from tests.operators.stream_runs import Stream

SCHEMA: dict[str, str] = {"user": "string", "amount": "int64", "at": "timestamp"}


def total(state: pa.Table, rows: pa.Table, _time: BatchTime) -> tuple[pa.Table, pa.Table]:
    """A running total per user."""
    parts = [state.select(["_key", "total"]), rows.select(["_key", "amount"]).rename_columns(["_key", "total"])]
    sums = pa.concat_tables(parts).group_by("_key").aggregate([("total", "sum")]).rename_columns(["_key", "total"])
    fresh = np.isin(np.asarray(sums.column("_key")), np.asarray(rows.column("_key")))
    return sums, sums.filter(pa.array(fresh))


def totals(**changes: Any) -> Process:
    given: dict[str, Any] = {"by": "user", "state": {"total": "int64"}, "output": {"user": "string", "total": "int64"}}
    return Process(step=total, **{**given, **changes})


def rated(state: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
    """Amounts times the rate of their user, which a broadcast table has."""
    rates = {row["key"].decode(): int(row["value"]) for row in time.broadcast["rates"].to_pylist()}
    pairs = zip(rows.column("user").to_pylist(), rows.column("amount").to_pylist(), strict=True)
    amounts = pa.array([rates.get(user, 1) * amount for user, amount in pairs], pa.int64())
    return state.select(["nothing", "_key"]), pa.table({"_key": rows.column("_key"), "amount": amounts})


def test_operators_chain_before_and_after_sparks_own_and_read_a_table(spark: SparkSession, tmp_path: Path) -> None:
    rates = Process(
        step=rated,
        by="user",
        state={"nothing": "int64"},
        output={"user": "string", "amount": "int64"},
        tables={"rates": Broadcast(log=str(tmp_path / "log"), topic="rates")},
    )

    def build(rows: DataFrame) -> DataFrame:
        once = rows.filter("amount > 0").transform(
            Dedupe(by="user", time=EventTime("at", delay="1 hour"), within="1 hour")
        )
        doubled = once.withColumn("amount", F.col("amount") * 2)
        return doubled.transform(rates).transform(totals()).filter("total < 1000")

    stream = Stream(spark, tmp_path, build, ORDERS)
    with stream.log() as log:
        log.create("rates", durability="os")
        log.append("rates", [(b"a", b"10")])
    stream.run({"orders": orders([("a", 1, 1), ("a", 5, 2), ("b", -1, 1), ("b", 3, 3), ("c", 600, 1)])})
    with stream.log() as log:
        log.append("rates", [(b"d", b"100")])
    stream.run({"orders": orders([("a", 7, 4), ("d", 4, 4)])})
    assert sorted((row["user"], row["total"]) for row in stream.rows()) == [("a", 20), ("b", 6), ("d", 800)]


def ring(state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
    """Say so when a user has been silent for five seconds of processing time."""
    ringing = np.setdiff1d(due_keys(state, time), np.asarray(rows.column("_key")))
    touched = np.unique(np.asarray(rows.column("_key")))
    waiting = state.filter(pa.array(~np.isin(np.asarray(state.column("_key")), np.union1d(ringing, touched))))
    now = time.processing_us or 0
    fresh = pa.table(
        {"_wake_at_processing": pa.array(np.full(len(touched), now + 5_000_000)), "_key": pa.array(touched)}
    )
    silent = pa.table({"_key": pa.array(ringing), "silent": pa.array([True] * len(ringing), pa.bool_())})
    return StepResult(pa.concat_tables([waiting.select(["_wake_at_processing", "_key"]), fresh]), silent)


def test_timers_fire_without_new_input_by_the_clock_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    operator = Process(
        step=ring, by="user", state={"_wake_at_processing": "int64"}, output={"user": "string", "silent": "bool"}
    )
    stream = Stream(
        spark, tmp_path, lambda rows: rows.transform(operator), ORDERS, tick="1 second", clock=str(clock)
    )  # fmt: skip
    clock.write_text("1000000")
    stream.run({"orders": orders([("a", 1, 1), ("b", 1, 1)])})
    clock.write_text("3000000")
    stream.run({"orders": orders([("b", 1, 1)])})
    clock.write_text("7000000")
    stream.run()
    assert [row["user"] for row in stream.rows()] == ["a"]
    clock.write_text("9000000")
    stream.run()
    assert sorted(row["user"] for row in stream.rows()) == ["a", "b"]


def test_a_batch_that_is_repeated_has_its_processing_time(spark: SparkSession, tmp_path: Path) -> None:
    # Batches are taken microseconds or seconds apart, as the machine likes: every row is in one window of a microsecond,
    # which is over when the next batch is taken.
    def build(rows: DataFrame) -> DataFrame:
        return rows.transform(Tumbling(size=1e-6, clock="processing", by="user", compute={"n": agg.count()}))

    stream = Stream(spark, tmp_path, build, ORDERS)
    stream.run({"orders": orders([("a", 1, 5), ("a", 1, 900), ("b", 1, 5)])})
    stream.run({"orders": orders([("a", 1, 5)])}, kill=True)
    stream.restart()
    stream.run({"orders": orders([("c", 1, 5)])})
    found = [(row["user"], row["n"]) for row in stream.rows()]
    assert sorted(found) == [("a", 1), ("a", 2), ("b", 1)]
    assert len({row["window_start"] for row in stream.rows()}) == 2


def test_sparks_own_sessions_leave_a_stream_once_closed(spark: SparkSession, tmp_path: Path) -> None:
    def build(rows: DataFrame) -> DataFrame:
        sessions = rows.transform(Session(gap="10 seconds", time="at")).groupBy("user", "window").count()
        return sessions.select("user", F.col("window.start").alias("start"), "count")

    stream = Stream(spark, tmp_path, build, ORDERS)
    for batch in closed([[("a", 1, 0), ("a", 1, 10), ("b", 1, 100)]]):
        stream.run(batch)
    found = sorted((row["user"], round(row["start"].timestamp()), row["count"]) for row in own(stream.rows()))
    assert found == [("a", 0, 2), ("b", 100, 1)]


def test_rows_without_a_key_are_put_aside_and_rows_without_a_partner_are_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    def build(left: DataFrame, right: DataFrame) -> DataFrame:
        return left.transform(TableJoin(right, on=("customer", "id"), key="id", how="left", name="named"))

    topics = {
        "orders": {"schema": {"id": "int64", "customer": "string", "amount": "int64"}},
        "customers": {"schema": {"id": "string", "name": "string"}},
    }
    stream = Stream(spark, tmp_path, build, topics)
    alone = {"customer": None, "amount": 1}
    stream.run({"orders": [{"id": 1, **alone}, {"id": 2, **alone}, {"id": None, "customer": "a", "amount": 1}]})
    stream.run({"customers": [{"id": None, "name": "Nemo"}, {"id": "a", "name": "Ann"}]})
    assert sorted(key[0] for key in final_table(stream.rows(), ["id"])) == [1, 2]
    assert [len(stream.side(name, "rejected")) for name in ("named-left", "named")] == [1, 1]


# -- sinks -----------------------------------------------------------------------------------------------------------------


def test_late_rows_and_output_reach_their_topics_in_one_transaction(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(
        spark,
        tmp_path,
        lambda rows: rows.transform(totals(time=EventTime("at", delay="5 seconds"), name="t")),
        ORDERS,
    )  # fmt: skip
    with stream.log() as log:
        log.create("out", {"user": "string", "total": "int64"}, key="user", durability="os")
        log.create("late", {**SCHEMA, "late_by_us": "int64"}, durability="os")
    sides = SideOutputs(state=stream.state, operator="t", topics={"late": "late"})
    stream.sink = TopicSink(log=tmp_path / "log", topic="out", extra_parts=sides)
    stream.run({"orders": orders([(user, 1, 100) for user in "abcdefgh"])})
    stream.run({"orders": orders([("a", 1, 96), ("b", 1, 90)])})
    stream.restart()
    with stream.log() as log:
        late, out = list(log.read("late").rows()), list(log.read("out").rows())
    assert [(row["user"], row["amount"], row["late_by_us"]) for row in late] == [("b", 1, 5_000_000)]
    assert [row["total"] for row in out if row["user"] == "a"] == [1, 2]


# -- state between queries ----------------------------------------------------------------------------------------------------


def test_state_can_be_seen_and_goes_on_in_another_number_of_partitions(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, lambda rows: rows.transform(totals(partitions=2, name="t")), ORDERS)
    stream.run({"orders": orders([(f"u{number}", number, 1) for number in range(50)])})
    stream.stop()
    found = list(states(stream.state, query=stream.query_id))
    assert [(one.operator, one.partition) for one in found] == [("t", 0), ("t", 1)]
    assert sum(one.rows for one in found) == 50
    stream.build = lambda rows: rows.transform(totals(partitions=5, name="t"))
    stream.run({"orders": orders([("u7", 1, 1)])})
    assert [row["total"] for row in stream.batches[1]] == [8]
    assert len(list(states(stream.state, query=stream.query_id))) == 5
    kept = rows_of(stream.state, query=stream.query_id, operator="t").to_pylist()
    assert sorted((row["user"], row["total"]) for row in kept) == sorted(
        (f"u{number}", number + (number == 7)) for number in range(50)
    )


def test_lost_state_is_never_taken_for_empty_and_is_rebuilt_from_the_input(spark: SparkSession, tmp_path: Path) -> None:
    def build(rows: DataFrame) -> DataFrame:
        return rows.transform(Dedupe(by="user", time=EventTime("at", delay="1 hour"), within="1 hour")).transform(
            totals(name="t")
        )

    stream = Stream(spark, tmp_path, build, ORDERS)
    for start in range(2):
        rows = [(f"u{number}", number, start) for number in range(10 * start, 10 * start + 20)]
        stream.run({"orders": orders(rows)})
    stream.stop()
    before = sorted(map(str, rows_of(stream.state, query=stream.query_id, operator="t").to_pylist()))
    shutil.rmtree(stream.state / stream.query_id)
    with pytest.raises(StreamingQueryException, match=r"The state of operator '.*' before batch 2 is gone"):
        stream.run({"orders": orders([("u3", 100, 5), ("new", 1, 5)])})
    stream.stop()
    options = {"log": str(tmp_path / "log")}
    assert rebuild(spark, build, checkpoint=tmp_path / "checkpoint", topic="orders", options=options) == 2
    assert sorted(map(str, rows_of(stream.state, query=stream.query_id, operator="t").to_pylist())) == before
    stream.run()
    assert [(row["user"], row["total"]) for row in stream.batches[2]] == [("new", 1)]


# -- errors ---------------------------------------------------------------------------------------------------------------------


def test_two_operators_of_one_name_in_a_query_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    def build(rows: DataFrame) -> DataFrame:
        cheap = rows.filter("amount < 5").transform(totals(name="both"))
        return cheap.unionByName(rows.filter("amount >= 5").transform(totals(name="both")))

    stream = Stream(spark, tmp_path, build, ORDERS)
    with pytest.raises(StreamingQueryException, match="Two operators of this query are called 'both'"):
        stream.run({"orders": orders([("a", 1, 1), ("b", 9, 1)])})


def test_an_error_in_a_step_reaches_the_user_in_words(spark: SparkSession) -> None:
    def fail(_state: pa.Table, _rows: pa.Table, _time: BatchTime) -> tuple[pa.Table, pa.Table]:
        raise ZeroDivisionError("oh")

    failing = Process(step=fail, by="user", state={"total": "int64"}, output={"user": "string"}, name="t")
    with pytest.raises(Exception, match=r"Operator 't' failed in batch \(bounded\), on keys such as"):
        spark.createDataFrame([("a", 1)], "user string, amount long").transform(failing).collect()


def test_a_step_that_does_not_pickle_is_refused_at_once(spark: SparkSession) -> None:
    import threading

    lock = threading.Lock()

    def holds(state: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
        with lock:
            return total(state, rows, time)

    rows = spark.createDataFrame([("a", 1)], "user string, amount long")
    with pytest.raises(Exception, match="pickle"):
        rows.transform(Process(step=holds, by="user", state={"total": "int64"}, output={"total": "int64"})).collect()


# -- before the shuffle -----------------------------------------------------------------------------------------------------------


def partial(rows: pa.Table) -> pa.Table:
    """Sums per user before the shuffle."""
    return rows.group_by("user").aggregate([("amount", "sum")]).rename_columns(["user", "amount"])


def test_a_combine_step_runs_before_the_shuffle_and_changes_nothing(spark: SparkSession) -> None:
    schema = pa.schema([("user", pa.string()), ("amount", pa.int64())])
    rows = spark.range(80).selectExpr("concat('u', id % 5) AS user", "id AS amount").repartition(3)
    contract: Callable[..., Any] = totals(name="t").contract
    found = apply(contract, rows, combine=(partial, schema)).collect()
    assert sorted((row.user, row.total) for row in found) == [(f"u{n}", sum(range(n, 80, 5))) for n in range(5)]
