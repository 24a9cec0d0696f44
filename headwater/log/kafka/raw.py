"""Topics without a schema: key and value of a message are those of the row, as bytes. So are topics of other programs."""

from __future__ import annotations

import pyarrow as pa

from headwater.log.errors import RowTooLarge
from headwater.log.kafka.values.port import Decoded, Messages, Outgoing, Values
from headwater.schema import RowBatch, stored_schema


class RawRows(Values):
    """One message is one row: its key and its value."""

    format = "raw"
    per_row = True

    def __init__(self, topic: str, schema: pa.Schema) -> None:
        self._topic = topic
        self._schema = stored_schema(schema)

    def encode(self, rows: RowBatch, *, bytes_max: int) -> list[Outgoing]:
        values = rows.data.column("value").to_pylist()
        for value in values:
            if value is not None and len(value) > bytes_max:
                raise RowTooLarge(topic=self._topic, size=len(value), size_max=bytes_max)
        return [Outgoing(value) for value in values]

    def decode(self, messages: Messages) -> Decoded:
        columns = [
            pa.array(messages.keys, self._schema.field("key").type),
            pa.array(messages.values, self._schema.field("value").type),
        ]
        return Decoded(pa.RecordBatch.from_arrays(columns, schema=self._schema))
