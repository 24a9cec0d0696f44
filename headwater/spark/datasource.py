"""`format("headwater")`: the data source that Spark calls for readers and writers of topics."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema

from headwater.engine.open_logs import shared_log
from headwater.engine.reader_protocol import stage_of_option
from headwater.spark.source.options import Options
from headwater.spark.source.reader import TopicReader, TopicStreamReader
from headwater.spark.source.topics import read_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class HeadwaterSource(DataSource):
    """Topics to read and to write. Each session registers a class of its own that knows the session's folders."""

    state: ClassVar[str] = ".headwater/state"
    log: ClassVar[str | None] = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    @classmethod
    def bound(cls, *, state: str | Path, log: str | None = None) -> type[HeadwaterSource]:
        """The class for a session: Spark's planner is a process of its own, and learns the folders only by it."""
        return type("HeadwaterSource", (cls,), {"state": str(state), "log": log})

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        options = self._reading()
        if options.reader_stage is not None:
            return from_arrow_schema(stage_of_option(options.reader_stage).output)
        return read_schema(shared_log(options.log), options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicReader(self._reading(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = self._reading()
        return TopicStreamReader(options, schema, state=options.state or self.state)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headwater.spark.topic_sink import TopicBatchWriter

        return TopicBatchWriter(self._writing(), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        from headwater.spark.topic_sink import TopicStreamWriter

        return TopicStreamWriter(self._writing(), schema)

    def _writing(self) -> dict[str, str]:
        return ({"log": self.log} if self.log is not None else {}) | dict(self.options)

    def _reading(self) -> Options:
        return Options.parse(self.options, log=self.log)
