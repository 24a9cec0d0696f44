"""Sinks: DataFrames go out into the world, each with a guarantee that its documentation states.

This door is lazy (PEP 562): whoever only sends a mail or a webhook needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.sinks.console import ConsoleSink
    from headwater.sinks.lake import Snapshot, read_lake
    from headwater.sinks.mail import MailSink
    from headwater.sinks.parquet import ParquetSink
    from headwater.sinks.port import Fanout, Guarantee, Sink
    from headwater.sinks.postgres import PostgresSink
    from headwater.sinks.redis import RedisSink
    from headwater.sinks.retrying import Retry
    from headwater.sinks.search import SearchSink
    from headwater.sinks.topic import TopicBatchWriter, TopicSink, TopicStreamWriter
    from headwater.sinks.webhook import WebhookSink

__all__ = [
    "ConsoleSink",
    "Fanout",
    "Guarantee",
    "MailSink",
    "ParquetSink",
    "PostgresSink",
    "RedisSink",
    "Retry",
    "SearchSink",
    "Sink",
    "Snapshot",
    "TopicBatchWriter",
    "TopicSink",
    "TopicStreamWriter",
    "WebhookSink",
    "read_lake",
]

_HOMES = {
    "ConsoleSink": "console",
    "Fanout": "port",
    "Guarantee": "port",
    "MailSink": "mail",
    "ParquetSink": "parquet",
    "PostgresSink": "postgres",
    "RedisSink": "redis",
    "Retry": "retrying",
    "SearchSink": "search",
    "Sink": "port",
    "Snapshot": "lake",
    "TopicBatchWriter": "topic",
    "TopicSink": "topic",
    "TopicStreamWriter": "topic",
    "WebhookSink": "webhook",
    "read_lake": "lake",
}


# Any: what a name stands for is known to type checkers from the imports above.
def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # so that the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
