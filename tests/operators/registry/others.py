"""A step of the user's own, and what helps Spark's own operators: a guard against late rows, and a corrected clock."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headwater import EventTime
from headwater.engine.event_time import BatchTime
from headwater.engine.state_maintenance import states
from headwater.operators import CorrectClock, Guard, Process
from tests.operators.registry.entry import Entry, Rows, flat
from tests.operators.registry.windows import ORDERED, ORDERS, orders
from tests.operators.stream_runs import Stream

# -- a step with two inputs ------------------------------------------------------------------------------------------------


def totals(state: pa.Table, rows: pa.Table, _time: BatchTime) -> tuple[pa.Table, pa.Table]:
    """What each of two inputs has come to, per user."""
    inputs, amounts = np.asarray(rows.column("_input")), np.asarray(rows.column("amount"))
    sums = {"low": pa.array(np.where(inputs == 0, amounts, 0)), "high": pa.array(np.where(inputs == 1, amounts, 0))}
    parts = [state.select(["_key", "low", "high"]), pa.table({"_key": rows.column("_key"), **sums})]
    found = pa.concat_tables(parts).group_by("_key").aggregate([("low", "sum"), ("high", "sum")])
    named = found.rename_columns(["_key", "low", "high"])
    return named, named


TOTALS = Process(
    step=totals,
    by="user",
    state={"low": "int64", "high": "int64"},
    output={"user": "string", "low": "int64", "high": "int64"},
)


def both_totals() -> list[tuple[str, int, int]]:
    rows = flat(ORDERED)
    return [
        (
            user,
            sum(amount for one, amount, _ in rows if one == user and amount < 3),
            sum(amount for one, amount, _ in rows if one == user and amount >= 3),
        )
        for user in sorted({user for user, _, _ in rows})
    ]


PROCESS = Entry(
    name="process",
    operators=("Process",),
    topics=ORDERS,
    batches=[{"orders": orders(batch)} for batch in ORDERED],
    build=lambda rows: TOTALS(rows.filter("amount < 3"), rows.filter("amount >= 3")),
    seen=lambda rows: sorted({row["user"]: (row["user"], row["low"], row["high"]) for row in rows}.values()),
    wanted=both_totals,
)

# -- in front of Spark's own operators -----------------------------------------------------------------------------------------

START = datetime(2026, 1, 1, tzinfo=UTC)
_chance = random.Random(16)
#: The seconds of the rows of each batch, in any order.
SECONDS = [[_chance.randrange(10 * number, 10 * number + 30) for _ in range(20)] for number in range(4)]


def guarded() -> tuple[list[int], list[int]]:
    """The rows that pass and the late ones: more than five seconds behind the latest of the batches before."""
    passed: list[int] = []
    late: list[int] = []
    latest: int | None = None
    for number, seconds in enumerate(SECONDS):
        for place, second in enumerate(seconds):
            is_late = latest is not None and second < latest - 5
            (late if is_late else passed).append(100 * number + place)
        latest = max([*seconds, latest or 0])
    return passed, late


def guard(rows: DataFrame) -> DataFrame:
    operator = Guard(time=EventTime("at", delay=5, scope="input"), late="side_output", name="guard")
    return rows.transform(operator).dropDuplicatesWithinWatermark(["_partition", "_offset"])


def late_rows_are_aside(stream: Stream) -> None:
    late = guarded()[1]
    assert sorted(row["id"] for row in stream.side("guard", "late")) == late
    found = states(stream.state, query=stream.query_id)
    assert sum(one.counts.get("late", 0) for one in found) == len(late)


def times(number: int) -> Rows:
    return [
        {"id": 100 * number + place, "at": START + timedelta(seconds=second)}
        for place, second in enumerate(SECONDS[number])
    ]


GUARD = Entry(
    name="guard",
    operators=("Guard",),
    topics={"rows": {"schema": {"id": "int64", "at": "timestamp"}, "time": "at"}},
    batches=[{"rows": times(number)} for number in range(len(SECONDS))],
    build=guard,
    seen=lambda rows: sorted(row["id"] for row in rows),
    wanted=lambda: guarded()[0],
    unbounded_because="Spark has no dropDuplicatesWithinWatermark for rows that are all there, and none of them is late",
    check=late_rows_are_aside,
)

# -- the log as the clock that is trusted ------------------------------------------------------------------------------------


def gap(rows: DataFrame) -> DataFrame:
    clock = CorrectClock(occurred="occurred", sent="sent", received="_appended_at")
    apart = F.unix_micros("at") + F.unix_micros("sent") - F.unix_micros("occurred") - F.unix_micros("_appended_at")
    return rows.transform(clock).select("device", apart.alias("gap"))


def readings(*years: int) -> Rows:
    """Devices whose clocks are years wrong."""
    wrong = [START + timedelta(days=365 * year) for year in years]
    return [
        {"device": f"{year}", "occurred": at, "sent": at + timedelta(seconds=60 + year)}
        for year, at in zip(years, wrong, strict=True)
    ]


CORRECT_CLOCK = Entry(
    name="correct_clock",
    operators=("CorrectClock",),
    topics={"readings": {"schema": {"device": "string", "occurred": "timestamp", "sent": "timestamp"}}},
    batches=[{"readings": readings(-1, 9)}, {"readings": readings(-30, 5)}, {"readings": readings(3)}],
    build=gap,
    seen=lambda rows: sorted((row["device"], row["gap"]) for row in rows),
    wanted=lambda: sorted((f"{year}", 0) for year in (-1, 9, -30, 5, 3)),
    options={"metadata": "all"},
)

ENTRIES = (PROCESS, GUARD, CORRECT_CLOCK)
