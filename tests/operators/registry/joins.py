"""Streams that meet: each other, within bounds of time or not, and tables."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from headwater import EventTime
from headwater.operators import Enrich, IntervalJoin, Join, RowId
from tests.operators import test_enrich, test_interval_join
from tests.operators.registry.entry import SECOND, Entry, Rows, arriving, flat, numbered
from tests.operators.stream_runs import Batch, Stream

# -- impressions and clicks -----------------------------------------------------------------------------------------------

TOPICS = {
    "impressions": {"schema": {"user": "string", "n": "int64", "at": "timestamp"}, "key": "user"},
    "clicks": {"schema": {"visitor": "string", "n": "int64", "at": "timestamp"}, "key": "visitor"},
}


def some_rows() -> list[list[test_interval_join.Numbered]]:
    """Which input, whose row, its second and its number."""
    chance = random.Random(3)
    rows = [(chance.randint(0, 1), chance.choice("abc"), chance.randint(-10, 40)) for _ in range(60)]
    # Rows without a key meet none, and leave alone where others do.
    nobody = [(side, None, at) for side in (0, 1) for at in (3, 17)]
    return numbered(arriving([*rows, *nobody], chance, late_by=9, time=2))


def of_topics(rows: Sequence[test_interval_join.Numbered]) -> Batch:
    return {
        "impressions": [{"user": user, "n": n, "at": at * SECOND} for side, user, at, n in rows if side == 0],
        "clicks": [{"visitor": user, "n": n, "at": at * SECOND} for side, user, at, n in rows if side == 1],
    }


MET = some_rows()
#: Rows from far later in every partition of both topics, so that none holds time back.
ENDS = of_topics(
    [(side, f"end{number}-{side}", test_interval_join.END_OF_TIME, -1) for number in range(40) for side in (0, 1)]
)
COMMON: dict[str, Any] = {"topics": TOPICS, "batches": [*(of_topics(batch) for batch in MET), ENDS, ENDS]}


def of_pairs(rows: Rows) -> list[tuple[Any, ...]]:
    found = [(row["user"], row["n"], row["n_click"]) for row in rows if (row["user"] or "")[:3] != "end"]
    return test_interval_join.ordered(found)


def joined_within(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    settings: dict[str, Any] = {
        "time": EventTime("at", delay=5, future_max=None),
        "allowed_lateness": 4,
        "suffix": "_click",
        "name": "joined",
    }
    return impressions.transform(
        IntervalJoin(clicks, on={"user": "visitor"}, before=5, after=15, how="outer", **settings)
    )


def joined(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    return impressions.transform(RowId("id")).transform(
        Join(clicks, on={"user": "visitor"}, rows_max_per_key=50, expire="1 day", suffix="_click")
    )


def rows_have_an_id_of_their_own(stream: Stream) -> None:
    """It goes through the join, and is the place of the impression in its topic."""
    with stream.log() as log:
        places = {row["n"]: row["_partition"] * 2**47 + row["_offset"] for row in log.read("impressions").rows()}
    assert {row["n"]: row["id"] for row in stream.rows() if row["n"] >= 0}.items() <= places.items()


def a_click_without_a_time_is_aside(stream: Stream) -> None:
    assert [row["_reason"] for row in stream.side("joined", "rejected")] == ["the event time is null"]


def with_a_timeless_click(batch: Batch) -> Batch:
    return {**batch, "clicks": [*batch["clicks"], {"visitor": "a", "n": 99, "at": None}]}


JOIN_WITHIN = Entry(
    name="interval_join",
    operators=("IntervalJoin",),
    topics=TOPICS,
    batches=[with_a_timeless_click(COMMON["batches"][0]), *COMMON["batches"][1:]],
    build=joined_within,
    seen=of_pairs,
    wanted=lambda: test_interval_join.expected(flat(MET), before=5, after=15, how="outer"),
    check=a_click_without_a_time_is_aside,
)
JOIN = Entry(
    name="join",
    operators=("Join", "RowId"),
    build=joined,
    seen=of_pairs,
    wanted=lambda: test_interval_join.expected(flat(MET), before=10**6, after=10**6, how="inner"),
    check=rows_have_an_id_of_their_own,
    **COMMON,
)

# -- sales and tax rates ---------------------------------------------------------------------------------------------------

SALES = {"schema": {"country": "string", "n": "int64", "sold": "timestamp"}, "key": "country"}
DATED_RATES = {"schema": {"land": "string", "rate": "int64", "since": "timestamp", "op": "string"}, "key": "land"}
RATES = {"schema": {"land": "string", "rate": "int64"}, "key": "land", "compact": True}


def some_sales() -> list[list[test_enrich.Numbered]]:
    """Which input, whose row, its second, what it does to the table, and its number; the table comes late too."""
    chance = random.Random(4)
    rows: list[test_enrich.Row] = [(0, chance.choice("ab"), chance.randint(-10, 40), None) for _ in range(30)]
    rows += [(0, None, 5, None), (0, None, 25, None)]
    rates = [(1, chance.choice("ab"), chance.randint(-10, 40), chance.choice([None, "+U", "-D"])) for _ in range(15)]
    return numbered(arriving([*rows, *rates], chance, late_by=9, time=2))


def dated(rows: Sequence[test_enrich.Numbered]) -> Batch:
    return {
        "sales": [{"country": row[1], "n": row[4], "sold": row[2] * SECOND} for row in rows if row[0] == 0],
        "rates": [
            {"land": row[1], "rate": row[4], "since": row[2] * SECOND, "op": row[3]} for row in rows if row[0] == 1
        ],
    }


SOLD = some_sales()
SALES_ENDS = dated(
    [(side, f"end{number}", test_enrich.END_OF_TIME, None, -1) for number in range(40) for side in (0, 1)]
)


def of_sales(rows: Rows) -> list[tuple[Any, ...]]:
    found = [(row["country"], row["n"], row["rate"]) for row in rows if (row["country"] or "")[:3] != "end"]
    return test_enrich.ordered(found)


def rows_keep_their_places(stream: Stream) -> None:
    """Operators that follow need them."""
    assert {"_partition", "_offset"} <= set(stream.rows()[0])


ENRICH = Entry(
    name="enrich",
    operators=("Enrich",),
    topics={"sales": SALES, "rates": DATED_RATES},
    batches=[*(dated(batch) for batch in SOLD), SALES_ENDS, SALES_ENDS],
    build=lambda sales, rates: sales.transform(
        Enrich(
            rates.withColumnRenamed("op", "_op"),
            on={"country": "land"},
            as_of=EventTime("sold", delay=9, future_max=None),
            valid_from="since",
            allowed_lateness=12,
        )
    ),
    seen=of_sales,
    wanted=lambda: test_enrich.as_of(flat(SOLD), how="left"),
    check=rows_keep_their_places,
)

#: Changes of the table batch by batch: a rate, or nothing where it is deleted. They count for the sales of their batch.
CHANGED: list[list[tuple[str, int | None]]] = [
    [("a", 19), ("a", 16)],
    [("b", 20), ("c", 5)],
    [("a", None), ("c", 6)],
    [],
    [("a", 7), ("b", None)],
]


def sold(number: int) -> Rows:
    return [
        {"country": country, "n": 10 * number + place, "sold": number * SECOND}
        for place, country in enumerate("abcd")
    ]  # fmt: skip


def now(number: int) -> dict[str, int | None]:
    return dict(flat(CHANGED[: number + 1]))


def with_rates_of(batch: int | None) -> list[tuple[Any, ...]]:
    """Every sale with the rate that was there in its batch, or in a given one."""
    return test_enrich.ordered(
        [
            (row["country"], row["n"], now(number if batch is None else batch).get(row["country"]))
            for number in range(len(CHANGED))
            for row in sold(number)
        ]
    )


ENRICH_NOW = Entry(
    name="enrich_now",
    operators=("Enrich",),
    topics={"sales": SALES, "rates": RATES},
    batches=[
        {
            "sales": sold(number),
            "rates": [
                {"land": land, **({"_tombstone": True} if rate is None else {"rate": rate})} for land, rate in changes
            ],
        }
        for number, changes in enumerate(CHANGED)
    ],
    build=lambda sales, rates: sales.transform(Enrich(rates, on={"country": "land"})),
    seen=of_sales,
    wanted=lambda: with_rates_of(None),
    wanted_bounded=lambda: with_rates_of(len(CHANGED) - 1),
    options={"metadata": "all"},
)

ENTRIES = (JOIN_WITHIN, JOIN, ENRICH, ENRICH_NOW)
