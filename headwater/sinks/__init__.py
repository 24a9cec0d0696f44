"""Sinks: DataFrames go out into the world, each with a guarantee that its documentation states."""

from headwater.sinks.topic import TopicBatchWriter, TopicSink, TopicStreamWriter

__all__ = ["TopicBatchWriter", "TopicSink", "TopicStreamWriter"]
