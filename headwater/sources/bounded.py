"""A topic as a table: what is there between two positions when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headwater.batches import current_batch, record_once, time_folder
from headwater.log import EmbeddedLog
from headwater.sources.columns import arrow_schema
from headwater.sources.letters import Letters
from headwater.sources.logs import shared_log
from headwater.sources.offsets import Progress, parts, ranges
from headwater.sources.options import Options
from headwater.sources.scan import Part, Scan
from headwater.sources.topics import found_topics, positions, time_column

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


#: In place of an offset: the end, as it is when the part is read.
NOW = -1


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
        if self._options.stop == "now":
            return [
                Part(topic=topic, id=topics[topic].id, partition=partition, start=first, stop=NOW)
                for topic, offsets in begin.items()
                for partition, first in offsets.items()
            ]
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
        if part.stop == NOW:
            part = replace(part, stop=max(part.start, self._end(log, part)))
        # Spark may run a read any number of times: the same range under the same name is written once.
        name = f"read-{self._options.source}-{part.partition}-{part.start}-{part.stop}"
        letters = Letters(log, part.topic, part.partition, producer=name, fail=self._options.bad_rows == "fail")
        yield from Scan(log, self._options, self._schema, letters=letters).batches(part)

    def _end(self, log: EmbeddedLog, part: Part) -> int:
        """Where a partition ends now; in a batch of a stream, the same for all tasks and on every retry."""
        ends = {str(number): offset for number, offset in log.end_offsets(part.topic).items()}
        batch = current_batch()
        if batch is not None and self._options.state is not None:
            folder = time_folder(Path(self._options.state), batch.query)
            ends = record_once(folder, f"table-{batch.number}-{self._options.source}-{part.topic}", ends)
        return int(ends.get(str(part.partition), 0))
