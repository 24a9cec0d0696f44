"""Sinks: DataFrames go out into the world, each with a guarantee that its documentation states."""

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
