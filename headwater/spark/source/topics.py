"""The topics of a read, the schema that they share, and positions in them as offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.engine.event_time import WatermarkStrategy
from headwater.engine.time_metadata import marked
from headwater.engine.watermark_origin import Origin, source_name
from headwater.errors import ArgumentInvalid, ColumnUnknown, NotFound, SchemaConflict
from headwater.log import Log
from headwater.log.topic import Topic
from headwater.schema.event_time import EventTime
from headwater.spark.source.columns import carried_type, is_system, spark_schema
from headwater.spark.source.decoder import decoder_of
from headwater.spark.source.offsets import Offsets
from headwater.spark.source.options import Options, Position, is_pattern

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def found_topics(log: Log, options: Options) -> dict[str, Topic]:
    """The topics that exist now, by name; a name that is not a pattern must be one of them."""
    names: dict[str, None] = {}
    for wanted in options.topics:
        if is_pattern(wanted):
            names |= dict.fromkeys(name for name in log.topics(wanted) if not name.endswith(".dlq"))
        else:
            names[wanted] = None
    return {name: log.topic(name) for name in names}


def read_schema(log: Log, options: Options) -> StructType:
    """The schema of the DataFrame."""
    topics = found_topics(log, options)
    if not topics:
        raise NotFound(kind="topic", name=options.topics[0])
    decoder = decoder_of(options)
    if decoder is None:
        schema = shared_schema(topics)
    else:
        for topic in topics.values():
            if not topic.schemaless:
                why = "has columns already; `format` is for topics without a schema"
                raise SchemaConflict(topic=topic.name, column=topic.schema.names[0], why=why)
        schema = decoder.schema
    for name in options.columns or ():
        if name not in schema.names and not is_system(name):
            raise ColumnUnknown(topic=", ".join(topics), column=name, columns=", ".join(schema.names))
    made = spark_schema(
        schema,
        columns=options.columns,
        topic=options.several,
        metadata=options.metadata,
        punctuations=options.punctuations,
        tombstones=any(topic.key for topic in topics.values()),
        key=decoder is not None,
    )
    times = event_times(topics, options, made.names)
    timed = recorded_time(topics, options)
    return marked(made, times, {} if timed is None or timed not in times else {timed.column: origin(options, timed)})


def recorded_time(topics: dict[str, Topic], options: Options) -> EventTime | None:
    """The event time that the source records with each batch: its column is the one that all of the topics declare."""
    declared = {topic.time for topic in topics.values()}
    time = options.time or (declared.pop() if len(declared) == 1 else None)
    is_declared = time is not None and all(topic.time_column == time.column for topic in topics.values())
    return time if is_declared and options.format is None else None


def origin(options: Options, time: EventTime) -> str:
    """Where the source records the watermark, as the column of event time carries it."""
    future_us = WatermarkStrategy.of(time).future_us
    return Origin(source=source_name(options.log, options.topics, time.column), future_us=future_us).to_text()


def event_times(topics: dict[str, Topic], options: Options, columns: Sequence[str]) -> list[EventTime]:
    """The event time of the rows: the one of the read, or the one that all of the topics declare alike."""
    declared = {topic.time for topic in topics.values()}
    time = options.time or (declared.pop() if len(declared) == 1 else None)
    if options.time is not None and options.columns is None and options.time.column not in columns:
        raise ColumnUnknown(topic=", ".join(topics), column=options.time.column, columns=", ".join(columns))
    return [] if time is None or time.column not in columns else [time]


def shared_schema(topics: dict[str, Topic]) -> pa.Schema:
    """The columns of all topics; one that several have must mean the same to Spark in each."""
    kinds: dict[str, pa.DataType] = {}
    for topic in topics.values():
        for field in topic.schema:
            kind = carried_type(field.type)
            if kinds.setdefault(field.name, kind) != kind:
                why = f"is {kind} here and {kinds[field.name]} in another topic of the same read"
                raise SchemaConflict(topic=topic.name, column=field.name, why=why)
    return pa.schema(list(kinds.items()))


def time_column(topics: dict[str, Topic], options: Options) -> None:
    """Raise if a range of event times is given for a topic without event time."""
    if options.since_us is None and options.until_us is None:
        return
    for topic in topics.values():
        if topic.time is None:
            raise ArgumentInvalid(
                name="since" if options.since_us is not None else "until",
                value=topic.name,
                expected="a topic with an event time; `headwater topic create --time` declares one",
            )


def positions(log: Log, topics: dict[str, Topic], position: Position) -> Offsets:
    """A position as an offset in each partition of each topic."""
    return {name: _positions_of(log, name, position) for name in topics}


def _positions_of(log: Log, topic: str, position: Position) -> dict[int, int]:
    starts, ends = log.start_offsets(topic), log.end_offsets(topic)
    if position == "earliest":
        return starts
    if position == "latest" or position == "now":  # each by itself, so that types follow
        return ends
    if isinstance(position, dict):
        given = position.get(topic, {})
        for partition in given:
            if partition not in ends:
                raise ArgumentInvalid(name="start", value=f"{topic}/{partition}", expected="a partition that exists")
        return {partition: given.get(partition, starts[partition]) for partition in ends}
    if isinstance(position, int):
        if position < 0:
            return {partition: max(starts[partition], end + position) for partition, end in ends.items()}
        return {partition: min(max(position, starts[partition]), end) for partition, end in ends.items()}
    return log.offset_at(topic, position)
