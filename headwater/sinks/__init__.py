"""Sinks: DataFrames go out into the world, each with a guarantee that its documentation states.

This door is lazy (PEP 562): a program that only sends a mail or a webhook needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.sinks.console import ConsoleSink
    from headwater.sinks.lake import LakeSink
    from headwater.sinks.mail import MailSink
    from headwater.sinks.parquet import ParquetSink
    from headwater.sinks.port import Fanout, Guarantee, Sink
    from headwater.sinks.postgres import PostgresSink
    from headwater.sinks.queue import QueueSink
    from headwater.sinks.redis import RedisSink
    from headwater.sinks.retry import Retry
    from headwater.sinks.search import SearchSink
    from headwater.sinks.webhook import WebhookSink
    from headwater.spark.topic_sink import TopicBatchWriter, TopicSink, TopicStreamWriter

__all__ = [
    "ConsoleSink",
    "Fanout",
    "Guarantee",
    "LakeSink",
    "MailSink",
    "ParquetSink",
    "PostgresSink",
    "QueueSink",
    "RedisSink",
    "Retry",
    "SearchSink",
    "Sink",
    "TopicBatchWriter",
    "TopicSink",
    "TopicStreamWriter",
    "WebhookSink",
]

_HOMES = {
    "ConsoleSink": "headwater.sinks.console",
    "Fanout": "headwater.sinks.port",
    "Guarantee": "headwater.sinks.port",
    "LakeSink": "headwater.sinks.lake",
    "MailSink": "headwater.sinks.mail",
    "ParquetSink": "headwater.sinks.parquet",
    "PostgresSink": "headwater.sinks.postgres",
    "QueueSink": "headwater.sinks.queue",
    "RedisSink": "headwater.sinks.redis",
    "Retry": "headwater.sinks.retry",
    "SearchSink": "headwater.sinks.search",
    "Sink": "headwater.sinks.port",
    "TopicBatchWriter": "headwater.spark.topic_sink",
    "TopicSink": "headwater.spark.topic_sink",
    "TopicStreamWriter": "headwater.spark.topic_sink",
    "WebhookSink": "headwater.sinks.webhook",
}


# Any: what a name stands for is known to type checkers from the imports above.
def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # so that the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
