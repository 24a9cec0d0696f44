"""The topics that the world writes: their columns, keys and times. They are there before Spark is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.log import Log

APP = "company"

#: What `Log.create` and `App.input` take, by the topic's name.
INPUTS: dict[str, dict[str, Any]] = {
    "page_views": {
        "schema": {"visitor": "string", "city": "string", "page": "string", "at": "timestamp"},
        "key": "visitor",
        "time": "at",
        "partitions": 2,
    },
    "searches": {
        "schema": {"search": "int64", "visitor": "string", "words": "string", "url": "string", "at": "timestamp"},
        "key": "search",
        "time": "at",
    },
    "clicks": {
        "schema": {"search": "int64", "at": "timestamp"},
        "key": "search",
        "time": "at",
    },
    "payments": {
        "schema": {"payment": "int64", "card": "int64", "shop": "string", "amount": "float64", "at": "timestamp"},
        "key": "card",
        "time": "at",
        "partitions": 2,
    },
    # Not compacted: which limit a card had is asked for by the time of a payment.
    "cards": {
        "schema": {"card": "int64", "holder": "string", "spending_limit": "float64", "since": "timestamp"},
        "key": "card",
        "time": "since",
    },
    "readings": {
        "schema": {"machine": "string", "celsius": "float64", "at": "timestamp"},
        "key": "machine",
        "time": "at",
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
