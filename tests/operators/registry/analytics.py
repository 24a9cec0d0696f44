"""Analytics over readings of sensors, and sketches over orders."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headwater import EventTime
from headwater.operators import Anomaly, ComparedTo, Hopping, KMeans, Rate, Rolling, SeenBefore, Trend, agg
from headwater.operators.aggregates import Aggregate
from tests.operators.readings import END_OF_TIME, LATE_BY, Reading
from tests.operators.registry.entry import SECOND, Entry, Rows, arriving, flat, numbered
from tests.operators.registry.windows import ORDERS
from tests.operators.stream_runs import Batch, Stream
from tests.operators.test_anomaly import scores
from tests.operators.test_compared_to import compared
from tests.operators.test_rate import over_period
from tests.operators.test_rolling import of_period
from tests.operators.test_trend import trend

# -- readings ------------------------------------------------------------------------------------------------------------

TOPIC = {
    "readings": {
        "schema": {"sensor": "string", "celsius": "float64", "at": "timestamp", "place": "int64"},
        "key": "sensor",
    }
}
COMMON: dict[str, Any] = {"by": "sensor", "time": EventTime("at", delay=LATE_BY, future_max=None)}


def some_readings() -> list[list[Any]]:
    chance = random.Random(11)
    values = [None, *map(float, range(-9, 10))]
    rows = [(sensor, chance.choice(values), at) for sensor in "abc" for at in chance.sample(range(-60, 100), 20)]
    return numbered(arriving(rows, chance, late_by=LATE_BY, time=2))


READ = some_readings()
READINGS: list[Reading] = [row[:3] for row in flat(READ)]


def batch_of(rows: Sequence[Any]) -> Batch:
    return {
        "readings": [
            {"sensor": sensor, "celsius": value, "at": at * SECOND, "place": place}
            for sensor, value, at, place in rows
        ]
    }  # fmt: skip


def closed(count: int) -> list[Batch]:
    """The batches, and rows from ever later in every partition: in each batch time passes for one more operator."""
    ends = [[(f"end{one}", 0.0, END_OF_TIME + 1000 * time, -1) for one in range(40)] for time in range(count)]
    return [batch_of(batch) for batch in [*READ, *ends]]


MODELS: list[Callable[..., dict[str, Any]]] = [of_period(20, "both"), over_period(20, 1, None), trend(20, 10)]
ADDED = ("n", "mean", "high", "rate", "slope", "intercept", "r2", "forecast", "direction")
SCORES = ("score", "expected", "lower", "upper")


def added(rows: DataFrame) -> DataFrame:
    """Four operators, one behind the other: each adds its columns."""
    compute = {"n": agg.count(), "mean": agg.mean("celsius"), "high": agg.percentile("celsius", 0.9)}
    return (
        rows.transform(Rolling(period=20, compute=compute, **COMMON))
        .transform(Rate(period=20, **COMMON))
        .transform(Trend(of=F.col("celsius"), period=20, horizon=10, **COMMON))
        .transform(Anomaly(of="celsius", memory=5, warm_up=2, period=50, prefix="celsius_", **COMMON))
    )


def of_readings(rows: Rows) -> list[Any]:
    names = (*ADDED, *(f"celsius_{name}" for name in SCORES))
    own = sorted((row for row in rows if row["place"] >= 0), key=lambda row: row["place"])
    return [(row["place"], {name: row[name] for name in names}) for row in own]


def by_models() -> list[Any]:
    wanted = []
    for place, (sensor, value, at) in enumerate(READINGS):
        past = sorted((time, one) for own, one, time in READINGS if own == sensor and time <= at)
        told = {name: one for model in MODELS for name, one in model(past, (at, value)).items()}
        judged = scores(5, 2, 50)(past, (at, value))
        row = {**{name: told[name] for name in ADDED}, **{f"celsius_{name}": judged[name] for name in SCORES}}
        wanted.append((place, pytest.approx(row, abs=1e-9)))
    return wanted


IN_ORDER = Entry(
    name="rolling_rate_trend_anomaly",
    operators=("Rolling", "Rate", "Trend", "Anomaly"),
    topics=TOPIC,
    batches=closed(8),
    build=added,
    seen=of_readings,
    wanted=by_models,
)

COMPARED = ("n", "n_before", "n_difference", "n_ratio", "n_mean", "n_zscore", "mean", "mean_before", "mean_difference",
            "mean_ratio", "mean_mean", "periods")  # fmt: skip


def of_compared(rows: Rows) -> dict[tuple[str, int], dict[str, Any]]:
    own = [row for row in rows if row["sensor"] in "abc"]
    found = {
        (row["sensor"], round(row["window_start"].timestamp())): {name: row[name] for name in COMPARED} for row in own
    }
    assert len(found) == len(own), "a window comes once"
    return found


COMPARED_TO = Entry(
    name="compared_to",
    operators=("ComparedTo",),
    topics=TOPIC,
    batches=closed(2),
    build=lambda rows: rows.transform(
        ComparedTo(
            every=10, period=20, periods=3, compute={"n": agg.count(), "mean": agg.mean("celsius")}, **COMMON
        )
    ),
    seen=of_compared,
    wanted=lambda: {
        place: pytest.approx({name: row[name] for name in COMPARED}, abs=1e-9)
        for place, row in compared(READINGS, 10, 20, 3).items()
    },
)  # fmt: skip

# -- sketches --------------------------------------------------------------------------------------------------------------

SKETCHES: dict[str, Aggregate] = {
    "different": agg.approx_count_distinct("amount", error=0.1),
    "set": agg.sketch.theta("amount", lg_k=5),
    "some": agg.sample("amount", 3),
    "common": agg.approx_top_k("amount", 3),
    "ranks": agg.approx_percentile("amount", [0.1, 0.5, 0.9], error=0.05),
}
#: What is a function of the rows alone; ranks are within bounds.
EXACT = ("user", "window_end", "different", "set", "some", "common")


def many_orders(seed: int, count: int) -> list[Rows]:
    """Three batches of rows in the order of time."""
    chance = np.random.default_rng(seed)
    made: list[Rows] = []
    for second in (0, 30, 60):
        users, amounts = chance.integers(0, 5, count), chance.integers(0, 400, count)
        times = np.sort(chance.integers(second * SECOND, (second + 30) * SECOND, count))
        columns = zip(users.tolist(), amounts.tolist(), times.tolist(), strict=True)
        made.append([{"user": f"u{user}", "amount": amount, "at": at} for user, amount, at in columns])
    return made


SKETCHED = many_orders(12, 1_500)
ENDS: Rows = [{"user": f"end{number}", "amount": 0, "at": 10_000 * SECOND} for number in range(40)]


def windows(rows: Rows) -> Rows:
    own = [row for row in rows if not row["user"].startswith("end")]
    return sorted(own, key=lambda row: (row["user"], row["window_end"]))


def within_bounds(rows: Rows) -> list[Any]:
    """Of each window whether the bounds that it states hold."""
    found = []
    for row in windows(rows):
        end = round(row["window_end"].timestamp())
        amounts = sorted(
            one["amount"]
            for one in flat(SKETCHED)
            if one["user"] == row["user"] and end - 20 <= one["at"] / SECOND < end
        )
        holds = [row["different"]["lower"] <= len(set(amounts)) <= row["different"]["upper"]]
        for rank in row["ranks"]:
            exact = amounts[min(int(rank["at"] * len(amounts)), len(amounts) - 1)]
            holds.append(rank["lower"] <= exact <= rank["upper"])
        found.append((row["user"], end, holds))
    return found


def sketches_are_those_of_the_bounded_rows(stream: Stream) -> None:
    for one, other in zip(windows(stream.rows()), windows(stream.bounded()), strict=True):
        assert [one[name] for name in EXACT] == [other[name] for name in EXACT]


APPROXIMATE = Entry(
    name="hopping_with_sketches",
    operators=("Hopping",),
    topics=ORDERS,
    batches=[*({"orders": batch} for batch in SKETCHED), {"orders": ENDS}, {"orders": ENDS}],
    build=lambda rows: rows.transform(
        Hopping(size=20, every=10, time=EventTime("at", future_max=None), by="user", compute=SKETCHES)
    ),
    seen=within_bounds,
    wanted=lambda: [(f"u{user}", end, [True] * 4) for user in range(5) for end in range(10, 110, 10)],
    check=sketches_are_those_of_the_bounded_rows,
)  # fmt: skip

SEEN = many_orders(13, 300)


def seen_and_grouped(rows: DataFrame) -> DataFrame:
    settings: dict[str, Any] = {"by": "user", "time": EventTime("at", future_max=None)}
    known = SeenBefore(of="amount", period=40, capacity=10_000, false_positives=1e-6, **settings)
    return rows.transform(known).transform(KMeans(columns="amount", k=3, warm_up=20, block=32, **settings))


def of_seen(rows: Rows) -> Any:
    """Which rows were known, and how many came before there were clusters."""
    found = sorted((row["user"], row["amount"], round(row["at"].timestamp() * SECOND), row["seen"]) for row in rows)
    return found, sum(row["cluster"] is None for row in rows)


def seen_by_definition() -> Any:
    last: dict[tuple[str, int], float] = {}
    wanted = []
    for row in flat(SEEN):
        value, at = (row["user"], row["amount"]), row["at"] / SECOND
        wanted.append((*value, row["at"], value in last and last[value] > at - 40))
        last[value] = at // 10 * 10 + 10
    return sorted(wanted), 5 * 20


def clusters_are_those_of_the_bounded_rows(stream: Stream) -> None:
    assert sorted(map(repr, stream.rows())) == sorted(map(repr, stream.bounded()))


SEEN_BEFORE = Entry(
    name="seen_before_and_k_means",
    operators=("SeenBefore", "KMeans"),
    topics={"orders": {**ORDERS["orders"], "partitions": 1}},
    batches=[{"orders": batch} for batch in SEEN],
    build=seen_and_grouped,
    seen=of_seen,
    wanted=seen_by_definition,
    check=clusters_are_those_of_the_bounded_rows,
)

ENTRIES = (IN_ORDER, COMPARED_TO, APPROXIMATE, SEEN_BEFORE)
