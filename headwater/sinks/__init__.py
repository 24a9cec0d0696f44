"""Sinks: DataFrames go out into the world, each with a guarantee that its documentation states."""

from headwater.sinks.console import ConsoleSink
from headwater.sinks.port import Fanout, Guarantee, Sink
from headwater.sinks.postgres import PostgresSink
from headwater.sinks.retrying import Retry
from headwater.sinks.topic import TopicBatchWriter, TopicSink, TopicStreamWriter

__all__ = [
    "ConsoleSink",
    "Fanout",
    "Guarantee",
    "PostgresSink",
    "Retry",
    "Sink",
    "TopicBatchWriter",
    "TopicSink",
    "TopicStreamWriter",
]
