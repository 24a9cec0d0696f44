"""A topic as a table: what is there between two positions when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headwater.sources.columns import arrow_schema
from headwater.sources.logs import shared_log
from headwater.sources.offsets import Progress, parts, ranges
from headwater.sources.options import Options
from headwater.sources.scan import Part, Scan
from headwater.sources.topics import found_topics, positions, time_column

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class TopicReader(DataSourceReader):
    """Reads topics from one position to another."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        log = shared_log(self._options.log)
        topics = found_topics(log, self._options)
        time_column(topics, self._options)
        start = Progress(topics=positions(log, topics, self._options.start))
        end = Progress(topics=positions(log, topics, self._options.stop))
        return [
            Part(topic=topic, id=topics[topic].id, partition=partition, start=first, stop=stop, number=number)
            for topic, partition, first, stop, number in parts(ranges(start, end), self._options.partitions_min)
        ] or [Part(topic="", id="", partition=0, start=0, stop=0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: Part = partition  # type: ignore[assignment]  # ours, from `partitions`
        scan = Scan(
            shared_log(self._options.log),
            self._schema,
            since_us=self._options.since_us,
            until_us=self._options.until_us,
            skip_expired=self._options.on_expired == "skip",
        )
        yield from scan.batches(part)
