"""Bounded is unbounded: one program over a closed range, in repeated batch runs, and as a stream gives the same tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.apps.runner import Runner
from headwater.operators import Hopping, Session, agg
from headwater.testing import AppTest

SCHEMA = {"user": "string", "url": "string", "at": "timestamp"}
GAP_SECONDS = 30
#: User and second. The session of a goes on over both portions, and that of b is joined by a row that comes late.
PORTIONS = [
    [("a", 0), ("b", 5), ("a", 20), ("a", 45), ("b", 60)],
    [("a", 60), ("c", 61), ("b", 33), ("a", 85), ("c", 300)],
]
SESSIONS = {("a", 0, 85, 5), ("b", 5, 60, 3), ("c", 61, 61, 1), ("c", 300, 300, 1)}


def clicks(rows: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"user": user, "url": "/", "at": second * 1_000_000} for user, second in rows]


def visits(rows: DataFrame) -> DataFrame:
    compute = {"first": agg.min("at"), "last": agg.max("at"), "pages": agg.count()}
    return rows.transform(
        Session(gap=GAP_SECONDS, time=hw.EventTime("at", delay=120), by="user", compute=compute, emit="changes")
    )


def busy(rows: DataFrame) -> DataFrame:
    return rows.transform(
        Hopping(size=60, every=30, time=hw.EventTime("at", delay=120), compute={"pages": agg.count()}, emit="changes")
    )


def declared(folder: Path) -> hw.App:
    app = hw.App("site", log=folder / "data")
    app.input("clicks", SCHEMA, key="user", time="at", partitions=2)

    @app.view(key=("user", "window_start"), name="visits")
    def sessions(clicks: DataFrame) -> DataFrame:
        return visits(clicks)

    @app.view(key="window_start", name="busy")
    def windows(clicks: DataFrame) -> DataFrame:
        return busy(clicks)

    return app


def sessions_of(rows: list[dict[str, Any]]) -> set[tuple[str, int, int, int]]:
    seconds = [
        (row["user"], *(round(row[name].timestamp()) for name in ("first", "last")), row["pages"]) for row in rows
    ]
    assert len(seconds) == len(set(seconds))
    return set(seconds)


def windows_of(rows: list[dict[str, Any]]) -> dict[int, int]:
    return {round(row["window_start"].timestamp()): row["pages"] for row in rows}


def expected_windows() -> dict[int, int]:
    seconds = [second for portion in PORTIONS for _, second in portion]
    counts = {start: sum(start <= second < start + 60 for second in seconds) for start in range(-60, 330, 30)}
    return {start: count for start, count in counts.items() if count}


def test_repeated_batch_runs_make_whole_sessions(spark: SparkSession, tmp_path: Path) -> None:
    app = declared(tmp_path)
    for portion in PORTIONS:
        with hw.open(tmp_path / "data") as log:
            if "clicks" not in log.topics():
                log.create("clicks", SCHEMA, key="user", time="at", partitions=2)
            log.append("clicks", clicks(portion))
        Runner(app, until_caught_up=True, serve=False, spark=spark).run()
    assert sessions_of(app.views["visits"].rows()) == SESSIONS
    assert windows_of(app.views["busy"].rows()) == expected_windows()
    with hw.open(tmp_path / "data") as log:
        everything = spark.read.format("headwater").option("log", log.address).load("clicks")
        closed = [row.asDict() for row in visits(everything).collect()]
        assert {row.pop("_op") for row in closed} == {"+I"}
        assert sessions_of(closed) == SESSIONS
        counted = [row.asDict() for row in busy(everything).collect()]
        assert windows_of(counted) == expected_windows()


def test_a_stream_makes_the_same(spark: SparkSession, tmp_path: Path) -> None:
    with AppTest(declared(tmp_path), spark=spark) as test:
        for portion in PORTIONS:
            test.feed("clicks", clicks(portion))
            test.drain()
        assert sessions_of(test.views["visits"].rows()) == SESSIONS
        assert windows_of(test.views["busy"].rows()) == expected_windows()
