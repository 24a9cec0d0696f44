"""Patterns over events, and stored queries over documents. Rules and queries change while the stream runs."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

from headwater import EventTime
from headwater.engine.contract import Broadcast
from headwater.engine.spark_plan import applied_operators
from headwater.operators import Match, MatchRules, Percolate, percolate
from headwater.operators.match.language import parse
from headwater.operators.percolate.query import parse as parse_query
from tests.operators.match.laws import Row, comparable, expected
from tests.operators.percolate.strategies import BUILDER, KINDS, NAIVE, NOW, SCHEMA, TAGS, WORDS
from tests.operators.registry.entry import SECOND, Entry, Rows, cut, flat
from tests.operators.stream_runs import Batch, Stream

# -- patterns ------------------------------------------------------------------------------------------------------------

EVENTS = {
    "events": {
        "schema": {
            "key": "string",
            "id": "int64",
            "at": "timestamp",
            "amount": "int64",
            "price": "float64",
            "kind": "string",
        },
        "key": "key",
    }
}
END_OF_TIME = 1_000_000 * SECOND
#: Conditions that only Spark can answer.
LIKE = """
PARTITION BY key ORDER BY at
MEASURES
    FIRST(low.id) AS first_id, LAST(low.id) AS last_id, up.id AS up_id, COUNT(low.*) AS lows,
    SUM(low.amount) + 1 AS total, PREV(FIRST(low.id)) AS before, CLASSIFIER() AS last, MATCH_NUMBER() AS number,
    UPPER(up.kind) AS kind
ONE ROW PER MATCH
AFTER MATCH SKIP TO NEXT ROW
PATTERN (low{1,3} other*? up) WITHIN INTERVAL '12' SECOND
DEFINE low AS amount < 5, up AS amount > LAST(low.amount) AND kind LIKE 'x%'
"""
#: Conditions that the reader of the topic can answer.
PLAIN = """
PARTITION BY key ORDER BY at
MEASURES FIRST(low.id) AS first_id, up.id AS up_id, COUNT(low.*) AS lows, MATCH_NUMBER() AS number
AFTER MATCH SKIP TO NEXT ROW
PATTERN (low{1,3} other*? up) WITHIN INTERVAL '12' SECOND
DEFINE low AS amount < 5, other AS price >= 1.0 OR kind IN ('x', 'y'), up AS amount BETWEEN 3 AND 8 AND kind <> 'z'
"""


def some_events() -> tuple[list[Row], list[list[Row]]]:
    """Events of five keys, and the same in three batches in which none comes more than five seconds late."""
    chance = random.Random(14)
    rows: list[Row] = []
    for key in range(5):
        at = 0
        for number in range(28):
            at += chance.randint(1, 4) * SECOND
            amount, quarter = chance.choice([None, *range(10)]), chance.choice([None, *range(21)])
            price = None if quarter is None else quarter / 4  # exact, so that sums do not depend on the order
            kind = chance.choice(["x", "y", "z", None])
            rows.append({"key": f"k{key}", "id": number, "at": at, "amount": amount, "price": price, "kind": kind})
    return rows, cut(sorted(rows, key=lambda row: row["at"] + chance.randint(0, 5 * SECOND)), 3)


HAPPENED, ARRIVED = some_events()


def closing(number: int) -> list[Row]:
    """Rows from far later, in every partition, so that none holds time back."""
    later = {"id": 0, "at": END_OF_TIME + number, "amount": None, "price": None, "kind": None}
    return [{"key": f"end{key}", **later} for key in range(40)]


def own(rows: Sequence[Row]) -> list[str]:
    return comparable([row for row in rows if not row["key"].startswith("end")])


def what_timed_out_is_aside(stream: Stream) -> None:
    assert own(stream.side("found", "timed_out")) == comparable(expected(parse(LIKE), HAPPENED)[1])


def the_reader_sends_masks(stream: Stream) -> None:
    with applied_operators() as applied:
        stream.build(stream.source("events"))
    assert applied[0].packed
    assert not {"amount", "price", "kind"} & set(applied[0].rows.names)


TIME = EventTime("at", delay=5, future_max=None)
MATCHED: dict[str, Any] = {
    "operators": ("Match",),
    "topics": EVENTS,
    "batches": [{"events": rows} for rows in (*ARRIVED, closing(1), closing(2))],
    "seen": own,
}
MATCH = Entry(
    name="match",
    build=lambda events: events.transform(Match(LIKE, time=TIME, timed_out="side_output", name="found")),
    wanted=lambda: comparable(expected(parse(LIKE), HAPPENED)[0]),
    check=what_timed_out_is_aside,
    is_core=True,
    **MATCHED,
)
MATCH_BY_MASKS = Entry(
    name="match_by_masks_of_the_reader",
    build=lambda events: events.transform(Match(PLAIN, time=TIME)),
    wanted=lambda: comparable(expected(parse(PLAIN), HAPPENED)[0]),
    check=the_reader_sends_masks,
    options={"metadata": "position"},
    **MATCHED,
)

# -- rules that change ------------------------------------------------------------------------------------------------------

RISE = "MEASURES A.id AS a, B.id AS b PATTERN (A B) DEFINE A AS amount < 5, B AS amount > 5"
PAIR = "MEASURES COUNT(*) AS n PATTERN (A{2}) DEFINE A AS kind = 'x'"


def pair_at(second: int, *, end: int) -> Batch:
    """Two rows that both rules find, and rows in every partition, so that time moves on to the end."""
    made = [(second, "k", 1, "x"), (second + 1, "k", 9, "x"), *((end, f"end{key}", 5, "y") for key in range(40))]
    return {"events": [event(*row) for row in made]}


def event(second: int, key: str, amount: int, kind: str) -> Row:
    return {"key": key, "id": second, "at": second * SECOND, "amount": amount, "price": 1.0, "kind": kind}


def later(second: int) -> Batch:
    return {"events": [event(second, f"end{key}", 5, "y") for key in range(40)]}


def rules(*changes: tuple[str, str | None]) -> Batch:
    return {
        "rules": [
            {"id": name, "_tombstone": True} if text is None else {"id": name, "text": text, "enabled": True}
            for name, text in changes
        ]
    }


def of_rules(rows: Rows) -> list[tuple[str, int, str]]:
    return sorted((row["rule"], row["match"], row["measures"]) for row in rows if row["key"] == "k")


def a_bad_rule_is_told(stream: Stream) -> None:
    assert {row["rule"] for row in stream.side("rules", "refused")} == {"bad"}


MATCH_RULES = Entry(
    name="match_rules",
    operators=("MatchRules",),
    topics=EVENTS,
    tables={"rules": {"schema": {"id": "string", "text": "string", "enabled": "bool"}, "key": "id"}},
    # There are no rules yet when time moves past the first rows: not in the second batch, and not when it is repeated.
    told=[{}, {}, rules(("rise", RISE), ("bad", "PATTERN (A")), {}, rules(("pair", PAIR)), {}, rules(("rise", None))],
    batches=[
        pair_at(1, end=3),
        later(3),
        pair_at(4, end=6),
        later(7),
        pair_at(8, end=10),
        later(11),
        pair_at(12, end=14),
        later(10**6),
        later(10**6),
    ],
    build=lambda events, log: events.transform(
        MatchRules(
            rules=Broadcast(log=log, topic="rules"), time=EventTime("at", future_max=None), by="key", name="rules"
        )
    ),
    seen=of_rules,
    wanted=lambda: [
        ("pair", 1, '{"n": 2}'),
        ("pair", 2, '{"n": 2}'),
        ("rise", 1, '{"a": 4, "b": 5}'),
        ("rise", 2, '{"a": 8, "b": 9}'),
    ],
    # A batch job has the rules of today for all rows.
    wanted_bounded=lambda: [("pair", number, '{"n": 2}') for number in (1, 2, 3, 4)],
    check=a_bad_rule_is_told,
)

# -- stored queries ------------------------------------------------------------------------------------------------------------

STORED = {"id": "string", "query": "string", "metadata": "map<string, string>"}
#: What is stored before each batch: query strings, JSON, and nothing where a query is deleted.
QUERIES: list[dict[str, Any]] = [
    {
        "a": "stream",
        "b": "title:data AND NOT tags:red",
        "c": "+tags:blue price:[1 TO 2]",
        "d": {"nested": {"path": "notes", "query": {"range": {"notes.stars": {"gte": 2}}}}},
    },
    {"a": "flow OR java", "e": "seller.stars:>=2", "f": 'title:"data flow"~3'},
    {"b": None, "c": "at:[now-1d TO *]", "g": {"match": {"body": {"query": "x1 java", "operator": "and"}}}},
    {"e": None, "a": "NOT fresh:true", "h": "title:sream~"},
]


def some_documents(chance: random.Random, first: int) -> Rows:
    def text() -> str | None:
        return chance.choice([None, *[", ".join(chance.choices(WORDS, k=chance.randint(0, 7))) for _ in range(4)]])

    def stars() -> int | None:
        return chance.choice([None, 0, 1, 2, 3])

    return [
        {
            "n": first + number,
            "seen": NOW,
            "title": text(),
            "body": chance.choice([None, [text()], [text(), text()]]),
            "tags": chance.choice([None, chance.sample(TAGS, 2), [chance.choice(TAGS), None]]),
            "price": chance.choice([None, -2.0, 0.0, 1.0, 1.5, 2.0, 10.0]),
            "sizes": chance.choice([None, [1, 3], []]),
            "at": chance.choice([None, NOW - timedelta(hours=1), NOW - timedelta(days=31), NOW + timedelta(days=40)]),
            "fresh": chance.choice([None, True, False]),
            "place": chance.choice([None, {"lat": 52.0, "lon": 4.9}]),
            "seller": chance.choice([None, {"name": text(), "stars": stars()}]),
            "notes": chance.choice([None, [{"by": chance.choice(TAGS), "text": text(), "stars": stars()}]]),
        }
        for number in range(10)
    ]


_chance = random.Random(15)
NEWS = [some_documents(_chance, 100 * number) for number in range(len(QUERIES))]


def stored(batch: int) -> dict[str, Any]:
    known = {name: query for changes in QUERIES[: batch + 1] for name, query in changes.items()}
    return {name: parse_query(query, BUILDER) for name, query in known.items() if query is not None}


def found_by(batches: Sequence[tuple[int, Rows]]) -> list[tuple[int, str, float]]:
    """What a naive matcher finds, with the queries of each batch."""
    scores = [
        (row["n"], name, NAIVE.score(query, row))
        for batch, rows in batches
        for row in rows
        for name, query in stored(batch).items()
    ]
    return sorted((number, name, round(score, 6)) for number, name, score in scores if score is not None)


def told_of(changes: dict[str, Any]) -> Batch:
    return {
        "searches": [
            {"id": name, "_tombstone": True}
            if query is None
            else {"id": name, "query": query if isinstance(query, str) else json.dumps(query)}
            for name, query in changes.items()
        ]
    }


def percolated(news: DataFrame, log: str) -> DataFrame:
    settings: dict[str, Any] = {"columns": ("n",), "costs_every": 0, "name": "contract"}
    return news.transform(
        Percolate(queries="searches", log=log, fields=KINDS, default_fields=("title", "body"), time="seen", **settings)
    )


def each_query_has_its_costs(stream: Stream) -> None:
    counted = sum(one.matches for one in percolate.costs(str(stream.state), "contract"))
    assert counted >= len(stream.rows()), "a batch that was repeated has cost twice"


PERCOLATE = Entry(
    name="percolate",
    operators=("Percolate",),
    topics={"news": {"schema": {"n": "int64", "seen": "timestamp", **{one.name: one.type for one in SCHEMA}}}},
    tables={"searches": {"schema": STORED, "key": "id", "partitions": 2, "compact": True}},
    told=[told_of(changes) for changes in QUERIES],
    batches=[{"news": rows} for rows in NEWS],
    build=percolated,
    seen=lambda rows: sorted((row["n"], row["query_id"], round(row["score"], 6)) for row in rows),
    wanted=lambda: found_by(list(enumerate(NEWS))),
    wanted_bounded=lambda: found_by([(len(QUERIES) - 1, flat(NEWS))]),
    check=each_query_has_its_costs,
)

ENTRIES = (MATCH, MATCH_BY_MASKS, MATCH_RULES, PERCOLATE)
