"""A log with what a bank looks for: payments, a pattern and rules over them, articles, and stored searches over those.

What an app would write down when it starts its queries is written by hand, so that no Spark is needed.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from headwater.apps.home import Home
from headwater.engine.finder import Finder
from headwater.log import Log

CARD = 73_314_510_714_175_488
BEGIN = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
TRIED_OUT = """MEASURES COUNT(small.*) AS tries, big.amount AS amount, FIRST(small.at) AS began_at, big.at AS at
PATTERN (small{2,} big)
WITHIN INTERVAL '10' MINUTE
DEFINE small AS amount < 5, big AS amount > 500"""
LARGE = "MEASURES big.amount AS amount\nPATTERN (big)\nDEFINE big AS amount > 900"
STOLEN = 12


def payments_of(number: int) -> list[dict[str, Any]]:
    """Some small payments of one card, and a large one."""
    begin, tries = BEGIN + timedelta(seconds=number * 90), 2 + number % 3
    small = [
        {
            "card": CARD + number,
            "amount": 1.0 + place * 0.75,
            "merchant": "Corner shop",
            "at": begin + timedelta(seconds=9 * place),
        }
        for place in range(tries)
    ]
    last = {
        "card": CARD + number,
        "amount": 600.0 + number * 50,
        "merchant": "Jewels",
        "at": begin + timedelta(seconds=9 * tries + 20),
    }
    return [*small, last]


def make_bank(log: Log) -> None:
    """The topics with their rows, and what the app `bank` looks for."""
    log.create(
        "payments",
        {"card": "int64", "amount": "float64", "merchant": "string", "at": "timestamp"},
        key="card",
        time="at",
        partitions=2,
    )
    log.create(
        "alerts",
        {"card": "int64", "tries": "int64", "amount": "float64", "began_at": "timestamp", "at": "timestamp"},
        key="card",
    )
    match = {
        "rule": "string",
        "version": "int64",
        "card": "int64",
        "match": "int64",
        "started_at": "timestamp",
        "ended_at": "timestamp",
        "measures": "string",
    }
    log.create("caught", match, key="card")
    log.create(
        "rules", {"id": "string", "text": "string", "enabled": "bool", "owner": "string"}, key="id", compact=True
    )
    _make_news(log)
    for number in range(STOLEN):
        rows = payments_of(number)
        other = {
            "card": CARD - 1 - number,
            "amount": 40.0,
            "merchant": "Ferry",
            "at": rows[0]["at"] + timedelta(seconds=3),
        }
        log.append("payments", [*rows, other])
        measures = {"tries": len(rows) - 1, "amount": rows[-1]["amount"]}
        log.append("alerts", [{"card": CARD + number, **measures, "began_at": rows[0]["at"], "at": rows[-1]["at"]}])
        rule = "large" if number > 6 else "tried-out"
        times = {"started_at": rows[0]["at"], "ended_at": rows[-1]["at"]}
        log.append(
            "caught",
            [
                {
                    "rule": rule,
                    "version": 0,
                    "card": CARD + number,
                    "match": 1,
                    **times,
                    "measures": json.dumps(measures),
                }
            ],
        )
    log.append("rules", [{"id": "tried-out", "text": TRIED_OUT, "enabled": True, "owner": "fraud desk"}])
    log.append(
        "rules",
        [
            {"id": "large", "text": LARGE, "enabled": True},
            {"id": "broken", "text": "PATTERN (a) DEFINE a AS amout > 1", "enabled": True},
        ],
    )
    _note(log)


def _make_news(log: Log) -> None:
    log.create("articles", {"url": "string", "title": "string", "published": "timestamp"}, time="published")
    log.create(
        "searches", {"id": "string", "query": "string", "metadata": "map<string, string>"}, key="id", compact=True
    )
    titles = ("Storm over the river", "Rates rise again", "A striker scores", "Floods in <b>Lyon</b>")
    log.append(
        "articles",
        [{"url": f"https://news.example/{n}", "title": titles[n % 4], "published": BEGIN} for n in range(40)],
    )
    log.append("searches", [{"id": "weather", "query": "storm OR flood*", "metadata": {"desk": "weather"}}])


def _note(log: Log) -> None:
    home = Home(log.home / "apps" / "bank")
    pattern = Finder(kind="pattern", operator="match", time="at", by=("card",), text=TRIED_OUT)
    rules = Finder(kind="rules", operator="rules", time="at", by=("card",), rules="rules")
    text = {"language": "english", "stop_words": True}
    settings = {"fields": {"title": ["Text", text]}, "default_fields": None}
    searches = Finder(kind="searches", operator="searches", time="published", rules="searches", settings=settings)
    home.set_finders("alerts", reads=["payments"], topic="alerts", finders=[pattern.to_json()])
    home.set_finders("caught", reads=["payments", "rules"], topic="caught", finders=[rules.to_json()])
    home.set_finders("mentioned", reads=["articles", "searches"], topic="mentioned", finders=[searches.to_json()])
