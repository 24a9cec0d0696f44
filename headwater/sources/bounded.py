"""A topic as a table: what is there between two positions when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headwater.sources.columns import arrow_schema
from headwater.sources.letters import Letters
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
        begin = positions(log, topics, self._options.start)
        if self._options.on_expired == "skip":
            oldest = positions(log, topics, "earliest")
            begin = {
                topic: {number: max(offset, oldest[topic][number]) for number, offset in offsets.items()}
                for topic, offsets in begin.items()
            }
        start = Progress(topics=begin)
        end = Progress(topics=positions(log, topics, self._options.stop))
        return [
            Part(topic=topic, id=topics[topic].id, partition=partition, start=first, stop=stop, number=number)
            for topic, partition, first, stop, number in parts(ranges(start, end), self._options.partitions_min)
        ] or [Part(topic="", id="", partition=0, start=0, stop=0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: Part = partition  # type: ignore[assignment]  # ours, from `partitions`
        if not part.topic:
            return
        log = shared_log(self._options.log)
        # Spark may run a read any number of times: the same range under the same name is written once.
        name = f"read-{self._options.source}-{part.partition}-{part.start}-{part.stop}"
        letters = Letters(log, part.topic, part.partition, producer=name, fail=self._options.bad_rows == "fail")
        yield from Scan(log, self._options, self._schema, letters=letters).batches(part)
