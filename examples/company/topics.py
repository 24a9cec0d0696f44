"""The topics that the world writes: their columns, keys and times. They are there before Spark is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater import EventTime

if TYPE_CHECKING:
    from headwater.log import Log

APP = "company"
#: Known before the app is, so that Java can start first. Java's second compiler stays off: what it saves later, it takes now from
#: thirteen queries that are about to start. A heap this small needs no collector with threads of its own.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: People's devices send late and out of order; machines hardly ever.
PEOPLE = EventTime("at", delay="30 seconds")
MACHINES = EventTime("at", delay="2 seconds")

#: What `Log.create` and `App.input` take, by the topic's name.
INPUTS: dict[str, dict[str, Any]] = {
    "page_views": {
        "schema": {"visitor": "string", "city": "string", "page": "string", "at": "timestamp"},
        "key": "visitor",
        "time": PEOPLE,
        "partitions": 2,
    },
    "searches": {
        "schema": {"search": "int64", "visitor": "string", "words": "string", "url": "string", "at": "timestamp"},
        "key": "search",
        "time": PEOPLE,
    },
    "clicks": {
        "schema": {"search": "int64", "at": "timestamp"},
        "key": "search",
        "time": PEOPLE,
    },
    "payments": {
        "schema": {"payment": "int64", "card": "int64", "shop": "string", "amount": "float64", "at": "timestamp"},
        "key": "card",
        "time": PEOPLE,
        "partitions": 2,
    },
    # Not compacted: which limit a card had is asked for by the time of a payment.
    "cards": {
        "schema": {"card": "int64", "holder": "string", "spending_limit": "float64", "since": "timestamp"},
        "key": "card",
        "time": EventTime("since", delay="30 seconds"),
    },
    "readings": {
        "schema": {"machine": "string", "celsius": "float64", "at": "timestamp"},
        "key": "machine",
        "time": MACHINES,
    },
    "articles": {
        "schema": {"article": "int64", "title": "string", "body": "string", "published": "timestamp"},
        "key": "article",
        "time": "published",
    },
    "stored_searches": {
        "schema": {"id": "string", "query": "string", "metadata": "map<string, string>"},
        "key": "id",
        "compact": True,
    },
    "tweets": {
        "schema": {"tweet": "int64", "author": "string", "text": "string", "at": "timestamp"},
        "key": "tweet",
        "compact": True,
    },
    "follows": {"schema": {"reader": "string", "author": "string"}, "key": ["reader", "author"], "compact": True},
}


def make_topics(log: Log) -> None:
    """Make the input topics that are not there yet."""
    known = log.topics()
    for name, settings in INPUTS.items():
        if name not in known:
            log.create(name, **settings)
